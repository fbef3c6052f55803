"""Calibration: null distributions learned from scores of impostors, in place of those of isotropic signals."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from .._arrays import Array, Float64, Int64
from .._rows import take_rows
from ..errors import StorageError
from ..families import Null, Recipe
from ..families.laws import MismatchNull
from ..store import Snapshot
from ..theory.nulls import LearnedNull
from .scan import make_scans

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

    nulls: Mapping[str, LearnedNull]  # of mismatches, negated, and of estimated correlations, by scoring
    n_queries: int
    n_entries: int  # entries of the index at the time

    @property
    def floor(self) -> float:
        """Smallest p-value that all nulls support."""
        return max(null.floor for null in self.nulls.values())

    def for_recipe(self, recipe: Recipe) -> dict[str, Null]:
        """Return the nulls that scans use, by scoring."""
        found: dict[str, Null] = {"asymmetric": LearnedScoreNull(self.nulls["asymmetric"])}
        if "hamming" in self.nulls:
            n_bits = recipe.n_bits  # type: ignore[attr-defined]  # codes with signs have them
            found["hamming"] = MismatchNull(self.nulls["hamming"].pvalue(-np.arange(n_bits + 1.0)), learned=True)
        return found

    def to_json(self) -> dict[str, Any]:
        """A record of plain values."""
        return {
            "format": FORMAT,
            "nulls": {scoring: null.to_json() for scoring, null in self.nulls.items()},
            "n_queries": self.n_queries,
            "n_entries": self.n_entries,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any], path: str | os.PathLike[str]) -> Calibration:
        """The calibration in a record that was read from ``path``; StorageError where it is none."""
        try:
            if record["format"] != FORMAT:
                raise ValueError(f"format {record['format']!r}; this library reads {FORMAT}")
            nulls = {scoring: LearnedNull.from_json(one) for scoring, one in record["nulls"].items()}
            if "asymmetric" not in nulls:
                raise ValueError("it has no null of real-valued scores")
            return cls(nulls, int(record["n_queries"]), int(record["n_entries"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StorageError(path, "calibration", f"cannot be read: {error}; calibrate the index again") from None


@dataclass(frozen=True, eq=False)
class LearnedScoreNull:
    """Null distribution of estimated correlations, learned from impostors."""

    null: LearnedNull
    learned: ClassVar[bool] = True

    def p_values(self, statistics: Float64) -> Float64:
        return self.null.pvalue(statistics)

    def threshold(self, level: float) -> float:
        return self.null.threshold(level)


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
    for scoring in recipe.scorings:
        scores, rows = [], []
        for block, scan in make_scans(recipe, asked, scoring=scoring, n_threads=n_threads):
            hits = scan.rank(some, len(some))
            values = scan.statistics(some, hits)
            kept = scan.comparison.norms[hits.queries] > 0
            if own_ids is not None:
                kept &= hits.ids != own_ids[chosen][block][hits.queries]
            scores.append(values[kept])
            rows.append(hits.queries[kept] + block.start)
        nulls[scoring] = LearnedNull.learn(
            np.concatenate(scores),
            groups=np.concatenate(rows),
            trim=own_ids is not None,
            step=1.0 if scoring == "hamming" else 0.0,
        )
    return Calibration(nulls, n_queries=len(chosen), n_entries=len(entries))
