"""Search engine of a CUDA device: executes comparisons over the entries of a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from .._arrays import Array, Bytes, Float32, Int64
from ..families import Comparison, Recipe, Visits
from ..families.sign_comparison import (
    AsymmetricComparison,
    ChosenRowsComparison,
    ExpectedScaleComparison,
    HammingComparison,
)
from ..families.trellis.comparison import TrellisComparison
from ..search import ENGINE, Hits
from ..store import Segment, Snapshot
from .best import MAX_K, BestSearch, WithinSearch
from .chunks import MAX_QUERIES, Chunk, ResidentChunks, bitmap_words, chunks_of
from .device import Array as DeviceArray
from .device import Device
from .forms import AsymmetricForm, Form, HammingForm, TrellisForm
from .scan import Part, Tuning

FORMS: dict[type[Comparison], type[Form]] = {
    HammingComparison: HammingForm,
    AsymmetricComparison: AsymmetricForm,
    ExpectedScaleComparison: AsymmetricForm,
    ChosenRowsComparison: AsymmetricForm,
    TrellisComparison: TrellisForm,
}
"""Forms by type of comparison. Subclasses may compare differently, so they are registered separately."""

COPY_COST = 0.16  # nanoseconds to copy a byte of codes from host memory
SCAN_COST = 87_000.0  # nanoseconds of a scan per chunk and cell, besides those per entry; on an H200


def form_type(comparison: Comparison) -> type[Form]:
    """Return the form of a comparison; raise TypeError if there is none."""
    found = FORMS.get(type(comparison))
    if found is None:
        supported = ", ".join(known.__name__ for known in FORMS)
        raise TypeError(f"a GPU executes {supported}, got {type(comparison).__name__}; search these codes on the CPU")
    return found


class GpuEngine:
    """Search engine for one index on a device, see :class:`topsign.search.Engine`.

    Parameters
    ----------
    device : Device
    recipe : Recipe
        Recipe of the codes; TypeError if there is no form for its comparisons.
    memory : int
        Bytes of codes and weights to keep in GPU memory.
    tuning : Tuning, optional
        Sizes of scans; chosen for the codes by default.
    """

    def __init__(self, device: Device, recipe: Recipe, *, memory: int, tuning: Tuning | None = None) -> None:
        no_queries = recipe.prepare(np.empty((0, recipe.n_features), np.float32), scoring=recipe.scorings[0])
        self.device, self._loader = device, form_type(no_queries).loader(device, no_queries)
        self.chunks = ResidentChunks(device, self._loader, memory)
        self._tuning = tuning or self._loader.tuning

    def rank(self, comparison: Comparison, snapshot: Snapshot, k: int, *, n_threads: int) -> Hits:
        """Return the k best entries of each query, or all if fewer are alive."""
        form, wanted, n_queries = form_type(comparison)(comparison), min(k, len(snapshot)), len(comparison)
        if not wanted or not n_queries:
            return Hits.none(n_queries)
        if wanted > MAX_K:  # more than a thread block sorts: rank all scores on the host
            every = np.full(n_queries, -np.inf, np.float32)
            hits = Hits.merge(self._within(form, snapshot, every), descending=True, k=wanted)
        else:
            hits = Hits.merge(self._rank(form, snapshot, n_queries, wanted), descending=True, k=wanted)
        hits = completed(snapshot, hits, n_queries, wanted)
        return replace(hits, values=form.values(hits.queries, hits.values))

    def within(self, comparison: Comparison, snapshot: Snapshot, bounds: Array, *, n_threads: int) -> Hits:
        """Return every entry that reaches the bound of its query."""
        form = form_type(comparison)(comparison)
        hits = Hits.merge(self._within(form, snapshot, form.thresholds(bounds)), descending=True)
        return replace(hits, values=form.values(hits.queries, hits.values))

    def visit(self, comparison: Comparison, snapshot: Snapshot, visits: Visits, k: int, *, n_threads: int) -> Hits:
        """Return the k best entries of the regions that each query visits; the CPU visits them faster than a device."""
        return ENGINE.visit(comparison, snapshot, visits, k, n_threads=n_threads)

    def scan_cost(self, comparison: Comparison, n_entries: int) -> float:
        """Return the cost, in nanoseconds, of comparing all queries with ``n_entries`` entries."""
        if not self.chunks.holds_all:
            return n_entries * self._loader.nbytes(1) * COPY_COST
        per_entry, per_pair = form_type(comparison).scan_costs
        n_scans = len(self.chunks) * len(self._loader.formats)
        return n_scans * SCAN_COST + n_entries * (per_entry + per_pair * len(comparison))

    def visit_cost(self, comparison: Comparison, n_entries: int, n_pairs: int) -> float:
        """Return the cost, in nanoseconds, of visiting ``n_entries`` entries in ``n_pairs`` comparisons."""
        return ENGINE.visit_cost(comparison, n_entries, n_pairs)

    def _rank(self, form: Form, snapshot: Snapshot, n_queries: int, k: int) -> Iterator[Hits]:
        """Yield the best entries of each block of queries, run of chunks and cell."""
        device, size = self.device, MAX_QUERIES
        for start in range(0, n_queries, size):
            queries = form.queries(device, slice(start, start + size))
            for run in ascending_chunks(snapshot):
                searches: dict[int, tuple[BestSearch, RowMap]] = {}
                for codes in self._cell_parts(run, form.weights):
                    if codes.cell not in searches:
                        search = BestSearch(
                            device,
                            self._loader.formats[codes.cell],
                            len(queries[codes.cell]),
                            k,
                            run.n_entries,
                            whole=form.whole,
                            waits=self._loader.waits,
                            tuning=self._tuning,
                        )
                        search.start(queries[codes.cell])
                        searches[codes.cell] = search, RowMap()
                    search, rows = searches[codes.cell]
                    search.scan(rows.place(codes))
                for search, rows in searches.values():
                    positions, scores = device.get(search.positions), device.get(search.scores)
                    found = positions >= 0
                    yield hits_at(snapshot, start + np.nonzero(found)[0], rows.of(positions[found]), scores[found])

    def _within(self, form: Form, snapshot: Snapshot, thresholds: Float32) -> Iterator[Hits]:
        """Yield every entry that reaches the threshold of its query, scan by scan."""
        device, size = self.device, MAX_QUERIES
        for start in range(0, len(thresholds), size):
            block = slice(start, start + size)
            queries = form.queries(device, block)
            for run in ascending_chunks(snapshot):
                search = WithinSearch(device, thresholds[block], run.largest, whole=form.whole, tuning=self._tuning)
                mapped: dict[int, RowMap] = {}
                for codes in self._cell_parts(run, form.weights):
                    rows = mapped.setdefault(codes.cell, RowMap())
                    found = search.scan(self._loader.formats[codes.cell], queries[codes.cell], rows.place(codes))
                    for query, positions, scores in found:
                        yield hits_at(snapshot, start + query, rows.of(positions), scores)

    def _cell_parts(self, run: AscendingChunks, weights: str | None) -> Iterator[CellPart]:
        """Yield the codes of each cell of each chunk; they stay on the device until the next chunk is requested."""
        chunks = [one.chunk for one in run.placed]
        for loaded, placed in zip(self.chunks.load(chunks, weights), run.placed, strict=True):
            for codes in loaded.cells:
                alive = self._alive(placed.alive, codes.positions)
                part = Part(codes.stripes, None if weights is None else codes.weights[weights], None, alive)
                yield CellPart(codes.cell, part, placed.first_row, codes.positions)

    def _alive(self, alive: Bytes | None, positions: Int64 | None) -> DeviceArray | None:
        if alive is None:
            return None
        if positions is not None:
            alive = np.packbits(np.unpackbits(alive, bitorder="little")[positions], bitorder="little")
        return self.device.put(bitmap_words(alive))


@dataclass(frozen=True, eq=False)
class PlacedChunk:
    """A chunk of a snapshot, and which of its entries are alive."""

    chunk: Chunk
    alive: Bytes | None  # packed bitmap; None: all
    first_row: int


@dataclass(frozen=True, eq=False)
class AscendingChunks:
    """Chunks of a snapshot with ascending ids, so that ties by position are ties by id."""

    placed: list[PlacedChunk]

    @property
    def n_entries(self) -> int:
        """Number of entries, alive or not."""
        return sum(len(one.chunk) for one in self.placed)

    @property
    def largest(self) -> int:
        """Number of entries of the largest chunk."""
        return max(len(one.chunk) for one in self.placed)


def ascending_chunks(snapshot: Snapshot) -> Iterator[AscendingChunks]:
    """Yield segments with living entries in runs of ascending ids: one run, unless ids were given out of order."""
    living = zip(snapshot.starts.tolist(), snapshot.segments, strict=False)
    runs: list[list[tuple[int, Segment]]] = []
    for start, segment in sorted(((s, one) for s, one in living if one.n_alive), key=lambda pair: int(pair[1].ids[0])):
        run = next((run for run in runs if run[-1][1].ids[-1] < segment.ids[0]), None)
        runs.append([(start, segment)]) if run is None else run.append((start, segment))
    for run in runs:
        yield AscendingChunks([placed for start, segment in run for placed in _placed(start, segment)])


def _placed(start: int, segment: Segment) -> Iterator[PlacedChunk]:
    for chunk in chunks_of(segment):
        first, end = chunk.positions.start, chunk.positions.stop
        alive = None if segment.alive is None else segment.alive[first // 8 : -(-end // 8)]
        yield PlacedChunk(chunk, alive, start + first)


@dataclass(frozen=True, eq=False)
class CellPart:
    """Codes of one cell of a chunk, ready to be scanned."""

    cell: int
    part: Part
    first_row: int  # of the chunk in the snapshot
    positions: Int64 | None  # in the chunk; None: all


@dataclass(frozen=True, eq=False)
class RowMap:
    """Mapping from positions in a search to rows of the snapshot."""

    starts: list[int] = field(default_factory=lambda: [0])
    parts: list[CellPart] = field(default_factory=list)

    def place(self, codes: CellPart) -> Part:
        """Append the codes of a chunk; return them with their position in the search."""
        base = self.starts[-1]
        self.parts.append(codes)
        self.starts.append(base + len(codes.part))
        return replace(codes.part, base=base)

    def of(self, positions: Int64) -> Int64:
        """Return the rows of positions."""
        rows = np.empty(len(positions), np.int64)
        owners = np.searchsorted(self.starts, positions, side="right") - 1
        for owner in np.unique(owners):
            mine, codes = owners == owner, self.parts[owner]
            here = positions[mine] - self.starts[owner]
            rows[mine] = codes.first_row + (here if codes.positions is None else codes.positions[here])
        return rows


def hits_at(snapshot: Snapshot, queries: Int64, rows: Int64, sums: Float32) -> Hits:
    """Return the hits of entries by their rows in a snapshot."""
    return Hits(queries, rows, snapshot.gather("ids", rows), sums)


def completed(snapshot: Snapshot, hits: Hits, n_queries: int, k: int) -> Hits:
    """Return k hits per query: the device omits sums of -inf (overflow), which come last, ordered by id."""
    hits = hits[hits.values > -np.inf]
    if len(hits) == n_queries * k:
        return hits
    rows, sums = np.full((n_queries, k), -1, np.int64), np.full((n_queries, k), -np.inf, np.float32)
    ranks = np.arange(len(hits)) - np.searchsorted(hits.queries, hits.queries)
    rows[hits.queries, ranks], sums[hits.queries, ranks] = hits.rows, hits.values
    return Hits.ranked(snapshot, rows, sums)
