"""Entries returned by ``get``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .._arrays import Float32
from ..codes import Codes
from ..store import Note


@dataclass(frozen=True, eq=False)
class Entry:
    """One entry of an index."""

    id: int | str
    code: Codes  # a collection of one
    metadata: Note = None
    signal: Float32 | None = None  # (n_features,), if the index keeps originals


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries of an index, in the requested order."""

    ids: Any  # (n_entries,) int64, or texts
    codes: Codes
    metadata: list[Note]  # metadata of each entry, None where it has none
    signals: Float32 | None = None  # (n_entries, n_features), if the index keeps originals

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> Entry:
        """Return the entry at this position."""
        at = range(len(self))[row]
        signal = None if self.signals is None else self.signals[at]
        return Entry(self.ids[at : at + 1].tolist()[0], self.codes[at : at + 1], self.metadata[at], signal)

    def __iter__(self) -> Iterator[Entry]:
        return (self[row] for row in range(len(self)))
