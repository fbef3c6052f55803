"""Linear layers of PyTorch models with adaptive codes in place of weights; needs PyTorch.

>>> import torch, topsign as ts
>>> linear = torch.nn.Linear(512, 1000)
>>> small = ts.nn.compress(linear, n_bits=64, random_state=7)
>>> small
AdaptiveLinear(in_features=512, out_features=1000, bias=True, n_bits=64, n_pool=512, projection='hadamard', seed=7)
>>> small(torch.randn(8, 512)).shape, small.topk(torch.randn(8, 512), k=5).indices.shape
(torch.Size([8, 1000]), torch.Size([8, 5]))
"""

from __future__ import annotations

from ..errors import install as _install

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise ImportError(f"topsign.nn needs PyTorch, which is not installed; {_install('torch')}") from None

from .compression import compress, compress_module
from .layer import AdaptiveLinear, TopK
from .onnx import export_onnx

__all__ = ["AdaptiveLinear", "TopK", "compress", "compress_module", "export_onnx"]
