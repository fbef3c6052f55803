"""The head of a model on a device: the best classes of each input, or the logits of all."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from ..kernels import Layout
from .best import MAX_K, BestSearch
from .device import Array, Device, Recording
from .scan import DEFAULT, Candidates, Part, Scanner, Tuning, make_scanner
from .stripes import Stripes

MAX_INPUTS = 1024  # scanned at a time
LOGIT_DIGITS = 3  # 23 bits of each input: logits of all classes are right within the rounding of float32
PLANS = 8  # shapes of inputs whose memory is kept


class HeadScanner:
    """Codes of a head on a device. Memory of a call is kept for the next one of the same shape.

    Nothing is allocated on the device and nobody waits for it once a shape has been seen, but for the results: calls
    can be captured in a CUDA graph after one call outside of it. Threads may share a scanner; that memory makes its
    calls follow each other, so a call on another stream than the last one waits for the device.

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
        self.device = device
        self._tuning = tuning
        self._stripes = Stripes.load(device, layout, codes)
        self._part = Part(self._stripes, _put(device, scales), None if bias is None else _put(device, bias))
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
        return self._stripes.nbytes + 4 * len(self) * (1 if self._part.biases is None else 2)

    def topk(self, projected: Array, k: int) -> tuple[Array, Array]:
        """The k highest logits of each projected input, falling, and their classes; of equal ones the lower class.

        ``projected`` is (n_inputs, n_pool) float32 on the device, C-ordered. The same bits as on the processor. An
        input that is not finite gets NaN and the first k classes.
        """
        if not 1 <= k <= min(MAX_K, len(self)):
            raise ValueError(f"k must lie in [1, {min(MAX_K, len(self))}] on a GPU, got {k}")
        values, indices = (_empty_like(self.device, projected, (len(projected), k), t) for t in ("float32", "int64"))
        arrays = projected, values, indices
        with self._lock, self.device.stream_of(projected):
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

    def logits(self, projected: Array) -> Array:
        """Logits of all classes, (n_inputs, n_classes) float32, within the rounding of float32."""
        out = _empty_like(self.device, projected, (len(projected), len(self)), "float32")
        with self._lock, self.device.stream_of(projected):
            for start in range(0, len(projected), MAX_INPUTS):
                rows = slice(start, start + MAX_INPUTS)
                scanner, candidates = self._scanner(len(projected[rows]))
                scanner.round(projected[rows], candidates, None, whole=False)
                scanner.scores(self._part, candidates.steps, out[rows])
        return out

    def _search(self, n_inputs: int, k: int) -> BestSearch:
        if (n_inputs, k) not in self._searches:
            self._recorded.clear()  # they may use memory that goes now
            made = BestSearch(self.device, self._stripes.format, n_inputs, k, len(self), fill=True, tuning=self._tuning)
            _keep_latest(self._searches, (n_inputs, k), made, PLANS)
        return self._searches[n_inputs, k]

    def _scanner(self, n_inputs: int) -> tuple[Scanner, Candidates]:
        if n_inputs not in self._scanners:
            form = self._stripes.format
            scanner = make_scanner(self.device, form, n_inputs, digits=LOGIT_DIGITS, tuning=self._tuning)
            _keep_latest(self._scanners, n_inputs, (scanner, Candidates.empty(self.device, n_inputs, 0)), PLANS)
        return self._scanners[n_inputs]


def _keep_latest(held: OrderedDict[Any, Any], key: Any, value: Any, limit: int) -> None:
    """Adds an item, and drops the oldest above the limit."""
    held[key] = value
    while len(held) > limit:
        held.popitem(last=False)


def _put(device: Device, values: Any) -> Array:
    return device.put(values) if isinstance(values, np.ndarray) else values


def _empty_like(device: Device, example: Array, shape: tuple[int, ...], dtype: str) -> Array:
    """On the device: a tensor where the example is one."""
    if hasattr(example, "new_empty"):
        import torch

        return example.new_empty(shape, dtype=getattr(torch, dtype))
    return device.empty(shape, np.dtype(dtype))
