"""Metadata of entries: JSON texts, one after another."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from ..._arrays import Bytes, Int64
from ...errors import StorageError
from ..results import Note


@dataclass(frozen=True, eq=False)
class Metadata:
    """JSON texts of consecutive entries; the text of an entry without metadata is empty."""

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


def parse_notes(texts: Iterable[bytes]) -> list[Note]:
    """The JSON objects of these texts, None for an empty one."""
    try:
        return [json.loads(text) if text else None for text in texts]
    except (ValueError, RecursionError) as error:
        raise StorageError("index", "metadata", f"damaged: {error}; restore the file from a copy") from None
