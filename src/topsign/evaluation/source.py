"""Files of signals that an evaluation read, and commands and code that read them again."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from .configurations import Configuration

INDEX = "index.topsign"
ORIGINALS = "float32"
"""Type of kept originals: rescoring by them orders candidates as the signals themselves do."""


@dataclass(frozen=True)
class SignalSource:
    """Where signals, ids and queries come from; arrays named ``signals`` and ``queries`` if no file is named."""

    signals: str | None = None
    queries: str | None = None
    array: str | None = None
    id_column: str | None = None

    def commands(self, configuration: Configuration, factor: int | None, *, k: int, random_state: int) -> str:
        """Return shell commands that build an index and search it."""
        build = ["topsign build", shlex.quote(self.signals or "signals.npy"), f"-o {INDEX}"]
        build += [f"--array {shlex.quote(self.array)}"] if self.array else []
        build += [f"--id-column {shlex.quote(self.id_column)}"] if self.id_column else []
        build += [configuration.options(), f"--seed {random_state}"]
        search = ["topsign search", INDEX, shlex.quote(self.queries or "queries.npy"), f"-k {k}"]
        search += [f"--array {shlex.quote(self.array)}"] if self.array and self.queries else []
        if factor is not None:
            build.append(f"--originals {ORIGINALS}")
            search.append(f"--rescore-factor {factor}")
        return f"{' '.join(build)}\n{' '.join(search)}"

    def python(
        self, configuration: Configuration, factor: int | None, *, n_features: int, k: int, random_state: int
    ) -> str:
        """Return Python code that builds an index and searches it: the last line assigns ``neighbors``."""
        options: dict[str, Any] = {} if factor is None else {"originals": ORIGINALS}
        made = configuration.constructor(n_features, **options, random_state=random_state)
        rescored = "" if factor is None else f", rescore=True, rescore_factor={factor}"
        ids = ", ids=ids" if self.id_column else ""
        return "\n".join(
            [
                "import topsign as ts",
                *self._reading(),
                "",
                f"index = {made}",
                f"index.add(signals{ids})",
                f"neighbors = index.search(queries, k={k}{rescored})",
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
