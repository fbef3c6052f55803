"""Custom PyTorch operators: estimated logits and best classes, on the device of the tensors.

They are ``torch.library`` operators with fake implementations, so torch.compile, torch.export and torch.jit.trace keep
them as single nodes. Importing this module registers them.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from ..families import Recipe
from ..heads.scores import Scores, check_operands
from . import cuda
from .decoded import DecodedHead

LAYERS = 16  # layers whose codes are cached in the form in which they are searched


@torch.library.custom_op("topsign::linear", mutates_args=())
def linear(x: Tensor, codes: Tensor, bias: Tensor | None, recipe: str) -> Tensor:
    """Return estimated logits, (..., n_classes) in the dtype of the input, of inputs (..., n_features).

    ``codes`` are rows that end with the scales of weight vectors; ``recipe`` is JSON.
    """
    head, rows = _operands(x, codes, bias, recipe)
    return head.logits(rows).to(x.dtype).reshape(*x.shape[:-1], len(codes))


@torch.library.custom_op("topsign::topk", mutates_args=())
def topk(x: Tensor, codes: Tensor, bias: Tensor | None, recipe: str, k: int) -> tuple[Tensor, Tensor]:
    """Return the k highest estimated logits of each input, descending, and their classes; ties by ascending class."""
    head, rows = _operands(x, codes, bias, recipe)
    values, indices = head.topk(rows, k)
    shape = (*x.shape[:-1], k)
    return values.to(x.dtype).reshape(shape), indices.reshape(shape)


@linear.register_fake
def _(x: Tensor, codes: Tensor, bias: Tensor | None, recipe: str) -> Tensor:
    _check_inputs(x, read_recipe(recipe).n_features)
    return x.new_empty((*x.shape[:-1], codes.shape[0]))


@topk.register_fake
def _(x: Tensor, codes: Tensor, bias: Tensor | None, recipe: str, k: int) -> tuple[Tensor, Tensor]:
    _check_inputs(x, read_recipe(recipe).n_features)
    shape = (*x.shape[:-1], k)
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


@lru_cache(maxsize=64)
def read_recipe(text: str) -> Recipe:
    """Parse a recipe; cached, so that its projection is made once. Raise if heads cannot use it."""
    recipe = Recipe.from_json(json.loads(text), "the recipe of a graph")
    recipe.weight_coding()
    return recipe


def _check_inputs(x: Tensor, n_features: int) -> None:
    if not x.is_floating_point():
        raise TypeError(f"inputs must be floating-point (float32, bfloat16 or float16), got {x.dtype}")
    if x.ndim < 1 or x.shape[-1] != n_features:
        raise ValueError(f"inputs must have {n_features} features in the last axis, got shape {tuple(x.shape)}")


# Heads by device


class LayerHead(Protocol):
    """Codes of a layer in the form in which they are searched."""

    def logits(self, rows: Tensor) -> Tensor:
        """Return the logits of float32 rows, (n_rows, n_classes)."""

    def topk(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k highest logits of each row and their classes; ties by ascending class."""


class CpuHead:
    """Codes searched by the C++ kernels; inputs that are not finite raise an error."""

    def __init__(self, recipe: Recipe, codes: Tensor, bias: Tensor | None) -> None:
        self._scores = Scores.from_operands(recipe, codes.numpy(), None if bias is None else bias.numpy())

    def logits(self, rows: Tensor) -> Tensor:
        return torch.from_numpy(self._scores.logits(rows.numpy(), "inputs"))

    def topk(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        values, classes = self._scores.topk(rows.numpy(), k, "inputs")
        return torch.from_numpy(values), torch.from_numpy(classes)


_heads: OrderedDict[tuple[object, ...], tuple[list[StorageWeakRef], LayerHead]] = OrderedDict()
_lock = threading.Lock()


def _operands(x: Tensor, codes: Tensor, bias: Tensor | None, text: str) -> tuple[LayerHead, Tensor]:
    """Return the head of these tensors and the inputs as float32 rows.

    The head is made at the first use of the tensors and again after they change.
    """
    recipe = read_recipe(text)
    check_operands(recipe, codes, bias)
    _check_inputs(x, recipe.n_features)
    if x.device != codes.device:
        raise ValueError(f"inputs must be on the device of the layer, {codes.device}, got {x.device}")
    tensors = [codes] if bias is None else [codes, bias]
    key = (text, *((one.data_ptr(), one.device, one.shape, one.stride(), _version(one)) for one in tensors))
    with _lock:
        for other in [other for other, (storages, _) in _heads.items() if _freed(storages)]:
            del _heads[other]
        if key not in _heads:
            storages = [StorageWeakRef(one.untyped_storage()) for one in tensors]  # type: ignore[no-untyped-call]
            _heads[key] = storages, _make_head(recipe, codes, bias)
        _heads.move_to_end(key)
        _, head = _heads[key]
        while len(_heads) > LAYERS:
            _heads.popitem(last=False)
    return head, x.detach().reshape(-1, recipe.n_features).float()


def _freed(storages: list[StorageWeakRef]) -> bool:
    """Return whether a tensor of a head is gone, so that another one may have its address."""
    return any(one.expired() for one in storages)  # type: ignore[no-untyped-call]


def _make_head(recipe: Recipe, codes: Tensor, bias: Tensor | None) -> LayerHead:
    if codes.device.type == "cpu":
        return CpuHead(recipe, codes, bias)
    if codes.is_cuda and cuda.executes(recipe) and cuda.usable():
        return cuda.CudaHead(recipe, codes, bias)
    return DecodedHead(recipe, codes, bias)


def _version(tensor: Tensor) -> object:
    """Return the version counter of a tensor; tensors of inference mode have none, and CPU heads are made again."""
    if not tensor.is_inference():
        return tensor._version
    return object() if tensor.device.type == "cpu" else None
