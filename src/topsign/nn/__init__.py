"""Compressed linear layers for PyTorch: weight vectors are stored as codes. Needs PyTorch (extra ``torch``).

>>> import torch, topsign as ts
>>> linear = torch.nn.Linear(512, 1000)
>>> small = ts.nn.compress(linear, n_bytes=30, random_state=7)
>>> small.nbytes
36000
>>> small(torch.randn(8, 512)).shape, small.topk(torch.randn(8, 512), k=5).indices.shape
(torch.Size([8, 1000]), torch.Size([8, 5]))
"""

from __future__ import annotations

from ..errors import install as _install

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise ImportError(f"topsign.nn needs PyTorch, which is not installed; {_install('torch')}") from None

from .layer import CompressedLinear, compress, compress_module
from .onnx import export_onnx

__all__ = ["CompressedLinear", "compress", "compress_module", "export_onnx"]
