"""Entries of an index: their ids, the entries that ``get`` returns, and the sets that are searched."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Bytes, Float32, Float64, Int64
from .._checks import MAX_ID, check_ids, format_list, raise_unknown_ids
from ..codes import Codes
from ..families import Recipe
from ..kernels import OriginalRows
from ..search.engine import Hits
from ..search.originals import ExactSignals, KeptOriginals
from ..search.pairs import EqualCodes, PairedEntries, PairLimit, Reduced, compare_entries
from ..search.query_block import QueryBlock, RangeLimit
from ..search.recall import LocalRegions, RegionEntries
from ..search.regions import RegionOrder, RegionVisits
from ..store.memory import Change, Table
from ..store.segments import Note, Snapshot
from .filters import Where, select

MAX_NAME_BYTES = 512

Ids = npt.NDArray[Any]
"""Ids as users see them: int64, or texts (dtype object)."""


def are_texts(ids: object) -> bool:
    """Return whether these are text ids, or a single text id, judging by the first id."""
    if isinstance(ids, (str, bytes)):
        return True
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iub":
        return False
    if hasattr(ids, "to_list"):  # a column of pandas or Polars
        ids = ids.to_list()
    if isinstance(ids, (list, tuple)) and any(isinstance(one, str) for one in ids):
        return True
    first: Any = next(iter(ids), None) if hasattr(ids, "__iter__") and np.ndim(ids) else None  # type: ignore[arg-type]
    return isinstance(first, (str, bytes))


def check_text_ids(ids: Any, name: str = "ids") -> list[bytes]:
    """Return text ids in UTF-8."""
    given = [ids] if isinstance(ids, str) else list(ids)
    for row, one in enumerate(given):
        if not isinstance(one, str):
            kind = type(one).__name__
            raise TypeError(f"{name} must be all texts or all integers, got {one!r} of type {kind} at row {row}")
    texts = [str(one).encode(errors="surrogatepass") for one in given]
    for row, one in enumerate(texts):
        if given[row] != one.decode(errors="replace"):
            raise ValueError(f"{name} must be Unicode texts, got {given[row]!r} at row {row}")
        if not 1 <= len(one) <= MAX_NAME_BYTES:
            raise ValueError(
                f"{name} must be texts of 1 to {MAX_NAME_BYTES} bytes in UTF-8, got {len(one)} at row {row}"
            )
    return texts


def check_new_ids(ids: Any, n_entries: int) -> Int64 | list[bytes] | None:
    """Check ids of new entries, one per entry and all different; None if none are given."""
    if ids is None:
        return None
    given = check_text_ids(ids) if are_texts(ids) else check_ids(ids)
    if len(given) != n_entries:
        raise ValueError(f"ids must be one per signal, got {len(given)} ids for {n_entries} signals")
    if isinstance(given, list):
        twice = as_texts(one.decode() for one, count in Counter(given).items() if count > 1)
    else:
        unique, counts = np.unique(given, return_counts=True)
        twice = unique[counts > 1]
    if twice.size:
        raise ValueError(f"ids must differ, but {format_list(twice)} given more than once")
    return given


def check_asked(ids: Any, has_text_ids: bool | None, name: str) -> Int64 | list[bytes]:
    """Check ids that a user asks for; they are of the kind that the index has, but may be unknown."""
    if are_texts(ids):
        if has_text_ids is False:
            raise TypeError(
                f"the ids of this index are integers, got {name} of texts; list the ids of the index to see them"
            )
        return check_text_ids(ids, name)
    given = np.asarray(ids)
    if has_text_ids and given.size:
        what = "None" if ids is None else f"{name} of dtype {given.dtype}"
        raise TypeError(f"the ids of this index are texts, got {what}; list the ids of the index to see them")
    return check_ids(given[None] if given.ndim == 0 and ids is not None else given, name)


def check_found(asked: Int64 | list[bytes], found: Any, name: str) -> None:
    """Raise ValueError that lists the ids that were not found."""
    if not np.all(found):
        unknown = [one for one, known in zip(asked, found, strict=True) if not known]
        raise_unknown_ids(as_texts(one.decode() if isinstance(one, bytes) else one for one in unknown), name)


def ids_for(change: Change, ids: Int64 | list[bytes] | None, n_entries: int, *, replacing: bool) -> tuple[Int64, Int64]:
    """Return the internal ids of new entries, and the rows of the entries that they replace.

    Raises TypeError unless the ids are of the kind that the index has.
    """
    snapshot = change.snapshot
    if n_entries and snapshot.has_text_ids and not isinstance(ids, list):
        what = "no ids" if ids is None else "integers"
        raise TypeError(f"the ids of this index are texts, got {what}; give one text per signal with ids=")
    if n_entries and snapshot.has_text_ids is False and isinstance(ids, list):
        raise TypeError("the ids of this index are integers, got texts; one index has one kind of ids")
    if ids is None:
        return change.free_ids(n_entries), np.empty(0, np.int64)
    rows = snapshot.find_text_ids(ids) if isinstance(ids, list) else snapshot.locate(ids)
    is_held = rows >= 0
    if is_held.any() and not replacing:
        taken = user_ids(snapshot, np.sort(snapshot.gather("ids", rows[is_held])))
        raise ValueError(
            f"ids must be new, but {format_list(taken)} in the index already; upsert replaces entries, or choose others"
        )
    if not isinstance(ids, list):
        return ids, rows[is_held]
    numbers = np.empty(len(ids), np.int64)
    numbers[~is_held] = change.free_ids(int((~is_held).sum()))
    numbers[is_held] = snapshot.gather("ids", rows[is_held])
    return numbers, rows[is_held]


def as_texts(texts: Iterable[Any]) -> Any:
    """Return texts as an array of dtype object."""
    found = list(texts)
    out = np.empty(len(found), object)
    out[:] = found
    return out


def rows_of(snapshot: Snapshot, ids: npt.ArrayLike, name: str = "ids") -> Int64:
    """Return the rows of the entries with these ids; raise ValueError for an unknown id."""
    asked = check_asked(ids, snapshot.has_text_ids, name)
    rows = snapshot.find_text_ids(asked) if isinstance(asked, list) else snapshot.locate(asked)
    check_found(asked, rows >= 0, name)
    return rows


def user_ids(snapshot: Snapshot, ids: Int64) -> Ids:
    """Return the user's ids for internal ids; -1 becomes None if ids are texts."""
    if not snapshot.has_text_ids:
        return ids
    out = np.full(ids.shape, None, object)
    known = ids >= 0
    out[known] = snapshot.text_ids(snapshot.locate(ids[known]))
    return out


@dataclass(frozen=True, eq=False)
class Entry:
    """One entry of an index."""

    id: int | str  #: id of the entry
    code: Codes  #: a collection of one
    metadata: Note = None  #: A dict per entry, or None for an entry without metadata
    signal: Float32 | None = None  #: (n_features,), if the index keeps originals

    def __repr__(self) -> str:
        kept = "" if self.signal is None else f", signal of {len(self.signal)} features"
        return f"Entry(id={self.id!r}, metadata={self.metadata!r}, code of {self.code.data.shape[1]} bytes{kept})"


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries of an index, in the requested order."""

    ids: Any  #: (n_entries,) int64, or texts
    codes: Codes  #: codes to read
    metadata: list[Note]  #: metadata of each entry, None where it has none
    signals: Float32 | None = None  #: (n_entries, n_features), if the index keeps originals

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        shown = ", ".join([*map(repr, self.ids[:5].tolist()), *(["..."] if len(self) > 5 else [])])
        kept = "" if self.signals is None else f", signals of {self.signals.shape[1]} features"
        return f"Entries(ids=[{shown}], {len(self)} codes of {self.codes.data.shape[1]} bytes{kept})"

    def __getitem__(self, row: int) -> Entry:
        """Return the entry at this position."""
        at = range(len(self))[row]
        signal = None if self.signals is None else self.signals[at]
        return Entry(self.ids[at : at + 1].tolist()[0], self.codes[at : at + 1], self.metadata[at], signal)

    def __iter__(self) -> Iterator[Entry]:
        return (self[row] for row in range(len(self)))


class EntrySet(RegionEntries, PairedEntries, Protocol):
    """Entries of one version: a snapshot, or segments on a cluster.

    Internal ids are integers even if the user's ids are strings.
    """

    @property
    def has_text_ids(self) -> bool | None: ...
    def codes_of(self, ids: Int64) -> Bytes: ...
    def sample(self, n_entries: int, rng: np.random.Generator) -> Snapshot: ...

    @property
    def tables(self) -> Mapping[str, Table]:
        """Arrays of the whole index, of the same version."""

    @property
    def ids(self) -> Ids:
        """User's ids: ascending integers, or strings in the order of addition."""

    def __contains__(self, id: object) -> bool:
        """Return whether an entry has this id."""

    def get(self, ids: npt.ArrayLike) -> Entries:
        """Return codes and metadata of entries in the given order; unknown ids raise."""

    def filtered(self, among: npt.ArrayLike | None, where: Where | None, *, gather: bool = True) -> EntrySet:
        """Return the entries with ids in ``among`` whose metadata satisfy ``where``.

        Small subsets are gathered, unless they are searched by region.
        """

    def within(self, scan: QueryBlock, limit: RangeLimit) -> Hits:
        """Return all entries within a limit, with their scores."""

    def distances(self, scan: QueryBlock, hits: Hits) -> Float64:
        """Return the distances of hits."""

    def originals(self) -> ExactSignals:
        """Return the signals of the entries, of an index that keeps them."""

    def notes(self, ids: Int64) -> list[Note]:
        """Return the metadata of the entries with these internal ids."""


@dataclass(frozen=True, eq=False)
class LocalEntries:
    """Entries of a snapshot on this machine."""

    recipe: Recipe
    snapshot: Snapshot
    tables: Mapping[str, Table] = field(default_factory=dict)  # of the same version
    whole: Snapshot | None = None  # complete snapshot of these entries; gathered ones lack large columns

    @property
    def derived(self) -> dict[Any, Any]:
        """Cache of values computed from the snapshot."""
        return self.snapshot.derived

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
        known = not snapshot.has_text_ids and 0 <= wanted <= MAX_ID
        return known and bool(snapshot.locate(np.array([wanted]))[0] >= 0)

    def get(self, ids: npt.ArrayLike) -> Entries:
        recipe, snapshot = self.recipe, self.snapshot
        rows = rows_of(snapshot, ids)
        codes = snapshot.gather("codes", rows) if rows.size else np.empty((0, recipe.code_bytes), np.uint8)
        found = recipe.codes_type(codes, recipe=recipe, checked=True)
        internal = snapshot.gather("ids", rows).astype(np.int64)
        return Entries(self.user_ids(internal), found, snapshot.notes(rows), snapshot.signals(rows))

    def filtered(self, among: npt.ArrayLike | None, where: Where | None, *, gather: bool = True) -> LocalEntries:
        if among is None and where is None:
            return self
        chosen = [] if among is None else [self.snapshot.mask(rows_of(self.snapshot, among, "among"))]
        chosen += [] if where is None else [select(self.snapshot, where)]
        kept = self.snapshot.where(np.logical_and.reduce(chosen), gather=gather)
        return replace(self, snapshot=kept, whole=self.snapshot)

    def nearest(self, scan: QueryBlock, k: int) -> Hits:
        return scan.nearest(self.snapshot, k)

    def within(self, scan: QueryBlock, limit: RangeLimit) -> Hits:
        return scan.within(self.snapshot, limit)

    def distances(self, scan: QueryBlock, hits: Hits) -> Float64:
        return scan.distances(self.snapshot, hits)

    def equal_codes(self, limit: PairLimit) -> EqualCodes:
        return EqualCodes.none() if limit.k is not None else EqualCodes.find(self.snapshot)

    def compared(
        self, limit: PairLimit, equal: EqualCodes, reduce: Callable[[Iterable[Hits]], Reduced]
    ) -> Iterator[tuple[int, Reduced]]:
        snapshot = equal.left_out(self.snapshot)
        for n_compared, hits in compare_entries(snapshot, snapshot, limit, equal):
            yield n_compared, reduce([hits])

    def region_counts(self, order: RegionOrder) -> Int64 | None:
        found = order.codes(self.snapshot)
        return None if found is None else found[1]

    def local_regions(self, order: RegionOrder) -> LocalRegions | None:
        found = order.codes(self.snapshot)
        return None if found is None else LocalRegions(self.snapshot, found[0], self._original_rows())

    def _original_rows(self) -> OriginalRows | None:
        """Return the originals of all segments with entries; None if some have none."""
        known: OriginalRows | None = self.snapshot.derived.get("original_rows")
        if known is None and self.snapshot.has_originals:
            columns = [segment.columns for segment in self.snapshot.segments if segment.n_alive]
            lazily = [one.lazily("originals") for one in columns]
            pairs = [(values, one.extra("original_scales")) for one, (values, _) in zip(columns, lazily, strict=True)]
            blocks = [one for _, one in lazily]
            known = OriginalRows(pairs, self.recipe.metric == "inner_product", self.recipe.center, blocks)
            self.snapshot.derived["original_rows"] = known
        return known

    def visit(self, scan: QueryBlock, visits: RegionVisits, k: int) -> Hits:
        return scan.visit(self.snapshot, visits, k)

    def nearest_signals(self, scan: QueryBlock, queries: Array, which: Int64, k: int) -> Hits:
        return self.originals().nearest(self.snapshot, scan, queries, which, k)

    def originals(self) -> KeptOriginals:
        snapshot = self.snapshot if self.whole is None else self.whole
        return KeptOriginals(snapshot, self.snapshot, n_features=self.recipe.n_features, mean=self.recipe.center)

    def codes_of(self, ids: Int64) -> Bytes:
        return self.snapshot.gather("codes", self.snapshot.locate(ids))

    def user_ids(self, ids: Int64) -> Ids:
        return user_ids(self.snapshot, ids)

    def notes(self, ids: Int64) -> list[Note]:
        return self.snapshot.notes(self.snapshot.locate(ids))
