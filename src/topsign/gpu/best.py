"""Searches on a device: the best codes of each query, or all that reach a threshold, as the processor finds them.

A scan offers the codes whose rounded score, with its margin, may exceed the query's bar, the k-th best score so far. It
never takes more codes than there is room for candidates, so that none is lost. They are then scored exactly, in the
order of additions that all kernels share, and merged with those held; that raises the bar.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from .._arrays import Float32, Int64
from .device import Array, Device
from .scan import DEFAULT, TILE, Candidates, GatherScanner, Part, Tuning, make_scanner, search_digits
from .stripes import Format

MAX_K = 2048  # entries of a query that one block sorts; more are merged on the host
WARPS = 8  # of a block that scores exactly


class BestSearch:
    """The k best codes of a batch of queries. Parts must come in the order of their positions."""

    def __init__(
        self,
        device: Device,
        form: Format,
        n_queries: int,
        k: int,
        n_codes: int,
        *,
        whole: bool = False,
        fill: bool = False,
        tuning: Tuning = DEFAULT,
    ) -> None:
        self.device, self.format, self.k = device, form, k
        self.n_queries, self.whole, self.fill, self.tuning = n_queries, whole, fill, tuning
        self.scanner = make_scanner(device, form, n_queries, digits=search_digits(form, whole=whole), tuning=tuning)
        capacity = tuning.capacity(n_queries, n_codes)
        self.candidates = Candidates.empty(device, n_queries, capacity)
        self.held = device.empty((n_queries, k), np.uint64), device.empty((n_queries, k), np.uint32)
        self.scores = device.empty((n_queries, k), np.float32)
        self.positions = device.empty((n_queries, k), np.int64)
        self._done = device.zeros((n_queries,), np.uint32)
        self._module = form.module(device, "best.cu")
        self._room = 512
        while self._room < 2 * k:
            self._room *= 2
        self._scratch = scratch_bytes(form)
        self._blocks = max(2, min(64, 16 * device.n_processors // n_queries))  # that share a query
        self._cached = min(capacity, 17 * 1024)  # bounds of candidates in shared memory
        self._seen = 0
        self._projected: Array = None

    def start(self, projected: Array) -> None:
        """New queries, (n_queries, n_pool) float32 on the device."""
        self._projected = projected
        self._seen = 0
        self.scanner.round(projected, self.candidates, self.held, whole=self.whole)

    def scan(self, part: Part, out: tuple[Array, Array] | None = None) -> None:
        """Takes the codes of a part into account; the best so far are written to ``out``: scores and positions."""
        start, sampled = 0, 0
        if self._seen == 0 and isinstance(self.scanner, GatherScanner):
            sampled = min(self.tuning.sampled(self.n_queries), self.candidates.capacity, len(part))
            self._set_bars(part, sampled)
        while start < len(part):
            every = self._seen == 0 and not sampled
            limit = max(self.tuning.first, self.tuning.growth * max(self._seen, sampled))
            limit = max(TILE, min(limit, self.candidates.capacity) // TILE * TILE)
            count = min(len(part) - start, limit)
            self.scanner.scan(part, start, count, self.candidates, every=every)
            self._keep(part, count if every else 0, out or (self.scores, self.positions))
            start += count
            self._seen += count

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


def scratch_bytes(form: Format) -> int:
    """Shared memory of a warp that scores a code exactly."""
    return 4 * (min(form.n_bits, 1024) + (form.code_words if form.code_words <= 2048 else 0))


def search_within(
    device: Device,
    form: Format,
    projected: Array,
    thresholds: Float32,
    parts: Iterable[Part],
    largest: int,
    *,
    whole: bool = False,
    tuning: Tuning = DEFAULT,
) -> Iterator[tuple[Int64, Int64, Float32]]:
    """Codes that score at least the threshold of each query: queries, positions and scores, scan by scan.

    No part has more than ``largest`` codes.
    """
    n_queries = len(thresholds)
    scanner = make_scanner(device, form, n_queries, digits=search_digits(form, whole=whole), tuning=tuning)
    candidates = Candidates.empty(device, n_queries, tuning.capacity(n_queries, largest))
    shape = (n_queries, candidates.capacity)
    positions, scores = device.empty(shape, np.uint32), device.empty(shape, np.float32)
    scanner.round(projected, candidates, None, whole=whole)
    unusable = np.isinf(device.get(candidates.bars)) & (device.get(candidates.bars) > 0)
    bars = np.where(unusable, np.float32(np.inf), np.nextafter(thresholds, np.float32(-np.inf)))
    candidates.bars[...] = device.put(bars)
    limits = device.put(thresholds)
    module = form.module(device, "best.cu")
    for part in parts:
        for start in range(0, len(part), candidates.capacity):
            count = min(candidates.capacity, len(part) - start)
            candidates.counts[...] = 0
            kept = device.zeros((n_queries,), np.uint32)
            scanner.scan(part, start, count, candidates, every=False)
            module.launch(
                "keep_within",
                (min(64, -(-count // WARPS)), n_queries),
                32 * WARPS,
                part.stripes.words,
                projected,
                part.weights,
                np.uint32(part.base),
                np.uint32(candidates.capacity),
                candidates.counts,
                candidates.positions,
                limits,
                kept,
                positions,
                scores,
                shared=WARPS * scratch_bytes(form),
            )
            counts = device.get(kept)
            for query in np.flatnonzero(counts):
                here = device.get(positions[query, : counts[query]]).astype(np.int64)
                order = np.argsort(here)
                found = device.get(scores[query, : counts[query]])[order]
                yield np.full(len(here), query), here[order], found
