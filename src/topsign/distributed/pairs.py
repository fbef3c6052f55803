"""Pairs on a cluster: codes of a block of entries travel, and every worker compares them with the entries it holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from distributed import Client

from ..index.pairs import PairFinding, PairLimit, compare_entries
from ..index.search import Hits
from ..index.storage import Segment, Snapshot
from .cluster import send, sent_threads, worker_threads
from .entries import ShardedEntries
from .shard import SentRecipe, Shard

TRAVELLING_BYTES = 2**20
"""Codes that travel at a time."""


class ShardedPairs(PairFinding[ShardedEntries]):
    """The self-join of the entries of all shards."""

    _client: Client

    def _compared(self, whole: ShardedEntries, limit: PairLimit, n_threads: int | None) -> Iterator[tuple[int, Hits]]:
        task, sent = partial(_compare, SentRecipe.of(self.recipe), sent_threads(n_threads)), send(self._client, limit)
        n_rows = max(1, TRAVELLING_BYTES // self.recipe.layout.code_bytes)
        for files, rows in travelling_blocks(whole.placement.shards, n_rows):
            block = whole.codes(files, rows)
            parts = whole.ask(task, sent, send(self._client, block))
            yield sum(map(len, block)), Hits.merge(parts, descending=True, k=limit.k)


def travelling_blocks(shards: Iterable[Shard], n_rows: int) -> Iterator[tuple[list[str], slice]]:
    """Files of shards and the rows of each that travel together, at most ``n_rows``: whole shards, or a part of one."""
    together, held = list[str](), 0
    for shard in shards:
        if together and held + shard.n_entries > n_rows:
            yield together, slice(0, n_rows)
            together, held = [], 0
        if shard.n_entries > n_rows:
            for start in range(0, shard.n_entries, n_rows):
                yield [shard.file], slice(start, start + n_rows)
        else:
            together, held = [*together, shard.file], held + shard.n_entries
    if together:
        yield together, slice(0, n_rows)


def _compare(sent: SentRecipe, n_threads: int, snapshot: Snapshot, limit: PairLimit, block: list[Segment]) -> Hits:
    """On a worker: what the limit keeps of comparing a block with the entries held here."""
    compared = compare_entries(sent.recipe(), Snapshot(tuple(block)), snapshot, limit, worker_threads(n_threads))
    return Hits.merge((hits for _, hits in compared), descending=True)
