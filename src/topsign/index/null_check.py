"""The check whether p-values can be trusted: p-values of random pairs against their nominal share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .._arrays import Array, Int64
from .._rows import take_rows
from ..families import Null, Recipe
from ..search import Population, make_scans
from ..theory.log_tails import probabilities

LEVEL, TOO_MANY = 1e-3, 10
N_PAIRS, MIN_PAIRS, MIN_ENTRIES = 8192, 2000, 200
FLOOD = 0.01  # share of all pairs above which a range search by significance is refused
CAUSE = "the signals are not isotropic, so that p-values and false_alarm mean little"


@dataclass(frozen=True)
class NullCheck:
    """Share of random pairs whose p-value is at most ``level``, which is what it would be for a right null."""

    share: float
    n_pairs: int
    level: float = LEVEL
    by_codes: bool = False  # two codes were compared, not a signal and a code

    @property
    def trusted(self) -> bool:
        """False if ten times the nominal share falls below the level."""
        return self.n_pairs < MIN_PAIRS or self.share <= TOO_MANY * self.level

    def __str__(self) -> str:
        pairs = "pairs of entries" if self.by_codes else "pairs of queries and entries"
        return (
            f"{self.share:.2%} of {self.n_pairs:,} random {pairs} have p-values below {self.level:g}, where "
            f"{self.level:.2%} is nominal"
        )


def check_pairs(
    recipe: Recipe,
    entries: Population,
    queries: Array,
    scoring: str,
    nulls: dict[str, Null] | None,
    own_ids: Int64 | None = None,
    *,
    level: float = LEVEL,
) -> NullCheck:
    """Compare a few queries with random entries; queries that are entries are not compared with themselves.

    Codes without a null have no p-values to check: no pairs are compared.
    """
    if not len(entries) or not len(queries):
        return NullCheck(0.0, 0, level)
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(queries))[:32])
    some = entries.sample(min(len(entries), N_PAIRS // len(rows)), rng)
    n_below = n_pairs = 0
    for block, scan in make_scans(recipe, take_rows(queries, rows), scoring=scoring, nulls=nulls):
        if scan.null is None:
            break
        hits = scan.measure(some, scan.rank(some, len(some)))
        kept = np.ones(len(hits.ids), bool) if own_ids is None else hits.ids != own_ids[rows][block][hits.queries]
        n_pairs += int(kept.sum())
        n_below += int((probabilities(hits.log10_p_values[kept]) <= level).sum())
    return NullCheck(n_below / max(1, n_pairs), n_pairs, level)


def check_codes(recipe: Recipe, entries: Population) -> NullCheck:
    """Compare pairs of entries by their codes, under the law of isotropic signals."""
    n_entries = min(len(entries), math.isqrt(2 * N_PAIRS))
    if n_entries < 2:
        return NullCheck(0.0, 0, by_codes=True)
    some = entries.sample(n_entries, np.random.default_rng(0))
    codes = some.gather("codes", some.locate(some.ids))
    p_values = recipe.code_pvalues(codes)
    if p_values is None:
        return NullCheck(0.0, 0, by_codes=True)
    first, second = np.triu_indices(len(codes), 1)
    return NullCheck(float(np.mean(p_values[first, second] <= LEVEL)), len(first), by_codes=True)
