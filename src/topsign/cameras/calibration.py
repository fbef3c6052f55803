"""Calibration of a camera database: null distribution of the scores, and likelihood ratios."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy  # loads its modules on first use

from .._arrays import Float64
from ..errors import StorageError
from ..significance import EmpiricalNull, LikelihoodRatioModel

FORMAT = 1
MIN_IMPOSTORS, MIN_MATCHES = 30, 10
MAX_SCORES = 10_000
"""Greatest number of scores of each kind that are stored; of more, evenly spaced order statistics."""

REJECTED = 0.01
"""The normal law is not used if the p-value of the test of fit is below this."""


@dataclass(frozen=True, eq=False)
class CameraCalibration:
    """Scores of known impostors and known matches, and the distributions fitted to them.

    The null distribution is a normal law with the measured mean and deviation. Its p-values are those of a new score
    (Student's law), so they are larger if there are few impostors. If a test of fit rejects the normal law, p-values
    are ranks among the impostors, which are never below ``1 / (n_impostors + 1)``. At least 30 impostor scores are
    needed, and at least 10 match scores for likelihood ratios.
    """

    impostors: Float64
    matches: Float64
    source: str  # origin of the impostor photographs, in words
    n_photographs: int  # impostor photographs
    n_cameras: int  # cameras that they were compared with
    date: str
    photographs: list[dict[str, Any]] = field(default_factory=list)  # records of photographs given as impostors

    def __post_init__(self) -> None:
        n_impostors = len(self.impostors)
        if n_impostors < MIN_IMPOSTORS:
            raise ValueError(
                f"calibration needs at least {MIN_IMPOSTORS} impostor scores, got {n_impostors}; add photographs of "
                "other cameras as impostors, or enroll more cameras"
            )
        if not float(np.std(self.impostors)) > 0:
            raise ValueError("all impostor scores are equal; use photographs of different scenes as impostors")

    @cached_property
    def fit_p_value(self) -> float:
        """P-value of the Anderson-Darling test that impostor scores follow a normal law."""
        return normality_p_value(self.impostors)

    @property
    def tail_fits(self) -> bool:
        """Whether p-values beyond the sample are taken from the normal law."""
        return self.fit_p_value >= REJECTED

    @cached_property
    def null(self) -> EmpiricalNull:
        """The null distribution of the score of one comparison."""
        return EmpiricalNull(self.impostors, method="normal" if self.tail_fits else "rank")

    @cached_property
    def evidence(self) -> LikelihoodRatioModel | None:
        """Likelihood ratios by score; None if there are too few match scores, or if they are not above impostors'."""
        if len(self.matches) < MIN_MATCHES:
            return None
        try:
            return LikelihoodRatioModel.fit(self.matches, impostors=self.impostors)
        except ValueError:
            return None

    def log10_p_values(self, scores: Float64) -> Float64:
        """Return decimal logarithms of the probability that one comparison with an impostor scores as high."""
        return self.null.log10_pvalue(scores)

    def threshold(self, level: float) -> float:
        """Return the lowest significant score of one comparison at a level; infinite if there is none."""
        return float(self.null.threshold(level))

    def statement(self) -> str:
        """Return a description of the null distribution."""
        n, deviation = len(self.impostors), float(np.std(self.impostors, ddof=1))
        law = (
            f"The null distribution was estimated on {self.date} from {n:,} scores of known impostors ({self.source}; "
            f"{self.n_photographs:,} photographs, {self.n_cameras:,} cameras): mean "
            f"{float(np.mean(self.impostors)):.2g}, standard deviation {deviation:.2g}."
        )
        if self.tail_fits:
            return (
                f"{law} P-values below {1 / (n + 1):.2g} lie beyond this sample and rest on a tail model, a normal law "
                f"with the measured deviation. The Anderson-Darling test does not reject the normal law "
                f"(p = {self.fit_p_value:.2g})."
            )
        return (
            f"{law} The Anderson-Darling test rejects a normal law (p = {self.fit_p_value:.2g}), so no tail model is "
            f"used: p-values are ranks among these impostors and never below {1 / (n + 1):.2g}."
        )

    def to_json(self) -> dict[str, Any]:
        """Return a record of plain values."""
        return {
            "format": FORMAT,
            "impostors": _thinned(self.impostors),
            "matches": _thinned(self.matches),
            "source": self.source,
            "n_photographs": self.n_photographs,
            "n_cameras": self.n_cameras,
            "date": self.date,
            "photographs": self.photographs,
        }

    @classmethod
    def from_json(cls, record: dict[str, Any], path: str | os.PathLike[str]) -> Self:
        """Return the calibration of a record read from ``path``; StorageError if it is damaged."""
        try:
            if record["format"] != FORMAT:
                raise ValueError(f"format {record['format']!r}; this library reads {FORMAT}")
            scores = [np.array(record[name], np.float64) for name in ("impostors", "matches")]
            if any(one.ndim != 1 or len(one) > MAX_SCORES or not np.isfinite(one).all() for one in scores):
                raise ValueError("scores are not lists of finite numbers")
            counts = [int(record[name]) for name in ("n_photographs", "n_cameras")]
            words = [str(record[name]) for name in ("source", "date")]
            photographs = record["photographs"]
            if not isinstance(photographs, list) or not all(isinstance(one, dict) for one in photographs):
                raise ValueError("photographs are not a list of records")
            return cls(scores[0], scores[1], words[0], counts[0], counts[1], words[1], photographs)
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(path, "camera calibration", f"cannot be read: {error}; calibrate again") from None


def normality_p_value(scores: Float64) -> float:
    """Return the p-value of the Anderson-Darling test of a normal law with unknown mean and deviation.

    Approximation of the distribution of the statistic by D'Agostino and Stephens 1986, Table 4.9.
    """
    values = np.sort(np.asarray(scores, np.float64))
    n = len(values)
    standardised = (values - values.mean()) / values.std(ddof=1)
    below, above = scipy.special.log_ndtr(standardised), scipy.special.log_ndtr(-standardised[::-1])
    statistic = -n - float(np.sum((2 * np.arange(1, n + 1) - 1) * (below + above))) / n
    a = statistic * (1 + 0.75 / n + 2.25 / n**2)
    if a >= 0.6:
        return math.exp(min(0.0, 1.2937 - 5.709 * min(a, 30.0) + 0.0186 * min(a, 30.0) ** 2))
    if a >= 0.34:
        return math.exp(0.9177 - 4.279 * a - 1.38 * a**2)
    if a >= 0.2:
        return 1 - math.exp(-8.318 + 42.796 * a - 59.938 * a**2)
    return 1 - math.exp(-13.436 + 101.14 * a - 223.73 * a**2)


def _thinned(scores: Float64) -> list[float]:
    ranked = np.sort(scores)
    if len(ranked) > MAX_SCORES:
        ranked = ranked[np.linspace(0, len(ranked) - 1, MAX_SCORES).round().astype(int)]
    return [float(f"{one:.7g}") for one in ranked]
