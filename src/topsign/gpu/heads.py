"""Classifier heads on a device: the best classes of each input, or the logits of all classes."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np

from ..kernels import Layout, TrellisTables
from .best import MAX_K, BestSearch
from .device import Array, Device, Recording
from .rings import RoundedOnDevice, TrellisFormat
from .scan import DEFAULT, Candidates, Part, Scanner, Tuning, make_scanner
from .stripes import Format, Stripes
from .trellis import make_trellis_scanner

MAX_INPUTS = 1024  # per scan
LOGIT_DIGITS = 3  # 23 bits per value: the error of logits is that of rounding to float32
PLANS = 8  # shapes of inputs whose buffers are cached


class CodeScanner(ABC):
    """Codes of a head on a device. Buffers are cached for later calls with inputs of the same shape.

    After the first call with a shape, only results are allocated and the host does not synchronize, so calls can be
    captured in a CUDA graph. Threads may share a scanner. Calls share buffers, so they are serialised, and a call on
    another stream than the last one synchronizes the device.
    """

    def __init__(self, form: Format | TrellisFormat, part: Part, *, device: Device, tuning: Tuning = DEFAULT) -> None:
        self.device = device
        self._tuning = tuning
        self._format, self._part = form, part
        self._searches: OrderedDict[tuple[int, int], BestSearch] = OrderedDict()
        self._scanners: OrderedDict[int, tuple[Scanner, Candidates]] = OrderedDict()
        self._recorded: dict[tuple[int, int], Recording] = {}  # launches of earlier calls
        self._lock = threading.Lock()  # held during launches

    def __len__(self) -> int:
        """Number of classes."""
        return len(self._part)

    @property
    def nbytes(self) -> int:
        """GPU memory of codes, scales and biases, in bytes."""
        return self._part.stripes.nbytes + 4 * len(self) * (1 if self._part.biases is None else 2)

    def topk(self, projected: Any, k: int) -> tuple[Array, Array]:
        """Return the k highest logits of each input, in descending order, and their classes; ties by ascending class.

        ``projected`` is (n_inputs, n_pool) float32 on the device, C-ordered, or rounded inputs for trellis codes. The
        logits have the bits of the CPU. An input that is not finite gets NaN and the first k classes.
        """
        if not 1 <= k <= min(MAX_K, len(self)):
            raise ValueError(f"k must lie in [1, {min(MAX_K, len(self))}] on a GPU, got {k}")
        inputs = _arrays(projected)
        values, indices = (_empty_like(self.device, inputs[0], (len(projected), k), t) for t in ("float32", "int64"))
        arrays = *inputs, values, indices
        with self._lock, self.device.stream_of(inputs[0]):
            if (len(projected), k) in self._recorded:
                self._recorded[len(projected), k].replay(arrays)
                return values, indices
            with self.device.record(arrays) as recording:
                for start in range(0, len(projected), MAX_INPUTS):
                    rows = slice(start, start + MAX_INPUTS)
                    search = self._search(len(projected[rows]), k)
                    search.start(projected[rows])
                    search.scan(self._part, (values[rows], indices[rows]))
            if len(projected) <= MAX_INPUTS:  # otherwise arguments are addresses inside the arrays
                self._recorded[len(projected), k] = recording
        return values, indices

    def logits(self, projected: Any) -> Array:
        """Return logits of all classes, (n_inputs, n_classes), up to the rounding of float32."""
        example = _arrays(projected)[0]
        out = _empty_like(self.device, example, (len(projected), len(self)), "float32")
        with self._lock, self.device.stream_of(example):
            for start in range(0, len(projected), MAX_INPUTS):
                rows = slice(start, start + MAX_INPUTS)
                scanner, candidates = self._scanner(len(projected[rows]))
                scanner.round(projected[rows], candidates, None, whole=False)
                scanner.scores(self._part, candidates.steps, out[rows])
        return out

    def _search(self, n_inputs: int, k: int) -> BestSearch:
        if (n_inputs, k) not in self._searches:
            self._recorded.clear()  # they may use buffers that are dropped now
            made = BestSearch(self.device, self._format, n_inputs, k, len(self), fill=True, tuning=self._tuning)
            _keep_latest(self._searches, (n_inputs, k), made, PLANS)
        return self._searches[n_inputs, k]

    def _scanner(self, n_inputs: int) -> tuple[Scanner, Candidates]:
        if n_inputs not in self._scanners:
            scanner = self._logit_scanner(n_inputs)
            _keep_latest(self._scanners, n_inputs, (scanner, Candidates.empty(self.device, n_inputs, 0)), PLANS)
        return self._scanners[n_inputs]

    @abstractmethod
    def _logit_scanner(self, n_inputs: int) -> Scanner:
        """Return the scanner that computes logits of all classes."""


class HeadScanner(CodeScanner):
    """Head of adaptive or sign codes on a device.

    Parameters
    ----------
    codes : array of shape (n_classes, layout.code_bytes), uint8
        NumPy array, or array on the device.
    scales : array of shape (n_classes,), float32
    bias : array of shape (n_classes,), float32, or None
    """

    def __init__(
        self, codes: Any, scales: Any, bias: Any, layout: Layout, *, device: Device, tuning: Tuning = DEFAULT
    ) -> None:
        self._form = Format.of(layout)
        part = Part(Stripes.load(device, layout, codes), _put(device, scales), _put(device, bias))
        super().__init__(self._form, part, device=device, tuning=tuning)

    def _logit_scanner(self, n_inputs: int) -> Scanner:
        return make_scanner(self.device, self._form, n_inputs, digits=LOGIT_DIGITS, tuning=self._tuning)


class TrellisHeadScanner(CodeScanner):
    """Head of trellis codes on a device; the codes contain their scales.

    Parameters
    ----------
    codes : array of shape (n_classes, tables.code_bytes), uint8
        NumPy array, or array on the device.
    bias : array of shape (n_classes,), float32, or None
    """

    def __init__(
        self, codes: Any, bias: Any, tables: TrellisTables, *, device: Device, tuning: Tuning = DEFAULT
    ) -> None:
        self._form = TrellisFormat(device, replace(tables, fine_bits=0))  # inputs of layers have one digit
        rings = self._form.load(codes, norms=True)
        super().__init__(self._form, Part(rings, rings.with_norms, _put(device, bias)), device=device, tuning=tuning)

    def _logit_scanner(self, n_inputs: int) -> Scanner:
        return make_trellis_scanner(self.device, self._form, n_inputs, tuning=self._tuning)


def _arrays(inputs: Any) -> tuple[Array, ...]:
    """Return the device arrays of inputs."""
    return inputs.arrays if isinstance(inputs, RoundedOnDevice) else (inputs,)


def _keep_latest(held: OrderedDict[Any, Any], key: Any, value: Any, limit: int) -> None:
    """Add an item and drop the oldest ones above the limit."""
    held[key] = value
    while len(held) > limit:
        held.popitem(last=False)


def _put(device: Device, values: Any) -> Array | None:
    return device.put(values) if isinstance(values, np.ndarray) else values


def _empty_like(device: Device, example: Array, shape: tuple[int, ...], dtype: str) -> Array:
    """Return an uninitialised array on the device, or a tensor if the example is one."""
    if hasattr(example, "new_empty"):
        import torch

        return example.new_empty(shape, dtype=getattr(torch, dtype))
    return device.empty(shape, np.dtype(dtype))
