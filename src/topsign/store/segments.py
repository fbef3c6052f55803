"""Immutable segments of entries."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Bytes, Int64
from .._lazy import lazy
from ..kernels import CodeBlocks
from .extras import EXTRA_FILES
from .texts import Metadata, TextIds

MERGED_ENTRIES = 65_536
"""Maximum size of merged segments, which bounds the copying per addition."""

METADATA_BYTES = 2**28
"""Maximum bytes of metadata in a segment of several entries."""


class Columns(Protocol):
    """Immutable columns of entries sorted by id, so that ties by position are ties by id."""

    @property
    def ids(self) -> Int64: ...
    @property
    def codes(self) -> CodeBlocks: ...
    @property
    def derived(self) -> dict[str, Any]:
        """Values computed from the columns, kept as long as they are."""

    def __len__(self) -> int: ...

    @property
    def extra_names(self) -> tuple[str, ...]:
        """Names of the columns in separate files, see :mod:`topsign.store.extras`."""

    @property
    def metadata(self) -> Metadata | None: ...
    @property
    def has_text_ids(self) -> bool:
        """Whether entries have text ids."""

    @property
    def text_ids(self) -> TextIds | None:
        """Text ids of the entries."""

    @property
    def metadata_bytes(self) -> int: ...
    @property
    def nbytes(self) -> int:
        """Bytes of all columns except originals, including the unused lanes of the last block of codes."""

    @property
    def originals_nbytes(self) -> int: ...
    def rows(self, name: str, positions: Int64) -> Array:
        """Return the values of a column at these positions; codes as rows, (n, code_bytes)."""

    def extra(self, name: str) -> Array:
        """Return a column that is stored in a separate file."""

    def with_extras(self, extras: Mapping[str, Array]) -> Columns:
        """Return the columns with additional ones."""

    def with_metadata(self, rows: Int64, texts: Sequence[bytes]) -> Columns:
        """Return the columns with the metadata of these ascending rows replaced."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """Columns in memory."""

    ids: Int64
    codes: CodeBlocks
    metadata: Metadata | None = None
    text_ids: TextIds | None = None
    extras: Mapping[str, Array] = field(default_factory=dict)  # columns that a folder stores in separate files
    derived: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def extra_names(self) -> tuple[str, ...]:
        return tuple(self.extras)

    @property
    def has_text_ids(self) -> bool:
        return self.text_ids is not None

    def extra(self, name: str) -> Array:
        return self.extras[name]

    def with_extras(self, extras: Mapping[str, Array]) -> Arrays:
        return replace(self, extras={**self.extras, **extras}, derived={})

    def rows(self, name: str, positions: Int64) -> Array:
        if name == "codes":
            return self.codes.rows(positions)
        return (self.ids if name == "ids" else self.extras[name])[positions]

    def with_metadata(self, rows: Int64, texts: Sequence[bytes]) -> Arrays:
        before = self.metadata or Metadata.of(len(self) * [b""])
        return replace(self, metadata=before.replaced(rows, Metadata.of(texts)))

    @property
    def metadata_bytes(self) -> int:
        return 0 if self.metadata is None else self.metadata.nbytes

    @property
    def nbytes(self) -> int:
        held = (self.ids, self.codes, self.extras.get("regions"), self.metadata, self.text_ids)
        return sum(array.nbytes for array in held if array is not None)

    @property
    def originals_nbytes(self) -> int:
        return sum(self.extras[name].nbytes for name in EXTRA_FILES["originals"] if name in self.extras)


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
        return self.columns.nbytes + (0 if self.alive is None else self.alive.nbytes)

    @property
    def living(self) -> npt.NDArray[np.bool_]:
        """Whether each entry is alive."""
        if self.alive is None:
            return np.ones(len(self), bool)
        return np.unpackbits(self.alive, count=len(self), bitorder="little").view(bool)

    def where(self, living: npt.NDArray[np.bool_]) -> Segment:
        """Return the segment with only these entries alive."""
        return replace(self, alive=None if living.all() else np.packbits(living, bitorder="little"))

    def position(self, ids: Int64) -> Int64:
        """Return the position of each id, or -1 if it is absent or removed."""
        positions = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
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
    """Return segments of new entries sorted by id, from rows of codes; takes ownership of the arrays.

    Ascending ids give one segment. Others are sorted in parts and in place, so that there is no second copy.
    """
    ascending = bool((np.diff(ids) > 0).all())
    parts = []
    for rows in _cuts(len(ids), None if ascending else MERGED_ENTRIES, texts):
        order = np.arange(rows.stop - rows.start) if ascending else np.argsort(ids[rows])
        if not ascending:
            arrays: list[Array] = [ids, codes, *(extras or {}).values()]
            for column in arrays:
                column[rows] = column[rows][order]
        noted = _metadata(texts and [texts[rows.start + row] for row in order])
        named = _text_ids(text_ids and [text_ids[rows.start + row] for row in order])
        extra = {name: column[rows] for name, column in (extras or {}).items()}
        parts.append(Segment(Arrays(ids[rows], CodeBlocks.of(codes[rows]), noted, named, extra)))
    return parts


def _cuts(n_entries: int, most_entries: int | None, texts: list[bytes] | None) -> list[slice]:
    """Return the sizes of segments with at most ``limit`` entries and :data:`METADATA_BYTES` of metadata each."""
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
    """Merge the live entries of segments into one segment in memory."""
    kept = [(segment.columns, np.flatnonzero(segment.living)) for segment in segments]
    ids = np.concatenate([columns.ids[rows] for columns, rows in kept])
    order = None if (ids[1:] > ids[:-1]).all() else np.argsort(ids)
    positions = None if order is None else np.argsort(order)

    def joined(name: str) -> Any:
        out, start = np.empty(0), 0
        for columns, rows in kept:
            here, values = slice(start, start + len(rows)), columns.rows(name, rows)
            out = out if start else _empty((len(ids), *values.shape[1:]), values.dtype)
            out[here if positions is None else positions[here]] = values
            start += len(rows)
        return out

    def sorted_texts(parts: Iterable[list[bytes]]) -> list[bytes]:
        flat = [text for part in parts for text in part]
        return flat if order is None else [flat[position] for position in order]

    texts: list[bytes] | None = None
    if any(columns.metadata is not None for columns, _ in kept):
        texts = sorted_texts(
            columns.metadata.texts(rows) if columns.metadata else len(rows) * [b""] for columns, rows in kept
        )
    text_ids: list[bytes] | None = None
    if kept[0][0].text_ids is not None:
        text_ids = sorted_texts(columns.text_ids.texts(rows) for columns, rows in kept if columns.text_ids)
    shared = [name for name in kept[0][0].extra_names if all(name in columns.extra_names for columns, _ in kept)]
    extras = {name: joined(name) for name in shared}
    codes = CodeBlocks.of(joined("codes"))
    return Segment(Arrays(joined("ids"), codes, _metadata(texts), _text_ids(text_ids), extras))


def cut_segment(segment: Segment, limit: int) -> list[Segment]:
    """Return segments of at most ``limit`` live entries."""
    n_parts = -(-len(segment) // limit)
    if n_parts < 2:
        return [segment]
    ends = [len(segment) * part // n_parts for part in range(n_parts + 1)]
    columns, parts = segment.columns, []
    for rows in map(slice, ends, ends[1:]):
        held = range(rows.start, rows.stop)
        noted = None if columns.metadata is None else _metadata(columns.metadata.texts(held))
        named = None if columns.text_ids is None else _text_ids(columns.text_ids.texts(held))
        extras = {name: columns.extra(name)[rows] for name in columns.extra_names}
        codes = CodeBlocks.of(columns.codes.rows(rows))
        parts.append(Segment(Arrays(columns.ids[rows], codes, noted, named, extras)))
    return parts


def gather_segment(segment: Segment) -> Segment:
    """Gather the live entries of a segment for a scan, without metadata, text ids and extra columns."""
    return take_positions(segment, np.flatnonzero(segment.living))


def take_positions(segment: Segment, positions: Int64) -> Segment:
    """Return ids and codes of the entries at these positions."""
    return Segment(Arrays(segment.ids[positions], CodeBlocks.of(segment.columns.rows("codes", positions))))


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return an uninitialised array; a large one uses its own pages, which are returned to the system when freed."""
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes < 2**16:
        return np.empty(shape, dtype)
    return np.frombuffer(mmap.mmap(-1, n_bytes), dtype, math.prod(shape)).reshape(shape)


def _text_ids(texts: list[bytes] | None) -> TextIds | None:
    return None if texts is None else TextIds.of(texts)


def _metadata(texts: list[bytes] | None) -> Metadata | None:
    return Metadata.of(texts) if texts and any(texts) else None
