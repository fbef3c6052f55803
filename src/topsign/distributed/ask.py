"""Questions to workers about the shards they hold; those of a lost worker are asked of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
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


def by_shard(shards: tuple[Shard, ...], ids: Int64) -> tuple[dict[str, Int64], Int64]:
    """Ids by the shard that may hold them, and those that none can."""
    firsts = np.array([shard.first_id for shard in shards], np.int64)
    lasts = np.array([shard.last_id for shard in shards], np.int64)
    owners = np.searchsorted(firsts, ids, side="right") - 1
    inside = owners >= 0
    inside[inside] = ids[inside] <= lasts[owners[inside]]
    return {shards[i].file: ids[inside & (owners == i)] for i in np.unique(owners[inside])}, ids[~inside]


def ask(
    client: Client,
    placement: Placement,
    shards: tuple[Shard, ...],
    task: Callable[..., Any],
    *arguments: Any,
    chosen: dict[str, Int64] | None = None,
) -> list[Any]:
    """Asks every worker of the shards it holds; where one is lost, asks those who take its shards over.

    A task gets the loaded segments, the arguments, and the ids chosen among its shards.
    """
    waiting: dict[Future, tuple[str, list[str]]] = {}
    answers: list[Any] = []
    losses: Counter[str] = Counter()

    def send(files: list[str]) -> None:
        for address, held in placement.grouped(files).items():
            ids = None if chosen is None else np.concatenate([chosen[file] for file in held])
            future = client.submit(task, list(held.values()), *arguments, ids, workers=[address], pure=False)
            waiting[future] = address, list(held)

    send([shard.file for shard in shards])
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
