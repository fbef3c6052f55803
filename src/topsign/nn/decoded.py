"""Decoded weight vectors of layers, for devices without kernels and for ONNX models of standard operators."""

from __future__ import annotations

import torch
from torch import Tensor

from ..families import Recipe
from ..heads.shortlist import Shortlist

BLOCK_VALUES = 2**22  # weights decoded or multiplied per block


class DecodedHead:
    """Weight vectors as int8 rows with scales, on any device.

    The rounding error of a weight is at most 1 / 254 of the largest weight of its row, far less than that of the codes.
    Inputs are not rounded.
    """

    def __init__(self, recipe: Recipe, codes: Tensor, bias: Tensor | None) -> None:
        coding, self.bias = recipe.weight_coding(), bias
        self.step = max(1, BLOCK_VALUES // recipe.n_features)
        rows = codes.cpu().contiguous().numpy()
        parts = [
            Shortlist.of(1, coding.decode(rows[start : start + self.step]), "int8")
            for start in range(0, len(rows), self.step)
        ]
        self.weights = torch.cat([torch.from_numpy(part.weights) for part in parts]).to(codes.device)
        self.scales = torch.cat([torch.from_numpy(part.row_scales) for part in parts]).to(codes.device)

    def logits(self, rows: Tensor) -> Tensor:
        """Return the logits of float32 rows, (n_rows, n_classes)."""
        parts = [slice(start, start + self.step) for start in range(0, len(self.weights), self.step)]
        products = [decoded_logits(rows, self.weights[part], self.scales[part], None) for part in parts]
        logits = torch.cat(products, dim=1)
        return logits if self.bias is None else logits + self.bias

    def topk(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k highest logits of each row and their classes; ties by ascending class."""
        values, classes = self.logits(rows).sort(dim=1, descending=True, stable=True)
        return values[:, :k], classes[:, :k]


def decoded_logits(x: Tensor, weights: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """Return products of inputs with int8 rows times their scales, in float32, plus biases."""
    logits = (x.float() @ weights.float().T) * scales
    return logits if bias is None else logits + bias
