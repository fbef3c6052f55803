"""Functions of the package that common calls pass through: distinct functions, files and packages, calls and depth.

Each call runs twice, and the second run is counted, on one thread. ``--show NAME`` also lists the functions of a walk
with the number of their calls, in the order of their first.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from shared.families import index_of
from shared.results import arguments, save, table, with_threads

import topsign as ts

ROOT = str(Path(ts.__file__).parent)
NOT_FUNCTIONS = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<module>")


def trace(call):
    """Return the calls of functions of the package, (file, function) -> count, and the depth of the deepest."""
    counts, depth, deepest = Counter(), 0, 0

    def note(frame, event, _):
        nonlocal depth, deepest
        code = frame.f_code
        name = code.co_qualname.rpartition(".")[2]
        if event not in ("call", "return") or not code.co_filename.startswith(ROOT) or name in NOT_FUNCTIONS:
            return
        depth += 1 if event == "call" else -1
        deepest = max(deepest, depth)
        if event == "call":
            counts[code.co_filename[len(ROOT) + 1 :], code.co_qualname] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return counts, deepest


def make_walks(folder, n_entries, n_features):
    """Return the calls, by name."""
    rng = np.random.default_rng(0)
    signals = rng.standard_normal((n_entries, n_features)).astype(np.float32)
    more = iter(np.split(rng.standard_normal((80, n_features)).astype(np.float32), 8))
    query = signals[:1] + 0.1
    grouped = index_of("grouped", n_features, 16)
    trellis = index_of("trellis", n_features, 16)
    stored = index_of("trellis", n_features, 16, path=f"{folder}/trellis.topsign")
    durable = index_of("grouped", n_features, 16, path=f"{folder}/grouped.topsign")
    regional = index_of("trellis", n_features, 16, originals="float16")
    for index in (grouped, trellis, stored, durable, regional):
        index.add(signals)
    regional.learn_regions(n_regions=64)
    return {
        "search, grouped, memory": lambda: grouped.search(query),
        "search, trellis, memory": lambda: trellis.search(query),
        "search, trellis, folder": lambda: stored.search(query),
        "search(recall=0.9), trellis with originals, memory": lambda: regional.search(query, recall=0.9),
        "open_index": lambda: ts.open_index(stored.path),
        "add of 10 rows, grouped, memory": lambda: grouped.add(next(more)),
        "add of 10 rows, grouped, folder": lambda: durable.add(next(more)),
    }


def main():
    options = arguments(__doc__, entries=(20_000, 2_000), features=(64, 64), show=None)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, call in make_walks(folder, options.entries, options.features).items():
            with_threads(1, call)
            counts, depth = with_threads(1, trace, call)
            files = {file for file, _ in counts}
            packages = {file.partition("/")[0] for file in files}
            rows.append([name, len(counts), counts.total(), len(files), len(packages), depth])
            if options.show and options.show in name:
                print(f"\n{name}\n" + "\n".join(f"{n:4d}  {file}  {of}" for (file, of), n in counts.items()))
    columns = ["call", "functions", "calls", "files", "packages", "depth"]
    note = """Distinct functions of the package, without comprehensions; packages include modules at the top.
    Each call is the second of its kind."""
    save(options, [table("Functions that a call passes through", columns, rows, note)])


if __name__ == "__main__":
    main()
