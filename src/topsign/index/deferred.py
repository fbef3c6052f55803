"""DeferredIndex: state of an index before its recipe is learned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from .._arrays import Array, Bytes
from .._checks import check_choice, check_count
from .._random import make_seed
from ..errors import StorageError
from ..families import METRICS, Recipe
from ..store import ORIGINAL_TYPES, MemoryStore, Path, Store, check_place, exists, open_store, resolve, store_for_recipe
from .addition import Addition
from .sources import keep_feature_names

HELD_BYTES = 2**25  # bytes of codes of a first addition kept in memory, so that it is read only once


@dataclass(frozen=True, eq=False)
class DeferredIndex:
    """Parameters of a constructor. The folder is created only after everything has been validated.

    If another process creates an index at the same path in the meantime, that index is used, because a folder has one
    recipe.
    """

    recipe_type: type[Recipe]
    parameters: dict[str, Any] = field(repr=False)
    path: str | None
    timeout: float | None
    originals: str | None = None

    @classmethod
    def checked(
        cls,
        recipe_type: type[Recipe],
        parameters: dict[str, Any],
        *,
        path: Path | None,
        timeout: float | None,
        originals: str | None = None,
    ) -> DeferredIndex:
        """Validate the parameters and return the state of a new index."""
        check_count(parameters["n_features"], "n_features", minimum=2)
        if originals is not None:
            check_choice(originals, "originals", ORIGINAL_TYPES)
        check_place(path, timeout)
        if parameters.get("random_state") is not None:
            parameters = parameters | {"random_state": make_seed(parameters["random_state"])}  # drawn once
        return cls(recipe_type, parameters, None if path is None else resolve(path), timeout, originals)

    @property
    def recipe(self) -> NoReturn:
        """Raise NotFittedError because there is no recipe yet."""
        from sklearn.exceptions import NotFittedError  # takes long to import

        raise NotFittedError(
            "this index has not learned its recipe yet; call fit(sample), or add signals to learn from"
        )

    calibration = feature_names = None  # there are none before the first signals

    @property
    def store(self) -> Store:
        """A store without entries."""
        return MemoryStore()

    @property
    def family(self) -> str:
        """Family of the codes."""
        return self.recipe_type.family

    @property
    def n_features(self) -> int:
        """Length of a signal."""
        return int(self.parameters["n_features"])

    @property
    def metric(self) -> str:
        """Quantity that scores will estimate."""
        return check_choice(self.parameters.get("metric", self.recipe_type.metric), "metric", METRICS)

    def open(self) -> tuple[Recipe, Store] | None:
        """Open the store at the path, or create one if nothing has to be learned; otherwise return None."""
        if self.exists():
            return self.joined()
        if self.recipe_type.needs_sample(**self.parameters):
            return None
        recipe = self.recipe_type.learn(np.empty((0, self.n_features), np.float32), **self.parameters)
        store = self.create(recipe)
        return self.joined() if store is None else (recipe, store)

    def exists(self) -> bool:
        """Return whether the path exists."""
        return self.path is not None and exists(self.path)

    def learn(self, signals: Array, part: slice) -> Recipe:
        """Learn the recipe from rows."""
        return self.recipe_type.learn(signals, part=part, **self.parameters)

    def fit(self, sample: Array, feature_names: tuple[str, ...] | None) -> tuple[Recipe, Store]:
        """Learn from a sample and create the store; raise ValueError if another process has created it."""
        recipe = None if self.exists() else self.learn(sample, slice(0, len(sample)))
        store = None if recipe is None else self.create(recipe)
        if recipe is None or store is None:
            raise ValueError(
                f"{self.path} was made meanwhile, and has its recipe already; add signals to it without fit, or choose "
                "another path"
            )
        if feature_names is not None:
            store.apply(lambda change: keep_feature_names(change, feature_names))
        return recipe, store

    def can_wait(self, addition: Addition) -> bool:
        """Return whether an addition has no signals, so that it changes nothing."""
        if not len(addition) and addition.source is not None:
            raise ValueError("a source without signals cannot be kept before the first signals; add some first")
        return not len(addition)

    def learn_first(self, addition: Addition) -> tuple[Recipe, Store, Bytes | None]:
        """Learn from the first addition, and create the store after validating all of it.

        The third value holds the codes if they were computed; it is None if another process created the index, or if
        the codes exceed the memory limit.
        """
        if self.exists():
            return *self.joined(), None
        recipe, made = self.learn(addition.signals, addition.part), None
        if self.path is None or len(addition) * recipe.code_bytes <= HELD_BYTES:
            made = addition.encode_first(recipe)
        else:
            addition.check_signals(recipe)
        store = self.create(recipe)
        return (*self.joined(), None) if store is None else (recipe, store, made)

    def create(self, recipe: Recipe) -> Store | None:
        """Create a store for codes of this recipe; return None if another process created one with another recipe."""
        store = store_for_recipe(recipe, path=self.path, timeout=self.timeout, originals=self.originals)
        if store.recipe is None or store.recipe == recipe:
            return store
        store.close()
        return None

    def joined(self) -> tuple[Recipe, Store]:
        """Open the store at the path; raise ValueError unless it has these parameters."""
        assert self.path is not None
        if not self.exists():
            raise StorageError(self.path, "index", "was there a moment ago, and is gone; add again")
        store = open_store(self.path, readonly=False, timeout=self.timeout)
        assert store.recipe is not None
        try:
            problem = self.recipe_type.agree(store.recipe, **self.parameters)
            if problem is None and self.originals not in (None, store.originals):
                problem = f"originals={store.originals!r}, got originals={self.originals!r}"
        except BaseException:
            store.close()
            raise
        if problem is not None:
            store.close()
            raise ValueError(f"{store.path} was written with {problem}; topsign.open_index takes what it has")
        return store.recipe, store
