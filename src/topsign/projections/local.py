"""Local principal axes: a projection learned from clustered signals, with separate axes for each cell."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import kernels
from .._arrays import Array, Float32, Float64
from .._checks import check_count
from .._lazy import lazy
from .._random import RandomState
from .base import Projection
from .learned import Int8, read_axes


class Local(Projection):
    """Coordinates along the axes of all cells, cell by cell, followed by inner products with the cell means.

    The axes of a cell are orthonormal up to the factor sqrt(n_features) of all projections, which also multiplies the
    means. Axes are stored as bytes and orthonormalised in order.

    Parameters
    ----------
    axes : int8 array of shape (sum of n_axes, n_features), or its base64 text from ``options``
    n_axes : sequence of int
        Number of axes of each cell, at least one.
    means : float32 array of shape (n_cells, n_features), or its base64 text
    """

    kind = "local"

    def __init__(
        self,
        *,
        n_features: int,
        n_pool: int | None = None,
        random_state: RandomState = None,
        axes: str | Int8,
        n_axes: Sequence[int],
        means: str | Float32,
    ) -> None:
        self.n_axes = [check_count(n, "n_axes", maximum=n_features) for n in n_axes]
        total, n_cells = sum(self.n_axes), len(self.n_axes)
        super().__init__(
            n_features=n_features,
            n_pool=total + n_cells if n_pool is None else n_pool,
            random_state=random_state,
        )
        self.axes = read_axes(axes, n_features, total) if isinstance(axes, str) else np.ascontiguousarray(axes, np.int8)
        self.means = _read_means(means, n_features) if isinstance(means, str) else np.ascontiguousarray(means)
        if self.axes.shape != (total, n_features) or self.means.shape != (n_cells, n_features):
            raise ValueError(
                f"{n_cells} cells with {total} axes in total need as many rows of {n_features} features, "
                f"got axes {self.axes.shape} and means {self.means.shape}"
            )
        if self.n_pool != total + n_cells:
            raise ValueError(f"n_pool must be {total + n_cells}, the axes and means of all cells, got {n_pool}")
        if self.means.dtype != np.float32 or not np.isfinite(self.means).all():
            raise ValueError("means must be finite float32 values")

    @property
    def n_cells(self) -> int:
        """Number of clusters, each with its own axes and mean."""
        return len(self.n_axes)

    def rows_of(self, cell: int) -> slice:
        """Return the slice of coordinates that belong to a cell."""
        start = sum(self.n_axes[:cell])
        return slice(start, start + self.n_axes[cell])

    @lazy
    def options(self) -> dict[str, Any]:
        return {
            "axes": base64.b64encode(self.axes.tobytes()).decode(),
            "n_axes": self.n_axes,
            "means": base64.b64encode(self.means.astype("<f4").tobytes()).decode(),
        }

    @lazy
    def matrix(self) -> Float32:
        """Operator of shape (n_pool, n_features)."""
        rows: Float32 = np.empty(self.shape, np.float32)
        for cell in range(self.n_cells):
            part = self.rows_of(cell)
            turns, triangle = np.linalg.qr(self.axes[part].T.astype(np.float64))
            rows[part] = (turns * np.where(np.diag(triangle) < 0, -1, 1)).T
        rows[-self.n_cells :] = self.means
        return rows * np.float32(np.sqrt(self.n_features))

    def nearest(self, values: Float32, factors: Float32, n_threads: int) -> Array:
        """Return the cell with the nearest mean for each signal; ``factors`` normalise the signals."""
        products = [kernels.Product(self._mean_panels)]
        (found,) = kernels.active().multiply(values, products, factors=factors, n_threads=n_threads)
        return np.asarray((found - half_squares(self.means.astype(np.float64))).argmax(axis=1))

    @lazy
    def _mean_panels(self) -> kernels.Panels:
        return kernels.Panels.of(self.means)

    @lazy
    def _panels(self) -> kernels.Panels:
        return kernels.Panels.of(self.matrix)

    def panels(self, rows: Array | None) -> kernels.Panels:
        return self._panels if rows is None else kernels.Panels.of(self.matrix[rows])

    def project_block(self, values: Float32, rows: Array | None, out: Float32, n_threads: int) -> None:
        kernels.active().multiply(values, [kernels.Product(self.panels(rows), out=out)], n_threads=n_threads)

    def _rows(self, rows: Array) -> Float32:
        return self.matrix[rows]

    def _material(self) -> Iterator[Array]:
        yield self.axes
        yield self.means

    def __repr__(self) -> str:
        digest = hashlib.sha256(self.axes.tobytes()).hexdigest()[:8]
        return f"Local(n_features={self.n_features}, n_cells={self.n_cells}, seed={self.seed}, axes={digest})"


def nearest_means(values: Float32, means: Float64) -> Array:
    """Return the index of the nearest mean for each row."""
    return np.asarray((values @ means.T.astype(np.float32) - half_squares(means)).argmax(axis=1))


def half_squares(means: Float64) -> Float64:
    """Return half the squared norms of the means; the nearest mean maximises the inner product minus this value."""
    return np.asarray((means * means).sum(axis=1) / 2)


def cluster(signals: Float32, n_cells: int, seed: int, *, n_rounds: int = 20) -> Float64:
    """Return cluster means by k-means with k-means++ seeding and ``n_rounds`` Lloyd iterations."""
    rng = np.random.Generator(np.random.Philox(seed))
    means = signals[rng.integers(len(signals), size=1)].astype(np.float64)
    least = np.full(len(signals), np.inf)
    while len(means) < n_cells:
        least = np.minimum(least, ((signals - means[-1].astype(np.float32)) ** 2).sum(axis=1, dtype=np.float64))
        chances = np.cumsum(least)
        chosen = int(np.searchsorted(chances, rng.random() * chances[-1])) if chances[-1] > 0 else 0
        means = np.vstack([means, signals[min(chosen, len(signals) - 1)]])
    for _ in range(n_rounds):
        nearest = nearest_means(signals, means)
        for cell in range(n_cells):
            members = signals[nearest == cell]
            if len(members):  # the mean of an empty cell does not move
                means[cell] = members.mean(axis=0, dtype=np.float64)
    return means


def _read_means(text: str, n_features: int) -> Float32:
    raw = base64.b64decode(text, validate=True)
    if len(raw) % (4 * n_features):
        raise ValueError(f"means must be rows of {n_features} float32 values, got {len(raw)} bytes")
    return np.frombuffer(raw, "<f4").astype(np.float32).reshape(-1, n_features)
