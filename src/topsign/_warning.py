"""Warnings that point at the user's line."""

from __future__ import annotations

import sys
import warnings
from types import FrameType


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points at the nearest caller outside this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == __package__
