"""RecallIndex: the verbs of an index that keeps its entries on this machine and may search only a part of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from .._arrays import Array
from .._checks import check_count, check_real
from ..search import MAX_REGIONS, MIN_REGION_ENTRIES, Engine, KernelEngine, Progress, RegionSearch, automatic_regions
from ..store import Change, Snapshot, Store
from .base import BaseIndex
from .entry_set import LocalEntries
from .regional import CalibrationQueries, RecallCheck, Regional, RegionSummary, mean_interval


class RecallIndex(BaseIndex):
    """Regions, and the recall that they are calibrated for."""

    engine: Engine

    @property
    @abstractmethod
    def _regional(self) -> Regional: ...

    @property
    @abstractmethod
    def store(self) -> Store:
        """Where the entries are kept."""

    @property
    def regions(self) -> RegionSummary | None:
        """What regions the index has; None before :meth:`learn_regions`."""
        store = self.store
        found = self._regional.regions(store.tables, store.path)
        if found is None:
            return None
        known = self._regional.calibration(store.tables, store.path)
        n_queries = 0 if known is None else len(known.strata)
        recall_of = None if known is None else known.recall_of
        return RegionSummary(len(found), found.n_learned, len(store.snapshot), recall_of, n_queries)

    def learn_regions(
        self,
        n_regions: int | str = "auto",
        *,
        random_state: int = 0,
        n_threads: int | None = None,
        progress: Progress | None = None,
    ) -> RegionSummary | None:
        """Divide the entries into regions, so that ``search(recall=)`` visits a few of them, and calibrate recall.

        Regions are learned from decoded codes, so that any index can have them. Entries that are added later are
        assigned to them. Learn again when the index has grown fourfold (:attr:`regions` says when that is due):
        searches stay right in the meantime, but visit more. Other writers wait while this runs, searches do not.

        Parameters
        ----------
        n_regions : int or "auto"
            "auto" is 8 sqrt(n), rounded to a power of two; below 20,000 entries none, because comparing all of them
            is faster.
        random_state : int
            Seed. The same entries give the same regions, up to the rounding of matrix products.
        progress : callable, optional
            Called with a percentage done, and 100.

        Notes
        -----
        Recall is calibrated with kept originals, else with signals that this object has added, else with decoded
        codes. These entries do not train the regions. :meth:`calibrate_recall` takes real queries, which are better.
        """
        if n_regions != "auto":
            n_regions = check_count(n_regions, "n_regions", minimum=2, maximum=MAX_REGIONS)

        def learn(change: Change) -> bool:
            n_entries = len(change.snapshot)
            if n_regions == "auto" and n_entries < MIN_REGION_ENTRIES:
                return False
            wanted = automatic_regions(n_entries) if n_regions == "auto" else int(n_regions)
            if n_entries < 2 * wanted:
                raise ValueError(f"{wanted} regions need at least {2 * wanted} entries, got {n_entries}")
            queries = self._calibration_queries(change.snapshot, random_state)
            self._regional.learn(change, wanted, queries, seed=random_state, n_threads=n_threads, progress=progress)
            return True

        return self.regions if self.store.apply(learn) else None

    def calibrate_recall(
        self,
        queries: npt.ArrayLike | None = None,
        *,
        random_state: int = 0,
        n_threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Calibrate the recall of searches again: with real queries, or with other entries.

        Parameters
        ----------
        queries : array of shape (n_queries, n_features), optional
            Queries like those to come, at least 200 that are no entries; 1,000 or more are better.
        """
        given = None if queries is None else self._checked(queries, "queries")
        if given is not None:
            check_count(len(given), "the number of queries", minimum=200)

        def calibrate(change: Change) -> None:
            regions = self._regional.regions(change.tables, self.store.path)
            if regions is None:
                raise ValueError("recall is calibrated for regions; call learn_regions() first")
            made = self._calibration_queries(change.snapshot, random_state)
            if given is not None:
                made = CalibrationQueries(given, None, made.originals)
            self._regional.calibrate(change, regions, made, n_threads=n_threads, progress=progress)

        self.store.apply(calibrate)

    def _calibration_queries(self, snapshot: Snapshot, seed: int) -> CalibrationQueries:
        originals = None if self.originals is None else LocalEntries(self.recipe, snapshot).originals()
        return CalibrationQueries.of_entries(self.recipe, snapshot, self._own_signals(), originals, seed=seed)

    def check_recall(
        self,
        queries: npt.ArrayLike | None = None,
        *,
        k: int = 10,
        recall: float = 0.95,
        n_threads: int | None = None,
    ) -> RecallCheck:
        """Search for queries twice, for a recall and among all entries, and return the recall achieved.

        Without queries, entries of the index are the queries, each left out of its own results.
        """
        k = check_count(k, "k")
        own = None
        if queries is None:
            made = self._calibration_queries(self.store.snapshot, 1)
            queries, own = made.signals, made.own_ids
        signals: Array = self._checked(queries, "queries")
        wanted = k + (own is not None)
        some = self.search(signals, wanted, recall=recall, n_threads=n_threads)
        entries = LocalEntries(self.recipe, self.store.snapshot)
        if some.recall_of == "codes":
            exact = self.search(signals, wanted, n_threads=n_threads).ids
        else:
            n_rows = min(wanted, len(entries))
            rows = entries.originals().best_rows(entries.snapshot, signals, n_rows, metric=self.recipe.metric)
            ids = entries.snapshot.gather("ids", rows.ravel()).astype(np.int64)
            exact = entries.user_ids(ids).reshape(rows.shape)
        achieved = _recalls(some.ids, exact, None if own is None else entries.user_ids(own), k)
        return RecallCheck(
            recall,
            float(achieved.mean()),
            mean_interval(achieved),
            float(np.mean(some.recall)),
            float(np.mean(some.visited)),
            float(np.mean(some.exhaustive != "")),
            some.recall_of,
            k,
            len(signals),
        )

    def _region_search(
        self, whole: Any, entries: Any, *, k: int, recall: float | None, probes: int | None
    ) -> RegionSearch:
        if not isinstance(entries, LocalEntries):
            raise ValueError("recall and probes go with an index of one machine, not with a cluster")
        store = self.store
        regions = self._regional.regions(store.tables, store.path)
        known = self._regional.calibration(store.tables, store.path)
        if recall is not None:
            recall = check_real(recall, "recall", minimum=0, maximum=1)
            if not 0 < recall < 1:
                raise ValueError(f"recall must lie in (0, 1), got {recall}; search without it to compare all entries")
        of_signals = recall is not None and self.originals is not None and (known is None or known.of_signals)
        return RegionSearch(
            self.recipe,
            entries.snapshot,
            regions,
            known,
            whole.originals() if of_signals else None,
            k,
            recall,
            None if probes is None else check_count(probes, "probes"),
            is_filtered=entries is not whole,
            can_visit=isinstance(self.engine, KernelEngine),
        )


def _recalls(found: Array, exact: Array, own: Array | None, k: int) -> Any:
    """Return the share of the k exact neighbours of each query that were found, without the query itself."""
    recalls = np.empty(len(found))
    for row, (some, right) in enumerate(zip(found.tolist(), exact.tolist(), strict=True)):
        left = None if own is None else own[row]
        wanted = [one for one in right if one != left][:k]
        had = {one for one in some if one != left}
        recalls[row] = sum(one in had for one in wanted) / max(1, len(wanted))
    return recalls
