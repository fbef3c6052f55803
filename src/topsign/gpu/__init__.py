"""Searching and encoding on a CUDA device: the same bits as on the processor. Needs CuPy (extra ``gpu``)."""

from __future__ import annotations

from .errors import GpuError, GpuMemoryError

__all__ = ["GpuError", "GpuMemoryError"]
