"""Errors and warnings of this library, warnings that point at the user's line, and installation hints."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any, Self


def install(extra: str) -> str:
    """Return the commands that install an extra from a package index or in a clone of this repository."""
    return f"pip install 'topsign[{extra}]' (in a clone: pip install '.[{extra}]')"


class StorageError(Exception):
    """A file that is unreadable, foreign, damaged or not writable: says which file, which part of it, and why.

    Raised for indexes, heads, exported tables and messages of codes alike.
    """

    def __init__(self, path: str | os.PathLike[str], section: str, problem: str) -> None:
        super().__init__(f"{os.fspath(path)}, {section}: {problem}")
        self.path, self.section, self.problem = os.fspath(path), section, problem

    @classmethod
    def bad_checksum(cls, path: str | os.PathLike[str], section: str, *, stored: int, computed: int) -> Self:
        """Return the error of a ``section`` of ``path`` whose ``computed`` checksum differs from the ``stored`` one."""
        problem = f"damaged: checksum {stored:08x} stored, {computed:08x} computed; restore the file from a copy"
        return cls(path, section, problem)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.section, self.problem)


class ConflictError(StorageError):
    """Another client changed the same index first: nothing of the refused change was stored."""


class CalibrationWarning(UserWarning):
    """P-values do not fit the signals: far more random pairs are significant than should be."""


class TargetError(ValueError):
    """No code meets the target; the message names the best that can be reached."""


class GpuError(RuntimeError):
    """No CUDA device can be used; the message says what was found and what to install."""


class GpuMemoryError(GpuError, MemoryError):
    """GPU memory is exhausted; arrays that were on the device before remain usable."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points at the nearest caller outside this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == __package__:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
