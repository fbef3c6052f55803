"""P-values of matches, their corrections for multiple comparisons, and probabilities that are too small for a float."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt
import scipy  # submodules are imported at their first use

from .._arrays import Float64
from .._checks import check_choice, check_count
from ..theory.distances import SCORINGS
from ..theory.order_statistics import Selection
from ..theory.tails import log_binomial_cdf, log_mismatch_tail, log_score_tail, mismatch_tail, score_tail

SMALLEST_PROBABILITY = 5e-324
"""Smallest positive float, the lower limit of reported probabilities; their logarithms have no such limit."""

RELIABLE = 1e-280
"""Tails below this are computed in logarithms."""

LN10 = float(np.log(10))


def match_pvalue(
    observed: npt.ArrayLike,
    *,
    n_features: int,
    n_bits: int | None = None,
    n_pool: int | None = None,
    n_bytes: int | None = None,
    projection: str = "hadamard",
    scoring: str = "hamming",
) -> Float64:
    """P-value of a match: the probability that an independent impostor is at least as close as observed.

    Adaptive codes keep ``n_bits`` of ``n_pool`` projections, grouped codes have ``n_bytes``; ``projection`` is one of
    PROJECTIONS, and signals have ``n_features``.

    ``scoring="hamming"``: ``observed`` counts mismatches. For isotropic impostors the count is binomial with an
    orthonormal pool of n_pool <= n_features rows. With a Gaussian pool its distribution is averaged over the
    sample correlation of two independent signals, which makes it wider. ``scoring="asymmetric"``: ``observed`` is the
    estimated correlation, the sum of the query's projections with the signs of the code, divided by the sum of kept
    magnitudes that is expected of a normal signal.

    Standing: exact for "hamming" with a Gaussian pool or one orthonormal block, and for "asymmetric" with one
    orthonormal block (n_pool <= n_features): the score is a constant times the sample correlation of the query and the
    code as a vector. For "asymmetric" with a Gaussian pool it is exact given the sum of the kept magnitudes, which is
    treated as normal. A stack of orthonormal blocks (n_pool > n_features) is an approximation that has the right
    variance; p-values of "asymmetric" are then too large in the far tail (grouped codes of 1.5 or 2 blocks of 256
    features: at most 3% at 3e-5 and 9% at 2e-7; of 2 blocks of 1,024 features: 0.5% and 1.4%). Real impostors are
    seldom isotropic; for those use :class:`ScoreCalibration`.

    >>> float(match_pvalue(200, n_bits=512, n_pool=8192, n_features=8192).round(8))
    4.2e-07
    >>> float(match_pvalue(0.08, n_bytes=448, n_features=8192, scoring="asymmetric").round(8))
    9.66e-06
    """
    kept = Selection.of(n_bits, n_pool, n_bytes)
    return probabilities(selection_log10_pvalue(observed, kept, n_features, projection, scoring))


def match_log10_pvalue(
    observed: npt.ArrayLike,
    *,
    n_features: int,
    n_bits: int | None = None,
    n_pool: int | None = None,
    n_bytes: int | None = None,
    projection: str = "hadamard",
    scoring: str = "hamming",
) -> Float64:
    """Decimal logarithm of :func:`match_pvalue`, for p-values that may be too small for a float.

    ``observed``, ``n_features``, ``n_bits``, ``n_pool``, ``n_bytes``, ``projection`` and ``scoring`` are as there. It
    is -inf for scores that no impostor can reach, because correlations estimated from one orthonormal block are
    bounded.

    >>> float(match_log10_pvalue(0, n_bits=2048, n_pool=8192, n_features=8192).round(4))  # 2**-2048
    -616.5094
    """
    kept = Selection.of(n_bits, n_pool, n_bytes)
    return selection_log10_pvalue(observed, kept, n_features, projection, scoring)


def selection_log10_pvalue(
    observed: npt.ArrayLike, kept: Selection, n_features: int, projection: str, scoring: str
) -> Float64:
    """Return :func:`match_log10_pvalue` for any rule that selects projections."""
    check_choice(scoring, "scoring", SCORINGS)
    tails = (score_tail, log_score_tail) if scoring == "asymmetric" else (mismatch_tail, log_mismatch_tail)
    tail, log_tail = (partial(one, kappa=0.0, kept=kept, n_features=n_features, projection=projection) for one in tails)
    return log10_tail(np.asarray(observed, dtype=np.float64), tail, log_tail)


def agreement_log10_pvalue(
    agreement: npt.ArrayLike, *, n_bits: int | None = None, n_pool: int | None = None, n_bytes: int | None = None
) -> Float64:
    """Decimal logarithm of the probability that codes of two independent signals have this ``agreement`` or more.

    The agreement is the number of common locations with equal signs minus the number with different signs. ``n_bits``,
    ``n_pool`` and ``n_bytes`` are as for :func:`match_pvalue`. Exact for independent normal projections: signs are
    equal with probability one half, and the number of common locations is ``n_bits`` for sign codes, hypergeometric
    for adaptive codes, and binomial with probability 1/8 for grouped codes.

    >>> float(agreement_log10_pvalue(40, n_bytes=448).round(3))
    -4.009
    >>> float(agreement_log10_pvalue(1024, n_bytes=512).round(3))  # 16**-1024
    -1233.019
    """
    return selection_agreement_log10_pvalue(agreement, Selection.of(n_bits, n_pool, n_bytes))


def selection_agreement_log10_pvalue(agreement: npt.ArrayLike, kept: Selection) -> Float64:
    """Return :func:`agreement_log10_pvalue` for any rule that selects projections."""
    counts, weights = np.arange(kept.n_kept + 1), _common_locations(kept)
    values, inverse = np.unique(np.ceil(np.asarray(agreement, dtype=np.float64)), return_inverse=True)

    def tail(agreed: Float64) -> Float64:
        some, shares = counts[weights > -700], np.exp(weights[weights > -700])
        needed = (some + agreed[:, np.newaxis].astype(np.int64) + 1) // 2 - 1
        return np.asarray(scipy.stats.binom.sf(needed, some, 0.5) @ shares)

    def log_tail(agreed: Float64) -> Float64:
        found = []
        for value in agreed.astype(np.int64):
            some = np.flatnonzero(np.isfinite(weights) & (counts >= abs(value)))  # fewer cannot reach it
            differing = (some - value) // 2  # largest number of differing signs
            logs = [
                log_binomial_cdf(np.array([k]), int(n), np.array([0.5]))[0, 0]
                for k, n in zip(differing, some, strict=True)
            ]
            found.append(scipy.special.logsumexp(weights[some] + logs) if some.size else -np.inf)
        return np.array(found)

    return np.asarray(np.minimum(log10_tail(values, tail, log_tail), 0.0)[inverse].reshape(np.shape(agreement)))


@lru_cache(maxsize=64)
def _common_locations(kept: Selection) -> Float64:
    """Return logarithms of the probabilities that codes of independent signals have 0, 1, ... common locations."""
    counts = np.arange(kept.n_kept + 1)
    if kept.n_groups == 1:
        return np.asarray(scipy.stats.hypergeom.logpmf(counts, kept.group_size, kept.n_largest, kept.n_largest))
    return np.asarray(scipy.stats.binom.logpmf(counts, kept.n_groups, kept.n_largest / kept.group_size))


def correct_pvalues(p_values: npt.ArrayLike, *, n_entries: int | None = None, method: str = "bonferroni") -> Float64:
    """Correct ``p_values`` for multiple comparisons by a ``method``.

    ``"bonferroni"`` bounds the probability of any false match. ``"benjamini-hochberg"`` bounds the false discovery
    rate, for independent comparisons. ``n_entries`` is the number of comparisons, by default the number of p-values. If
    it is larger, the missing p-values are assumed to be larger than those given. If it is smaller, as with 100 p-values
    from 100 queries against 8 entries, the Bonferroni bound holds for each query, and Benjamini-Hochberg uses the
    number of p-values.
    """
    check_choice(method, "method", ("bonferroni", "benjamini-hochberg"))
    p = np.asarray(p_values, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("p_values must lie in [0, 1]")
    n = p.size if n_entries is None else check_count(n_entries, "n_entries")
    if method == "bonferroni":
        return np.minimum(1.0, p * n)
    order = np.argsort(p.ravel())
    stepped = np.minimum.accumulate((p.ravel()[order] * max(n, p.size) / np.arange(1, p.size + 1))[::-1])[::-1]
    corrected = np.empty(p.size)
    corrected[order] = np.minimum(1.0, stepped)
    return corrected.reshape(p.shape)


def probabilities(log10: npt.ArrayLike) -> Float64:
    """Return probabilities from their decimal logarithms ``log10``, at least 5e-324.

    >>> probabilities([-2.0, -400.0]).tolist()
    [0.01, 5e-324]
    """
    return np.asarray(np.maximum(np.power(10.0, np.asarray(log10, np.float64)), SMALLEST_PROBABILITY))


def probability_text(log10: float) -> str:
    """Format a probability with two digits, given its decimal logarithm ``log10``; it may be too small for a float.

    >>> probability_text(-3.3), probability_text(-400.3), probability_text(float("nan"))
    ('0.0005', '5.0e-401', 'nan')
    """
    if not log10 < -300:
        return f"{10.0**log10:.2g}"
    exponent = int(np.floor(log10))
    return f"{10 ** (log10 - exponent):.1f}e{exponent}"


def log10_tail(values: Float64, tail: Callable[[Float64], Float64], log_tail: Callable[[Float64], Float64]) -> Float64:
    """Return decimal logarithms of ``tail``; if it underflows, use the natural logarithm ``log_tail``."""
    flat = np.ravel(values)
    found = np.ravel(tail(flat))
    small = found < RELIABLE
    logs = np.log10(np.where(small, 1.0, found))
    if small.any():
        logs[small] = log_tail(flat[small]) / LN10
    return logs.reshape(np.shape(values))
