"""Entries on a cluster: workers hold and scan the segments; only queries and results are transferred."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from distributed import Future

from .._arrays import Array, Bytes, Float64, Int64
from .._checks import check_ids, raise_unknown_ids
from ..families import Recipe
from ..index.entries import Entries, Ids, LocalEntries, as_texts, check_asked, check_found
from ..index.filters import KnownFields, Where, check_fields, known_fields, parse_where, passing
from ..search.engine import Hits
from ..search.pairs import EqualCodes, PairLimit, Reduced, compare_entries
from ..search.query_block import QueryBlock, RangeLimit
from ..search.regions import RegionOrder, RegionVisits
from ..store.memory import Table
from ..store.segments import Note, Segment, Snapshot, merge_segments, parse_notes, take_positions
from ..store.versions import SegmentRecord
from .cluster import send
from .placement import Placement

TRAVELLING_BYTES = 2**20
"""Codes transferred per block when entries are compared with each other."""

INLINE_BYTES = 2**16
"""Size up to which a message is part of the task of every worker, which saves a step of the scheduler."""


@dataclass(frozen=True, eq=False)
class ClusterEntries:
    """Entries of one version on the workers, or the subset that a search considers."""

    recipe: Recipe
    sent: Future  # the recipe
    placement: Placement
    snapshot: Snapshot  # the same version in this process: sizes, and which entries are alive
    tables: Mapping[str, Table]  # of the same version
    n_entries: int
    internal_ids: Int64 | None = None  # ids that passed the filter, ascending; None: all
    where: Where | None = None
    derived: dict[RegionOrder, Int64 | None] = field(default_factory=dict)  # entries of each region, once counted

    @property
    def has_text_ids(self) -> bool | None:
        return self.snapshot.has_text_ids

    def __len__(self) -> int:
        return self.n_entries

    def _ask(self, task: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Run a task on all workers with the filter, the segments they hold and the ids of the filter."""
        internal_ids = None if self.internal_ids is None else send(self.placement.client, self.internal_ids)
        return self.placement.ask(partial(task, self.where), internal_ids, *arguments)

    # Choosing

    def filtered(self, among: npt.ArrayLike | None, where: Where | None, *, gather: bool = True) -> ClusterEntries:
        if among is None and where is None:
            return self
        if where is not None:
            parse_where(where)
        internal_ids = None if among is None else np.unique(self._find(among, "among"))
        made = replace(self, internal_ids=internal_ids, where=where, derived={})
        answers = made._ask(_count)
        if internal_ids is not None:
            missing = np.setdiff1d(internal_ids, np.concatenate([np.empty(0, np.int64), *(one[1] for one in answers)]))
            if missing.size:
                given = check_ids(among, "among")
                raise_unknown_ids(given[np.isin(given, missing)], "among")
        if where is not None and len(self):
            check_fields(where, set().union(*(one[2] for one in answers)))
        return replace(made, n_entries=sum(one[0] for one in answers))

    def _find(self, ids: npt.ArrayLike, name: str) -> Int64:
        """Return internal ids; an unknown text id raises, an unknown integer does not."""
        asked = check_asked(ids, self.has_text_ids, name)
        if not isinstance(asked, list):
            return asked
        known = dict(pair for answer in self._ask(_find_text_ids, asked) for pair in answer)
        check_found(asked, [one in known for one in asked], name)
        return np.array([known[one] for one in asked], np.int64)

    def sample(self, n_entries: int, rng: np.random.Generator) -> Snapshot:
        """Fetch the same random entries that a single machine would draw."""
        if self.internal_ids is not None or self.where is not None:
            return self._fetch(rng.choice(self._all_ids(), n_entries, replace=False))
        rows = np.sort(self.snapshot.draw(n_entries, rng))
        owners = np.searchsorted(self.snapshot.starts, rows, side="right") - 1
        names = list(self.placement.records)
        wanted = {names[owner]: rows[owners == owner] - self.snapshot.starts[owner] for owner in np.unique(owners)}
        found = self.placement.ask(_take_positions, send(self.placement.client, wanted), names=wanted.keys())
        return Snapshot(tuple(segment for part in found for segment in part))

    # Searching

    def nearest(self, scan: QueryBlock, k: int) -> Hits:
        return Hits.merge(self._call("nearest", scan, k), k=k)

    def within(self, scan: QueryBlock, limit: RangeLimit) -> Hits:
        return Hits.merge(self._call("within", scan, limit))

    def _call(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of :class:`LocalEntries` with the filtered entries that each worker holds."""
        answers = self._ask(partial(_call_entries, method), self.sent, self._message(arguments))
        return [answer for (answer,) in answers]

    def _message(self, value: Any) -> bytes | Future:
        """Return a value pickled without the recipe, which workers hold; as a future if it is large."""
        message = pack(value, self.recipe)
        return message if len(message) <= INLINE_BYTES else send(self.placement.client, message)

    def region_counts(self, order: RegionOrder) -> Int64 | None:
        if order not in self.derived:
            parts = self._call("region_counts", order)
            self.derived[order] = None if any(part is None for part in parts) else np.sum(parts, axis=0)
        return self.derived[order]

    def local_regions(self, order: RegionOrder) -> None:
        return None

    def visit(self, scan: QueryBlock, visits: RegionVisits, k: int) -> Hits:
        return Hits.merge(self._call("visit", scan, visits, k), k=k)

    def nearest_signals(self, scan: QueryBlock, queries: Array, which: Int64, k: int) -> Hits:
        parts = self._call("nearest_signals", scan, np.asarray(queries), which, k)
        return Hits.joined(parts).ordered_by_score().first(k)

    def distances(self, scan: QueryBlock, hits: Hits) -> Float64:
        return hits.distances  # workers send them with the hits

    def equal_codes(self, limit: PairLimit) -> EqualCodes:
        """Return entries with equal codes; workers compare their codes without transferring them."""
        return EqualCodes.joined(self._call("equal_codes", limit))

    def compared(
        self, limit: PairLimit, equal: EqualCodes, reduce: Callable[[Iterable[Hits]], Reduced]
    ) -> Iterator[tuple[int, Reduced]]:
        on_worker = reduce if limit.k is None else partial(Hits.merge, k=limit.k)
        sent, left_out = send(self.placement.client, (limit, equal, on_worker)), send(self.placement.client, equal)
        n_rows = max(1, TRAVELLING_BYTES // self.recipe.code_bytes)
        for names, rows in travelling_blocks(self.placement.records.values(), n_rows):
            parts = self.placement.ask(partial(_cut, rows), left_out, names=names)
            block = [segment for part in parts for segment in part]
            if block:
                found = self._ask(_compare, sent, send(self.placement.client, block))
                if limit.k is not None:  # the k best on all workers
                    found = [reduce([Hits.merge(found, k=limit.k)])]
                yield sum(map(len, block)), found[0]
                yield from ((0, one) for one in found[1:])

    # Entries by their ids

    @property
    def ids(self) -> Ids:
        return self.user_ids(self._all_ids())

    def _all_ids(self) -> Int64:
        """Return the internal ids of the filtered entries, ascending."""
        return np.sort(np.concatenate([np.empty(0, np.int64), *self._ask(_ids)]))

    def __contains__(self, id: object) -> bool:
        try:
            found = self._fetch(self._internal_ids([id.encode()] if isinstance(id, str) else check_ids([id])))
        except (TypeError, ValueError, OverflowError):
            return False
        return id in LocalEntries(self.recipe, found)

    def get(self, ids: npt.ArrayLike) -> Entries:
        internal_ids = self._internal_ids(check_asked(ids, self.has_text_ids, "ids"))
        return LocalEntries(self.recipe, self._fetch(internal_ids)).get(ids)

    def _internal_ids(self, asked: Int64 | list[bytes]) -> Int64:
        """Return internal ids of texts that entries have, or the integers themselves."""
        if not isinstance(asked, list):
            return asked
        return np.array([id for part in self._ask(_find_text_ids, asked) for _, id in part], np.int64)

    def codes_of(self, ids: Int64) -> Bytes:
        found = self._fetch(ids)
        return found.gather("codes", found.locate(ids))

    def originals(self) -> ClusterSignals:
        return ClusterSignals(self)

    def user_ids(self, ids: Int64) -> Ids:
        if not self.has_text_ids:
            return ids
        known = ids >= 0
        named = self._texts("text_ids", ids[known])
        out = np.full(ids.shape, None, object)
        out[known] = as_texts(named[id] for id in ids[known].tolist())
        return out

    def notes(self, ids: Int64) -> list[Note]:
        texts = self._texts("texts", ids)
        return parse_notes(texts.get(id, b"") for id in ids.tolist())

    def _texts(self, method: str, ids: Int64) -> dict[int, Any]:
        """Return the results of a method of snapshots by internal id."""
        return dict(pair for answer in self._by_id(partial(_texts_of_entries, method), ids) for pair in answer)

    def _fetch(self, internal_ids: Int64) -> Snapshot:
        """Return the entries with these internal ids, in this process; unknown ones are left out."""
        found = self._by_id(_take_entries, internal_ids)
        return Snapshot(tuple(segment for part in found for segment in part))

    def _by_id(self, task: Callable[..., Any], internal_ids: Int64) -> list[Any]:
        return self.placement.ask(task, send(self.placement.client, np.unique(internal_ids)))


@dataclass(frozen=True, eq=False)
class ClusterSignals:
    """Original signals of an index; workers compare those of their entries with queries."""

    entries: ClusterEntries

    @property
    def n_features(self) -> int:
        return self.entries.recipe.n_features

    def compare(self, hits: Hits, starts: Int64, queries: Array) -> tuple[Float64, Float64]:
        inner, correlations = np.full(len(hits), np.nan), np.full(len(hits), np.nan)
        asked = self.entries._message((hits.ids, starts, np.asarray(queries)))
        for rows, *found in self.entries.placement.ask(_compare_signals, self.entries.sent, asked):
            inner[rows], correlations[rows] = found
        return inner, correlations


def travelling_blocks(records: Collection[SegmentRecord], n_rows: int) -> Iterator[tuple[list[str], slice]]:
    """Names of segments and the rows of each that travel together, at most ``n_rows``: whole ones, or a part of one."""
    together, held = list[str](), 0
    for record in records:
        name, n_entries = record.file.name, record.file.entries
        if together and held + n_entries > n_rows:
            yield together, slice(0, n_rows)
            together, held = [], 0
        if n_entries > n_rows:
            for start in range(0, n_entries, n_rows):
                yield [name], slice(start, start + n_rows)
        else:
            together, held = [*together, name], held + n_entries
    if together:
        yield together, slice(0, n_rows)


# Tasks that run on workers


def _choose(segments: list[Segment], where: Where | None, internal_ids: Int64 | None) -> Snapshot:
    snapshot = Snapshot(tuple(segments))
    if internal_ids is None and where is None:
        return snapshot
    kept = np.ones(int(snapshot.starts[-1]), bool)
    if internal_ids is not None:
        rows = snapshot.locate(internal_ids)
        kept = snapshot.mask(rows[rows >= 0])
    return snapshot.where(kept if where is None else kept & passing(snapshot, where), gather=False)


def _ids(where: Where | None, segments: list[Segment], internal_ids: Int64 | None) -> Int64:
    return _choose(segments, where, internal_ids).ids


def _count(where: Where | None, segments: list[Segment], internal_ids: Int64 | None) -> tuple[int, Int64, KnownFields]:
    """Return the number of filtered entries, the internal ids found here, and the filter's fields found here."""
    snapshot = Snapshot(tuple(segments))
    here = np.empty(0, np.int64) if internal_ids is None else internal_ids[snapshot.locate(internal_ids) >= 0]
    fields: KnownFields = set() if where is None else known_fields(snapshot, where)
    return len(_choose(segments, where, internal_ids)), here, fields


def _call_entries(
    method: str,
    where: Where | None,
    segments: list[Segment],
    internal_ids: Int64 | None,
    recipe: Recipe,
    message: bytes,
) -> tuple[Any]:
    """Return what a method of the filtered entries returns; hits with their distances."""
    entries = LocalEntries(recipe, _choose(segments, where, internal_ids), whole=Snapshot(tuple(segments)))
    arguments = unpack(message, recipe)
    found = getattr(entries, method)(*arguments)
    if isinstance(found, Hits):
        found = replace(found, distances=entries.distances(arguments[0], found))
    return (found,)


def _compare_signals(segments: list[Segment], recipe: Recipe, message: bytes) -> tuple[Int64, Float64, Float64]:
    """Return the positions of ids held here, with inner products and correlations of their signals."""
    ids, starts, queries = unpack(message, recipe)
    snapshot = Snapshot(tuple(segments))
    rows = snapshot.locate(ids)
    here = np.flatnonzero(rows >= 0)
    originals, own = LocalEntries(recipe, snapshot).originals(), np.searchsorted(here, starts).astype(np.int64)
    return here, *originals.compare_entries(ids[here], rows[here], own, queries)


def _compare(
    where: Where | None,
    segments: list[Segment],
    internal_ids: Int64 | None,
    wanted: tuple[PairLimit, EqualCodes, Callable[[Iterable[Hits]], Reduced]],
    block: list[Segment],
) -> Reduced:
    """Compare a block with the entries held here; return the reduced pairs."""
    limit, equal, reduce = wanted
    snapshot = equal.left_out(_choose(segments, where, internal_ids))
    compared = compare_entries(Snapshot(tuple(block)), snapshot, limit, equal)
    return reduce(hits for _, hits in compared)


def _find_text_ids(
    where: Where | None, segments: list[Segment], internal_ids: Int64 | None, texts: Sequence[bytes]
) -> list[tuple[bytes, int]]:
    snapshot = _choose(segments, where, internal_ids)
    rows = snapshot.find_text_ids(texts)
    held = np.flatnonzero(rows >= 0)
    ids = snapshot.gather("ids", rows[held]).tolist()
    return [(texts[at], id) for at, id in zip(held.tolist(), ids, strict=True)]


def _texts_of_entries(method: str, segments: list[Segment], internal_ids: Int64) -> list[tuple[int, Any]]:
    """Return the internal ids found here, each with its text by a method of the snapshot."""
    snapshot = Snapshot(tuple(segments))
    rows = snapshot.locate(internal_ids)
    texts = getattr(snapshot, method)(rows[rows >= 0])
    return list(zip(internal_ids[rows >= 0].tolist(), texts, strict=True))


def _take_entries(segments: list[Segment], internal_ids: Int64) -> list[Segment]:
    """Return copies of entries with metadata and text ids."""
    parts = [segment.where(segment.living & np.isin(segment.ids, internal_ids)) for segment in segments]
    return [merge_segments([part]) for part in parts if part.n_alive]


def _take_positions(segments: list[Segment], wanted: dict[str, Int64]) -> list[Segment]:
    """Return copies of the entries at these positions by segment name, without metadata and text ids."""
    found = []
    for segment in segments:
        name = segment.columns.record.file.name  # type: ignore[union-attr]
        found.append(take_positions(segment, wanted[name]))
    return found


def _cut(rows: slice, segments: list[Segment], equal: EqualCodes) -> list[Segment]:
    """Return ids and codes of live entries among some rows of each segment; of equal codes only the first."""
    found = []
    for segment in equal.left_out(Snapshot(tuple(segments))).segments:
        positions = np.flatnonzero(segment.living[rows]) + rows.start
        found += [take_positions(segment, positions)] if positions.size else []
    return found


# Messages: pickled values without the recipe and its codebooks, which each worker holds once


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, recipe: Recipe) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._names = {id(value): name for name, value in _shared(recipe).items()}

    def persistent_id(self, value: object) -> str | None:
        return self._names.get(id(value))


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, recipe: Recipe) -> None:
        super().__init__(file)
        self._recipe = recipe

    def persistent_load(self, name: str) -> Any:
        held = _shared(self._recipe)
        if name not in held:
            raise pickle.UnpicklingError(f"a message names {name!r}, which workers do not hold")
        return held[name]


def pack(value: Any, recipe: Recipe) -> bytes:
    """Return a pickled value; :func:`unpack` puts the receiver's recipe where this one was."""
    file = io.BytesIO()
    _Packer(file, recipe).dump(value)
    return file.getvalue()


def unpack(message: bytes, recipe: Recipe) -> Any:
    """Return the value of a message."""
    return _Unpacker(io.BytesIO(message), recipe).load()


def _shared(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe and the object that scores its codes, of which the codebooks are a part."""
    return {"recipe": recipe} if recipe.scorer is None else {"recipe": recipe, "scorer": recipe.scorer}
