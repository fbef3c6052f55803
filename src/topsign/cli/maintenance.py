"""Commands for whole indexes: ``inspect``, ``verify``, ``compact`` and ``export``."""

from __future__ import annotations

import csv
import io
import json as json_format
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from .app import command, console, errors, fail
from .options import IndexPath, Json, Scheduler, Timeout, Version, opened_index
from .output import bar, check_output, show_json, show_result, show_rows, show_values

if TYPE_CHECKING:
    from .._arrays import Array
    from ..codes import Codes
    from ..families import Recipe
    from ..index import Index

CORRELATIONS = (0.05, 0.1, 0.2, 0.5)
EXPORT_SUFFIXES = (".npz", ".parquet", ".csv")
EXPORT_ROWS = 4096


@command()
def inspect(
    index: Annotated[
        str | None, typer.Argument(metavar="[INDEX]", help="The index: a folder, s3://, gs:// ...", show_default=False)
    ] = None,
    correlation: Annotated[
        list[float] | None, typer.Option(help="Show the error at this; may be repeated. (default: 0.05 0.1 0.2 0.5)")
    ] = None,
    version: Version = None,
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Show the recipe, counts and sizes of an index; without an index, the processor, kernels and versions.

    For a match at a correlation: the expected distance of its signs, their standard deviation, and the 95% interval
    of the correlation estimated from real-valued queries. Only for codes whose errors follow a known law.

    [bold]Examples[/]

    topsign inspect cameras.topsign
    topsign inspect cameras.topsign --correlation 0.07 --json
    topsign inspect
    """
    if index is None:
        if correlation or (version, scheduler) != (None, None):
            raise fail("--correlation, --version and --scheduler go with an INDEX", code=2)
        _show_system(json)
        return
    with opened_index(index, readonly=True, version=version, scheduler=scheduler) as opened:
        found = {rho: opened.recipe.expected_match(rho) for rho in correlation or CORRELATIONS}
        expected = [{"correlation": rho} | match for rho, match in found.items() if match is not None]
        if correlation and not expected:
            raise fail(
                f"--correlation has no effect on {opened.family} codes, whose errors follow no known law", code=2
            )
        header = opened.info["header"] | opened.recipe.described() | {"calibration": _calibration(opened)}
        checked = opened.check(recall=None)
        sizes = _sizes(opened, checked.drift)
        if json:
            show_json({"header": header, "sizes": sizes, "expected": expected})
            return
        shown = {name: _shown(value) for name, value in header.items()}
        for name, value in sizes.items():
            shown[name.replace("_", " ")] = f"{value:,}" if isinstance(value, int) else str(value)
        show_values(shown, title=index)
        _warn_of_null(opened, checked.null)
    if expected:
        console.print("\nexpected of a match")
        interval = "{0[interval][0]:.3f} to {0[interval][1]:.3f}".format
        forms: Any = {"correlation": "g", "distance": ".4f", "deviation": ".4f", "95% interval": interval}
        show_rows(expected, list(forms), forms=forms)


def _show_system(json: bool) -> None:
    from .. import __version__, kernels

    found = {"topsign": __version__, **kernels.info()}
    if json:
        show_json(found)
        return
    shown = {}
    for name, value in found.items():
        if isinstance(value, dict):
            shown[name] = "\n".join(f"{path}: {reason}" for path, reason in value.items())
        else:
            shown[name] = ", ".join(value) if isinstance(value, list) else "-" if value is None else str(value)
    show_values(shown, title="this machine")


def _shown(value: object) -> str:
    """Return a value of the header as text; numbers of a stored model with their names."""
    if not isinstance(value, dict):
        return "none" if value is None else str(value)
    texts = {name: f"{one:.4g}" if isinstance(one, float) else str(one) for name, one in value.items()}
    return ", ".join(f"{name.replace('_', ' ')} {text}" for name, text in texts.items())


def _sizes(index: Index, drift: float | None) -> dict[str, Any]:
    """Return the counts and sizes of an index, and the properties of its regions if it has any."""
    sizes: dict[str, Any] = {
        "entries": len(index),
        "removed": index.info["removed"],
        "segments": index.info["segments"],
        "bytes": index.nbytes,
        **{f"{name}_bytes": n_bytes for name, n_bytes in index.info["bytes"].items()},
        "code_bytes_per_entry": index.recipe.code_bytes,
        "bits_per_dimension": round(8 * index.recipe.code_bytes / index.n_features, 4),
    }
    if index.regions is not None:
        due = " (topsign regions is due: searches visit more than needed)" if index.regions.is_due else ""
        sizes |= {"regions": index.regions.n_regions, "growth_since_learning": f"{index.regions.growth:.2f}{due}"}
        sizes |= {"recall_of": index.regions.recall_of}
    return sizes if drift is None else sizes | {"energy_of_recent_codes": round(drift, 4)}


def _calibration(index: Index) -> dict[str, Any] | None:
    """Return the stored null distribution in numbers; None without calibration."""
    found = index.calibration
    if found is None:
        return None
    source = "own signals" if found.own else "impostors"
    return {"searches": found.n_queries, "from": source, "entries": found.n_entries, "level": found.level}


def _warn_of_null(index: Index, null: Any) -> None:
    """Print a warning if the p-values of an uncalibrated index do not fit its entries."""
    if index.calibration is None and not null.trusted:
        more = "" if index.recipe.parameters().get("center") else ", --center helps"
        remedy = f"topsign calibrate learns a null that does{more}"
        errors.print(f"p-values do not fit these signals: {null}; {remedy}", label="warning:", color="yellow")


@command()
def verify(index: IndexPath, version: Version = None, scheduler: Scheduler = None, json: Json = False) -> None:
    """Read all of an index: every file, every checksum, every id.

    [bold]Examples[/]

    topsign verify cameras.topsign
    """
    with opened_index(index, readonly=True, version=version, scheduler=scheduler) as opened:
        if scheduler is None:
            opened.verify()
        else:
            with bar("verifying") as progress:
                opened.verify(progress=progress)
        sizes = {"entries": len(opened), "bytes": opened.nbytes, "segments": opened.info["segments"]}
        sound = f"{index}: sound: {len(opened):,} entries in {sizes['segments']:,} segments"
        show_result(sound, {"index": index, "sound": True} | sizes, json)
        _warn_of_null(opened, opened.check(recall=None).null)


@command()
def compact(index: IndexPath, timeout: Timeout = None, scheduler: Scheduler = None, json: Json = False) -> None:
    """Drop removed entries and merge small segments; concurrent searches continue.

    [bold]Examples[/]

    topsign compact cameras.topsign
    """
    with opened_index(index, timeout=timeout, scheduler=scheduler) as opened:
        n_removed = opened.info["removed"]
        opened.compact()
        sizes = {"removed": n_removed, "entries": len(opened), "bytes": opened.nbytes}
        left = f"{len(opened):,} entries in {opened.nbytes:,} bytes"
        show_result(f"{index}: {n_removed:,} removed entries freed, {left}", {"index": index} | sizes, json)


def _bit_texts(codes: Any) -> list[str]:
    """Return one-hot bits, or the signs if all are kept, as strings of zeros and ones."""
    from ..export import bit_texts

    return bit_texts(codes.to_bits(), codes.n_pool if codes.n_kept == codes.n_pool else 2 * codes.n_pool)


def _sparse_texts(codes: Any) -> list[str]:
    """Return the signs in pgvector's sparsevec syntax, which counts from 1."""
    rows = zip((codes.locations + 1).tolist(), codes.signs.tolist(), strict=True)
    pairs = (",".join(f"{at}:{sign}" for at, sign in zip(*row, strict=True)) for row in rows)
    return [f"{{{text}}}/{codes.n_pool}" for text in pairs]


TEXTS: dict[str, Callable[[Any], list[str]]] = {"bits": _bit_texts, "sparse": _sparse_texts}
"""Forms that can be written to .csv, as text that pgvector reads."""


@command()
def export(
    index: IndexPath,
    output: Annotated[Path, typer.Option("--output", "-o", help="Output file: .npz, .parquet or .csv.")],
    form: Annotated[
        str, typer.Option(help="codes, bits (for Hamming engines), sparse (+-1), dense (reconstructed signals).")
    ] = "codes",
    version: Version = None,
    scheduler: Scheduler = None,
    json: Json = False,
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
    topsign export cameras.topsign -o onehot.npz --form bits
    topsign export cameras.topsign -o vectors.csv --form sparse
    """
    from .._files import write_file
    from ..export import write_parquet

    check_output(output, suffixes=EXPORT_SUFFIXES)
    with opened_index(index, readonly=True, version=version, scheduler=scheduler) as opened:
        _check_form(opened.recipe, form, output)
        ids = opened.ids
        if output.suffix == ".parquet":
            write_parquet(output, opened, form=form)
        else:
            write = _write_npz if output.suffix == ".npz" else _write_csv
            write_file(output, lambda file: write(file, ids, opened, form))
    size = output.stat().st_size
    record = {"output": str(output), "entries": len(ids), "bytes": size}
    show_result(f"{output}: {len(ids):,} entries, {size:,} bytes", record, json)


def _check_form(recipe: Recipe, form: str, output: Path) -> None:
    """Reject forms that the family or the file format does not support."""
    forms = recipe.codes_type.forms
    if form not in forms:
        raise fail(f"--form must be one of {', '.join(forms)} for {recipe.family} codes, got {form}", code=2)
    texts = [f"--form {name}" for name in TEXTS if name in forms]
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
    import numpy as np

    from ..codes import Codes

    recipe: Any = index.recipe
    texts = ids.dtype == object
    values: dict[str, Any] = {"ids": ids.astype(str) if texts else ids, "recipe": json_format.dumps(recipe.to_json())}
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
    with zipfile.ZipFile(file, "w") as members:
        for name, value in values.items():
            with members.open(f"{name}.npy", "w") as target:
                np.lib.format.write_array(target, np.asanyarray(value), allow_pickle=False)
        for name, get in arrays.items():
            done = 0
            with bar(name) as progress, members.open(f"{name}.npy", "w", force_zip64=True) as target:
                like = get(Codes.empty(recipe))
                n_values = int(values["indptr"][-1]) if form == "sparse" else len(ids)
                header = {"shape": (n_values, *like.shape[1:]), "fortran_order": False, "descr": like.dtype.str}
                np.lib.format.write_array_header_1_0(target, header)
                for part, codes in _parts(index, ids):
                    target.write(np.ascontiguousarray(get(codes)).tobytes())
                    done += len(part)
                    progress(done, len(ids))


def _parts(index: Index, ids: Array) -> Iterator[tuple[Array, Codes]]:
    """Yield ids and codes of consecutive entries."""
    for start in range(0, len(ids), EXPORT_ROWS):
        part = ids[start : start + EXPORT_ROWS]
        yield part, index.get(part).codes


def _column(form: str, name: str, codes: Codes) -> Array:
    return codes.to_form(form)[name]
