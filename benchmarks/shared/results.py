"""Options and results of benchmarks: tables with the command, the machine, the versions and the commit.

A cell of a table is text, a number, None, a spread of times or a ratio; ``page.py`` shows medians of the last two.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from topsign import kernels

ROOT = Path(__file__).parents[2]
LOAD = round(os.getloadavg()[0], 2)  # of the last minute, before this benchmark
PACKAGES = ("topsign", "numpy", "scipy", "scikit-learn", "faiss-cpu", "torch", "dask", "cupy-cuda13x")
PLACES = ("json", "results", "costs", "cache", "folder", "residuals", "head", "data")  # options that name files


def arguments(doc, **sizes):
    """Parse options, ``name=(value, value of a quick run)`` each; all benchmarks have --quick, --threads and --json.

    Text and None are the same in both runs. The number of threads holds for topsign, BLAS, OpenMP and FAISS.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--json", help="write the tables into this file")
    for name, value in ({"threads": (1, 1)} | sizes).items():
        full, quick = value if isinstance(value, tuple) else (value, value)
        first = full[0] if isinstance(full, list) else full
        many = {"nargs": "+"} if isinstance(full, list) else {}
        kind = str if first is None else type(first)
        shown = f"default: {full}" + (f", quick: {quick}" if quick != full else "")
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, **many, help=shown, default=None)
    options = parser.parse_args()
    for name, value in ({"threads": (1, 1)} | sizes).items():
        if getattr(options, name) is None:
            setattr(options, name, value[options.quick] if isinstance(value, tuple) else value)
    limit_threads(options.threads)
    return options


def limit_threads(count):
    os.environ["TOPSIGN_NUM_THREADS"] = str(count)
    try:
        import faiss
    except ImportError:
        print("faiss is not installed: its rows are missing (pip install 'topsign[bench]')")
    else:
        faiss.omp_set_num_threads(count)
    threadpool_limits(count)


def with_threads(count, call, *given, **options):
    """Run a call with a number of threads of topsign."""
    with kernels.threads(count):
        return call(*given, **options)


def interleaved(calls, repeats, clock=time.perf_counter):
    """Seconds of each call, (repeats, n_calls), after one round that is not counted: every repeat runs all in turn."""
    for call in calls:
        call()
    times = np.empty((repeats, len(calls)))
    for repeat in range(repeats):
        for i, call in enumerate(calls):
            start = clock()
            call()
            times[repeat, i] = clock() - start
    return times


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def spread(values):
    """Return the median, minimum and maximum of times over the repeats."""
    return {name: float(of(values)) for name, of in [("median", np.median), ("least", np.min), ("most", np.max)]}


def ratio(ours, theirs):
    """Return the median, minimum and maximum of ratios within a repeat."""
    found = spread(np.asarray(ours) / np.asarray(theirs))
    return {"ratio": found["median"], "least": found["least"], "most": found["most"]}


def interval(values, n_draws=1000):
    """Return the 95% interval of a mean, bootstrapped over values."""
    values, rng = np.asarray(values, np.float64), np.random.default_rng(0)
    means = values[rng.integers(0, len(values), (n_draws, len(values)))].mean(axis=1)
    return [float(one) for one in np.percentile(means, [2.5, 97.5])]


def bounds(ends, digits=3):
    return f"{ends[0]:.{digits}f} to {ends[1]:.{digits}f}"


def table(title, columns, rows, note="", chart=None, shown=None):
    """Return a table and print it.

    ``chart`` names the columns of a chart: file, x, y, by, and log (axes). ``shown`` maps columns to the cells whose
    rows a page shows, if it does not show all.
    """
    rows = [[None if cell is None else _plain(cell) for cell in row] for row in rows]
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"{title}: a row of {len(row)} cells for {len(columns)} columns: {row}")
    found = {"title": title, "columns": list(columns), "rows": rows, "note": " ".join(note.split())}
    print(f"\n{title}\n" + "\n".join(" | ".join(text(cell) for cell in row) for row in [list(columns), *rows]))
    print(found["note"], flush=True)
    return found | ({"chart": chart} if chart else {}) | ({"shown": shown} if shown else {})


def _plain(cell):
    return cell.item() if isinstance(cell, np.generic) else cell


def text(cell):
    """Return a cell as a page shows it: numbers have three significant digits."""
    if cell is None:
        return ""
    if isinstance(cell, dict):
        return text(cell["median"] if "median" in cell else cell["ratio"])
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def save(options, tables, headline=(), **more):
    """Write tables as JSON if asked for; ``headline`` is rows of the table in the README: a task, what was measured."""
    if options.json:
        report = {"script": Path(sys.argv[0]).name, "command": command()} | here()
        report |= {"headline": [[" ".join(cell.split()) for cell in row] for row in headline], "tables": tables} | more
        Path(options.json).parent.mkdir(parents=True, exist_ok=True)
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n")


def command():
    """Return the command line, with names instead of files of this machine."""
    script, given = Path(sys.argv[0]).resolve(), iter(sys.argv[1:])
    shown = ["python", str(script.relative_to(ROOT) if script.is_relative_to(ROOT) else script.name)]
    for one in given:
        if one.removeprefix("--") not in PLACES:
            shown.append(one)
        elif next(given) and one not in ("--json", "--results"):
            shown.append(f"{one} {one.removeprefix('--').upper()}")
    return " ".join(shown)


def here():
    """Machine, versions and commit of a run."""
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
    }


def commit():
    """Return the commit, with a plus sign if the working tree differs from it; None outside a clone.

    A tree that ``git archive`` made has its commit written into ``archived.txt``.
    """
    archived = Path(__file__).with_name("archived.txt").read_text().strip()
    if not archived.startswith("$"):
        return archived[:12]
    described = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--", "src", "native", "benchmarks/*.py", "benchmarks/shared")
    return described and described + ("+" if changed else "")


def machine():
    info = kernels.info()
    return {
        "processor": info["processor"],
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "load": LOAD,
        "kernels": info["kernels"],
    }


def versions():
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _git(*given):
    try:
        shown = subprocess.run(["git", *given], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return shown.stdout.strip()
