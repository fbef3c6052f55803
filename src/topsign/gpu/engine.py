"""Search of an index on a CUDA device: its engine, which keeps codes in GPU memory, and the index itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Bytes, Float32, Int64
from .._checks import suggests_keywords
from ..families import PairComparison, Recipe
from ..families.comparison import CodeComparison, HammingComparison
from ..index import Index, Matches, Neighbors, index_of, store_of
from ..kernels import BLOCK, Scoring
from ..search.engine import Engine, Hits
from ..store.memory import MemoryStore
from ..store.segments import Columns, Segment, Snapshot
from .device import Array as DeviceArray
from .device import Device, find_device, on_host
from .scan import MAX_K, CodeFormat, DeviceQueries, Part, TopkSearch, WithinSearch

CHUNK = 2**22  # entries per copy to the device
MAX_QUERIES = 1024  # per scan
FREE_SHARE = 0.9  # share of the free GPU memory that codes may occupy; searches need the rest
COMPARISONS = (CodeComparison, HammingComparison)
"""Comparisons that the device executes. Subclasses may compare differently, so they are listed separately."""


def executes(comparison: PairComparison) -> TypeGuard[CodeComparison]:
    """Return whether there are kernels for a comparison; the CPU executes others."""
    return type(comparison) in COMPARISONS


class GpuEngine(Engine):
    """Search engine for one index on a device; the CPU visits regions, faster than a device would.

    Parameters
    ----------
    device : Device
    recipe : Recipe
        Recipe of the codes; TypeError if the device does not execute its comparisons.
    memory : int
        Bytes of codes to keep in GPU memory.
    """

    def __init__(self, device: Device, recipe: Recipe, *, memory: int) -> None:
        no_queries = recipe.prepare(np.empty((0, recipe.n_features), np.float32), scoring=recipe.scorings[0])
        if not executes(no_queries):
            supported, name = ", ".join(known.__name__ for known in COMPARISONS), type(no_queries).__name__
            raise TypeError(f"a GPU executes {supported}, got {name}; search these codes on the CPU")
        self.device = device
        self.chunks = ResidentChunks(device, memory)
        self._formats: dict[Scoring, CodeFormat] = {}

    def rank(self, comparison: PairComparison, snapshot: Snapshot, k: int) -> Hits:
        """Return the k best entries of each query, or all if fewer are alive."""
        wanted, n_queries = min(k, len(snapshot)), len(comparison)
        if not wanted or not n_queries:
            return Hits.none()
        if not executes(comparison):
            return super().rank(comparison, snapshot, k)
        if wanted > MAX_K:  # more than a thread block sorts: rank all values on the host
            every = np.full(n_queries, -np.inf, np.float32)
            hits = Hits.merge(self._within(comparison, snapshot, every), k=wanted)
        else:
            hits = Hits.merge(self._rank(comparison, snapshot, wanted), k=wanted)
        return complete(snapshot, hits, n_queries, wanted)

    def within(self, comparison: PairComparison, snapshot: Snapshot, bounds: Array) -> Hits:
        """Return every entry that reaches the bound of its query."""
        if not executes(comparison):
            return super().within(comparison, snapshot, bounds)
        return Hits.merge(self._within(comparison, snapshot, bounds.astype(np.float32)))

    def _rank(self, comparison: CodeComparison, snapshot: Snapshot, k: int) -> Iterator[Hits]:
        """Yield the best entries of each block of queries and run of chunks."""
        device, form = self.device, self._format(comparison.scorer)
        for start in range(0, len(comparison), MAX_QUERIES):
            queries = DeviceQueries.put(device, comparison.rounded, slice(start, start + MAX_QUERIES))
            for run in ascending_chunks(snapshot):
                search = TopkSearch(form, len(queries), k, int(run.starts[-1]))
                search.start(queries)
                for part in self._parts(run):
                    search.scan(part)
                positions, values = device.get(search.positions), device.get(search.values)
                found = positions >= 0
                yield hits_at(snapshot, start + np.nonzero(found)[0], run.rows(positions[found]), values[found])

    def _within(self, comparison: CodeComparison, snapshot: Snapshot, bounds: Float32) -> Iterator[Hits]:
        """Yield every entry that reaches the bound of its query, scan by scan."""
        form = self._format(comparison.scorer)
        for start in range(0, len(bounds), MAX_QUERIES):
            block = slice(start, start + MAX_QUERIES)
            queries = DeviceQueries.put(self.device, comparison.rounded, block)
            for run in ascending_chunks(snapshot):
                search = WithinSearch(form, queries, bounds[block], max(map(len, run.chunks)))
                for part in self._parts(run):
                    for query, positions, values in search.scan(part):
                        yield hits_at(snapshot, start + query, run.rows(positions), values)

    def _parts(self, run: AscendingChunks) -> Iterator[Part]:
        """Yield the codes of each chunk, which stay on the device until the next chunk is requested."""
        bases = run.starts.tolist()
        for planes, chunk, base in zip(self.chunks.load(run.chunks), run.chunks, bases, strict=False):
            alive = None
            if chunk.alive is not None:
                padding = bytes(-len(chunk.alive) % 4)
                alive = self.device.put(np.frombuffer(chunk.alive.tobytes() + padding, np.uint32))
            yield Part(planes, len(chunk), None, alive, base)

    def _format(self, scoring: Scoring) -> CodeFormat:
        if scoring not in self._formats:
            self._formats[scoring] = CodeFormat(self.device, scoring)
        return self._formats[scoring]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive entries of a segment."""

    columns: Columns  # of the segment; immutable
    positions: slice
    first_row: int = 0  # in the snapshot
    alive: Bytes | None = None  # packed bitmap; None: all

    def __len__(self) -> int:
        return int(self.positions.stop - self.positions.start)

    @property
    def key(self) -> tuple[int, int]:
        """Key of the chunk, unique while its columns exist."""
        return id(self.columns), self.positions.start

    @property
    def planes(self) -> Bytes:
        """Blocks of codes in byte planes."""
        first, end = self.positions.start // BLOCK, -(-self.positions.stop // BLOCK)
        planes: Bytes = self.columns.codes.planes[first:end]
        return planes


def chunks_of(segment: Segment, first_row: int = 0) -> list[Chunk]:
    """Return the chunks of a segment."""
    made = []
    for start in range(0, len(segment), CHUNK):
        end = min(start + CHUNK, len(segment))
        alive = None if segment.alive is None else segment.alive[start // 8 : -(-end // 8)]
        made.append(Chunk(segment.columns, slice(start, end), first_row + start, alive))
    return made


class AscendingChunks:
    """Chunks of a snapshot with ascending ids, so that ties by position in all of them are ties by id."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self.chunks = chunks
        self.starts = np.cumsum([0, *map(len, chunks)], dtype=np.int64)  # position of each chunk, and the end

    def rows(self, positions: Int64) -> Int64:
        """Return the rows of positions in the snapshot."""
        owners = np.searchsorted(self.starts, positions, side="right") - 1
        first_rows = np.array([chunk.first_row for chunk in self.chunks], np.int64)
        return np.asarray(positions - self.starts[owners] + first_rows[owners])


def ascending_chunks(snapshot: Snapshot) -> Iterator[AscendingChunks]:
    """Yield segments with living entries in runs of ascending ids: one run, unless ids were given out of order."""
    living = zip(snapshot.starts.tolist(), snapshot.segments, strict=False)
    runs: list[list[tuple[int, Segment]]] = []
    for start, segment in sorted(((s, one) for s, one in living if one.n_alive), key=lambda pair: int(pair[1].ids[0])):
        run = next((run for run in runs if run[-1][1].ids[-1] < segment.ids[0]), None)
        runs.append([(start, segment)]) if run is None else run.append((start, segment))
    for run in runs:
        yield AscendingChunks([chunk for start, segment in run for chunk in chunks_of(segment, start)])


class ResidentChunks:
    """Cache of chunks in GPU memory: those that fit are resident, the others are copied for each search."""

    def __init__(self, device: Device, memory: int) -> None:
        self.device, self.memory = device, memory
        self._resident: dict[tuple[int, int], DeviceArray] = {}
        self._lock = threading.Lock()

    @staticmethod
    def needed_bytes(snapshot: Snapshot) -> int:
        """Return the GPU memory that all entries of a snapshot need, in bytes."""
        return sum(chunk.planes.nbytes for segment in snapshot.segments for chunk in chunks_of(segment))

    @property
    def nbytes(self) -> int:
        """GPU memory of the resident chunks, in bytes."""
        return sum(int(planes.nbytes) for planes in self._resident.values())

    def keep(self, snapshot: Snapshot) -> None:
        """Load new chunks that fit and drop chunks of earlier snapshots."""
        with self._lock:
            wanted = {chunk.key: chunk for segment in snapshot.segments for chunk in chunks_of(segment)}
            self._resident = {key: planes for key, planes in self._resident.items() if key in wanted}
            taken = self.nbytes
            for key, chunk in wanted.items():
                taken += 0 if key in self._resident else chunk.planes.nbytes
                if key not in self._resident and taken <= self.memory:
                    self._resident[key] = self.device.put(chunk.planes)

    def load(self, chunks: list[Chunk]) -> Iterator[DeviceArray]:
        """Yield the codes of chunks in order; copy the next one that is not resident during the scan."""
        resident = dict(self._resident)  # another thread may keep another snapshot
        missing = iter([chunk for chunk in chunks if chunk.key not in resident])
        with ThreadPoolExecutor(1) as copier:
            coming = [copier.submit(self._copy, chunk) for chunk in islice(missing, 1)]
            for chunk in chunks:
                if chunk.key in resident:
                    yield resident[chunk.key]
                else:
                    planes = coming.pop().result()
                    coming = [copier.submit(self._copy, following) for following in islice(missing, 1)]
                    yield planes
                    self.device.wait()  # for the scan, before the memory is reused

    def _copy(self, chunk: Chunk) -> DeviceArray:
        with self.device.background():
            planes = self.device.put(chunk.planes)
            self.device.wait()
        return planes


def hits_at(snapshot: Snapshot, queries: Int64, rows: Int64, values: Float32) -> Hits:
    """Return the hits of entries by their rows in a snapshot."""
    return Hits(queries, rows, snapshot.gather("ids", rows), values)


def complete(snapshot: Snapshot, hits: Hits, n_queries: int, k: int) -> Hits:
    """Return k hits per query: the device omits values of -inf (overflow), which come last, ordered by id."""
    if len(hits) == n_queries * k:
        return hits
    rows, values = np.full((n_queries, k), -1, np.int64), np.full((n_queries, k), -np.inf, np.float32)
    ranks = np.arange(len(hits)) - np.searchsorted(hits.queries, hits.queries)
    rows[hits.queries, ranks], values[hits.queries, ranks] = hits.rows, hits.values
    return Hits.ranked(snapshot, rows, values)


@suggests_keywords
class GpuIndex:
    """Searcher of a snapshot of an ``index``, with its codes in GPU memory. Made by :meth:`topsign.Index.to`.

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
        """Return the ``k`` nearest of each of the ``queries``; ``options``: see :meth:`topsign.Index.search`."""
        return self._frozen.search(on_host(queries), k, **options)

    def within(self, queries: npt.ArrayLike, **options: Any) -> Matches:
        """Return every match of each of the ``queries``; ``options`` are those of :meth:`topsign.Index.within`."""
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
        """Take the current version: entries, regions, calibration and names of features."""
        present = store_of(self._index)
        now = present.now
        self._engine.chunks.keep(now.snapshot)
        self._store.now, self._store.originals = now, present.originals

    def __repr__(self) -> str:
        return (
            f"GpuIndex({len(self)} entries on {self.device}, {self.nbytes:,} of {self.needed_bytes:,} bytes resident)"
        )
