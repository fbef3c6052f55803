"""Search and encoding on a CUDA device, with the same bits as on the CPU. Needs CuPy (extra ``gpu``).

:meth:`topsign.Index.to` returns a :class:`GpuIndex`. :class:`DeviceEncoder` encodes signals of host memory,
:meth:`SignsEncoder.encode_resident` signals that are on the device already. Layers use a :class:`HeadScanner`.
"""

from ..errors import GpuError, GpuMemoryError
from .device import cuda_device
from .encoding import DeviceEncoder, SignsEncoder, block_encoder, check_encoder
from .engine import GpuIndex
from .scan import HeadScanner

__all__ = [
    "DeviceEncoder",
    "GpuError",
    "GpuIndex",
    "GpuMemoryError",
    "HeadScanner",
    "SignsEncoder",
    "block_encoder",
    "check_encoder",
    "cuda_device",
]
