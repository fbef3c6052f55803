"""Constructors of indexes, one per family: AdaptiveIndex, GroupedIndex, SignIndex and TrellisIndex."""

from __future__ import annotations

import numpy.typing as npt

from .._random import RandomState
from .._warning import warn
from ..families import AdaptiveRecipe, GroupedRecipe, SignRecipe, TrellisRecipe
from ..families.adaptive import resolve_bits
from ..kernels import Layout
from ..projections import Projection
from ..store import Path
from .index import Index


class AdaptiveIndex(Index):
    """Index of adaptive codes, those of the paper, with exact search.

    They keep the largest projections of the whole pool. :class:`GroupedIndex` finds more in the same bytes, and faster.
    Results are identical for all instruction sets and numbers of threads.

    Parameters
    ----------
    n_features : int
        Length of a signal, at least 2.
    n_bits : int or "auto"
        Projections kept for each entry; "auto" is an eighth of the pool, at least 16.
    n_pool : int
        Projections computed for each signal; n_features by default.
    projection : kind or Projection
        "hadamard", "gaussian", "rademacher", "sparse", "circulant", or an existing projection.
    metric : "correlation" or "inner_product"
        Quantity that scores estimate. "correlation" is the cosine between the signals as given; the mean of a signal's
        features is not subtracted. "inner_product" keeps the norm of each signal in two more bytes.
    center : bool or array of shape (n_features,)
        Mean that is subtracted from entries and queries: given, or learned from the first addition (True). It is stored
        with the index. Centre signals that share a component, such as embeddings of a network.
    random_state : int, Generator or None
    originals : "float32", "float16" or "int8", optional
        Also keep the signals themselves in this type, for rescoring (:meth:`search` with ``rescore=True`` or
        ``recall=``) and :meth:`get`. In a folder they are separate files that are memory-mapped and read only for
        candidates.
    path : path, optional
        Folder of the index, created if it does not exist. If it exists, all parameters must agree with it; sizes and
        ``random_state`` that are not given agree with any value. :func:`topsign.open_index` needs no parameters.
    timeout : float, optional
        Seconds that a change waits for another writer before it raises TimeoutError; None waits without limit.

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

    def __init__(
        self,
        *,
        n_features: int,
        n_bits: int | str = "auto",
        n_pool: int | None = None,
        projection: str | Projection = "hadamard",
        metric: str = "correlation",
        center: bool | npt.ArrayLike = False,
        random_state: RandomState = None,
        originals: str | None = None,
        path: Path | None = None,
        timeout: float | None = None,
    ) -> None:
        parameters = {
            "n_features": n_features,
            "n_bits": n_bits,
            "n_pool": n_pool,
            "projection": projection,
            "metric": metric,
            "center": center,
            "random_state": random_state,
        }
        self._start(AdaptiveRecipe, parameters, path=path, timeout=timeout, originals=originals)
        pool = n_features if n_pool is None else n_pool
        kept = resolve_bits(n_bits, pool)
        if 4 * kept > pool and n_bits != pool:
            _warn_of_share(Layout(kept, pool))


class SignIndex(Index):
    """Index of sign codes, the signs of all projections of the pool, with exact search.

    At one or more bits per feature, these codes with a real-valued query are as good as adaptive codes. With
    ``adaptive_bits``, the *query* selects its largest projections, and only their signs are compared.

    Parameters
    ----------
    n_features : int
        Length of a signal, at least 2.
    n_bytes : int
        Bytes per code, of eight projections each; n_features // 8 by default. There may be more projections than
        features.
    projection, metric, center, random_state, originals, path, timeout
        As in :class:`AdaptiveIndex`.

    Examples
    --------
    >>> import numpy as np, topsign as ts
    >>> signals = np.random.default_rng(0).standard_normal((1000, 512))
    >>> index = ts.SignIndex(n_features=512, n_bytes=64, random_state=7)
    >>> ids = index.add(signals)
    >>> index.search(signals[5] + 0.5, k=1, adaptive_bits=64).ids
    array([[5]])
    """

    def __init__(
        self,
        *,
        n_features: int,
        n_bytes: int | None = None,
        projection: str | Projection = "hadamard",
        metric: str = "correlation",
        center: bool | npt.ArrayLike = False,
        random_state: RandomState = None,
        originals: str | None = None,
        path: Path | None = None,
        timeout: float | None = None,
    ) -> None:
        parameters = {
            "n_features": n_features,
            "n_bytes": n_bytes,
            "projection": projection,
            "metric": metric,
            "center": center,
            "random_state": random_state,
        }
        self._start(SignRecipe, parameters, path=path, timeout=timeout, originals=originals)


class GroupedIndex(Index):
    """Index of grouped codes, the largest of every eight projections and its sign, with exact search.

    For long signals and weak matches: few bytes per entry, no training, and p-values. Results are identical for all
    instruction sets and numbers of threads.

    Parameters
    ----------
    n_features : int
        Length of a signal, at least 2.
    n_bytes : int
        Bytes per code, of sixteen projections each; n_features // 16 by default. There may be more projections than
        features.
    projection, metric, center, random_state, originals, path, timeout
        As in :class:`AdaptiveIndex`.

    Examples
    --------
    >>> import numpy as np, topsign as ts
    >>> signals = np.random.default_rng(0).standard_normal((1000, 512))
    >>> index = ts.GroupedIndex(n_features=512, n_bytes=32, random_state=7)
    >>> ids = index.add(signals)
    >>> index.search(signals[[5, 7]] + 0.5, k=1).ids
    array([[5],
           [7]])
    >>> index.within(signals[5], false_alarm=1e-6).ids
    array([5])
    """

    def __init__(
        self,
        *,
        n_features: int,
        n_bytes: int | None = None,
        projection: str | Projection = "hadamard",
        metric: str = "correlation",
        center: bool | npt.ArrayLike = False,
        random_state: RandomState = None,
        originals: str | None = None,
        path: Path | None = None,
        timeout: float | None = None,
    ) -> None:
        parameters = {
            "n_features": n_features,
            "n_bytes": n_bytes,
            "projection": projection,
            "metric": metric,
            "center": center,
            "random_state": random_state,
        }
        self._start(GroupedRecipe, parameters, path=path, timeout=timeout, originals=originals)


class TrellisIndex(Index):
    """Index of trellis codes with exact search by the cosine of the query and each entry's reconstruction.

    It needs the fewest bytes for a given recall. The recipe is learned once, by :meth:`fit` or from the first addition.
    A Hadamard basis with ``center=False`` needs no learning and gives p-values. If the first addition is rejected,
    nothing is learned and no folder is created.

    Parameters
    ----------
    n_features : int
        Length of a signal, at least 2.
    n_bytes : int
        Bytes per code, without its factor, which takes two more.
    basis : "principal", "hadamard" or an orthonormal Projection
    center : bool or array of shape (n_features,)
        Mean of unit signals, learned (True) or given, which is added back before scores are computed.
    metric : "correlation" or "inner_product"
    random_state : int, Generator or None
    originals : "float32", "float16" or "int8", optional
        Also keep the signals themselves, see :class:`AdaptiveIndex`.
    path : path, optional
        Folder of the index, created when the recipe has been learned. :func:`topsign.open_index` opens it again.
    timeout : float, optional
        Seconds that a change waits for another writer before it raises TimeoutError; None waits without limit.

    Examples
    --------
    >>> import numpy as np, topsign as ts
    >>> signals = np.random.default_rng(0).standard_normal((2000, 64))
    >>> index = ts.TrellisIndex(n_features=64, n_bytes=8, random_state=7)
    >>> ids = index.fit(signals).add(signals)
    >>> index.search(signals[[5, 7]], k=1).ids
    array([[5],
           [7]])
    """

    def __init__(
        self,
        *,
        n_features: int,
        n_bytes: int,
        basis: str | Projection = "principal",
        center: bool | npt.ArrayLike = True,
        metric: str = "correlation",
        random_state: RandomState = None,
        originals: str | None = None,
        path: Path | None = None,
        timeout: float | None = None,
    ) -> None:
        parameters = {
            "n_features": n_features,
            "n_bytes": n_bytes,
            "basis": basis,
            "center": center,
            "metric": metric,
            "random_state": random_state,
        }
        if isinstance(n_bytes, int) and isinstance(n_features, int) and n_bytes > 4 * n_features > 0:
            warn(
                f"a code of {n_bytes:,} bytes is larger than its signal, {4 * n_features:,} bytes of {n_features:,} "
                'float32; lower n_bytes, or keep the signals themselves (originals="float32") beside smaller codes'
            )
        self._start(TrellisRecipe, parameters, path=path, timeout=timeout, originals=originals)


CONSTRUCTORS: dict[str, type[Index]] = {
    AdaptiveRecipe.family: AdaptiveIndex,
    GroupedRecipe.family: GroupedIndex,
    SignRecipe.family: SignIndex,
    TrellisRecipe.family: TrellisIndex,
}
"""Index types by family; other families begin with a recipe."""


def _warn_of_share(layout: Layout) -> None:
    n_bits, n_pool = layout.n_bits, layout.n_pool
    warn(
        f"n_bits={n_bits} keeps {n_bits / n_pool:.0%} of the pool of {n_pool}, in {layout.code_bytes} bytes per code; "
        f"more than a quarter gains little over SignIndex, which keeps all signs in {-(-n_pool // 8)} bytes: lower "
        "n_bits, raise n_pool, or use SignIndex",
    )
