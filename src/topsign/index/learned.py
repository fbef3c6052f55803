"""LearnedIndex: the state of an index that has its recipe."""

from __future__ import annotations

from dataclasses import dataclass

from .._lazy import lazy
from ..families import Recipe
from ..store import Store
from .regional import Regional
from .significance import Significance


@dataclass(frozen=True, eq=False)
class LearnedIndex:
    """A recipe and a store: what :class:`topsign.index.deferred.DeferredIndex` becomes."""

    recipe: Recipe
    store: Store

    @lazy
    def significance(self) -> Significance:
        """P-values of the recipe, and the checks that searches make of them."""
        return Significance(self.recipe)

    @lazy
    def regional(self) -> Regional:
        """Regions of the index, and the recall that searches of them reach."""
        return Regional(self.recipe)

    @property
    def family(self) -> str:
        """Family of the codes."""
        return self.recipe.family

    @property
    def n_features(self) -> int:
        """Length of a signal."""
        return self.recipe.n_features

    @property
    def norms(self) -> bool:
        """Whether norms of signals are kept."""
        return self.recipe.norms

    @property
    def metric(self) -> str:
        """What scores estimate."""
        return self.recipe.metric

    @property
    def path(self) -> str | None:
        """The folder of a durable index, None in memory."""
        return self.store.path
