"""Numbers with the machine, the versions and the commit that they come from."""

from __future__ import annotations

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

from topsign import kernels

ROOT = Path(__file__).parents[2]
PACKAGES = ("topsign", "numpy", "scipy", "scikit-learn", "faiss-cpu", "usearch", "torch", "sentence-transformers")


def interleaved(calls, repeats):
    """Seconds of each call, (repeats, n_calls), after one round that is not counted: every repeat runs all in turn."""
    for call in calls:
        call()
    times = np.empty((repeats, len(calls)))
    for repeat in range(repeats):
        for i, call in enumerate(calls):
            start = time.perf_counter()
            call()
            times[repeat, i] = time.perf_counter() - start
    return times


def spread(values):
    """Median, least and most of what the repeats gave."""
    return {name: float(of(values)) for name, of in [("median", np.median), ("least", np.min), ("most", np.max)]}


def save(path, options, measured):
    """Writes what was measured as JSON, with all that is needed to judge it and to repeat it."""
    settings = {
        name: value for name, value in vars(options).items() if name not in ("json", "residuals", "cache", "folder")
    }
    report = {
        "script": Path(sys.argv[0]).name,
        "options": settings,
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
        "measured": measured,
    }
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(report, indent=1) + "\n")


class Record:
    """Rows of a run, written as each is done: a run that is stopped says which rows it has not."""

    def __init__(self, options, planned, **notes):
        self.options, self.planned, self.notes, self.rows = options, list(planned), notes, {}

    def add(self, name, row):
        """The row of a planned name."""
        self.rows[name] = row
        print(f"{name}: {row}; {len(self.planned) - len(self.rows)} rows left", flush=True)
        if self.options.json:
            missing = [one for one in self.planned if one not in self.rows]
            rows = [self.rows[one] for one in self.planned if one in self.rows]
            save(
                self.options.json,
                self.options,
                {"complete": not missing, "missing": missing} | self.notes | {"rows": rows},
            )


def commit():
    """The commit, with a plus sign where the code that runs differs from it; None outside a clone.

    A tree that ``git archive`` made has its commit written into ``archived.txt``.
    """
    archived = Path(__file__).with_name("archived.txt").read_text().strip()
    if not archived.startswith("$"):
        return archived[:12]
    described = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--", "src", "native", "benchmarks/*.py", "benchmarks/shared")
    return described and described + ("+" if changed else "")


def machine():
    return {
        "processor": _first("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "load": round(os.getloadavg()[0], 2),  # of the last minute, this benchmark's own included
        "kernels": kernels.info()["kernels"],
    }


def versions():
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _git(*arguments):
    try:
        shown = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return shown.stdout.strip()


def _first(path, name):
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)
