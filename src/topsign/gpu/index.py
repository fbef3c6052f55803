"""An index whose codes are on a CUDA device."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from ..index import Index, Matches, Neighbors
from ..store import MemoryStore
from .device import Device, find_device, on_host
from .engine import GpuEngine

FREE_SHARE = 0.9  # of the free memory that codes may take; searches need the rest


class GpuIndex:
    """A searcher of an index, with the codes of one moment on a CUDA device. Made by :meth:`topsign.Index.to`.

    ``search`` and ``within`` take the arguments of the index, queries also as CUDA tensors, and return its results to
    the last bit: rounded scores of 8 bits with a proven margin choose the few entries that are scored exactly, in the
    order of additions that all kernels share; sums of trellis codes are whole numbers. The processor projects queries.

    Parameters
    ----------
    index : Index
    device : str
        "cuda", or "cuda:1" for the second card.
    memory : int, optional
        Bytes of codes and weights that may stay on the device, nine tenths of the free memory by default. Codes that do
        not fit are copied at every search, while those before them are scanned.

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
        self._frozen = Index(index.recipe, self._store, engine=self._engine)  # the entries of one moment
        self._take_entries()

    @property
    def device(self) -> str:
        """Name of the device."""
        return self._device.name

    @property
    def needed_bytes(self) -> int:
        """Bytes of all entries on the device, whether they fit or not."""
        return self._engine.chunks.needed_bytes(self._store.snapshot)

    @property
    def nbytes(self) -> int:
        """Bytes that stay on the device."""
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
        """Take the present entries of the index, also those that other processes added; only new ones are copied.

        Return whether there was a change.
        """
        self._index.refresh()
        before = self._store.snapshot
        self._take_entries()
        return before is not self._store.snapshot

    def _take_entries(self) -> None:
        """Take the entries, and with the sources the calibration and the feature names."""
        present, frozen = self._index.store, self._store
        snapshot = present.snapshot
        self._engine.chunks.keep(snapshot)
        frozen.snapshot, frozen.sources, frozen.next_id = snapshot, dict(present.sources), present.next_id
        frozen.originals, frozen.tables = present.originals, dict(present.tables)

    def __repr__(self) -> str:
        return (
            f"GpuIndex({len(self)} entries on {self.device}, {self.nbytes:,} of {self.needed_bytes:,} bytes resident)"
        )
