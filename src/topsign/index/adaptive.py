"""The adaptive index: every entry keeps the signs of its own largest projections."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._checks import check_count
from .._random import RandomState
from ..codes import AdaptiveCodes
from ..projections import Projection
from ..recipe import Recipe
from .base import Index, Path
from .neighbors import Entries, Matches, Neighbors
from .originals import Source


class AdaptiveIndex(Index):
    """Exact search over adaptive codes, each with its own locations.

    Few bytes an entry, no training, and p-values with every match: for signals of many features and matches that are
    weak. A scan returns exactly what comparing every entry in turn would, on every path and number of threads.

    Parameters
    ----------
    n_features : int
        Length of a signal, at least 2.
    n_bits, n_pool : int
        Projections kept for each entry, and computed; n_pool is n_features when not given.
    projection : kind or Projection
        "hadamard", "gaussian", "rademacher", "sparse", "circulant", or a projection already made.
    metric : "correlation" or "inner_product"
        What scores estimate, and what ``scoring="asymmetric"`` orders by.
    norms : bool
        Keep each signal's norm and scale (12 bytes an entry). Without them correlations are estimated with the
        expected scale, and inner products cannot be.
    layout : "compact" or "fast"
        Of the codes, see :class:`topsign.AdaptiveCodes`.
    random_state : int, Generator or None
    path : path, optional
        Keeps the entries in this file, made when it does not exist. Of a file that exists, all parameters must agree;
        ``n_pool=None`` and ``random_state=None`` agree with any, and :func:`topsign.open_index` needs none.
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

    kind = "adaptive"

    def __init__(
        self,
        *,
        n_features: int,
        n_bits: int = 512,
        n_pool: int | None = None,
        projection: str | Projection = "hadamard",
        metric: str = "correlation",
        norms: bool = True,
        layout: str = "compact",
        random_state: RandomState = None,
        path: Path = None,
        timeout: float | None = None,
    ) -> None:
        n_features = check_count(n_features, "n_features", minimum=2)
        stored = self._stored(path, timeout)
        if stored is not None:
            n_pool, random_state = stored.not_given(n_pool, random_state, projection)
        super().__init__(
            Recipe.make(
                "adaptive",
                n_features=n_features,
                n_bits=n_bits,
                n_pool=n_pool,
                projection=projection,
                layout=layout,
                norms=norms,
                metric=metric,
                random_state=random_state,
            )
        )
        self._keep_in(path, timeout, stored)

    @property
    def n_bits(self) -> int:
        """Projections kept for each entry."""
        return self.recipe.layout.n_bits

    @property
    def layout(self) -> str:
        """ "compact" or "fast"."""
        return self.recipe.layout.name

    def get(self, ids: npt.ArrayLike) -> Entries[AdaptiveCodes]:
        """The codes and metadata of these entries, in the order asked; an unknown id raises. Safe from any thread."""
        snapshot, ids, places = self._located(ids)
        if not places.size:
            empty = np.empty(0, np.float32)
            reals = (empty, empty) if self.norms else ()
            data = np.empty((0, self.recipe.layout.code_bytes), np.uint8)
        else:
            reals = (snapshot.gather("norms", places), snapshot.gather("scales", places)) if self.norms else ()
            data = snapshot.gather("codes", places)
        return Entries(ids, AdaptiveCodes.unchecked(self.recipe.layout, data, *reals), snapshot.notes(places))

    def search(
        self,
        queries: npt.ArrayLike,
        *,
        k: int = 10,
        scoring: str = "asymmetric",
        among: npt.ArrayLike | None = None,
        rescore: Source | None = None,
        rescore_factor: int = 4,
        n_threads: int | None = None,
    ) -> Neighbors:
        """The k nearest entries of each query. Safe from any thread: reads the index as it was at the call.

        Parameters
        ----------
        queries : array of shape (n_queries, n_features) or (n_features,)
        k : int
            Where fewer entries are considered, ids of -1 and nan fill the rest.
        scoring : "asymmetric" or "hamming"
            ``asymmetric`` keeps the query's real projections and orders by the estimated score, a float32.
            ``hamming`` orders by the number of differing signs; scores and p-values follow from it.
        among : sequence of int, optional
            Consider these ids alone.
        rescore : array, memory map or callable, optional
            The original signals: row i is that of id i, or ``rescore(ids)`` returns one row per id, called once a
            query. The best ``k * rescore_factor`` entries by code are then ordered by their exact score, and
            scores and p-values are exact.

        Notes
        -----
        P-values are those of one comparison with an independent impostor: see :func:`topsign.theory.match_pvalue`,
        which they follow within 2e-5 from 1,000 features on, and :func:`topsign.theory.correct_pvalues` for having
        searched many. A zero query is related to nothing: it scores 0 with a p-value of 1.
        """
        return self._search(
            queries,
            k=k,
            scoring=scoring,
            among=among,
            rescore=rescore,
            rescore_factor=rescore_factor,
            n_threads=n_threads,
        )

    def within(
        self,
        queries: npt.ArrayLike,
        *,
        radius: float | None = None,
        threshold: float | None = None,
        false_alarm: float | None = None,
        scoring: str = "asymmetric",
        among: npt.ArrayLike | None = None,
        n_threads: int | None = None,
    ) -> Matches:
        """Every match of each query. Safe from any thread: reads the index as it was at the call.

        Parameters
        ----------
        radius : float in [0, 1]
            With ``scoring="hamming"``: entries at this distance or nearer, a fraction of the signs.
        threshold : float
            With ``scoring="asymmetric"``: entries that score at least this.
        false_alarm : float in (0, 1)
            Entries significant at this level for the whole search: with N entries considered, those whose p-value
            is at most ``1 - (1 - false_alarm) ** (1 / N)``.
        queries, scoring, among
            As in :meth:`search`. Exactly one of radius, threshold and false_alarm must be given.
        """
        return self._within(
            queries,
            radius=radius,
            threshold=threshold,
            false_alarm=false_alarm,
            scoring=scoring,
            among=among,
            n_threads=n_threads,
        )

    def __repr__(self) -> str:
        return (
            f"AdaptiveIndex({len(self)} entries, n_features={self.n_features}, n_bits={self.n_bits}, "
            f"n_pool={self.n_pool}, {self.layout}, metric={self.metric!r}, seed={self.seed})"
        )
