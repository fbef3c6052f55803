"""Abstract base class of projections, and projected queries that carry the identifier of their projection."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Float32
from .._checks import MAX_POOL, as_signals, check_count, check_rows
from .._lazy import lazy
from .._random import RandomState, make_seed
from .blocks import float_blocks


class Projected(np.ndarray[Any, np.dtype[np.float32]]):
    """Array of projections that keeps its space, also through slicing and arithmetic."""

    source: Any = None  #: the projection or the recipe, with a ``space`` that comparable codes and queries share

    def __array_finalize__(self, made_from: object) -> None:
        self.source = getattr(made_from, "source", None)

    @classmethod
    def of(cls, values: Float32, source: Any) -> Projected:
        """Return a view of the values that carries their space."""
        projected = values.view(cls)
        projected.source = source
        return projected

    @property
    def space(self) -> str | None:
        """Digest of the projection and of the subtracted mean, or None if unknown."""
        return None if self.source is None else self.source.space


class Projection(ABC):
    """Linear operator of shape (``n_pool``, ``n_features``), determined by its kind, ``random_state`` and options.

    Its entries behave like independent standard normal variables: over random seeds, each projection of a signal v has
    mean 0 and variance ``|v|**2``, so the theory and the thresholds are the same for all kinds.
    """

    kind: ClassVar[str]
    option_names: ClassVar[tuple[str, ...]] = ()  # of the constructor, besides shape and seed
    revision: ClassVar[int] = 1  # increased whenever the same seed gives different projections
    block_bytes: ClassVar[int] = 2**22  # bytes of projections per block: fits the cache, keeps threads busy

    def __init__(self, *, n_features: int, n_pool: int | None = None, random_state: RandomState = None) -> None:
        self.n_features = check_count(n_features, "n_features")
        self.n_pool = check_count(self.n_features if n_pool is None else n_pool, "n_pool", maximum=MAX_POOL)
        self.seed = make_seed(random_state)

    @lazy
    def shape(self) -> tuple[int, int]:
        """(n_pool, n_features)"""
        return self.n_pool, self.n_features

    @property
    def options(self) -> dict[str, Any]:
        """Options besides shape and seed."""
        return {name: getattr(self, name) for name in self.option_names}

    @lazy
    def block_signals(self) -> int:
        """Number of signals per block."""
        return max(1, self.block_bytes // (4 * max(self.shape)))

    def apply(self, signals: npt.ArrayLike, *, rows: npt.ArrayLike | None = None) -> Float32:
        """Project signals on all rows of the pool, or only on ``rows``.

        Parameters
        ----------
        signals : array of shape (n_signals, n_features) or (n_features,)
            float16, float32, float64 or integers, converted to float32.
        rows : sequence of int, optional
            Rows of the pool, in any order.

        Returns
        -------
        array of shape (n_signals, n_pool or len(rows)), float32

        Examples
        --------
        >>> import topsign as ts
        >>> projection = ts.make_projection("hadamard", n_features=100, random_state=7)
        >>> projection.apply(range(100), rows=[3, 14]).shape
        (1, 2)
        """
        signals = as_signals(signals, n_features=self.n_features)
        rows = None if rows is None else check_rows(rows, self.n_pool)
        out = np.empty((len(signals), self.n_pool if rows is None else len(rows)), np.float32)
        for block in float_blocks(signals, self.block_signals):
            self.project_block(block.values, rows, out[block.rows])
        return Projected.of(out, self) if rows is None else out

    @lazy
    def space(self) -> str:
        """Identifier of codes and queries of this projection without centring; see :attr:`topsign.Recipe.space`."""
        return hashlib.sha256(self.fingerprint().encode()).hexdigest()[:32]

    def rows(self, locations: npt.ArrayLike) -> Float32:
        """Return the rows at ``locations``, (len(locations), n_features); row i depends on the seed and i."""
        return self._rows(check_rows(locations, self.n_pool, "locations"))

    def fingerprint(self) -> str:
        """Return 32 hexadecimal digits that identify this projection.

        The digest covers the description and the random bits themselves, so it also detects a random generator whose
        stream has changed since a file was written.
        """
        digest = hashlib.sha256(json.dumps([self.revision, *self._key()]).encode())
        for array in self._material():
            digest.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()[:32]

    @abstractmethod
    def project_block(self, values: Float32, rows: Array | None, out: Float32) -> None:
        """Write the projections of float32 ``values`` on these ``rows`` of the operator into ``out``, unchecked."""

    def transposed(self, values: Float32) -> Float32:
        """Apply the transpose to the rows of ``values``, (n, n_pool); pools of many rows go in parts."""
        total = np.zeros((len(values), self.n_features), np.float32)
        step = max(1, 2**24 // self.n_features)
        for start in range(0, self.n_pool, step):
            rows = np.arange(start, min(start + step, self.n_pool))
            total += values[:, rows] @ self._rows(rows)
        return total

    def combine(self, values: Float32, rows: Array) -> Float32:
        """Return sums of these ``rows`` times their ``values``, (n_signals, n_features)."""
        whole = np.zeros((len(values), self.n_pool), np.float32)
        whole[:, rows] = values
        return self.transposed(whole)

    def packed_matrix(self, rows: Array | None) -> kernels.PackedMatrix | None:
        """Return the matrix of these or all ``rows`` if signals are projected by multiplication with it, or None."""
        return None

    @abstractmethod
    def _rows(self, rows: Array) -> Float32: ...

    @abstractmethod
    def _material(self) -> Iterator[Array]:
        """Yield the random bits that the fingerprint covers."""

    def _key(self) -> tuple[Any, ...]:
        return self.kind, self.n_features, self.n_pool, self.seed, sorted(self.options.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Projection) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(json.dumps(self._key()))

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = {"n_features": self.n_features, "n_pool": self.n_pool, "random_state": self.seed}
        return partial(type(self), **arguments, **self.options), ()

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}(n_features={self.n_features}, n_pool={self.n_pool}, seed={self.seed}{options})"
