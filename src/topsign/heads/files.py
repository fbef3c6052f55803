"""Head files: plain arrays and a line of JSON in an npz archive, nothing that could run."""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from typing import IO, Any, NoReturn

import numpy as np

from .._arrays import Array
from .._files import Record, write_file
from ..errors import StorageError

FORMAT = 2

MAX_RATIO = 20
"""How much larger than the file its arrays may be; heads are written uncompressed."""


BAD_BYTES = (
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    EOFError,
    AttributeError,
    MemoryError,
    RuntimeError,
    OverflowError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
)
"""Errors by which NumPy and the zip archive refuse bytes."""


def write_head(path: str | os.PathLike[str], header: Record, arrays: dict[str, Array]) -> None:
    """Writes the whole file or nothing."""
    members = arrays | {"header": np.array(json.dumps({"format": FORMAT} | header))}
    write_file(path, lambda file: np.savez(file, allow_pickle=False, **members))


def read_head(path: str | os.PathLike[str]) -> tuple[Record, dict[str, Array]]:
    """Header and arrays of a head file of any format, as the newest has them; StorageError for anything else."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            _check_sizes(path, raw, file.zip)
            arrays = {key: file[key] for key in file.files}
        header = json.loads(str(arrays.pop("header")))
        version = header["format"]
        if version == 1:
            header, arrays = _from_format_1(header, arrays)
    except BAD_BYTES as error:
        raise_not_a_head(path, repr(error))
    if version not in (1, FORMAT):
        raise_not_a_head(path, f"format {version!r}, this version reads formats 1 and {FORMAT}; upgrade topsign")
    return header, arrays


def _check_sizes(path: str | os.PathLike[str], raw: IO[bytes], members: zipfile.ZipFile) -> None:
    """Refuses arrays that could not honestly come from so few bytes, before any is unpacked."""
    n_bytes, unpacked = os.fstat(raw.fileno()).st_size, sum(member.file_size for member in members.infolist())
    if unpacked > MAX_RATIO * n_bytes:
        raise_not_a_head(path, f"its {n_bytes:,} bytes unpack to {unpacked:,}")


def raise_not_a_head(path: str | os.PathLike[str], why: str) -> NoReturn:
    """Raises the error of a file that cannot be loaded."""
    raise StorageError(path, "head", f"not a head that this version can read: {why}")


def _from_format_1(header: Record, arrays: dict[str, Array]) -> tuple[Record, dict[str, Array]]:
    """Format 1 named a classifier and its parameters where there is a recipe now."""
    parameters: dict[str, Any] = header["parameters"]
    made = dict(header["projection"])
    recipe = {
        "kind": "adaptive" if header["classifier"] == "AdaptiveLinearClassifier" else "sign",
        "projection": made.pop("kind"),
        "n_features": made.pop("n_features"),
        "n_pool": made.pop("n_pool"),
        "seed": made.pop("seed"),
        "options": made,
        "n_bits": parameters["n_bits"],
        "layout": parameters.get("layout", "signs"),
        "norms": True,
        "metric": "correlation",
        "fingerprint": header["fingerprint"],
    }
    universal = header["classifier"] == "UniversalLinearClassifier"
    renamed = {"intercept": "biases", "coef": "weights"}
    return {
        "recipe": recipe,
        "scoring": parameters.get("scoring", "hamming"),
        "link": header["link"],
        "shortlist": parameters.get("shortlist"),
        "universal": {name: parameters[name] for name in ("step", "dither")} if universal else None,
    }, {renamed.get(name, name): array for name, array in arrays.items()}
