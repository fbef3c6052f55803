"""Concentration of the mismatch count given the reference's projections: exact tails and bounds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy  # submodules are imported at their first use
from scipy.special import betainc

from .._arrays import Float64
from .._checks import check_choice, check_count


def poisson_binomial_pmf(probabilities: npt.ArrayLike) -> Float64:
    """Probability mass function of the number of successes in independent trials with different probabilities.

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
    """Probability of at least k mismatches (side="upper") or of at most k (side="lower"). Exact."""
    check_choice(side, "side", ("upper", "lower"))
    pmf = poisson_binomial_pmf(probabilities)
    k = np.asarray(mismatches, dtype=np.float64)
    if side == "upper":
        tails = np.append(pmf[::-1].cumsum()[::-1], 0.0)
        return np.asarray(tails[np.clip(np.ceil(k), 0, len(pmf)).astype(int)])
    tails = np.append(0.0, pmf.cumsum())
    return np.asarray(tails[np.clip(np.floor(k) + 1, 0, len(pmf)).astype(int)])


def chernoff_upper(expected_mismatches: npt.ArrayLike, relative_error: npt.ArrayLike, *, sharp: bool = True) -> Float64:
    """Upper bound on P(mismatches > (1 + e) B), where B is the expected count and e the relative error.

    It holds for independent bits and every e > 0: ``exp(-B [(1+e) ln(1+e) - e])`` (sharp=True), or the simpler
    ``exp(-B e**2 / (2+e))``. The paper prints the mean fraction instead of B, and that expression is not a bound.
    """
    expected, e = _check_deviation(expected_mismatches, relative_error)
    exponent = (1 + e) * np.log1p(e) - e if sharp else e**2 / (2 + e)
    return np.asarray(np.exp(-expected * exponent))


def chernoff_lower(expected_mismatches: npt.ArrayLike, relative_error: npt.ArrayLike) -> Float64:
    """Upper bound on P(mismatches < (1 - e) B) for independent bits and 0 < e <= 1: ``exp(-B e**2 / 2)``."""
    expected, e = _check_deviation(expected_mismatches, relative_error)
    if (e > 1).any():
        raise ValueError(f"relative_error of the lower tail must lie in (0, 1], got {float(e.max()):g}")
    return np.asarray(np.exp(-expected * e**2 / 2))


def hoeffding(deviation: npt.ArrayLike, *, n_bits: int) -> Float64:
    """Upper bound on ``P(|hamming - mean| > deviation)`` for independent bits: ``2 exp(-2 m deviation**2)``."""
    n_bits = check_count(n_bits, "n_bits")
    return np.asarray(np.minimum(1.0, 2 * np.exp(-2 * n_bits * np.asarray(deviation, dtype=np.float64) ** 2)))


def bits_for_distortion(*, distortion: float, n_signals: int, failure: float) -> int:
    """Number of bits that keeps every pairwise Hamming distance of n signals near its expectation.

    With probability at least ``1 - failure``, all ``n (n - 1) / 2`` fractions of differing bits lie within
    ``distortion`` of their means. This is the paper's ``m = O(distortion**-2 log n)`` with its constants.

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
        return np.asarray(betainc(count, n_bits - count + 1, p))

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
