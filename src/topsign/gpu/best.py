"""Searches on a device: the k best codes of each query, or all that reach a threshold, with the results of the CPU.

A scan returns as candidates the codes whose rounded score plus its error bound may exceed the query's bar, the k-th
best score so far. It takes at most as many codes as the buffer of candidates holds, or is repeated in smaller parts
after an overflow, so no candidate is lost. Candidates are then scored exactly, in the order of additions that all
kernels share, and merged with the best so far, which raises the bar.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._arrays import Float32, Int64
from .device import Array, Device
from .rings import TrellisFormat
from .scan import DEFAULT, TILE, Candidates, GatherScanner, Part, Scanner, Tuning, make_scanner, search_digits
from .stripes import CodeFormat, Format
from .trellis import make_trellis_scanner

MAX_K = 2048  # entries per query that one thread block sorts; more are merged on the host
WARPS = 8  # per thread block of exact scoring


class BestSearch:
    """The k best codes of a batch of queries. Parts must come in the order of their positions.

    With ``waits``, scans take more codes than the buffer of candidates holds, and are repeated after an overflow: fewer
    and larger scans, but the host synchronizes after each. Calls that are captured in a CUDA graph cannot.
    """

    def __init__(
        self,
        device: Device,
        form: Format | TrellisFormat,
        n_queries: int,
        k: int,
        n_codes: int,
        *,
        whole: bool = False,
        fill: bool = False,
        waits: bool = False,
        tuning: Tuning = DEFAULT,
    ) -> None:
        self.device, self.format, self.k = device, form, k
        self.n_queries, self.whole, self.fill, self.waits, self.tuning = n_queries, whole, fill, waits, tuning
        self.scanner = search_scanner(device, form, n_queries, whole=whole, tuning=tuning)
        capacity = tuning.capacity(n_queries, n_codes)
        self.candidates = Candidates.empty(device, n_queries, capacity)
        self.held = device.empty((n_queries, k), np.uint64), device.empty((n_queries, k), np.uint32)
        self.scores = device.empty((n_queries, k), np.float32)
        self.positions = device.empty((n_queries, k), np.int64)
        self._done = device.zeros((n_queries,), np.uint32)
        self._module = form.best_module(device)
        self._room = 512
        while self._room < 2 * k:
            self._room *= 2
        self._scratch = form.scratch_bytes
        self._blocks = max(2, min(64, 16 * device.n_processors // n_queries))  # thread blocks per query
        self._blocks = 1 if form.scores_exactly else self._blocks
        self._cached = min(capacity, 17 * 1024)  # candidates whose bounds are cached in shared memory
        self._seen = 0
        self._projected: Array = None

    def start(self, projected: Array) -> None:
        """Set new queries: (n_queries, n_pool) float32 on the device, or rounded queries for trellis codes."""
        self._projected = None if self.format.scores_exactly else projected
        self._seen = 0
        self.scanner.round(projected, self.candidates, self.held, whole=self.whole)

    def scan(self, part: Part, out: tuple[Array, Array] | None = None) -> None:
        """Scan the codes of a part; write scores and positions of the best codes so far to ``out``."""
        start, sampled = 0, 0
        if self._seen == 0 and isinstance(self.scanner, GatherScanner):
            sampled = min(self.tuning.sampled(self.n_queries), self.candidates.capacity, len(part))
            self._set_bars(part, sampled)
        while start < len(part):
            every = self._seen == 0 and not sampled
            count = min(len(part) - start, self._limit(max(self._seen, sampled)))
            self.scanner.scan(part, start, count, self.candidates, every=every)
            if count > self.candidates.capacity and self._overflows():
                self.candidates.counts[...] = 0
                count = self.candidates.capacity
                self.scanner.scan(part, start, count, self.candidates, every=every)
            self._keep(part, count if every else 0, out or (self.scores, self.positions))
            start += count
            self._seen += count

    def _limit(self, seen: int) -> int:
        """Return the codes of the next scan: at most the capacity, or more if the scan can be repeated."""
        capacity, growth = self.candidates.capacity, self.tuning.growth
        if not self.waits or not seen:
            return max(TILE, min(max(self.tuning.first, growth * seen), capacity) // TILE * TILE)
        growth = max(1, min(growth, capacity // (4 * self.k)))  # about k * growth candidates are expected
        return max(capacity, min(self.tuning.largest, growth * seen)) // TILE * TILE

    def _overflows(self) -> bool:
        """Return whether the candidates of some query overflowed in the last scan."""
        return int(self.device.get(self.candidates.counts).max()) > self.candidates.capacity

    def _set_bars(self, part: Part, n_codes: int) -> None:
        self._module.launch(
            "set_bars",
            (-(-n_codes // WARPS), self.n_queries),
            32 * WARPS,
            part.stripes.words,
            self._projected,
            part.weights,
            part.biases,
            part.alive,
            np.uint32(n_codes),
            np.uint32(self.k),
            np.uint32(self.candidates.capacity),
            self.candidates.centers,
            self._done,
            self.candidates.bars,
            shared=WARPS * self._scratch,
        )

    def _keep(self, part: Part, given: int, out: tuple[Array, Array]) -> None:
        found = self.candidates
        place = np.uint32(part.base), np.uint32(found.capacity)
        self._module.launch(
            "narrow",
            self.n_queries,
            1024,
            found.margins,
            found.bars,
            part.weights,
            part.biases,
            *place,
            np.uint32(given),
            np.uint32(self.k),
            np.uint32(self._cached),
            found.counts,
            found.positions,
            found.centers,
            shared=4 * self._cached,
        )
        self._module.launch(
            "keep_best",
            (self._blocks, self.n_queries),
            32 * WARPS,
            part.stripes.words,
            self._projected,
            part.weights,
            part.biases,
            *place,
            np.uint32(self.k),
            np.uint32(self._room),
            found.counts,
            found.positions,
            found.centers,
            *self.held,
            found.bars,
            self._done,
            np.uint32(self.fill),
            *out,
            shared=max(12 * self._room, WARPS * self._scratch),
        )


def search_scanner(
    device: Device, form: Format | TrellisFormat, n_queries: int, *, whole: bool, tuning: Tuning
) -> Scanner:
    """Return the faster scanner for this number of queries."""
    if isinstance(form, TrellisFormat):
        return make_trellis_scanner(device, form, n_queries, tuning=tuning)
    return make_scanner(device, form, n_queries, digits=search_digits(form, whole=whole), tuning=tuning)


class WithinSearch:
    """All codes that reach the threshold of each query, one code format after another."""

    def __init__(
        self, device: Device, thresholds: Float32, largest: int, *, whole: bool = False, tuning: Tuning = DEFAULT
    ) -> None:
        """Allocate buffers for parts of at most ``largest`` codes."""
        self.device, self.whole, self.tuning, self._thresholds = device, whole, tuning, thresholds
        n_queries = len(thresholds)
        self.candidates = Candidates.empty(device, n_queries, tuning.capacity(n_queries, largest))
        shape = (n_queries, self.candidates.capacity)
        self._positions, self._scores = device.empty(shape, np.uint32), device.empty(shape, np.float32)
        self._limits = device.put(thresholds)
        self._scanners: dict[CodeFormat, Scanner] = {}
        self._format: CodeFormat | None = None  # of the queries that are set

    def scan(self, form: Format | TrellisFormat, queries: Any, part: Part) -> Iterator[tuple[Int64, Int64, Float32]]:
        """Yield queries, positions and scores of matching codes of a part, scan by scan.

        ``queries`` are (n_queries, n_pool) float32 on the device, or rounded ones for trellis codes.
        """
        if form is not self._format:
            self._start(form, queries)
        device, found, scanner = self.device, self.candidates, self._scanners[form]
        for start in range(0, len(part), found.capacity):
            count = min(found.capacity, len(part) - start)
            found.counts[...] = 0
            kept = device.zeros((found.n_queries,), np.uint32)
            scanner.scan(part, start, count, found, every=False)
            form.best_module(device).launch(
                "keep_within",
                (min(64, -(-count // WARPS)), found.n_queries),
                32 * WARPS,
                part.stripes.words,
                None if form.scores_exactly else queries,
                part.weights,
                np.uint32(part.base),
                np.uint32(found.capacity),
                found.counts,
                found.positions,
                self._limits,
                kept,
                self._positions,
                self._scores,
                found.centers,
                shared=WARPS * form.scratch_bytes,
            )
            counts = device.get(kept)
            for query in np.flatnonzero(counts):
                here = device.get(self._positions[query, : counts[query]]).astype(np.int64)
                order = np.argsort(here)
                yield np.full(len(here), query), here[order], device.get(self._scores[query, : counts[query]])[order]

    def _start(self, form: Format | TrellisFormat, queries: Any) -> None:
        """Set the queries for codes of another format."""
        device, found = self.device, self.candidates
        if form not in self._scanners:
            self._scanners[form] = search_scanner(device, form, found.n_queries, whole=self.whole, tuning=self.tuning)
        self._scanners[form].round(queries, found, None, whole=self.whole)
        bars = device.get(found.bars)
        below = np.nextafter(self._thresholds, np.float32(-np.inf))
        found.bars[...] = device.put(np.where(np.isposinf(bars), np.float32(np.inf), below))
        self._format = form
