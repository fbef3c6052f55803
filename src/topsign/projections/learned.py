"""Projection on learned principal axes, stored as bytes, with a random rotation of their orthogonal complement."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Float32, Float64, pack_array, unpack_array
from .._lazy import lazy
from .._random import RandomState
from .base import Projection
from .random_operators import Hadamard

Int8 = npt.NDArray[np.int8]

MATRIX_FEATURES = 2048  # signals up to this length are multiplied with a matrix; longer ones use reflections


class Principal(Projection):
    """Coordinates along given ``axes``, followed by a randomised Hadamard rotation of their orthogonal complement.

    The operator is square and orthonormal up to the factor sqrt(n_features) of all projections. Axes are stored as
    bytes and orthonormalised in order by Householder reflections, so rounding them only rotates the axes slightly.

    Parameters
    ----------
    axes : int8 array of shape (n_axes, n_features), or its base64 text from ``options``
    """

    kind = "principal"

    def __init__(
        self, *, n_features: int, n_pool: int | None = None, random_state: RandomState = None, axes: str | Int8
    ) -> None:
        super().__init__(n_features=n_features, n_pool=n_pool, random_state=random_state)
        if self.n_pool != self.n_features:
            raise ValueError(f"a principal projection is square, got n_pool={n_pool} with n_features={n_features}")
        if isinstance(axes, str):
            axes = unpack_array(axes, "i1", None, "axes")
            if len(axes) % n_features:
                raise ValueError(f"axes must be rows of {n_features} bytes, got {len(axes)} bytes")
            axes = axes.reshape(-1, n_features)
        self.axes = np.ascontiguousarray(axes, np.int8)
        if self.axes.ndim != 2 or self.axes.shape[1] != self.n_features or len(self.axes) > self.n_features:
            raise ValueError(f"axes must be at most {n_features} rows of {n_features} bytes, got {self.axes.shape}")
        if not self.axes.any(axis=1).all():
            raise ValueError("axes must not be zero")

    @property
    def n_axes(self) -> int:
        """Number of given axes."""
        return len(self.axes)

    @lazy
    def options(self) -> dict[str, Any]:
        return {"axes": pack_array(self.axes)}

    @lazy
    def _reflections(self) -> tuple[Float64, Float64, Float64]:
        """V and T of the block reflector ``Q = I - V T V'`` whose first columns are the axes, and their signs."""
        reduced, factors = np.linalg.qr(self.axes.T.astype(np.float64), mode="raw")  # LAPACK's blocked QR
        vectors = np.tril(reduced.T, -1) + np.eye(self.n_features, self.n_axes)
        vectors[:, factors == 0] = 0  # linearly dependent on earlier axes, or already in place
        products = np.triu(vectors.T @ vectors, 1)
        triangle = np.linalg.inv(products + np.diag(1 / np.where(factors == 0, 1, factors)))
        signs = np.where(np.diag(reduced) > 0, 1.0, -1.0)
        return vectors, np.asarray(triangle, np.float64), signs

    @lazy
    def _rest(self) -> Hadamard | None:
        n_rest = self.n_features - self.n_axes
        return Hadamard(n_features=n_rest, random_state=self.seed) if n_rest else None

    @lazy
    def _reflectors(self) -> tuple[Float32, Float32, Float32]:
        """Reflectors and signs in float32."""
        vectors, triangle, signs = self._reflections
        return vectors.astype(np.float32), triangle.astype(np.float32), signs.astype(np.float32)

    @lazy
    def _matrix(self) -> Float32:
        """Operator of shape (n_pool, n_features) for short signals, computed in float64 so that processors agree."""
        vectors, triangle, signs = self._reflections
        turns = np.eye(self.n_features) - (vectors @ triangle) @ vectors.T  # columns: axes, then their complement
        matrix = np.empty(self.shape, np.float32)
        matrix[: self.n_axes] = (turns[:, : self.n_axes] * (signs * np.sqrt(self.n_features))).T
        if self._rest is not None:
            matrix[self.n_axes :] = self._rotated(turns[:, self.n_axes :].astype(np.float32)).T
        return matrix

    @lazy
    def _packed(self) -> kernels.PackedMatrix:
        return kernels.PackedMatrix.of(self._matrix)

    def packed_matrix(self, rows: Array | None) -> kernels.PackedMatrix | None:
        if self.n_features > MATRIX_FEATURES:
            return None
        return self._packed if rows is None else kernels.PackedMatrix.of(self._matrix[rows])

    def _rotated(self, left: Float32) -> Float32:
        """Rotate coordinates in the orthogonal complement of the axes."""
        assert self._rest is not None
        rotated = np.empty_like(left)
        self._rest.project_block(left, None, rotated)
        return rotated * np.float32(np.sqrt(self.n_features / left.shape[1]))

    def project_block(self, values: Float32, rows: Array | None, out: Float32) -> None:
        matrix = self.packed_matrix(rows)
        if matrix is not None:
            kernels.active().multiply(values, [kernels.Product(matrix, out=out)])
            return
        vectors, triangle, signs = self._reflectors
        turned = np.asarray(values - ((values @ vectors) @ triangle) @ vectors.T, np.float32)
        whole = out if rows is None else np.empty_like(values)
        whole[:, : self.n_axes] = turned[:, : self.n_axes] * (signs * np.float32(np.sqrt(self.n_features)))
        if self._rest is not None:
            whole[:, self.n_axes :] = self._rotated(np.ascontiguousarray(turned[:, self.n_axes :]))
        if rows is not None:
            out[:] = whole[:, rows]

    def transposed(self, values: Float32) -> Float32:
        """Apply the transpose to rows, which gives n_features times the signals with these projections."""
        vectors, triangle, signs = self._reflectors
        root = np.float32(np.sqrt(self.n_features))
        turned = np.empty_like(values)
        turned[:, : self.n_axes] = values[:, : self.n_axes] * (signs * root)
        if self._rest is not None:
            left = np.ascontiguousarray(values[:, self.n_axes :])
            turned[:, self.n_axes :] = self._rest.transposed(left) * np.float32(root / np.sqrt(left.shape[1]))
        return np.asarray(turned - ((turned @ vectors) @ triangle.T) @ vectors.T, np.float32)

    def combine(self, values: Float32, rows: Array) -> Float32:
        if self.n_features > MATRIX_FEATURES:
            return super().combine(values, rows)
        packed = kernels.PackedMatrix.of(self._matrix[rows].T)
        return kernels.active().multiply(values, [kernels.Product(packed)])[0]

    def _rows(self, rows: Array) -> Float32:
        chosen = np.zeros((len(rows), self.n_features), np.float32)
        chosen[np.arange(len(rows)), rows] = 1
        return self.transposed(chosen)

    def _material(self) -> Iterator[Array]:
        yield self.axes
        yield np.frombuffer((self._rest.fingerprint() if self._rest else "").encode(), np.uint8)

    def __repr__(self) -> str:
        digest = hashlib.sha256(self.axes.tobytes()).hexdigest()[:8]
        return f"Principal(n_features={self.n_features}, n_axes={self.n_axes}, seed={self.seed}, axes={digest})"


def round_axes(axes: Float64) -> Int8:
    """Round axes to bytes, each scaled by its largest entry."""
    largest = np.abs(axes).max(axis=1, keepdims=True)
    return np.rint(axes / np.where(largest > 0, largest, 1) * 127).astype(np.int8)


def all_axes(blocks: Iterable[Float32], n_features: int, mean: Float64 | None) -> tuple[Float64, Float64, Float64]:
    """Return all principal axes of rows about a ``mean``, their variances, and the mean, by default that of the rows.

    Without rows the variances are zero.
    """
    count, total, products = 0, np.zeros(n_features), np.zeros((n_features, n_features))
    for values in blocks:
        wide = values.astype(np.float64)
        count, total, products = (
            count + len(wide),
            total + values.sum(axis=0, dtype=np.float64),
            products + wide.T @ wide,
        )
    own, moments = total / max(1, count), products / max(1, count)
    mean = own if mean is None else mean
    if mean.any():
        moments = moments - np.outer(own, own) + np.outer(own - mean, own - mean)
    variances, turns = np.linalg.eigh(moments)
    return turns.T[::-1], np.maximum(variances[::-1], 0), mean


def leading_axes(blocks: Any, mean: Float64, n_axes: int, seed: int) -> tuple[Float64, Float64, float]:
    """Return the leading principal axes, their variances and the total variance, by a randomised range finder.

    ``blocks()`` yields the rows in blocks, from the beginning at each call. One power iteration is used (Halko,
    Martinsson and Tropp 2011).
    """
    n_features, width = len(mean), min(len(mean), n_axes + 16)
    basis = np.random.Generator(np.random.Philox(seed)).standard_normal((n_features, width))
    for _ in range(2):
        image, count, energy = np.zeros((n_features, width)), 0, 0.0
        for values in blocks():
            wide = values - mean
            image += wide.T @ (wide @ basis)
            count += len(wide)
            energy += float((wide * wide).sum())
        basis = np.linalg.qr(image)[0]
    small = np.zeros((width, width))
    for values in blocks():
        inside = (values - mean) @ basis
        small += inside.T @ inside
    variances, turns = np.linalg.eigh(small / count)
    return (basis @ turns[:, ::-1]).T[:n_axes], variances[::-1][:n_axes], energy / count


def is_orthonormal(projection: Projection) -> bool:
    """Return whether the projection is square and orthonormal up to the factor sqrt(n_features)."""
    flat = projection.options.get("spectrum", "unimodular") == "unimodular"
    return projection.n_pool == projection.n_features and flat and projection.kind in _ORTHONORMAL


_ORTHONORMAL = ("hadamard", "circulant", "principal")
