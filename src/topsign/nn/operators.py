"""Operators of PyTorch: estimated logits and the best classes of inputs, on the device where the tensors are.

As operators of ``torch.library`` with shape functions they go through torch.compile, torch.export and torch.jit.trace
as single nodes. Importing this module registers them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ..heads.queries import query_blocks
from ..heads.recipes import CODES
from ..heads.scores import EstimatedLogits, LogitScores, TrellisScores
from ..projections import Hadamard, Projection
from ..recipe import Recipe
from . import cuda, tensors

BLOCK_VALUES = 2**24  # values of unpacked codes held at a time


@torch.library.custom_op("topsign::linear", mutates_args=())
def linear(x: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None, recipe: str) -> Tensor:
    """Estimated logits, (..., n_classes) in the type of the input, of inputs (..., n_features).

    ``recipe`` is the JSON of what the codes are made with.
    """
    made = _checked(recipe, codes, scales, bias)
    logits = _path(x, made)[0](made, _rows(x, made.n_features), codes, scales, bias)
    return logits.to(x.dtype).reshape(*x.shape[:-1], len(codes))


@torch.library.custom_op("topsign::topk", mutates_args=())
def topk(x: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None, recipe: str, k: int) -> tuple[Tensor, Tensor]:
    """The k highest estimated logits of each input, falling, and their classes; of equal ones the lower class first."""
    made = _checked(recipe, codes, scales, bias)
    values, indices = _path(x, made)[1](made, _rows(x, made.n_features), codes, scales, bias, k)
    shape = (*x.shape[:-1], k)
    return values.to(x.dtype).reshape(shape), indices.reshape(shape)


@torch.library.custom_op("topsign::shortlist", mutates_args=())
def shortlist(
    x: Tensor,
    codes: Tensor,
    scales: Tensor,
    bias: Tensor | None,
    recipe: str,
    weights: Tensor,
    weight_scales: Tensor | None,
    size: int,
) -> tuple[Tensor, Tensor]:
    """Exact logits of the ``size`` classes whose estimates are highest, falling, and these classes.

    ``weights`` are the rows of the layer in any type, on the device of the input or in pinned memory beside it; int8
    rows have ``weight_scales``.
    """
    made = _checked(recipe, codes, scales, bias)
    rows = _rows(x, made.n_features)
    _, classes = _path(x, made)[1](made, rows, codes, scales, bias, size)
    classes, _ = classes.sort(dim=1)
    weights = cuda.mapped(weights, x.device) if x.is_cuda and not weights.is_cuda else weights
    step = max(1, BLOCK_VALUES // (size * made.n_features))
    parts = [
        _products(rows[i : i + step], classes[i : i + step], weights, weight_scales) for i in range(0, len(rows), step)
    ]
    logits = torch.cat(parts) if parts else rows.new_empty(0, size)
    logits = logits if bias is None else logits + bias[classes]
    order = logits.argsort(dim=1, descending=True, stable=True)  # of equal ones the lower class first
    shape = (*x.shape[:-1], size)
    return logits.gather(1, order).to(x.dtype).reshape(shape), classes.gather(1, order).reshape(shape)


def _products(rows: Tensor, classes: Tensor, weights: Tensor, weight_scales: Tensor | None) -> Tensor:
    """Inner products of each row with its own classes' weights, in float32."""
    chosen = weights[classes].float()
    if weight_scales is not None:
        chosen = chosen * weight_scales[classes].unsqueeze(2)
    return torch.bmm(chosen, rows.unsqueeze(2)).squeeze(2)


@linear.register_fake
def _(x: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None, recipe: str) -> Tensor:
    _check_inputs(x, read_recipe(recipe).n_features)
    return x.new_empty((*x.shape[:-1], codes.shape[0]))


@topk.register_fake
def _(x: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None, recipe: str, k: int) -> tuple[Tensor, Tensor]:
    _check_inputs(x, read_recipe(recipe).n_features)
    shape = (*x.shape[:-1], k)
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


@shortlist.register_fake
def _(
    x: Tensor,
    codes: Tensor,
    scales: Tensor,
    bias: Tensor | None,
    recipe: str,
    weights: Tensor,
    weight_scales: Tensor | None,
    size: int,
) -> tuple[Tensor, Tensor]:
    _check_inputs(x, read_recipe(recipe).n_features)
    shape = (*x.shape[:-1], size)
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


@lru_cache(maxsize=64)
def read_recipe(text: str) -> Recipe:
    """The recipe of its JSON; its projection is made once."""
    recipe = Recipe.from_json(json.loads(text), "the recipe of a graph")
    if recipe.family not in CODES or recipe.n_local > 1:
        raise ValueError(
            f"these operators take adaptive codes, or trellis codes of one basis, not {recipe.family} codes"
        )
    return recipe


def _checked(text: str, codes: Tensor, scales: Tensor, bias: Tensor | None) -> Recipe:
    """The recipe, where the shapes fit it: a graph may come from outside, and kernels check nothing."""
    recipe = read_recipe(text)
    width, n_codes = recipe.layout.code_bytes, codes.shape[:1]
    fitting = codes.dtype == torch.uint8 and codes.ndim == 2 and codes.shape[1] == width
    fitting = fitting and scales.shape == (n_codes if recipe.beside else (0,)) and recipe.norms
    if not fitting or (bias is not None and bias.shape != n_codes):
        shapes = [None if one is None else tuple(one.shape) for one in (codes, scales, bias)]
        raise ValueError(f"codes, scales and bias of shapes {shapes} do not fit uint8 codes of {width} bytes")
    return recipe


def _path(x: Tensor, recipe: Recipe) -> tuple[Callable[..., Tensor], Callable[..., tuple[Tensor, Tensor]]]:
    """Functions for logits and for the best classes where the input is: kernels on the CPU and on CUDA."""
    if x.device.type == "cpu":
        return cpu_logits, cpu_topk
    if x.is_cuda and cuda.usable():
        return cuda.cuda_logits, cuda.cuda_topk
    return tensor_logits, tensor_topk


def _rows(x: Tensor, n_features: int) -> Tensor:
    _check_inputs(x, n_features)
    return x.detach().reshape(-1, n_features).float()


def _check_inputs(x: Tensor, n_features: int) -> None:
    if not x.is_floating_point():
        raise TypeError(f"inputs must be floating-point (float32, bfloat16 or float16), got {x.dtype}")
    if x.ndim < 1 or x.shape[-1] != n_features:
        raise ValueError(f"inputs must have {n_features} features in the last axis, got shape {tuple(x.shape)}")


# On the CPU: the C++ kernels, where NaN and infinities raise


def cpu_logits(recipe: Recipe, rows: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """By the kernels of this machine."""
    scores, out = _scores(recipe, codes, scales, bias), torch.empty(len(rows), len(codes))
    for part, queries in query_blocks(recipe, None, "asymmetric", rows.numpy(), "inputs"):
        out[part] = torch.from_numpy(scores.values(queries)).float()
    return out


def cpu_topk(
    recipe: Recipe, rows: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None, k: int
) -> tuple[Tensor, Tensor]:
    """By the kernels of this machine."""
    scores = _scores(recipe, codes, scales, bias)
    values, indices = torch.empty(len(rows), k), torch.empty(len(rows), k, dtype=torch.int64)
    for part, queries in query_blocks(recipe, None, "asymmetric", rows.numpy(), "inputs"):
        classes, found = scores.best(queries, k)
        values[part], indices[part] = torch.from_numpy(found).float(), torch.from_numpy(classes)
    return values, indices


def _scores(recipe: Recipe, codes: Tensor, scales: Tensor, bias: Tensor | None) -> EstimatedLogits:
    biases = None if bias is None or not bias.any() else bias.numpy().astype(np.float64)
    if recipe.family == "trellis":
        return TrellisScores(recipe.cells[0].tables, codes.contiguous().numpy(), biases)
    return LogitScores(recipe.layout, codes.contiguous().numpy(), scales.contiguous().float().numpy(), biases)


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
    logits = _logits_of(recipe, rows)
    every = torch.arange(len(codes), device=rows.device)
    size = max(1, BLOCK_VALUES // recipe.n_pool)
    for start in range(0, len(codes), size):
        part = slice(start, start + size)
        values = logits(codes[part], scales[part])
        yield every[part], values if bias is None else values + bias[part]


def _logits_of(recipe: Recipe, rows: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """What gives the logits of all rows for some codes and their scales, without biases."""
    if recipe.family == "trellis":
        squares, tables = rows.double().square().sum(1), recipe.cells[0].tables
        rounded = tensors.round_queries(recipe, squares, lambda units: _project(recipe.projection, units), rows)
        return lambda codes, scales: tensors.trellis_logits(tables, codes, rounded)
    projected = _project(recipe.projection, rows)
    return lambda codes, scales: tensors.score_sums(recipe.layout, codes, projected) * scales


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
