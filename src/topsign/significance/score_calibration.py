"""Calibration of the scores of any search engine, from queries that have no match.

A query without a match gives a false alarm if its best score reaches the threshold. The threshold is an order statistic
of the best scores of other such queries (split conformal prediction), so its false-alarm rate holds for any engine, any
distribution of scores and any dependence between entries. The best score rises with the number of entries; its
quantiles are close to linear in the logarithm of that number, and lists of the best scores show the slope.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy  # submodules are imported at their first use

from .._arrays import Float64
from .._checks import check_choice, check_count, check_false_alarm, check_positive, suggests_keywords
from .._files import MALFORMED, parse_json, write_file
from .._lazy import lazy
from .._random import RandomState
from ..errors import CalibrationWarning, StorageError, warn
from ..theory.tails import fit_pareto, log_student_tail, pareto_survival
from .likelihood_ratios import CLOSER
from .p_values import log10_tail, probabilities

FORMAT = 1
TAILS = ("none", "pareto", "far", "normal")

EXCESS, CONFIDENCE = 1.5, 0.9
"""Given one calibration, the false-alarm rate is at most EXCESS times nominal with probability CONFIDENCE."""

SUPPORT = {"pareto": 10, "far": 1000}
"""A Pareto tail supports rates down to this share of the smallest rate that the sample reaches."""

MAX_QUERIES = 100_000
"""Maximum number of queries of a calibration."""

TAIL_SHARE, MIN_TAIL = 0.1, 20
MIN_SHAPE, MAX_SHAPE, TAIL_CONFIDENCE = -0.1, 0.5, 0.95
"""Limits of the shape of a fitted tail, and confidence of its quantiles.

With these values false-alarm rates hold down to the floor for Gumbel, Student, normal and bounded tails
(tests/test_calibration.py)."""

N_KNOTS, N_DRAWS = 256, 2000

LEAST_SHARE, BEYOND_LIST, MIN_LIST, MIN_LISTS, N_SHARES = 0.1, 0.05, 5, 40, 5
"""Growth is learned from shares of the entries down to LEAST_SHARE, or to the share whose best entry lies beyond the
list with probability BEYOND_LIST; lists need MIN_LIST scores, so that this share is below one half. Fewer than
MIN_LISTS lists do not show whether growth is linear."""

CURVED_RANKS, N_BLOCKS, CURVED, ALLOWED = slice(0.8, 0.98), 20, 2.0, 1.28
"""Best scores whose curvature is averaged, jackknife blocks of its standard error, standard errors at which it counts
as positive, and standard errors of it that extrapolated thresholds allow for."""

MISSING = -float(np.finfo(np.float32).max)
"""Score of a missing hit in FAISS, if larger scores are closer."""

MAX_REPEATED = 0.2
"""Share of repeated queries above which each counts once. Fewer are kept, as popular queries will be repeated."""

FAR = 50
"""Growth beyond which a threshold is an extrapolation that nothing has tested."""

DUPLICATES = 0.9
"""Near-duplicates have at least this position between the typical last score of a list (0) and the own score (1)."""


@suggests_keywords
@dataclass(frozen=True, eq=False)
class ScoreCalibration:
    """Null distribution of the best score of a search, for the scores of any engine.

    Make one with :meth:`fit` or :meth:`fit_corpus`; stored ones are read with :meth:`load`.

    Notes
    -----
    The false-alarm rate is the probability that a query without a match has any hit at or beyond the threshold. It is
    at most nominal if future queries without a match are exchangeable with those of the calibration: asked by the same
    people, about the same entries. Over calibrations the rate has a beta distribution; the order statistic is chosen so
    that it exceeds 1.5 times nominal in at most one calibration of ten. This takes 153 queries at a rate of 0.01.

    For other numbers of entries, thresholds follow a line in their logarithm. Its slope comes from the lists: the
    score of rank r is the best of a random share f of the entries with probability ``f * (1 - f) ** (r - 1)``. Entries
    must be added like those that are there. Small samples cannot show that the line is straight, so extrapolated
    thresholds are higher by the curvature that the lists leave possible (1.28 standard errors above the estimate);
    for very heavy tails and a few hundred queries this may not suffice. If thresholds bend upwards over these shares
    (heavy tails), or if only best scores are known, nothing is extrapolated: the false-alarm rate is then divided among
    as many corpora of the calibrated size as the entries would fill, which is valid but soon exhausts the sample.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> lists = -np.sort(-rng.standard_normal((2000, 1000)))[:, :20]  # best 20 of 1,000 entries
    >>> calibration = ScoreCalibration.fit(lists, n_entries=1000)
    >>> round(calibration.threshold(0.01), 1), round(calibration.threshold(0.01, n_entries=10_000), 1)
    (4.3, 4.9)
    >>> calibration.matches([[5.0, 3.0], [2.9, 2.8]], 0.01).tolist()
    [[True, False], [False, False]]
    """

    best: Float64  #: best score of each query, ascending; larger is closer, less what the covariate explains
    slopes: Float64 | None  #: what each gains if the logarithm of the number of entries rises by one, ascending ranks
    n_entries: int  #: number of entries that one search compares with
    closer: str = "larger"  #: whether larger or smaller scores indicate a match: "larger" or "smaller"
    tail: str = "none"  #: "none" or "fit", as for :meth:`fit`
    least_share: float = 1.0  #: smallest share of the entries that the lists cover
    curvature: tuple[float, float] = (0.0, 0.0)  #: of the upper quantiles over shares, relative, with standard error
    covariate: tuple[float, float] = (0.0, 0.0)  #: mean of the covariate of queries; slope of the best score over it
    n_corpora: float = 1.0  #: corpora of the calibrated size that the entries would fill, if best scores did not grow
    own: bool = False  #: whether the queries were entries, searched without themselves
    groups: Mapping[str, ScoreCalibration] = field(default_factory=dict)  #: calibrations of groups of queries

    @classmethod
    def fit(
        cls,
        scores: npt.ArrayLike,
        *,
        n_entries: int,
        closer: str = "larger",
        tail: str = "none",
        groups: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
    ) -> Self:
        """Learn from the scores of queries that have no match.

        Parameters
        ----------
        scores : array of shape (n_queries, k) or (n_queries,)
            The k best scores of each query, the best first, or only the best one. Lists of 10 to 100, of 40 queries or
            more, also give the growth of thresholds with the number of entries. Missing hits are nan or infinitely bad,
            or have the score that FAISS gives them. If more than a fifth of the lists repeat others, and are not
            integers, each counts once: repeated queries are no evidence.
        n_entries : int
            Number of entries that were searched.
        closer : "larger" or "smaller"
            Whether larger scores (similarities) or smaller scores (distances) mean a closer match.
        tail : "none", "pareto", "far" or "normal"
            How rates are treated that the sample does not reach: ``none`` refuses them; ``pareto`` and ``far`` take an
            upper confidence limit of a generalised Pareto tail, down to a tenth and to a thousandth of the smallest
            rate; ``normal`` takes the whole distribution as normal, with the predictive (Student) law of a new score.
        groups : array of shape (n_queries,), optional
            Kind of each query. Each group is calibrated by itself (Mondrian), so rates hold in each of them.
        covariates : array of shape (n_queries,), optional
            A number that predicts the best score of a query, for example its mean similarity to a fixed sample of
            entries. Scores are compared after subtraction of its linear effect.
        """
        sign = 1.0 if check_choice(closer, "closer", CLOSER) == "larger" else -1.0
        lists = _checked_lists(scores, sign)
        n_queries, k = lists.shape
        if k > check_count(n_entries, "n_entries"):
            raise ValueError(
                f"each query has {k:,} scores, but n_entries={n_entries:,} entries were searched; n_entries is the "
                "number of entries, not of queries"
            )
        labels = None if groups is None else _by_query(groups, (n_queries,), "groups").astype(str)
        known = None if covariates is None else _covariates(covariates, (n_queries,))
        if known is not None and np.ptp(known) == 0:
            raise ValueError("covariates are all equal, so they predict nothing; omit them")
        kept = _distinct(lists)
        if len(kept) < (1 - MAX_REPEATED) * n_queries:
            warn(
                f"{n_queries - len(kept):,} of {n_queries:,} queries have the same scores as another one and are "
                "counted once: repeated queries are no further evidence",
                CalibrationWarning,
            )
        else:
            kept = np.arange(n_queries)
        lists, known = lists[kept], None if known is None else known[kept]
        options: Any = {"n_entries": int(n_entries), "closer": closer, "tail": check_choice(tail, "tail", TAILS)}
        whole = cls._of_lists(lists, known, **options)
        if labels is None:
            return whole
        parts = {}
        for label in np.unique(labels[kept]).tolist():
            rows = labels[kept] == label
            parts[label] = cls._of_lists(lists[rows], None if known is None else known[rows], **options)
        return replace(whole, groups=parts)

    @classmethod
    def _of_lists(cls, lists: Float64, known: Float64 | None, **options: Any) -> Self:
        """Learn from lists that descend, of queries of one group."""
        covariate = (0.0, 0.0)
        if known is not None and len(known) > 2 and np.ptp(known) > 0:
            slope = float(np.cov(known, lists[:, 0])[0, 1] / np.var(known, ddof=1))
            covariate = float(known.mean()), slope
            lists = lists - slope * (known - covariate[0])[:, np.newaxis]
        best = np.sort(lists[:, 0])
        if options["tail"] == "normal":
            _check_normal(best)
        k = lists.shape[1]
        if k < MIN_LIST or len(lists) < MIN_LISTS:
            return cls(best, None, covariate=covariate, **options)
        ranking = _Ranking.of(lists)
        least = max(LEAST_SHARE, 1 - BEYOND_LIST ** (1 / k))
        shares = np.geomspace(least, 1, N_SHARES)
        falls = np.stack([ranking.quantiles(share) - best for share in shares[:-1]])
        logs = np.log(shares[:-1, np.newaxis])
        slopes = np.maximum((falls * logs).sum(axis=0) / (logs**2).sum(), 0.0)
        return cls(best, slopes, least_share=least, curvature=ranking.curvature(least), covariate=covariate, **options)

    @classmethod
    def fit_corpus(
        cls,
        search: Callable[[Any, int], tuple[npt.ArrayLike, npt.ArrayLike]],
        vectors: npt.ArrayLike,
        *,
        ids: npt.ArrayLike | None = None,
        n_queries: int = 2000,
        k: int = 100,
        closer: str = "larger",
        tail: str = "none",
        duplicates: float = DUPLICATES,
        random_state: RandomState = 0,
    ) -> Self:
        """Learn from the entries themselves: a sample is searched for, each without itself and its near-duplicates.

        Parameters
        ----------
        search : callable
            ``search(queries, k)`` returns scores and ids of the k best entries, both of shape (n_queries, k).
        vectors : array of shape (n_entries, n_features)
            What the entries are made of, in the form that ``search`` takes.
        ids : array of shape (n_entries,), optional
            Ids of the entries that ``search`` returns; by default row numbers of ``vectors``.
        n_queries, k : int
            Number of sampled entries, and length of their lists.
        duplicates : float in (0, 1]
            A hit is a near-duplicate if its score lies at least this far on the way from the median of the last scores
            of the lists to the score of the entry with itself. It is dropped, as the entry itself is.
        closer, tail
            As in :meth:`fit`.
        random_state : int or Generator
            Seed of the sample.

        Notes
        -----
        The limits: entries resemble each other more than queries without a match do, so thresholds are rather too high
        than too low, and true matches may be missed. Queries of another kind (questions, if entries are passages) are
        not exchangeable with entries, so the rate then is not guaranteed. Matches below the rule for near-duplicates
        count as unrelated. An entry must be its own best hit, which inner products do not ensure. Prefer :meth:`fit`
        with real queries that have no match.
        """
        sign = 1.0 if check_choice(closer, "closer", CLOSER) == "larger" else -1.0
        check_positive(duplicates, "duplicates", maximum=1)
        rows: Any = vectors if hasattr(vectors, "__getitem__") and hasattr(vectors, "__len__") else np.asarray(vectors)
        if len(rows) < 2:
            raise ValueError(f"vectors must hold at least two entries, got {len(rows)}")
        named = np.arange(len(rows)) if ids is None else _by_query(ids, (len(rows),), "ids")
        n_wanted = min(check_count(n_queries, "n_queries"), len(rows))
        chosen = np.sort(np.random.default_rng(random_state).permutation(len(rows))[:n_wanted])
        queries = rows[chosen] if isinstance(rows, np.ndarray) else [rows[row] for row in chosen.tolist()]
        parts = [np.asarray(part) for part in search(queries, min(check_count(k, "k") + 1, len(rows)))]
        shapes = [part.shape for part in parts[:3]]
        if len(set(shapes)) != 1 or len(shapes) != 2 or shapes[0][:-1] != chosen.shape:
            raise ValueError(
                "search(queries, k) must return scores and ids of one shape, (n_queries, k); got shapes "
                f"{', '.join(map(str, shapes))} for {len(chosen):,} queries"
            )
        found, hits = parts
        values = _mark_missing(sign * found.astype(np.float64))
        is_own = hits == named[chosen, np.newaxis]
        own = np.max(np.where(is_own, values, -np.inf), axis=1, initial=-np.inf)
        top = np.max(np.where(np.isfinite(values), values, -np.inf), axis=1)
        leads = np.isfinite(own) & (own >= top - 1e-5 * np.abs(top))  # equal but for rounding
        if np.mean(leads) < 0.95:
            raise ValueError(
                f"only {np.mean(leads):.0%} of the entries are their own best hit, so near-duplicates cannot be "
                "recognised by their scores; give ids= if search returns other ids than row numbers, or use fit() "
                "with queries that have no match"
            )
        values, is_own, own = values[leads], is_own[leads], own[leads]
        last = float(np.median(np.nanmin(np.where(np.isfinite(values), values, np.nan), axis=1)))
        copies = values >= (last + duplicates * (own - last))[:, np.newaxis]
        values[is_own | copies | ~np.isfinite(values)] = -np.inf
        values = -np.sort(-values, axis=1)
        values = values[np.isfinite(values[:, 0]), : max(1, min(k, values.shape[1] - 1))]
        if not len(values):
            raise ValueError("every hit is a near-duplicate of its query by the rule duplicates=; raise it or k")
        learned = cls.fit(sign * values, n_entries=len(rows) - 1, closer=closer, tail=tail)
        return replace(learned, own=True)

    # What the sample supports

    @property
    def n_queries(self) -> int:
        """Number of queries of the calibration."""
        return len(self.best)

    @property
    def level(self) -> float:
        """Smallest false-alarm rate that needs no model of the tail."""
        return max(1 / (self.n_queries + 1), -math.expm1(math.log(1 - CONFIDENCE) / self.n_queries) / EXCESS)

    @property
    def floor(self) -> float:
        """Smallest false-alarm rate that is supported."""
        if self.tail in SUPPORT:
            return 1 / (SUPPORT[self.tail] * (self.n_queries + 1))
        return self.level if self.tail == "none" else 0.0

    @property
    def is_straight(self) -> bool:
        """Whether thresholds can be extrapolated to more entries: lists are known and do not bend upwards."""
        bend, error = self.curvature
        return self.slopes is not None and bend - CURVED * error <= 0

    def order_statistic(self, false_alarm: float) -> int:
        """Return the rank r of the threshold for this false-alarm rate among the best scores, the largest being 1.

        Exact: over calibrations, the rate of queries that exceed the r-th largest best score has the distribution
        Beta(r, m + 1 - r). Its mean is at most ``false_alarm``, and it exceeds 1.5 times ``false_alarm`` in at most one
        calibration in ten. The result is 0 if no rank satisfies both.
        """
        m = self.n_queries
        ranks = np.arange(1, math.floor(false_alarm * (m + 1) * (1 + 1e-12)) + 1)
        exceeds = 1 - scipy.special.betainc(ranks, m + 1 - ranks, min(1.0, EXCESS * false_alarm))
        return int(np.searchsorted(exceeds, 1 - CONFIDENCE, side="right"))  # exceeds ascends

    # Answers

    def threshold(
        self,
        false_alarm: float,
        n_entries: int | None = None,
        *,
        groups: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
    ) -> Any:
        """Return the score at which a hit is a match, so that queries without a match have one with this probability.

        Raises ValueError if the sample does not support the rate.

        Parameters
        ----------
        false_alarm : float in (0, 1)
            Probability that a query without a match has any match.
        n_entries : int, optional
            Number of entries that are searched now, by default that of the calibration.
        groups, covariates : array of shape (n_queries,)
            Those of the queries, if the calibration has them; the result is then one threshold per query.
        """
        rate = check_false_alarm(false_alarm)
        given = [np.shape(one) for one in (groups, covariates) if one is not None]
        zeros = np.zeros(np.broadcast_shapes(*given))
        # A score of zero differs from its threshold by minus that threshold, less what the covariate explains.
        levels = self._compute(lambda one, scores: one._beaten(rate, n_entries) - scores, zeros, groups, covariates)
        levels = levels if self.closer == "larger" else -levels
        return levels if given else float(levels)

    def matches(
        self,
        scores: npt.ArrayLike,
        false_alarm: float,
        n_entries: int | None = None,
        *,
        groups: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
    ) -> npt.NDArray[np.bool_]:
        """Return a mask of the hits that are matches: ``scores`` of shape (n_queries, k) or (n_queries,).

        ``false_alarm``, ``n_entries``, ``groups`` and ``covariates`` are as for :meth:`threshold`.
        """
        rate = check_false_alarm(false_alarm)
        mask = self._compute(
            lambda one, some: some >= one._beaten(rate, n_entries), self._oriented(scores), groups, covariates
        )
        return mask.astype(np.bool_)

    def p_value(
        self,
        score: npt.ArrayLike,
        n_entries: int | None = None,
        *,
        groups: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
    ) -> Float64:
        """Return the probability that the best ``score`` of a query without a match is at least as close; never 0.

        ``n_entries``, ``groups`` and ``covariates`` are as for :meth:`matches`. Within the sample it is ``(r + 1) / (m
        + 1)`` if r of m best scores are; beyond it depends on ``tail``. It is nan for a missing hit, nan.
        """
        return probabilities(self.log10_p_value(score, n_entries, groups=groups, covariates=covariates))

    def log10_p_value(
        self,
        score: npt.ArrayLike,
        n_entries: int | None = None,
        *,
        groups: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
    ) -> Float64:
        """Return the decimal logarithm of :meth:`p_value`, which may be too small for a float.

        ``score``, ``n_entries``, ``groups`` and ``covariates`` are as there.
        """
        values = self._oriented(score)
        return self._compute(lambda one, some: one._log10_reached(some, n_entries), values, groups, covariates)

    def e_value(
        self,
        score: npt.ArrayLike,
        n_entries: int | None = None,
        *,
        groups: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
    ) -> Float64:
        """Return the expected number of entries without relation to the query that ``score`` at least as close.

        ``n_entries``, ``groups`` and ``covariates`` are as for :meth:`matches`. It is ``-log(1 - p)`` for the p-value p
        of the search, as if entries were independent, and at most 20.7.
        """
        p = self.p_value(score, n_entries, groups=groups, covariates=covariates)
        return np.asarray(-np.log1p(-np.minimum(p, 1 - 1e-9)))

    def grown(self, n_entries: int) -> ScoreCalibration:
        """Return the calibration for ``n_entries``: on the line, or else by the union bound."""
        growth = check_count(n_entries, "n_entries") / self.n_entries
        if growth == 1 or (growth < 1 and self.slopes is None):
            return self
        if growth > 1 and not self.is_straight:
            return replace(self, n_entries=n_entries, n_corpora=growth * self.n_corpora)
        if growth > FAR:
            warn(
                f"thresholds for {n_entries:,} entries are extrapolated from {self.n_entries:,}, more than {FAR} times "
                "fewer; search for the queries again and fit",
                CalibrationWarning,
            )
        assert self.slopes is not None
        moved = self.best + self.slopes * self._logarithm(growth)
        return replace(self, best=np.maximum.accumulate(moved), n_entries=n_entries)

    # Storage

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration to a JSON file, ``path``."""
        text = json.dumps(self.to_json(), allow_nan=False) + "\n"
        write_file(path, lambda file: file.write(text.encode()))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a calibration from the file ``path`` written by :meth:`save`; StorageError if the file is not one."""
        with open(path, "rb") as file:
            text = file.read()
        try:
            record = parse_json(text)
        except MALFORMED as error:
            raise StorageError(path, "calibration", f"cannot be read: {error}; fit and save it again") from None
        return cls.from_json(record, path)

    def to_json(self) -> dict[str, Any]:
        """Return the calibration as plain values; :meth:`from_json` restores it."""
        return {
            "format": FORMAT,
            **{one.name: getattr(self, one.name) for one in fields(self)},
            "best": self.best.tolist(),
            "slopes": None if self.slopes is None else self.slopes.tolist(),
            "groups": {label: part.to_json() for label, part in self.groups.items()},
        }

    @classmethod
    def from_json(cls, record: Any, path: str | os.PathLike[str]) -> Self:
        """Restore a calibration from a ``record`` read from ``path``; StorageError if values are missing or invalid."""
        try:
            return cls._parsed(record, nested=False)
        except MALFORMED as error:
            what = f"has no {error.args[0]!r}" if isinstance(error, KeyError) else str(error)
            raise StorageError(path, "calibration", f"cannot be read: {what}; calibrate again") from None

    @classmethod
    def _parsed(cls, record: Any, *, nested: bool) -> Self:
        if not isinstance(record, Mapping) or record["format"] != FORMAT:
            raise ValueError(f"it is not a calibration in format {FORMAT}, which this library reads")
        best = np.array(record["best"], np.float64)
        slopes = None if record["slopes"] is None else np.array(record["slopes"], np.float64)
        if best.ndim != 1 or not 1 <= len(best) <= MAX_QUERIES or not np.isfinite(best).all():
            raise ValueError("best must be a list of finite scores")
        if (np.diff(best) < 0).any():
            raise ValueError("best must ascend")
        if slopes is not None and (slopes.shape != best.shape or not (np.isfinite(slopes) & (slopes >= 0)).all()):
            raise ValueError("slopes must be as many numbers of at least 0 as there are best scores")
        pairs = [(float(first), float(second)) for first, second in (record["curvature"], record["covariate"])]
        least, n_corpora = float(record["least_share"]), float(record["n_corpora"])
        own, groups = record["own"], record["groups"]
        fine = np.isfinite(pairs).all() and 0 < least <= 1 <= n_corpora < math.inf
        fine &= (slopes is None or least < 1) and abs(pairs[0][0]) < 1.1 and 0 <= pairs[0][1] < 5  # as jackknives are
        if not (fine and isinstance(own, bool) and isinstance(groups, Mapping)):
            raise ValueError("its values are out of range")
        if nested and groups:
            raise ValueError("groups of groups")
        if record["tail"] == "normal":
            _check_normal(best)
        return cls(
            best,
            slopes,
            check_count(record["n_entries"], "n_entries", maximum=2**62),
            check_choice(record["closer"], "closer", CLOSER),
            check_choice(record["tail"], "tail", TAILS),
            *(least, pairs[0], pairs[1], n_corpora, own),
            {str(label): cls._parsed(part, nested=True) for label, part in groups.items()},
        )

    # Report

    def report(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        false_alarm: float = 0.01,
        related: npt.ArrayLike | None = None,
        n_entries: int | None = None,
        groups: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
    ) -> str:
        """Return a description of the calibration, and draw it to ``path`` if that is given (extra ``plot``).

        Parameters
        ----------
        path : path of an image, optional
            Left: best scores of queries without a match, for ``n_entries`` if thresholds follow a line, and of related
            ones, with the threshold and the share of misses. Right: the threshold by the number of entries.
        false_alarm, n_entries
            As in :meth:`threshold`.
        related : array of shape (n_queries,) or (n_queries, k), optional
            Scores of queries that do have a match; shows how many of them would be missed.
        groups, covariates : array of shape (n_queries,)
            Those of the related queries, if the calibration has them.
        """
        now = self.n_entries if n_entries is None else check_count(n_entries, "n_entries")
        kind = "entries, each without itself and its near-duplicates" if self.own else "queries without a match"
        lines = [f"{self.n_queries:,} {kind}, {self.n_entries:,} entries, {self.closer} scores are closer"]
        for label, part in self._parts.items():
            found = [
                f"smallest false-alarm rate: {part.floor:.2g} ({part.level:.2g} without a model of the tail)",
                f"threshold at a false-alarm rate of {false_alarm:g} among {now:,} entries: "
                f"{self._typical(label, false_alarm, now):.6g}",
                "more entries: " + ("thresholds follow a line" if part.is_straight else part._obstacle),
            ]
            if self._needs["covariates"]:
                mean, slope = part.covariate
                found.append(
                    f"thresholds are for a covariate of {mean:.4g} and change by {self._sign * slope:.4g} per unit"
                )
            lines += [f"group {label} ({part.n_queries:,} queries), {line}" if label else line for line in found]
        samples = []
        if related is not None:
            values = _as_lists(related, self._sign)[:, 0]
            given: Any = {"groups": groups, "covariates": covariates}
            missed = int(np.count_nonzero(~self.matches(self._sign * values, false_alarm, now, **given)))
            share = f"{missed / len(values):.1%}"
            lines.append(f"of {len(values):,} related queries, {missed:,} are missed ({share})")
            adjusted = self._compute(lambda _, some: some, values, groups, covariates)
            samples.append((f"related, {share} missed", adjusted[np.isfinite(adjusted)], "#D55E00"))
        if path is not None:
            self._draw(path, false_alarm, samples, now)
        return "\n".join(lines)

    @property
    def _parts(self) -> Mapping[str, ScoreCalibration]:
        return self.groups or {"": self}

    def _typical(self, label: str, false_alarm: float, n_entries: int) -> float:
        """Return the threshold of a group at the mean of its covariate."""
        given: dict[str, Any] = {"groups": label, "covariates": self._parts[label].covariate[0]}
        needed = {name: given[name] for name, has in self._needs.items() if has}
        return float(self.threshold(false_alarm, n_entries, **needed))

    def _draw(
        self, path: str | os.PathLike[str], false_alarm: float, samples: list[tuple[str, Float64, str]], n_entries: int
    ) -> None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 4), layout="constrained")
        left, right = figure.subplots(1, 2)
        with warnings.catch_warnings(action="ignore"):  # far away, as the threshold has said
            unrelated = np.concatenate([part.grown(n_entries).best for part in self._parts.values()])
        samples = [("without a match", unrelated, "#0072B2"), *samples]
        edges = np.histogram_bin_edges(self._sign * np.concatenate([values for _, values, _ in samples]), bins=60)
        for label, values, color in samples:
            look: Any = {"histtype": "stepfilled", "alpha": 0.45, "color": color, "label": label}
            left.hist(self._sign * values, edges, weights=np.full(len(values), 1 / len(values)), **look)
        sizes = np.geomspace(max(1.0, self.least_share * self.n_entries), 10 * max(n_entries, self.n_entries), 40)
        for number, label in enumerate(self._parts):
            known: list[tuple[int, float]] = []
            for size in sizes.round().astype(int).tolist():
                with contextlib.suppress(ValueError), warnings.catch_warnings(action="ignore"):  # refused, or far away
                    known.append((size, self._typical(label, false_alarm, size)))
            right.plot(*zip(*known, strict=True), color=f"C{number}", label=label or None)
            limit, look = self._typical(label, false_alarm, n_entries), {"color": f"C{number}" if label else "black"}
            left.axvline(limit, linestyle="--", label=f"threshold {label}".strip(), **look)
        right.axvline(self.n_entries, color="grey", linestyle=":", label="calibrated")
        left.set(xlabel="best score of a query", ylabel="share of queries")
        right.set(xlabel="entries", ylabel=f"threshold at {false_alarm:g}", xscale="log")
        left.legend()
        right.legend()
        figure.savefig(os.fspath(path), dpi=150)

    # One group, scores that are oriented and free of the covariate

    @property
    def _obstacle(self) -> str:
        """Why thresholds are not extrapolated to more entries."""
        if self.slopes is None:
            return (
                f"growth is known only from lists of at least {MIN_LIST} scores of at least {MIN_LISTS} queries, "
                "fit with such lists"
            )
        bend, error = self.curvature
        return (
            f"thresholds bend upwards with the logarithm of the number of entries (curvature {bend:.2f} with a "
            f"standard error of {error:.2f}), search for the queries again and fit"
        )

    @property
    def _sign(self) -> float:
        """Factor to scores that makes larger ones closer."""
        return 1.0 if self.closer == "larger" else -1.0

    def _oriented(self, scores: npt.ArrayLike) -> Float64:
        return self._sign * _as_numbers(scores)

    def _logarithm(self, growth: float) -> float:
        """Return the logarithm that slopes are multiplied by, with the curvature that the lists leave possible."""
        if growth <= 1:
            return math.log(max(growth, self.least_share))
        # A parabola through the thresholds of the shares, whose abscissa is -1 at the smallest share and 0 now, exceeds
        # its least-squares line at x > 0 by this factor, to first order in the curvature.
        at = -math.log(growth) / math.log(self.least_share)
        bend = max(0.0, self.curvature[0] + ALLOWED * self.curvature[1])
        return math.log(growth) * (1 + 2 * bend * (at + 5 / 6))

    def _compute(
        self,
        function: Callable[[ScoreCalibration, Float64], Any],
        values: Float64,
        groups: npt.ArrayLike | None,
        covariates: npt.ArrayLike | None,
    ) -> Float64:
        """Apply a function of a calibration and adjusted scores to the queries of each group."""
        if self._needs != {"groups": groups is not None, "covariates": covariates is not None}:
            needed = [name for name, has in self._needs.items() if has]
            raise ValueError(f"this calibration takes {' and '.join(needed) or 'neither groups nor covariates'}")
        shape = values.shape[:1]
        known = None if covariates is None else _covariates(covariates, shape)
        if groups is None:
            return np.asarray(function(self, self._adjusted(values, known)), np.float64)
        labels = _by_query(groups, shape, "groups").astype(str)
        found = np.empty(values.shape)
        for label in np.unique(labels).tolist():
            if label not in self.groups:
                raise ValueError(f"group {label!r} was not calibrated; known are {', '.join(self.groups)}")
            rows, part = labels == label, self.groups[label]
            adjusted = part._adjusted(values[rows], None if known is None else known[rows])
            try:
                found[rows] = function(part, adjusted)
            except ValueError as error:
                raise ValueError(f"group {label!r}: {error}") from None
        return found

    @property
    def _needs(self) -> dict[str, bool]:
        return {"groups": bool(self.groups), "covariates": self.covariate != (0.0, 0.0)}

    def _adjusted(self, values: Float64, known: Float64 | None) -> Float64:
        """Return scores less what the covariate of their query explains."""
        if known is None:
            return values
        explained = self.covariate[1] * (known - self.covariate[0])
        return values - explained.reshape(explained.shape + (1,) * (values.ndim - explained.ndim))

    def _beaten(self, false_alarm: float, n_entries: int | None) -> float:
        """Return the smallest oriented score that is a match."""
        one = self if n_entries is None else self.grown(n_entries)
        rate = false_alarm / one.n_corpora
        if rate < self.floor * (1 - 1e-12):
            needed = math.ceil(1 / (SUPPORT[self.tail] * rate)) if self.tail in SUPPORT else searches_needed(rate)
            among = f" among {one.n_entries:,} entries ({self._obstacle})" if one.n_corpora > 1 else ""
            raise ValueError(
                f"false_alarm={false_alarm:g}{among} is below {self.floor * one.n_corpora:.2g}, the least that "
                f"{self.n_queries:,} queries support; calibrate with {needed:,}, or ask for a larger rate"
            )
        if self.tail == "normal":
            return one._normal[0] + one._normal[1] * float(scipy.stats.t.isf(rate, self.n_queries - 1))
        rank = self.order_statistic(rate)
        return math.nextafter(float(one.best[-rank]) if rank else one._tail_quantile(rate), math.inf)

    def _log10_reached(self, values: Float64, n_entries: int | None) -> Float64:
        """Return decimal logarithms of the probability that a best score reaches oriented scores."""
        one = self if n_entries is None else self.grown(n_entries)
        m = self.n_queries
        if self.tail == "normal":
            center, spread = one._normal
            deviates = np.asarray((values - center) / spread)
            log10 = log10_tail(
                deviates, lambda t: np.asarray(scipy.stats.t.sf(t, m - 1)), lambda t: log_student_tail(t, m - 1)
            )
        else:
            reached = (m - np.searchsorted(one.best, values, side="left") + 1) / (m + 1)
            if self.tail in SUPPORT:
                reached = np.where(values > one.best[-1], np.interp(values, *one._beyond), reached)
            log10 = np.log10(reached)
        return np.where(np.isnan(values), np.nan, np.minimum(log10 + math.log10(one.n_corpora), 0.0))

    @lazy
    def _normal(self) -> tuple[float, float]:
        """Mean of the best scores, and deviation of a new one from it."""
        return float(self.best.mean()), float(self.best.std(ddof=1) * np.sqrt(1 + 1 / self.n_queries))

    @lazy
    def _beyond(self) -> tuple[Float64, Float64]:
        """Scores beyond the sample, and the fraction of queries that reach them in the tail model."""
        start, share, scales, shapes = self._tail
        last, reach = float(self.best[-1]), float(scales.mean())

        def reached(excesses: Float64) -> Float64:
            return np.asarray(share * pareto_survival(excesses[:, np.newaxis], scales, shapes).mean(axis=1))

        while reached(np.array([last - start + reach]))[0] > self.floor and reach < 1e6 * (1 + abs(last)):
            reach *= 2
        scores = last + np.linspace(0, reach, N_KNOTS)
        return scores, np.clip(reached(scores - start), self.floor, 1 / (self.n_queries + 1))

    def _tail_quantile(self, level: float) -> float:
        """Upper confidence limit of a quantile of best scores in the tail model; at least the largest of the sample."""
        start, share, scales, shapes = self._tail
        growth = math.log(share / level)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            reach = np.where(np.abs(shapes) < 1e-6, growth, np.expm1(shapes * growth) / shapes)
        return max(float(self.best[-1]), start + float(np.quantile(scales * reach, TAIL_CONFIDENCE)))

    @lazy
    def _tail(self) -> tuple[float, float, Float64, Float64]:
        """Generalised Pareto model of the largest tenth: start, fraction, and draws of scale and shape.

        Draws follow the asymptotic distribution of the maximum-likelihood estimates (Smith 1987), so small samples
        give heavy tails.
        """
        m = self.n_queries
        n_tail = min(m - 1, max(MIN_TAIL, round(TAIL_SHARE * m))) or 1
        first = int(np.searchsorted(self.best, self.best[-n_tail]))  # equal scores, as counts have, stay together
        n_tail = m - first
        start = float(self.best[max(first - 1, 0)] / 2 + self.best[first] / 2)
        scale, shape = fit_pareto(self.best[-n_tail:] - start, MAX_SHAPE)
        heavier = 1 + shape
        spread = math.sqrt(2 * heavier / n_tail)  # of the logarithm of the scale
        slope = -(heavier / n_tail) / spread  # covariance -(1 + shape) / n
        rest = math.sqrt(max(heavier**2 / n_tail - slope**2, 0.0))
        draws, others = np.random.default_rng(0).standard_normal((2, N_DRAWS))
        shapes = np.clip(shape + slope * draws + rest * others, MIN_SHAPE, 2 * MAX_SHAPE)
        return start, n_tail / m, min(scale, 1e300) * np.exp(spread * draws), shapes  # sums are finite


@dataclass(frozen=True, eq=False)
class _Ranking:
    """Scores of all lists, ascending, with their ranks in the lists and the numbers of the queries."""

    values: Float64
    ranks: npt.NDArray[np.int64]
    queries: npt.NDArray[np.int64]
    shape: tuple[int, int]

    @classmethod
    def of(cls, lists: Float64) -> _Ranking:
        order = np.argsort(lists, axis=None, kind="stable")
        k = lists.shape[1]
        return cls(lists.ravel()[order], order % k, order // k, (len(lists), k))

    def without(self, block: int) -> _Ranking:
        """Return the lists but for those of one block of queries."""
        kept = self.queries % N_BLOCKS != block
        n_left = self.shape[0] - len(range(block, self.shape[0], N_BLOCKS))
        return _Ranking(self.values[kept], self.ranks[kept], self.queries[kept], (n_left, self.shape[1]))

    def quantiles(self, share: float) -> Float64:
        """Return as many quantiles of the best score among a random share of the entries as there are queries.

        If no entry of a list is in the share, its last score counts, which is an upper bound.
        """
        m, k = self.shape
        chances = share * (1 - share) ** np.arange(k)
        chances[-1] = (1 - share) ** (k - 1)
        reached = np.cumsum(chances[self.ranks])
        at = np.searchsorted(reached, np.arange(m) + 0.5)
        return self.values[np.minimum(at, len(self.values) - 1)]

    def curvature(self, least: float) -> tuple[float, float]:
        """Return the second difference of upper quantiles over shares, relative to their rise, and its standard error.

        It is 0 if quantiles are linear in the logarithm of the number of entries, and negative if they flatten.
        """
        whole = self._bend(least)
        parts = np.array([self.without(block)._bend(least) for block in range(N_BLOCKS)])
        return whole, float(np.sqrt((N_BLOCKS - 1) / N_BLOCKS * np.square(parts - parts.mean()).sum()))

    def _bend(self, least: float) -> float:
        some = slice(*(int(at * self.shape[0]) for at in (CURVED_RANKS.start, CURVED_RANKS.stop)))
        low, middle, high = (float(self.quantiles(one)[some].mean()) for one in (least, math.sqrt(least), 1.0))
        return (high - 2 * middle + low) / (high - low) if high > low else 0.0


def _as_numbers(scores: npt.ArrayLike) -> Float64:
    try:
        return np.asarray(scores, np.float64)
    except (TypeError, ValueError):
        raise ValueError("scores must be numbers, as many for each query; fill shorter lists with nan") from None


def _mark_missing(values: Float64) -> Float64:
    """Return scores, larger being closer, with -inf for missing hits."""
    return np.where(np.isnan(values) | (values == MISSING), -np.inf, values)


def _as_lists(scores: npt.ArrayLike, sign: float) -> Float64:
    """Return lists of scores that descend, larger being closer; missing hits have -inf."""
    values = sign * _as_numbers(scores)
    if values.ndim == 1:
        values = values[:, np.newaxis]
    if values.ndim != 2 or not values.size:
        raise ValueError(f"scores must have shape (n_queries,) or (n_queries, k), got {np.shape(scores)}")
    values = _mark_missing(values)
    known = np.isfinite(values[:, 1:]) & np.isfinite(values[:, :-1])
    if (values[:, 1:] >= values[:, :-1])[known].all() and (values[:, 1:] > values[:, :-1])[known].any():
        closer, other = CLOSER if sign > 0 else CLOSER[::-1]
        raise ValueError(
            f"the last score of every list is the best if {closer} scores are closer; give closer={other!r} if "
            f"{other} scores are, otherwise give the best score first"
        )
    return -np.sort(-values, axis=1)


def _checked_lists(scores: npt.ArrayLike, sign: float) -> Float64:
    """Return lists to calibrate with, as :func:`_as_lists` does, but missing hits have the worst of all scores."""
    lists = _as_lists(scores, sign)
    if len(lists) > MAX_QUERIES:
        raise ValueError(
            f"scores of {len(lists):,} queries are given, at most {MAX_QUERIES:,} are used; draw that many"
        )
    finite = np.isfinite(lists)
    if not finite[:, 0].all():
        raise ValueError(
            f"scores[{int(np.argmin(finite[:, 0]))}] has no finite best score; give a query without hits the worst "
            "score that a hit can have"
        )
    return np.where(finite, lists, lists[finite].min())


def _check_normal(best: Float64) -> None:
    if best[0] == best[-1]:
        raise ValueError("a normal law takes at least two best scores that differ; give more scores, or another tail")


def _distinct(lists: Float64) -> npt.NDArray[np.int64]:
    """Return the first of each set of equal lists; single scores and lists of integers may be equal by chance."""
    if lists.shape[1] == 1:
        return np.arange(len(lists))
    _, first = np.unique(lists, axis=0, return_index=True)
    real = (lists != np.round(lists)).any(axis=1)
    return np.flatnonzero(np.isin(np.arange(len(lists)), first) | ~real)


def _by_query(values: npt.ArrayLike, shape: tuple[int, ...], name: str) -> npt.NDArray[Any]:
    """Return one value per query; a single one may stand for all."""
    found = np.asarray(values)
    if found.shape not in ((), shape):
        raise ValueError(f"{name} must have shape {shape}, one for each row, got {found.shape}")
    return np.broadcast_to(found, shape)


def _covariates(values: npt.ArrayLike, shape: tuple[int, ...]) -> Float64:
    found = _by_query(values, shape, "covariates").astype(np.float64)
    if not np.isfinite(found).all():
        raise ValueError("covariates must be finite")
    return found


def searches_needed(false_alarm: float) -> int:
    """Return the number of searches for impostors that a rate ``false_alarm`` needs without a model of the tail.

    >>> searches_needed(0.01)
    153
    """
    level = check_false_alarm(false_alarm)
    by_confidence = math.log(1 - CONFIDENCE) / math.log1p(-min(EXCESS * level, 1 - 1e-12))
    return max(math.ceil(by_confidence), math.ceil(1 / level) - 1, 1)
