"""Centring: the mean of an index that is learned from its first addition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from .._arrays import Array
from ..encoding import mean_signal
from ..errors import StorageError
from ..recipe import Recipe
from .first import FirstAddition
from .storage import Store
from .storage.stores import make_store


class Centering(FirstAddition):
    """Methods of an index that concern the mean it removes."""

    family: ClassVar[str]
    _parameters: dict[str, Any]  # of the constructor, where there is something to learn

    @property
    def awaits_mean(self) -> bool:
        """Whether the mean is to be learned from the first addition, which has not come yet."""
        return self._unlearned is not None

    def _center_later(self, parameters: dict[str, Any]) -> None:
        """Notes that the first addition gives the mean, where the index asks for one and has none."""
        center = parameters["center"]
        if isinstance(center, (bool, np.bool_)) and center and self.recipe.mean is None:
            if isinstance(parameters["random_state"], np.random.Generator):
                parameters = parameters | {"random_state": self.recipe.seed}  # drawn once
            self._parameters, self._unlearned = parameters, (parameters["path"], parameters["timeout"])

    def _learn(self, signals: Array, part: slice) -> Recipe:
        return replace(self.recipe, mean=mean_signal(signals, part))

    def _joined(self) -> tuple[Recipe, Store]:
        recipe, store = make_store(self.family, **self._parameters)
        if store.path is None:
            raise StorageError(self._parameters["path"], "file", "was there a moment ago, and is gone; add again")
        return recipe, store
