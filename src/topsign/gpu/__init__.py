"""Search and encoding on a CUDA device, with the same bits as on the CPU. Needs CuPy (extra ``gpu``).

:meth:`topsign.Index.to` returns a :class:`GpuIndex`. :class:`DeviceEncoder` encodes signals of host memory,
:meth:`SignsEncoder.encode_resident` signals that are on the device already. Layers use a :class:`HeadScanner`.
"""

from ..errors import GpuError as GpuError
from ..errors import GpuMemoryError as GpuMemoryError
from .device import cuda_device as cuda_device
from .encoding import DeviceEncoder as DeviceEncoder
from .encoding import SignsEncoder as SignsEncoder
from .encoding import block_encoder as block_encoder
from .encoding import check_encoder as check_encoder
from .engine import GpuIndex as GpuIndex
from .scan import HeadScanner as HeadScanner
