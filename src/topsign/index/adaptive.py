"""AdaptiveIndex: every entry keeps the signs of its own largest projections."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .._arrays import Int64
from .._named import named
from .._random import RandomState
from .._warning import warn
from ..codes import AdaptiveCodes
from ..projections import Projection
from .index import Index
from .storage import Snapshot
from .storage.stores import Path, make_store


class AdaptiveIndex(Index[AdaptiveCodes]):
    """Exact search over adaptive codes, each with its own locations.

    Few bytes per entry, no training, and p-values with every match: for signals of many features and matches that are
    weak. A scan returns exactly what comparing every entry in turn would, on every path and number of threads.

    Parameters
    ----------
    n_features : int
        Length of a signal, at least 2.
    n_bits : int or "auto"
        Projections kept for each entry; "auto" is an eighth of the pool, at least 16.
    n_pool : int
        Projections computed for each signal; n_features when not given.
    n_bytes : int, optional
        Instead of n_bits: keep as many projections as fit into so many bytes per code.
    projection : kind or Projection
        "hadamard", "gaussian", "rademacher", "sparse", "circulant", or a projection already made.
    metric : "correlation", "cosine" or "inner_product"
        What scores estimate, and what ``scoring="asymmetric"`` orders by. "cosine" is another name for "correlation",
        which is the cosine between the signals as they are given: no mean is removed from a signal's features.
    norms : bool
        Keep each signal's norm and scale (12 bytes per entry). Without them correlations are estimated with the
        expected scale, and inner products cannot be.
    layout : "compact" or "fast"
        Layout of the codes, see :class:`topsign.AdaptiveCodes`.
    center : bool or array of shape (n_features,)
        A mean that is removed from entries and queries alike: given, or learned from the first addition (True). It is
        stored with the index. Centre signals that share a component, such as embeddings of a network.
    random_state : int, Generator or None
    path : path, optional
        Keep the entries in this file, which is made when it does not exist. Where it exists, all parameters must
        agree with it; ``n_pool=None`` and ``random_state=None`` agree with any. :func:`topsign.open_index` needs none.
    timeout : float, optional
        Seconds that a change waits for another writer of the file, then TimeoutError; None waits as long as it takes.

    Examples
    --------
    >>> import numpy as np, topsign as ts
    >>> signals = np.random.default_rng(0).standard_normal((1000, 512))
    >>> index = ts.AdaptiveIndex(n_features=512, n_bits=64, random_state=7)
    >>> ids = index.add(signals)
    >>> index.search(signals[[5, 7]] + 0.5, k=1).ids
    array([[5],
           [7]])
    >>> index.within(signals[5], false_alarm=1e-6).ids
    array([5])
    """

    family = "adaptive"

    @named
    def __init__(
        self,
        *,
        n_features: int,
        n_bits: int | str = "auto",
        n_pool: int | None = None,
        n_bytes: int | None = None,
        projection: str | Projection = "hadamard",
        metric: str = "correlation",
        norms: bool = True,
        center: bool | npt.ArrayLike = False,
        layout: str = "compact",
        random_state: RandomState = None,
        path: Path | None = None,
        timeout: float | None = None,
    ) -> None:
        parameters: dict[str, Any] = {
            "n_features": n_features,
            "n_bits": n_bits,
            "n_bytes": n_bytes,
            "n_pool": n_pool,
            "projection": projection,
            "metric": metric,
            "norms": norms,
            "center": center,
            "layout": layout,
            "random_state": random_state,
            "path": path,
            "timeout": timeout,
        }
        recipe, store = make_store(self.family, **parameters)
        super().__init__(recipe, store)
        self._center_later(parameters)
        if 4 * recipe.n_bits > recipe.n_pool and n_bits != recipe.n_pool:
            self._warn_of_share()

    def _warn_of_share(self) -> None:
        signs = -(-self.n_pool // 8)
        warn(
            f"n_bits={self.n_bits} keeps {self.n_bits / self.n_pool:.0%} of the pool of {self.n_pool}, in "
            f"{self.recipe.layout.code_bytes} bytes per code; more than a quarter gains little over SignIndex, which "
            f"keeps all signs in {signs} bytes: lower n_bits, raise n_pool, or use SignIndex",
        )

    @property
    def layout(self) -> str:
        """Layout of the codes: "compact" or "fast"."""
        return self.recipe.layout.name

    def _codes(self, snapshot: Snapshot, places: Int64) -> AdaptiveCodes:
        names = ("norms", "scales") if self.norms else ()
        if places.size:
            data, reals = snapshot.gather("codes", places), [snapshot.gather(name, places) for name in names]
        else:
            data, reals = (
                np.empty((0, self.recipe.layout.code_bytes), np.uint8),
                [np.empty(0, np.float32) for _ in names],
            )
        return AdaptiveCodes.unchecked(self.recipe.layout, data, *reals, space=self.recipe.space)

    def __repr__(self) -> str:
        return (
            f"AdaptiveIndex({len(self)} entries, n_features={self.n_features}, n_bits={self.n_bits}, "
            f"n_pool={self.n_pool}, {self.layout}, metric={self.metric!r}, seed={self.seed})"
        )
