"""Choice of the kernels: the fastest path that this machine can run, or a path by name.

``TOPSIGN_KERNELS`` (a name from :func:`available`) forces a path. Results are the same bits with every choice.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from .._checks import check_choice
from .native import Kernels, all_native_paths, n_threads, native_paths

CHOICES = ("avx512", "avx2", "neon", "portable")

_active: Kernels | None = None


def available() -> list[str]:
    """Return the paths that can run here, fastest first; none if the compiled library cannot be loaded."""
    try:
        return list(reversed(native_paths()))
    except OSError:
        return []


def active() -> Kernels:
    """Return the kernels in use, chosen at the first call."""
    global _active
    if _active is None:
        _active = _choose(os.environ.get("TOPSIGN_KERNELS"))
    return _active


@contextmanager
def use(name: str) -> Iterator[Kernels]:
    """Run a block of code on the path ``name``; for tests and comparisons, not for threads."""
    global _active
    before = _active
    _active = _choose(name)
    try:
        yield _active
    finally:
        _active = before


def info() -> dict[str, object]:
    """Return the path in use, the available ones, why others are not, processor and versions.

    For bug reports; ``topsign inspect`` prints it. Without the compiled library, ``kernels`` is None.
    """
    runs = available()
    return {
        "kernels": active().name if runs else None,
        "available": runs,
        "unavailable": _unavailable(),
        "forced": os.environ.get("TOPSIGN_KERNELS"),
        "n_threads": n_threads(),
        "n_cores": os.cpu_count() or 1,
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _unavailable() -> dict[str, str]:
    """Return the reason for each path that cannot run here."""
    try:
        built, runs = all_native_paths(), available()
    except OSError as error:
        return dict.fromkeys(CHOICES, str(error))
    return {
        name: "this processor lacks its instructions" if name in built else "not in this platform's build"
        for name in CHOICES
        if name not in runs
    }


def _processor() -> str:
    """Return the name of the processor as the system gives it, or its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _choose(name: str | None) -> Kernels:
    if name is not None:
        check_choice(name, "TOPSIGN_KERNELS", CHOICES)
    try:
        supported = list(native_paths())
    except OSError as error:
        raise ImportError(
            f"topsign needs its compiled library, but {error}; install topsign again with "
            "`pip install --force-reinstall topsign`, which compiles it with a C++17 compiler if there is no wheel for "
            "this platform"
        ) from error
    if name is not None and name not in supported:
        raise ImportError(
            f"TOPSIGN_KERNELS={name} was asked for, but this processor supports {', '.join(supported)}; "
            "unset TOPSIGN_KERNELS to use the fastest"
        )
    return Kernels(name or supported[-1])
