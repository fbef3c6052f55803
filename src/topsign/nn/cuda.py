"""Logits and the best classes of inputs on a CUDA device, by the kernels of ``topsign.gpu``."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from .._warning import warn
from ..gpu import GpuEncoder, GpuError, HeadScanner, cuda_device
from ..gpu.best import MAX_K
from ..gpu.heads import TrellisHeadScanner
from ..gpu.rings import RoundedOnDevice
from ..kernels import Layout
from ..projections import Hadamard, Projection
from ..recipe import Recipe
from . import tensors

LAYERS = 16  # whose codes are kept on devices for the kernels


@dataclass
class Held:
    """A head on its device. The tensors it was made of are kept, so that no others take their addresses."""

    scanner: HeadScanner | TrellisHeadScanner
    encoder: GpuEncoder | None  # None for projections that are matrix products
    tensors: tuple[Tensor | None, ...]
    stream: int = 0  # of the last call

    def follow(self, device: torch.device) -> None:
        """Waits for a call on another stream, which may still use the memory that calls share."""
        if torch.cuda.is_current_stream_capturing():
            return
        stream = torch.cuda.current_stream(device).cuda_stream
        if stream != self.stream:
            torch.cuda.synchronize(device)
            self.stream = stream


_held: OrderedDict[tuple[object, ...], Held] = OrderedDict()
_mapped = WeakIdKeyDictionary()  # tensors of devices by the pinned ones that they read
_lock = threading.Lock()


@lru_cache(maxsize=1)
def usable() -> bool:
    """Whether the kernels can be used; where they cannot, says why once."""
    try:
        cuda_device(torch.cuda.current_device())
    except GpuError as error:
        warn(f"layers on CUDA use PyTorch's operations, which are slow: {error}", RuntimeWarning)
        return False
    return True


def cuda_logits(recipe: Recipe, rows: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """Estimated logits of float32 rows, (n_rows, n_classes), within the rounding of float32."""
    held = _head(recipe, codes, scales, bias)
    found: Tensor = held.scanner.logits(_inputs(recipe, held, rows))
    return found


def cuda_topk(
    recipe: Recipe, rows: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None, k: int
) -> tuple[Tensor, Tensor]:
    """The k highest estimated logits of float32 rows, and their classes: the processor's, for Hadamard projections."""
    held = _head(recipe, codes, scales, bias)
    projected = _inputs(recipe, held, rows)
    if k > MAX_K:  # more than a block sorts
        logits = held.scanner.logits(projected)
        order = logits.argsort(dim=1, descending=True, stable=True)[:, :k]
        return logits.gather(1, order), order
    values, indices = held.scanner.topk(projected, k)
    return values, indices


def mapped(held: Tensor, device: torch.device) -> Tensor:
    """Pinned memory of the host as a tensor of the device, which reads what it needs of it; nothing is copied."""
    if not held.is_pinned():
        raise ValueError("weights beside inputs on CUDA must be there too, or in pinned memory (tensor.pin_memory())")
    if held not in _mapped:
        _mapped[held] = torch.as_tensor(_Pinned(held), device=device).view(held.dtype)
    found: Tensor = _mapped[held]
    return found


class _Pinned:
    """Memory in the words of CUDA's array interface."""

    def __init__(self, held: Tensor) -> None:
        numbers = {8: "<f8", 4: "<f4", 2: "<i2", 1: "|i1"}  # 2 bytes: float16, or bfloat16, which it has no word for
        self.__cuda_array_interface__ = {
            "shape": tuple(held.shape),
            "typestr": numbers[held.element_size()],
            "data": (held.data_ptr(), False),
            "version": 2,
        }


def _inputs(recipe: Recipe, held: Held, rows: Tensor) -> Tensor | RoundedOnDevice:
    """Inputs as the scanner takes them: projected, and rounded for trellis codes."""
    if recipe.family != "trellis":
        return _project(recipe.projection, held, rows)
    squares = _square_norms(held, rows)
    rounded = tensors.round_queries(recipe, squares, lambda units: _project(recipe.projection, held, units), rows)
    return RoundedOnDevice(*rounded)


def _square_norms(held: Held, rows: Tensor) -> Tensor:
    if held.encoder is None:
        return rows.double().square().sum(1)
    squares = rows.new_empty(len(rows), dtype=torch.float64)
    with held.encoder.device.stream_of(rows):
        held.encoder.square_norms(rows.contiguous(), squares)
    return squares


def _project(projection: Projection, held: Held, rows: Tensor) -> Tensor:
    if held.encoder is None:
        return rows @ _matrix(projection, rows.device).T
    projected = rows.new_empty(len(rows), projection.n_pool)
    with held.encoder.device.stream_of(rows):
        held.encoder.project(rows.contiguous(), projected)
    return projected


@lru_cache(maxsize=16)
def _matrix(projection: Projection, device: torch.device) -> Tensor:
    return torch.from_numpy(projection.rows(np.arange(projection.n_pool))).to(device)


def _head(recipe: Recipe, codes: Tensor, scales: Tensor, bias: Tensor | None) -> Held:
    """The head of these tensors, made when they are first seen or have changed."""
    tensors = (codes, scales, bias)
    key = (recipe, *((None if t is None else (t.data_ptr(), tuple(t.shape), _version(t))) for t in tensors))
    with _lock:
        if key not in _held:
            device = cuda_device(codes.device.index or 0)
            encoder = None
            trellis = recipe.family == "trellis"
            if isinstance(recipe.projection, Hadamard):
                layout = Layout("signs", recipe.n_pool, recipe.n_pool) if trellis else recipe.layout
                encoder = GpuEncoder(recipe.projection, layout, device=device)
            biases = None if bias is None else bias.contiguous()
            scanner: HeadScanner | TrellisHeadScanner
            with device.stream_of(codes):
                if trellis:
                    scanner = TrellisHeadScanner(codes.contiguous(), biases, recipe.cells[0].tables, device=device)
                else:
                    scanner = HeadScanner(codes.contiguous(), scales.contiguous(), biases, recipe.layout, device=device)
            _held[key] = Held(scanner, encoder, tensors)
            while len(_held) > LAYERS:
                _held.popitem(last=False)
        _held[key].follow(codes.device)
        return _held[key]


def _version(tensor: Tensor) -> int:
    """How often a tensor was changed in place; those of inference mode do not count."""
    return 0 if tensor.is_inference() else tensor._version
