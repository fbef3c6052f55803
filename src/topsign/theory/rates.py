"""Sizes of codes, the energy of a white signal that they capture, and Shannon's limit."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import scipy  # submodules are imported at their first use

from .._arrays import Float64
from .._checks import check_count, check_pool
from .order_statistics import mean_kept_magnitude


def storage_bits(n_bits: int, n_pool: int) -> float:
    """Information content of one adaptive code in bits: ``n_bits`` signs and their locations in ``n_pool``.

    Exact: ``n_bits + log2(C(n_pool, n_bits))``, Section III-A of the paper.

    >>> round(storage_bits(512, 8192), 1)
    3269.3
    """
    n_bits, n_pool = check_pool(n_bits, n_pool)
    log_choices = (
        scipy.special.gammaln(n_pool + 1)
        - scipy.special.gammaln(n_bits + 1)
        - scipy.special.gammaln(n_pool - n_bits + 1)
    )
    return float(n_bits + log_choices / np.log(2))


def compact_bytes(n_bits: int, n_pool: int) -> int:
    """Bytes of one code in the compact layout, without its norm and scale.

    Exact: the signs, the low bits of each location, and the high bits in unary (Elias-Fano) or as a bitmap of the
    pool. Each part is padded to whole bytes, and the number of low bits minimises the total.

    >>> compact_bytes(512, 8192)
    448
    """

    def bytes_with(low_bits: int) -> int:
        high_bits = n_pool if low_bits == 0 else n_bits + ((n_pool - 1) >> low_bits)
        return -(-n_bits // 8) - (-n_bits * low_bits // 8) - (-high_bits // 8)

    return min(map(bytes_with, range(n_pool.bit_length())))


MAX_LEVELS = 3


def rate_distortion_limit(rate: npt.ArrayLike) -> Float64:
    """Largest fraction of a white normal signal's energy that any code with ``rate`` bits per dimension can capture.

    Bound (upper, by Shannon): ``1 - 2**(-2 rate)``. Only codes that quantise many dimensions jointly approach it.

    >>> rate_distortion_limit([0.1, 0.5, 1.0]).round(4)
    array([0.1294, 0.5   , 0.75  ])
    """
    return np.asarray(1 - 4.0 ** -_check_rate(rate))


def captured_energy(
    rate: npt.ArrayLike | None = None, *, n_bits: int | None = None, n_pool: int | None = None, levels: int = 1
) -> Float64:
    """Fraction of a white normal signal's energy that its adaptive code captures: one minus the minimum squared error.

    Give ``n_bits`` and ``n_pool``, or a ``rate`` in bits per dimension for the limit of long signals. ``levels`` is the
    number of magnitudes, each with a sign, to which a kept projection can be rounded. The codes of this library have
    one level; more levels serve for comparison. For an orthonormal pool of n_features rows, the detectability index d'
    of a real-valued query against a code is the square root of this fraction times that of the uncompressed signals.

    Standing: exact. With ``n_bits`` and ``n_pool`` it is ``m c**2 / M``, where c is the mean kept magnitude. With a
    rate, the fraction ``p`` of kept rows satisfies ``h(p) + p = rate`` (h is the binary entropy, the limit of ``log2
    C(M, m) / M``), and the energy is ``p (phi(t) / Q(t))**2`` with ``p = 2 Q(t)``. With more levels, thresholds are
    optimised numerically.

    At low rates one level is the best entropy-coded scalar quantiser of a normal variable: more levels gain less than
    1e-6 up to 0.8 bits per dimension, and 4e-5 at 1. It is a permutation code of Berger's second variant.

    >>> captured_energy([0.1, 0.5, 1.0]).round(4)
    array([0.0915, 0.3827, 0.6517])
    >>> round(float(captured_energy(n_bits=512, n_pool=8192)), 4)
    0.3169
    """
    levels = check_count(levels, "levels", maximum=MAX_LEVELS)
    if (rate is None) == (n_bits is None) or (n_bits is None) != (n_pool is None):
        raise ValueError(
            f"give either a rate, or n_bits and n_pool; got rate={rate!r}, n_bits={n_bits} and n_pool={n_pool}"
        )
    if rate is None:
        if levels > 1:
            raise ValueError(
                f"codes of n_bits out of n_pool have one level, got levels={levels}; for more levels give a rate"
            )
        assert n_bits is not None
        assert n_pool is not None
        return np.asarray(n_bits * mean_kept_magnitude(n_bits=n_bits, n_pool=n_pool) ** 2 / n_pool)
    rates = _check_rate(rate)
    largest = _rate(_peak(), np.zeros(0))
    if rates.size and rates.max() > largest:
        raise ValueError(
            f"rate must be at most {largest:.3f} bits per dimension, got {rates.max():g}; at higher rates more rows of "
            "one level capture less energy, and plain signs or finer quantisers are better"
        )
    return np.array([_best_energy(one, levels) for one in rates.ravel().tolist()]).reshape(rates.shape)


def _best_energy(rate: float, levels: int) -> float:
    """Return the largest energy over all splits of the kept rows into levels."""
    if rate == 0:
        return 0.0
    one_level = _energy_of_split(rate, np.zeros(0))
    if levels == 1:
        return one_level

    def lost(logits: Float64) -> float:
        return -_energy_of_split(rate, 1 / (1 + np.exp(-logits)))

    starts = [np.full(levels - 1, start) for start in (-6.0, -1.0)]
    options = {"xatol": 1e-6, "fatol": 1e-13, "maxiter": 400}
    found = [
        -float(scipy.optimize.minimize(lost, start, method="Nelder-Mead", options=options).fun) for start in starts
    ]
    return max(one_level, *found)


def _energy_of_split(rate: float, split: Float64) -> float:
    """Return the energy at a rate if the fraction ``split[i]`` of the rows at level i or above lies above level i."""

    def excess(kept: float) -> float:
        return _rate(kept, split) - rate

    peak = _peak()
    if split.size:
        peak = float(scipy.optimize.minimize_scalar(lambda p: -excess(p), bounds=(0.3, 1), method="bounded").x)
    if excess(peak) < 0:
        return 0.0  # no fraction of kept rows reaches this rate with this split
    kept = float(scipy.optimize.brentq(excess, 1e-300, peak, xtol=1e-300, rtol=1e-14))
    return _energy(kept, split)


def _cells(kept: float, split: Float64) -> tuple[Float64, Float64]:
    """Return the probability of each level's cell (both signs), and the tail probability at its lower edge."""
    tails = kept * np.append(1.0, np.cumprod(split))
    return tails - np.append(tails[1:], 0.0), tails


def _rate(kept: float, split: Float64) -> float:
    """Return the entropy in bits of one quantised value: its cell, and its sign if it is not zero."""
    shares = np.append(_cells(kept, split)[0], 1 - kept)
    shares = shares[shares > 0]
    return float(kept - shares @ np.log2(shares))


def _energy(kept: float, split: Float64) -> float:
    """Return the sum over cells of probability p times squared mean; that of [s, t) is 2 (phi(s) - phi(t)) / p."""
    shares, tails = _cells(kept, split)
    density = np.exp(-(scipy.special.ndtri(tails / 2) ** 2) / 2) / np.sqrt(2 * np.pi)
    sums = 2 * (density - np.append(density[1:], 0.0))
    used = shares > 0
    return float((sums[used] ** 2 / shares[used]).sum())


def _check_rate(rate: npt.ArrayLike) -> Float64:
    rates = np.asarray(rate, dtype=np.float64)
    if not (np.isfinite(rates) & (rates >= 0)).all():
        raise ValueError(f"rate must be finite and not negative (in bits per dimension), got {rate!r}")
    return rates


@cache
def _peak() -> float:
    """Return the fraction of kept rows at which one level captures the most energy, 0.54."""
    split = np.zeros(0)
    return float(scipy.optimize.minimize_scalar(lambda p: -_energy(p, split), bounds=(0.3, 0.9), method="bounded").x)


def water_filling(variances: npt.ArrayLike, n_bits: float) -> tuple[float, Float64]:
    """Return the water level and the bits per coordinate that minimise the distortion with ``n_bits`` bits in total.

    Exact for independent normal coordinates with these ``variances``: coordinates with variance below the level get no
    bits, the others ``log2(variance / level) / 2``.

    >>> level, rates = water_filling([4.0, 1.0, 0.1], 1)
    >>> level, rates
    (1.0, array([1., 0., 0.]))
    """
    spread = np.asarray(variances, dtype=np.float64)
    order = np.sort(spread[spread > 0])[::-1]
    if not order.size:
        raise ValueError("at least one variance must be positive, but all are zero; the signals do not vary")
    # If the m largest are coded, log2(level) is their mean log2 minus 2 n_bits / m. Take the largest m whose smallest
    # variance is above its level.
    counts = np.arange(1, len(order) + 1)
    levels = np.cumsum(np.log2(order)) / counts - 2 * n_bits / counts
    n_coded = int(np.flatnonzero(np.log2(order) >= levels)[-1]) + 1
    level = float(2.0 ** levels[n_coded - 1])
    with np.errstate(divide="ignore"):
        rates = np.maximum(0.0, 0.5 * np.log2(spread / level))
    return level, rates


RATES = (3 / 64, 13 / 128, 0.25, 51 / 128, 0.5, 1.0, 2.0, 4.0)
SHARES = (0.0505, 0.1097, 0.2568, 0.3817, 0.4552, 0.7080, 0.9182, 0.9923)
"""Fraction of energy captured from white signals of 1,024 features at RATES; standard errors are below 0.0005."""


def trellis_energy(rate: npt.ArrayLike) -> Float64:
    """Return the fraction of a white signal's energy that its trellis code captures at ``rate`` bits per feature.

    Approximation: measured at eight rates from 0.05 to 4 with standard errors below 0.0005. The ratio to
    :func:`rate_distortion_limit` is interpolated between these rates, and constant outside them.

    >>> float(trellis_energy(0.5).round(3))
    0.455
    """
    rates = np.asarray(rate, dtype=np.float64)
    if not (np.isfinite(rates) & (rates > 0)).all():
        raise ValueError(f"rate must be positive and finite, got {rate!r}")
    ratios = scipy.interpolate.PchipInterpolator(np.log(RATES), np.array(SHARES) / rate_distortion_limit(RATES))
    inside = np.clip(np.log(rates), np.log(RATES[0]), np.log(RATES[-1]))
    return np.asarray(ratios(inside) * rate_distortion_limit(rates))
