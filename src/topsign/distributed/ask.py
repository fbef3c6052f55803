"""Questions to workers about the shards they hold; those of a lost worker are asked of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np
from distributed import Client, Future, KilledWorker

from .._arrays import Int64
from .cluster import POLL_SECONDS, live_workers, wait_for_one
from .placement import Placement
from .shard import Shard

MAX_LOSSES = 4
"""Workers that may be lost with the same shard in one search before the search is held to be the cause."""


def by_shard(shards: tuple[Shard, ...], ids: Int64) -> dict[str, Int64]:
    """Ascending ids by the shards that may hold them."""
    firsts = np.searchsorted(ids, [shard.first_id for shard in shards])
    ends = np.searchsorted(ids, [shard.last_id for shard in shards], side="right")
    ranges = zip(shards, firsts.tolist(), ends.tolist(), strict=True)
    return {shard.file: ids[first:end] for shard, first, end in ranges if end > first}


def ask(
    client: Client,
    placement: Placement,
    task: Callable[..., Any],
    *arguments: Any,
    ids: Int64 | None = None,
    files: Container[str] | None = None,
) -> list[Any]:
    """Asks every worker of the shards it holds; where one is lost, asks those who take its shards over.

    With ``ids``, which ascend, only of shards that may hold any of them; with ``files`` only of these shards. A task
    gets the loaded segments, the arguments, and those ids that its shards may hold, or None.
    """
    chosen = None if ids is None else by_shard(placement.shards, ids)
    waiting: dict[Future, tuple[str, list[str]]] = {}
    answers: list[Any] = []
    losses: Counter[str] = Counter()

    def send(files: list[str]) -> None:
        for address, held in placement.grouped(files).items():
            wanted = None if chosen is None else np.unique(np.concatenate([chosen[file] for file in held]))
            future = client.submit(task, list(held.values()), *arguments, wanted, workers=[address], pure=False)
            waiting[future] = address, list(held)

    named = [shard.file for shard in placement.shards if files is None or shard.file in files]
    send([file for file in named if chosen is None or file in chosen])
    while waiting:
        with suppress(CancelledError):  # lost with its worker: dealt with below
            wait_for_one(client, list(waiting), POLL_SECONDS)
        alive = live_workers(client)
        for future, (address, files) in list(waiting.items()):
            if future.status == "finished" and (answer := _fetched(client, future, address)) is not None:
                answers.append(answer)
                del waiting[future]
            elif future.status == "error" and not isinstance(error := future.exception(), KilledWorker):
                client.cancel(list(waiting))
                raise error
            elif future.status in ("cancelled", "lost", "error") or address not in alive:
                del waiting[future]
                losses.update(files)
                if losses[files[0]] > MAX_LOSSES:
                    client.cancel(list(waiting))
                    _raise_all_lost(files, losses[files[0]])
                placement.forget(address, files)
                send(files)
    return answers


def _raise_all_lost(files: list[str], times: int) -> NoReturn:
    named = f"{files[0]} and {len(files) - 1} more" if len(files) > 1 else files[0]
    raise RuntimeError(
        f"{times} workers were lost one after another while they loaded or searched {named}; are they out of memory? "
        "Their logs say"
    )


def _fetched(client: Client, future: Future, address: str) -> Any:
    """The result, or None where it was lost with its worker."""
    seconds = 1.0
    while True:
        try:
            return future.result(timeout=seconds)
        except TimeoutError:
            if address not in live_workers(client):
                return None
            seconds *= 2
