"""The choice of kernels: the fastest path this machine can run, or the one that is asked for.

``TOPSIGN_KERNELS`` (a name of :func:`available`) forces a path, ``TOPSIGN_NUM_THREADS`` sets how many threads a call
may use when its caller does not say. Results are the same bits whatever the choice.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from .._checks import check_choice, check_count
from .._warning import warn
from .interface import Kernels
from .native import NativeKernels, all_native_paths, native_paths
from .numpy import NumpyKernels

CHOICES = ("avx512", "avx2", "neon", "portable", "numpy")

_active: Kernels | None = None


def available() -> list[str]:
    """Paths that can run here, fastest first."""
    try:
        return [*reversed(native_paths()), "numpy"]
    except OSError:
        return ["numpy"]


def active() -> Kernels:
    """The kernels in use, chosen at the first call."""
    global _active
    if _active is None:
        _active = _choose(os.environ.get("TOPSIGN_KERNELS"))
    return _active


@contextmanager
def use(name: str) -> Iterator[Kernels]:
    """Runs a block of code on the named path; for tests and comparisons, not for threads."""
    global _active
    before = _active
    _active = _choose(name)
    try:
        yield _active
    finally:
        _active = before


def info() -> dict[str, object]:
    """The path in use, those that could be, why not a faster one, threads, processor and versions.

    In a form to paste into a bug report; ``topsign info`` prints it.
    """
    chosen = active().name
    return {
        "kernels": chosen,
        "available": available(),
        "unavailable": _unavailable(),
        "forced": os.environ.get("TOPSIGN_KERNELS"),
        "n_threads": n_threads(None),
        "n_cores": os.cpu_count() or 1,
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _unavailable() -> dict[str, str]:
    """Why each path that cannot run here cannot."""
    try:
        built, runs = all_native_paths(), available()
    except OSError as error:
        return {name: str(error) for name in CHOICES if name != "numpy"}
    return {
        name: "this processor lacks its instructions" if name in built else "not in this platform's build"
        for name in CHOICES
        if name not in runs
    }


def _processor() -> str:
    """The processor's name as the system gives it, or its kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def n_threads(asked: int | None) -> int:
    """Threads for one call: what was asked, else ``TOPSIGN_NUM_THREADS``, else every core given to us."""
    if asked is not None:
        return check_count(asked, "n_threads")
    setting = os.environ.get("TOPSIGN_NUM_THREADS")
    if setting is not None:
        if not setting.isdecimal() or int(setting) < 1:
            raise ValueError(f"TOPSIGN_NUM_THREADS must be a positive integer, got {setting!r}")
        return int(setting)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _choose(name: str | None) -> Kernels:
    if name is not None:
        check_choice(name, "TOPSIGN_KERNELS", CHOICES)
    if name == "numpy":
        return NumpyKernels()
    try:
        supported = list(native_paths())
    except OSError as error:
        if name is not None:
            raise ImportError(f"TOPSIGN_KERNELS={name} was asked for, but {error}") from error
        warn(
            f"topsign runs on its slow NumPy kernels, because {error}; results are the same. "
            "Install topsign with a C++ compiler, or set TOPSIGN_KERNELS=numpy to accept this.",
            RuntimeWarning,
        )
        return NumpyKernels()
    if name is not None and name not in supported:
        raise ImportError(f"TOPSIGN_KERNELS={name} was asked for, but this processor supports {supported}")
    return NativeKernels(name or supported[-1])
