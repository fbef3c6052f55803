"""The sign index: every entry keeps the signs of the whole pool."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._arrays import Bytes
from .._checks import check_count
from .._random import RandomState
from ..projections import Projection
from ..recipe import Recipe
from .base import Index, Path
from .neighbors import Entries, Matches, Neighbors
from .originals import Source


class SignIndex(Index):
    """Exact search over the signs of all pool projections.

    At one bit per feature and above these codes, with a real-valued query, are as good as adaptive ones. With
    ``adaptive_bits`` the *query* chooses its largest projections, and only those signs are compared.

    Parameters
    ----------
    n_features : int
        Length of a signal, at least 2.
    n_pool : int
        Projections computed and signs kept; n_features when not given.
    projection, metric, random_state, path, timeout
        As in :class:`AdaptiveIndex`.
    norms : bool
        Keep each signal's norm and scale (12 bytes an entry), as :class:`AdaptiveIndex` does.

    Examples
    --------
    >>> import numpy as np, topsign as ts
    >>> signals = np.random.default_rng(0).standard_normal((1000, 512))
    >>> index = ts.SignIndex(n_features=512, random_state=7)
    >>> ids = index.add(signals)
    >>> index.search(signals[5] + 0.5, k=1, adaptive_bits=64).ids
    array([[5]])
    """

    kind = "sign"

    def __init__(
        self,
        *,
        n_features: int,
        n_pool: int | None = None,
        projection: str | Projection = "hadamard",
        metric: str = "correlation",
        norms: bool = True,
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
                "sign",
                n_features=n_features,
                n_pool=n_pool,
                projection=projection,
                norms=norms,
                metric=metric,
                random_state=random_state,
            )
        )
        self._keep_in(path, timeout, stored)

    @property
    def n_bits(self) -> int:
        """Signs kept for each entry: those of the whole pool."""
        return self.n_pool

    def get(self, ids: npt.ArrayLike) -> Entries[Bytes]:
        """Packed signs, (n_ids, ceil(n_pool / 8)) uint8, and metadata of these entries, in the order asked.

        An unknown id raises. Safe from any thread.
        """
        snapshot, ids, places = self._located(ids)
        codes = (
            snapshot.gather("codes", places) if places.size else np.empty((0, self.recipe.layout.code_bytes), np.uint8)
        )
        return Entries(ids, codes, snapshot.notes(places))

    def search(
        self,
        queries: npt.ArrayLike,
        *,
        k: int = 10,
        scoring: str = "asymmetric",
        adaptive_bits: int | None = None,
        among: npt.ArrayLike | None = None,
        rescore: Source | None = None,
        rescore_factor: int = 4,
        n_threads: int | None = None,
    ) -> Neighbors:
        """The k nearest entries of each query. Safe from any thread: reads the index as it was at the call.

        Parameters
        ----------
        adaptive_bits : int in [1, n_pool], optional
            Compare the signs of the query's largest projections alone, so many of them; distances are fractions of
            these. With ``scoring="asymmetric"`` the score is then an approximation for small correlations (with a
            sixteenth of the pool 0.5% low at 0.1, 4% at 0.3, 12% at 0.5), and the p-value takes the sum over the
            chosen projections as normal.
        queries, k, scoring, among, rescore, rescore_factor
            As in :meth:`AdaptiveIndex.search`.
        """
        return self._search(
            queries,
            k=k,
            scoring=scoring,
            among=among,
            rescore=rescore,
            rescore_factor=rescore_factor,
            n_threads=n_threads,
            n_kept=self._check_kept(adaptive_bits),
        )

    def within(
        self,
        queries: npt.ArrayLike,
        *,
        radius: float | None = None,
        threshold: float | None = None,
        false_alarm: float | None = None,
        scoring: str = "asymmetric",
        adaptive_bits: int | None = None,
        among: npt.ArrayLike | None = None,
        n_threads: int | None = None,
    ) -> Matches:
        """Every match of each query, as :meth:`AdaptiveIndex.within`; ``adaptive_bits`` as in :meth:`search`.

        Safe from any thread: reads the index as it was at the call.
        """
        return self._within(
            queries,
            radius=radius,
            threshold=threshold,
            false_alarm=false_alarm,
            scoring=scoring,
            among=among,
            n_threads=n_threads,
            n_kept=self._check_kept(adaptive_bits),
        )

    def _check_kept(self, adaptive_bits: int | None) -> int | None:
        return None if adaptive_bits is None else check_count(adaptive_bits, "adaptive_bits", maximum=self.n_pool)

    def __repr__(self) -> str:
        return (
            f"SignIndex({len(self)} entries, n_features={self.n_features}, n_pool={self.n_pool}, "
            f"metric={self.metric!r}, seed={self.seed})"
        )
