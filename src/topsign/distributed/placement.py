"""Placement: which worker holds which shards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import dask.config
from distributed import Client, Future

from .cluster import live_workers, memory_limits
from .shard import Shard


@dataclass(frozen=True, eq=False)
class Held:
    """A shard on a worker; the future keeps it there until nothing refers to it any more."""

    address: str
    future: Future


class Placement:
    """Shards on workers, each on one, evenly by bytes; those of a lost worker move when somebody asks for them."""

    def __init__(
        self,
        client: Client,
        shards: Iterable[Shard],
        load: Callable[[Shard], Any],
        *,
        like: Placement | None = None,
    ) -> None:
        self._client, self._load = client, load
        self.shards = tuple(shards)
        self._shards = {shard.file: shard for shard in self.shards}
        before: dict[str, Held] = like._held if like is not None else {}
        self._held: dict[str, Held] = {file: held for file, held in before.items() if file in self._shards}
        self._lock = threading.Lock()

    @property
    def n_entries(self) -> int:
        """Entries of all shards."""
        return sum(shard.n_entries for shard in self.shards)

    def grouped(self, files: list[str]) -> dict[str, dict[str, Future]]:
        """These shards by the worker that holds each; those that none holds are placed first."""
        with self._lock:
            alive = live_workers(self._client)
            self._place([file for file in files if file not in self._held or self._held[file].address not in alive])
            groups: dict[str, dict[str, Future]] = {}
            for file in files:
                groups.setdefault(self._held[file].address, {})[file] = self._held[file].future
            return groups

    def forget(self, address: str, files: list[str]) -> None:
        """Forgets that a worker holds these shards."""
        with self._lock:
            for file in files:
                if file in self._held and self._held[file].address == address:
                    del self._held[file]

    def by_worker(self) -> dict[str, list[str]]:
        """File names of the shards that each worker holds."""
        with self._lock:
            groups: dict[str, list[str]] = {}
            for file, held in sorted(self._held.items()):
                groups.setdefault(held.address, []).append(file)
            return groups

    def _place(self, files: list[str]) -> None:
        """Sends the largest first, each to the worker that has most room."""
        if not files:
            return
        target = dask.config.get("distributed.worker.memory.target") or 1.0
        limits = {address: target * limit for address, limit in memory_limits(self._client).items()}
        loads = dict.fromkeys(live_workers(self._client), 0)
        for file, held in self._held.items():
            if held.address in loads and file not in files:
                loads[held.address] += self._shards[file].n_bytes
        for file in sorted(files, key=lambda name: (-self._shards[name].n_bytes, name)):
            shard = self._shards[file]
            address = min(loads, key=lambda one: (loads[one], one))
            loads[address] += shard.n_bytes
            if limits.get(address) and loads[address] > limits[address]:
                total = sum(one.n_bytes for one in self._shards.values())
                raise MemoryError(
                    f"{total:,} bytes of shards do not fit: {address} would have to hold more than "
                    f"{int(limits[address]):,}, the part of its memory that Dask fills before it spills to disk; add "
                    "workers, or give them more memory"
                )
            future = self._client.submit(self._load, shard, workers=[address], pure=False)
            self._held[file] = Held(address, future)
