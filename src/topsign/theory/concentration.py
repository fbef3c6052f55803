"""How far mismatches stray from their mean, the reference's projections known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._checks import check_choice, check_count
from .order_statistics import Floats


def poisson_binomial_pmf(probabilities: npt.ArrayLike) -> Floats:
    """P(0), ..., P(m) successes among independent trials of different probabilities.

    Exact, by convolution. Given the reference's projections, mismatches follow it with
    :func:`topsign.theory.flip_probability`.
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


def poisson_binomial_tail(mismatches: npt.ArrayLike, probabilities: npt.ArrayLike, *, side: str = "upper") -> Floats:
    """P(at least k mismatches) (side="upper") or P(at most k) (side="lower"). Exact."""
    check_choice(side, "side", ("upper", "lower"))
    pmf = poisson_binomial_pmf(probabilities)
    k = np.asarray(mismatches, dtype=np.float64)
    if side == "upper":
        tails = np.append(pmf[::-1].cumsum()[::-1], 0.0)
        return np.asarray(tails[np.clip(np.ceil(k), 0, len(pmf)).astype(int)])
    tails = np.append(0.0, pmf.cumsum())
    return np.asarray(tails[np.clip(np.floor(k) + 1, 0, len(pmf)).astype(int)])


def chernoff_upper(expected_mismatches: npt.ArrayLike, relative_error: npt.ArrayLike, *, sharp: bool = True) -> Floats:
    """Bound on P(mismatches > (1 + e) B), B the expected count.

    Upper bound for independent bits, all e > 0: ``exp(-B [(1+e) ln(1+e) - e])`` (sharp), or the simpler
    ``exp(-B e**2 / (2+e))``. The paper prints the mean fraction in place of B, which bounds nothing.
    """
    expected, e = _check_deviation(expected_mismatches, relative_error)
    exponent = (1 + e) * np.log1p(e) - e if sharp else e**2 / (2 + e)
    return np.asarray(np.exp(-expected * exponent))


def chernoff_lower(expected_mismatches: npt.ArrayLike, relative_error: npt.ArrayLike) -> Floats:
    """Bound on P(mismatches < (1 - e) B). Upper bound for independent bits, 0 < e <= 1: ``exp(-B e**2 / 2)``."""
    expected, e = _check_deviation(expected_mismatches, relative_error)
    if (e > 1).any():
        raise ValueError("relative_error of the lower tail must lie in (0, 1]")
    return np.asarray(np.exp(-expected * e**2 / 2))


def hoeffding(deviation: npt.ArrayLike, *, n_bits: int) -> Floats:
    """Bound on ``P(|hamming - mean| > deviation)``. Upper bound for independent bits: ``2 exp(-2 m deviation**2)``."""
    n_bits = check_count(n_bits, "n_bits")
    return np.asarray(np.minimum(1.0, 2 * np.exp(-2 * n_bits * np.asarray(deviation, dtype=np.float64) ** 2)))


def _check_deviation(expected: npt.ArrayLike, relative_error: npt.ArrayLike) -> tuple[Floats, Floats]:
    count, e = np.asarray(expected, dtype=np.float64), np.asarray(relative_error, dtype=np.float64)
    if not (count >= 0).all() or not (e > 0).all():
        raise ValueError("expected_mismatches must not be negative, and relative_error must be positive")
    return count, e
