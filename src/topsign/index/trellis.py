"""TrellisIndex: entries as trellis codes, smaller than adaptive ones for a given quality."""

from __future__ import annotations

import threading
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Int64
from .._checks import as_signals, check_count, names_of_columns
from .._files import Record
from .._named import named
from .._random import RandomState, make_seed
from ..cells import cell_bits
from ..codes import TrellisCodes
from ..kernels.tables import level_rms
from ..learning import check_basis, check_local, learn_recipe
from ..projections import Local, Principal, Projection
from ..recipe import Recipe, check_mean, check_metric
from ..trellis import check_trellis
from .entries import keep_feature_names
from .index import Index
from .search import TrellisKernelEngine
from .storage import MemoryStore, Snapshot, Store
from .storage.stores import Path, check_place, open_file

RECENT = 1000  # entries that say how well the basis fits


class TrellisIndex(Index[TrellisCodes]):
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

    family = "trellis"
    engine = TrellisKernelEngine()

    @named
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
        path: Path | None = None,
        timeout: float | None = None,
    ) -> None:
        self._n_features = check_count(n_features, "n_features", minimum=2)
        n_bits, window = check_trellis(8 * check_count(n_bytes, "n_bytes"), window)
        check_trellis(n_bits - cell_bits(check_count(n_local, "n_local")), window)  # bits that are left for a ring
        center = bool(center) if isinstance(center, (bool, np.bool_)) else check_mean(center, n_features)
        self._parameters: Record = {
            "n_bits": n_bits,
            "basis": check_basis(basis, self._n_features, random_state),
            "n_local": check_local(n_local, basis=basis, center=center),
            "center": center,
            "window": window,
            "metric": check_metric(metric, norms),
            "norms": norms,
            "random_state": None if random_state is None else make_seed(random_state),
        }
        self.store, self._learning = MemoryStore(), threading.Lock()
        self._unlearned = path, timeout
        check_place(path, timeout)
        if self._has_file():
            self._begin(*self._joined())
        elif basis != "principal" and center is False:
            recipe = self._learn(np.empty((0, n_features), np.float32), slice(0, 0))
            store = self._new_store(recipe)
            self._begin(*self._joined() if store is None else (recipe, store))

    def _joined(self) -> tuple[Recipe, Store]:
        path, timeout = self._unlearned or (None, None)
        assert path is not None
        store = open_file(path, readonly=False, timeout=timeout)
        try:
            self._check_joined(store.recipe, store.path)
        except ValueError:
            store.close()
            raise
        return store.recipe, store

    def _check_joined(self, found: Recipe, path: str) -> None:
        """Raises ValueError unless a file has what was asked for; ``random_state=None`` and a mean take the file's."""
        if found.family != self.family:
            raise ValueError(f"{path} holds codes of the kind {found.family!r}; topsign.open_index opens it")
        asked = self._parameters
        basis, center, seed = asked["basis"], asked["center"], asked["random_state"]
        centered = found.mean is not None or found.n_local > 1
        have = {
            "n_features": found.n_features,
            "n_bytes": found.n_bits // 8,
            "basis": "principal" if isinstance(found.projection, (Local, Principal)) else found.projection.kind,
            "n_local": found.n_local,
            "center": centered,
            "window": found.designs[0].window,
            "metric": found.metric,
            "norms": found.norms,
            "random_state": found.seed,
        }
        want = {name: asked[name] for name in have if name in asked} | {
            "n_features": self._n_features,
            "n_bytes": asked["n_bits"] // 8,
            "center": center is not False,
            "random_state": found.seed if seed is None else seed,
        }
        if isinstance(basis, Projection):
            have["basis"] = found.projection
        differing = [name for name in have if have[name] != want[name]]
        if differing:
            written, got = (", ".join(f"{name}={values[name]!r}" for name in differing) for values in (have, want))
            raise ValueError(f"{path} was written with {written}, got {got}; topsign.open_index takes what it has")
        if not isinstance(center, bool) and (found.mean is None or not np.array_equal(found.mean, center)):
            raise ValueError(f"{path} was written with another mean than center; topsign.open_index takes the file's")

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self), name) or name == "recipe":  # one that is computed of the recipe
            self._check_learned()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _check_learned(self) -> None:
        if not self.is_fitted:
            self._raise_unlearned("its basis yet; call fit(sample), or add signals to learn from")

    @property
    def is_fitted(self) -> bool:
        """Whether what codes are made with is known."""
        return self._unlearned is None

    def fit(self, sample: npt.ArrayLike) -> Self:
        """Learns mean, axes and variances from signals like those to come; once.

        Raises
        ------
        ValueError
            Where the basis is known already, because entries of two bases cannot be compared; or where the sample is
            too small.
        """
        values = as_signals(sample, n_features=self.n_features, name="sample")
        names = names_of_columns(sample)
        with self._learning:
            if self.is_fitted:
                raise ValueError("this index has its basis already; make another index to learn from other signals")
            recipe = None if self._has_file() else self._learn(values, slice(0, len(values)))
            store = None if recipe is None else self._new_store(recipe)
            if recipe is None or store is None:
                raise ValueError(
                    f"{self.path} was made meanwhile, and has its basis already; add signals to it without fit, or "
                    "choose another path"
                )
            if names is not None:
                with store.change() as change:
                    keep_feature_names(change, names)
            self._begin(recipe, store)
        return self

    def _learn(self, signals: Array, part: slice) -> Recipe:
        return learn_recipe(signals, part=part, **self._parameters)

    @property
    def n_bytes(self) -> int:
        """Bytes of one code, without its norm."""
        return self.n_bits // 8

    @property
    def n_bits(self) -> int:
        """Bits of one code, without its norm."""
        return self.recipe.n_bits if self.is_fitted else int(self._parameters["n_bits"])

    @property
    def metric(self) -> str:
        """What scores estimate: "correlation" or "inner_product"."""
        return self.recipe.metric if self.is_fitted else str(self._parameters["metric"])

    @property
    def norms(self) -> bool:
        """Whether norms are kept."""
        return self.recipe.norms if self.is_fitted else bool(self._parameters["norms"])

    @property
    def n_features(self) -> int:
        """Length of a signal."""
        return self.recipe.n_features if self.is_fitted else self._n_features

    def drift(self) -> float:
        """Energy that recent codes hold, over what codes of signals like the sample hold: 1 where the basis fits.

        Of the last 1,000 entries; below 0.9 learning again would pay. nan without entries.
        """
        snapshot = self.store.snapshot
        places = snapshot.last(RECENT)
        if not places.size:
            return float("nan")
        codes = self._codes(snapshot, places)
        levels, held, expected = codes.levels, 0.0, 0.0
        for cell, places in self.recipe.cells.of_codes(codes.data):
            amplitudes = cell.design.amplitudes.astype(np.float64)
            values = levels[places, : len(amplitudes)] * (amplitudes / level_rms())
            usual = np.minimum(amplitudes, cell.design.deviations)  # those of fine designs are widened
            held += float((values**2).sum())
            expected += len(places) * float(usual @ usual)
        return held / expected

    def _codes(self, snapshot: Snapshot, places: Int64) -> TrellisCodes:
        data = (
            snapshot.gather("codes", places) if places.size else np.empty((0, self.recipe.layout.code_bytes), np.uint8)
        )
        return TrellisCodes(data, recipe=self.recipe)

    def __repr__(self) -> str:
        basis = self.recipe.projection.kind if self.is_fitted else "not learned yet"
        sizes = f"n_features={self.n_features}, n_bytes={self.n_bytes}"
        return f"TrellisIndex({len(self)} entries, {sizes}, basis={basis})"
