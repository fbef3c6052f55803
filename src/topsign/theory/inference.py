"""Inference from observed distances: correlations, confidence intervals and p-values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt
import scipy  # submodules are imported at their first use
from scipy.special import betainc, log_ndtr, logsumexp, ndtr, ndtri

from .._arrays import Float64
from .._checks import check_choice, check_count, check_pool
from .distances import binomial_cdf, binomial_sf, flip_mixture, mixture_tail
from .evidence import CLOSER, LikelihoodRatio, LikelihoodRatioModel, check_scores
from .log_tails import log10_tail, log_binomial_cdf, log_coordinate_tail, log_student_tail, probabilities
from .order_statistics import Selection, gauss_rule, pool_grid
from .pools import effective_features, sample_correlations, shared_share

SCORINGS = ("hamming", "asymmetric")

_HERMITE = np.polynomial.hermite_e.hermegauss(7)


def correlation_from_hamming(hamming: npt.ArrayLike, *, n_bits: int, n_pool: int) -> Float64:
    """Estimate the correlation from an observed Hamming distance.

    Exact inversion of :func:`topsign.theory.expected_hamming`. That function is convex in kappa, so Newton steps from
    zero never overshoot. A distance of 0 gives 1, and a distance of 1 gives -1.

    >>> round(float(correlation_from_hamming(0.2, n_bits=800, n_pool=5000)), 6)
    0.418356
    """
    n_bits, n_pool = check_pool(n_bits, n_pool)
    d = np.asarray(hamming, dtype=np.float64)
    if not ((d >= 0) & (d <= 1)).all():
        raise ValueError("hamming must be fractions in [0, 1]; divide mismatches by n_bits")
    if n_bits == n_pool:
        return np.asarray(np.cos(np.pi * d))
    grid = pool_grid(n_bits, n_pool)
    rho = [_invert_mean(one, grid.magnitudes, grid.kept) for one in np.minimum(d, 1 - d).ravel()]
    return np.asarray(np.where(d > 0.5, -1, 1) * np.array(rho).reshape(d.shape))


def correlation_interval(
    observed: npt.ArrayLike, *, n_bits: int, n_pool: int, confidence: float = 0.95, scoring: str = "hamming"
) -> Float64:
    """Confidence interval for the correlation, with shape (..., 2).

    ``scoring="hamming"``: ``observed`` counts mismatches. The exact distribution is inverted at both limits
    (Clopper-Pearson), so the coverage is at least ``confidence``. ``scoring="asymmetric"``: ``observed`` is the
    estimated correlation, which is treated as normal around the true value rho; its variance is
    (1 - rho**2 + rho**2 V / m) / (m c**2), where c is the mean kept magnitude and V the variance of the sum of kept
    magnitudes. The limits are solved for rho.

    With a Gaussian pool the interval covers the correlation of the two signals. With an orthonormal pool it covers the
    population correlation: "hamming" has exactly the same distribution, and the variance of "asymmetric" is smaller by
    rho**2 (3/2 - rho**2) / n_features, so the coverage is higher than nominal.

    >>> correlation_interval(100, n_bits=512, n_pool=8192).round(3)
    array([0.311, 0.406])
    """
    return selection_interval(observed, Selection(*check_pool(n_bits, n_pool)), confidence, scoring)


def selection_interval(observed: npt.ArrayLike, kept: Selection, confidence: float, scoring: str) -> Float64:
    """Return :func:`correlation_interval` for any rule that selects projections."""
    check_choice(scoring, "scoring", SCORINGS)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    values = np.asarray(observed, dtype=np.float64)
    if scoring == "asymmetric":
        q = ndtri((1 + confidence) / 2) ** 2 / (kept.n_kept * kept.mean_magnitude**2)
        a = 1 - kept.sum_variance / kept.n_kept  # the variance is proportional to 1 - a * rho**2
        farthest = np.sqrt((1 + q * a) / a)
        r = np.clip(values, -farthest, farthest)
        root = np.sqrt(np.maximum(0.0, q * (1 + q * a - a * r**2)))
        return np.asarray(np.clip(np.stack([r - root, r + root], axis=-1) / (1 + q * a), -1, 1))
    if not ((values >= 0) & (values <= kept.n_kept) & (values == np.floor(values))).all():
        raise ValueError(f"mismatches must be integers in [0, {kept.n_kept}], got {observed!r}")
    ends = {k: _mismatch_interval(k, kept, (1 - confidence) / 2) for k in set(values.ravel().tolist())}
    return np.array([ends[k] for k in values.ravel().tolist()]).reshape(*values.shape, 2)


def match_pvalue(
    observed: npt.ArrayLike,
    *,
    n_bits: int,
    n_pool: int,
    n_features: int,
    projection: str = "hadamard",
    scoring: str = "hamming",
) -> Float64:
    """P-value of a match: the probability that an independent impostor is at least as close as observed.

    ``scoring="hamming"``: ``observed`` counts mismatches. For isotropic impostors the count is binomial with an
    orthonormal pool of n_pool <= n_features rows. With a Gaussian pool its distribution is averaged over the sample
    correlation of two independent signals, which makes it wider. ``scoring="asymmetric"``: ``observed`` is the
    estimated correlation, the sum of the query's projections with the signs of the code, divided by the sum of kept
    magnitudes that is expected of a normal signal.

    Standing: exact for "hamming" with a Gaussian pool or one orthonormal block, and for "asymmetric" with one
    orthonormal block (n_pool <= n_features): the score is a constant times the sample correlation of the query and the
    code as a vector. For "asymmetric" with a Gaussian pool it is exact given the sum of the kept magnitudes, which is
    treated as normal. A stack of orthonormal blocks (n_pool > n_features) is an approximation that has the right
    variance; p-values of "asymmetric" are then too large in the far tail (grouped codes of 1.5 or 2 blocks of 256
    features: at most 3% at 3e-5 and 9% at 2e-7; of 2 blocks of 1,024 features: 0.5% and 1.4%). Real impostors are
    seldom isotropic; for those use :class:`EmpiricalNull`.

    >>> float(match_pvalue(200, n_bits=512, n_pool=8192, n_features=8192).round(8))
    4.2e-07
    """
    shape = {"n_bits": n_bits, "n_pool": n_pool, "n_features": n_features}
    return probabilities(match_log10_pvalue(observed, projection=projection, scoring=scoring, **shape))


def match_log10_pvalue(
    observed: npt.ArrayLike,
    *,
    n_bits: int,
    n_pool: int,
    n_features: int,
    projection: str = "hadamard",
    scoring: str = "hamming",
) -> Float64:
    """Decimal logarithm of :func:`match_pvalue`, for p-values that may be too small for a float.

    It is -inf for scores that no impostor can reach, because correlations estimated from one orthonormal block are
    bounded.

    >>> float(match_log10_pvalue(0, n_bits=2048, n_pool=8192, n_features=8192).round(4))  # 2**-2048
    -616.5094
    """
    return selection_log10_pvalue(observed, Selection(*check_pool(n_bits, n_pool)), n_features, projection, scoring)


def selection_log10_pvalue(
    observed: npt.ArrayLike, kept: Selection, n_features: int, projection: str, scoring: str
) -> Float64:
    """Return :func:`match_log10_pvalue` for any rule that selects projections."""
    check_choice(scoring, "scoring", SCORINGS)
    tails = (score_tail, log_score_tail) if scoring == "asymmetric" else (mismatch_tail, log_mismatch_tail)
    tail, log_tail = (partial(one, kappa=0.0, kept=kept, n_features=n_features, projection=projection) for one in tails)
    return log10_tail(np.asarray(observed, dtype=np.float64), tail, log_tail)


def correct_pvalues(p_values: npt.ArrayLike, *, n_entries: int | None = None, method: str = "bonferroni") -> Float64:
    """Correct p-values for multiple comparisons.

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


@dataclass(frozen=True)
class EmpiricalNull:
    """Null distribution of scores, learned from known impostors.

    Parameters
    ----------
    impostors : array
        Scores (or mismatches) of pairs known not to match.
    method : "rank" or "normal"
        ``rank`` counts the impostors that are at least as close; the p-value is ``(1 + count) / (1 + n)``, never below
        1 / (1 + n). It is valid for any null distribution, provided that impostors and new scores are exchangeable.
        ``normal`` fits a normal distribution and reports the predictive (Student) tail; its p-values can be smaller but
        are valid only if the null distribution is normal.
    closer : "larger" or "smaller"
        Whether larger scores (correlations) or smaller scores (mismatches) mean a closer match.

    Examples
    --------
    >>> null = EmpiricalNull(np.arange(99), method="rank")
    >>> null.pvalue([98.5, 50]).round(12).tolist()
    [0.01, 0.5]
    """

    impostors: npt.ArrayLike
    method: str = "rank"
    closer: str = "larger"

    def __post_init__(self) -> None:
        check_choice(self.method, "method", ("rank", "normal"))
        check_choice(self.closer, "closer", CLOSER)
        scores = check_scores(self.impostors, "impostors")
        object.__setattr__(self, "impostors", np.sort(scores if self.closer == "larger" else -scores))

    def pvalue(self, observed: npt.ArrayLike) -> Float64:
        """Return the probability that an impostor is at least as close as each observed score; never 0."""
        return probabilities(self.log10_pvalue(observed))

    def log10_pvalue(self, observed: npt.ArrayLike) -> Float64:
        """Return the decimal logarithm of :meth:`pvalue`, for p-values that may be too small for a float.

        With ``method="rank"`` and n impostors it is at least ``-log10(1 + n)``.
        """
        impostors = np.asarray(self.impostors)
        score = np.asarray(observed, dtype=np.float64) * (1 if self.closer == "larger" else -1)
        n = len(impostors)
        if self.method == "rank":
            return np.asarray(np.log10(1 + n - np.searchsorted(impostors, score, side="left")) - np.log10(1 + n))
        spread = impostors.std(ddof=1) * np.sqrt(1 + 1 / n)
        return log10_tail(
            np.asarray((score - impostors.mean()) / spread),
            lambda t: np.asarray(scipy.stats.t.sf(t, n - 1)),
            lambda t: log_student_tail(t, n - 1),
        )

    def threshold(self, false_alarm: npt.ArrayLike) -> Float64:
        """Return the least close score whose p-value is at most ``false_alarm``; infinite if there is none.

        With ``method="rank"`` the threshold is the floating-point number next to an impostor's score.
        """
        levels = np.asarray(false_alarm, dtype=np.float64)
        if not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"false_alarm must lie strictly between 0 and 1, got {false_alarm!r}")
        impostors = np.asarray(self.impostors)
        n = len(impostors)
        if self.method == "normal":
            spread = impostors.std(ddof=1) * np.sqrt(1 + 1 / n)
            found = impostors.mean() + spread * scipy.stats.t.isf(levels, n - 1)
        else:
            n_above = np.floor(levels * (1 + n) * (1 + 1e-12)).astype(int) - 1  # impostors that may score as close
            below = impostors[np.clip(n - 1 - n_above, 0, n - 1)]
            found = np.where(n_above < 0, np.inf, np.nextafter(below, np.inf))
        return np.asarray(found if self.closer == "larger" else -found)

    def likelihood_ratio(
        self, observed: npt.ArrayLike, *, matches: npt.ArrayLike, confidence: float = 0.95
    ) -> LikelihoodRatio:
        """Return likelihood ratios of match to impostor; ``matches`` are scores of known matches.

        Ratios are smooth and monotone in the score, have confidence limits, and are bounded by the sample sizes; see
        :class:`LikelihoodRatioModel`, which can be stored. Raises ValueError if matches are not closer than impostors.
        """
        impostors = np.asarray(self.impostors) * (1 if self.closer == "larger" else -1)
        model = LikelihoodRatioModel.fit(matches, impostors=impostors, closer=self.closer, confidence=confidence)
        return model.ratio(observed)


def mismatch_tail(mismatches: Float64, kappa: float, kept: Selection, n_features: int, projection: str) -> Float64:
    """Return P(mismatches <= k) for signals with population value kappa (0 for an impostor)."""
    flips, weights = _count_mixture(kappa, kept, effective_features(projection, n_features, kept.n_pool))
    unique, where = np.unique(np.floor(mismatches), return_inverse=True)
    tails = binomial_cdf(unique[:, np.newaxis], kept.n_kept, flips) @ weights
    return np.asarray(tails[where].reshape(mismatches.shape))


def log_mismatch_tail(mismatches: Float64, kappa: float, kept: Selection, n_features: int, projection: str) -> Float64:
    """Return the logarithm of :func:`mismatch_tail`, for tails that may be too small for a float."""
    flips, weights = _count_mixture(kappa, kept, effective_features(projection, n_features, kept.n_pool))
    logs = log_binomial_cdf(np.floor(mismatches), kept.n_kept, flips)
    return np.asarray(logsumexp(logs, b=weights, axis=1))


@lru_cache(maxsize=512)
def _count_mixture(kappa: float, kept: Selection, n_features: float) -> tuple[Float64, Float64]:
    """Return flip probabilities and weights; given sample correlation and threshold, the mismatch count is binomial."""
    if kappa == 0 and np.isinf(n_features):
        return np.array([0.5]), np.ones(1)
    rho, rho_weights = sample_correlations(kappa, n_features)
    flips, weights = flip_mixture(rho, kept)
    if len(rho) == 1:
        return flips[0], weights
    # The count depends only on the flip probability, so a Gauss rule with few nodes describes its distribution.
    return gauss_rule(flips.ravel(), np.outer(rho_weights, weights).ravel(), 40)


def score_tail(scores: Float64, kappa: float, kept: Selection, n_features: int, projection: str) -> Float64:
    """Return P(estimated correlation >= score) for signals with population value kappa (0 for an impostor).

    Given the sample correlation r of query and entry and the sum S of the kept magnitudes, the estimate is S / E[S]
    times the sum of r and of sqrt((1 - r**2) (m/S**2 - share/n)) times a normal variable. For a single orthonormal
    block, a coordinate of a random unit vector in n - 1 dimensions replaces the normal variable; if kappa is zero, the
    estimate is then a coordinate of a random unit vector in n dimensions times sqrt(n m) / E[S], whatever S is.
    """
    unique, where = np.unique(scores, return_inverse=True)
    law = _score_mixture(kappa, kept, n_features, projection)
    needed = law.needed(unique)
    tails = ndtr(-needed) if law.dimensions is None else _coordinate_tail(needed, law.dimensions)
    tail = (tails @ law.rho_weights) @ law.weights
    return np.asarray(tail[where].reshape(scores.shape))


def log_score_tail(scores: Float64, kappa: float, kept: Selection, n_features: int, projection: str) -> Float64:
    """Return the logarithm of :func:`score_tail`, for tails that may be too small for a float."""
    law = _score_mixture(kappa, kept, n_features, projection)
    needed = law.needed(scores)
    logs = log_ndtr(-needed) if law.dimensions is None else log_coordinate_tail(needed, law.dimensions)
    return np.asarray(logsumexp(logs, b=law.weights[:, np.newaxis] * law.rho_weights, axis=(1, 2)))


@dataclass(frozen=True, eq=False)
class _ScoreMixture:
    """Distribution of an estimated correlation as a mixture over sample correlations and sums of kept magnitudes."""

    rho: Float64
    rho_weights: Float64
    stretch: Float64  # for each sum of kept magnitudes, as are noise and weights
    noise: Float64
    weights: Float64
    dimensions: int | None  # of the random unit vector that supplies the noise; None for normal noise

    def needed(self, scores: Float64) -> Float64:
        """Return the standardised noise that each score requires, with shape (n_scores, n_sums, n_rho)."""
        reach = (scores[:, np.newaxis, np.newaxis] / self.stretch[:, np.newaxis] - self.rho) / np.sqrt(1 - self.rho**2)
        return np.asarray(reach / self.noise[:, np.newaxis])


def _score_mixture(kappa: float, kept: Selection, n_features: int, projection: str) -> _ScoreMixture:
    share = shared_share(projection, n_features, kept.n_pool)
    mean = kept.n_kept * kept.mean_magnitude
    if kappa == 0 and share == 1:
        one = np.ones(1)
        return _ScoreMixture(0 * one, one, one, one * np.sqrt(n_features * kept.n_kept) / mean, one, n_features)
    rho, rho_weights = sample_correlations(kappa, n_features)
    nodes, node_weights = _HERMITE
    # Within an orthonormal block the projections share the signal's norm, which reduces the variance of their sum.
    variance = kept.sum_variance - share * mean**2 / (2 * n_features)
    sums = mean + np.sqrt(max(variance, 0.0)) * nodes
    sums = np.clip(sums, mean / 4, 4 * mean)
    noise = np.sqrt(np.maximum(kept.n_kept / sums**2 - share / n_features, 1e-300))
    weights = node_weights / node_weights.sum()
    if share == 1:
        return _ScoreMixture(rho, rho_weights, sums / mean, noise * np.sqrt(n_features), weights, n_features - 1)
    if share > 0:  # each block contributes a coordinate of a unit vector orthogonal to the signal
        noise *= np.sqrt(n_features / (n_features - 1))
    return _ScoreMixture(rho, rho_weights, sums / mean, noise, weights, None)


def tail_threshold(tail: Callable[[Float64], Float64], probability: float) -> float:
    """Return the score that is reached with a given probability, for a nearly normal tail."""
    wanted = -ndtri(probability)
    low, high = 0.0, 1.0
    while float(tail(np.array([high]))[0]) > probability and high < 1e6:
        high *= 2
    while float(tail(np.array([low]))[0]) < probability and low > -1e6:
        low = 2 * low - 1

    def excess(score: float) -> float:
        # As a normal deviate, a nearly normal tail is nearly linear in the score, so few iterations are needed.
        return float(wanted + ndtri(np.clip(tail(np.array([score]))[0], 1e-300, 1 - 1e-16)))

    return float(scipy.optimize.brentq(excess, low, high, xtol=1e-13))


def _coordinate_tail(x: Float64, dimensions: int) -> Float64:
    """Return P(first coordinate of a random unit vector >= x)."""
    inside = np.clip(x, -1, 1)
    beyond = betainc((dimensions - 1) / 2, 0.5, 1 - inside**2) / 2
    return np.asarray(np.where(inside < 0, 1 - beyond, beyond))


def _invert_mean(hamming: float, magnitudes: Float64, kept: Float64) -> float:
    if hamming == 0:
        return 1.0
    kappa = 0.0
    for _ in range(500):
        excess = float(ndtr(-kappa * magnitudes) @ kept) - hamming
        slope = float((np.exp(-((kappa * magnitudes) ** 2) / 2) * magnitudes) @ kept) / np.sqrt(2 * np.pi)
        step = excess / slope if slope > 0 else 0.0
        kappa += step
        if step <= 1e-15 * kappa:
            break
    return float(kappa / np.hypot(1, kappa))


def _mismatch_interval(k: float, kept: Selection, alpha: float) -> tuple[float, float]:
    """Return the correlations at which P(mismatches <= k) and P(mismatches >= k) equal alpha."""
    limit = 18.0  # tanh(18) is 1 to double precision

    def few(z: float) -> float:
        return float(mixture_tail(k, np.tanh(z), kept, binomial_cdf)) - alpha

    def many(z: float) -> float:
        return float(mixture_tail(k - 1, np.tanh(z), kept, binomial_sf)) - alpha

    low = -1.0 if k == kept.n_kept else float(np.tanh(scipy.optimize.brentq(few, -limit, limit, xtol=1e-12)))
    high = 1.0 if k == 0 else float(np.tanh(scipy.optimize.brentq(many, -limit, limit, xtol=1e-12)))
    return low, high
