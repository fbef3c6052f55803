"""The Dask cluster: a client, its workers, and jobs sent a few at a time."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, NoReturn, TypeVar

import dask
from distributed import Client, Future, KilledWorker, LocalCluster, get_worker, wait

from .. import kernels
from .._checks import check_count

POLL_SECONDS = 0.25
"""How often waiting calls look whether a worker was lost."""

WORKER_SECONDS = 60.0
"""How long work waits for the first worker."""

RETRIES = 3
"""How often a job is sent again that Dask gave up because workers died with it."""

Job = TypeVar("Job")

_local: Client | None = None
_making = threading.Lock()


def resolve_client(client: Client | None) -> Client:
    """The client given, or one of a local cluster: one worker in this process with a thread per core.

    Kernels release Python's lock, so that threads do as well as processes, and nothing is copied between them.
    """
    global _local
    if client is not None:
        if not isinstance(client, Client) or client.asynchronous:
            raise TypeError(
                f"client must be a distributed.Client that is not asynchronous, got {client!r}; None takes a local "
                "cluster"
            )
        return client
    with _making:
        if _local is None or _local.status != "running":
            # Dask listens for HTTP whether it is wanted or not: on this machine alone, and with nothing to see.
            with dask.config.set({f"distributed.{part}.http.routes": [] for part in ("scheduler", "worker")}):
                cluster = LocalCluster(
                    n_workers=1,
                    threads_per_worker=kernels.n_threads(None),
                    processes=False,
                    memory_limit=None,
                    dashboard_address="127.0.0.1:0",
                    worker_dashboard_address="127.0.0.1:0",
                    scheduler_kwargs={"dashboard": False},
                )
            _local = Client(cluster, set_as_default=False)
            atexit.register(_close, _local, cluster)  # before Dask's own end, which would warn of what is lost
    return _local


def _close(client: Client, cluster: LocalCluster) -> None:
    client.close()
    cluster.close()


def _address(client: Client) -> str:
    return str(client.scheduler.address) if client.scheduler is not None else "an address now forgotten"


def live_workers(client: Client) -> dict[str, int]:
    """Threads of every worker there is, by address; waits a while for the first."""
    if client.status != "running":  # else Dask would try to connect for half a minute
        _raise_lost(_address(client))
    workers: dict[str, int] = client.nthreads()
    if not workers:
        try:
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
        except TimeoutError:
            raise TimeoutError(
                f"the cluster at {_address(client)} has no workers, waited {WORKER_SECONDS:g} s for one; start some"
            ) from None
        workers = client.nthreads()
    return workers


def memory_limits(client: Client) -> dict[str, int]:
    """Bytes that every worker may use, by address; 0 where there is no limit."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return {address: worker["memory_limit"] or 0 for address, worker in workers.items()}


@contextmanager
def watching_scheduler(client: Client) -> Iterator[None]:
    """Raises one ConnectionError where the scheduler is lost; Dask raises several, depending on what it was doing."""
    address = _address(client)
    try:
        yield
    except (CancelledError, OSError) as error:
        if isinstance(error, (TimeoutError, ConnectionError)) or client.status == "running":
            raise
        _raise_lost(address, error)


def _raise_lost(address: str, error: Exception | None = None) -> NoReturn:
    raise ConnectionError(
        f"the scheduler at {address} is gone; finished segments are kept: connect to a running scheduler and open the "
        "folder again"
    ) from error


def send(client: Client, value: Any) -> Future:
    """A value for several tasks. It is the result of one, and not scattered: where it is lost, Dask makes it again.

    It travels once: Dask's warning of large values, which are sent with every task, does not apply.
    """
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
        return client.submit(_same, value, pure=False)


def _same(value: Any) -> Any:
    return value


def sent_threads(n_threads: int | None) -> int:
    """Threads that a worker is asked to use; 0 for as many as it has."""
    return 0 if n_threads is None else check_count(n_threads, "n_threads")


def worker_threads(n_threads: int) -> int:
    """On a worker: what :func:`sent_threads` asks for."""
    return n_threads or int(get_worker().state.nthreads)


def wait_for_one(client: Client, futures: list[Future], timeout: float | None = None) -> set[Future]:
    """Futures that have ended, at least one unless time runs out."""
    try:
        with client.as_current():
            done: set[Future] = wait(futures, timeout=timeout, return_when="FIRST_COMPLETED").done
            return done
    except TimeoutError:
        return set()


def run_all(
    client: Client, jobs: Iterable[Job], submit: Callable[[Job], Future], *, name: Callable[[Job], str] = str
) -> Iterator[tuple[Job, Any, Exception | None]]:
    """Every job with its result or what it raised, as they end; few are with the scheduler at a time.

    Dask repeats the job of a worker that was lost, until so many were lost with it that it suspects the job. Such a
    job is sent again, ``RETRIES`` times: workers that are killed as they start are no fault of the job. If they die
    still, the error has the ``name`` of the job.
    """
    waiting: dict[Future, tuple[Job, int]] = {}
    remaining = ((job, 0) for job in jobs)
    again: list[tuple[Job, int]] = []
    try:
        while True:
            with watching_scheduler(client):
                room = 2 * sum(live_workers(client).values()) - len(waiting)
                for job, n_tries in islice(chain(_emptied(again), remaining), max(0, room)):
                    waiting[submit(job)] = job, n_tries + 1
                if not waiting:
                    return
                done = wait_for_one(client, list(waiting))
            for future in done:
                job, n_tries = waiting.pop(future)
                with watching_scheduler(client):
                    error = future.exception()
                    result = None if error else future.result()
                if isinstance(error, KilledWorker):
                    if n_tries <= RETRIES:
                        again.append((job, n_tries))
                        continue
                    error = RuntimeError(_told_of_killed(name(job), error, n_tries))
                yield job, result, error
    finally:
        if waiting and client.status == "running":
            client.cancel(list(waiting))


def _emptied(jobs: list[tuple[Job, int]]) -> Iterator[tuple[Job, int]]:
    while jobs:
        yield jobs.pop()


def _told_of_killed(name: str, error: KilledWorker, n_tries: int) -> str:
    n_lost = n_tries * (int(getattr(error, "allowed_failures", 0)) + 1)
    last = getattr(getattr(error, "last_worker", None), "address", "unknown")
    return (
        f"{name}: {n_lost} workers died one after another while they worked on it, the last at {last}; their logs say "
        "why (out of memory? then give workers more, or make segments smaller)"
    )
