"""Texts of entries: metadata as JSON, and text ids with a sorted table of hashes for look-ups."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from .._arrays import Bytes, Int64
from .._files import parse_json
from ..errors import StorageError

Hashes = npt.NDArray[np.uint64]

Note = dict[str, Any] | None
"""Metadata of one entry: a JSON object, or None."""


@dataclass(frozen=True, eq=False)
class Texts:
    """Concatenated texts of consecutive entries in UTF-8."""

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
