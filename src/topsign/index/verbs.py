"""Verbs of entries that are the same in this process and on a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic

import numpy.typing as npt

from .._named import named
from ..signals import from_table
from .results import Codes, Entries, Entry, Note

Ids = npt.NDArray[Any]
"""Ids as users see them: int64, or texts (dtype object) where the entries were given such."""


class Verbs(ABC, Generic[Codes]):
    """What an index does with its entries by means of a few methods that subclasses have."""

    @property
    @abstractmethod
    def ids(self) -> Ids:
        """Ids of the entries: ascending integers, or texts in the order in which they were added."""

    @abstractmethod
    def __contains__(self, id: object) -> bool:
        """Whether an entry has this id."""

    @abstractmethod
    def get(self, ids: npt.ArrayLike) -> Entries[Codes]:
        """Codes and metadata of these entries, or of this one, in the order asked; an unknown id raises."""

    @abstractmethod
    def _write(
        self,
        signals: npt.ArrayLike,
        *,
        ids: npt.ArrayLike | None,
        metadata: Iterable[Note] | None,
        n_threads: int | None,
        device: Any,
        replacing: bool,
    ) -> Ids:
        """Adds signals; entries with the same ids are replaced, or refused."""

    def __iter__(self) -> Iterator[Any]:
        """Ids of the entries, in the order of :attr:`ids`."""
        return iter(self.ids.tolist())

    def __getitem__(self, id: int | str) -> Entry[Codes]:
        """The entry with this id; KeyError where there is none."""
        if id not in self:
            raise KeyError(id)
        return self.get([id])[0]

    @named
    def upsert(
        self,
        signals: npt.ArrayLike,
        *,
        ids: npt.ArrayLike,
        metadata: Iterable[Note] | None = None,
        n_threads: int | None = None,
        device: str | None = None,
    ) -> Ids:
        """Adds signals, and replaces the entries whose ids are in the index already, all in one transaction.

        Entries that are replaced lose their metadata where none is given. Parameters are those of :meth:`add`.
        """
        return self._write(signals, ids=ids, metadata=metadata, n_threads=n_threads, device=device, replacing=True)

    @named
    def add_table(
        self,
        table: Any,
        *,
        vector_column: str | None = None,
        id_column: str | None = None,
        metadata_columns: Sequence[str] = (),
        upsert: bool = False,
        n_threads: int | None = None,
        device: str | None = None,
    ) -> Ids:
        """Adds the rows of a pandas or Polars frame or an Arrow table; with ``upsert`` replaces those of known ids.

        Parameters
        ----------
        vector_column : str, optional
            The column of lists that holds the vectors; the only one when not given. Without any, all numeric columns
            that are neither ids nor metadata are the features; later tables must have the same, in the same order.
        id_column : str, optional
            The column of ids, texts or integers.
        metadata_columns : sequence of str
            Columns that become the metadata of each entry.
        """
        found = from_table(table, vector_column=vector_column, id_column=id_column, metadata_columns=metadata_columns)
        if upsert and found.ids is None:
            raise ValueError("upsert needs id_column: entries are replaced by their ids")
        return self._write(
            found.signals,
            ids=found.ids,
            metadata=found.metadata,
            n_threads=n_threads,
            device=device,
            replacing=upsert,
        )
