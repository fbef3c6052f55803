"""Searching and encoding on a CUDA device: the same bits as on the processor. Needs CuPy (extra ``gpu``).

:meth:`topsign.Index.to` makes a :class:`GpuIndex`; :class:`topsign.nn.AdaptiveLinear` uses a :class:`HeadScanner` on
CUDA; :class:`GpuEncoder` projects and encodes signals that are there already.
"""

from __future__ import annotations

from .device import cuda_device
from .encoding import GpuEncoder
from .errors import GpuError, GpuMemoryError
from .heads import HeadScanner
from .index import GpuIndex

__all__ = ["GpuEncoder", "GpuError", "GpuIndex", "GpuMemoryError", "HeadScanner", "cuda_device"]
