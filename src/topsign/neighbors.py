"""Nearest neighbours with the scikit-learn interface."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ._arrays import Float64, Int64
from ._checks import check_count, check_real
from ._random import RandomState
from .index import AdaptiveIndex


class AdaptiveNeighbors(TransformerMixin, BaseEstimator):
    """Unsupervised learner for neighbour searches with adaptive codes, with scikit-learn's interface.

    Distances are ``1 - correlation`` as estimated from the codes, at least 0. The samples are stored as well, so they
    can be queries (``X=None``). ``transform`` returns a sparse graph for
    ``KNeighborsClassifier(metric="precomputed")``, DBSCAN, Isomap and other estimators. Like
    ``KNeighborsTransformer(mode="distance")``, it includes each sample itself, so rows have ``n_neighbors + 1``
    elements.

    Parameters
    ----------
    n_neighbors : int
    radius : float
        Default radius of :meth:`radius_neighbors`.
    n_bits, n_pool : int, or "auto" and None
        As in :class:`topsign.AdaptiveIndex`.
    random_state : int, Generator or None

    Examples
    --------
    >>> import numpy as np, topsign as ts
    >>> X = np.random.default_rng(0).standard_normal((100, 256))
    >>> ts.AdaptiveNeighbors(n_neighbors=1, random_state=7).fit(X).kneighbors(X[[5, 7]], return_distance=False)
    array([[5],
           [7]])
    """

    def __init__(
        self,
        *,
        n_neighbors: int = 5,
        radius: float = 0.5,
        n_bits: int | str = "auto",
        n_pool: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.radius = radius
        self.n_bits = n_bits
        self.n_pool = n_pool
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: object = None) -> Self:
        """Encode the samples; samples that are all zeros have no neighbours."""
        samples: Any = validate_data(
            self, X, accept_sparse="csr", dtype=[np.float32, np.float64], ensure_min_features=2
        )
        self.n_samples_fit_, self._fit_X = samples.shape[0], samples
        self._rows = _nonzero_rows(samples)
        self.index_ = AdaptiveIndex(
            n_features=self.n_features_in_, n_bits=self.n_bits, n_pool=self.n_pool, random_state=self.random_state
        )
        if self._rows.size:
            chosen = samples if len(self._rows) == self.n_samples_fit_ else samples[self._rows]
            self.index_.add(chosen, ids=self._rows)
        return self

    def kneighbors(
        self, X: npt.ArrayLike | None = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Any:
        """Return distances and indices of the nearest samples; with ``X=None``, a sample is not its own neighbour."""
        check_is_fitted(self)
        wanted = check_count(self.n_neighbors if n_neighbors is None else n_neighbors, "n_neighbors")
        most = self.n_samples_fit_ - (X is None)
        if wanted > most:
            raise ValueError(f"n_neighbors must be at most {most}, the number of samples to choose from, got {wanted}")
        distances, ids = self._nearest(self._queries(X), min(self.n_samples_fit_, wanted + (X is None)))
        if X is None:
            distances, ids = _without_self(distances, ids)
        return (distances, ids) if return_distance else ids

    def kneighbors_graph(
        self, X: npt.ArrayLike | None = None, n_neighbors: int | None = None, mode: str = "connectivity"
    ) -> Any:
        """Return the nearest samples as a sparse matrix of ones or distances with shape (n_queries, n_samples)."""
        if mode not in ("connectivity", "distance"):
            raise ValueError(f'mode must be "connectivity" or "distance", got {mode!r}')
        distances, ids = self.kneighbors(X, n_neighbors)
        values = np.ones(ids.size) if mode == "connectivity" else distances.ravel()
        starts = np.arange(0, ids.size + 1, ids.shape[1])
        return scipy.sparse.csr_matrix((values, ids.ravel(), starts), shape=(len(ids), self.n_samples_fit_))

    def radius_neighbors(
        self, X: npt.ArrayLike | None = None, radius: float | None = None, return_distance: bool = True
    ) -> Any:
        """Return distances and indices of all samples within a radius, nearest first, as arrays of arrays."""
        check_is_fitted(self)
        limit = check_real(self.radius if radius is None else radius, "radius", minimum=0)
        queries = self._queries(X)
        asked = _nonzero_rows(queries)
        found = self.index_.within(queries[asked], threshold=1 - limit)
        distances, ids = np.empty((2, queries.shape[0]), object)
        for row in range(len(ids)):
            ids[row], distances[row] = (self._rows, np.ones(len(self._rows))) if limit >= 1 else (_NONE, np.empty(0))
        for at, row in enumerate(asked):
            here = slice(int(found.starts[at]), int(found.starts[at + 1]))
            ids[row] = found.ids[here]
            distances[row] = np.maximum(0.0, 1 - found.scores[here])
        if X is None:
            for row, near in enumerate(ids):
                ids[row], distances[row] = near[near != row], distances[row][near != row]
        return (distances, ids) if return_distance else ids

    def transform(self, X: npt.ArrayLike) -> Any:
        """Return the sparse graph of distances to the ``n_neighbors + 1`` nearest samples."""
        check_is_fitted(self)
        wanted = min(self.n_samples_fit_, check_count(self.n_neighbors, "n_neighbors") + 1)
        return self.kneighbors_graph(X, wanted, mode="distance")

    def _queries(self, X: npt.ArrayLike | None) -> Any:
        if X is None:
            return self._fit_X
        return validate_data(self, X, accept_sparse="csr", dtype=[np.float32, np.float64], reset=False)

    def _nearest(self, queries: Any, k: int) -> tuple[Float64, Int64]:
        """Return the k nearest samples; all-zero samples have no code and come last, at distance 1.

        An all-zero query is at distance 1 from all samples.
        """
        asked = _nonzero_rows(queries)
        found = self.index_.search(queries[asked], k)
        ids, scores = np.full((queries.shape[0], k), -1, np.int64), np.zeros((queries.shape[0], k))
        ids[:, : len(self._rows)] = self._rows[:k]
        ids[asked], scores[asked] = found.ids, np.where(found.ids >= 0, found.scores, 0.0)
        missing = np.setdiff1d(np.arange(self.n_samples_fit_), self._rows)
        for row in np.flatnonzero((ids < 0).any(axis=1)):
            ids[row, ids[row] < 0] = missing[: (ids[row] < 0).sum()]
        return np.maximum(0.0, 1 - scores), ids

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags


_NONE = np.empty(0, np.int64)


def _nonzero_rows(samples: Any) -> Int64:
    squares = samples.multiply(samples) if scipy.sparse.issparse(samples) else samples**2
    return np.flatnonzero(np.asarray(squares.sum(axis=1)).ravel() > 0)


def _without_self(distances: Float64, ids: Int64) -> tuple[Float64, Int64]:
    """Remove each sample from its own neighbours; if it is not among them, remove the last neighbour."""
    own = ids == np.arange(len(ids))[:, None]
    own[~own.any(axis=1), -1] = True
    shape = (len(ids), ids.shape[1] - 1)
    return distances[~own].reshape(shape), ids[~own].reshape(shape)
