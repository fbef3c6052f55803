"""Logits and best classes on CUDA devices, computed by the kernels of ``topsign.gpu``."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from .._warning import warn
from ..families import Recipe, TrellisRecipe, WeightCoding
from ..families.adaptive import SignsRecipe
from ..families.sign_weights import AdaptiveWeights, SignWeights
from ..families.trellis.weights import TrellisWeights
from ..gpu import GpuEncoder, GpuError, HeadScanner, cuda_device
from ..gpu.best import MAX_K
from ..gpu.device import Device
from ..gpu.heads import CodeScanner, TrellisHeadScanner
from ..gpu.inputs import InputRounder
from ..gpu.rings import RoundedOnDevice
from ..kernels import Layout
from ..projections import Hadamard, Projection
from . import forms, tensors

LAYERS = 16  # layers whose codes are cached in the layout of the kernels


class Projector:
    """Projection of inputs in GPU memory."""

    def __init__(self, projection: Projection, layout: Layout, device: Device) -> None:
        self._projection = projection
        self._encoder = None  # other projections are computed as matrix products
        if isinstance(projection, Hadamard):
            self._encoder = GpuEncoder(projection, layout, device=device)

    def project(self, rows: Tensor) -> Tensor:
        """Return the projections of rows, (n_rows, n_pool)."""
        if self._encoder is None:
            return forms.project(self._projection, rows)
        projected = rows.new_empty(len(rows), self._projection.n_pool)
        with self._encoder.device.stream_of(rows):
            self._encoder.project(rows.contiguous(), projected)
        return projected


class CudaHead(ABC):
    """A head on its device. The tensors it was made of are kept, so that no others take their addresses."""

    scanner: CodeScanner
    tensors: tuple[Tensor | None, ...] = ()
    stream: int = 0  # of the last call

    @abstractmethod
    def __init__(self, recipe: Any, codes: Tensor, columns: Tensor, bias: Tensor | None, device: Device) -> None: ...

    @abstractmethod
    def inputs(self, rows: Tensor) -> Tensor | RoundedOnDevice:
        """Project (or round) float32 rows for the scanner."""

    def follow(self, device: torch.device) -> None:
        """Synchronize if the last call was on another stream, because calls share buffers."""
        if torch.cuda.is_current_stream_capturing():
            return
        stream = torch.cuda.current_stream(device).cuda_stream
        if stream != self.stream:
            torch.cuda.synchronize(device)
            self.stream = stream


class SignHead(CudaHead):
    """Head of adaptive or sign codes."""

    def __init__(
        self, recipe: SignsRecipe, codes: Tensor, columns: Tensor, bias: Tensor | None, device: Device
    ) -> None:
        self._projector = Projector(recipe.projection, recipe.layout, device)
        self.scanner = HeadScanner(codes, columns[0].contiguous(), bias, recipe.layout, device=device)

    def inputs(self, rows: Tensor) -> Tensor:
        return self._projector.project(rows)


class TrellisHead(CudaHead):
    """Head of trellis codes."""

    def __init__(
        self, recipe: TrellisRecipe, codes: Tensor, columns: Tensor, bias: Tensor | None, device: Device
    ) -> None:
        (cell,) = recipe.cells
        self._recipe = recipe
        self._rounder = InputRounder(recipe, device=device) if InputRounder.supports(recipe, device) else None
        self.scanner = TrellisHeadScanner(codes, bias, cell.tables, device=device)

    def inputs(self, rows: Tensor) -> RoundedOnDevice:
        if self._rounder is None:
            rounded = tensors.round_queries(
                self._recipe, rows, lambda units: forms.project(self._recipe.projection, units)
            )
            return RoundedOnDevice(*rounded)
        values = rows.new_empty((len(rows), self._rounder.n_coded), dtype=torch.int8)
        scales, constants = rows.new_empty(len(rows)), rows.new_empty(len(rows))
        with self._rounder.device.stream_of(rows):
            self._rounder.round(rows.contiguous(), values, scales, constants)
        return RoundedOnDevice(values, scales, constants)


HEADS: dict[type[WeightCoding], type[CudaHead]] = {
    AdaptiveWeights: SignHead,
    SignWeights: SignHead,
    TrellisWeights: TrellisHead,
}
"""Heads by weight coding; PyTorch operations compute the logits of others."""

_heads: OrderedDict[tuple[object, ...], CudaHead] = OrderedDict()
_mapped = WeakIdKeyDictionary()  # CUDA views of pinned tensors
_lock = threading.Lock()


def executes(recipe: Recipe) -> bool:
    """Return whether there are kernels for heads of this recipe."""
    return type(recipe.weight_coding()) in HEADS


@lru_cache(maxsize=1)
def usable() -> bool:
    """Return whether the kernels can be used; if not, warn once with the reason."""
    try:
        cuda_device(torch.cuda.current_device())
    except GpuError as error:
        warn(f"layers on CUDA use PyTorch's operations, which are slow: {error}", RuntimeWarning)
        return False
    return True


def cuda_logits(recipe: Recipe, rows: Tensor, codes: Tensor, columns: Tensor, bias: Tensor | None) -> Tensor:
    """Return estimated logits of float32 rows, (n_rows, n_classes), up to the rounding of float32."""
    held = _head(recipe, codes, columns, bias)
    found: Tensor = held.scanner.logits(held.inputs(rows))
    return found


def cuda_topk(
    recipe: Recipe, rows: Tensor, codes: Tensor, columns: Tensor, bias: Tensor | None, k: int
) -> tuple[Tensor, Tensor]:
    """Return the k highest estimated logits of float32 rows, and their classes.

    With a Hadamard projection, they have the bits of the CPU.
    """
    held = _head(recipe, codes, columns, bias)
    projected = held.inputs(rows)
    if k > MAX_K:  # more than a thread block sorts
        logits = held.scanner.logits(projected)
        order = logits.argsort(dim=1, descending=True, stable=True)[:, :k]
        return logits.gather(1, order), order
    values, indices = held.scanner.topk(projected, k)
    return values, indices


def mapped(held: Tensor, device: torch.device) -> Tensor:
    """Return a CUDA tensor that maps pinned host memory, so that the GPU reads only the rows it needs."""
    if not held.is_pinned():
        raise ValueError(
            "weights for inputs on CUDA must be on the device or in pinned memory; call tensor.pin_memory()"
        )
    if held not in _mapped:
        _mapped[held] = torch.as_tensor(_Pinned(held), device=device).view(held.dtype)
    found: Tensor = _mapped[held]
    return found


class _Pinned:
    """Pinned memory with the CUDA array interface."""

    def __init__(self, held: Tensor) -> None:
        numbers = {
            8: "<f8",
            4: "<f4",
            2: "<i2",
            1: "|i1",
        }  # <i2 for float16 and bfloat16, because the interface has no bfloat16
        self.__cuda_array_interface__ = {
            "shape": tuple(held.shape),
            "typestr": numbers[held.element_size()],
            "data": (held.data_ptr(), False),
            "version": 2,
        }


def _head(recipe: Recipe, codes: Tensor, columns: Tensor, bias: Tensor | None) -> CudaHead:
    """Return the cached head of these tensors; it is made at their first use and after they change."""
    held = (codes, columns, bias)
    key = (recipe, *((None if t is None else (t.data_ptr(), tuple(t.shape), _version(t))) for t in held))
    with _lock:
        if key not in _heads:
            device = cuda_device(codes.device.index or 0)
            biases = None if bias is None else bias.contiguous()
            with device.stream_of(codes):
                made = HEADS[type(recipe.weight_coding())](recipe, codes.contiguous(), columns, biases, device)
            made.tensors = held
            _heads[key] = made
            while len(_heads) > LAYERS:
                _heads.popitem(last=False)
        _heads[key].follow(codes.device)
        return _heads[key]


def _version(tensor: Tensor) -> int:
    """Return the version counter of a tensor; tensors of inference mode have none."""
    return 0 if tensor.is_inference() else tensor._version
