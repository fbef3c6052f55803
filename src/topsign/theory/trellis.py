"""Trellis codes: captured energy, detection rate, and the number of bytes that a detection target needs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import scipy  # submodules are imported at their first use
from scipy.special import ndtr

from .._arrays import Float64
from .._checks import check_count, check_false_alarm, check_real
from ..errors import TargetError
from .rates import rate_distortion_limit

SHARES = (0.0491, 0.1083, 0.2556, 0.3806, 0.4546, 0.7079, 0.9185, 0.9931)
"""Fraction of energy captured from white signals of 1,024 features at RATES; standard errors are below 0.001."""

FACTOR_BYTES = 2
"""Bytes at the end of each code, which normalise its scores."""

RATES = (3 / 64, 13 / 128, 0.25, 51 / 128, 0.5, 1.0, 2.0, 4.0)


def trellis_energy(rate: npt.ArrayLike) -> Float64:
    """Return the fraction of a white signal's energy that its trellis code captures at ``rate`` bits per feature.

    Approximation: measured at eight rates from 0.05 to 4 with standard errors below 0.001. The ratio to
    :func:`rate_distortion_limit` is interpolated between these rates, and constant outside them.

    >>> float(trellis_energy(0.5).round(2))
    0.45
    """
    rates = np.asarray(rate, dtype=np.float64)
    if not (np.isfinite(rates) & (rates > 0)).all():
        raise ValueError(f"rate must be positive and finite, got {rate!r}")
    ratios = scipy.interpolate.PchipInterpolator(np.log(RATES), np.array(SHARES) / rate_distortion_limit(RATES))
    inside = np.clip(np.log(rates), np.log(RATES[0]), np.log(RATES[-1]))
    return np.asarray(ratios(inside) * rate_distortion_limit(rates))


def trellis_detection(
    n_bytes: npt.ArrayLike, *, correlation: float, false_alarm: npt.ArrayLike, n_features: int
) -> Float64:
    """Return the detection rate of trellis codes at a false-alarm rate per comparison; arguments broadcast.

    Approximation: scores of impostors have the exact distribution of a sample correlation. Scores of matches have
    Fisher's normal approximation for a population correlation of ``correlation * sqrt(trellis_energy)``.

    >>> float(trellis_detection(409, correlation=0.0735, false_alarm=1e-3, n_features=8192).round(2))
    0.85
    """
    energy = trellis_energy(8 * np.asarray(n_bytes) / n_features)
    means = np.arctanh(np.minimum(correlation * np.sqrt(energy), 1 - 1e-12))
    thresholds = np.arctanh(_threshold(false_alarm, n_features))
    return np.asarray(ndtr((means - thresholds) * np.sqrt(n_features - 2)))


def _threshold(false_alarm: npt.ArrayLike, n_features: int) -> Float64:
    """Return the sample correlation that an impostor exceeds with this probability."""
    deviates = scipy.stats.t.isf(false_alarm, n_features - 1)
    return np.asarray(deviates / np.sqrt(deviates**2 + n_features - 1))


@dataclass(frozen=True)
class TrellisPlan:
    """Parameters of a trellis code for a detection target, with basis="hadamard" and center=False.

    ``plan(family="trellis")`` returns it.
    """

    family: ClassVar[str] = "trellis"

    n_bytes: int
    threshold: float  # accept cosines of at least this value: within(threshold=)
    detection: float
    false_alarm: float  # of one search over all entries
    false_alarm_per_entry: float
    correlation: float
    n_features: int
    n_entries: int

    @property
    def bytes_per_entry(self) -> int:
        """Bytes per code, with the two bytes of its factor."""
        return self.n_bytes + FACTOR_BYTES

    def as_dict(self) -> dict[str, object]:
        """Return all fields as a dict."""
        return asdict(self)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions behind the numbers."""
        return (
            f"a match is its reference plus independent normal noise, with a correlation of {self.correlation:g}",
            "impostors are independent of the reference; signals are isotropic because the basis is random",
            "detection is an approximation from measured captured energy and Fisher's approximation for matches",
            f"entries per search: {self.n_entries:,}; the false-alarm rate is per search",
        )

    def lines(self) -> list[tuple[str, str]]:
        """Return names and formatted values for a table."""
        return [
            ("n_bytes", f"{self.n_bytes:,} (basis hadamard, center False)"),
            ("accept when", f"cosine with the reconstruction at least {self.threshold:.5f}"),
            ("detection", f"{self.detection:.6g}"),
            ("false alarm", f"{self.false_alarm:.3g} per search, {self.false_alarm_per_entry:.3g} per entry"),
            ("bytes per entry", f"{self.bytes_per_entry:,} (with the factor of the scores)"),
            ("bytes, all entries", f"{self.bytes_per_entry * self.n_entries:,}"),
        ]


def plan_trellis(
    *,
    correlation: float,
    false_alarm: float,
    n_features: int,
    detection: float | None,
    n_entries: int = 1,
    max_bytes: int | None = None,
) -> TrellisPlan:
    """Return the smallest trellis code that reaches a detection rate, or the best code within ``max_bytes``.

    Codes of up to 4 bits per feature are considered. Approximation: see :func:`trellis_detection`.
    """
    n_features, n_entries = check_count(n_features, "n_features", minimum=8), check_count(n_entries, "n_entries")
    wanted = 2.0 if detection is None else check_real(detection, "detection", minimum=0, maximum=1)
    rho = check_real(correlation, "correlation", minimum=0, maximum=1)
    level = float(-np.expm1(np.log1p(-check_false_alarm(false_alarm)) / n_entries))
    most = n_features // 2
    if max_bytes is not None:
        most = min(most, check_count(max_bytes, "max_bytes") - FACTOR_BYTES)
    if most < 1:
        raise TargetError(f"no code of {1 + FACTOR_BYTES} bytes or more fits max_bytes={max_bytes}; allow more bytes")
    sizes = np.arange(1, most + 1)
    reached = trellis_detection(sizes, correlation=rho, false_alarm=level, n_features=n_features)
    enough = np.flatnonzero(reached >= wanted)
    if not enough.size and detection is not None:
        raise TargetError(
            f"detection {detection:g} cannot be reached: {most} bytes, the most considered, reach {reached[-1]:.4g}; "
            "lower detection, raise false_alarm, or allow more bytes"
        )
    first = enough[0] if enough.size else len(sizes) - 1
    return TrellisPlan(
        n_bytes=int(sizes[first]),
        threshold=float(_threshold(level, n_features)),
        detection=float(reached[first]),
        false_alarm=false_alarm,
        false_alarm_per_entry=level,
        correlation=rho,
        n_features=n_features,
        n_entries=n_entries,
    )
