"""Share of a white signal's energy that a code of a given rate captures, beside Shannon's limit."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import scipy  # whose modules are loaded when they are first used
from scipy.special import ndtri

from .._arrays import Float64
from .._checks import check_count
from .order_statistics import mean_kept_magnitude

MAX_LEVELS = 3


def rate_distortion_limit(rate: npt.ArrayLike) -> Float64:
    """Largest share of a white normal signal's energy that any code of ``rate`` bits per dimension captures.

    Bound (upper, Shannon's; reached only by codes of many dimensions at once): ``1 - 2**(-2 rate)``.

    >>> rate_distortion_limit([0.1, 0.5, 1.0]).round(4)
    array([0.1294, 0.5   , 0.75  ])
    """
    return np.asarray(1 - 4.0 ** -_check_rate(rate))


def captured_energy(
    rate: npt.ArrayLike | None = None, *, n_bits: int | None = None, n_pool: int | None = None, levels: int = 1
) -> Float64:
    """Share of a white normal signal's energy that its adaptive code captures: one minus the least squared error.

    Give ``n_bits`` and ``n_pool``, or a ``rate`` in bits per dimension for the limit of long signals. ``levels`` is the
    number of magnitudes that a kept projection can be rounded to, each with a sign: 1 is the code of this library,
    more are measured against it. The detection index d' of a real-valued query against a code over an orthonormal
    pool of n_features rows is the square root of the share times that of the uncompressed signals.

    Standing: exact. With sizes, ``m c**2 / M``, c the mean kept magnitude. With a rate, the share ``p`` of rows kept
    satisfies ``h(p) + p = rate`` (h the binary entropy, the limit of ``log2 C(M, m) / M``) and the energy is
    ``p (phi(t) / Q(t))**2`` with ``p = 2 Q(t)``; more levels have their thresholds optimised numerically.

    One level is the best entropy-coded scalar quantiser of a normal value at low rates: more levels gain less than 1e-6
    up to 0.8 bits per dimension, and 4e-5 at 1. It is a permutation code of Berger's second variant.

    >>> captured_energy([0.1, 0.5, 1.0]).round(4)
    array([0.0915, 0.3827, 0.6517])
    >>> round(float(captured_energy(n_bits=512, n_pool=8192)), 4)
    0.3169
    """
    levels = check_count(levels, "levels", maximum=MAX_LEVELS)
    if (rate is None) == (n_bits is None) or (n_bits is None) != (n_pool is None):
        raise ValueError("give either a rate, or n_bits and n_pool")
    if rate is None:
        if levels > 1:
            raise ValueError(f"a code of n_bits out of n_pool has one level, got levels={levels}; give a rate instead")
        assert n_bits is not None
        assert n_pool is not None
        return np.asarray(n_bits * mean_kept_magnitude(n_bits=n_bits, n_pool=n_pool) ** 2 / n_pool)
    rates = _check_rate(rate)
    largest = _rate(_peak(), np.zeros(0))
    if rates.size and rates.max() > largest:
        raise ValueError(
            f"rate must be at most {largest:.3f} bits per dimension, beyond which more rows of one level "
            f"capture less, got {rates.max():g}; at such rates plain signs or finer quantisers are the better choice"
        )
    return np.array([_best_energy(one, levels) for one in rates.ravel().tolist()]).reshape(rates.shape)


def _best_energy(rate: float, levels: int) -> float:
    """The largest energy over the splits of the kept rows into levels."""
    if rate == 0:
        return 0.0
    alone = _energy_of_split(rate, np.zeros(0))
    if levels == 1:
        return alone

    def lost(logits: Float64) -> float:
        return -_energy_of_split(rate, 1 / (1 + np.exp(-logits)))

    starts = [np.full(levels - 1, start) for start in (-6.0, -1.0)]
    options = {"xatol": 1e-6, "fatol": 1e-13, "maxiter": 400}
    found = [
        -float(scipy.optimize.minimize(lost, start, method="Nelder-Mead", options=options).fun) for start in starts
    ]
    return max(alone, *found)


def _energy_of_split(rate: float, split: Float64) -> float:
    """Energy at a rate when ``split[i]`` of the rows at level i or above lie at level i + 1 or above."""

    def excess(kept: float) -> float:
        return _rate(kept, split) - rate

    peak = _peak()
    if split.size:
        peak = float(scipy.optimize.minimize_scalar(lambda p: -excess(p), bounds=(0.3, 1), method="bounded").x)
    if excess(peak) < 0:
        return 0.0  # this split cannot spend so many bits
    kept = float(scipy.optimize.brentq(excess, 1e-300, peak, xtol=1e-300, rtol=1e-14))
    return _energy(kept, split)


def _cells(kept: float, split: Float64) -> tuple[Float64, Float64]:
    """Probabilities of the levels' cells (both signs), and the tail probability at which each begins."""
    tails = kept * np.append(1.0, np.cumprod(split))
    return tails - np.append(tails[1:], 0.0), tails


def _rate(kept: float, split: Float64) -> float:
    """Entropy in bits of one quantised value: which cell, and a sign where it is not zero."""
    shares = np.append(_cells(kept, split)[0], 1 - kept)
    shares = shares[shares > 0]
    return float(kept - shares @ np.log2(shares))


def _energy(kept: float, split: Float64) -> float:
    """Sum over cells of probability times squared mean; a cell of |x| in [s, t) has mean 2 (phi(s) - phi(t)) / p."""
    shares, tails = _cells(kept, split)
    density = np.exp(-(ndtri(tails / 2) ** 2) / 2) / np.sqrt(2 * np.pi)
    sums = 2 * (density - np.append(density[1:], 0.0))
    used = shares > 0
    return float((sums[used] ** 2 / shares[used]).sum())


def _check_rate(rate: npt.ArrayLike) -> Float64:
    rates = np.asarray(rate, dtype=np.float64)
    if not (np.isfinite(rates) & (rates >= 0)).all():
        raise ValueError(f"rate must be finite and not negative, in bits per dimension, got {rate!r}")
    return rates


@cache
def _peak() -> float:
    """Share of rows kept at which one level captures most, 0.54: keeping more costs energy."""
    alone = np.zeros(0)
    return float(scipy.optimize.minimize_scalar(lambda p: -_energy(p, alone), bounds=(0.3, 0.9), method="bounded").x)
