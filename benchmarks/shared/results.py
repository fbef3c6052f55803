"""Results with the machine, the versions and the commit that produced them."""

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
    """Return the median, minimum and maximum over the repeats."""
    return {name: float(of(values)) for name, of in [("median", np.median), ("least", np.min), ("most", np.max)]}


def save(path, options, measured):
    """Write results as JSON, with everything needed to interpret and repeat them."""
    report = {"script": Path(sys.argv[0]).name, "options": settings(options)} | here() | {"measured": measured}
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(report, indent=1) + "\n")


def settings(options):
    """Return options for the record, without paths of this machine."""
    return {
        name: value
        for name, value in vars(options).items()
        if name not in ("json", "residuals", "cache", "folder", "costs")
    }


def here():
    """Machine, versions and commit of a run."""
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
    }


class Record:
    """Rows of a benchmark, written as each is done; a run that was stopped is continued from what it had written.

    ``runs`` says of every row which run it is from: ``missing`` names rows that none has measured yet, ``wanted`` those
    to measure now: what ``options.only`` names, again where it was measured, or all that are missing. Each row has the
    load of the machine when it was done.
    """

    # Options that may differ between runs; ``skip`` is in older files.
    PASSING = ("json", "cache", "threads", "workers", "only", "skip", "most_residual", "learned_seeds")

    def __init__(self, options, planned, name_of, **notes):
        self.options, self.planned, self.name_of, self.notes = options, list(planned), name_of, notes
        self.rows, self.runs = {}, []
        only = getattr(options, "only", [])
        if unknown := [name for name in only if name not in self.planned]:
            raise SystemExit(f"no such rows: {unknown}; there are: {'; '.join(self.planned)}")
        path = Path(options.json) if options.json else None
        if path is not None and path.exists():
            self._continue(json.loads(path.read_text()), only)
        self.wanted = [name for name in self.planned if name in (only or self.missing)]
        self.runs.append(here() | {"options": settings(options), "rows": []})

    def _continue(self, report, only):
        measured, given = report["measured"], json.loads(json.dumps(settings(self.options)))
        same = all(value == given.get(name) for name, value in report["options"].items() if name not in self.PASSING)
        rows = {self.name_of(row): row for row in measured["rows"]}
        if not same or not (only or set(self.planned) - set(rows)):
            return
        self.rows = rows
        self.planned += [name for name in rows if name not in self.planned]
        self.notes |= {name: measured[name] for name in self.notes if name in measured}
        first = {name: report[name] for name in ("options", "date", "commit", "machine", "versions")}
        self.runs = measured.get("runs", [first | {"rows": list(self.rows)}])

    @property
    def missing(self):
        return [name for name in self.planned if name not in self.rows]

    def add(self, row):
        name = self.name_of(row)
        for run in self.runs:
            run["rows"] = [other for other in run["rows"] if other != name]
        self.rows[name] = row | {"load": load()}
        self.runs[-1]["rows"].append(name)
        print(f"{name}: {row}; {len(self.missing)} rows left", flush=True)
        if self.options.json:
            runs = [run for run in self.runs if run["rows"]]
            found = {"complete": not self.missing, "missing": self.missing, "runs": runs}
            rows = [self.rows[name] for name in self.planned if name in self.rows]
            save(self.options.json, self.options, found | self.notes | {"rows": rows})


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
    return {
        "processor": _first("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "load": load(),
        "kernels": kernels.info()["kernels"],
    }


def load():
    """Return the load average of the last minute, including this benchmark."""
    return round(os.getloadavg()[0], 2)


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
