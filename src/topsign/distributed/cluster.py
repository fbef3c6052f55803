"""Dask client, workers, and job submission with a bounded number of jobs in flight."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from itertools import islice
from typing import Any, NoReturn, TypeVar
from weakref import WeakKeyDictionary

import dask
from distributed import Client, Future, KilledWorker, LocalCluster, wait
from distributed.versions import get_versions

from .. import kernels

POLL_SECONDS = 0.25
"""Interval in seconds at which waiting calls check for lost workers."""

WORKER_SECONDS = 60.0
"""Seconds to wait for the first worker."""

VERSION_SECONDS = 3.0
"""Seconds to wait for the version of a worker."""

RETRIES = 3
"""Number of times a job is resubmitted after Dask gave it up because its workers died."""

Job = TypeVar("Job")

_checked: WeakKeyDictionary[Client, set[str]] = WeakKeyDictionary()
"""Addresses of workers that have the version of this client."""

_local: Client | None = None
_making = threading.Lock()


def resolve_client(client: Client | None) -> Client:
    """Return the given client, or that of a local cluster with one worker in this process and a thread per core.

    Kernels release the global interpreter lock, so threads are as fast as processes and need no copies.
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
            # Dask always starts an HTTP server: bind it to this machine only, without any routes.
            with dask.config.set({f"distributed.{part}.http.routes": [] for part in ("scheduler", "worker")}):
                cluster = LocalCluster(
                    n_workers=1,
                    threads_per_worker=kernels.n_threads(),
                    processes=False,
                    memory_limit=None,
                    dashboard_address="127.0.0.1:0",
                    worker_dashboard_address="127.0.0.1:0",
                    scheduler_kwargs={"dashboard": False},
                )
            _local = Client(cluster, set_as_default=False)
            atexit.register(cluster.close)  # before Dask's exit handler, which would warn about lost tasks
            atexit.register(_local.close)  # before the cluster
    return _local


def _address(client: Client) -> str:
    return str(client.scheduler.address) if client.scheduler is not None else "an address now forgotten"


def live_workers(client: Client) -> dict[str, int]:
    """Return the number of threads of each worker by address; wait for the first worker."""
    if client.status != "running":  # otherwise Dask tries to connect for 30 seconds
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
    _check_versions(client, workers)
    return workers


def _check_versions(client: Client, workers: dict[str, int]) -> None:
    """Raise RuntimeError if a worker has another version of this library, whose codes and messages may differ.

    A worker that does not answer in time is asked again at the next call, so a suspended one never blocks a client.
    """
    checked = _checked.setdefault(client, set())
    unknown = workers.keys() - checked
    if not unknown:
        return
    own = get_versions(packages=["topsign"])["packages"]["topsign"]
    for address, version in client.sync(_versions, client, unknown).items():
        if version != own:
            raise RuntimeError(
                f"the worker at {address} has topsign {version}, this client has {own}; install the same "
                "version everywhere and restart the workers"
            )
        checked.add(address)


async def _versions(client: Client, addresses: Iterable[str]) -> dict[str, str | None]:
    """Return the version of this library on each worker that answers in time."""
    scheduler: Any = client.scheduler

    async def ask(address: str) -> dict[str, Any]:
        message = {"op": "versions", "packages": ["topsign"]}
        call = scheduler.broadcast(msg=message, workers=[address], on_error="ignore")
        try:
            found: dict[str, Any] = await asyncio.wait_for(call, VERSION_SECONDS)
        except TimeoutError:
            return {}
        return found

    found = await asyncio.gather(*map(ask, addresses))
    return {address: one["packages"].get("topsign") for answer in found for address, one in answer.items()}


def memory_limits(client: Client) -> dict[str, int]:
    """Return the memory limit of each worker in bytes by address; 0 means no limit."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return {address: worker["memory_limit"] or 0 for address, worker in workers.items()}


@contextmanager
def watching_scheduler(client: Client) -> Iterator[None]:
    """Raise ConnectionError if the scheduler is lost, in place of Dask's various errors."""
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
    """Return a future of a value shared by several tasks; Dask recomputes it if its worker is lost.

    Unlike a scattered value, it is the result of a task. It is sent once, so Dask's warning about large values in task
    graphs does not apply.
    """
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
        return client.submit(_same, value, pure=False)


def _same(value: Any) -> Any:
    return value


def wait_for_one(client: Client, futures: list[Future], timeout: float | None = None) -> set[Future]:
    """Return finished futures, at least one unless the timeout expires."""
    try:
        with client.as_current():
            done: set[Future] = wait(futures, timeout=timeout, return_when="FIRST_COMPLETED").done
            return done
    except TimeoutError:
        return set()


def run_all(
    client: Client, jobs: Iterable[Job], submit: Callable[[Job], Future], *, name: Callable[[Job], str] = str
) -> Iterator[tuple[Job, Any, Exception | None]]:
    """Yield each job with its result or exception as it finishes; the number of jobs in flight is bounded.

    Dask repeats the job of a lost worker until it suspects the job itself. Such a job is resubmitted ``RETRIES`` times,
    because workers killed at start-up are not the job's fault. If its workers still die, the error contains the job's
    ``name``.
    """
    waiting: dict[Future, tuple[Job, int]] = {}
    remaining = iter(jobs)
    try:
        while True:
            with watching_scheduler(client):
                room = 2 * sum(live_workers(client).values()) - len(waiting)
                for job in islice(remaining, max(0, room)):
                    waiting[submit(job)] = job, 1
                if not waiting:
                    return
                done = wait_for_one(client, list(waiting))
            for future in done:
                job, n_tries = waiting.pop(future)
                with watching_scheduler(client):
                    error = future.exception()
                    if isinstance(error, KilledWorker) and n_tries <= RETRIES:
                        waiting[submit(job)] = job, n_tries + 1
                        continue
                    result = None if error else future.result()
                if isinstance(error, KilledWorker):
                    error = RuntimeError(_killed_message(name(job), error, n_tries))
                yield job, result, error
    finally:
        if waiting and client.status == "running":
            client.cancel(list(waiting))


def run_each(
    client: Client, jobs: Iterable[Job], submit: Callable[[Job], Future], *, name: Callable[[Job], str] = str
) -> Iterator[tuple[Job, Any]]:
    """Yield each job of :func:`run_all` with its result; raise the first exception."""
    for job, result, error in run_all(client, jobs, submit, name=name):
        if error is not None:
            raise error
        yield job, result


def _killed_message(name: str, error: KilledWorker, n_tries: int) -> str:
    n_lost = n_tries * (int(getattr(error, "allowed_failures", 0)) + 1)
    last = getattr(getattr(error, "last_worker", None), "address", "unknown")
    return (
        f"{name}: {n_lost} workers died one after another while they worked on it, the last at {last}; their logs say "
        "why (out of memory? then give workers more, or make segments smaller)"
    )
