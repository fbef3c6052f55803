"""Errors of the GPU."""

from __future__ import annotations


class GpuError(RuntimeError):
    """No CUDA device can be used; the message says what was found and what to install."""


class GpuMemoryError(GpuError, MemoryError):
    """The card has too little memory left; what was on it before is still there and usable."""
