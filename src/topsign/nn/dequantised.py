"""Compressed layers in standard operators: weight vectors are decoded once and stored as int8."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from .._checks import check_count
from ..families import Encoded
from ..heads import TopK
from ..heads.shortlist import Shortlist
from .layer import CompressedLinear, scattered

BLOCK_VALUES = 2**22  # weights decoded per block


class DequantisedLinear(torch.nn.Module):
    """Decoded weight vectors of a compressed layer, stored as int8 rows with scales.

    The rounding error of a weight is at most 1 / 254 of the largest weight of its row, far less than that of the codes.
    Inputs are not rounded.
    """

    weights: Tensor  # (out_features, in_features) int8
    scales: Tensor
    bias: Tensor | None
    shortlist_weights: Tensor
    shortlist_scales: Tensor | None

    def __init__(self, layer: CompressedLinear) -> None:
        super().__init__()
        self.out_features, self.shortlist = layer.out_features, layer.shortlist
        self.shape = layer.out_features, layer.in_features
        coding, device = layer.recipe.weight_coding(), layer.codes.device
        columns = dict(zip(coding.column_names, layer.columns.cpu().numpy(), strict=True))
        every = Encoded(layer.codes.cpu().numpy(), columns)
        weights, scales = torch.empty(self.shape, dtype=torch.int8), torch.empty(layer.out_features)
        step = max(1, BLOCK_VALUES // layer.in_features)
        for start in range(0, layer.out_features, step):
            part = slice(start, start + step)
            held = Shortlist.of(1, coding.decode(every.rows(part)), "int8")
            weights[part] = torch.from_numpy(held.weights)
            scales[part] = torch.from_numpy(held.row_scales)
        self.register_buffer("weights", weights.to(device))
        self.register_buffer("scales", scales.to(device))
        for name in ("bias", "shortlist_weights", "shortlist_scales"):
            self.register_buffer(name, getattr(layer, name))
        self.train(False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of :class:`CompressedLinear`, up to the rounding of weights."""
        if self.shortlist is None:
            return self._estimates(x).to(x.dtype)
        return scattered(*self._shortlisted(x), self.out_features)

    def topk(self, x: Tensor, k: int) -> TopK[Tensor, Tensor]:
        """Return the k highest logits of each input, and their classes."""
        k = check_count(k, "k", maximum=self.shortlist or self.out_features)
        if self.shortlist is None:
            values, indices = self._estimates(x).topk(k)
        else:
            values, indices = (part[..., :k] for part in self._shortlisted(x))
        return TopK(values.to(x.dtype), indices)

    def _estimates(self, x: Tensor) -> Tensor:
        logits = (x.float() @ self.weights.float().T) * self.scales
        return logits if self.bias is None else logits + self.bias

    def _shortlisted(self, x: Tensor) -> tuple[Tensor, Tensor]:
        classes, _ = self._estimates(x).topk(self.shortlist or 1)[1].sort()
        exact = torch.nn.functional.embedding(classes, self.shortlist_weights).float()
        logits = (exact @ x.float().unsqueeze(-1)).squeeze(-1)
        logits = logits if self.shortlist_scales is None else logits * self.shortlist_scales[classes]
        logits = logits if self.bias is None else logits + self.bias[classes]
        values, order = logits.topk(self.shortlist or 1)
        return values.to(x.dtype), classes.gather(-1, order)


@contextmanager
def dequantised(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Replace the compressed layers of a model by standard operators within a ``with`` block."""
    if isinstance(model, CompressedLinear):
        yield DequantisedLinear(model)
        return
    every = model.named_modules(remove_duplicate=False)
    layers = {name: layer for name, layer in every if isinstance(layer, CompressedLinear)}
    made: dict[int, DequantisedLinear] = {}
    try:
        for name, layer in layers.items():
            if id(layer) not in made:
                made[id(layer)] = DequantisedLinear(layer)
            _replace(model, name, made[id(layer)])
        yield model
    finally:
        for name, layer in layers.items():
            _replace(model, name, layer)


def _replace(model: torch.nn.Module, name: str, layer: torch.nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, layer)
