"""Constructors of indexes, one per family: AdaptiveIndex, SignIndex and TrellisIndex."""

from __future__ import annotations

import numpy.typing as npt

from .._random import RandomState
from .._warning import warn
from ..families import AdaptiveRecipe, SignRecipe, TrellisRecipe
from ..families.adaptive import resolve_bits
from ..kernels import Layout
from ..projections import Projection
from ..store import Path
from .index import Index
from .reencoding import CONSTRUCTORS


class AdaptiveIndex(Index):
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
    originals : "float32", "float16" or "int8", optional
        Keep the signals themselves, too, in this type: for rescoring (:meth:`search` with ``rescore=True`` or
        ``recall=``), for :meth:`get` and for :meth:`reencode`. In a folder they are files of their own, which are
        mapped and read only for candidates.
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
        originals: str | None = None,
        path: Path | None = None,
        timeout: float | None = None,
    ) -> None:
        parameters = {
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
        }
        self._start(AdaptiveRecipe, parameters, path=path, timeout=timeout, originals=originals)
        pool = n_features if n_pool is None else n_pool
        kept = resolve_bits(n_bits, n_bytes, pool, layout)
        if 4 * kept > pool and n_bits != pool:
            _warn_of_share(Layout(layout, kept, pool))


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
    projection, metric, center, random_state, originals, path, timeout
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
        originals: str | None = None,
        path: Path | None = None,
        timeout: float | None = None,
    ) -> None:
        parameters = {
            "n_features": n_features,
            "n_pool": n_pool,
            "projection": projection,
            "metric": metric,
            "norms": norms,
            "center": center,
            "random_state": random_state,
        }
        self._start(SignRecipe, parameters, path=path, timeout=timeout, originals=originals)


class TrellisIndex(Index):
    """Exact search over trellis codes by the cosine of the query with each entry's reconstruction.

    The fewest bytes for a given recall. What the codes are made with is learned once, by :meth:`fit` or from the first
    signals added; a Hadamard basis with ``center=False`` needs no learning, and gives p-values. Nothing is learned, and
    no file made, where those signals, their ids or their metadata are refused.

    Parameters
    ----------
    n_features : int
        Length of a signal, at least 2.
    n_bytes : int
        Bytes of one code.
    basis : "principal", "hadamard" or an orthonormal Projection
    n_local : power of two
        Cells with axes and a mean of their own, see :class:`topsign.TrellisEncoder`.
    center : bool or array of shape (n_features,)
        A mean of unit signals, learned (True) or given, that is put back before scores are taken.
    window : int in [4, 12]
        Bits that a coordinate reads, see :class:`topsign.TrellisEncoder`.
    metric : "correlation" or "inner_product"
    norms : bool
        Keep each signal's norm, in two more bytes per entry. Needed for inner products.
    random_state : int, Generator or None
    originals : "float32", "float16" or "int8", optional
        Keep the signals themselves, too, as :class:`AdaptiveIndex` does.
    path : path, optional
        Keep the entries in this file, made when the index has learned. :func:`topsign.open_index` opens it again.
    timeout : float, optional
        Seconds that a change waits for another writer of the file, then TimeoutError; None waits as long as it takes.

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
        n_local: int = 1,
        center: bool | npt.ArrayLike = True,
        window: int = 10,
        metric: str = "correlation",
        norms: bool = False,
        random_state: RandomState = None,
        originals: str | None = None,
        path: Path | None = None,
        timeout: float | None = None,
    ) -> None:
        parameters = {
            "n_features": n_features,
            "n_bytes": n_bytes,
            "basis": basis,
            "n_local": n_local,
            "center": center,
            "window": window,
            "metric": metric,
            "norms": norms,
            "random_state": random_state,
        }
        if isinstance(n_bytes, int) and isinstance(n_features, int) and n_bytes > 4 * n_features > 0:
            warn(
                f"a code of {n_bytes:,} bytes is larger than its signal, {4 * n_features:,} bytes of {n_features:,} "
                'float32; lower n_bytes, or keep the signals themselves (originals="float32") beside smaller codes'
            )
        self._start(TrellisRecipe, parameters, path=path, timeout=timeout, originals=originals)


CONSTRUCTORS.update(
    {AdaptiveRecipe.family: AdaptiveIndex, SignRecipe.family: SignIndex, TrellisRecipe.family: TrellisIndex}
)


def _warn_of_share(layout: Layout) -> None:
    n_bits, n_pool = layout.n_bits, layout.n_pool
    warn(
        f"n_bits={n_bits} keeps {n_bits / n_pool:.0%} of the pool of {n_pool}, in {layout.code_bytes} bytes per code; "
        f"more than a quarter gains little over SignIndex, which keeps all signs in {-(-n_pool // 8)} bytes: lower "
        "n_bits, raise n_pool, or use SignIndex",
    )
