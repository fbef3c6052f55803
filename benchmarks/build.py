"""Time ``topsign build`` of a Parquet file and its three stages separately: reading, projecting and coding.

    python benchmarks/build.py [--signals 1000000] [--threads 16] [--repeats 3] [--json FILE]

The file holds random signals of 384 features as lists of float32, and the index 24-byte trellis codes along principal
axes. Each repeat runs all calls in turn. ``ratio`` is the least time of the build without that of learning the recipe,
which the command does first, over the least time of the slowest stage. Needs pyarrow.
"""

import argparse
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
from shared.results import interleaved, save, spread
from trellis_threads import FEATURES, N_BYTES, make_signals
from typer.testing import CliRunner

import topsign as ts
from topsign import kernels
from topsign.cli import app
from topsign.cli.build import CHUNK_ROWS
from topsign.projections.blocks import float_blocks
from topsign.signals import open_files

STAGES = ("read", "project", "code")


def write_parquet(file, signals):
    """Write the signals as one column of lists, without compression."""
    kind = pyarrow.list_(pyarrow.float32(), FEATURES)
    with pyarrow.parquet.ParquetWriter(file, pyarrow.schema([("vector", kind)]), compression="none") as writer:
        for start in range(0, len(signals), 2**16):
            values = pyarrow.array(signals[start : start + 2**16].ravel())
            cells = pyarrow.FixedSizeListArray.from_arrays(values, FEATURES)
            writer.write_table(pyarrow.table({"vector": cells}))


def calls_of(file, folder, signals, threads):
    """Return the calls that are timed, by name."""
    (found,) = open_files(file)
    recipe = ts.TrellisIndex(n_features=FEATURES, n_bytes=N_BYTES, random_state=0).fit(found.rows()).recipe
    output = Path(folder, "built.topsign")

    def learn():
        ts.TrellisIndex(n_features=FEATURES, n_bytes=N_BYTES, random_state=0).fit(found.rows())

    def read():
        rows = found.rows()
        for start in range(0, len(rows), CHUNK_ROWS):
            np.array(rows[start : start + CHUNK_ROWS])

    def project():
        for block in float_blocks(signals, recipe.encoded_signals, n_threads=threads):
            recipe.cells.coordinates(block, threads)

    blocks = list(float_blocks(signals, recipe.encoded_signals, n_threads=threads))
    coordinates = [recipe.cells.coordinates(block, threads) for block in blocks]

    def code():
        for some in coordinates:
            kernels.active().trellis_encode(some, n_threads=threads)

    def build():
        shutil.rmtree(output, ignore_errors=True)
        options = ["--family", "trellis", "--bytes", str(N_BYTES), "--seed", "0", "--threads", str(threads)]
        shown = CliRunner().invoke(app, ["build", str(file), "-o", str(output), *options])
        if shown.exit_code:
            raise RuntimeError(shown.output)

    return {"read": read, "project": project, "code": code, "learn": learn, "build": build}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--signals", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", help="where the file and the index are written; default: the temporary folder")
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        signals, file = make_signals(options.signals), Path(folder, "signals.parquet")
        write_parquet(file, signals)
        calls = calls_of(file, folder, signals, options.threads)
        times = dict(zip(calls, interleaved(list(calls.values()), options.repeats).T, strict=True))
    rows = {name: spread(seconds) for name, seconds in times.items()}
    least = {name: row["least"] for name, row in rows.items()}
    slowest = max(STAGES, key=least.__getitem__)
    ratio = (least["build"] - least["learn"]) / least[slowest]
    for name, row in rows.items():
        print(f"{name:8} {row['least']:8.3f} s, median {row['median']:8.3f} s")
    per_second = options.signals / (least["build"] - least["learn"])
    print(f"build without learning: {ratio:.2f} times {slowest}, {per_second:,.0f} signals per second")
    if options.json:
        measured = {"seconds": rows, "slowest": slowest, "ratio": ratio, "signals_per_second": per_second}
        save(options.json, options, measured)


if __name__ == "__main__":
    main()
