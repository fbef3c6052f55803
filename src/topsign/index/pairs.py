"""Pairs: entries of one index that resemble each other, found by their codes alone.

Two codes are compared where both keep a sign: the *agreement* of a pair is the number of common locations whose signs
agree less the number whose signs differ. It is symmetric. Of independent signals the number of common locations is
hypergeometric and each sign agrees with probability one half, which gives the p-values (exact for independent normal
projections); the correlation at which an agreement is expected is its score. Trellis codes are compared by the cosine
of their reconstructions, see :mod:`topsign.index.trellis_pairs`; for these there are no p-values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import scipy  # whose modules are loaded when they are first used
from scipy.special import ndtr

from .. import kernels
from .._arrays import Array, Bytes, Float32, Float64, Int64
from .._checks import check_count, check_false_alarm, check_real
from .._lazy import lazy
from .._named import named
from ..recipe import Recipe
from .search import Hits, KernelEngine, Queries
from .storage import Snapshot
from .tables import Table
from .trellis_pairs import Cosines, living_blocks

BLOCK_BYTES = 2**22
"""Codes that are compared with all others at a time, as real numbers."""

Progress = Callable[[int, int], None]
Entries = TypeVar("Entries", bound=Sized)


@dataclass(frozen=True, eq=False)
class Pairs(Table):
    """Pairs of entries, each once; the most alike first, ties by ids."""

    first: Any  # (n_pairs,) ids; of numbers the smaller, of texts the one added earlier
    second: Any  # (n_pairs,) ids
    scores: Float64  # (n_pairs,) estimated correlations; of trellis codes cosines of reconstructions
    p_values: Float64  # (n_pairs,) chance that two independent signals look as much alike; nan of trellis codes

    def __len__(self) -> int:
        return len(self.scores)

    def groups(self) -> list[list[Any]]:
        """Ids of entries that are connected by pairs, as lists of two or more; the largest group first."""
        ids = list(dict.fromkeys([*self.first.tolist(), *self.second.tolist()]))
        at = {id: place for place, id in enumerate(ids)}
        rows = [at[id] for id in self.first.tolist()], [at[id] for id in self.second.tolist()]
        graph = scipy.sparse.coo_array((np.ones(len(self)), rows), shape=(len(ids), len(ids)))
        _, labels = scipy.sparse.csgraph.connected_components(graph, False)
        found: dict[int, list[Any]] = {}
        for id, label in zip(ids, labels.tolist(), strict=True):
            found.setdefault(label, []).append(id)
        return sorted((sorted(group) for group in found.values()), key=lambda group: (-len(group), group))

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns by name; one value per pair."""
        columns = {"first": self.first, "second": self.second, "score": self.scores, "p_value": self.p_values}
        return {name: column.tolist() for name, column in columns.items()}

    def _kinds(self, arrow: Any) -> dict[str, Any]:
        id_kind = arrow.string() if self.first.dtype == object else arrow.int64()
        return {"first": id_kind, "second": id_kind, "score": arrow.float64(), "p_value": arrow.float64()}

    def __repr__(self) -> str:
        shown = [f"  {a} - {b}: {score:.4f}" for a, b, score in zip(self.first, self.second, self.scores, strict=True)]
        more = [f"  ... {len(self) - 10} more"] if len(self) > 10 else []
        return "\n".join([f"Pairs: {len(self)}", *shown[:10], *more])


@dataclass(frozen=True)
class Agreement:
    """The law of the agreement of two codes."""

    n_bits: int
    n_pool: int

    def p_values(self, agreements: Array) -> Float64:
        """Chance that the codes of independent signals agree at least so much."""
        values, places = np.unique(np.asarray(agreements, np.int64), return_inverse=True)
        common = np.arange(self.n_bits + 1)
        weights = scipy.stats.hypergeom.pmf(common, self.n_pool, self.n_bits, self.n_bits)
        common, weights = common[weights > 0], weights[weights > 0]
        tails = [float(weights @ scipy.stats.binom.sf((common + value + 1) // 2 - 1, common, 0.5)) for value in values]
        return np.asarray(np.minimum(1.0, np.array(tails))[places], np.float64)

    def scores(self, agreements: Array) -> Float64:
        """Correlations at which these agreements are expected."""
        expected, correlations = self._expected
        return np.asarray(np.sign(agreements) * np.interp(np.abs(agreements), expected, correlations))

    def least(self, test: Callable[[Int64], Array]) -> int:
        """The least agreement that passes a test that all larger ones pass; one more than n_bits where none does."""
        low, high = -self.n_bits, self.n_bits + 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if test(np.array([middle]))[0] else (middle + 1, high)
        return low

    @lazy
    def _expected(self) -> tuple[Float64, Float64]:
        """Expected agreement of normal signals at correlations from 0 to 1, ascending."""
        limit = scipy.stats.norm.isf(self.n_bits / (2 * self.n_pool))  # projections beyond it are kept
        nodes, weights = np.polynomial.legendre.leggauss(300)
        x = limit + 4.5 * (nodes + 1)
        weights = 4.5 * weights * scipy.stats.norm.pdf(x)
        rho = np.sin(np.linspace(0, np.pi / 2, 400))[:-1]
        rest = np.sqrt(1 - rho**2)[:, None]
        both = ndtr((rho[:, None] * x - limit) / rest) - ndtr((-rho[:, None] * x - limit) / rest)
        expected = np.append(2 * self.n_pool * both @ weights, self.n_bits)
        return np.maximum.accumulate(expected), np.append(rho, 1.0)


@dataclass(frozen=True)
class PairLimit:
    """Which pairs are wanted: those that agree enough, or of every entry the ``k`` that agree most with it."""

    law: Agreement | Cosines
    least: float  # agreement or cosine
    k: int | None

    @classmethod
    def checked(
        cls, recipe: Recipe, n_entries: int, *, false_alarm: float | None, threshold: float | None, k: int | None
    ) -> PairLimit:
        """The limit for so many entries; exactly one of the three must be given."""
        given = {"false_alarm": false_alarm, "threshold": threshold, "k": k}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            raise ValueError("give exactly one of false_alarm, threshold and k, got " + (" and ".join(named) or "none"))
        k = None if k is None else check_count(k, "k")
        limit = None if threshold is None else check_real(threshold, "threshold", minimum=-1, maximum=1)
        if recipe.family == "trellis":
            if false_alarm is not None:
                raise ValueError(
                    "false_alarm needs the law of two codes of unrelated signals, which trellis codes do not follow; "
                    "give threshold, the least cosine of two reconstructions, or k"
                )
            return cls(Cosines.of(recipe), -1.0 if limit is None else limit, k)
        law = Agreement(recipe.n_bits, recipe.n_pool)
        least = -law.n_bits
        if false_alarm is not None:
            n_pairs = max(1, n_entries * (n_entries - 1) // 2)
            level = -np.expm1(np.log1p(-check_false_alarm(false_alarm)) / n_pairs)
            least = law.least(lambda value: law.p_values(value) <= level)
        elif limit is not None:
            least = law.least(lambda value: law.scores(value) >= limit)
        return cls(law, least, k)

    def kept(self, numbers: Int64, hits: Hits) -> Hits:
        """Of the hits of entries with these numbers, which become their rows: each pair once, or the k best others."""
        hits = replace(hits, rows=numbers[hits.rows])
        if self.k is None:
            return hits[hits.ids > hits.rows]
        return Hits.merge([hits[hits.ids != hits.rows]], descending=True, k=self.k)

    def join(self, parts: Iterable[Hits]) -> Pairs:
        """All pairs that were kept."""
        whole = Hits.merge(parts, descending=True)
        first, second, agreements = whole.rows, whole.ids, whole.values
        if self.k is not None:  # a pair may be near from both sides
            both = np.sort(np.stack([first, second]), axis=0)
            both, at = np.unique(both, axis=1, return_index=True)
            first, second, agreements = both[0], both[1], agreements[at]
        order = np.lexsort((second, first, -agreements))
        agreements = agreements[order]
        return Pairs(first[order], second[order], self.law.scores(agreements), self.law.p_values(agreements))


class PairFinding(ABC, Generic[Entries]):
    """Indexes whose entries can be compared with each other. Where these are, subclasses say."""

    recipe: Recipe

    @abstractmethod
    def _whole(self) -> Entries:
        """All entries of this moment."""

    @abstractmethod
    def _user_ids(self, whole: Entries, numbers: Int64) -> Any:
        """Numbers of entries as the ids that the user gave."""

    @abstractmethod
    def _compared(self, whole: Entries, limit: PairLimit, n_threads: int | None) -> Iterator[tuple[int, Hits]]:
        """Number of entries in a block, and what the limit keeps of their comparison with all; every entry once."""

    @named
    def pairs(
        self,
        *,
        false_alarm: float | None = None,
        threshold: float | None = None,
        k: int | None = None,
        n_threads: int | None = None,
        progress: Progress | None = None,
    ) -> Pairs:
        """Pairs of entries that resemble each other, each once: near-duplicates, found by the codes alone.

        Parameters
        ----------
        false_alarm : float in (0, 1)
            Pairs significant at this level for the whole index: with P pairs of entries, those whose p-value is at
            most ``1 - (1 - false_alarm) ** (1 / P)``. Not for trellis codes, whose law is not known.
        threshold : float in [-1, 1]
            Pairs whose estimated correlation is at least this; of trellis codes, the cosine of their reconstructions.
        k : int
            Pairs in which one is among the k entries most like the other.
        progress : callable, optional
            Called with the number of entries compared with all others, and of all entries.
        """
        whole = self._whole()
        limit = PairLimit.checked(self.recipe, len(whole), false_alarm=false_alarm, threshold=threshold, k=k)
        parts, done = [], 0
        for n_compared, hits in self._compared(whole, limit, n_threads):
            parts.append(hits)
            done += n_compared
            if progress is not None:
                progress(done, len(whole))
        found = limit.join(parts)
        first, second = (self._user_ids(whole, numbers) for numbers in (found.first, found.second))
        return replace(found, first=first, second=second)


def compare_entries(
    recipe: Recipe, blocks: Snapshot, snapshot: Snapshot, limit: PairLimit, n_threads: int
) -> Iterator[tuple[int, Hits]]:
    """Entries of one snapshot, a block at a time: how many, and what is kept of comparing them with another's."""
    n_values = recipe.n_features if recipe.family == "trellis" else recipe.n_pool
    for numbers, _, codes in living_blocks(blocks, max(1, BLOCK_BYTES // (4 * n_values))):
        if isinstance(limit.law, Cosines):
            more = None if limit.k is None else limit.k + 1  # one of them is the entry itself
            hits = limit.law.compare(recipe, numbers, codes, snapshot, least=limit.least, k=more)
        else:
            hits = _compare(recipe, snapshot, _signs(recipe, codes, n_threads), limit, n_threads)
        yield len(numbers), limit.kept(numbers, hits)


def _signs(recipe: Recipe, codes: Bytes, n_threads: int) -> Float32:
    """Codes as rows of +-1 and 0."""
    if recipe.family == "sign":
        bits = np.unpackbits(codes, axis=1, count=recipe.n_pool, bitorder="little")
        return bits.astype(np.float32) * 2 - 1
    locations, packed = kernels.active().unpack_codes(recipe.layout, codes, n_threads=n_threads)
    bits = np.unpackbits(packed, axis=1, count=recipe.n_bits, bitorder="little")
    out = np.zeros((len(codes), recipe.n_pool), np.float32)
    np.put_along_axis(out, locations.astype(np.int64), bits.astype(np.float32) * 2 - 1, axis=1)
    return out


def _compare(recipe: Recipe, snapshot: Snapshot, block: Float32, limit: PairLimit, n_threads: int) -> Hits:
    """Entries that agree enough with each code of a block, or the k + 1 that agree most: one of them is itself."""
    engine, queries = KernelEngine(), Queries(block, np.ones(len(block)))
    if limit.k is None:
        needed = np.full(len(block), limit.least, np.float32)
        return engine.within_scores(snapshot, recipe.layout, queries, needed, column=None, n_threads=n_threads)
    return engine.rank_scores(snapshot, recipe.layout, queries, limit.k + 1, column=None, n_threads=n_threads)
