"""Evidence: likelihood ratios of scores, from known matches and known impostors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit, ndtri

from .._arrays import Float64

ENFSI = (
    (2.0, "no support either way"),
    (10.0, "weak support"),
    (100.0, "moderate support"),
    (1_000.0, "moderately strong support"),
    (10_000.0, "strong support"),
    (1_000_000.0, "very strong support"),
)
"""Upper ends of likelihood ratios, and their words (ENFSI guideline for evaluative reporting, 2015)."""


@dataclass(frozen=True)
class LikelihoodRatio:
    """Logarithms (base 10) of likelihood ratios, with the ends of their intervals."""

    log10: Float64
    low: Float64
    high: Float64

    @property
    def words(self) -> list[str]:
        """Verbal scale of each ratio, in order."""
        return [_words(one) for one in self.log10.ravel().tolist()]


def fit_likelihood_ratio(
    scores: Float64, matches: Float64, impostors: Float64, *, confidence: float = 0.95
) -> LikelihoodRatio:
    """Likelihood ratios of scores (larger is closer) by logistic calibration.

    The log-odds of a match given the score are fitted as a straight line, both kinds weighted alike, so that they are
    the log-likelihood ratio: smooth and monotone. Targets are those of Platt, ``(n + 1) / (n + 2)``, which keeps the
    fit finite where the two kinds do not overlap. Ratios stay between ``1 / (n_matches + 1)`` and ``n_impostors + 1``:
    so many known scores support no stronger evidence. The interval is that of the fitted line.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    values = np.concatenate([matches, impostors])
    center, spread = float(values.mean()), float(values.std()) or 1.0
    x = np.stack([np.ones(len(values)), (values - center) / spread], axis=1)
    n, m = len(matches), len(impostors)
    targets = np.repeat([(n + 1) / (n + 2), 1 / (m + 2)], [n, m])
    weights = np.repeat([0.5 / n, 0.5 / m], [n, m]) * len(values)
    line = np.zeros(2)
    for _ in range(200):
        chances = expit(x @ line)
        gradient = x.T @ (weights * (targets - chances))
        information = x.T @ (x * (weights * chances * (1 - chances))[:, np.newaxis]) + 1e-9 * np.eye(2)
        step = np.linalg.solve(information, gradient)
        line += step * min(1.0, 4 / max(1e-300, float(np.abs(step).max())))
        if np.abs(step).max() < 1e-10:
            break
    line[1] = max(line[1], 0.0)  # a closer score never speaks against a match
    spread_of_weights = x.T @ (x * (weights**2 * chances * (1 - chances))[:, np.newaxis])
    covariance = np.linalg.solve(information, np.linalg.solve(information, spread_of_weights).T)
    at = np.stack([np.ones(scores.size), (scores.ravel() - center) / spread], axis=1)
    middle = at @ line
    reach = float(ndtri((1 + confidence) / 2)) * np.sqrt(np.maximum(0.0, ((at @ covariance) * at).sum(axis=1)))
    least, most = -np.log(n + 1), np.log(m + 1)
    low, mean, high = (
        (np.clip(one, least, most) / np.log(10)).reshape(scores.shape)
        for one in (middle - reach, middle, middle + reach)
    )
    return LikelihoodRatio(np.asarray(mean), np.asarray(low), np.asarray(high))


def _words(log10: float) -> str:
    ratio = 10 ** abs(log10)
    named = next((words for end, words in ENFSI if ratio <= end), "extremely strong support")
    if named == ENFSI[0][1]:
        return named
    return f"{named} for {'the same source' if log10 > 0 else 'different sources'}"


def check_scores(scores: npt.ArrayLike, name: str) -> Float64:
    """At least two finite scores."""
    values = np.asarray(scores, dtype=np.float64).ravel()
    if len(values) < 2 or not np.isfinite(values).all():
        raise ValueError(f"{name} must be at least two finite scores, got {len(values)}")
    return values
