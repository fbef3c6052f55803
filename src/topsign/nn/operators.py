"""Custom PyTorch operators: estimated logits and best classes, on the device of the tensors.

On the CPU and on CUDA, kernels compute them from the codes; other devices multiply with decoded weights. The operators
are ``torch.library`` operators with fake implementations, so torch.compile, torch.export and torch.jit.trace keep them
as single nodes. Importing this module registers them.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from ..errors import warn
from ..families import Recipe
from ..families.weight_encoder import LevelWeightEncoder
from ..gpu import GpuError, HeadScanner, cuda_device
from ..gpu.encoding import InputRounder
from ..gpu.scan import MAX_K, DeviceQueries
from ..heads import Shortlist
from ..heads.scores import Scores, check_operands
from ..projections import Hadamard

BLOCK_VALUES = 2**22  # weights decoded or multiplied per block
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
    recipe.weight_encoder()
    return recipe


def _check_inputs(x: Tensor, n_features: int) -> None:
    if not x.is_floating_point():
        raise TypeError(f"inputs must be floating-point (float32, bfloat16 or float16), got {x.dtype}")
    if x.ndim < 1 or x.shape[-1] != n_features:
        raise ValueError(f"inputs must have {n_features} features in the last axis, got shape {tuple(x.shape)}")


# Heads by device


class LayerHead(ABC):
    """Codes of a layer in the form in which they are searched."""

    @abstractmethod
    def logits(self, rows: Tensor) -> Tensor:
        """Return the logits of float32 rows, (n_rows, n_classes)."""

    def topk(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k highest logits of each row and their classes; ties by ascending class."""
        values, classes = self.logits(rows).sort(dim=1, descending=True, stable=True)
        return values[:, :k], classes[:, :k]


class CpuHead(LayerHead):
    """Codes searched by the C++ kernels; inputs that are not finite raise an error."""

    def __init__(self, recipe: Recipe, codes: Tensor, bias: Tensor | None) -> None:
        self._scores = Scores.from_operands(recipe, codes.numpy(), None if bias is None else bias.numpy())

    def logits(self, rows: Tensor) -> Tensor:
        return torch.from_numpy(self._scores.logits(rows.numpy(), "inputs"))

    def topk(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        values, classes = self._scores.topk(rows.numpy(), k, "inputs")
        return torch.from_numpy(values), torch.from_numpy(classes)


class CudaHead(LayerHead):
    """Codes searched by the kernels of ``topsign.gpu``.

    With a Hadamard projection, results have the bits of the CPU; PyTorch computes other projections as matrix products.
    """

    def __init__(self, recipe: Recipe, codes: Tensor, bias: Tensor | None) -> None:
        encoder, device = recipe.weight_encoder(), cuda_device(codes.device.index or 0)
        assert isinstance(encoder, LevelWeightEncoder)
        scoring = encoder.recipe.scoring_of("log", code_bytes=encoder.nbytes)
        biases = None if bias is None else bias.contiguous()
        with device.stream_of(codes):
            self._scanner = HeadScanner(scoring, codes.contiguous(), biases, device=device)
            self._rounder = InputRounder(encoder.recipe, device=device)
        self._matrix: Tensor | None = None
        projection = encoder.recipe.projection
        if not isinstance(projection, Hadamard):
            self._matrix = torch.from_numpy(projection.rows(np.arange(projection.n_pool))).to(codes.device)

    def logits(self, rows: Tensor) -> Tensor:
        found: Tensor = self._scanner.logits(self._inputs(rows))
        return found

    def topk(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        if k > MAX_K:  # more than a thread block sorts
            return super().topk(rows, k)
        values, classes = self._scanner.topk(self._inputs(rows), k)
        return values, classes

    def _inputs(self, rows: Tensor) -> DeviceQueries:
        """Project and round float32 rows."""
        if self._matrix is None:
            return self._rounder.round(rows.contiguous())
        norms = None
        if self._rounder.normalises:
            norms = rows.double().square().sum(1).sqrt()
            rows = rows * torch.where(norms > 0, 1 / norms, 0.0).float().unsqueeze(1)
        return self._rounder.round_projected(rows @ self._matrix.T, norms)


@lru_cache(maxsize=1)
def cuda_is_usable() -> bool:
    """Return whether the kernels can be used; if not, warn once with the reason."""
    try:
        cuda_device(torch.cuda.current_device())
    except GpuError as error:
        warn(f"layers on CUDA multiply with decoded weights, which is slow: {error}", RuntimeWarning)
        return False
    return True


class DecodedHead(LayerHead):
    """Weight vectors as int8 rows with scales, on any device.

    The rounding error of a weight is at most 1 / 254 of the largest weight of its row, far less than that of the codes.
    Inputs are not rounded.
    """

    def __init__(self, recipe: Recipe, codes: Tensor, bias: Tensor | None) -> None:
        encoder, self.bias = recipe.weight_encoder(), bias
        self.step = max(1, BLOCK_VALUES // recipe.n_features)
        rows = codes.cpu().contiguous().numpy()
        parts = [
            Shortlist.of(1, encoder.decode(rows[start : start + self.step]), "int8")
            for start in range(0, len(rows), self.step)
        ]
        self.weights = torch.cat([torch.from_numpy(part.weights) for part in parts]).to(codes.device)
        self.scales = torch.cat([torch.from_numpy(part.row_scales) for part in parts]).to(codes.device)

    def logits(self, rows: Tensor) -> Tensor:
        parts = [slice(start, start + self.step) for start in range(0, len(self.weights), self.step)]
        products = [decoded_logits(rows, self.weights[part], self.scales[part], None) for part in parts]
        logits = torch.cat(products, dim=1)
        return logits if self.bias is None else logits + self.bias


def decoded_logits(x: Tensor, weights: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """Return products of inputs with int8 rows times their scales, in float32, plus biases."""
    logits = (x.float() @ weights.float().T) * scales
    return logits if bias is None else logits + bias


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
        for other, (storages, _) in list(_heads.items()):
            if any(one.expired() for one in storages):  # type: ignore[no-untyped-call]
                del _heads[other]  # its tensors are gone, so others may have their addresses
        if key not in _heads:
            storages = [StorageWeakRef(one.untyped_storage()) for one in tensors]  # type: ignore[no-untyped-call]
            _heads[key] = storages, _make_head(recipe, codes, bias)
        _heads.move_to_end(key)
        _, head = _heads[key]
        while len(_heads) > LAYERS:
            _heads.popitem(last=False)
    return head, x.detach().reshape(-1, recipe.n_features).float()


def _make_head(recipe: Recipe, codes: Tensor, bias: Tensor | None) -> LayerHead:
    if codes.device.type == "cpu":
        return CpuHead(recipe, codes, bias)
    if codes.is_cuda and isinstance(recipe.weight_encoder(), LevelWeightEncoder) and cuda_is_usable():
        return CudaHead(recipe, codes, bias)
    return DecodedHead(recipe, codes, bias)


def _version(tensor: Tensor) -> object:
    """Return the version counter of a tensor; tensors of inference mode have none, and CPU heads are made again."""
    if not tensor.is_inference():
        return tensor._version
    return object() if tensor.device.type == "cpu" else None
