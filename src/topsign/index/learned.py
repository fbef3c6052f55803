"""LearnedIndex: the state of an index that has its recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .._arrays import Array, Int64
from .._files import Record
from .._lazy import lazy
from ..families import Recipe
from ..search import Calibration, own_signals
from ..store import Store
from .regional import Regional
from .significance import KEY as CALIBRATION
from .significance import Significance
from .sources import kept_feature_names


@dataclass(frozen=True, eq=False)
class LearnedIndex:
    """A recipe and a store: what :class:`topsign.index.deferred.DeferredIndex` becomes."""

    recipe: Recipe
    store: Store
    _parsed: dict[str, tuple[Record, Any]] = field(default_factory=dict, repr=False)  # records that were read

    @lazy
    def significance(self) -> Significance:
        """P-values of the recipe, and the checks that searches make of them."""
        return Significance(self.recipe)

    @lazy
    def regional(self) -> Regional:
        """Regions of the index, and the recall that searches of them reach."""
        return Regional(self.recipe, self.store)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, or None."""
        return kept_feature_names(self.store.sources, self.recipe.n_features, self.store.path)

    @property
    def calibration(self) -> Calibration | None:
        """Null distribution learned by ``calibrate``, or None."""
        found: Calibration | None = self._record(CALIBRATION, Calibration.from_json)
        return found

    def own_signals(self) -> tuple[Array, Int64] | None:
        """Return the stored sample of signals and their internal ids, or None."""
        return own_signals(self.store.tables, self.store.snapshot, self.recipe.n_features)

    def keep_record(self, name: str, record: Record) -> None:
        """Store a record with the index."""
        self.store.apply(lambda change: change.keep_source(name, record))

    def _record(self, name: str, parse: Callable[[Record, str], Any]) -> Any:
        """Return what a stored record says, parsed once; None if there is none."""
        record = self.store.sources.get(name)
        if record is None:
            return None
        known = self._parsed.get(name)
        if known is None or known[0] is not record:
            self._parsed[name] = known = record, parse(record, self.store.path or "memory")
        return known[1]
