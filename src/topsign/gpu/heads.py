"""Heads of models on a device: the best classes of each input, or the logits of all classes."""

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

MAX_INPUTS = 1024  # scanned at a time
LOGIT_DIGITS = 3  # 23 bits of each input: logits of all classes are right within the rounding of float32
PLANS = 8  # shapes of inputs whose memory is kept


class CodeScanner(ABC):
    """Codes of a head on a device. The memory of a call is kept for the next call of the same shape.

    Once a shape has been seen, nothing is allocated on the device and nothing waits for it, except for the results:
    calls can be captured in a CUDA graph after one call outside of it. Threads may share a scanner. Because calls share
    memory, they follow each other, and a call on another stream than the last one waits for the device.
    """

    def __init__(self, form: Format | TrellisFormat, part: Part, *, device: Device, tuning: Tuning = DEFAULT) -> None:
        self.device = device
        self._tuning = tuning
        self._format, self._part = form, part
        self._searches: OrderedDict[tuple[int, int], BestSearch] = OrderedDict()
        self._scanners: OrderedDict[int, tuple[Scanner, Candidates]] = OrderedDict()
        self._recorded: dict[tuple[int, int], Recording] = {}  # prepared calls
        self._lock = threading.Lock()  # held while work is given to the device

    def __len__(self) -> int:
        """Number of classes."""
        return len(self._part)

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and biases on the device."""
        return self._part.stripes.nbytes + 4 * len(self) * (1 if self._part.biases is None else 2)

    def topk(self, projected: Any, k: int) -> tuple[Array, Array]:
        """Return the k highest logits of each projected input, falling, and their classes; ties by ascending class.

        ``projected`` is (n_inputs, n_pool) float32 on the device, C-ordered, or rounded inputs for trellis codes. The
        bits are the processor's. An input that is not finite gets NaN and the first k classes.
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
            if len(projected) <= MAX_INPUTS:  # else some arguments point into the arrays
                self._recorded[len(projected), k] = recording
        return values, indices

    def logits(self, projected: Any) -> Array:
        """Return logits of all classes, (n_inputs, n_classes) float32, within the rounding of float32."""
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
            self._recorded.clear()  # they may use memory that goes now
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
    """A head of adaptive or sign codes on a device.

    Parameters
    ----------
    codes : array of shape (n_classes, layout.code_bytes), uint8
        NumPy's or on the device.
    scales, bias : array of shape (n_classes,), float32
        Likewise; bias may be None.
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
    """A head of trellis codes on a device; the codes have their scales inside.

    Parameters
    ----------
    codes : array of shape (n_classes, tables.code_bytes), uint8
        NumPy's or on the device.
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
    """Add an item, and drop the oldest above the limit."""
    held[key] = value
    while len(held) > limit:
        held.popitem(last=False)


def _put(device: Device, values: Any) -> Array | None:
    return device.put(values) if isinstance(values, np.ndarray) else values


def _empty_like(device: Device, example: Array, shape: tuple[int, ...], dtype: str) -> Array:
    """Return an array on the device, a tensor if the example is one."""
    if hasattr(example, "new_empty"):
        import torch

        return example.new_empty(shape, dtype=getattr(torch, dtype))
    return device.empty(shape, np.dtype(dtype))
