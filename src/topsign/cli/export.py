"""The command ``export``."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
import typer

from .._arrays import Array
from .._files import write_file
from ..export import FORMS, PgvectorBits, PgvectorSparse, bit_texts, write_parquet
from ..index import SignIndex
from .app import app, console, exit_on_error, fail
from .options import Index, IndexPath, opened_index
from .output import progress_bar

SUFFIXES = (".npz", ".parquet", ".csv")
EXPORT_ROWS = 4096


@app.command()
def export(
    index: IndexPath,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .npz, .parquet or .csv to write.")],
    form: Annotated[
        str, typer.Option("--as", help="codes, bits (one-hot, any Hamming engine), sparse (+-1) or dense (of trellis).")
    ] = "codes",
) -> None:
    """Write the codes into a file for other programs, with their ids; nothing is lost.

    .npz: codes are data, and norms and scales where they are kept, as topsign.AdaptiveCodes takes them; bits are
    2 * pool bits per entry, little-endian; sparse is what scipy.sparse.load_npz reads. .parquet: the same as columns,
    with norms, scales, metadata, and the parameters in the schema. .csv: bits as text and sparse as pgvector's
    sparsevec, for COPY and read_csv. A sign index has its packed signs as codes and bits. Trellis codes are codes (with
    their recipe in a .parquet, which Python reads again) or dense, the signals that they stand for.

    [bold]Examples[/]

    topsign export cameras.topsign -o codes.parquet

    topsign export cameras.topsign -o onehot.npz --as bits

    topsign export cameras.topsign -o vectors.csv --as sparse
    """
    if form not in (*FORMS, "dense"):
        raise fail(f"--as must be one of {', '.join(FORMS)}, dense, got {form}", code=2)
    if output.suffix not in SUFFIXES:
        raise fail(f"--output must be one of {', '.join(SUFFIXES)}, got {output}", code=2)
    if form == "codes" and output.suffix == ".csv":
        raise fail("a .csv holds bits or sparse: add --as bits or --as sparse", code=2)
    opened = opened_index(index, readonly=True)
    trellis = opened.recipe.family == "trellis"
    if trellis != (form == "dense") and form != "codes":
        raise fail("--as dense and codes go with trellis codes, everything but dense with others", code=2)
    if trellis and output.suffix == ".csv":
        raise fail("trellis codes go into an .npz or .parquet file", code=2)
    if form == "sparse" and isinstance(opened, SignIndex):
        raise fail("--as sparse goes with an adaptive index; every sign of a sign index is kept", code=2)
    with exit_on_error(1):
        ids = opened.ids
        if output.suffix == ".parquet":
            write_parquet(output, opened, form=form)
        else:
            write = _write_npz if output.suffix == ".npz" else _write_csv
            write_file(output, lambda file: write(file, ids, opened, form))
    console.print(f"{output}: {len(ids):,} entries, {output.stat().st_size:,} bytes", highlight=False)


def _write_csv(target: IO[bytes], ids: Array, index: Index, form: str) -> None:
    """One row per entry: an id and a text."""
    file = io.TextIOWrapper(target, "utf-8", newline="")
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(["id", form])
    for start in range(0, len(ids), EXPORT_ROWS):
        part = ids[start : start + EXPORT_ROWS]
        if isinstance(index, SignIndex):
            texts = bit_texts(index.get(part).codes, index.n_pool)
        else:
            engine = (PgvectorSparse if form == "sparse" else PgvectorBits).of(index)
            texts = engine.entries(index.get(part).codes)
        rows.writerows(zip(part.tolist(), texts, strict=True))
    file.detach()  # flushes, and leaves the target open


def _write_npz(file: IO[bytes], ids: Array, index: Index, form: str) -> None:
    """Array after array, each a part at a time, so that nothing large is held."""
    n_entries, n_bits = len(ids), index.n_bits

    def codes() -> Iterator[Any]:
        for start in range(0, n_entries, EXPORT_ROWS):
            yield index.get(ids[start : start + EXPORT_ROWS]).codes

    def column(get: Callable[[Any], Array]) -> Iterator[Array]:
        return (get(part) for part in codes())

    arrays: dict[str, tuple[tuple[int, ...], Any, Iterator[Array]]]
    if form == "dense":
        arrays = {"vectors": ((n_entries, index.n_features), "<f4", column(lambda part: part.decode()))}
    elif isinstance(index, SignIndex):
        arrays = {form: ((n_entries, index.recipe.layout.code_bytes), "|u1", codes())}
    elif form == "bits":
        arrays = {"bits": ((n_entries, -(-2 * index.n_pool // 8)), "|u1", column(lambda part: part.to_bits()))}
    elif form == "sparse":
        starts = np.arange(0, (n_entries + 1) * n_bits, n_bits, dtype="<i8")
        arrays = {
            "data": ((n_entries * n_bits,), "<f4", column(lambda part: part.to_sparse().data)),
            "indices": ((n_entries * n_bits,), "<i8", column(lambda part: part.to_sparse().indices.astype("<i8"))),
            "indptr": (starts.shape, "<i8", iter([starts])),
        }
    else:
        arrays = {"codes": ((n_entries, index.recipe.layout.code_bytes), "|u1", column(lambda part: part.data))}
        if index.recipe.beside:
            arrays["norms"] = (n_entries,), "<f4", column(lambda part: part.norms)
            arrays["scales"] = (n_entries,), "<f4", column(lambda part: part.scales)
    shape = {"n_bits": n_bits, "n_pool": index.n_pool, "layout": index.recipe.layout.name}
    if form == "sparse":
        shape = {"shape": [n_entries, index.n_pool], "format": b"csr", "_is_array": True}
    with zipfile.ZipFile(file, "w") as members, progress_bar() as progress:
        for name, value in ({"ids": ids.astype(str) if ids.dtype == object else ids} | shape).items():
            with members.open(f"{name}.npy", "w") as target:
                np.lib.format.write_array(target, np.asanyarray(value), allow_pickle=False)
        for name, (size, dtype, parts) in arrays.items():
            bar = progress.add_task(name, total=size[0])
            with members.open(f"{name}.npy", "w", force_zip64=True) as target:
                header = {"shape": size, "fortran_order": False, "descr": dtype}
                np.lib.format.write_array_header_1_0(target, header)
                for part in parts:
                    target.write(np.ascontiguousarray(part, dtype).tobytes())
                    progress.advance(bar, len(part))
