"""Metadata of entries: concatenated JSON texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from .._arrays import Bytes, Int64
from .._files import parse_json
from ..errors import StorageError

Note = dict[str, Any] | None
"""Metadata of one entry: a JSON object, or None."""


@dataclass(frozen=True, eq=False)
class Metadata:
    """JSON texts of consecutive entries, empty for an entry without metadata."""

    starts: Int64  # (n_entries + 1,) where each text begins
    text: Bytes  # UTF-8

    @classmethod
    def of(cls, texts: Iterable[bytes]) -> Metadata:
        texts = list(texts)
        starts = np.fromiter(accumulate(map(len, texts), initial=0), np.int64, len(texts) + 1)
        return cls(starts, np.frombuffer(b"".join(texts), np.uint8))

    @property
    def nbytes(self) -> int:
        return self.starts.nbytes + self.text.nbytes

    def texts(self, rows: Sequence[int] | Int64) -> list[bytes]:
        return [self.text[self.starts[row] : self.starts[row + 1]].tobytes() for row in rows]

    def replaced(self, rows: Int64, texts: Metadata) -> Metadata:
        """Return the texts with those of these ascending rows replaced."""
        lengths = np.diff(self.starts)
        lengths[rows] = np.diff(texts.starts)
        pieces, end = [], 0
        for row, start, stop in zip(rows.tolist(), texts.starts[:-1].tolist(), texts.starts[1:].tolist(), strict=True):
            pieces += [self.text[end : self.starts[row]], texts.text[start:stop]]
            end = int(self.starts[row + 1])
        return Metadata(np.concatenate([[0], np.cumsum(lengths)]), np.concatenate([*pieces, self.text[end:]]))

    @property
    def problem(self) -> str | None:
        """Return the problem of stored texts with correct checksums, or None."""
        if self.starts[0] != 0 or self.starts[-1] != len(self.text) or (np.diff(self.starts) < 0).any():
            return "the starts of its texts must ascend from 0 to the end"
        return None


def parse_notes(texts: Iterable[bytes]) -> list[Note]:
    """Parse JSON objects, None for an empty text; raise StorageError for anything else."""
    try:
        notes = [parse_json(text) if text else None for text in texts]
        if not all(note is None or isinstance(note, dict) for note in notes):
            raise ValueError("a JSON object expected")
        return notes
    except ValueError as error:
        raise StorageError("index", "metadata", f"damaged: {error}; restore the file from a copy") from None
