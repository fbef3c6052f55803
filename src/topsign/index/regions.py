"""Regions and recall of one index: read from its store, learned, and checked."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from .._arrays import Array, Bytes, Float64, Int64
from .._checks import check_count, check_real
from ..errors import StorageError
from ..families import Recipe
from ..search.recall import MIN_QUERIES as MIN_RECALL_QUERIES
from ..search.recall import RecallCalibration, RegionSearch, calibrate_recall, n_calibration, queries_of, sample_rows
from ..search.regions import MAX_REGIONS, Progress, Regions, automatic_regions, decoded_rows, learn_regions
from ..search.regions import MIN_ENTRIES as MIN_REGION_ENTRIES
from ..store.folder_store import Store
from ..store.memory import Change, StoreVersion, Table
from ..store.segments import Snapshot
from .entries import EntrySet, LocalEntries
from .results import Neighbors

DUE_GROWTH = 4
"""Regions should be learned again when an index has grown by this factor."""


@dataclass(frozen=True)
class RegionSummary:
    """Summary of the regions of an index."""

    n_regions: int
    n_learned: int  # entries there were when they were learned
    n_entries: int  # entries there are
    recall_of: str | None  # "codes" or "signals"; None if recall is not calibrated
    n_queries: int  # of the calibration

    @property
    def growth(self) -> float:
        """Entries there are, relative to those the regions were learned with."""
        return self.n_entries / max(1, self.n_learned)

    @property
    def is_due(self) -> bool:
        """Whether learning again would make searches faster."""
        return self.growth >= DUE_GROWTH


@dataclass(frozen=True)
class RecallCheck:
    """Recall of queries, compared with what was asked for."""

    asked: float
    achieved: float
    interval: tuple[float, float]  # 95%, of the mean over queries
    predicted: float
    visited: float  # mean share of the entries
    exhaustive: float  # share of the queries for which all entries were visited
    recall_of: str
    k: int
    n_queries: int

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"recall@{self.k} of {self.recall_of}: asked {self.asked:.3f}, achieved {self.achieved:.3f} "
            f"[{low:.3f}, {high:.3f}] with {self.n_queries:,} queries, which visited {self.visited:.2%} of the entries"
        )


def _recalls(found: Array, exact: Array, own: Array | None, k: int) -> Float64:
    """Return the share of the k exact neighbours of each query that were found, without the query itself."""
    recalls = np.empty(len(found))
    for row, (some, right) in enumerate(zip(found.tolist(), exact.tolist(), strict=True)):
        wanted = [one for one in right if own is None or one != own[row]][:k]
        recalls[row] = len(set(wanted) & set(some)) / max(1, len(wanted))
    return recalls


REGIONS, RECALL = "regions", "recall"
"""Names of tables in a store."""

Parsed = TypeVar("Parsed")


class IndexRegions:
    """Regions of an index with one recipe and one store; tables are parsed once."""

    def __init__(self, recipe: Recipe, store: Store) -> None:
        self._recipe, self._store = recipe, store
        self._parsed: dict[str, tuple[Table, Any]] = {}

    def regions(self, tables: Mapping[str, Table]) -> Regions | None:
        """Return the regions in the tables of a version; None if there are none."""
        n_features = self._recipe.n_features
        return self._parse(tables, REGIONS, lambda table: Regions.from_table(table, n_features))

    def calibration(self, tables: Mapping[str, Table]) -> RecallCalibration | None:
        """Return the calibration of recall, None if there is none for the regions."""
        regions, found = self.regions(tables), self._parse(tables, RECALL, RecallCalibration.from_table)
        if regions is None or found is None or found.generation != regions.generation:
            return None
        if found.path[-1] > len(regions):
            problem = f"damaged: visits {found.path[-1]} of {len(regions)} regions"
            raise StorageError(self._store.path or "memory", RECALL, problem)
        return found

    def verify(self, entries: EntrySet) -> None:
        """Raise StorageError if the tables, or the order of the entries, are damaged."""
        regions, _ = self.regions(entries.tables), self.calibration(entries.tables)
        if regions is not None:
            entries.region_counts(regions.order)

    def summary(self, now: StoreVersion) -> RegionSummary | None:
        """Return what regions there are in a version, None if there are none."""
        regions, known = self.regions(now.tables), self.calibration(now.tables)
        if regions is None:
            return None
        calibrated = (None, 0) if known is None else (known.recall_of, len(known.strata))
        return RegionSummary(len(regions), regions.n_learned, len(now.snapshot), *calibrated)

    def _parse(self, tables: Mapping[str, Table], name: str, parse: Callable[[Table], Parsed]) -> Parsed | None:
        table, known = tables.get(name), self._parsed.get(name)
        if table is None:
            return None
        if known is None or known[0] is not table:
            try:
                self._parsed[name] = known = table, parse(table)
            except ValueError as error:
                raise StorageError(self._store.path or "memory", name, f"damaged: {error}") from None
        found: Parsed = known[1]
        return found

    def assign(self, tables: Mapping[str, Table], codes: Bytes) -> dict[str, Array]:
        """Return the region column of new entries, nothing if the tables have no regions."""
        regions = self.regions(tables) if REGIONS in tables else None
        return {} if regions is None else {REGIONS: regions.assign_codes(self._recipe, codes)}

    def learn(
        self, n_regions: int | str, given: Array | None, *, seed: int, progress: Progress | None
    ) -> RegionSummary | None:
        """Learn regions, assign all entries to them, and calibrate recall, in one change; None if there are too few."""
        if n_regions != "auto":
            n_regions = check_count(n_regions, "n_regions", minimum=2, maximum=MAX_REGIONS)
        if given is not None:
            check_count(len(given), "the number of queries", minimum=MIN_RECALL_QUERIES)

        def learn(change: Change) -> bool:
            snapshot, recipe = change.snapshot, self._recipe
            n_entries = len(snapshot)
            if n_regions == "auto" and n_entries < MIN_REGION_ENTRIES:
                return False
            wanted = automatic_regions(n_entries) if n_regions == "auto" else int(n_regions)
            if n_entries < 2 * wanted:
                raise ValueError(f"{wanted} regions need at least {2 * wanted} entries, got {n_entries}")
            own = self._sample(snapshot, seed)  # these entries do not train the regions
            regions = learn_regions(
                recipe,
                snapshot,
                wanted,
                left_out=snapshot.locate(own),
                generation=secrets.randbits(62),
                seed=seed,
                progress=_part(progress, 0, 40),
            )
            assigned, report = [], _part(progress, 40, 70)
            for number, segment in enumerate(snapshot.segments):
                assigned.append(regions.assign_codes(recipe, segment.codes))
                report(number + 1, len(snapshot.segments))
            change.order_by_region(np.concatenate(assigned))
            has_originals = self._store.originals is not None
            recall = calibrate_recall(
                recipe,
                change.snapshot,
                regions,
                self._signals(change.snapshot, own) if given is None else given,
                own_ids=own if given is None else None,
                originals=LocalEntries(recipe, change.snapshot).originals() if has_originals else None,
                progress=_part(progress, 70, 100),
            )
            change.tables |= {REGIONS: regions.to_table(), RECALL: recall.to_table()}
            return True

        return self.summary(self._store.now) if self._store.apply(learn) else None

    def _sample(self, snapshot: Snapshot, seed: int) -> Int64:
        """Return the internal ids of random entries to calibrate recall with; at most a quarter of all."""
        n_queries = n_calibration(snapshot, self._recipe.n_features, exact=self._store.originals is not None)
        n_queries = min(max(1, len(snapshot) // 4), n_queries)
        rows = sample_rows(snapshot, n_queries, np.random.default_rng([seed, 1]))
        return snapshot.gather("ids", rows).astype(np.int64)

    def _signals(self, snapshot: Snapshot, ids: Int64) -> Array:
        """Return entries as queries: kept originals, else decoded codes."""
        rows = snapshot.locate(ids)
        kept = None if self._store.originals is None else snapshot.signals(rows)
        return queries_of(self._recipe, decoded_rows(self._recipe, snapshot, rows)) if kept is None else kept

    def check(self, search: Callable[..., Neighbors], signals: Array | None, *, k: int, recall: float) -> RecallCheck:
        """Compare the recall that a search of these queries, or of entries, achieves with the recall asked for."""
        entries, own = LocalEntries(self._recipe, self._store.snapshot), None
        if signals is None:
            ids = self._sample(entries.snapshot, 1)
            signals, own = self._signals(entries.snapshot, ids), entries.user_ids(ids)
        n_wanted = max(1, min(k + (own is not None), len(entries)))
        found = search(signals, n_wanted, recall=recall)
        if found.recall_of == "codes":
            exact = search(signals, n_wanted).ids
        else:
            rows = entries.originals().best(entries.snapshot, signals, n_wanted, metric=self._recipe.metric).rows
            exact = entries.user_ids(entries.snapshot.gather("ids", rows.ravel()).astype(np.int64)).reshape(rows.shape)
        achieved = _recalls(found.ids, exact, own, k)
        mean, half = float(achieved.mean()), 1.96 * float(achieved.std()) / math.sqrt(max(1, len(achieved)))
        return RecallCheck(
            asked=recall,
            achieved=mean,
            interval=(max(0.0, mean - half), min(1.0, mean + half)),
            predicted=float(np.mean(found.recall)),
            visited=float(np.mean(found.visited)),
            exhaustive=float(np.mean(found.exhaustive != "")),
            recall_of=found.recall_of,
            k=k,
            n_queries=len(achieved),
        )

    def search(self, whole: EntrySet, entries: EntrySet, *, k: int, recall: float) -> RegionSearch:
        """Return the search that visits regions of these entries."""
        recall = check_real(recall, "recall", minimum=0, maximum=1)
        if not 0 < recall < 1:
            raise ValueError(f"recall must lie in (0, 1), got {recall}; search without it to compare all entries")
        known = self.calibration(whole.tables)
        of_signals = self._store.originals is not None and (known is None or known.of_signals)
        return RegionSearch(
            self._recipe,
            entries,
            self.regions(whole.tables),
            known,
            whole.originals() if of_signals else None,
            k,
            recall,
            is_filtered=entries is not whole,
        )


def _part(progress: Progress | None, begin: int, end: int) -> Progress:
    """Return the callback for a part of a progress bar of 100."""

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(begin + (end - begin) * done // max(1, total), 100)

    return report
