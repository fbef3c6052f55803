"""Files that an evaluation has read, and commands and Python code that read them again."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from .configurations import Configuration

INDEX = "index.topsign"
ORIGINALS = "float32"
"""Type of stored originals that orders candidates exactly as the signals do."""


@dataclass(frozen=True)
class SearchSettings:
    """Build and search parameters: originals, rescoring and regions."""

    factor: int | None = None  # candidates per neighbour that are rescored
    originals: str | None = None  # type of kept originals
    recall: float | None = None  # recall that a search of regions is asked for

    def build_options(self) -> list[str]:
        """Return options of ``topsign build``."""
        kept = [] if self.originals is None else [f"--originals {self.originals}"]
        return kept + ([] if self.recall is None else ["--regions"])

    def search_options(self) -> list[str]:
        """Return options of ``topsign search``."""
        if self.recall is not None:
            return [f"--recall {self.recall:g}"]
        return [] if self.factor is None else [f"--rescore-factor {self.factor}"]

    def arguments(self) -> str:
        """Return arguments of ``Index.search``, after others."""
        if self.recall is not None:
            return f", recall={self.recall:g}"
        return "" if self.factor is None else f", rescore={self.factor} * k"


@dataclass(frozen=True)
class SignalSource:
    """Source of signals, ids and queries: files, or arrays named ``signals`` and ``queries``."""

    signals: str | None = None
    queries: str | None = None
    array: str | None = None
    id_column: str | None = None

    def commands(self, configuration: Configuration, settings: SearchSettings, *, k: int, random_state: int) -> str:
        """Return shell commands that build an index and search it."""
        build = ["topsign build", shlex.quote(self.signals or "signals.npy"), f"-o {INDEX}"]
        build += [f"--array {shlex.quote(self.array)}"] if self.array else []
        build += [f"--id-column {shlex.quote(self.id_column)}"] if self.id_column else []
        build += [configuration.options(), f"--seed {random_state}"]
        search = ["topsign search", INDEX, shlex.quote(self.queries or "queries.npy"), f"-k {k}"]
        search += [f"--array {shlex.quote(self.array)}"] if self.array and self.queries else []
        build += settings.build_options()
        search += settings.search_options()
        return f"{' '.join(build)}\n{' '.join(search)}"

    def python(
        self, configuration: Configuration, settings: SearchSettings, *, n_features: int, k: int, random_state: int
    ) -> str:
        """Return Python code that builds an index and searches it; the last line assigns ``neighbors``."""
        options: dict[str, Any] = {} if settings.originals is None else {"originals": settings.originals}
        made = configuration.constructor(n_features, **options, random_state=random_state)
        learned = [] if settings.recall is None else ["index.learn_regions()"]
        ids = ", ids=ids" if self.id_column else ""
        return "\n".join(
            [
                "import topsign as ts",
                *self._reading(),
                "",
                f"index = {made}",
                f"index.add(signals{ids})",
                *learned,
                f"neighbors = index.search(queries, k={k}{settings.arguments()})",
            ]
        )

    def _reading(self) -> list[str]:
        if self.signals is None:
            return []
        columns = f", [{self.id_column!r}]" if self.id_column else ""
        lines = [
            "from topsign.signals import FilesRows, open_files",
            "",
            f"files = open_files({self.signals!r}, {self.array!r}{columns})",
            "signals = FilesRows(files)",
        ]
        if self.id_column:
            name = repr(self.id_column)
            lines.append(f"ids = [id for file in files for id in file.columns([{name}])[{name}].to_pylist()]")
        asked = self.queries or "queries.npy"
        return [*lines, f"queries = FilesRows(open_files({asked!r}, {self.array!r}))"]
