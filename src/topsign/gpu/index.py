"""An index whose codes are on a CUDA device."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from ..index import Index, Matches, Neighbors
from ..index.search import Engine, TrellisEngine
from ..index.storage import MemoryStore
from .device import Device, find_device, on_host
from .engine import GpuEngine
from .pieces import Pieces
from .trellis_engine import GpuTrellisEngine, TrellisPieces

FREE_SHARE = 0.9  # of the free memory that codes may take; searches need the rest


class GpuIndex:
    """A searcher of an index, with the codes of one moment on a CUDA device. Made by :meth:`topsign.Index.to`.

    ``search`` and ``within`` take what the index takes, queries also as CUDA tensors, and return what it returns, to
    the last bit: rounded scores of 8 bits with a proven margin choose the few entries that are scored exactly, in the
    order of additions that all kernels share; sums of trellis codes are whole numbers. Queries are projected on the
    processor.

    Parameters
    ----------
    index : Index
    device : str
        "cuda", or "cuda:1" for the second card.
    memory : int, optional
        Bytes of codes and weights that may stay on the device, nine tenths of what is free there by default. What does
        not fit is copied at every search, while what came before is scanned.
    """

    def __init__(self, index: Index[Any], *, device: str | Device = "cuda", memory: int | None = None) -> None:
        self._device = find_device(device)
        limit = int(FREE_SHARE * self._device.free_bytes()) if memory is None else memory
        self._engine: Engine | TrellisEngine
        self._pieces: Pieces | TrellisPieces
        if index.recipe.family == "trellis":
            self._pieces = TrellisPieces(self._device, index.recipe, limit)
            self._engine = GpuTrellisEngine(self._device, self._pieces)
        else:
            self._pieces = Pieces(self._device, index.recipe.layout, limit)
            self._engine = GpuEngine(self._device, self._pieces)
        self._index = index
        self._frozen: Index[Any] = object.__new__(type(index))  # the index of one moment
        self._take_entries()

    @property
    def device(self) -> str:
        """Name of the device."""
        return self._device.name

    @property
    def needed_bytes(self) -> int:
        """Bytes of all entries on the device, whether they fit or not."""
        return self._pieces.needed_bytes(self._frozen.store.snapshot)

    @property
    def nbytes(self) -> int:
        """Bytes that stay on the device."""
        return self._pieces.resident_bytes

    def __len__(self) -> int:
        """Number of entries."""
        return len(self._frozen)

    def search(self, queries: npt.ArrayLike, k: int = 10, **options: Any) -> Neighbors:
        """The k nearest entries of each query: see :meth:`topsign.Index.search`, whose options it takes."""
        return self._frozen.search(on_host(queries), k, **options)

    def within(self, queries: npt.ArrayLike, **options: Any) -> Matches:
        """Every match of each query: see :meth:`topsign.Index.within`, whose options it takes."""
        return self._frozen.within(on_host(queries), **options)

    def refresh(self) -> bool:
        """Takes the present entries of the index, and those that others added to its file; only new ones are copied."""
        self._index.refresh()
        before = self._frozen.store.snapshot
        self._take_entries()
        return before is not self._frozen.store.snapshot

    def _take_entries(self) -> None:
        index, store = self._index, MemoryStore()
        store.snapshot, store.sources, store.next_id = index.store.snapshot, index.store.sources, index.store.next_id
        self._pieces.keep(store.snapshot)
        self._frozen.__dict__.update(index.__dict__, store=store, engine=self._engine)

    def __repr__(self) -> str:
        return (
            f"GpuIndex({len(self)} entries on {self.device}, {self.nbytes:,} of {self.needed_bytes:,} bytes resident)"
        )
