"""The engine of a GPU index of trellis codes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from .._arrays import Bytes, Float32, Int64
from ..index.search import Hits
from ..index.storage import Snapshot
from ..kernels import RoundedQueries
from ..recipe import Recipe
from .best import MAX_K, BestSearch, search_within
from .device import Array, Device
from .engine import MAX_QUERIES, Run, hits_at, no_hits, runs_of
from .pieces import HeldPieces, Piece, bitmap_words
from .rings import FINE_QUERIES, Rings, RoundedOnDevice, TrellisFormat
from .scan import DEFAULT, Part, Tuning
from .stripes import GROUP

MANY_CELLS = Tuning(first=2048, candidate_bytes=2**24)  # so that searches of all cells fit beside each other


@dataclass(frozen=True, eq=False)
class TrellisPiece:
    """A piece on the device, cell by cell."""

    piece: Piece  # keeps the columns, whose identity is the key
    cells: list[tuple[int, Rings, Int64 | None]]  # number of the cell, its codes, and which these are; None: all

    def weights(self, column: str | None) -> object:
        """They are made with the codes."""
        return None


class TrellisPieces(HeldPieces[TrellisPiece]):
    """Pieces of trellis codes."""

    def __init__(self, device: Device, recipe: Recipe, memory: int) -> None:
        super().__init__(device, memory)
        self.recipe = recipe
        self.norms = recipe.metric == "inner_product"  # scores have them
        self.formats = [TrellisFormat(device, cell.tables) for cell in recipe.cells]

    def nbytes(self, n_entries: int) -> int:
        form, more = self.formats[0], len(self.formats) - 1  # cells end in the middle of a group
        return form.nbytes(n_entries) + more * form.nbytes(GROUP) + (8 if self.norms else 4) * n_entries

    def load(self, piece: Piece) -> TrellisPiece:
        codes, cells = np.asarray(piece.columns.codes[piece.rows]), []
        for cell, places in self.recipe.cells.of_codes(codes):
            whole = len(places) == len(codes)
            rings = self.formats[cell.number].load(codes if whole else codes[places], norms=self.norms)
            cells.append((cell.number, rings, None if whole else places))
        return TrellisPiece(piece, cells)


@dataclass(eq=False)
class Places:
    """Places in a snapshot of the entries of one cell, in the order of positions."""

    starts: list[int] = field(default_factory=lambda: [0])  # positions
    parts: list[tuple[int, Int64 | None]] = field(default_factory=list)

    def add(self, count: int, first: int, chosen: Int64 | None) -> int:
        """Takes the entries from place ``first`` on, all or some of them; returns the position of the first."""
        self.parts.append((first, chosen))
        self.starts.append(self.starts[-1] + count)
        return self.starts[-2]

    def of(self, positions: Int64) -> Int64:
        """Places of positions."""
        found = np.empty(len(positions), np.int64)
        owners = np.searchsorted(self.starts, positions, side="right") - 1
        for owner in np.unique(owners):
            mine, (first, chosen) = owners == owner, self.parts[owner]
            here = positions[mine] - self.starts[owner]
            found[mine] = first + (here if chosen is None else chosen[here])
        return found


class GpuTrellisEngine:
    """Entries of trellis codes: see :class:`topsign.index.search.TrellisEngine`."""

    def __init__(self, device: Device, pieces: TrellisPieces, tuning: Tuning | None = None) -> None:
        self.device, self.pieces = device, pieces
        self.tuning = tuning or (DEFAULT if len(pieces.formats) == 1 else MANY_CELLS)
        fine = any(form.n_digits == 2 for form in pieces.formats)
        self.most_queries = FINE_QUERIES if fine else MAX_QUERIES  # at a time

    def rank_trellis(
        self, snapshot: Snapshot, recipe: Recipe, queries: list[RoundedQueries], k: int, *, norms: bool, n_threads: int
    ) -> Hits:
        wanted, n_queries = min(k, len(snapshot)), len(queries[0])
        if wanted > MAX_K:  # more than a block sorts: all scores come to the host
            least = np.full(n_queries, -np.inf, np.float32)
            hits = self.within_trellis(snapshot, recipe, queries, least, norms=norms, n_threads=n_threads)
            return hits[np.arange(len(hits.rows)) - np.searchsorted(hits.rows, hits.rows) < wanted]
        parts = [no_hits(np.float32)]
        for start in range(0, n_queries if wanted else 0, self.most_queries):
            block = self._put(queries, slice(start, start + self.most_queries))
            for run in runs_of(snapshot):
                searches: dict[int, tuple[BestSearch, Places]] = {}
                for number, part, first, chosen in self._parts(run, norms):
                    if number not in searches:
                        form, some = self.pieces.formats[number], block[number]
                        made = BestSearch(
                            self.device, form, len(some), wanted, len(run), waits=True, tuning=self.tuning
                        )
                        made.start(some)
                        searches[number] = made, Places()
                    search, places = searches[number]
                    search.scan(replace(part, base=places.add(len(part), first, chosen)))
                for search, places in searches.values():
                    positions, scores = self.device.get(search.positions), self.device.get(search.scores)
                    found = positions >= 0
                    rows = start + np.nonzero(found)[0]
                    parts.append(hits_at(snapshot, rows, places.of(positions[found]), scores[found]))
        return Hits.merge(parts, descending=True, k=wanted)

    def within_trellis(
        self,
        snapshot: Snapshot,
        recipe: Recipe,
        queries: list[RoundedQueries],
        thresholds: Float32,
        *,
        norms: bool,
        n_threads: int,
    ) -> Hits:
        parts = [no_hits(np.float32)]
        for start in range(0, len(thresholds), self.most_queries):
            rows = slice(start, start + self.most_queries)
            block = self._put(queries, rows)
            for run in runs_of(snapshot):
                for number, part, first, chosen in self._parts(run, norms):
                    places, form = Places(), self.pieces.formats[number]
                    places.add(len(part), first, chosen)
                    found = search_within(
                        self.device, form, block[number], thresholds[rows], [part], len(part), tuning=self.tuning
                    )
                    parts += [hits_at(snapshot, start + of, places.of(here), scores) for of, here, scores in found]
        return Hits.merge(parts, descending=True)

    def _parts(self, run: Run, norms: bool) -> Iterator[tuple[int, Part, int, Int64 | None]]:
        """The codes of each cell of each piece: the cell, its part, the piece's first place, and which these are."""
        held = self.pieces.held([piece for piece, _, _ in run.pieces])
        for piece, (_, alive, _), first in zip(held, run.pieces, run.places.tolist(), strict=True):
            for number, rings, chosen in piece.cells:
                weights = rings.with_norms if norms else rings.weights
                yield number, Part(rings, weights, None, self._alive(alive, chosen)), first, chosen

    def _alive(self, alive: Bytes | None, chosen: Int64 | None) -> Array | None:
        if alive is None:
            return None
        if chosen is not None:
            alive = np.packbits(np.unpackbits(alive, bitorder="little")[chosen], bitorder="little")
        return self.device.put(bitmap_words(alive))

    def _put(self, queries: list[RoundedQueries], rows: slice) -> list[RoundedOnDevice]:
        return [RoundedOnDevice.put(self.device, rounded[rows]) for rounded in queries]
