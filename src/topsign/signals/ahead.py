"""Rows that are read ahead: a thread reads the next chunk while the one before it is in use."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np

from .._arrays import Array
from .._rows import Rows
from ..projections.blocks import release_pages

N_WAITING = 1  # chunks that have been read and wait


class RowsAhead(Rows):
    """Chunks of rows in their order; each is read once and held until the next is asked for.

    Rows of a chunk may be asked for again as long as it is held. Errors of reading are raised where the chunk is asked
    for. A context: the thread ends with it, after the chunk that it reads at that moment.

    Parameters
    ----------
    rows : array or Rows
        Used by the thread only.
    chunks : sequence of slice
        Ascending, without a step.
    """

    def __init__(self, rows: Array | Rows, chunks: Sequence[slice]) -> None:
        super().__init__((len(rows), rows.shape[1]), rows.dtype)
        self.names = rows.names if isinstance(rows, Rows) else None
        self._rows, self._chunks = rows, chunks
        self._held = slice(0, 0), np.empty((0, self.shape[1]), self.dtype)
        self._read_chunks: queue.Queue[tuple[slice, Array] | BaseException] = queue.Queue(N_WAITING)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read_all, name="topsign-read-ahead", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        while self._thread.is_alive():  # it may wait for room
            self._take()
        self._held = slice(0, 0), self._held[1][:0]

    def read(self, start: int, stop: int) -> Array:
        while self._held[0].stop < stop:
            alive = self._thread.is_alive()
            found = self._take()
            if isinstance(found, BaseException):
                raise found
            if found is None and not alive:
                raise ValueError(f"rows {start} to {stop} are in no chunk that is still to be read")
            self._held = found or self._held
        chunk, values = self._held
        if start < chunk.start:
            raise ValueError(f"rows {start} to {stop} are not in the chunk that is held, {chunk.start} to {chunk.stop}")
        return values[start - chunk.start : stop - chunk.start]

    def _take(self) -> tuple[slice, Array] | BaseException | None:
        """Return what the thread has read next, None if it takes longer than a moment."""
        try:
            return self._read_chunks.get(timeout=0.05)
        except queue.Empty:
            return None

    def _read_all(self) -> None:
        try:
            for chunk in self._chunks:
                values = np.array(self._rows[chunk])
                if not isinstance(self._rows, Rows):
                    release_pages(self._rows)
                self._read_chunks.put((chunk, values))
                if self._stop.is_set():
                    return
        except BaseException as error:  # raised by the thread that asks
            self._read_chunks.put(error)
