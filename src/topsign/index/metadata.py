"""What a user notes with entries: JSON texts, one after another."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from .._arrays import Bytes, Int64

Note = dict[str, Any] | None


@dataclass(frozen=True, eq=False)
class Metadata:
    """Texts of consecutive entries; an entry without metadata has an empty one."""

    starts: Int64  # (n_entries + 1,) where each text begins
    text: Bytes  # UTF-8

    @classmethod
    def of(cls, texts: Iterable[bytes]) -> Metadata:
        texts = list(texts)
        starts = np.fromiter(accumulate(map(len, texts), initial=0), np.int64, len(texts) + 1)
        return cls(starts, np.frombuffer(b"".join(texts), np.uint8))

    @classmethod
    def from_bytes(cls, value: Bytes, n_entries: int) -> Metadata:
        """As it lies in a file: the starts, then the texts."""
        cut = 8 * (n_entries + 1)
        return cls(value[:cut].view("<i8"), value[cut:])

    def to_bytes(self) -> Bytes:
        return np.concatenate([self.starts.astype("<i8").view(np.uint8), self.text])

    @property
    def nbytes(self) -> int:
        return self.starts.nbytes + self.text.nbytes

    def texts(self, rows: Sequence[int] | Int64) -> list[bytes]:
        return [self.text[self.starts[row] : self.starts[row + 1]].tobytes() for row in rows]

    def notes(self, rows: Sequence[int] | Int64) -> list[Note]:
        return [json.loads(text) if text else None for text in self.texts(rows)]
