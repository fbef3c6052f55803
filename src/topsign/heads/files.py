"""Head files: plain arrays and a line of JSON in an npz archive, nothing that could run."""

from __future__ import annotations

import json
import os
import struct
import tokenize
import zipfile
import zlib
from typing import IO, Any, NoReturn

import numpy as np

from .._arrays import Array
from .._checks import check_flag, check_positive
from .._files import Record, write_file
from ..codes import check_content
from ..errors import StorageError
from ..projections.blocks import MAX_NORM
from ..recipe import Recipe
from .queries import Universal

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
    OSError,
    RuntimeError,
    OverflowError,
    SyntaxError,
    struct.error,
    tokenize.TokenError,
    zlib.error,
    zipfile.BadZipFile,
)
"""Errors by which NumPy and the zip archive refuse bytes."""


def write_head(path: str | os.PathLike[str], header: Record, arrays: dict[str, Array]) -> None:
    """Writes the whole file or nothing."""
    text = json.dumps({"format": FORMAT} | header).encode()
    members = arrays | {"header": np.frombuffer(text, np.uint8)}
    write_file(path, lambda file: np.savez(file, allow_pickle=False, **members))


def read_head(path: str | os.PathLike[str]) -> tuple[Record, dict[str, Array]]:
    """Header and arrays of a head file of any format, as the newest has them; StorageError for anything else."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            _check_sizes(path, raw, file.zip)
            arrays = {key: file[key] for key in file.files}
        text = arrays.pop("header")
        header = json.loads(text.tobytes() if text.dtype == np.uint8 else str(text))  # a string in format 1
        version = header["format"]
        if version == 1:
            header, arrays = _from_format_1(header, arrays)
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
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


def plain_labels(classes: Array) -> Array:
    """Labels that a file can hold without code: numbers, booleans or strings."""
    if classes.dtype == object and all(isinstance(label, str) for label in classes):
        return classes.astype(str)
    if classes.dtype == object:
        raise TypeError(f"classes must be numbers or strings to be saved, got {classes[:3]!r}")
    return classes


def read_universal(record: Record) -> Universal:
    """The quantisation of a header; KeyError, TypeError or ValueError where it is something else."""
    return Universal(check_positive(record["step"], "step"), check_flag(record["dither"], "dither"))


def check_arrays(recipe: Recipe, scoring: str, universal: Universal | None, arrays: dict[str, Array]) -> None:
    """Arrays that fit together and hold what they should, because kernels check nothing."""
    if recipe.family == "trellis" and (scoring != "asymmetric" or universal or not recipe.norms or recipe.n_local > 1):
        raise ValueError("a head of trellis codes estimates logits, by codes of one basis with norms")
    codes, biases, classes = arrays["codes"], arrays["biases"], arrays["classes"]
    check_content(recipe.layout, codes, name="codes")
    n_classes = len(classes) if classes.ndim == 1 else 0
    alone = n_classes == 2 and biases.shape == (1,)
    if not (n_classes and (alone or biases.shape == (n_classes,))):
        raise ValueError(f"biases of shape {biases.shape} do not fit classes of shape {classes.shape}")
    if len(codes) != (n_classes if universal is not None else len(biases)):
        raise ValueError(f"{len(codes)} codes do not fit {n_classes} classes")
    wanted: dict[str, tuple[tuple[int, ...], type[Any]]] = {"biases": (biases.shape, np.float64)}
    if scoring == "asymmetric" and recipe.family != "trellis":
        wanted["scales"] = ((len(codes),), np.float32)
    for name, (shape, kind) in wanted.items():
        array = arrays[name]
        if array.shape != shape or array.dtype != kind:
            raise ValueError(f"{name} must be {kind.__name__} of shape {shape}, got {array.dtype} {array.shape}")
        if not (np.abs(array) <= MAX_NORM).all():
            raise ValueError(f"{name} holds NaN, infinity, or values above {MAX_NORM:g}, with which logits overflow")
