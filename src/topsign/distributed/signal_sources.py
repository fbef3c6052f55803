"""Sources of signals for encoding on a cluster: files read by the workers, or a dask array."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from dask.delayed import delayed
from distributed import Client, Future

from .._arrays import Array, Int64
from .._checks import as_signals
from .._files import Record
from .._rows import Rows
from ..search import sampled_rows
from ..signals import FilesRows, Place, SignalFile, TableColumns, open_file
from ..signals.files import check_same_columns
from ..store.folder_store import FolderStore
from .cluster import run_all
from .plan import PlannedSegment, plan_blocks, plan_files
from .segment_writing import Sample, sample_files, write_from_block

HEADERS_PER_TASK = 64
"""Number of file headers read by one task."""


class FileSource:
    """Signal files, whose headers are read by the workers."""

    submit_block = None

    def __init__(self, client: Client, places: list[Place], array: str | None, columns: TableColumns) -> None:
        self._client, self._columns = client, columns
        groups = [tuple(places[at : at + HEADERS_PER_TASK]) for at in range(0, len(places), HEADERS_PER_TASK)]
        found: dict[str, SignalFile] = {}
        submit = partial(client.submit, _open_group, array, columns.names, pure=False)
        for _, files, error in run_all(client, groups, submit, name=lambda group: f"headers from {group[0].url} on"):
            if error is not None:
                raise error
            found |= {file.url: file for file in files}
        self._files = [found[place.url] for place in places]
        check_same_columns(self._files)
        if not any(file.n_signals for file in self._files):
            raise ValueError(f"{self._files[0].url} and all other files contain no signals")

    def check(self, n_features: int) -> None:
        for file in self._files:
            if file.n_signals and file.n_features != n_features:
                raise ValueError(
                    f"{file.url} has signals of {file.n_features} features, the encoder takes {n_features}"
                )

    def rows(self) -> Any:
        """Return all signals as rows that are read when sliced."""
        return FilesRows(self._files)

    def records(self) -> dict[str, Record]:
        named = {"columns": list(self._columns.names)} if self._columns.names else {}
        records = [file.to_json() | named | {"taken": file.n_signals} for file in self._files]
        return {record["url"]: record for record in records}

    def n_signals(self, missing: dict[str, Record]) -> int:
        return sum(record["taken"] for record in missing.values())

    def submit_sample(self, plan: PlannedSegment, n_features: int, below: int | None) -> Future:
        """Read the calibration sample of an encoded segment."""
        return self._client.submit(sample_files, plan, n_features, below, pure=False)

    def plan(self, missing: dict[str, Record], first_id: int, limit: int) -> list[PlannedSegment]:
        new = [file for file in self._files if file.to_json()["url"] in missing]
        return list(plan_files(new, first_id, limit, self._columns))


class ArraySource:
    """Dask array of signals with known block sizes."""

    def __init__(self, client: Client, array: Any, columns: TableColumns) -> None:
        if columns.names:
            raise ValueError("a dask array has no id and metadata columns; encode tables instead")
        as_signals(np.empty((0,) * array.ndim, array.dtype))
        if array.ndim != 2:
            raise ValueError(f"signals must be a dask array (n_signals, n_features), got shape {array.shape}")
        if any(math.isnan(size) for size in array.chunks[0]):
            raise ValueError("the blocks of this dask array have unknown sizes; call compute_chunk_sizes() first")
        self._client, self._array = client, array.rechunk({1: -1})

    def check(self, n_features: int) -> None:
        if self._array.shape[1] != n_features:
            raise ValueError(f"signals must be a dask array (n_signals, {n_features}), got shape {self._array.shape}")

    def rows(self) -> Any:
        return _DaskRows(self._client, self._array)

    def records(self) -> dict[str, Record]:
        blocks, n_features = [int(size) for size in self._array.chunks[0]], self._array.shape[1]
        return {self._array.name: {"blocks": blocks, "n_features": n_features, "taken": sum(blocks)}}

    def n_signals(self, missing: dict[str, Record]) -> int:
        return int(self._array.shape[0])

    def plan(self, missing: dict[str, Record], first_id: int, limit: int) -> list[PlannedSegment]:
        return list(plan_blocks(self._array, first_id))

    def submit_block(
        self, store: FolderStore, coding: Future, name: str, plan: PlannedSegment, below: int | None
    ) -> Future:
        """Compute and encode a block."""
        (part,) = plan.parts
        block = self._array.blocks[part.number, 0].to_delayed().item()  # type: ignore[union-attr]
        task = delayed(write_from_block, pure=False)(store.backend, coding, name, plan, below, block)
        future: Future = self._client.compute(task, optimize_graph=True)
        return future

    def submit_sample(self, plan: PlannedSegment, n_features: int, below: int | None) -> Future:
        """Read the calibration sample of an encoded block."""
        (part,) = plan.parts
        ids = np.arange(plan.first_id, plan.first_id + plan.n_entries)
        chosen = sampled_rows(ids, n_features, below)
        signals = self._array[part.start + chosen].astype(np.float32)
        future: Future = self._client.compute(delayed(_pair, pure=False)(ids[chosen], signals))
        return future


Source = FileSource | ArraySource


class _DaskRows(Rows):
    """Rows of a dask array, computed when sliced."""

    def __init__(self, client: Client, array: Any) -> None:
        self._client, self._array = client, array
        super().__init__(array.shape, array.dtype)

    def read(self, start: int, stop: int) -> Array:
        return np.asarray(self._client.compute(self._array[start:stop]).result())


def _pair(ids: Int64, signals: Array) -> Sample:
    return ids, np.asarray(signals, np.float32)


def _open_group(array: str | None, aside: tuple[str, ...], places: tuple[Place, ...]) -> list[SignalFile]:
    return [open_file(place, array, aside) for place in places]
