"""Compare the times of a benchmark in two checkouts, run alternately.

    python benchmarks/compare.py OLD NEW [--rounds 5] [--json FILE] -- SCRIPT [options of the script]
    python benchmarks/compare.py ../before . --json build.json -- build.py --features 1024

OLD and NEW are folders of checkouts, each with its library built into ``src/topsign/kernels``. Each round runs both
scripts, in alternating order. Ratios are NEW over OLD: of the least times over all rounds, and the median over rounds
of the ratios of medians. Lines of other libraries are the control: their ratio is the noise of the machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def times_of(report):
    """Yield the label and the spread of every time in the tables of a benchmark; ratios have no median."""
    for one in report["tables"]:
        for row in one["rows"]:
            about = [str(cell) for cell in row if isinstance(cell, str | int)]
            for column, cell in zip(one["columns"], row, strict=True):
                if isinstance(cell, dict) and "median" in cell:
                    yield ", ".join([one["title"], *about, column]), cell


def environment(tree):
    """Return the variables under which Python imports topsign from a checkout; exit if it would import another."""
    found = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "src"), os.environ.get("PYTHONPATH", "")])}
    asked = [sys.executable, "-c", "import topsign; print(topsign.__file__)"]
    home = subprocess.run(asked, env=found, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(home).is_relative_to(tree):
        sys.exit(
            f"{sys.executable} imports topsign from {home}, not from {tree}; use a Python without an installed one"
        )
    return found


def run(tree, variables, command, path):
    script = tree / "benchmarks" / command[0]
    shown = subprocess.run(
        [sys.executable, str(script), *command[1:], "--json", path],
        env=variables,
        cwd=tree,
        capture_output=True,
        text=True,
    )
    if shown.returncode:
        sys.exit(f"{script} failed:\n{shown.stdout[-2000:]}{shown.stderr[-2000:]}")
    return dict(times_of(json.loads(Path(path).read_text())))


def compared(rounds):
    """Return the ratios of each time that both checkouts report, from rounds of (old, new)."""
    rows = []
    for label in rounds[0][0]:
        if all(label in one for pair in rounds for one in pair):
            least = [min(pair[side][label]["least"] for pair in rounds) for side in (0, 1)]
            medians = [pair[1][label]["median"] / pair[0][label]["median"] for pair in rounds]
            rows.append(
                {
                    "name": label,
                    "old": least[0],
                    "new": least[1],
                    "ratio_of_least": least[1] / least[0],
                    "median_ratio": statistics.median(medians),
                }
            )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=lambda path: Path(path).resolve())
    parser.add_argument("new", type=lambda path: Path(path).resolve())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="write the ratios into this file")
    parser.add_argument("command", nargs="+", metavar="SCRIPT", help="a script of benchmarks/, and its options")
    options = parser.parse_args()
    trees = options.old, options.new
    variables, rounds = [environment(tree) for tree in trees], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            found = [{}, {}]
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                path = os.path.join(folder, f"{number}-{side}.json")
                found[side] = run(trees[side], variables[side], options.command, path)
            rounds.append(found)
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    rows = compared(rounds)
    for row in rows:
        print(f"{row['name']:70s} least {row['ratio_of_least']:6.3f}   median {row['median_ratio']:6.3f}")
    if options.json:
        Path(options.json).write_text(json.dumps({"command": options.command, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
