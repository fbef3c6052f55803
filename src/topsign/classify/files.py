"""Heads in files: plain arrays and a line of JSON, nothing that could run."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from .._arrays import Array
from .._checks import plain_labels, raise_not_a_head
from ..projections import Projection, make_projection

FORMAT = 1


def write_head(
    path: str | os.PathLike[str],
    name: str,
    parameters: dict[str, Any],
    projection: Projection,
    link: str | None,
    arrays: dict[str, Array],
) -> None:
    """All of the file, or none of it."""
    header = {
        "format": FORMAT,
        "classifier": name,
        "parameters": parameters,
        "projection": projection.description,
        "fingerprint": projection.fingerprint(),
        "link": link,
    }
    arrays = arrays | {"classes": plain_labels(arrays["classes"]), "header": np.array(json.dumps(header))}
    target = Path(path)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def read_head(
    path: str | os.PathLike[str], name: str
) -> tuple[dict[str, Any], Projection, str | None, dict[str, Array]]:
    """What was written; anything else raises ValueError that names the file."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        header = json.loads(str(arrays.pop("header")))
        written = header["format"], header["classifier"]
        parameters, made, fingerprint, link = (
            header[key] for key in ("parameters", "projection", "fingerprint", "link")
        )
    except (ValueError, KeyError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise_not_a_head(path, repr(error))
    if written != (FORMAT, name):
        raise_not_a_head(path, f"it holds format {written[0]} of {written[1]}, not format {FORMAT} of {name}")
    projection = make_projection(**made)
    if projection.fingerprint() != fingerprint:
        raise_not_a_head(path, f"its fingerprint is {fingerprint}, that of {projection!r} here is another")
    return parameters, projection, link, arrays


def check_head(
    path: str | os.PathLike[str], arrays: dict[str, Array], code_bytes: int, n_features: int, *, scoring: str
) -> None:
    """Shapes that fit together: kernels check nothing."""
    n_rows = len(arrays.get("codes", ()))
    wanted = {"codes": (n_rows, code_bytes)} | ({"scales": (n_rows,)} if scoring == "asymmetric" else {})
    if "coef" in arrays:
        wanted["coef"] = (n_rows, n_features)
    kinds = {"codes": np.uint8, "scales": np.float32}
    for name, shape in wanted.items():
        if (
            name not in arrays
            or arrays[name].shape != shape
            or arrays[name].dtype != kinds.get(name, arrays[name].dtype)
        ):
            raise_not_a_head(path, f"its array {name!r} is missing or not {shape}")
    n_vectors = len(arrays["intercept"]) if "intercept" in arrays else 0
    if "classes" not in arrays or not 0 < n_vectors <= min(n_rows, len(arrays["classes"])):
        raise_not_a_head(path, "its classes and intercepts do not fit its codes")
