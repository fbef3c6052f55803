"""Classifier heads on a device: the best classes of each input, or the logits of all classes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import numpy as np

from ..families.projected import ProjectedRecipe
from ..families.trellis import TrellisRecipe
from ..kernels import Scoring
from ..projections import Hadamard
from .codes import CodeFormat, DeviceQueries, Part, put_rows
from .device import Array, Device, empty_like
from .encoding import Projector
from .scan import DEFAULT, MAX_K, BestSearch, Tuning, make_scanner

MAX_INPUTS = 1024  # per scan
PLANS = 8  # shapes of inputs whose buffers are cached


class HeadScanner:
    """Codes of a head on a device. Buffers are cached for later calls with inputs of the same shape.

    After the first call with a shape, only results are allocated and the host does not synchronize, so calls can be
    captured in a CUDA graph. Threads may share a scanner. Calls share buffers, so they are serialised, and a call on
    another stream than the last one must synchronize the device.

    Parameters
    ----------
    scoring : Scoring
        Of the head's rows: ``recipe.scoring_of("log", code_bytes=recipe.weight_coding().nbytes)``.
    codes : array of shape (n_classes, scoring.code_bytes), uint8
        NumPy array, or array or tensor on the device.
    bias : array of shape (n_classes,), float32, or None
    """

    def __init__(self, scoring: Scoring, codes: Any, bias: Any, *, device: Device, tuning: Tuning = DEFAULT) -> None:
        self.device, self._tuning = device, tuning
        self._format = CodeFormat(device, scoring)
        biases = device.put(bias) if isinstance(bias, np.ndarray) else bias
        self._part = Part(put_rows(device, codes), len(codes), biases)
        self._plans: OrderedDict[tuple[int, int], Any] = OrderedDict()  # buffers, by numbers of inputs and classes
        self._lock = threading.Lock()  # held during launches

    def __len__(self) -> int:
        """Number of classes."""
        return len(self._part)

    @property
    def nbytes(self) -> int:
        """GPU memory of codes and biases, in bytes."""
        return int(self._part.planes.nbytes) + (0 if self._part.biases is None else 4 * len(self))

    def topk(self, inputs: DeviceQueries, k: int) -> tuple[Array, Array]:
        """Return the k highest logits of each input, in descending order, and their classes; ties by ascending class.

        The logits have the bits of the CPU. An input whose scale is not finite gets NaN and the first k classes.
        """
        if not 1 <= k <= min(MAX_K, len(self)):
            raise ValueError(f"k must lie in [1, {min(MAX_K, len(self))}] on a GPU, got {k}")
        shape, make = (len(inputs), k), partial(BestSearch, k=k, n_codes=len(self), waits=False)
        values, classes = (empty_like(self.device, inputs.values, shape, t) for t in ("float32", "int64"))
        with self._lock, self.device.stream_of(inputs.values):
            for rows, search in self._planned(inputs, k, make):
                search.start(inputs[rows])
                search.scan(self._part, (values[rows], classes[rows]))
        return values, classes

    def logits(self, inputs: DeviceQueries) -> Array:
        """Return logits of all classes, (n_inputs, n_classes), with the bits of the CPU."""
        out = empty_like(self.device, inputs.values, (len(inputs), len(self)), "float32")
        with self._lock, self.device.stream_of(inputs.values):
            for rows, scanner in self._planned(inputs, 0, make_scanner):
                scanner.start(inputs[rows])
                scanner.values(self._part, out[rows])
        return out

    def _planned(self, inputs: DeviceQueries, k: int, make: Callable[..., Any]) -> Iterator[tuple[slice, Any]]:
        """Yield blocks of inputs, with the search or scanner whose buffers are cached for their number."""
        for start in range(0, len(inputs), MAX_INPUTS):
            rows = slice(start, start + MAX_INPUTS)
            key = len(inputs[rows]), k
            if key not in self._plans:
                self._plans[key] = make(self._format, key[0], tuning=self._tuning)
            if len(self._plans) > PLANS:
                self._plans.popitem(last=False)
            yield rows, self._plans[key]


class InputRounder:
    """Rounding of inputs on a device, with the bits of ``recipe.round_inputs`` if the projection is a Hadamard one."""

    def __init__(self, recipe: ProjectedRecipe, *, device: Device) -> None:
        self.recipe, self.device = recipe, device
        self._module = device.module(("inputs.cu",), {})
        self._projector = None  # others project inputs themselves
        if isinstance(recipe.projection, Hadamard):
            self._projector = Projector(recipe.projection, device=device)
        self._places = self._weights = self._mean = None
        self.normalises = recipe.scorer.ring is not None
        if self.normalises:
            trellis = cast(TrellisRecipe, recipe)
            design = trellis.design
            self._places = device.put(design.coded.astype(np.uint32))
            self._weights = device.put((design.values / recipe.n_features).astype(np.float32))
            if recipe.mean is not None:
                self._mean = device.put(trellis.projected_mean)

    def round(self, inputs: Array) -> DeviceQueries:
        """Project and round inputs, (n_inputs, n_features) float32 on the device."""
        assert self._projector is not None
        projected = empty_like(self.device, inputs, (len(inputs), self.recipe.n_pool), "float32")
        norms = empty_like(self.device, inputs, (len(inputs),), "float64") if self.normalises else None
        with self.device.stream_of(inputs):
            self._projector.project(inputs, projected, norms)
        return self.round_projected(projected, norms)

    def round_projected(self, projected: Array, norms: Array | None) -> DeviceQueries:
        """Round projections of inputs; if :attr:`normalises`, of unit inputs with these norms, float64."""
        n_inputs, width = len(projected), self.recipe.width
        values = empty_like(self.device, projected, (n_inputs, width), "int16")
        scales, constants = (empty_like(self.device, projected, (n_inputs,), "float32") for _ in range(2))
        with self.device.stream_of(projected):
            places = self._places, self._weights, np.uint32(width), np.float32(self.recipe.scorer.limit)
            arguments = projected, np.uint32(self.recipe.n_pool), *places, self._mean, norms
            self._module.launch("round_inputs", n_inputs, 256, *arguments, values, scales, constants)
        return DeviceQueries(values, scales, constants)
