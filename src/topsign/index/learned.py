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
from ..theory import LikelihoodRatioModel
from .evidence import KEY as EVIDENCE
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
        """Quantity that scores estimate."""
        return self.recipe.metric

    @property
    def path(self) -> str | None:
        """The folder of a durable index, None in memory."""
        return self.store.path

    @property
    def originals(self) -> str | None:
        """Type in which signals are kept."""
        return self.store.originals

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, None without any."""
        return kept_feature_names(self.store.sources, self.n_features, self.path)

    @property
    def calibration(self) -> Calibration | None:
        """Nulls that were learned."""
        found: Calibration | None = self._record(CALIBRATION, Calibration.from_json)
        return found

    @property
    def evidence(self) -> LikelihoodRatioModel | None:
        """Likelihood ratios that were learned."""
        found: LikelihoodRatioModel | None = self._record(EVIDENCE, LikelihoodRatioModel.from_json)
        return found

    def own_signals(self) -> tuple[Array, Int64] | None:
        """Return a sample of signals that were added, and their internal ids; None without any."""
        return own_signals(self.store.tables, self.store.snapshot, self.n_features)

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
            self._parsed[name] = known = record, parse(record, self.path or "memory")
        return known[1]
