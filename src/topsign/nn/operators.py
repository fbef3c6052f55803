"""Estimated logits and the best classes of inputs, on the device where the tensors are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ..encoding import project_blocks
from ..heads.scores import LogitScores
from ..projections import Hadamard, Projection
from ..recipe import Recipe
from . import tensors

BLOCK_VALUES = 2**24  # values of unpacked codes held at a time


def logits(recipe: Recipe, rows: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """Estimated logits of float32 rows, (n_rows, n_classes)."""
    if rows.device.type == "cpu":
        return cpu_logits(recipe, rows, codes, scales, bias)
    return tensor_logits(recipe, rows, codes, scales, bias)


def topk(
    recipe: Recipe, rows: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None, k: int
) -> tuple[Tensor, Tensor]:
    """The k highest estimated logits of each float32 row, and their classes."""
    if rows.device.type == "cpu":
        return cpu_topk(recipe, rows, codes, scales, bias, k)
    return tensor_topk(recipe, rows, codes, scales, bias, k)


# On the CPU: the C++ kernels, where NaN and infinities raise


def cpu_logits(recipe: Recipe, rows: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """By the kernels of this machine."""
    scores, out = _scores(recipe, codes, scales, bias), torch.empty(len(rows), len(codes))
    for block, projected in project_blocks(recipe.projection, rows.numpy(), name="inputs"):
        out[block.rows] = torch.from_numpy(scores.values(projected))
    return out


def cpu_topk(
    recipe: Recipe, rows: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None, k: int
) -> tuple[Tensor, Tensor]:
    """By the kernels of this machine."""
    scores = _scores(recipe, codes, scales, bias)
    values, indices = torch.empty(len(rows), k), torch.empty(len(rows), k, dtype=torch.int64)
    for block, projected in project_blocks(recipe.projection, rows.numpy(), name="inputs"):
        classes, found = scores.best(projected, k)
        values[block.rows], indices[block.rows] = torch.from_numpy(found), torch.from_numpy(classes)
    return values, indices


def _scores(recipe: Recipe, codes: Tensor, scales: Tensor, bias: Tensor | None) -> LogitScores:
    biases = None if bias is None or not bias.any() else bias.numpy().astype(np.float64)
    return LogitScores(recipe.layout, codes.numpy(), scales.numpy(), biases)


# Anywhere: PyTorch operations, a block of classes at a time


def tensor_logits(recipe: Recipe, rows: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """By operations that every device has."""
    return torch.cat([part for _, part in _blocks(recipe, rows, codes, scales, bias)], dim=1)


def tensor_topk(
    recipe: Recipe, rows: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None, k: int
) -> tuple[Tensor, Tensor]:
    """By operations that every device has."""
    values = rows.new_empty(len(rows), 0)
    indices = torch.empty(len(rows), 0, dtype=torch.int64, device=rows.device)
    for classes, part in _blocks(recipe, rows, codes, scales, bias):
        values, indices = torch.cat([values, part], 1), torch.cat([indices, classes.expand(len(rows), -1)], 1)
        order = values.argsort(dim=1, descending=True, stable=True)[:, :k]
        values, indices = values.gather(1, order), indices.gather(1, order)
    return values, indices


def _blocks(
    recipe: Recipe, rows: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Classes of a block, and the logits of all rows for them."""
    projected = _project(recipe.projection, rows)
    every = torch.arange(len(codes), device=rows.device)
    size = max(1, BLOCK_VALUES // recipe.n_pool)
    for start in range(0, len(codes), size):
        part = slice(start, start + size)
        values = tensors.score_sums(recipe.layout, codes[part], projected) * scales[part]
        yield every[part], values if bias is None else values + bias[part]


def _project(projection: Projection, rows: Tensor) -> Tensor:
    operator, last = _operator(projection, rows.device)
    if last is None:
        return rows @ operator.T
    blocks = [tensors.rotate(rows, signs) for signs in operator]
    blocks[-1] = blocks[-1][:, last]
    return torch.cat(blocks, dim=1)


@lru_cache(maxsize=16)
def _operator(projection: Projection, device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Random signs of a Hadamard projection, (n_blocks, rounds, n_features), and the rows kept of its last block.

    Of another kind of projection: its matrix, and None.
    """
    if not isinstance(projection, Hadamard):
        return torch.from_numpy(projection.rows(np.arange(projection.n_pool))).to(device), None
    bits = np.unpackbits(projection.signs, axis=2, count=projection.n_features, bitorder="little")
    signs = torch.from_numpy(bits.astype(np.float32) * 2 - 1)
    return signs.to(device), torch.from_numpy(projection.last_coordinates).to(device)
