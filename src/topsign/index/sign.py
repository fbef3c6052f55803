"""SignIndex: every entry keeps the signs of the whole pool."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .._arrays import Bytes, Int64
from .._named import named
from .._random import RandomState
from ..projections import Projection
from .index import Index
from .storage import Snapshot
from .storage.stores import Path, make_store


class SignIndex(Index[Bytes]):
    """Exact search over the signs of all pool projections.

    At one bit per feature and above these codes, with a real-valued query, are as good as adaptive ones. With
    ``adaptive_bits`` the *query* chooses its largest projections, and only those signs are compared.

    Parameters
    ----------
    n_features : int
        Length of a signal, at least 2.
    n_pool : int
        Projections computed and signs kept; n_features when not given.
    projection, metric, center, random_state, path, timeout
        As in :class:`AdaptiveIndex`.
    norms : bool
        Keep each signal's norm and scale (12 bytes per entry), as :class:`AdaptiveIndex` does.

    Examples
    --------
    >>> import numpy as np, topsign as ts
    >>> signals = np.random.default_rng(0).standard_normal((1000, 512))
    >>> index = ts.SignIndex(n_features=512, random_state=7)
    >>> ids = index.add(signals)
    >>> index.search(signals[5] + 0.5, k=1, adaptive_bits=64).ids
    array([[5]])
    """

    family = "sign"

    @named
    def __init__(
        self,
        *,
        n_features: int,
        n_pool: int | None = None,
        projection: str | Projection = "hadamard",
        metric: str = "correlation",
        norms: bool = True,
        center: bool | npt.ArrayLike = False,
        random_state: RandomState = None,
        path: Path | None = None,
        timeout: float | None = None,
    ) -> None:
        parameters: dict[str, Any] = {
            "n_features": n_features,
            "n_pool": n_pool,
            "projection": projection,
            "metric": metric,
            "norms": norms,
            "center": center,
            "random_state": random_state,
            "path": path,
            "timeout": timeout,
        }
        recipe, store = make_store(self.family, **parameters)
        super().__init__(recipe, store)
        self._center_later(parameters)

    def _codes(self, snapshot: Snapshot, places: Int64) -> Bytes:
        return (
            snapshot.gather("codes", places) if places.size else np.empty((0, self.recipe.layout.code_bytes), np.uint8)
        )

    def __repr__(self) -> str:
        return (
            f"SignIndex({len(self)} entries, n_features={self.n_features}, n_pool={self.n_pool}, "
            f"metric={self.metric!r}, seed={self.seed})"
        )
