"""Comparison of two versions of the storage: opening, look-ups of text ids, searches, additions of one entry.

    python benchmarks/stores.py --python before=PYTHON --python now=PYTHON [--entries 1000000] [--repeats 7]
                                [--additions 40] [--folder FOLDER] [--json FILE]

Each PYTHON has one version installed. Each makes an index of the same entries; then, in every repeat, each is measured
in a new process, one after the other, so both have the same load. The output is the minimum of wall time and of
processor time over the repeats, which other work on the machine affects least, and their ratio, the last version over
the first. Opening is measured after the import, with the files in the page cache; look-ups and searches are measured
after a first one, which verifies checksums.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

from shared.results import save, spread

MAKE = """
import sys, numpy as np, topsign as ts
path, n_entries = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(0)
index = ts.SignIndex(n_features=192, random_state=7, path=path)
for start in range(0, n_entries, 50_000):
    ids = range(start, min(start + 50_000, n_entries))
    index.add(rng.standard_normal((len(ids), 192), dtype=np.float32), ids=[f"document-{i}" for i in ids])
"""

MEASURE = """
import json, sys, time, numpy as np, topsign as ts
path, n_entries, n_additions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ts.open_index, ts.SignIndex
rng = np.random.default_rng(1)
queries = rng.standard_normal((16, 192)).astype(np.float32)
names = [f"document-{i}" for i in rng.integers(0, n_entries, 1000)]
found = {}
def measure(name, call, times):
    # minimum wall time and processor time
    wall, processor = [], []
    for _ in range(times):
        starts = time.perf_counter(), time.process_time()
        call()
        wall.append(time.perf_counter() - starts[0])
        processor.append(time.process_time() - starts[1])
    found[name], found[name + ", CPU"] = min(wall), min(processor)
    return wall
ts.open_index(path, readonly=True).close()  # imports what the first opening imports
memory = ts.SignIndex(n_features=192, random_state=7)
memory.add(queries)
memory.search(queries[:1])  # and what the first search imports
measure("open", lambda: ts.open_index(path, readonly=True).close(), 15)
index = ts.open_index(path, readonly=True)
measure("first look-ups, 1,000 in one call", lambda: index.get(names), 1)
measure("look-ups, 1,000 in one call", lambda: index.get(names), 10)
measure("first search", lambda: index.search(queries[:1]), 1)
measure("search, 1 query", lambda: index.search(queries[:1]), 10)
measure("search, 16 queries", lambda: index.search(queries), 4)
index.close()
del index
small = ts.SignIndex(n_features=192, random_state=7, path=sys.argv[4])
small.add(queries[:1])
wall = measure("add one entry", lambda: small.add(queries[:1]), n_additions)
found["add one entry, median"] = float(np.median(wall))
left = iter(range(n_additions))
measure("remove one entry", lambda: small.remove([next(left)]), n_additions // 2)
print(json.dumps(found))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", required=True, metavar="NAME=PYTHON")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--additions", type=int, default=40)
    parser.add_argument("--folder", help="on the disk to be measured; a temporary folder when not given")
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    pythons = dict(one.split("=", 1) for one in options.python)
    environment = os.environ | {"TOPSIGN_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)  # inheriting this variable would give every PYTHON the same version

    def run(program, python, *arguments):
        command = [python, "-W", "ignore", "-c", program, *map(str, arguments)]
        shown = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
        return shown.stdout if shown.returncode == 0 else sys.exit(shown.stderr)

    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        places = [run("import topsign; print(topsign.__file__)", python) for python in pythons.values()]
        if len(set(places)) < len(places):
            sys.exit(f"each PYTHON must have a version of its own, got {''.join(places)}")
        for name, python in pythons.items():
            run(MAKE, python, os.path.join(folder, f"{name}.topsign"), options.entries)
        rounds = []
        for number in range(options.repeats):
            measured = {}
            for name, python in pythons.items():
                small = os.path.join(folder, f"{name}-{number}.topsign")
                arguments = os.path.join(folder, f"{name}.topsign"), options.entries, options.additions, small
                measured[name] = json.loads(run(MEASURE, python, *arguments))
            rounds.append(measured)
    first, *_, last = pythons
    table = {}
    for what in rounds[0][first]:
        columns = {name: spread([1e3 * one[name][what] for one in rounds]) for name in pythons}
        ratio = columns[last]["least"] / columns[first]["least"]
        table[what] = {"milliseconds": columns, "ratio": ratio}
        shown = ", ".join(f"{name} {columns[name]['least']:.2f} ms" for name in pythons)
        print(f"{what:36s} {shown}, ratio {ratio:.2f}", flush=True)
    if options.json:
        options.python = list(pythons)  # no paths of this machine
        save(options.json, options, table)


if __name__ == "__main__":
    main()
