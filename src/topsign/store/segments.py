"""Segments: immutable columns of entries, and snapshots, which are lists of segments."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Booleans, Bytes, Float32, Int64
from .._files import parse_json
from .._lazy import lazy
from ..errors import StorageError
from ..kernels import CodeBlocks, LazyBlocks

if TYPE_CHECKING:
    from .stored_columns import StoredColumns

EXTRA_FILES = {"originals": ("originals", "original_scales"), "regions": ("regions",)}
"""Columns of each extra file of a segment."""

EXTRA_COLUMNS = {column: file for file, columns in EXTRA_FILES.items() for column in columns}
"""Extra file of each column."""

ORIGINAL_TYPES = ("float32", "float16", "int8")
"""Types of kept originals."""

EXTRA_TYPES = {"originals": ORIGINAL_TYPES, "original_scales": ("float32",), "regions": ("uint16",)}
"""Permitted types of each extra column."""

_HALF_RANGE = (2.0**-6, 2.0**15)  # range of a signal's largest magnitude for which float16 needs no scale


def pack_originals(signals: Float32, kind: str) -> dict[str, Array]:
    """Convert signals to values of type ``kind`` and a scale for each signal.

    A signal is its values times its scale. Scales are 1 for float32, powers of two for float16 (1 unless the largest
    magnitude is far from 1), and a 127th of the largest magnitude for int8.
    """
    peaks = np.abs(signals).max(axis=1, initial=0).astype(np.float64)
    scales: npt.NDArray[np.float64] = np.ones(len(signals))
    if kind == "float16":
        outside = (peaks > 0) & ((peaks < _HALF_RANGE[0]) | (peaks > _HALF_RANGE[1]))
        scales[outside] = np.exp2(np.floor(np.log2(peaks[outside])))
    elif kind == "int8":
        scales = np.where(peaks > 0, peaks / 127, 1.0)
    scaled = scales.astype(np.float32)
    values = signals / scaled[:, np.newaxis] if kind != "float32" else signals
    if kind == "int8":
        values = np.rint(values).clip(-127, 127)
    return {"originals": np.ascontiguousarray(values, dtype=kind), "original_scales": scaled}


def unpack_originals(values: Array, scales: Float32) -> Float32:
    """Reconstruct the signals of :func:`pack_originals`, within the precision of their type."""
    signals = values.astype(np.float32)
    return signals if values.dtype == np.float32 else signals * scales[:, np.newaxis].astype(np.float32)


Hashes = npt.NDArray[np.uint64]

Note = dict[str, Any] | None
"""Metadata of one entry: a JSON object, or None."""


@dataclass(frozen=True, eq=False)
class Texts:
    """Concatenated texts of consecutive entries in UTF-8."""

    prefix: ClassVar[str]  #: of the names of its columns in files
    types: ClassVar[dict[str, str]] = {"starts": "<i8", "text": "|u1"}

    starts: Int64  # (n_entries + 1,) where each text begins
    text: Bytes

    @property
    def nbytes(self) -> int:
        return self.starts.nbytes + self.text.nbytes

    def texts(self, rows: Sequence[int] | Int64) -> list[bytes]:
        """Return the texts of these entries."""
        at, text = np.asarray(rows, np.int64), self.text.data
        begins, ends = self.starts[at].tolist(), self.starts[at + 1].tolist()
        return [bytes(text[begin:end]) for begin, end in zip(begins, ends, strict=True)]

    @property
    def problem(self) -> str | None:
        """Return the problem of stored texts with correct checksums, or None."""
        if self.starts[0] != 0 or self.starts[-1] != len(self.text) or (np.diff(self.starts) < 0).any():
            return "the starts of its texts must ascend from 0 to the end"
        return None


@dataclass(frozen=True, eq=False)
class Metadata(Texts):
    """JSON texts, empty for an entry without metadata."""

    prefix: ClassVar[str] = "metadata"

    @classmethod
    def of(cls, texts: Iterable[bytes]) -> Metadata:
        return cls(*_joined(list(texts)))

    def replaced(self, rows: Int64, texts: Metadata) -> Metadata:
        """Return the texts with those of these ascending rows replaced."""
        lengths = np.diff(self.starts)
        lengths[rows] = np.diff(texts.starts)
        pieces, end = [], 0
        for row, start, stop in zip(rows.tolist(), texts.starts[:-1].tolist(), texts.starts[1:].tolist(), strict=True):
            pieces += [self.text[end : self.starts[row]], texts.text[start:stop]]
            end = int(self.starts[row + 1])
        return Metadata(np.concatenate([[0], np.cumsum(lengths)]), np.concatenate([*pieces, self.text[end:]]))


@dataclass(frozen=True, eq=False)
class TextIds(Texts):
    """Text ids, with 20 bytes per entry in addition to the text."""

    prefix: ClassVar[str] = "text_ids"
    types: ClassVar[dict[str, str]] = {"starts": "<i8", "hashes": "<u8", "order": "<i4", "text": "|u1"}

    hashes: Hashes  # (n_entries,) ascending
    order: npt.NDArray[np.int32]  # (n_entries,) the entry of each hash

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> TextIds:
        hashes = hash_text_ids(texts)
        order = np.argsort(hashes, kind="stable")
        return cls(*_joined(texts), hashes[order], order.astype(np.int32))

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.hashes.nbytes + self.order.nbytes

    def find(self, texts: Sequence[bytes], hashes: Hashes) -> list[tuple[int, int]]:
        """Return pairs (position in ``texts``, entry) of the text ids found here; equal hashes are verified."""
        found, n_entries = [], len(self.hashes)
        positions = np.argsort(hashes, kind="stable")  # sorted for locality of reads
        slots = np.searchsorted(self.hashes, hashes[positions])
        while positions.size:  # repeated only if texts share a hash
            here = np.flatnonzero(slots < n_entries)
            here = here[self.hashes[slots[here]] == hashes[positions[here]]]
            positions, slots = positions[here], slots[here]
            rows = self.order[slots]
            for position, row, text in zip(positions.tolist(), rows.tolist(), self.texts(rows), strict=True):
                if text == texts[position]:
                    found.append((position, row))
            slots = slots + 1
        return found

    @property
    def problem(self) -> str | None:
        if problem := super().problem:
            return problem
        if (self.hashes[1:] < self.hashes[:-1]).any():
            return "the hashes of its text ids must ascend"
        if not _is_permutation(self.order):
            return "the order of its text ids must be a permutation of the entries"
        if not np.diff(self.starts).all() or (self.text[self.starts[:-1]] & 0xC0 == 0x80).any():
            return "a text id is empty or begins within a character"
        try:
            self.text.tobytes().decode()
        except UnicodeDecodeError as error:
            return f"its text ids are not UTF-8: {error.reason}"
        return None


def hash_text_ids(texts: Iterable[bytes]) -> Hashes:
    """Return the first 8 bytes of the BLAKE2b digest of each text."""
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, "<u8")


def parse_notes(texts: Iterable[bytes]) -> list[Note]:
    """Parse JSON objects, None for an empty text; raise StorageError for anything else."""
    try:
        notes = [parse_json(text) if text else None for text in texts]
        if not all(note is None or isinstance(note, dict) for note in notes):
            raise ValueError("a JSON object expected")
        return notes
    except ValueError as error:
        raise StorageError("index", "metadata", f"damaged: {error}; restore the file from a copy") from None


def _joined(texts: Sequence[bytes]) -> tuple[Int64, Bytes]:
    """Return where each text begins, and all texts as one."""
    starts = np.fromiter(accumulate(map(len, texts), initial=0), np.int64, len(texts) + 1)
    return starts, np.frombuffer(b"".join(texts), np.uint8)


def _is_permutation(order: npt.NDArray[np.int32]) -> bool:
    """Return whether the array is a permutation of range(len(array)), without sorting."""
    if order.min(initial=0) < 0 or order.max(initial=-1) >= len(order):
        return False
    seen = np.zeros(len(order), bool)
    seen[order] = True
    return bool(seen.all())


MERGED_ENTRIES = 65_536
"""Maximum size of merged segments, which bounds the copying per addition."""

METADATA_BYTES = 2**28
"""Maximum bytes of metadata in a segment of several entries."""


Columns: TypeAlias = "Arrays | StoredColumns"
"""Immutable columns of entries: in memory, or in the files of a segment."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """Columns in memory. Stored ones have the same properties and methods."""

    ids: Int64  # in ascending order within a region, so that ties by position are ties by id
    codes: CodeBlocks
    metadata: Metadata | None = None
    text_ids: TextIds | None = None
    extras: Mapping[str, Array] = field(default_factory=dict)  # columns that a folder stores in separate files
    derived: dict[str, Any] = field(default_factory=dict)  # values computed from the columns, kept as long as they are

    @classmethod
    def of(
        cls,
        ids: Int64,
        codes: Bytes,
        texts: list[bytes] | None = None,
        text_ids: list[bytes] | None = None,
        extras: Mapping[str, Array] | None = None,
    ) -> Arrays:
        """Return the columns of entries, from rows of codes and texts."""
        metadata = Metadata.of(texts) if texts and any(texts) else None
        named = None if text_ids is None else TextIds.of(text_ids)
        return cls(ids, CodeBlocks.of(codes), metadata, named, extras or {})

    def __len__(self) -> int:
        return len(self.ids)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the columns without cached values."""
        return vars(self) | {"derived": {}}

    @property
    def extra_names(self) -> tuple[str, ...]:
        """Names of the columns in separate files."""
        return tuple(self.extras)

    @property
    def has_text_ids(self) -> bool:
        """Whether entries have text ids."""
        return self.text_ids is not None

    def extra(self, name: str) -> Array:
        """Return a column that is stored in a separate file."""
        return self.extras[name]

    def lazily(self, name: str) -> tuple[Array, LazyBlocks | None]:
        """Return such a column, and its blocks if they are not read and verified until they are needed."""
        return self.extras[name], None

    def rows(self, name: str, positions: Int64) -> Array:
        """Return the values of a column at these positions; codes as rows, (n, code_bytes)."""
        if name == "codes":
            return self.codes.rows(positions)
        return (self.ids if name == "ids" else self.extras[name])[positions]

    def with_metadata(self, rows: Int64, texts: Sequence[bytes]) -> Arrays:
        """Return the columns with the metadata of these ascending rows replaced."""
        before = self.metadata or Metadata.of(len(self) * [b""])
        return replace(self, metadata=before.replaced(rows, Metadata.of(texts)))

    @property
    def sizes(self) -> Counter[str]:
        """Bytes by content: codes with the unused lanes of the last block, ids, metadata, text ids, extra columns."""
        held: dict[str, Any] = {
            "ids": self.ids,
            "codes": self.codes.planes,
            "metadata": self.metadata,
            "text_ids": self.text_ids,
        }
        found = Counter({name: column.nbytes for name, column in held.items() if column is not None})
        for name, extra in self.extras.items():
            found[EXTRA_COLUMNS[name]] += extra.nbytes
        return found


@dataclass(frozen=True, eq=False)
class Segment:
    """Immutable entries, with a bitmap of those that are alive."""

    columns: Columns
    alive: Bytes | None = None  # packed bitmap of live entries; None if all are alive

    def __len__(self) -> int:
        """Number of entries, including removed ones."""
        return len(self.columns)

    @property
    def ids(self) -> Int64:
        return self.columns.ids

    @property
    def codes(self) -> CodeBlocks:
        return self.columns.codes

    @lazy
    def n_alive(self) -> int:
        return len(self) if self.alive is None else int(np.bitwise_count(self.alive).sum())

    @property
    def nbytes(self) -> int:
        """Bytes of all columns except originals, which searches read from files."""
        sizes = self.columns.sizes
        return sizes.total() - sizes["originals"]

    @property
    def living(self) -> npt.NDArray[np.bool_]:
        """Whether each entry is alive."""
        if self.alive is None:
            return np.ones(len(self), bool)
        return np.unpackbits(self.alive, count=len(self), bitorder="little").view(bool)

    def where(self, living: npt.NDArray[np.bool_]) -> Segment:
        """Return the segment with only these entries alive."""
        return replace(self, alive=None if living.all() else np.packbits(living, bitorder="little"))

    @property
    def is_ascending(self) -> bool:
        """Whether ids ascend; those of entries in the order of their regions do not."""
        derived = self.columns.derived
        if "ascending" not in derived:
            derived["ascending"] = bool((self.ids[1:] > self.ids[:-1]).all())
        return bool(derived["ascending"])

    @property
    def _places(self) -> tuple[int, Array, Array | None]:
        """Tables that find ids: least id, and positions; the latter of each id from the least, or of the sorted ids."""
        derived = self.columns.derived
        known: tuple[int, Array, Array | None] | None = derived.get("places")
        if known is None:
            ids, positions = self.ids, np.arange(len(self), dtype=np.int32)
            first, n_ids = int(ids.min()), int(ids.max()) - int(ids.min()) + 1
            if n_ids <= 4 * len(ids):
                table = np.full(n_ids, -1, np.int32)
                table[ids - first] = positions
                known = first, table, None
            else:
                order = positions if self.is_ascending else np.argsort(ids).astype(np.int32)
                known = first, order, ids[order]
            derived["places"] = known  # complete, because other threads may search at the same time
        return known

    def position(self, ids: Int64) -> Int64:
        """Return the position of each id, or -1 if it is absent or removed."""
        first, table, in_order = self._places
        if in_order is None:
            places = ids - first
            found = (places >= 0) & (places < len(table))
            positions = table[np.where(found, places, 0)].astype(np.int64)
            found &= positions >= 0
        else:
            positions = table[np.minimum(np.searchsorted(in_order, ids), len(table) - 1)].astype(np.int64)
            found = self.ids[positions] == ids
        if self.alive is not None:
            found &= (self.alive[positions >> 3] >> (positions & 7) & 1).astype(bool)
        return np.where(found, positions, -1)


def make_segments(
    ids: Int64,
    codes: Bytes,
    texts: list[bytes] | None = None,
    text_ids: list[bytes] | None = None,
    extras: Mapping[str, Array] | None = None,
) -> list[Segment]:
    """Return segments of new entries sorted by region and id, from rows of codes; takes ownership of the arrays.

    Ascending ids without regions give one segment. Others are sorted in parts and in place, so that there is no second
    copy.
    """
    extras = extras or {}
    keys = [ids, *(extras[name] for name in ("regions",) if name in extras)]
    ascending = len(keys) == 1 and bool((np.diff(ids) > 0).all())
    parts = []
    for rows in _cuts(len(ids), None if ascending else MERGED_ENTRIES, texts):
        order = np.arange(rows.stop - rows.start) if ascending else np.lexsort([key[rows] for key in keys])
        arrays: list[Array] = [] if ascending else [ids, codes, *extras.values()]
        for column in arrays:
            column[rows] = column[rows][order]
        noted = texts and [texts[rows.start + row] for row in order]
        named = text_ids and [text_ids[rows.start + row] for row in order]
        extra = {name: column[rows] for name, column in extras.items()}
        parts.append(Segment(Arrays.of(ids[rows], codes[rows], noted, named, extra)))
    return parts


def _cuts(n_entries: int, most_entries: int | None, texts: list[bytes] | None) -> list[slice]:
    """Return slices of entries for segments of at most ``most_entries`` and :data:`METADATA_BYTES` of metadata."""
    most = most_entries or max(1, n_entries)
    if not texts or sum(map(len, texts)) + 8 * n_entries <= METADATA_BYTES:
        return [slice(start, min(start + most, n_entries)) for start in range(0, n_entries, most)]
    starts, held = [0], 0
    for i, text in enumerate(texts):
        if i > starts[-1] and (i - starts[-1] == most or held + len(text) + 16 > METADATA_BYTES):
            starts.append(i)
            held = 0
        held += len(text) + 8
    return [slice(*ends) for ends in pairwise([*starts, n_entries])]


def merge_segments(segments: Iterable[Segment]) -> Segment:
    """Merge the live entries of segments into one segment in memory, sorted by region and id."""
    merged = Snapshot(tuple(segments))
    rows = merged.living_rows
    keys = [merged.gather(name, rows) for name in ("ids", "regions") if name == "ids" or name in merged.extra_names]
    return take_entries(merged, rows[np.lexsort(keys)])


def take_entries(snapshot: Snapshot, rows: Int64, extras: Mapping[str, Array] | None = None) -> Segment:
    """Return the entries at these rows in this order as a segment in memory, with additional extra columns."""
    columns = [segment.columns for segment in snapshot.segments]
    texts: list[bytes] | None = None
    if any(one.metadata is not None for one in columns):
        texts = snapshot.texts(rows)
    text_ids = snapshot.texts_at(rows, lambda one: one.text_ids) if snapshot.has_text_ids else None
    held = {name: snapshot.gather(name, rows) for name in snapshot.extra_names if name not in (extras or {})}
    ids, codes = snapshot.gather("ids", rows), snapshot.gather("codes", rows)
    return Segment(Arrays.of(ids, codes, texts, text_ids, {**held, **(extras or {})}))


def cut_segment(segment: Segment, limit: int) -> list[Segment]:
    """Return segments of at most ``limit`` live entries."""
    n_parts = -(-len(segment) // limit)
    if n_parts < 2:
        return [segment]
    parts = np.array_split(np.arange(len(segment)), n_parts)
    return [merge_segments([segment.where(segment.living & np.isin(np.arange(len(segment)), part))]) for part in parts]


def take_positions(segment: Segment, positions: Int64) -> Segment:
    """Gather ids and codes of the entries at these positions for a scan."""
    return Segment(Arrays.of(segment.ids[positions], segment.columns.rows("codes", positions)))


SPARSE = 8
"""Entries are gathered before a scan if fewer than one in this many takes part."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Immutable list of segments. Methods that change entries return a new snapshot."""

    segments: tuple[Segment, ...] = ()

    def __len__(self) -> int:
        """Number of live entries."""
        return self._n_alive

    @lazy
    def _n_alive(self) -> int:
        return sum(segment.n_alive for segment in self.segments)

    @lazy
    def starts(self) -> Int64:
        """First row of each segment."""
        return np.cumsum([0, *(len(segment) for segment in self.segments)], dtype=np.int64)

    @lazy
    def derived(self) -> dict[str, Any]:
        """Cache of values computed from the segments."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the segments without cached values."""
        return {"segments": self.segments}

    @property
    def ids(self) -> Int64:
        """Ids of the live entries, ascending."""
        parts = [segment.ids if segment.alive is None else segment.ids[segment.living] for segment in self.segments]
        return np.sort(np.concatenate([np.empty(0, np.int64), *parts]))

    @property
    def living_rows(self) -> Int64:
        """Rows of the live entries."""
        return np.flatnonzero(np.concatenate([np.empty(0, bool), *(segment.living for segment in self.segments)]))

    def locate(self, ids: Int64) -> Int64:
        """Return the row of each id, or -1."""
        rows = np.full(len(ids), -1, np.int64)
        for start, segment in zip(self.starts, self.segments, strict=False):
            positions = segment.position(ids)
            rows = np.where(positions >= 0, start + positions, rows)
        return rows

    @lazy
    def has_text_ids(self) -> bool | None:
        """Whether entries have text ids; None without entries."""
        return next((segment.columns.has_text_ids for segment in self.segments), None)

    def find_text_ids(self, texts: Sequence[bytes]) -> Int64:
        """Return the row of each text id, or -1."""
        rows, hashes = np.full(len(texts), -1, np.int64), hash_text_ids(texts)
        for start, segment in zip(self.starts, self.segments, strict=False):
            stored = segment.columns.text_ids
            for position, row in stored.find(texts, hashes) if stored is not None else []:
                if segment.alive is None or segment.alive[row >> 3] >> (row & 7) & 1:
                    rows[position] = start + row
        return rows

    def text_ids(self, rows: Int64) -> list[str]:
        """Return the text ids of the entries at these rows."""
        return [text.decode() for text in self.texts_at(rows, lambda columns: columns.text_ids)]

    def gather(self, name: str, rows: Int64) -> Array:
        """Return ids, codes or another column of the entries at these rows; codes as rows, (n, code_bytes)."""
        return self._gather((name,), rows)[0]

    def _gather(self, names: tuple[str, ...], rows: Int64) -> list[Array]:
        """Return several columns of the entries at these rows."""
        if not self.segments:
            return [np.empty(0, np.int64) for _ in names]
        if len(self.segments) == 1 or not rows.size:
            return [self.segments[0].columns.rows(name, rows) for name in names]
        found: list[Array] = []
        for columns, chosen, positions in self._columns_at(rows):
            values = [columns.rows(name, positions) for name in names]
            found = found or [np.empty((len(rows), *one.shape[1:]), one.dtype) for one in values]
            for out, one in zip(found, values, strict=True):
                out[chosen] = one
        return found

    def _columns_at(self, rows: Int64) -> Iterator[tuple[Columns, Int64, Int64]]:
        """Yield the columns of each segment that has some of these rows, with their indices and their positions."""
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        ends = np.searchsorted(ascending, self.starts)
        for owner in np.flatnonzero(np.diff(ends)).tolist():
            part = slice(ends[owner], ends[owner + 1])
            yield self.segments[owner].columns, order[part], ascending[part] - self.starts[owner]

    def texts_at(self, rows: Int64, of: Callable[[Columns], Texts | None]) -> list[bytes]:
        """Return texts of the entries at these rows, empty for segments without."""
        found = [b""] * len(rows)
        for columns, chosen, positions in self._columns_at(rows):
            if (stored := of(columns)) is not None:
                for at, text in zip(chosen, stored.texts(positions), strict=True):
                    found[at] = text
        return found

    @property
    def extra_names(self) -> list[str]:
        """Names of the extra columns that all segments have."""
        names = [one.columns.extra_names for one in self.segments]
        return [name for name in names[0] if all(name in others for others in names)] if names else []

    @lazy
    def has_originals(self) -> bool:
        """Whether all entries have originals."""
        return bool(self.segments) and all("originals" in one.columns.extra_names for one in self.segments)

    def packed_signals(self, rows: Int64) -> tuple[Array, Float32] | None:
        """Return the originals of the entries at these rows as they are stored, and their scales; or None."""
        if not self.has_originals:
            return None
        values, scales = self._gather(("originals", "original_scales"), rows)
        return values, scales

    def signals(self, rows: Int64) -> Float32 | None:
        """Return the originals of the entries at these rows, or None."""
        found = self.packed_signals(rows)
        return None if found is None else unpack_originals(*found)

    def notes(self, rows: Int64) -> list[Note]:
        """Return the metadata of the entries at these rows."""
        return parse_notes(self.texts(rows))

    def texts(self, rows: Int64) -> list[bytes]:
        """Return the metadata of the entries at these rows as JSON texts, empty without metadata."""
        return self.texts_at(rows, lambda columns: columns.metadata)

    def sample(self, n_entries: int, rng: np.random.Generator) -> Snapshot:
        """Return a snapshot of randomly chosen live entries without reading ids."""
        return self.where(self.mask(self.draw(n_entries, rng)))

    def draw(self, n_entries: int, rng: np.random.Generator) -> Int64:
        """Return the rows of randomly chosen live entries."""
        rows: Int64 | int = int(self.starts[-1])
        if any(segment.alive is not None for segment in self.segments):
            rows = self.living_rows
        return rng.choice(rows, n_entries, replace=False)

    def last(self, n_entries: int) -> Int64:
        """Return the rows of the live entries with the largest ids in the newest segments."""
        found: list[Int64] = []
        for start, segment in zip(self.starts[-2::-1], reversed(self.segments), strict=True):
            left = n_entries - sum(map(len, found))
            if left <= 0:
                break
            living = np.flatnonzero(segment.living)
            living = living if segment.is_ascending else living[np.argsort(segment.ids[living])]
            found.append(start + living[-left:])
        return np.concatenate([np.empty(0, np.int64), *reversed(found)])

    def mask(self, rows: Int64) -> Booleans:
        """Return a mask of these rows."""
        kept = np.zeros(self.starts[-1], bool)
        kept[rows] = True
        return kept

    def where(self, kept: Booleans, *, gather: bool = True) -> Snapshot:
        """Return a snapshot of only these live entries; small subsets are gathered into a new segment."""
        chosen = [segment.where(part) for segment, part in self._split(kept)]
        if not gather or SPARSE * int(kept.sum()) > len(kept):
            return Snapshot(tuple(chosen))
        return Snapshot(tuple(take_positions(one, np.flatnonzero(one.living)) for one in chosen if one.n_alive))

    def add(self, segments: Iterable[Segment], *, limit: int) -> Snapshot:
        """Return a snapshot with new segments; small ones are merged in tiers, so their number stays logarithmic."""
        result = list(self.segments)
        for segment in segments:
            result.append(segment)
            while len(result) > 1 and 2 * result[-1].n_alive >= result[-2].n_alive:
                if not fit_together(result[-2:], limit):
                    break
                result[-2:] = [merge_segments(result[-2:])]
        return Snapshot(tuple(result))

    def remove(self, rows: Int64, *, rewrite: bool = True) -> Snapshot:
        """Return a snapshot without these rows; mostly removed segments are rewritten, empty ones dropped."""
        result = []
        for segment, part in self._split(self.mask(rows)):
            left = segment.where(segment.living & ~part) if part.any() else segment
            if rewrite and left.n_alive and 2 * left.n_alive < len(left):
                left = merge_segments([left])
            result += [left] if left.n_alive else []
        return Snapshot(tuple(result))

    def with_metadata(self, rows: Int64, texts: Sequence[bytes]) -> Snapshot:
        """Return a snapshot with the metadata at these rows replaced."""
        order = np.argsort(rows)
        owners = np.searchsorted(self.starts, rows[order], side="right") - 1
        result = list(self.segments)
        for owner in np.unique(owners):
            chosen, segment = order[owners == owner], result[owner]
            columns = segment.columns.with_metadata(rows[chosen] - self.starts[owner], [texts[at] for at in chosen])
            result[owner] = replace(segment, columns=columns)
        return Snapshot(tuple(result))

    def groups(self, *, limit: int) -> list[slice]:
        """Return runs of adjacent segments, each as long as fits into one segment."""
        found, start = [], 0
        while start < len(self.segments):
            end = start + 1
            while end < len(self.segments) and fit_together(self.segments[start : end + 1], limit):
                end += 1
            found.append(slice(start, end))
            start = end
        return found

    def compacted(self, *, limit: int) -> Snapshot | None:
        """Merge some adjacent segments towards full segments without removed entries; return None when done."""
        for group in self.groups(limit=limit):
            together = self.segments[group]
            if len(together) > 1 or together[0].alive is not None:
                return Snapshot((*self.segments[: group.start], merge_segments(together), *self.segments[group.stop :]))
        return None

    def tidied(self, *, n_bytes: int, share: float, limit: int) -> Snapshot | None:
        """Rewrite the segment with the largest share of removed entries; return None when few enough are left.

        The segment is merged with a neighbour or divided, so that results have at most ``limit`` entries. Few enough
        means at most ``n_bytes`` or this share of all bytes, and no segment that consists mostly of removed entries.
        """
        shares = np.array([1 - segment.n_alive / len(segment) for segment in self.segments])
        sizes = np.array([segment.nbytes for segment in self.segments])
        if not len(sizes) or (shares.max() <= 1 / 2 and shares @ sizes <= max(n_bytes, share * sizes.sum())):
            return None
        most = int(np.argmax(shares))
        pairs = [slice(max(0, most - 1), most + 1), slice(most, most + 2)]
        chosen = next((pair for pair in pairs if fit_together(self.segments[pair], limit)), slice(most, most + 1))
        merged = cut_segment(merge_segments(self.segments[chosen]), limit)
        return Snapshot((*self.segments[: chosen.start], *merged, *self.segments[chosen.stop :]))

    def _split(self, mask: Booleans) -> list[tuple[Segment, Booleans]]:
        """Return each segment with its part of a mask over all rows."""
        return list(zip(self.segments, np.split(mask, self.starts[1:-1]), strict=True)) if self.segments else []


def fit_together(together: Sequence[Segment], limit: int) -> bool:
    """Return whether these segments fit into one by number of entries and bytes of metadata."""
    n_texts = sum(segment.columns.sizes["metadata"] for segment in together)
    n_alive = sum(segment.n_alive for segment in together)
    return n_alive <= limit and n_texts <= METADATA_BYTES
