"""Scores of classes: products of inputs with coded weight vectors plus biases, for all classes or the k best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._arrays import Array, Bytes, Float32, Float64, Int64
from ..families import Logits, Recipe
from ..kernels import CodeBlocks

BLOCK_VALUES = 2**24  # scores computed at a time
RANKED = 16  # classes ranked without biases for each of the best with biases


@dataclass(frozen=True, eq=False)
class Scores:
    """Coded weight vectors and biases of all classes."""

    recipe: Recipe
    codes: CodeBlocks
    biases: Float64 | None = None  # (n_classes,); None: all are zero
    scoring: str = "asymmetric"

    @classmethod
    def from_operands(cls, recipe: Recipe, codes: Bytes, bias: Float32 | None) -> Self:
        """Return the scores of a layer's operands: codes (n_classes, n_bytes), and biases or None.

        Shapes are checked, because graphs may come from outside.
        """
        check_operands(recipe, codes, bias)
        biases = None if bias is None or not bias.any() else bias.astype(np.float64)
        return cls(recipe, CodeBlocks.of(np.ascontiguousarray(codes)), biases)

    def __len__(self) -> int:
        return len(self.codes)

    def logits(self, inputs: Array, name: str) -> Float32:
        """Return the scores of all classes for rows of inputs, (n_inputs, n_classes) in float32."""
        out = np.empty((len(inputs), len(self)), np.float32)
        for rows, prepared in self.prepare(inputs, name):
            self.values(prepared, out[rows])
        return out

    def topk(self, inputs: Array, k: int, name: str) -> tuple[Float32, Int64]:
        """Return the k highest scores of each input in descending order, in float32, and their classes."""
        values, classes = np.empty((len(inputs), k), np.float32), np.empty((len(inputs), k), np.int64)
        for rows, prepared in self.prepare(inputs, name):
            classes[rows], values[rows] = self.best(prepared, k)
        return values, classes

    def prepare(self, inputs: Array, name: str) -> Iterator[tuple[slice, Logits]]:
        """Yield blocks of inputs, prepared; the scores of a block fit in memory."""
        encoder = self.recipe.weight_encoder()
        n_rows = min(self.recipe.block_signals, max(1, BLOCK_VALUES // max(1, len(self))))
        for start in range(0, len(inputs), n_rows):
            rows = slice(start, min(start + n_rows, len(inputs)))
            yield rows, encoder.logits(inputs, self.scoring, part=rows, name=name)

    def values(self, inputs: Logits, out: Array) -> None:
        """Write the scores of all classes to ``out``, (n_inputs, n_classes); biases are added in float64."""
        values = inputs.values(self.codes)
        if self.biases is None:
            out[:] = values
        else:
            np.add(values, self.biases, out=out, casting="same_kind")

    def best(self, inputs: Logits, k: int) -> tuple[Int64, Array]:
        """Return the k best classes of each input and their scores; ties by ascending class."""
        if self.biases is None:
            return inputs.rank(self.codes, k)
        n_ranked = RANKED * k
        while n_ranked < len(self) // 4:
            ranked, scores = inputs.rank(self.codes, n_ranked)
            classes = np.sort(ranked, axis=1)
            values = np.take_along_axis(scores, np.argsort(ranked, axis=1), axis=1) + self.biases[classes]
            columns, best = highest(values, k)
            # No other class has a higher score without bias than the last one here.
            if (best[:, -1] > scores[:, -1] + self.biases.max()).all():
                return np.take_along_axis(classes, columns, axis=1), best
            n_ranked *= RANKED
        values = np.empty((len(inputs), len(self)))
        self.values(inputs, values)
        return highest(values, k)


def highest(values: Float64, k: int) -> tuple[Int64, Float64]:
    """Return the columns of the k highest values of each row, and these values; ties by ascending column."""
    least = values.shape[1] - k
    bounds = np.partition(values, least, axis=1)[:, least]
    columns = np.empty((len(values), k), np.int64)
    for number, (row, bound) in enumerate(zip(values, bounds, strict=True)):
        reached = np.flatnonzero(row >= bound)  # more than k if there are ties
        columns[number] = reached[np.argsort(-row[reached], kind="stable")[:k]]
    return columns, np.take_along_axis(values, columns, axis=1)


def check_operands(recipe: Recipe, codes: Any, bias: Any) -> None:
    """Raise ValueError unless arrays or tensors have the shapes of a layer of this recipe: kernels check nothing."""
    width, n_classes = recipe.weight_encoder().nbytes, tuple(codes.shape[:1])
    fitting = str(codes.dtype).endswith("uint8") and tuple(codes.shape) == (*n_classes, width)
    if not fitting or (bias is not None and tuple(bias.shape) != n_classes):
        shapes = [None if one is None else tuple(one.shape) for one in (codes, bias)]
        raise ValueError(f"codes and bias of shapes {shapes} do not fit uint8 codes of {width} bytes")
