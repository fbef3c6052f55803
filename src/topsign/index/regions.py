"""Regions and recall of one index: read from its store, learned, and checked."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from .._arrays import Array, Bytes, Float64, Int64
from .._checks import check_count, check_real
from ..errors import StorageError
from ..families import Recipe
from ..search import (
    MAX_REGIONS,
    MIN_RECALL_QUERIES,
    MIN_REGION_ENTRIES,
    Progress,
    RecallCalibration,
    Regions,
    RegionSearch,
    automatic_regions,
    calibrate_recall,
    decoded_rows,
    learn_regions,
    n_calibration,
    queries_of,
    sample_rows,
)
from ..store import Change, Snapshot, Store, StoreVersion, Table
from .entries import EntrySet, Ids, LocalEntries
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

    @classmethod
    def of_search(cls, found: Neighbors, exact: Array, own: Array | None, *, k: int, asked: float) -> RecallCheck:
        """Compare what a search for a recall found with the exact neighbours, without each query's own entry."""
        achieved = _recalls(found.ids, exact, own, k)
        return cls(
            asked,
            float(achieved.mean()),
            _mean_interval(achieved),
            float(np.mean(found.recall)),
            float(np.mean(found.visited)),
            float(np.mean(found.exhaustive != "")),
            found.recall_of,
            k,
            len(achieved),
        )

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
        left = None if own is None else own[row]
        wanted = [one for one in right if one != left][:k]
        had = {one for one in some if one != left}
        recalls[row] = sum(one in had for one in wanted) / max(1, len(wanted))
    return recalls


def _mean_interval(values: Float64) -> tuple[float, float]:
    """Return the 95% interval of a mean over queries."""
    half = 1.96 * float(values.std()) / np.sqrt(max(1, len(values)))
    mean = float(values.mean()) if len(values) else float("nan")
    return max(0.0, mean - half), min(1.0, mean + half)


REGIONS, RECALL = "regions", "recall"
"""Names of tables in a store."""

Parsed = TypeVar("Parsed")


class IndexRegions:
    """Regions of an index with one recipe and one store; tables are parsed once."""

    def __init__(self, recipe: Recipe, store: Store) -> None:
        self._recipe, self._store = recipe, store
        self._known: dict[str, tuple[Table, Regions | RecallCalibration]] = {}

    def regions(self, tables: Mapping[str, Table]) -> Regions | None:
        """Return the regions in the tables of a version; None if there are none."""
        n_features = self._recipe.n_features
        return self._parsed(tables, REGIONS, lambda table: Regions.from_table(table, n_features))

    def calibration(self, tables: Mapping[str, Table]) -> RecallCalibration | None:
        """Return the calibration of recall, None if there is none for the regions."""
        regions, found = self.regions(tables), self._parsed(tables, RECALL, RecallCalibration.from_table)
        if regions is None or found is None or found.generation != regions.generation:
            return None
        if found.path[-1] > len(regions):
            problem = f"damaged: visits {found.path[-1]} of {len(regions)} regions"
            raise StorageError(self._store.path or "memory", RECALL, problem)
        return found

    def summary(self, now: StoreVersion) -> RegionSummary | None:
        """Return what regions there are in a version, None if there are none."""
        regions, known = self.regions(now.tables), self.calibration(now.tables)
        if regions is None:
            return None
        n_queries = 0 if known is None else len(known.strata)
        recall_of = None if known is None else known.recall_of
        return RegionSummary(len(regions), regions.n_learned, len(now.snapshot), recall_of, n_queries)

    def _parsed(self, tables: Mapping[str, Table], name: str, parse: Callable[[Table], Parsed]) -> Parsed | None:
        table = tables.get(name)
        if table is None:
            return None
        known = self._known.get(name)
        if known is None or known[0] is not table:
            try:
                made = parse(table)
            except ValueError as error:
                raise StorageError(self._store.path or "memory", name, f"damaged: {error}") from None
            self._known[name] = known = table, made  # type: ignore[assignment]
        return known[1]  # type: ignore[return-value,index]

    def assign(self, tables: Mapping[str, Table], codes: Bytes) -> dict[str, Array]:
        """Return the region column of new entries, nothing if the tables have no regions."""
        regions = self.regions(tables)
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
            n_entries = len(change.snapshot)
            if n_regions == "auto" and n_entries < MIN_REGION_ENTRIES:
                return False
            wanted = automatic_regions(n_entries) if n_regions == "auto" else int(n_regions)
            if n_entries < 2 * wanted:
                raise ValueError(f"{wanted} regions need at least {2 * wanted} entries, got {n_entries}")
            queries, steps = self.queries(change.snapshot, seed), _Steps(progress)
            regions = learn_regions(
                self._recipe,
                change.snapshot,
                wanted,
                left_out=change.snapshot.locate(queries.left_out),
                generation=secrets.randbits(62),
                seed=seed,
                progress=steps.part(0, 40),
            )
            change.order_by_region(self._assignments(regions, change.snapshot, steps.part(40, 70)))
            change.tables[REGIONS] = regions.to_table()
            if given is not None:
                queries = CalibrationQueries(given, None, queries.exact)
            self._calibrate(change, regions, queries, progress=steps.part(70, 100))
            return True

        return self.summary(self._store.now) if self._store.apply(learn) else None

    def _assignments(self, regions: Regions, snapshot: Snapshot, progress: Progress) -> Array:
        """Return the region of each row."""
        found = []
        for number, segment in enumerate(snapshot.segments):
            found.append(regions.assign_codes(self._recipe, segment.codes))
            progress(number + 1, len(snapshot.segments))
        return np.concatenate(found)

    def _calibrate(
        self,
        change: Change,
        regions: Regions,
        queries: CalibrationQueries,
        *,
        progress: Progress | None,
    ) -> None:
        learned = calibrate_recall(
            self._recipe,
            change.snapshot,
            regions,
            queries.signals,
            own_ids=queries.own_ids,
            originals=LocalEntries(self._recipe, change.snapshot).originals() if queries.exact else None,
            progress=progress,
        )
        change.tables[RECALL] = learned.to_table()

    def queries(self, snapshot: Snapshot, seed: int) -> CalibrationQueries:
        """Return entries of a snapshot as queries."""
        return CalibrationQueries.of_entries(self._recipe, snapshot, seed=seed, exact=self._store.originals is not None)

    def check(self, search: Callable[..., Neighbors], signals: Array | None, *, k: int, recall: float) -> RecallCheck:
        """Return the recall that a search achieves, with these queries or with entries."""
        entries, own = LocalEntries(self._recipe, self._store.snapshot), None
        if signals is None:
            chosen = self.queries(entries.snapshot, 1)
            signals, own = chosen.signals, chosen.own_ids
        wanted = k + (own is not None)
        found = search(signals, wanted, recall=recall)
        exact = search(signals, wanted).ids if found.recall_of == "codes" else self._exact_ids(entries, signals, wanted)
        return RecallCheck.of_search(found, exact, None if own is None else entries.user_ids(own), k=k, asked=recall)

    def _exact_ids(self, entries: LocalEntries, queries: Array, k: int) -> Ids:
        """Return the ids of the exact neighbours of queries, by kept originals, (n_queries, k)."""
        snapshot, k = entries.snapshot, min(k, len(entries))
        rows = entries.originals().best_rows(snapshot, queries, k, metric=self._recipe.metric)
        return entries.user_ids(snapshot.gather("ids", rows.ravel()).astype(np.int64)).reshape(rows.shape)

    def search(
        self, whole: EntrySet, entries: EntrySet, *, k: int, recall: float | None, probes: int | None
    ) -> RegionSearch:
        """Return the search that visits regions of these entries."""
        if recall is not None:
            recall = check_real(recall, "recall", minimum=0, maximum=1)
            if not 0 < recall < 1:
                raise ValueError(f"recall must lie in (0, 1), got {recall}; search without it to compare all entries")
        known = self.calibration(whole.tables)
        has_originals = self._store.originals is not None
        of_signals = recall is not None and has_originals and (known is None or known.of_signals)
        return RegionSearch(
            self._recipe,
            entries,
            self.regions(whole.tables),
            known,
            whole.originals() if of_signals else None,
            k,
            recall,
            None if probes is None else check_count(probes, "probes"),
            is_filtered=entries is not whole,
        )


@dataclass(frozen=True, eq=False)
class CalibrationQueries:
    """Queries that recall is calibrated with."""

    signals: Array
    own_ids: Int64 | None  # internal ids, if they are signals of entries
    exact: bool  # whether recall is to be of exact neighbours

    @property
    def left_out(self) -> Int64:
        """Ids of entries that must not train the regions."""
        return np.empty(0, np.int64) if self.own_ids is None else self.own_ids

    @classmethod
    def of_entries(
        cls,
        recipe: Recipe,
        snapshot: Snapshot,
        *,
        seed: int,
        exact: bool,
    ) -> CalibrationQueries:
        """Return entries as queries: kept signals, else decoded codes."""
        rng = np.random.default_rng([seed, 1])
        most = max(1, len(snapshot) // 4)  # the others train the regions
        n_queries = min(most, n_calibration(snapshot, recipe.n_features, exact=exact))
        rows = sample_rows(snapshot, n_queries, rng)
        ids = snapshot.gather("ids", rows).astype(np.int64)
        kept = snapshot.signals(rows) if exact else None
        if kept is None:
            kept = queries_of(recipe, decoded_rows(recipe, snapshot, rows))
        return cls(kept, ids, exact)


def check_visits(recall: object, probes: object, *, whole_code: bool, rescore: object) -> None:
    """Raise ValueError for options of a search that do not go with a part of the entries."""
    if recall is not None and probes is not None:
        raise ValueError("give recall or probes, not both")
    if recall is not None and not whole_code:
        raise ValueError(
            'recall is calibrated for scoring="asymmetric" without adaptive_bits; leave recall=None with others'
        )
    if rescore is not None and rescore is not False:
        raise ValueError("rescore does not go with recall, which uses kept originals as it requires")


class _Steps:
    """Parts of a progress bar of 100."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    def part(self, begin: int, end: int) -> Progress:
        def report(done: int, total: int) -> None:
            if self._progress is not None:
                self._progress(begin + (end - begin) * done // max(1, total), 100)

        return report
