"""The command ``export``."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
import typer

from .._arrays import Array
from .._files import write_file
from ..codes import Codes
from ..export import bit_texts, write_parquet
from ..families import Recipe
from ..index import Index
from .app import app, console, exit_on_error, fail
from .options import IndexPath, opened_index
from .output import progress_bar

SUFFIXES = (".npz", ".parquet", ".csv")
EXPORT_ROWS = 4096


def _bit_texts(codes: Any) -> list[str]:
    """Return one-hot bits, or the signs if all are kept, as strings of zeros and ones."""
    return bit_texts(codes.to_bits(), codes.n_pool if codes.n_kept == codes.n_pool else 2 * codes.n_pool)


def _sparse_texts(codes: Any) -> list[str]:
    """Return the signs in pgvector's sparsevec syntax, which counts from 1."""
    rows = zip((codes.locations + 1).tolist(), codes.signs.tolist(), strict=True)
    pairs = (",".join(f"{at}:{sign}" for at, sign in zip(*row, strict=True)) for row in rows)
    return [f"{{{text}}}/{codes.n_pool}" for text in pairs]


TEXTS: dict[str, Callable[[Codes], list[str]]] = {"bits": _bit_texts, "sparse": _sparse_texts}
"""Forms that can be written to .csv, as text that pgvector reads."""


@app.command()
def export(
    index: IndexPath,
    output: Annotated[Path, typer.Option("--output", "-o", help="Output file: .npz, .parquet or .csv.")],
    form: Annotated[
        str,
        typer.Option("--as", help="codes, bits (for Hamming engines), sparse (+-1), dense (reconstructed signals)."),
    ] = "codes",
) -> None:
    """Export codes for other programs, with their ids and their recipe.

    Forms: codes (packed bytes) and dense (reconstructed signals) for every family; bits for grouped, adaptive and sign
    codes, that is, one-hot codes of 2 * pool bits per entry, little-endian, or the signs themselves if all are kept;
    sparse for grouped and adaptive codes.

    File formats: .npz has one array named after the form; its sparse form is readable by scipy.sparse.load_npz.
    .parquet also holds metadata and the recipe, and topsign can read it back. .csv holds bits as text, or sparse in
    pgvector's sparsevec syntax, for COPY and read_csv, without the recipe.

    [bold]Examples[/]

    topsign export cameras.topsign -o codes.parquet

    topsign export cameras.topsign -o onehot.npz --as bits

    topsign export cameras.topsign -o vectors.csv --as sparse
    """
    if output.suffix not in SUFFIXES:
        raise fail(f"--output must be one of {', '.join(SUFFIXES)}, got {output}", code=2)
    opened = opened_index(index, readonly=True)
    _check_form(opened.recipe, form, output)
    with exit_on_error(1):
        ids = opened.ids
        if output.suffix == ".parquet":
            write_parquet(output, opened, form=form)
        else:
            write = _write_npz if output.suffix == ".npz" else _write_csv
            write_file(output, lambda file: write(file, ids, opened, form))
    console.print(f"{output}: {len(ids):,} entries, {output.stat().st_size:,} bytes")


def _check_form(recipe: Recipe, form: str, output: Path) -> None:
    """Reject forms that the family or the file format does not support."""
    forms = recipe.codes_type.forms
    if form not in forms:
        raise fail(f"--as must be one of {', '.join(forms)} for {recipe.family} codes, got {form}", code=2)
    texts = [f"--as {name}" for name in TEXTS if name in forms]
    if output.suffix == ".csv" and form not in TEXTS:
        remedy = f"a .csv file holds text: use {' or '.join(texts)}" if texts else "choose an .npz or .parquet file"
        raise fail(f"{recipe.family} codes as {form} cannot be written into a .csv; {remedy}", code=2)


def _write_csv(target: IO[bytes], ids: Array, index: Index, form: str) -> None:
    """Write one row per entry: the id and the code as text."""
    file = io.TextIOWrapper(target, "utf-8", newline="")
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(["id", form])
    for part, codes in _parts(index, ids):
        rows.writerows(zip(part.tolist(), TEXTS[form](codes), strict=True))
    file.detach()  # flushes without closing the target


def _write_npz(file: IO[bytes], ids: Array, index: Index, form: str) -> None:
    """Write the arrays one after another in parts, so that memory stays bounded."""
    recipe: Any = index.recipe
    texts = ids.dtype == object
    values: dict[str, Any] = {"ids": ids.astype(str) if texts else ids, "recipe": json.dumps(recipe.to_json())}
    arrays: dict[str, Callable[[Any], Array]]
    if form == "sparse":  # the layout of scipy.sparse.save_npz
        n_kept = recipe.n_kept
        values |= {"shape": [len(ids), recipe.n_pool], "format": b"csr", "_is_array": True}
        values["indptr"] = np.arange(0, (len(ids) + 1) * n_kept, n_kept, dtype="<i8")
        arrays = {
            "data": lambda codes: codes.signs.astype("<f4").ravel(),
            "indices": lambda codes: codes.locations.astype("<i8").ravel(),
        }
    else:
        first, *others = Codes.empty(recipe).to_form(form)
        arrays = {name: partial(_column, form, name) for name in others}
        arrays |= {"vectors" if form == "dense" else form: partial(_column, form, first)}
    with zipfile.ZipFile(file, "w") as members, progress_bar() as progress:
        for name, value in values.items():
            with members.open(f"{name}.npy", "w") as target:
                np.lib.format.write_array(target, np.asanyarray(value), allow_pickle=False)
        for name, get in arrays.items():
            bar = progress.add_task(name, total=len(ids))
            with members.open(f"{name}.npy", "w", force_zip64=True) as target:
                like = get(Codes.empty(recipe))
                n_values = int(values["indptr"][-1]) if form == "sparse" else len(ids)
                header = {"shape": (n_values, *like.shape[1:]), "fortran_order": False, "descr": like.dtype.str}
                np.lib.format.write_array_header_1_0(target, header)
                for part, codes in _parts(index, ids):
                    target.write(np.ascontiguousarray(get(codes)).tobytes())
                    progress.advance(bar, len(part))


def _parts(index: Index, ids: Array) -> Iterator[tuple[Array, Codes]]:
    """Yield ids and codes of consecutive entries."""
    for start in range(0, len(ids), EXPORT_ROWS):
        part = ids[start : start + EXPORT_ROWS]
        yield part, index.get(part).codes


def _column(form: str, name: str, codes: Codes) -> Array:
    return codes.to_form(form)[name]
