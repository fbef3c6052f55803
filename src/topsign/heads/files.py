"""Head files: plain arrays and a JSON header in an npz archive, without executable content."""

from __future__ import annotations

import json
import os
import zipfile
from typing import IO, NoReturn

import numpy as np

from .._arrays import Array
from .._files import MALFORMED, Record, write_file
from ..errors import StorageError
from ..families import Recipe
from ..projections.blocks import MAX_NORM
from .scores import check_operands

FORMAT = 2

MAX_RATIO = 20
"""Largest ratio of the bytes of the arrays to those of the file; heads are written uncompressed."""


def write_head(path: str | os.PathLike[str], header: Record, arrays: dict[str, Array]) -> None:
    """Write a head file atomically."""
    text = json.dumps({"format": FORMAT} | header).encode()
    members = arrays | {"header": np.frombuffer(text, np.uint8)}
    write_file(path, lambda file: np.savez(file, allow_pickle=False, **members))


def read_head(path: str | os.PathLike[str]) -> tuple[Record, dict[str, Array]]:
    """Return header and arrays of a head file; raise StorageError for any other file."""
    try:
        with open(path, "rb") as raw:
            if raw.read(6) == b"\x93NUMPY":
                raise_not_a_head(path, "it is an .npy array; Head.save writes heads")
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            _check_sizes(path, raw, file.zip)
            arrays = {key: file[key] for key in file.files}
        header = json.loads(arrays.pop("header").tobytes())
        version = header["format"]
    except (FileNotFoundError, PermissionError, IsADirectoryError, StorageError):
        raise
    except (*MALFORMED, AttributeError) as error:
        raise_not_a_head(path, repr(error))
    if version != FORMAT:
        raise_not_a_head(path, f"format {version!r}, this version reads format {FORMAT}; upgrade topsign")
    return header, arrays


def _check_sizes(path: str | os.PathLike[str], raw: IO[bytes], members: zipfile.ZipFile) -> None:
    """Refuse arrays much larger than the file, before any is unpacked."""
    n_bytes, unpacked = os.fstat(raw.fileno()).st_size, sum(member.file_size for member in members.infolist())
    if unpacked > MAX_RATIO * n_bytes:
        raise_not_a_head(path, f"its {n_bytes:,} bytes unpack to {unpacked:,}")


def raise_not_a_head(path: str | os.PathLike[str], why: str) -> NoReturn:
    """Raise StorageError for a file that is not a head."""
    raise StorageError(path, "head", f"not a head that this version can read: {why}")


def plain_labels(classes: Array) -> Array:
    """Return labels as a file can hold them: numbers, booleans or strings."""
    if classes.dtype == object and all(isinstance(label, str) for label in classes):
        return classes.astype(str)
    if classes.dtype == object:
        raise TypeError(f"classes must be numbers or strings to be saved, got {classes[:3]!r}")
    return classes


def check_arrays(recipe: Recipe, scoring: str, arrays: dict[str, Array]) -> None:
    """Raise ValueError unless the arrays of a head fit together, because kernels do not check."""
    codes, biases, classes = arrays["codes"], arrays["biases"], arrays["classes"]
    n_classes = len(classes) if classes.ndim == 1 else 0
    shared = n_classes == 2 and biases.shape == (1,)  # one weight vector for two classes
    if not (n_classes and (shared or biases.shape == (n_classes,))):
        raise ValueError(f"biases of shape {biases.shape} do not fit classes of shape {classes.shape}")
    check_operands(recipe, codes, biases)
    recipe.check(np.ascontiguousarray(codes[:, : recipe.code_bytes]), name="codes")
    if scoring not in recipe.scorings:
        raise ValueError(f"{recipe.family} codes have no {scoring} scores")
    if biases.dtype != np.float64 or not (np.abs(biases) <= MAX_NORM).all():
        raise ValueError(f"biases must be float64 of at most {MAX_NORM:g}, above which logits overflow")
