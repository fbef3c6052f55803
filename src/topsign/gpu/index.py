"""Index with its codes in GPU memory."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from ..index import Index, Matches, Neighbors, index_of, store_of
from ..store import MemoryStore
from .device import Device, find_device, on_host
from .engine import GpuEngine

FREE_SHARE = 0.9  # share of the free GPU memory that codes may occupy; searches need the rest


class GpuIndex:
    """Searcher of a snapshot of an index, with its codes in GPU memory. Made by :meth:`topsign.Index.to`.

    ``search`` and ``within`` take the arguments of the index, queries also as CUDA tensors, and return its results to
    the last bit: sums of rounded queries are exact integers on every device. The CPU projects the queries.

    Parameters
    ----------
    index : Index
    device : str
        "cuda", or "cuda:1" for the second GPU.
    memory : int, optional
        Bytes of codes to keep in GPU memory, nine tenths of the free memory by default. Codes that do not fit are
        copied during every search, overlapping with the scan.

    Raises
    ------
    GpuError
        If there is no such device.
    TypeError
        If the device cannot compare codes of this family.
    """

    def __init__(self, index: Index, *, device: str | Device = "cuda", memory: int | None = None) -> None:
        self._device = find_device(device)
        limit = int(FREE_SHARE * self._device.free_bytes()) if memory is None else memory
        self._engine = GpuEngine(self._device, index.recipe, memory=limit)
        self._index, self._store = index, MemoryStore()
        self._frozen = index_of(index.recipe, self._store, engine=self._engine)  # searches the snapshot
        self._take_entries()

    @property
    def device(self) -> str:
        """Name of the device."""
        return self._device.name

    @property
    def needed_bytes(self) -> int:
        """GPU memory that all entries need, in bytes, whether they fit or not."""
        return self._engine.chunks.needed_bytes(self._store.snapshot)

    @property
    def nbytes(self) -> int:
        """GPU memory in use by resident entries, in bytes."""
        return self._engine.chunks.nbytes

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._frozen)

    def search(self, queries: npt.ArrayLike, k: int = 10, **options: Any) -> Neighbors:
        """Return the k nearest entries of each query: see :meth:`topsign.Index.search`, whose options it takes."""
        return self._frozen.search(on_host(queries), k, **options)

    def within(self, queries: npt.ArrayLike, **options: Any) -> Matches:
        """Return every match of each query: see :meth:`topsign.Index.within`, whose options it takes."""
        return self._frozen.within(on_host(queries), **options)

    def refresh(self) -> bool:
        """Load the current entries of the index, also those that other processes added; only new segments are copied.

        Return whether anything changed.
        """
        self._index.refresh()
        before = self._store.snapshot
        self._take_entries()
        return before is not self._store.snapshot

    def _take_entries(self) -> None:
        """Take the current snapshot, and the sources, which hold the calibration and the feature names."""
        present, frozen = store_of(self._index), self._store
        snapshot = present.snapshot
        self._engine.chunks.keep(snapshot)
        frozen.snapshot, frozen.sources, frozen.next_id = snapshot, dict(present.sources), present.next_id
        frozen.originals, frozen.tables = present.originals, dict(present.tables)

    def __repr__(self) -> str:
        return (
            f"GpuIndex({len(self)} entries on {self.device}, {self.nbytes:,} of {self.needed_bytes:,} bytes resident)"
        )
