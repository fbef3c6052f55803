"""Centring: the mean of an index that is learned from its first addition."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy.typing as npt

from .._arrays import Array, Float32
from .._checks import as_signals
from ..encoding import mean_signal, project
from ..projections import Projected
from ..recipe import Recipe
from .storage import MemoryStore
from .storage.stores import Path, check_equal, store_for_recipe

if TYPE_CHECKING:
    from .storage import Store


class Centering:
    """Methods of an index that concern the mean it removes."""

    recipe: Recipe
    store: Store
    _unlearned: tuple[Path | None, float | None] | None = None  # file and timeout of an index without its mean yet
    _learning: threading.Lock

    def project(self, queries: npt.ArrayLike, *, n_threads: int | None = None) -> Float32:
        """Real projections of queries as searches use them, less the mean: (n_queries, n_pool) float32.

        For codes taken out of the index (:meth:`get`) and for the engines of :mod:`topsign.export`.
        """
        signals = as_signals(queries, n_features=self.recipe.n_features, name="queries")
        return Projected.of(project(self.recipe, signals, n_threads=n_threads)[0], self.recipe)

    @property
    def awaits_mean(self) -> bool:
        """Whether the mean is to be learned from the first addition, which has not come yet."""
        return self._unlearned is not None

    def _center_later(self, center: object, path: Path | None, timeout: float | None) -> None:
        """Notes that the first addition gives the mean, where the index asks for one and has none."""
        if center is True and self.recipe.mean is None:
            self._unlearned = path, timeout

    def _learn_mean(self, signals: Array, rows: slice) -> None:
        """Learns the mean from the first addition, and makes the file that waits for it."""
        with self._learning:
            if self._unlearned is None:
                return
            path, timeout = self._unlearned
            recipe = replace(self.recipe, mean=mean_signal(signals, rows))
            store = store_for_recipe(recipe, path=path, timeout=timeout)
            if not isinstance(store, MemoryStore):
                check_equal(store, recipe)
            self.recipe, self.store, self._unlearned = recipe, store, None

    def _waiting_path(self) -> str | None:
        """The file that will be made once the mean is known."""
        waiting = None if self._unlearned is None else self._unlearned[0]
        return None if waiting is None else os.path.abspath(waiting)
