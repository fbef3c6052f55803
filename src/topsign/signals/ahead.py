"""Read-ahead: a background thread reads the next chunk of rows while the caller uses the current one."""

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

N_WAITING = 1  # chunks buffered ahead of the caller


class RowsAhead(Rows):
    """Rows read once, in order, one chunk ahead of the caller.

    The current chunk stays in memory until the next one is requested, so its rows can be read repeatedly. Errors of
    the background thread are raised in the thread that requests the chunk. Use it as a context manager: on exit, the
    thread stops after the chunk it is reading.

    Parameters
    ----------
    rows : array or Rows
        Source of the rows; only the background thread reads it.
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
        while self._thread.is_alive():  # it may be blocked on a full queue
            self._take()
        self._held = slice(0, 0), self._held[1][:0]

    def read(self, start: int, stop: int) -> Array:
        while self._held[0].stop < stop:
            alive = self._thread.is_alive()
            found = self._take()
            if isinstance(found, BaseException):
                raise found
            if found is None and not alive:
                raise ValueError(f"rows {start} to {stop} are in none of the remaining chunks")
            self._held = found or self._held
        chunk, values = self._held
        if start < chunk.start:
            raise ValueError(f"rows {start} to {stop} are not in the current chunk, {chunk.start} to {chunk.stop}")
        return values[start - chunk.start : stop - chunk.start]

    def _take(self) -> tuple[slice, Array] | BaseException | None:
        """Return the next item of the queue, or None if the thread has not read it within 50 ms."""
        try:
            return self._read_chunks.get(timeout=0.05)
        except queue.Empty:
            return None

    def _read_all(self) -> None:
        try:
            for chunk in self._chunks:
                found = self._rows[chunk]
                values = found if found.base is None else np.array(found)  # views may be memory maps, not yet read
                if not isinstance(self._rows, Rows):
                    release_pages(self._rows)
                self._read_chunks.put((chunk, values))
                if self._stop.is_set():
                    return
        except BaseException as error:  # raised again in the thread that requests the chunk
            self._read_chunks.put(error)
