"""Logarithms of tail probabilities, including probabilities that underflow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import betaln, gammaln, xlog1py, xlogy

from .._arrays import Float64

SMALLEST_PROBABILITY = 5e-324
"""Smallest positive float, the lower limit of reported probabilities; their logarithms have no such limit."""

RELIABLE = 1e-280
"""Tails below this are computed in logarithms."""

LN10 = float(np.log(10))


def probabilities(log10: npt.ArrayLike) -> Float64:
    """Return probabilities from their decimal logarithms, at least :data:`SMALLEST_PROBABILITY`.

    >>> probabilities([-2.0, -400.0]).tolist()
    [0.01, 5e-324]
    """
    return np.asarray(np.maximum(np.power(10.0, np.asarray(log10, np.float64)), SMALLEST_PROBABILITY))


def probability_text(log10: float) -> str:
    """Format a probability with two digits, given its decimal logarithm; it may be too small for a float.

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


def log_binomial_cdf(k: Float64, n: int, p: Float64) -> Float64:
    """Return log P(Binomial(n, p) <= k) with shape (n_k, n_p); -inf for k < 0.

    Exact up to rounding: all terms are summed in logarithms.
    """
    last = int(np.clip(np.max(k, initial=0), 0, n))
    counts = np.arange(last + 1.0)[:, np.newaxis]
    choices = gammaln(n + 1) - gammaln(counts + 1) - gammaln(n - counts + 1)
    sums = np.logaddexp.accumulate(choices + xlogy(counts, p) + xlog1py(n - counts, -p), axis=0)
    found = sums[np.clip(k, 0, n).astype(np.int64)]
    return np.where(np.asarray(k)[:, np.newaxis] < 0, -np.inf, np.minimum(found, 0.0))


def log_coordinate_tail(x: Float64, dimensions: float) -> Float64:
    """Return log P(first coordinate of a random unit vector >= x) for x in (0, 1), and -inf for x >= 1.

    The tail is half the regularised incomplete beta function at ``1 - x**2``. Its continued fraction converges quickly
    if the tail is small.
    """
    inside = np.clip(x, 0.0, 1.0)
    z, a, b = (1 - inside) * (1 + inside), (dimensions - 1) / 2, 0.5
    with np.errstate(divide="ignore"):
        front = a * np.log(z) + b * np.log1p(-z) - np.log(a) - betaln(a, b) - np.log(2)
    return np.asarray(front + np.log(_beta_fraction(a, b, z)))


def log_student_tail(t: Float64, degrees: float) -> Float64:
    """Return log P(T >= t) for t > 0 and Student's t distribution."""
    return log_coordinate_tail(t / np.sqrt(degrees + t**2), degrees + 1)


def _beta_fraction(a: float, b: float, z: Float64) -> Float64:
    """Return the continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = np.ones_like(z), 1 / (1 - (a + b) / (a + 1) * z)
    value = d.copy()
    for m in range(1, 200):
        for numerator in (
            m * (b - m) / ((a + 2 * m - 1) * (a + 2 * m)) * z,
            -(a + m) * (a + b + m) / ((a + 2 * m) * (a + 2 * m + 1)) * z,
        ):
            d = 1 / (1 + numerator * d)
            c = 1 + numerator / c
            value = value * c * d
        if np.all(np.abs(c * d - 1) < 1e-15):
            break
    return np.asarray(value)
