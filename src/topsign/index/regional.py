"""Regions and recall of one index: read from its store, learned, and checked."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from .._arrays import Array, Bytes, Float32, Float64, Int64
from ..errors import StorageError
from ..families import Recipe
from ..search import (
    MIN_RECALL_QUERIES,
    KeptOriginals,
    RecallCalibration,
    Regions,
    calibrate_recall,
    decoded_rows,
    learn_regions,
    n_calibration,
    queries_of,
    sample_rows,
)
from ..store import Change, Snapshot, Table

REGIONS, RECALL = "regions", "recall"
"""Names of tables in a store."""

DUE_GROWTH = 4
"""Regions should be learned again when an index has grown by this factor."""

Progress = Callable[[int, int], None]
Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class RegionSummary:
    """What regions an index has."""

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


class Regional:
    """Regions of an index with one recipe; tables are parsed once."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._known: dict[str, tuple[Table, Regions | RecallCalibration]] = {}

    def regions(self, tables: Mapping[str, Table], path: str | None) -> Regions | None:
        """Return the regions in a store, None if there are none."""
        n_features = self._recipe.n_features
        return self._parsed(tables, REGIONS, path, lambda table: Regions.from_table(table, n_features))

    def calibration(self, tables: Mapping[str, Table], path: str | None) -> RecallCalibration | None:
        """Return the calibration of recall in a store, None if there is none for the regions."""
        regions = self.regions(tables, path)
        found = self._parsed(tables, RECALL, path, RecallCalibration.from_table)
        if regions is None or found is None or found.generation != regions.generation:
            return None
        if found.path[-1] > len(regions):
            raise StorageError(path or "memory", RECALL, f"damaged: visits {found.path[-1]} of {len(regions)} regions")
        return found

    def _parsed(
        self, tables: Mapping[str, Table], name: str, path: str | None, parse: Callable[[Table], Parsed]
    ) -> Parsed | None:
        table = tables.get(name)
        if table is None:
            return None
        known = self._known.get(name)
        if known is None or known[0] is not table:
            try:
                made = parse(table)
            except ValueError as error:
                raise StorageError(path or "memory", name, f"damaged: {error}") from None
            self._known[name] = known = table, made  # type: ignore[assignment]
        return known[1]  # type: ignore[return-value,index]

    def assigned(
        self, tables: Mapping[str, Table], path: str | None
    ) -> Callable[[Bytes, Mapping[str, Float32]], dict[str, Array]]:
        """Return what computes the region column of new entries: none if there are no regions."""
        regions = self.regions(tables, path)

        def assign(codes: Bytes, columns: Mapping[str, Float32]) -> dict[str, Array]:
            return {} if regions is None else {REGIONS: regions.assign_codes(self._recipe, codes, columns)}

        return assign

    def learn(
        self,
        change: Change,
        n_regions: int,
        queries: CalibrationQueries,
        *,
        seed: int,
        n_threads: int | None,
        progress: Progress | None,
    ) -> None:
        """Learn regions, assign all entries to them, and calibrate recall, in one change."""
        steps = _Steps(progress)
        regions = learn_regions(
            self._recipe,
            change.snapshot,
            n_regions,
            left_out=change.snapshot.locate(queries.left_out),
            generation=secrets.randbits(62),
            seed=seed,
            progress=steps.part(0, 40),
        )
        change.add_extras(self._assignments(regions, change.snapshot, steps.part(40, 80)))
        change.tables[REGIONS] = regions.to_table()
        self.calibrate(change, regions, queries, n_threads=n_threads, progress=steps.part(80, 100))

    def _assignments(self, regions: Regions, snapshot: Snapshot, progress: Progress) -> list[dict[str, Array]]:
        found = []
        for number, segment in enumerate(snapshot.segments):
            columns = {name: segment.columns.column(name) for name in self._recipe.column_names}
            found.append({REGIONS: regions.assign_codes(self._recipe, segment.codes, columns)})
            progress(number + 1, len(snapshot.segments))
        return found

    def calibrate(
        self,
        change: Change,
        regions: Regions,
        queries: CalibrationQueries,
        *,
        n_threads: int | None,
        progress: Progress | None,
    ) -> None:
        """Calibrate recall with these queries."""
        learned = calibrate_recall(
            self._recipe,
            change.snapshot,
            regions,
            queries.signals,
            own_ids=queries.own_ids,
            originals=queries.originals,
            n_threads=n_threads,
            progress=progress,
        )
        change.tables[RECALL] = learned.to_table()


@dataclass(frozen=True, eq=False)
class CalibrationQueries:
    """Queries that recall is calibrated with."""

    signals: Array
    own_ids: Int64 | None  # internal ids, if they are signals of entries
    originals: KeptOriginals | None  # if recall is to be of exact neighbours

    @property
    def left_out(self) -> Int64:
        """Ids of entries that must not train the regions."""
        return np.empty(0, np.int64) if self.own_ids is None else self.own_ids

    @classmethod
    def of_entries(
        cls,
        recipe: Recipe,
        snapshot: Snapshot,
        sample: tuple[Array, Int64] | None,
        originals: KeptOriginals | None,
        *,
        seed: int,
    ) -> CalibrationQueries:
        """Return entries as queries: kept signals, else signals that were added lately, else decoded codes."""
        rng = np.random.default_rng([seed, 1])
        most = max(1, len(snapshot) // 4)  # the others train the regions
        n_queries = min(most, n_calibration(snapshot, recipe.n_features, exact=originals is not None))
        if originals is None and sample is not None:
            signals, ids = sample
            known = np.flatnonzero(ids >= 0)[:most]
            if len(known) >= MIN_RECALL_QUERIES:
                return cls(signals[known], ids[known], None)
        rows = sample_rows(snapshot, n_queries, rng)
        ids = snapshot.gather("ids", rows).astype(np.int64)
        kept = None if originals is None else snapshot.signals(rows)
        if kept is None:
            kept = queries_of(recipe, decoded_rows(recipe, snapshot, rows))
        return cls(kept, ids, originals)


def check_visits(recall: object, probes: object, *, whole_code: bool, rescore: object) -> None:
    """Raise ValueError for options of a search that do not go with a part of the entries."""
    if recall is not None and probes is not None:
        raise ValueError("give recall or probes, not both: what to reach, or how much to visit")
    if recall is not None and not whole_code:
        raise ValueError('recall is calibrated for scoring="asymmetric" without adaptive_bits; give probes instead')
    if rescore is not None and rescore is not False:
        raise ValueError("rescore does not go with recall or probes; kept originals are used as recall requires")


class _Steps:
    """Parts of a progress bar of 100."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    def part(self, begin: int, end: int) -> Progress:
        def report(done: int, total: int) -> None:
            if self._progress is not None:
                self._progress(begin + (end - begin) * done // max(1, total), 100)

        return report


def mean_interval(values: Float64) -> tuple[float, float]:
    """Return the 95% interval of a mean over queries."""
    half = 1.96 * float(values.std()) / np.sqrt(max(1, len(values)))
    mean = float(values.mean()) if len(values) else float("nan")
    return max(0.0, mean - half), min(1.0, mean + half)
