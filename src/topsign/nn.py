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

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

import numpy as np

from ._arrays import Float32
from ._checks import check_count, check_inputs, raise_no_layer, raise_other_layer, raise_without_torch

try:
    import torch
    from torch import Tensor
except ImportError:
    raise_without_torch()

from . import kernels
from ._random import RandomState
from .classify.heads import AsymmetricHead, encode_adaptive
from .embeddings import AdaptiveEncoder
from .kernels import Layout
from .kernels import torch as torch_kernels
from .projections import Projection, make_projection
from .projections.blocks import float_blocks
from .projections.structured import Hadamard

__all__ = ["AdaptiveLinear", "TopK", "compress", "compress_module"]

BLOCK_VALUES = 2**24  # of weights, or of unpacked codes, held at a time


class TopK(NamedTuple):
    """Highest logits of each input, falling, and their classes; of equal ones the lower class first."""

    values: Tensor
    indices: Tensor


class AdaptiveLinear(torch.nn.Module):
    """A linear layer known by adaptive codes of its weight vectors. For inference: always in eval mode, no gradients.

    Made by :func:`compress`. A layer made directly scores its bias, which is zero, until ``load_state_dict``; that
    restores codes, scales, biases and the projection, whose seed and fingerprint travel in the state.

    Logits are estimates without bias, computed in float32 and returned in the type of the input. On the CPU they come
    from the C++ kernels, where NaN and infinities raise; on other devices from PyTorch operations, the same within
    rounding. ``half()`` and the like leave scales and biases in float32.

    Parameters
    ----------
    in_features, out_features : int
    n_bits, n_pool : int
        Projections kept for each class, and computed; n_pool is in_features when not given.
    projection : kind or Projection
        "hadamard", "gaussian", "rademacher", "sparse", "circulant", or a projection already made.
    bias : bool
    layout : "compact" or "fast"
        Of the codes, see :class:`topsign.AdaptiveCodes`.
    random_state : int, Generator or None

    Attributes
    ----------
    codes, scales, bias : buffers
    """

    codes: Tensor
    scales: Tensor
    bias: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        n_bits: int = 64,
        n_pool: int | None = None,
        projection: str | Projection = "hadamard",
        bias: bool = True,
        layout: str = "compact",
        random_state: RandomState = None,
    ) -> None:
        super().__init__()
        self.in_features = check_count(in_features, "in_features")
        self.out_features = check_count(out_features, "out_features")
        encoder = AdaptiveEncoder(
            n_bits, n_pool=n_pool, projection=projection, layout=layout, random_state=random_state
        ).fit(np.zeros((1, self.in_features), np.float32))
        self.projection: Projection = encoder.projection_
        self._layout: Layout = encoder.recipe_.layout
        codes, scales = encode_adaptive(encoder, np.zeros((1, self.in_features), np.float32))
        self.register_buffer("codes", torch.from_numpy(codes).repeat(self.out_features, 1))
        self.register_buffer("scales", torch.from_numpy(scales).repeat(self.out_features))
        self.register_buffer("bias", torch.zeros(self.out_features) if bias else None)
        self._operators: dict[torch.device, Tensor] = {}
        self.train(False)

    @property
    def n_bits(self) -> int:
        """Projections kept for each class."""
        return self._layout.n_bits

    @property
    def n_pool(self) -> int:
        """Projections computed for each input."""
        return self._layout.n_pool

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and biases."""
        return sum(buffer.numel() * buffer.element_size() for buffer in self.buffers())

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Estimated logits, (..., out_features), of inputs (..., in_features)."""
        rows = self._rows(x)
        logits = self._cpu_logits(rows) if rows.device.type == "cpu" else self._logits(rows)
        return logits.to(x.dtype).reshape(*x.shape[:-1], self.out_features)

    @torch.no_grad()
    def topk(self, x: Tensor, k: int) -> TopK:
        """The k highest estimated logits of each input and their classes; logits of all are never held at once."""
        k = check_count(k, "k", maximum=self.out_features)
        rows = self._rows(x)
        values, indices = self._cpu_topk(rows, k) if rows.device.type == "cpu" else self._topk(rows, k)
        shape = (*x.shape[:-1], k)
        return TopK(values.to(x.dtype).reshape(shape), indices.reshape(shape))

    def train(self, mode: bool = True) -> Self:
        """Stays in eval mode: there is nothing to train here."""
        return super().train(False)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"n_bits={self.n_bits}, n_pool={self.n_pool}, projection={self.projection.kind!r}, "
            f"seed={self.projection.seed}"
        )

    def get_extra_state(self) -> Tensor:
        """The projection and the layout, as bytes of JSON in a tensor, which every format of weights can hold."""
        state = self._shape() | {
            "projection": self.projection.description,
            "fingerprint": self.projection.fingerprint(),
        }
        return torch.frombuffer(bytearray(json.dumps(state).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        held = json.loads(bytes(state.cpu().tolist()))
        projection = make_projection(**held.pop("projection"))
        if held.pop("fingerprint") != projection.fingerprint() or held != self._shape():
            raise_other_layer(held, self._shape(), projection)
        self.projection = projection
        self._operators.clear()

    def _shape(self) -> dict[str, object]:
        return {"n_bits": self.n_bits, "n_pool": self.n_pool, "layout": self._layout.name}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves buffers between devices, but keeps scales and biases in float32."""
        exact = {name: getattr(self, name) for name in ("scales", "bias")}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, before in exact.items():
            if before is not None:
                setattr(self, name, before.to(self.codes.device))
        return self

    def _rows(self, x: Tensor) -> Tensor:
        check_inputs(x, self.in_features)
        return x.detach().reshape(-1, self.in_features).float()

    # On the CPU: the C++ kernels

    @property
    def _head(self) -> AsymmetricHead:
        bias = None if self.bias is None or not self.bias.any() else self.bias.numpy().astype(np.float64)
        return AsymmetricHead(self._layout, self.codes.numpy(), self.scales.numpy(), bias)

    def _cpu_blocks(self, rows: Tensor) -> Iterator[tuple[slice, Float32]]:
        """Blocks of inputs, projected; NaN and infinities raise here, where other devices hand them on."""
        n_threads = kernels.n_threads(None)
        for block in float_blocks(rows.numpy(), self.projection.block_signals, name="inputs"):
            projected = np.empty((len(block.values), self.n_pool), np.float32)
            self.projection.project_block(block.values, None, projected, n_threads)
            yield block.rows, projected

    def _cpu_logits(self, rows: Tensor) -> Tensor:
        head, out = self._head, torch.empty(len(rows), self.out_features)
        for part, projected in self._cpu_blocks(rows):
            out[part] = torch.from_numpy(head.values(projected))
        return out

    def _cpu_topk(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        head = self._head
        values, indices = torch.empty(len(rows), k), torch.empty(len(rows), k, dtype=torch.int64)
        for part, projected in self._cpu_blocks(rows):
            classes, logits = head.best(projected, k)
            values[part], indices[part] = torch.from_numpy(logits), torch.from_numpy(classes)
        return values, indices

    # Anywhere: PyTorch operations, a block of classes at a time

    def _logits(self, rows: Tensor) -> Tensor:
        return torch.cat([logits for _, logits in self._blocks(rows)], dim=1)

    def _topk(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        values = rows.new_empty(len(rows), 0)
        indices = torch.empty(len(rows), 0, dtype=torch.int64, device=rows.device)
        for classes, logits in self._blocks(rows):
            values, indices = torch.cat([values, logits], 1), torch.cat([indices, classes.expand(len(rows), -1)], 1)
            order = values.argsort(dim=1, descending=True, stable=True)[:, :k]
            values, indices = values.gather(1, order), indices.gather(1, order)
        return values, indices

    def _blocks(self, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Classes of a block, and the logits of all rows for them."""
        projected = self._project(rows)
        every = torch.arange(self.out_features, device=rows.device)
        size = max(1, BLOCK_VALUES // self.n_pool)
        for start in range(0, self.out_features, size):
            part = slice(start, start + size)
            logits = torch_kernels.score_sums(self._layout, self.codes[part], projected) * self.scales[part]
            yield every[part], logits if self.bias is None else logits + self.bias[part]

    def _project(self, rows: Tensor) -> Tensor:
        operator = self._operator(rows.device)
        if not isinstance(self.projection, Hadamard):
            return rows @ operator.T
        blocks = [torch_kernels.rotate(rows, signs) for signs in operator]
        blocks[-1] = blocks[-1][:, torch.from_numpy(self.projection._last_coordinates).to(rows.device)]
        return torch.cat(blocks, dim=1)

    def _operator(self, device: torch.device) -> Tensor:
        """Random signs of a Hadamard projection, (n_blocks, rounds, n_features), or the matrix of another."""
        if device not in self._operators:
            projection = self.projection
            if isinstance(projection, Hadamard):
                bits = np.unpackbits(projection._signs, axis=2, count=projection.n_features, bitorder="little")
                array = bits.astype(np.float32) * 2 - 1
            else:
                array = projection.rows(np.arange(projection.n_pool))
            self._operators[device] = torch.from_numpy(array).to(device)
        return self._operators[device]


@torch.no_grad()
def compress(
    linear: torch.nn.Linear,
    *,
    n_bits: int = 64,
    n_pool: int | None = None,
    projection: str | Projection = "hadamard",
    layout: str = "compact",
    random_state: RandomState = None,
) -> AdaptiveLinear:
    """An :class:`AdaptiveLinear` that estimates what a linear layer gives, on the device of the layer.

    Weights are read a block at a time, whatever their type and device: a head too large for a second copy can be
    compressed. Parameters are those of :class:`AdaptiveLinear`. A class whose weights are all zero scores its bias.
    """
    if not isinstance(linear, torch.nn.Linear):
        raise_no_layer(linear)
    weight, bias = linear.weight, linear.bias
    layer = AdaptiveLinear(
        linear.in_features,
        linear.out_features,
        n_bits=n_bits,
        n_pool=n_pool,
        projection=projection,
        bias=bias is not None,
        layout=layout,
        random_state=random_state,
    )
    encoder = AdaptiveEncoder(n_bits, n_pool=n_pool, projection=layer.projection, layout=layout)
    encoder.fit(np.zeros((1, linear.in_features), np.float32))
    size = max(1, BLOCK_VALUES // linear.in_features)
    for start in range(0, linear.out_features, size):
        part = slice(start, start + size)
        codes, scales = encode_adaptive(encoder, weight[part].to("cpu", torch.float32).numpy())
        layer.codes[part], layer.scales[part] = torch.from_numpy(codes), torch.from_numpy(scales)
    if bias is not None and layer.bias is not None:
        layer.bias.copy_(bias)
    return layer.to(weight.device)


def compress_module(model: torch.nn.Module, name: str, **parameters: Any) -> torch.nn.Module:
    """Replaces the linear layer of a model by this dotted name with its compressed form, and returns the model.

    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    >>> type(compress_module(model, "1", n_bits=16, random_state=7)[1]).__name__
    'AdaptiveLinear'
    """
    parent, _, child = name.rpartition(".")
    try:
        linear = model.get_submodule(name)
    except AttributeError:
        raise_no_layer(None, name=name)
    if not name or not isinstance(linear, torch.nn.Linear):
        raise_no_layer(linear, name=name)
    setattr(model.get_submodule(parent), child, compress(linear, **parameters))
    return model
