"""Scores of classes: products of inputs with coded weight vectors plus biases, for all classes or the k best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .. import kernels
from .._arrays import Array, Bytes, Float32, Float64, Int64
from ..families import Encoded, Logits, Recipe

BLOCK_CLASSES = 2**14  # classes compared at a time, because all of them may reach a bound

# Kernels compare float32 scores with thresholds that are lowered by this, so none is missed; the logit decides.
SLACK = 1e-5
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Scores:
    """Coded weight vectors and biases of all classes."""

    recipe: Recipe
    weights: Encoded
    biases: Float64 | None = None  # (n_classes,); None: all are zero
    scoring: str = "asymmetric"

    @classmethod
    def from_operands(cls, recipe: Recipe, codes: Bytes, columns: Float32, bias: Float32 | None) -> Self:
        """Return the scores of a layer's operands: columns (n_columns, n_classes), and biases or None.

        Shapes are checked, because graphs may come from outside.
        """
        check_operands(recipe, codes, columns, bias)
        names, columns = recipe.weight_coding().column_names, np.ascontiguousarray(columns, np.float32)
        weights = Encoded(np.ascontiguousarray(codes), dict(zip(names, columns, strict=True)))
        return cls(recipe, weights, None if bias is None or not bias.any() else bias.astype(np.float64))

    def __len__(self) -> int:
        return len(self.weights.codes)

    def logits(self, inputs: Array, name: str) -> Float32:
        """Return the scores of all classes for rows of inputs, in float32."""
        out = np.empty((len(inputs), len(self)), np.float32)
        for rows, prepared in self.prepare(inputs, name):
            out[rows] = self.values(prepared)
        return out

    def topk(self, inputs: Array, k: int, name: str) -> tuple[Float32, Int64]:
        """Return the k highest scores of each input in descending order, in float32, and their classes."""
        values, classes = np.empty((len(inputs), k), np.float32), np.empty((len(inputs), k), np.int64)
        for rows, prepared in self.prepare(inputs, name):
            classes[rows], values[rows] = self.best(prepared, k)
        return values, classes

    def prepare(self, inputs: Array, name: str) -> Iterator[tuple[slice, Logits]]:
        """Yield blocks of inputs, prepared."""
        coding, threads, n_rows = self.recipe.weight_coding(), kernels.n_threads(None), self.recipe.block_signals
        for start in range(0, len(inputs), n_rows):
            rows = slice(start, min(start + n_rows, len(inputs)))
            yield rows, coding.logits(inputs, part=rows, scoring=self.scoring, n_threads=threads, name=name)

    def values(self, inputs: Logits) -> Float64:
        """Return the scores of all classes, (n_inputs, n_classes)."""
        values = inputs.values(self.weights, n_threads=kernels.n_threads(None)).astype(np.float64)
        return values if self.biases is None else values + self.biases

    def best(self, inputs: Logits, k: int) -> tuple[Int64, Float64]:
        """Return the k best classes of each input and their scores; ties by ascending class."""
        classes, scores = inputs.rank(self.weights, k, n_threads=kernels.n_threads(None))
        found = scores.astype(np.float64)
        if self.biases is None:
            return classes, found
        # The k best without biases give a lower bound of the k-th best score; all classes that may reach it are scored.
        bounds = np.min(found + self.biases[classes], axis=1)
        starts = range(0, len(self), BLOCK_CLASSES)
        parts = [self._reaching(inputs, bounds, slice(start, start + BLOCK_CLASSES), k) for start in starts]
        return _merged(np.hstack([part[0] for part in parts]), np.hstack([part[1] for part in parts]), k)

    def _reaching(self, inputs: Logits, bounds: Float64, part: slice, k: int) -> tuple[Int64, Float64]:
        """Return the best classes of a block that reach the inputs' bounds, at most k; -1 and -inf after."""
        assert self.biases is not None
        biases = self.biases[part]
        needed = bounds - biases.max()
        needed -= SLACK * np.abs(needed) + 1e-12 * (np.abs(bounds) + np.abs(biases.max()))
        thresholds: Float32 = np.clip(needed, -FLOAT32_MAX, FLOAT32_MAX).astype(np.float32)
        starts, found, scores = inputs.within(self.weights.rows(part), thresholds, n_threads=kernels.n_threads(None))
        counts = np.diff(starts)
        width = int(counts.max(initial=0))
        classes, logits = np.full((len(counts), width), -1, np.int64), np.full((len(counts), width), -np.inf)
        filled = np.arange(width) < counts[:, np.newaxis]
        classes[filled] = found + part.start
        logits[filled] = scores.astype(np.float64) + biases[found]
        return _merged(classes, logits, min(k, width))


def check_operands(recipe: Recipe, codes: Any, columns: Any, bias: Any) -> None:
    """Raise ValueError unless arrays or tensors have the shapes of a layer of this recipe: kernels check nothing."""
    width, n_classes = recipe.code_bytes, tuple(codes.shape[:1])
    shape = (len(recipe.weight_coding().column_names), *n_classes)
    fitting = str(codes.dtype).endswith("uint8") and tuple(codes.shape) == (*n_classes, width)
    if not fitting or tuple(columns.shape) != shape or (bias is not None and tuple(bias.shape) != n_classes):
        shapes = [None if one is None else tuple(one.shape) for one in (codes, columns, bias)]
        raise ValueError(f"codes, columns and bias of shapes {shapes} do not fit uint8 codes of {width} bytes")


def _merged(classes: Int64, logits: Float64, k: int) -> tuple[Int64, Float64]:
    """Return the k highest logits of each row, ties by ascending class; rows have ascending classes, then -1."""
    order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(classes, order, axis=1), np.take_along_axis(logits, order, axis=1)
