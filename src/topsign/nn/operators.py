"""Custom PyTorch operators: estimated logits and best classes, on the device of the tensors.

They are ``torch.library`` operators with fake implementations, so torch.compile, torch.export and torch.jit.trace keep
them as single nodes. Importing this module registers them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache

import torch
from torch import Tensor

from ..families import Recipe
from ..heads.scores import Scores, check_operands
from . import cuda, forms

BLOCK_VALUES = 2**24  # unpacked values per block


@torch.library.custom_op("topsign::linear", mutates_args=())
def linear(x: Tensor, codes: Tensor, columns: Tensor, bias: Tensor | None, recipe: str) -> Tensor:
    """Return estimated logits, (..., n_classes) in the dtype of the input, of inputs (..., n_features).

    ``columns`` are the values stored with the codes, (n_columns, n_classes); ``recipe`` is JSON.
    """
    made = _checked(recipe, codes, columns, bias)
    logits = _path(x, made)[0](made, _rows(x, made.n_features), codes, columns, bias)
    return logits.to(x.dtype).reshape(*x.shape[:-1], len(codes))


@torch.library.custom_op("topsign::topk", mutates_args=())
def topk(x: Tensor, codes: Tensor, columns: Tensor, bias: Tensor | None, recipe: str, k: int) -> tuple[Tensor, Tensor]:
    """Return the k highest estimated logits of each input, descending, and their classes; ties by ascending class."""
    made = _checked(recipe, codes, columns, bias)
    values, indices = _path(x, made)[1](made, _rows(x, made.n_features), codes, columns, bias, k)
    shape = (*x.shape[:-1], k)
    return values.to(x.dtype).reshape(shape), indices.reshape(shape)


@torch.library.custom_op("topsign::shortlist", mutates_args=())
def shortlist(
    x: Tensor,
    codes: Tensor,
    columns: Tensor,
    bias: Tensor | None,
    recipe: str,
    weights: Tensor,
    weight_scales: Tensor | None,
    size: int,
) -> tuple[Tensor, Tensor]:
    """Return exact logits of the ``size`` classes with the highest estimates, descending, and these classes.

    ``weights`` are the weights of the layer in any dtype, on the device of the input or in pinned host memory; int8
    weights have ``weight_scales``.
    """
    made = _checked(recipe, codes, columns, bias)
    rows = _rows(x, made.n_features)
    _, classes = _path(x, made)[1](made, rows, codes, columns, bias, size)
    classes, _ = classes.sort(dim=1)
    weights = cuda.mapped(weights, x.device) if x.is_cuda and not weights.is_cuda else weights
    step = max(1, BLOCK_VALUES // (size * made.n_features))
    parts = [
        products(rows[i : i + step], classes[i : i + step], weights, weight_scales) for i in range(0, len(rows), step)
    ]
    logits = torch.cat(parts) if parts else rows.new_empty(0, size)
    logits = logits if bias is None else logits + bias[classes]
    order = logits.argsort(dim=1, descending=True, stable=True)  # ties by ascending class
    shape = (*x.shape[:-1], size)
    return logits.gather(1, order).to(x.dtype).reshape(shape), classes.gather(1, order).reshape(shape)


def products(rows: Tensor, classes: Tensor, weights: Tensor, weight_scales: Tensor | None) -> Tensor:
    """Return float32 inner products of each row with the weights of its classes."""
    chosen = weights[classes].float()
    if weight_scales is not None:
        chosen = chosen * weight_scales[classes].unsqueeze(2)
    return torch.bmm(chosen, rows.unsqueeze(2)).squeeze(2)


@linear.register_fake
def _(x: Tensor, codes: Tensor, columns: Tensor, bias: Tensor | None, recipe: str) -> Tensor:
    _check_inputs(x, read_recipe(recipe).n_features)
    return x.new_empty((*x.shape[:-1], codes.shape[0]))


@topk.register_fake
def _(x: Tensor, codes: Tensor, columns: Tensor, bias: Tensor | None, recipe: str, k: int) -> tuple[Tensor, Tensor]:
    _check_inputs(x, read_recipe(recipe).n_features)
    shape = (*x.shape[:-1], k)
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


@shortlist.register_fake
def _(
    x: Tensor,
    codes: Tensor,
    columns: Tensor,
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
    """Parse a recipe; cached, so that its projection is made once. Raise if heads cannot use it."""
    recipe = Recipe.from_json(json.loads(text), "the recipe of a graph")
    recipe.weight_coding()
    return recipe


def _checked(text: str, codes: Tensor, columns: Tensor, bias: Tensor | None) -> Recipe:
    """Return the recipe; raise unless the operands match it."""
    recipe = read_recipe(text)
    check_operands(recipe, codes, columns, bias)
    return recipe


def _path(x: Tensor, recipe: Recipe) -> tuple[Callable[..., Tensor], Callable[..., tuple[Tensor, Tensor]]]:
    """Return the functions for logits and for the best classes on the device of the input."""
    if x.device.type == "cpu":
        return cpu_logits, cpu_topk
    if x.is_cuda and cuda.executes(recipe) and cuda.usable():
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


# CPU: the kernels; inputs that are not finite raise an error


def cpu_logits(recipe: Recipe, rows: Tensor, codes: Tensor, columns: Tensor, bias: Tensor | None) -> Tensor:
    """Return logits, computed by the C++ kernels."""
    return torch.from_numpy(_scores(recipe, codes, columns, bias).logits(rows.numpy(), "inputs"))


def cpu_topk(
    recipe: Recipe, rows: Tensor, codes: Tensor, columns: Tensor, bias: Tensor | None, k: int
) -> tuple[Tensor, Tensor]:
    """Return the best classes, found by the C++ kernels."""
    values, classes = _scores(recipe, codes, columns, bias).topk(rows.numpy(), k, "inputs")
    return torch.from_numpy(values), torch.from_numpy(classes)


def _scores(recipe: Recipe, codes: Tensor, columns: Tensor, bias: Tensor | None) -> Scores:
    return Scores.from_operands(recipe, codes.numpy(), columns.numpy(), None if bias is None else bias.numpy())


# Other devices: PyTorch operations, a block of classes at a time


def tensor_logits(recipe: Recipe, rows: Tensor, codes: Tensor, columns: Tensor, bias: Tensor | None) -> Tensor:
    """Return logits, computed by PyTorch operations."""
    return torch.cat([part for _, part in _blocks(recipe, rows, codes, columns, bias)], dim=1)


def tensor_topk(
    recipe: Recipe, rows: Tensor, codes: Tensor, columns: Tensor, bias: Tensor | None, k: int
) -> tuple[Tensor, Tensor]:
    """Return the best classes, found by PyTorch operations."""
    values = rows.new_empty(len(rows), 0)
    indices = torch.empty(len(rows), 0, dtype=torch.int64, device=rows.device)
    for classes, part in _blocks(recipe, rows, codes, columns, bias):
        values, indices = torch.cat([values, part], 1), torch.cat([indices, classes.expand(len(rows), -1)], 1)
        order = values.argsort(dim=1, descending=True, stable=True)[:, :k]
        values, indices = values.gather(1, order), indices.gather(1, order)
    return values, indices


def _blocks(
    recipe: Recipe, rows: Tensor, codes: Tensor, columns: Tensor, bias: Tensor | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the classes of each block, and their logits for all rows."""
    prepared = forms.prepare(recipe.weight_coding(), rows)
    every = torch.arange(len(codes), device=rows.device)
    size = max(1, BLOCK_VALUES // (recipe.query_nbytes // 4))
    for start in range(0, len(codes), size):
        part = slice(start, start + size)
        values = prepared.values(codes[part], columns[:, part])
        yield every[part], values if bias is None else values + bias[part]
