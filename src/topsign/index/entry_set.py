"""Sets of entries to search: a snapshot on this machine or on a cluster."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Bytes, Float64, Int64
from .._checks import MAX_ID
from ..families import Recipe
from ..search import (
    EqualCodes,
    ExactSignals,
    Hits,
    KeptOriginals,
    PairLimit,
    Population,
    RangeLimit,
    RegionEntries,
    RegionOrder,
    RegionVisits,
    Scan,
    compare_entries,
)
from ..store import Note, Snapshot
from .entries import Entries
from .filters import Where, select
from .ids import Ids, rows_of, user_ids

Reduced = TypeVar("Reduced")


class EntrySet(Population, RegionEntries, Protocol):
    """Entries of a snapshot. Internal ids are integers even if the user's ids are strings."""

    @property
    def ids(self) -> Ids:
        """User's ids: ascending integers, or strings in the order of addition."""

    def __contains__(self, id: object) -> bool:
        """Return whether an entry has this id."""

    def get(self, ids: npt.ArrayLike) -> Entries:
        """Return codes and metadata of entries in the given order; unknown ids raise."""

    def considered(self, among: npt.ArrayLike | None, where: Where | None) -> EntrySet:
        """Return the entries with ids in ``among`` whose metadata satisfy ``where``."""

    def within(self, scan: Scan, limit: RangeLimit) -> Hits:
        """Return all entries within a limit, with their scores."""

    def distances(self, scan: Scan, hits: Hits) -> Float64:
        """Return the distances of hits."""

    def equal_codes(self, limit: PairLimit) -> EqualCodes:
        """Return entries with equal codes, of which :meth:`compared` compares only the first."""

    def compared(
        self, limit: PairLimit, equal: EqualCodes, n_threads: int | None, reduce: Callable[[Iterable[Hits]], Reduced]
    ) -> Iterator[tuple[int, Reduced]]:
        """Compare each block of entries with all entries; yield its size and the reduced pairs."""

    def originals(self) -> ExactSignals:
        """Return the signals of the entries, of an index that keeps them."""

    def user_ids(self, ids: Int64) -> Ids:
        """Convert internal ids to the user's ids; -1 becomes None for text ids."""

    def notes(self, ids: Int64) -> list[Note]:
        """Return the metadata of the entries with these internal ids."""


@dataclass(frozen=True, eq=False)
class LocalEntries:
    """Entries of a snapshot on this machine."""

    recipe: Recipe
    snapshot: Snapshot
    whole: Snapshot | None = None  # complete snapshot of these entries; gathered ones lack large columns

    @property
    def has_text_ids(self) -> bool | None:
        return self.snapshot.has_text_ids

    def __len__(self) -> int:
        return len(self.snapshot)

    def sample(self, n_entries: int, rng: np.random.Generator) -> Snapshot:
        return self.snapshot.sample(n_entries, rng)

    @property
    def ids(self) -> Ids:
        return self.user_ids(self.snapshot.ids)

    def __contains__(self, id: object) -> bool:
        snapshot = self.snapshot
        if isinstance(id, str):
            return bool(snapshot.has_text_ids) and bool(snapshot.find_text_ids([id.encode()])[0] >= 0)
        try:
            wanted = operator.index(id)  # type: ignore[arg-type]
        except TypeError:
            return False
        if snapshot.has_text_ids:
            return False
        return 0 <= wanted <= MAX_ID and bool(snapshot.locate(np.array([wanted]))[0] >= 0)

    def get(self, ids: npt.ArrayLike) -> Entries:
        recipe, snapshot = self.recipe, self.snapshot
        rows = rows_of(snapshot, ids)
        codes = snapshot.gather("codes", rows) if rows.size else np.empty((0, recipe.code_bytes), np.uint8)
        found = recipe.codes_type.unchecked(codes, recipe)
        internal = snapshot.gather("ids", rows).astype(np.int64)
        return Entries(self.user_ids(internal), found, snapshot.notes(rows), snapshot.signals(rows))

    def considered(self, among: npt.ArrayLike | None, where: Where | None) -> LocalEntries:
        if among is None and where is None:
            return self
        chosen = [] if among is None else [self.snapshot.mask(rows_of(self.snapshot, among, "among"))]
        chosen += [] if where is None else [select(self.snapshot, where)]
        return replace(self, snapshot=self.snapshot.where(np.logical_and.reduce(chosen)), whole=self.snapshot)

    def nearest(self, scan: Scan, k: int) -> Hits:
        return scan.nearest(self.snapshot, k)

    def within(self, scan: Scan, limit: RangeLimit) -> Hits:
        return scan.within(self.snapshot, limit)

    def distances(self, scan: Scan, hits: Hits) -> Float64:
        return scan.distances(self.snapshot, hits)

    def equal_codes(self, limit: PairLimit) -> EqualCodes:
        return EqualCodes.none() if limit.k is not None else EqualCodes.find(self.snapshot)

    def compared(
        self, limit: PairLimit, equal: EqualCodes, n_threads: int | None, reduce: Callable[[Iterable[Hits]], Reduced]
    ) -> Iterator[tuple[int, Reduced]]:
        snapshot, threads = equal.left_out(self.snapshot), kernels.n_threads(n_threads)
        for n_compared, hits in compare_entries(snapshot, snapshot, limit, equal, threads):
            yield n_compared, reduce([hits])

    def region_counts(self, order: RegionOrder) -> Int64 | None:
        return order.counts(self.snapshot)

    def visit(self, scan: Scan, visits: RegionVisits, k: int) -> Hits:
        return scan.visit(self.snapshot, visits, k)

    def nearest_signals(self, scan: Scan, queries: Array, which: Int64, k: int) -> Hits:
        return self.originals().nearest(self.snapshot, scan, queries[which], which, k)

    def originals(self) -> KeptOriginals:
        snapshot = self.snapshot if self.whole is None else self.whole
        return KeptOriginals(snapshot, self.snapshot, n_features=self.recipe.n_features, mean=self.recipe.center)

    def codes_of(self, ids: Int64) -> Bytes:
        return self.snapshot.gather("codes", self.snapshot.locate(ids))

    def user_ids(self, ids: Int64) -> Ids:
        return user_ids(self.snapshot, ids)

    def notes(self, ids: Int64) -> list[Note]:
        return self.snapshot.notes(self.snapshot.locate(ids))
