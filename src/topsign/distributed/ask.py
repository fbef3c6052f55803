"""Requests to the workers that hold segments; requests of a lost worker are repeated on others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, NoReturn

from distributed import Client, Future, KilledWorker, get_worker

from .. import kernels
from .cluster import POLL_SECONDS, live_workers, wait_for_one
from .placement import Placement

MAX_LOSSES = 4
"""Number of workers lost with the same segment after which the search itself is considered the cause."""


def ask(
    client: Client,
    placement: Placement,
    task: Callable[..., Any],
    *arguments: Any,
    names: Collection[str] | None = None,
) -> list[Any]:
    """Run a task on every worker with the segments it holds, or with the named ones; return the results.

    A task receives the segments and the arguments, and must not return None. If a worker is lost, the task runs on the
    workers that take over its segments.
    """
    waiting: dict[Future, tuple[str, list[str]]] = {}
    answers: list[Any] = []
    losses: Counter[str] = Counter()
    n_threads = kernels.chosen_threads()

    def send(names: list[str]) -> None:
        for address, held in placement.grouped(names).items():
            future = client.submit(
                _with_threads, n_threads, task, list(held.values()), *arguments, workers=[address], pure=False
            )
            waiting[future] = address, list(held)

    send([name for name in placement.records if names is None or name in names])
    while waiting:
        with suppress(CancelledError):  # lost with its worker; repeated below
            wait_for_one(client, list(waiting), POLL_SECONDS)
        alive = live_workers(client)
        for future, (address, held) in list(waiting.items()):
            if future.status == "finished" and (answer := _fetched(client, future, address)) is not None:
                answers.append(answer)
                del waiting[future]
            elif future.status == "error" and not isinstance(error := future.exception(), KilledWorker):
                client.cancel(list(waiting))
                raise error
            elif future.status in ("cancelled", "lost", "error") or address not in alive:
                del waiting[future]
                losses.update(held)
                if losses[held[0]] > MAX_LOSSES:
                    client.cancel(list(waiting))
                    _raise_all_lost(held, losses[held[0]])
                placement.forget(address, held)
                send(held)
    return answers


def _with_threads(n_threads: int | None, task: Callable[..., Any], *arguments: Any) -> Any:
    """On a worker: run a task with the client's number of threads, by default all threads of the worker."""
    with kernels.threads(n_threads or int(get_worker().state.nthreads)):
        return task(*arguments)


def _raise_all_lost(names: list[str], times: int) -> NoReturn:
    named = f"segment {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
    raise RuntimeError(
        f"{times} workers were lost one after another while they loaded or searched {named}; are they out of memory? "
        "Their logs say"
    )


def _fetched(client: Client, future: Future, address: str) -> Any:
    """Return the result, or None if it was lost with its worker."""
    seconds = 1.0
    while True:
        try:
            return future.result(timeout=seconds)
        except TimeoutError:
            if address not in live_workers(client):
                return None
            seconds *= 2
