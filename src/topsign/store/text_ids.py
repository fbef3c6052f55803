"""Text ids of entries, with a sorted table of hashes for look-ups."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from .._arrays import Bytes, Int64

Hashes = npt.NDArray[np.uint64]


def hash_text_ids(texts: Iterable[bytes]) -> Hashes:
    """Return the first 8 bytes of the BLAKE2b digest of each text."""
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, "<u8")


@dataclass(frozen=True, eq=False)
class TextIds:
    """Text ids of consecutive entries, with 20 bytes per entry in addition to the text."""

    starts: Int64  # (n_entries + 1,) where each text begins
    hashes: Hashes  # (n_entries,) ascending
    order: npt.NDArray[np.int32]  # (n_entries,) the entry of each hash
    text: Bytes  # UTF-8

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> TextIds:
        starts = np.fromiter(accumulate(map(len, texts), initial=0), np.int64, len(texts) + 1)
        hashes = hash_text_ids(texts)
        order = np.argsort(hashes, kind="stable")
        return cls(starts, hashes[order], order.astype(np.int32), np.frombuffer(b"".join(texts), np.uint8))

    @property
    def nbytes(self) -> int:
        return self.starts.nbytes + self.hashes.nbytes + self.order.nbytes + self.text.nbytes

    def texts(self, rows: Sequence[int] | Int64) -> list[bytes]:
        """Return the text ids of these entries."""
        at, text = np.asarray(rows, np.int64), self.text.data
        begins, ends = self.starts[at].tolist(), self.starts[at + 1].tolist()
        return [bytes(text[begin:end]) for begin, end in zip(begins, ends, strict=True)]

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


def problem_of_text_ids(texts: TextIds) -> str | None:
    """Return the problem of stored text ids with correct checksums, or None."""
    if texts.starts[0] != 0 or texts.starts[-1] != len(texts.text) or (np.diff(texts.starts) < 0).any():
        return "the starts of its text ids must ascend from 0 to the end"
    if (texts.hashes[1:] < texts.hashes[:-1]).any():
        return "the hashes of its text ids must ascend"
    if not _is_permutation(texts.order):
        return "the order of its text ids must be a permutation of the entries"
    return None


def _is_permutation(order: npt.NDArray[np.int32]) -> bool:
    """Return whether the array is a permutation of range(len(array)), without sorting."""
    if order.min(initial=0) < 0 or order.max(initial=-1) >= len(order):
        return False
    seen = np.zeros(len(order), bool)
    seen[order] = True
    return bool(seen.all())
