"""Search and encoding on a CUDA device, with the same bits as on the CPU. Needs CuPy (extra ``gpu``).

:meth:`topsign.Index.to` returns a :class:`GpuIndex`. :class:`SignalEncoder` encodes signals of host memory,
:meth:`GpuEncoder.encode_resident` signals that are on the device already. Layers use a :class:`HeadScanner`.
"""

from ..errors import GpuError, GpuMemoryError
from .device import cuda_device
from .encoding import GpuEncoder, SignalEncoder, check_coder, make_coder
from .engine import GpuEngine
from .heads import HeadScanner
from .index import GpuIndex

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
