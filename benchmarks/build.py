"""Encoding and building: microseconds per signal of every family and projection, and ``topsign build`` of a file.

Batches of 256 signals and of one, all contestants interleaved; processor time with one thread. Peers are the matrix
product of a dense projection and FAISS's LSH. The second table times ``topsign build`` of a Parquet file of 384
features into trellis codes of 24 bytes along principal axes, and its stages separately. Needs pyarrow.
"""

import shutil
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from search import clock
from shared.families import FAMILIES, index_of, untrained
from shared.results import arguments, interleaved, ratio, save, spread, table

import topsign as ts
from topsign.encoding import encode


def contestants(n_features, n_bytes):
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((n_features, n_features), dtype=np.float32)
    calls = {("matrix product of a dense projection", None): lambda batch: batch @ matrix}
    for family in FAMILIES:
        recipe = untrained(family, n_features, n_bytes)
        calls[f"{family}, hadamard", recipe.code_bytes] = partial(encode, recipe)
    for kind in ("circulant", "sparse", "gaussian"):
        recipe = ts.Index(n_features, family="grouped", n_bytes=n_bytes, basis=kind, random_state=7).recipe
        calls[f"grouped, {kind}", recipe.code_bytes] = partial(encode, recipe)
    try:
        import faiss
    except ImportError:
        return calls
    lsh = faiss.IndexLSH(n_features, 8 * n_bytes)
    lsh.train(rng.standard_normal((2, n_features), dtype=np.float32))
    return calls | {("FAISS LSH", n_bytes): lsh.sa_encode}


def encoding(options):
    rng, rows, n = np.random.default_rng(1), [], options.features
    calls = contestants(n, n // 16)
    for size in (256, 1):
        batch = rng.standard_normal((size, n), dtype=np.float32)
        times = (
            1e6 / size * interleaved([partial(call, batch) for call in calls.values()], options.repeats, clock(options))
        )
        for i, (name, n_bytes) in enumerate(calls):
            rows.append([name, n_bytes, size, spread(times[:, i]), ratio(times[:, 0], times[:, i])])
    columns = ["code", "bytes", "batch", "us per signal", "times as fast as the product"]
    shown = next(row for row in rows if row[0] == "grouped, hadamard" and row[2] == 256)
    words = f"{shown[3]['median']:.0f} us each, {shown[4]['ratio']:.0f} times as fast as a dense projection"
    task = f"Encode signals of {n:,} features as grouped codes, batches of 256, {options.threads} thread"
    return table(f"Encoding signals of {n:,} features, {options.threads} thread(s)", columns, rows), [[task, words]]


def write_parquet(file, signals):
    """Write the signals as one column of lists, without compression."""
    import pyarrow
    import pyarrow.parquet

    kind = pyarrow.list_(pyarrow.float32(), signals.shape[1])
    with pyarrow.parquet.ParquetWriter(file, pyarrow.schema([("vector", kind)]), compression="none") as writer:
        for start in range(0, len(signals), 2**16):
            values = pyarrow.array(signals[start : start + 2**16].ravel())
            writer.write_table(
                pyarrow.table({"vector": pyarrow.FixedSizeListArray.from_arrays(values, signals.shape[1])})
            )


def building(options, folder):
    from typer.testing import CliRunner

    from topsign.cli import app
    from topsign.signals import open_files

    rng, file, output = np.random.default_rng(0), Path(folder, "signals.parquet"), Path(folder, "built.topsign")
    scales = (np.arange(1, 385) ** -0.35).astype(np.float32)
    signals = rng.standard_normal((options.signals, 384), dtype=np.float32) * scales
    write_parquet(file, signals)
    (found,) = open_files(file)
    recipe = index_of("trellis", 384, 24).fit(signals[:20_000]).recipe

    def read():
        rows = found.rows()
        for start in range(0, len(rows), 2**14):
            np.array(rows[start : start + 2**14])

    def build():
        shutil.rmtree(output, ignore_errors=True)
        given = ["--n-bytes", "24", "--random-state", "0"]
        shown = CliRunner().invoke(app, ["build", str(file), "-o", str(output), *given])
        if shown.exit_code:
            raise RuntimeError(shown.output)

    calls = {
        "read": read,
        "learn the recipe": lambda: index_of("trellis", 384, 24).fit(found.rows()),
        "project and encode": lambda: encode(recipe, signals),
        "topsign build, all of it": build,
    }
    times = interleaved(list(calls.values()), max(2, options.repeats // 3), clock(options))
    rows = [[name, spread(times[:, i]), spread(1e6 * times[:, i] / len(signals))] for i, name in enumerate(calls)]
    title = f"topsign build of {len(signals):,} signals of 384 features, {options.threads} thread(s)"
    return table(title, ["stage", "seconds", "us per signal"], rows)


def main():
    options = arguments(__doc__, features=(8192, 1024), signals=(200_000, 20_000), repeats=(7, 2), folder=None)
    shown, headline = encoding(options)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        save(options, [shown, building(options, folder)], headline)


if __name__ == "__main__":
    main()
