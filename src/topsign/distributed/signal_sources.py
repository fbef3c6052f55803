"""Signal files for encoding on a cluster, which are read by the workers."""

from __future__ import annotations

from functools import partial
from typing import Any

from distributed import Client

from .._files import Record
from ..signals import FilesRows, Place, SignalFile, TableColumns, check_same_columns, open_file
from .cluster import run_all
from .plan import PlannedSegment, plan_files

HEADERS_PER_TASK = 64
"""Number of file headers read by one task."""


class FileSource:
    """Signal files, whose headers are read by the workers."""

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

    def plan(self, missing: dict[str, Record], first_id: int, limit: int) -> list[PlannedSegment]:
        new = [file for file in self._files if file.to_json()["url"] in missing]
        return list(plan_files(new, first_id, limit, self._columns))


def _open_group(array: str | None, aside: tuple[str, ...], places: tuple[Place, ...]) -> list[SignalFile]:
    return [open_file(place, array, aside) for place in places]
