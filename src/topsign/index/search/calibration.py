"""Calibration: nulls learned from scores of impostors, in place of the laws for isotropic signals."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol

import numpy as np

from ..._arrays import Array, Float64, Int64
from ..._lazy import lazy
from ..._rows import take_rows
from ...errors import StorageError
from ...recipe import Recipe
from ...theory.nulls import LearnedNull
from ..storage import Snapshot
from .scans import make_scans
from .significance import Significance

FORMAT = 1
MAX_QUERIES = 1000
"""Signals that are compared with entries to learn a null; more pairs take more entries."""


class Population(Protocol):
    """Entries that a sample can be drawn from: a snapshot, or shards on a cluster."""

    @property
    def has_names(self) -> bool | None: ...
    def __len__(self) -> int: ...
    def sample(self, n_entries: int, rng: np.random.Generator) -> Snapshot: ...


@dataclass(frozen=True, eq=False)
class Calibration:
    """Nulls of both scorings, with the numbers they were learned from."""

    hamming: LearnedNull  # of mismatches, negated
    asymmetric: LearnedNull  # of estimated correlations
    n_queries: int
    n_entries: int  # entries of the index at the time

    @property
    def floor(self) -> float:
        """Smallest p-value that both nulls support."""
        return max(self.hamming.floor, self.asymmetric.floor)

    def to_json(self) -> dict[str, Any]:
        """A record of plain values."""
        return {
            "format": FORMAT,
            "hamming": self.hamming.to_json(),
            "asymmetric": self.asymmetric.to_json(),
            "n_queries": self.n_queries,
            "n_entries": self.n_entries,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any], path: str | os.PathLike[str]) -> Calibration:
        """The calibration in a record that was read from ``path``; StorageError where it is none."""
        try:
            if record["format"] != FORMAT:
                raise ValueError(f"format {record['format']!r}; this library reads {FORMAT}")
            hamming, asymmetric = (LearnedNull.from_json(record[name]) for name in ("hamming", "asymmetric"))
            return cls(hamming, asymmetric, int(record["n_queries"]), int(record["n_entries"]))
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(path, "calibration", f"cannot be read: {error}; calibrate the index again") from None


@dataclass(frozen=True)
class LearnedSignificance(Significance):
    """Significance by learned nulls; correlations stay those of the theory."""

    calibration: Calibration

    learned: ClassVar[bool] = True

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    def score_pvalues(self, correlations: Float64) -> Float64:
        return self.calibration.asymmetric.pvalue(correlations)

    def score_threshold(self, level: float) -> float:
        return self.calibration.asymmetric.threshold(level)

    @lazy
    def _mismatch_pvalues(self) -> Float64:
        return self.calibration.hamming.pvalue(-np.arange(self.n_bits + 1.0))


def learn_calibration(
    recipe: Recipe,
    entries: Population,
    queries: Array,
    *,
    n_pairs: int,
    rng: np.random.Generator,
    own_ids: Int64 | None = None,
    n_threads: int | None = None,
) -> Calibration:
    """Learns nulls from pairs of queries and random entries.

    ``own_ids`` are the entries that the queries are themselves, -1 for none: such pairs are left out, and outliers
    are trimmed, because some of the others may match.
    """
    chosen = np.sort(rng.permutation(len(queries))[:MAX_QUERIES])
    some = entries.sample(min(len(entries), -(-n_pairs // len(chosen))), rng)
    nulls, asked = {}, take_rows(queries, chosen)
    for scoring in ("asymmetric",) if recipe.family == "trellis" else ("hamming", "asymmetric"):
        scores, rows = [], []
        for block, scan in make_scans(recipe, asked, scoring=scoring, n_threads=n_threads):
            hits = scan.rank(some, len(some))
            values = -hits.values.astype(np.float64) if scoring == "hamming" else scan.correlations(some, hits)
            kept = scan.queries.norms[hits.rows] > 0
            if own_ids is not None:
                kept &= hits.ids != own_ids[chosen][block][hits.rows]
            scores.append(values[kept])
            rows.append(hits.rows[kept] + block.start)
        nulls[scoring] = LearnedNull.learn(
            np.concatenate(scores),
            groups=np.concatenate(rows),
            trim=own_ids is not None,
            step=1.0 if scoring == "hamming" else 0.0,
        )
    nulls.setdefault("hamming", nulls["asymmetric"])  # trellis codes have no signs to compare, and no use for it
    return Calibration(**nulls, n_queries=len(chosen), n_entries=len(entries))


class SignalSample:
    """A uniform sample of the signals that were added in this process, to learn nulls from."""

    MAX_BYTES = 2**23

    def __init__(self, n_features: int) -> None:
        self.capacity = int(np.clip(self.MAX_BYTES // (4 * n_features), 32, MAX_QUERIES))
        self.ids: Array = np.empty(0, np.int64)  # as users see them
        self.signals = np.empty((0, n_features), np.float32)
        self._n_seen = 0
        self._rng = np.random.default_rng(0)

    def offer(self, ids: Array, signals: Array, first: int) -> None:
        """Considers added signals, rows from ``first`` on; all that were ever offered have the same chance."""
        self._n_seen += len(ids)
        n_kept = min(self.capacity, self._n_seen)
        # The number of new ones in a uniform sample of all is hypergeometric.
        n_new = int(self._rng.hypergeometric(len(ids), self._n_seen - len(ids), n_kept)) if len(ids) else 0
        if not n_new:
            return
        new = np.sort(self._rng.choice(len(ids), n_new, replace=False))
        old = np.sort(self._rng.choice(len(self.ids), n_kept - n_new, replace=False))
        chosen = take_rows(signals, first + new).astype(np.float32)
        self.signals = np.concatenate([self.signals[old], chosen])
        self.ids = np.concatenate([self.ids[old], ids[new]]) if len(old) else ids[new]
