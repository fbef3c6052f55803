"""Expected Hamming distances, to a reference and between other signals, and bounds on their deviations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import scipy

from .._arrays import Float64
from .._checks import check_choice, check_count, check_pool, check_positive
from .order_statistics import Selection, legendre_rule, pool_grid, threshold_rule

SCORINGS = ("hamming", "asymmetric")

_NODES, _NODE_WEIGHTS = legendre_rule(40)


def flip_probability(standardized: npt.ArrayLike, correlation: npt.ArrayLike) -> Float64:
    """Probability that a kept sign differs at a ``correlation`` rho, given the reference's ``standardized`` s.

    Exact (Theorem 1, with the missing absolute value added): ``Q(kappa |s|)``, where s is the projection divided by
    ``sigma |u|`` and kappa = rho / sqrt(1 - rho**2).

    >>> round(float(flip_probability(-2.0, 0.3)), 4)
    0.2647
    """
    s = np.abs(np.asarray(standardized, dtype=np.float64))
    return np.asarray(scipy.special.ndtr(-_product(s, kappa_of(check_correlation(correlation)))))


def expected_hamming(
    correlation: npt.ArrayLike, *, n_bits: int | None = None, n_pool: int | None = None, n_bytes: int | None = None
) -> Float64:
    """Expected distance between the codes of a reference and of a signal at this ``correlation``.

    An adaptive code keeps ``n_bits`` of ``n_pool`` projections. A grouped code of ``n_bytes`` keeps the largest of
    every eight; its distance does not depend on its size, and is 1/18 at a correlation of 1/sqrt(2).

    Exact for a Gaussian pool (this replaces Theorem 2): the flip probability averaged over the kept magnitudes,
    ``(1/m) int Q(kappa s) M f(s) P(Binomial(M-1, 2Q(s)) < m) ds``. With an orthonormal pool the distance is smaller by
    about 0.4 / n_features.

    >>> round(float(expected_hamming(0.3, n_bits=800, n_pool=5000)), 6)
    0.281107
    >>> expected_hamming([0.0735, 0.3, 0.5**0.5], n_bytes=448).round(6)
    array([0.447758, 0.290115, 0.055556])
    """
    kept = Selection.of(n_bits, n_pool, n_bytes)
    rho = check_correlation(correlation)
    if kept.n_kept == kept.n_pool:
        return sign_expected_hamming(rho)
    grid = pool_grid(kept.n_largest, kept.group_size)
    kappa = np.abs(kappa_of(rho)).ravel()
    means = np.empty(len(kappa))
    rows = max(1, 2**20 // len(grid.kept))
    for start in range(0, len(kappa), rows):
        part = slice(start, start + rows)
        means[part] = scipy.special.ndtr(-_product(kappa[part, np.newaxis], grid.magnitudes)) @ grid.kept
    folded = np.where(kappa == 0, 0.5, means).reshape(rho.shape)
    return np.asarray(np.where(rho < 0, 1 - folded, folded))


def hamming_variance(
    correlation: npt.ArrayLike, *, n_bits: int | None = None, n_pool: int | None = None, n_bytes: int | None = None
) -> Float64:
    """Variance of the distance of which :func:`expected_hamming` is the mean.

    ``correlation``, ``n_bits``, ``n_pool`` and ``n_bytes`` are as there. Exact for a Gaussian pool: ``E(1-E)/m + (1 -
    1/m) Var pi(T)``, because all m bits of an adaptive code share the threshold T; groups are independent.
    """
    kept = Selection.of(n_bits, n_pool, n_bytes)
    rho = check_correlation(correlation)
    grid = pool_grid(kept.n_largest, kept.group_size)
    mean = expected_hamming(np.abs(rho), n_bits=kept.n_largest, n_pool=kept.group_size)
    flips = _flip_above(grid.thresholds, np.abs(kappa_of(rho))[..., np.newaxis])
    spread = (flips - mean[..., np.newaxis]) ** 2 @ grid.threshold_weights
    within = mean * (1 - mean) / kept.n_largest + (1 - 1 / kept.n_largest) * spread
    return np.asarray(within / kept.n_groups)


def hamming_pmf(
    correlation: npt.ArrayLike, *, n_bits: int | None = None, n_pool: int | None = None, n_bytes: int | None = None
) -> Float64:
    """Probabilities of each number of mismatches, from 0, at a ``correlation``, along a new last axis.

    ``n_bits``, ``n_pool`` and ``n_bytes`` are as for :func:`expected_hamming`. Exact for a Gaussian pool: a mixture of
    binomial distributions, and one binomial distribution for grouped codes.
    """
    kept = Selection.of(n_bits, n_pool, n_bytes)
    rho = check_correlation(correlation)
    counts = np.arange(kept.n_kept + 1)
    rows = []
    for one in rho.ravel():
        flips, weights = flip_mixture(one, kept)
        rows.append(weights @ scipy.stats.binom.pmf(counts, kept.n_kept, flips[:, np.newaxis]))
    return np.array(rows).reshape(*rho.shape, len(counts))


def expected_hamming_bound(correlation: npt.ArrayLike, *, n_bits: int, n_pool: int) -> Float64:
    """Closed-form upper bound on :func:`expected_hamming`, for a ``correlation`` in [0, 1], ``n_bits`` and ``n_pool``.

    Bound (upper; the intent of Theorem 2): for correlations up to 1/sqrt(2) it is ``pi(t*)`` with
    ``t* = Q^-1((m+1) / (2(M+1)))``, which is within 4e-4 of the exact value for m >= 32 and M >= 1024; for larger ones
    it is ``(m+1) / (4(M+1))``. It never exceeds ``arccos(rho) / pi``.
    """
    n_bits, n_pool = check_pool(n_bits, n_pool)
    rho = check_correlation(correlation)
    if (rho < 0).any():
        raise ValueError("the bound holds for correlations in [0, 1]; use 1 - E(-correlation) for a lower bound")
    threshold = np.asarray(-scipy.special.ndtri((n_bits + 1) / (2 * (n_pool + 1))))
    below = _flip_above(np.maximum(threshold, 0), kappa_of(np.minimum(rho, np.sqrt(0.5))))
    bound = np.where(rho <= np.sqrt(0.5), below, (n_bits + 1) / (4 * (n_pool + 1)))
    return np.asarray(np.minimum(bound, sign_expected_hamming(rho)))


def correlation_from_hamming(
    hamming: npt.ArrayLike, *, n_bits: int | None = None, n_pool: int | None = None, n_bytes: int | None = None
) -> Float64:
    """Estimate the correlation from an observed distance ``hamming``.

    ``n_bits``, ``n_pool`` and ``n_bytes`` are as for :func:`expected_hamming`, of which this is the exact inverse. That
    function is convex in kappa, so Newton steps from zero never overshoot. A distance of 0 gives 1, and a distance of
    1 gives -1.

    >>> round(float(correlation_from_hamming(0.2, n_bits=800, n_pool=5000)), 6)
    0.418356
    """
    kept = Selection.of(n_bits, n_pool, n_bytes)
    d = np.asarray(hamming, dtype=np.float64)
    if not ((d >= 0) & (d <= 1)).all():
        raise ValueError("hamming must be fractions in [0, 1]; divide mismatches by the number of bits kept")
    if kept.n_kept == kept.n_pool:
        return np.asarray(np.cos(np.pi * d))
    grid = pool_grid(kept.n_largest, kept.group_size)
    rho = [_invert_mean(one, grid.magnitudes, grid.kept) for one in np.minimum(d, 1 - d).ravel()]
    return np.asarray(np.where(d > 0.5, -1, 1) * np.array(rho).reshape(d.shape))


def correlation_interval(
    observed: npt.ArrayLike,
    *,
    n_bits: int | None = None,
    n_pool: int | None = None,
    n_bytes: int | None = None,
    confidence: float = 0.95,
    scoring: str = "hamming",
) -> Float64:
    """Confidence interval for the correlation, with shape (..., 2).

    ``n_bits``, ``n_pool`` and ``n_bytes`` are as for :func:`expected_hamming`.

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
    >>> correlation_interval(0.0735, n_bytes=448, scoring="asymmetric").round(4)
    array([0.0368, 0.1101])
    """
    return selection_interval(observed, Selection.of(n_bits, n_pool, n_bytes), confidence, scoring)


def selection_interval(observed: npt.ArrayLike, kept: Selection, confidence: float, scoring: str) -> Float64:
    """Return :func:`correlation_interval` for any rule that selects projections."""
    check_choice(scoring, "scoring", SCORINGS)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    values = np.asarray(observed, dtype=np.float64)
    if scoring == "asymmetric":
        q = scipy.special.ndtri((1 + confidence) / 2) ** 2 / (kept.n_kept * kept.mean_magnitude**2)
        a = 1 - kept.sum_variance / kept.n_kept  # the variance is proportional to 1 - a * rho**2
        farthest = np.sqrt((1 + q * a) / a)
        r = np.clip(values, -farthest, farthest)
        root = np.sqrt(np.maximum(0.0, q * (1 + q * a - a * r**2)))
        return np.asarray(np.clip(np.stack([r - root, r + root], axis=-1) / (1 + q * a), -1, 1))
    if not ((values >= 0) & (values <= kept.n_kept) & (values == np.floor(values))).all():
        raise ValueError(f"mismatches must be integers in [0, {kept.n_kept}], got {observed!r}")
    ends = {k: _mismatch_interval(k, kept, (1 - confidence) / 2) for k in set(values.ravel().tolist())}
    return np.array([ends[k] for k in values.ravel().tolist()]).reshape(*values.shape, 2)


def pair_flip_probability(
    standardized: npt.ArrayLike, *, uv: npt.ArrayLike, uw: npt.ArrayLike, vw: npt.ArrayLike
) -> Float64:
    """Probability that the signs of two signals v and w differ, given the reference's ``standardized`` projection.

    Exact (Theorem 3, corrected): ``Phi(h) + Phi(k) - 2 Phi2(h, k; r)`` by Owen's T function. ``uv``, ``uw`` and ``vw``
    are the correlations of the reference u with v and w, and of v with w. Collinear signals (``v = c u``, ``v = c w``)
    are computed as limits.

    >>> round(float(pair_flip_probability(1.2, uv=0.5, uw=0.3, vw=0.6)), 6)
    0.283864
    """
    s = np.abs(np.asarray(standardized, dtype=np.float64))  # even in s
    s, uv, uw, vw = np.broadcast_arrays(s, *(check_correlation(one) for one in (uv, uw, vw)))
    if (1 + 2 * uv * uw * vw - uv**2 - uw**2 - vw**2 < -1e-9).any():
        raise ValueError(
            "uv, uw and vw cannot be the correlations of three signals: their Gram matrix is not positive semidefinite"
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        h, k = -_product(s, kappa_of(uv)), -_product(s, kappa_of(uw))
        r = np.clip((vw - uv * uw) / np.sqrt((1 - uv**2) * (1 - uw**2)), -1, 1)
    first, second = np.abs(uv) == 1, np.abs(uw) == 1
    collinear = first | second  # h or k is infinite, so one sign is certain
    certain = np.abs(scipy.special.ndtr(h) - scipy.special.ndtr(k))
    # At s = 0 the sign of a signal that is collinear with u is still that of u, or the opposite; the other is random.
    certain = np.where((s == 0) & collinear, np.where(first & second, uv != uw, 0.5), certain)
    h, k, r = (np.where(collinear, 0.0, value) for value in (h, k, r))
    return np.asarray(np.where(collinear, certain, _disagreement(h, k, r)))


def expected_pair_hamming(
    *,
    uv: npt.ArrayLike,
    uw: npt.ArrayLike,
    vw: npt.ArrayLike,
    n_bits: int | None = None,
    n_pool: int | None = None,
    n_bytes: int | None = None,
) -> Float64:
    """Expected distance between the codes of two signals that are embedded with the same reference.

    ``uv``, ``uw`` and ``vw`` are as for :func:`pair_flip_probability`, ``n_bits``, ``n_pool`` and ``n_bytes`` as for
    :func:`expected_hamming`. Exact for a Gaussian pool: :func:`pair_flip_probability` averaged over kept magnitudes.

    >>> float(expected_pair_hamming(uv=0.3, uw=0.2, vw=0.5, n_bytes=448).round(6))
    0.308252
    """
    kept = Selection.of(n_bits, n_pool, n_bytes)
    grid = pool_grid(kept.n_largest, kept.group_size)
    uv, uw, vw = (np.asarray(c, dtype=np.float64)[..., np.newaxis] for c in (uv, uw, vw))
    return np.asarray(pair_flip_probability(grid.magnitudes, uv=uv, uw=uw, vw=vw) @ grid.kept)


def sign_expected_hamming(correlation: npt.ArrayLike) -> Float64:
    """Expected distance with plain sign projections at a ``correlation`` rho.

    Exact: ``arccos(rho) / pi``; the mismatch count is binomial.
    """
    return np.asarray(np.arccos(check_correlation(correlation)) / np.pi)


def universal_expected_hamming(distance: npt.ArrayLike, step: float) -> Float64:
    """Expected distance with the dithered universal embedding, as a function of the signals' Euclidean ``distance``.

    ``step`` is the width of a quantisation cell.

    Exact: ``1/2 - sum_i exp(-(pi (2i+1) distance / step)**2 / 2) / (pi (i + 1/2))**2``. This series converges slowly
    for small distances; there, the same mean of a triangle wave is summed over its linear pieces.

    >>> round(float(universal_expected_hamming(np.sqrt(1.2), step=2.0)), 6)
    0.407782
    """
    step = check_positive(step, "step")
    x = np.asarray(distance, dtype=np.float64) / step
    if not (np.isfinite(x) & (x >= 0)).all():
        raise ValueError(f"distance must be finite and not negative, got {distance!r}")
    odd = 2 * np.arange(20) + 1
    waves = np.exp(-((np.pi * odd * np.maximum(x, 0.4)[..., np.newaxis]) ** 2) / 2) / (np.pi * odd / 2) ** 2
    safe = np.clip(x, 1e-300, 0.4)[..., np.newaxis]
    folds = np.arange(1, 20)
    with np.errstate(under="ignore", over="ignore"):
        ends = folds / safe
        excess = 2 * (safe * np.exp(-(ends**2) / 2) / np.sqrt(2 * np.pi) - folds * scipy.special.ndtr(-ends))
    near = x * np.sqrt(2 / np.pi) + 2 * ((-1.0) ** folds * excess).sum(axis=-1)
    return np.asarray(np.where(x < 0.4, near, 0.5 - waves.sum(axis=-1)))


def universal_undithered_hamming(
    correlation: npt.ArrayLike, *, step: float, norms: tuple[float, float] = (1.0, 1.0)
) -> Float64:
    """Expected distance with the universal embedding without dither; it depends on the ``norms`` of the signals.

    Exact: the mean product of two square waves of correlated normal variables, by Fourier series. ValueError is raised
    if the series needs too many terms: if ``step`` is hundreds of times a norm, or if the ``correlation`` is within
    about 1e-5 of one.
    """
    rho = check_correlation(correlation)
    step = check_positive(step, "step")
    first, second = (check_positive(norm, "norms") for norm in norms)
    means = [_mean_of_square_waves(one, first / step, second / step) for one in rho.ravel().tolist()]
    return np.asarray(0.5 - np.array(means).reshape(rho.shape) / 2)


def check_correlation(correlation: npt.ArrayLike) -> Float64:
    """Return correlations as an array; raise ValueError if any lies outside [-1, 1]."""
    array = np.asarray(correlation, dtype=np.float64)
    if not ((array >= -1) & (array <= 1)).all():
        raise ValueError(f"correlation must lie in [-1, 1], got {correlation!r}")
    return array


def kappa_of(rho: Float64 | np.float64) -> Float64:
    """Return rho / sqrt(1 - rho**2), which is infinite at +-1."""
    with np.errstate(divide="ignore"):
        return np.asarray(rho / np.sqrt((1 - rho) * (1 + rho)))


def flip_mixture(rho: npt.ArrayLike, kept: Selection) -> tuple[Float64, Float64]:
    """Return flip probabilities, with thresholds along a new last axis, and the weights of the thresholds.

    Given the threshold, the mismatch count is binomial. Groups that keep one projection each are independent, so their
    flip probability is averaged over the threshold.
    """
    rho = np.asarray(rho, dtype=np.float64)[..., np.newaxis]
    if kept.n_groups > 1:
        return expected_hamming(rho, n_bits=kept.n_largest, n_pool=kept.group_size), np.ones(1)
    thresholds, weights = threshold_rule(kept.n_largest, kept.group_size)
    flips = _flip_above(thresholds, np.abs(kappa_of(rho)))
    return np.asarray(np.where(rho < 0, 1 - flips, flips)), weights


def binomial_cdf(k: Float64, n: int, p: Float64) -> Float64:
    """Return P(Binomial(n, p) <= k) with full relative precision."""
    inside = np.clip(k, 0, n - 1)
    return np.where(k < 0, 0.0, np.where(k >= n, 1.0, scipy.special.betainc(n - inside, inside + 1, 1 - p)))


def binomial_sf(k: Float64, n: int, p: Float64) -> Float64:
    """Return P(Binomial(n, p) > k) with full relative precision."""
    inside = np.clip(k, 0, n - 1)
    return np.where(k < 0, 1.0, np.where(k >= n, 0.0, scipy.special.betainc(inside + 1, n - inside, p)))


def mixture_tail(
    mismatches: npt.ArrayLike,
    correlation: npt.ArrayLike,
    kept: Selection,
    tail: Callable[[Float64, int, Float64], Float64],
) -> Float64:
    """Return a tail of the mismatch count, ``binomial_cdf`` or ``binomial_sf``, averaged over the threshold."""
    (rho,) = check_correlation(correlation).reshape(-1)
    flips, weights = flip_mixture(rho, kept)
    k = np.asarray(mismatches, dtype=np.float64)
    return np.asarray(tail(np.floor(k)[..., np.newaxis], kept.n_kept, flips) @ weights)


def _product(s: Float64, kappa: Float64) -> Float64:
    """Return s * kappa, with 0 * inf = 0."""
    with np.errstate(invalid="ignore"):
        return np.where((s == 0) & np.isinf(kappa), 0.0, s * kappa)


def _flip_above(t: Float64, kappa: Float64) -> Float64:
    """Return pi(t), the flip probability given a magnitude above t: ``1/2 - T_Owen(t, kappa) / Q(t)``.

    If pi is small, the difference loses precision by cancellation, and Q(kappa s) phi(s) is integrated from t instead.
    """
    t, kappa = np.broadcast_arrays(t, kappa)
    flips = np.array(0.5 - scipy.special.owens_t(t, kappa) / scipy.special.ndtr(-t))
    small = (flips < 1e-3) & (kappa > 0)
    if small.any():
        flips[small] = _integrated_flip_above(t[small], kappa[small])
    return flips


def _integrated_flip_above(t: Float64, kappa: Float64) -> Float64:
    finite = np.minimum(kappa, 1e150)
    reach = 80 / (finite**2 + 1)  # s**2 - t**2 at which exp(-(kappa**2 + 1) (s**2 - t**2) / 2) is exp(-40)
    length = reach / (t + np.sqrt(t**2 + reach))
    s = t[..., np.newaxis] + length[..., np.newaxis] * (1 + _NODES) / 2
    log_ratio = -(s**2) / 2 - np.log(2 * np.pi) / 2 - scipy.special.log_ndtr(-t)[..., np.newaxis]
    with np.errstate(under="ignore"):
        integrand = np.exp(scipy.special.log_ndtr(-finite[..., np.newaxis] * s) + log_ratio)
    return np.where(np.isinf(kappa), 0.0, length / 2 * (integrand @ _NODE_WEIGHTS))


def _mean_of_square_waves(rho: float, first: float, second: float) -> float:
    """Return E[w(x) w(y)] for a square wave w with half-period 1 and normal x, y with these standard deviations."""
    if abs(rho) == 1 and first == second:
        return rho
    n_waves = int(5 / (min(first, second) * np.sqrt(max(1e-300, 1 - rho**2)))) + 5
    if n_waves > 2000:
        raise ValueError(
            f"the Fourier series needs {n_waves} terms for correlation {rho} and these norms and step, more than the "
            "limit of 2000; use a smaller step, larger norms, or a correlation farther from one"
        )
    odd = 2 * np.arange(n_waves) + 1
    a, b = np.pi * odd * first, np.pi * odd * second
    same, product = (a[:, np.newaxis] ** 2 + b**2) / 2, rho * np.outer(a, b)
    waves = (np.exp(product - same) - np.exp(-product - same)) / np.outer(odd, odd)
    return float(8 / np.pi**2 * waves.sum())


def _disagreement(h: Float64, k: Float64, r: Float64) -> Float64:
    """Return P(sign X != sign Y) for normal X, Y with unit variances, means -h and -k and correlation r (Owen's T)."""
    q = np.sqrt((1 - r) * (1 + r))
    with np.errstate(divide="ignore", invalid="ignore"):
        slope_h = np.where(h == 0, np.sign(k - r * h) * np.inf, (k - r * h) / (h * q))
        slope_k = np.where(k == 0, np.sign(h - r * k) * np.inf, (h - r * k) / (k * q))
    opposite = (h * k < 0) | ((h * k == 0) & (h + k < 0))
    general = 2 * _owen(h, slope_h) + 2 * _owen(k, slope_k) + opposite
    total = scipy.special.ndtr(h) + scipy.special.ndtr(k)
    same_line = np.where(
        r > 0, np.abs(scipy.special.ndtr(h) - scipy.special.ndtr(k)), total - 2 * np.maximum(0.0, total - 1)
    )
    both_zero = np.arccos(r) / np.pi
    general = np.where((h == 0) & (k == 0), both_zero, general)
    return np.where((np.abs(r) == 1) & ~((h == 0) & (k == 0)), same_line, general)


def _owen(h: Float64, a: Float64) -> Float64:
    return scipy.special.owens_t(h, np.nan_to_num(a, nan=0.0, posinf=np.inf, neginf=-np.inf))  # type: ignore[no-any-return]


def _invert_mean(hamming: float, magnitudes: Float64, kept: Float64) -> float:
    if hamming == 0:
        return 1.0
    kappa = 0.0
    for _ in range(500):
        excess = float(scipy.special.ndtr(-kappa * magnitudes) @ kept) - hamming
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


def poisson_binomial_pmf(probabilities: npt.ArrayLike) -> Float64:
    """Probability mass function of the number of successes in independent trials with different ``probabilities``.

    Returns P(0), ..., P(m) for m trials. Exact, by convolution. Given the reference's projections, the mismatch count
    has this distribution with the probabilities :func:`topsign.theory.flip_probability`.
    """
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"probabilities must be a vector of values in [0, 1], got shape {p.shape}")
    pmf = np.zeros(len(p) + 1)
    pmf[0] = 1
    for i, one in enumerate(p):
        pmf[1 : i + 2] = pmf[1 : i + 2] * (1 - one) + pmf[: i + 1] * one
        pmf[0] *= 1 - one
    return pmf


def poisson_binomial_tail(mismatches: npt.ArrayLike, probabilities: npt.ArrayLike, *, side: str = "upper") -> Float64:
    """Probability of at least k ``mismatches`` (``side="upper"``) or of at most k ("lower").

    Exact, for independent trials with these ``probabilities``.
    """
    check_choice(side, "side", ("upper", "lower"))
    pmf = poisson_binomial_pmf(probabilities)
    k = np.asarray(mismatches, dtype=np.float64)
    if side == "upper":
        tails = np.append(pmf[::-1].cumsum()[::-1], 0.0)
        return np.asarray(tails[np.clip(np.ceil(k), 0, len(pmf)).astype(int)])
    tails = np.append(0.0, pmf.cumsum())
    return np.asarray(tails[np.clip(np.floor(k) + 1, 0, len(pmf)).astype(int)])


def chernoff_upper(expected_mismatches: npt.ArrayLike, relative_error: npt.ArrayLike, *, sharp: bool = True) -> Float64:
    """Upper bound on P(mismatches > (1 + e) B), where B is ``expected_mismatches`` and e the ``relative_error``.

    It holds for independent bits and every e > 0: ``exp(-B [(1+e) ln(1+e) - e])`` (``sharp=True``), or the simpler
    ``exp(-B e**2 / (2+e))``. The paper prints the mean fraction instead of B, and that expression is not a bound.
    """
    expected, e = _check_deviation(expected_mismatches, relative_error)
    exponent = (1 + e) * np.log1p(e) - e if sharp else e**2 / (2 + e)
    return np.asarray(np.exp(-expected * exponent))


def chernoff_lower(expected_mismatches: npt.ArrayLike, relative_error: npt.ArrayLike) -> Float64:
    """Upper bound on P(mismatches < (1 - e) B) for independent bits: ``exp(-B e**2 / 2)``.

    B is ``expected_mismatches``, and e is the ``relative_error``, 0 < e <= 1.
    """
    expected, e = _check_deviation(expected_mismatches, relative_error)
    if (e > 1).any():
        raise ValueError(f"relative_error of the lower tail must lie in (0, 1], got {float(e.max()):g}")
    return np.asarray(np.exp(-expected * e**2 / 2))


def hoeffding(deviation: npt.ArrayLike, n_bits: int) -> Float64:
    """Upper bound on the probability of a ``deviation`` of the fraction of ``n_bits`` independent bits from its mean.

    ``P(|hamming - mean| > deviation) <= 2 exp(-2 m deviation**2)``.
    """
    n_bits = check_count(n_bits, "n_bits")
    return np.asarray(np.minimum(1.0, 2 * np.exp(-2 * n_bits * np.asarray(deviation, dtype=np.float64) ** 2)))


def bits_for_distortion(*, distortion: float, n_signals: int, failure: float) -> int:
    """Number of bits that keeps every pairwise Hamming distance of ``n_signals`` signals near its expectation.

    With at most the probability ``failure`` of an exception, all ``n (n - 1) / 2`` fractions of differing bits lie
    within ``distortion`` of their means. This is the paper's ``m = O(distortion**-2 log n)`` with its constants.

    Standing: bound (sufficient, by a union bound over the pairs), for projections with independent rows. Each pair
    contributes the largest tail of a binomial count over all means. That tail is exact for plain signs. By Hoeffding's
    theorem (1956), it also bounds the tail for adaptive embeddings given the reference's projections, whose signs are
    independent but differ in probability. The result is about ``(ln n_pairs - ln failure) / (2 distortion**2)`` bits,
    and never exceeds the number that :func:`hoeffding` requires.

    >>> bits_for_distortion(distortion=0.1, n_signals=1000, failure=0.01)
    796
    """
    if not 0 < distortion < 1:
        raise ValueError(f"distortion is a fraction of the bits and must lie in (0, 1), got {distortion}")
    if not 0 < failure < 1:
        raise ValueError(f"failure must lie in (0, 1), got {failure}")
    n_signals = check_count(n_signals, "n_signals", minimum=2)
    per_pair = failure / (n_signals * (n_signals - 1) / 2)
    # Hoeffding's theorem holds only for tails at least one count beyond the mean.
    low = int(np.ceil(1 / distortion))
    high = max(low, int(np.ceil(np.log(2 / per_pair) / (2 * distortion**2))))
    while low < high:
        middle = (low + high) // 2
        if 2 * _largest_tail(middle, distortion) <= per_pair:
            high = middle
        else:
            low = middle + 1
    return low


def _largest_tail(n_bits: int, deviation: float) -> float:
    """Return the maximum over p of P(Binomial(n_bits, p) >= n_bits (p + deviation)).

    The count is treated as a real number: between integers the incomplete beta function can only enlarge the tail, and
    it is smooth in p and n_bits.
    """

    def tail(p: npt.ArrayLike) -> Float64:
        count = n_bits * (np.asarray(p) + deviation)
        return np.asarray(scipy.special.betainc(count, n_bits - count + 1, p))

    means = np.linspace(0, 1 - deviation, 66)[1:-1]
    best = int(np.argmax(tail(means)))
    width = means[1] - means[0]
    bounds = (max(means[best] - width, 1e-12), min(means[best] + width, 1 - deviation))
    refined = scipy.optimize.minimize_scalar(lambda p: -float(tail(p)), bounds=bounds, method="bounded")
    return max(float(tail(means[best])), -float(refined.fun))


def _check_deviation(expected: npt.ArrayLike, relative_error: npt.ArrayLike) -> tuple[Float64, Float64]:
    count, e = np.asarray(expected, dtype=np.float64), np.asarray(relative_error, dtype=np.float64)
    if not (count >= 0).all() or not (e > 0).all():
        raise ValueError(
            "expected_mismatches must not be negative and relative_error must be positive, got "
            f"{expected!r} and {relative_error!r}"
        )
    return count, e
