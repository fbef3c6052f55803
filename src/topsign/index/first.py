"""First additions: what an index learns from one, and the file that is made once nothing of it can be refused."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from .._arrays import Array
from ..encoding import Encoded, check_signals
from ..recipe import Recipe
from .storage import MemoryStore
from .storage.stores import Path, store_for_recipe

if TYPE_CHECKING:
    from .storage import Store

HELD_BYTES = 2**25
"""Codes of a first addition to a file are held up to so many bytes, so that it is read once to be checked and coded."""


class FirstAddition(ABC):
    """Methods of an index that learns what its codes are made with: a mean, or a basis.

    Until then its store is an empty one in memory. A file that another process makes meanwhile is joined: one file has
    one recipe.
    """

    recipe: Recipe
    store: Store
    _unlearned: tuple[Path | None, float | None] | None = None  # file and timeout of an index that has to learn
    _learning: threading.Lock

    @abstractmethod
    def _learn(self, signals: Array, part: slice) -> Recipe:
        """What codes of signals like these are made with."""

    @abstractmethod
    def _joined(self) -> tuple[Recipe, Store]:
        """The file that is at the path, where it has what the constructor was asked for; else ValueError."""

    def _learn_first(
        self, signals: Array, part: slice, encoded: Callable[[Recipe, slice], Encoded], *, n_threads: int
    ) -> Encoded | None:
        """Learns from the first addition, and makes the file that waits for it once all of it is known to be usable.

        Returns the codes where they were made on the way; None where the index knows its recipe already, where another
        process made the file, and where the codes are too many to hold.
        """
        if self._unlearned is None:
            return None
        with self._learning:
            if self._unlearned is None:  # another thread was first
                return None
            if self._has_file():
                self._begin(*self._joined())
                return None
            recipe, made = self._learn(signals, part), None
            n_bytes = (part.stop - part.start) * recipe.layout.code_bytes
            if self._unlearned[0] is None or n_bytes <= HELD_BYTES:
                made = encoded(recipe, part)
            else:
                check_signals(recipe, signals, part=part, n_threads=n_threads)
            store = self._new_store(recipe)
            if store is None:
                self._begin(*self._joined())
                return None
            self._begin(recipe, store)
            return made

    def _check_learned(self) -> None:
        """Raises NotFittedError where what codes are made with is not known yet."""
        if self._unlearned is not None:
            self._raise_unlearned("its mean yet; add signals to learn from")

    def _raise_unlearned(self, what: str) -> NoReturn:
        from sklearn.exceptions import NotFittedError  # takes long to import

        raise NotFittedError(f"this {type(self).__name__} has not learned {what}")

    def _has_file(self) -> bool:
        """Whether the file that waits to be made is there: another process made it."""
        return self._unlearned is not None and self._unlearned[0] is not None and os.path.lexists(self._unlearned[0])

    def _new_store(self, recipe: Recipe) -> Store | None:
        """A store for codes of this recipe; None where another process made the file at this moment, with another."""
        path, timeout = self._unlearned or (None, None)
        store = store_for_recipe(recipe, path=path, timeout=timeout)
        if isinstance(store, MemoryStore) or store.recipe == recipe:
            return store
        store.close()
        return None

    def _begin(self, recipe: Recipe, store: Store) -> None:
        """The index is like any other from now on."""
        self.recipe, self.store = recipe, store
        self._unlearned = None

    def _join_waiting(self) -> bool:
        """Joins the file that another process has made meanwhile; returns whether there is one."""
        with self._learning:
            if not self._has_file():
                return False
            self._begin(*self._joined())
            return True

    def _waiting_path(self) -> str | None:
        """The file that will be made once the recipe is known."""
        waiting = None if self._unlearned is None else self._unlearned[0]
        return None if waiting is None else os.path.abspath(waiting)
