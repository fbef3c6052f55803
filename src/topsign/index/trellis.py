"""TrellisIndex: entries as trellis codes, smaller than adaptive ones for a given quality."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .._arrays import Int64
from .._checks import as_signals, check_count
from .._files import Record
from .._named import named
from .._random import RandomState
from ..codes import TrellisCodes
from ..kernels.tables import level_rms
from ..learning import check_local, learn_recipe
from ..projections import Projection
from ..recipe import check_mean
from ..trellis import check_trellis
from .index import Index, open_index
from .results import Note
from .search import TrellisKernelEngine
from .storage import MemoryStore, Snapshot
from .storage.stores import Path, store_for_recipe

RECENT = 1000  # entries that say how well the basis fits


class TrellisIndex(Index[TrellisCodes]):
    """Exact search over trellis codes by the cosine of the query with each entry's reconstruction.

    The fewest bytes for a given recall. What the codes are made with is learned once, by :meth:`fit` or from the first
    signals added; a Hadamard basis with ``center=False`` needs no learning, and gives p-values.

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
        self._parameters: Record = {
            "n_bits": n_bits,
            "basis": basis,
            "n_local": check_local(n_local, basis=basis, center=center),
            "center": center if isinstance(center, bool) else check_mean(center, n_features),
            "window": window,
            "metric": metric,
            "norms": norms,
            "random_state": random_state,
        }
        self._place: tuple[Path | None, float | None] = path, timeout
        self.store, self._learning = MemoryStore(), threading.Lock()
        if path is not None and os.path.lexists(path):
            self._join(path, timeout)
        elif basis != "principal" and center is False:
            self._learn(np.empty((0, n_features), np.float32))

    def _join(self, path: Path, timeout: float | None) -> None:
        """Takes over a file that exists, where it has what was asked for."""
        found = open_index(path, timeout=timeout)
        if not isinstance(found, TrellisIndex):
            raise ValueError(f"{found.path} holds codes of the kind {found.family!r}; topsign.open_index opens it")
        names = ("n_features", "n_bits", "metric", "norms")
        have = {name: getattr(found, name) for name in names} | {"n_local": found.recipe.n_local}
        want = {name: self._parameters.get(name, self._n_features) for name in have}
        if have != want:
            found.close()
            raise ValueError(f"{path} was written with {have}, got {want}; topsign.open_index takes what the file has")
        center = self._parameters["center"]
        mean = found.recipe.mean
        if not isinstance(center, bool) and (mean is None or not np.array_equal(mean, center)):
            found.close()
            raise ValueError(f"{path} was written with another mean than center; topsign.open_index takes the file's")
        self.recipe, self.store = found.recipe, found.store

    def __getattr__(self, name: str) -> Any:
        if name == "recipe":
            from sklearn.exceptions import NotFittedError  # takes long to import

            raise NotFittedError(
                "this TrellisIndex has not learned its basis yet; call fit(sample), or add signals to learn from"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def is_fitted(self) -> bool:
        """Whether what codes are made with is known."""
        return "recipe" in self.__dict__

    def fit(self, sample: npt.ArrayLike) -> Self:
        """Learns mean, axes and variances from signals like those to come; once.

        Raises
        ------
        ValueError
            Where the basis is known already, because entries of two bases cannot be compared; or where the sample is
            too small.
        """
        if self.is_fitted:
            raise ValueError("this index has its basis already; make another index to learn from other signals")
        self._learn(as_signals(sample, n_features=self._n_features, name="sample"))
        return self

    def _learn(self, sample: Any) -> None:
        path, timeout = self._place
        recipe = learn_recipe(sample, **self._parameters)
        self.store = store_for_recipe(recipe, path=path, timeout=timeout)
        self.recipe = recipe

    def add(
        self,
        signals: npt.ArrayLike,
        *,
        ids: npt.ArrayLike | None = None,
        metadata: Iterable[Note] | None = None,
        n_threads: int | None = None,
        device: str | None = None,
        rows: slice | None = None,
        source: tuple[str, Record] | None = None,
    ) -> Int64:
        """Adds signals as :meth:`Index.add` does; the first ones are learned from, unless :meth:`fit` was called."""
        if not self.is_fitted:
            if device is not None:
                import_module("topsign.gpu.device").find_device(device)  # raises before anything is learned
            self.fit(signals)
        return super().add(
            signals, ids=ids, metadata=metadata, n_threads=n_threads, device=device, rows=rows, source=source
        )

    @property
    def n_bytes(self) -> int:
        """Bytes of one code, without its norm."""
        return -(-self.recipe.n_bits // 8)

    @property
    def n_features(self) -> int:
        """Length of a signal."""
        return self.recipe.n_features if self.is_fitted else self._n_features

    def drift(self) -> float:
        """Energy that recent codes hold, over what codes of signals like the sample hold: 1 where the basis fits.

        Of the last 1,000 entries; below 0.9 learning again would pay. nan without entries.
        """
        segments = self.store.snapshot.segments
        if not segments:
            return float("nan")
        codes = TrellisCodes(segments[-1].codes[-RECENT:], recipe=self.recipe)
        levels, held, expected = codes.levels, 0.0, 0.0
        for cell, places in self.recipe.cells.of_codes(codes.data):
            amplitudes = cell.design.amplitudes.astype(np.float64)
            values = levels[places, : len(amplitudes)] * (amplitudes / level_rms())
            held += float((values**2).sum())
            expected += len(places) * float(amplitudes @ amplitudes)
        return held / expected

    def _codes(self, snapshot: Snapshot, places: Int64) -> TrellisCodes:
        data = (
            snapshot.gather("codes", places) if places.size else np.empty((0, self.recipe.layout.code_bytes), np.uint8)
        )
        return TrellisCodes(data, recipe=self.recipe)

    def __repr__(self) -> str:
        basis = self.recipe.projection.kind if self.is_fitted else "not learned yet"
        n_bytes = self._parameters["n_bits"] // 8 if not self.is_fitted else self.n_bytes
        return f"TrellisIndex({len(self)} entries, n_features={self.n_features}, n_bytes={n_bytes}, basis={basis})"
