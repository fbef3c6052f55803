"""Searching and encoding on a CUDA device: the same bits as on the processor. Needs CuPy (extra ``gpu``).

:meth:`topsign.Index.to` makes a :class:`GpuIndex`; :class:`topsign.nn.AdaptiveLinear` uses a :class:`HeadScanner` on
CUDA; a :class:`SignalEncoder` makes codes of signals, a :class:`GpuEncoder` adaptive ones of signals that are there
already.
"""

from __future__ import annotations

from .device import cuda_device
from .encoding import GpuEncoder
from .errors import GpuError, GpuMemoryError
from .heads import HeadScanner
from .index import GpuIndex
from .signal_encoder import SignalEncoder

__all__ = [
    "GpuEncoder",
    "GpuError",
    "GpuIndex",
    "GpuMemoryError",
    "HeadScanner",
    "SignalEncoder",
    "cuda_device",
]
