"""Search and encoding on a CUDA device, with the same bits as on the CPU. Needs CuPy (extra ``gpu``).

:meth:`topsign.Index.to` returns a :class:`GpuIndex`, whose :class:`GpuEngine` has a form for every comparison that it
executes. :class:`SignalEncoder` encodes signals of host memory, :class:`GpuEncoder` signals that are on the device
already (adaptive and sign codes). Layers of :mod:`topsign.nn` use a :class:`HeadScanner`.
"""

from __future__ import annotations

from ..errors import GpuError, GpuMemoryError
from .coder import check_coder, make_coder
from .device import cuda_device
from .encoding import GpuEncoder
from .engine import GpuEngine
from .heads import HeadScanner
from .index import GpuIndex
from .signal_encoder import SignalEncoder

__all__ = [
    "GpuEncoder",
    "GpuEngine",
    "GpuError",
    "GpuIndex",
    "GpuMemoryError",
    "HeadScanner",
    "SignalEncoder",
    "check_coder",
    "cuda_device",
    "make_coder",
]
