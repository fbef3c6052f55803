"""Figure 3 of the paper: ROC curves of detectors of weak matches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import theory
from .._arrays import Float64
from .._checks import check_count
from ..families import AdaptiveCodes, AdaptiveRecipe, GroupedCodes, GroupedRecipe
from ..projections import Projection, make_projection
from ..theory import RocCurve
from . import printed
from .measuring import Advance, check_draws, signs_of, unwatched

Scores = npt.NDArray[np.float32]

N_FEATURES = N_POOL = 8192
N_BITS = 512
NOISE = 0.15
STEP = printed.ROC_STEP
CORRELATION = float(1 / np.hypot(1, NOISE * np.sqrt(N_FEATURES)))
"""Expected correlation of a unit-norm reference with its noisy copy, 0.0735."""

STORAGE = int(theory.storage_bits(n_bits=N_BITS, n_pool=N_POOL))
AUTHORS_STORAGE = printed.DEMO_STORAGE_BITS
GROUPED_BYTES = STORAGE // 8
"""Bytes of grouped codes that take no more storage than the adaptive codes."""

LEVELS = np.array([0.001, 0.003, 0.01, 0.03, 0.1, 0.3])
"""False-alarm rates at which the detection rate is measured with its standard error."""

SHOWN = np.unique(np.concatenate([np.geomspace(1e-4, 1, 81), np.linspace(0.01, 1, 100)]))
"""False-alarm rates at which curves are drawn."""


@dataclass(frozen=True)
class Detector:
    """Name, stored bits and exact theory of one detector."""

    name: str
    stored_bits: int  # per entry
    law: dict[str, Any]
    ours: bool = False  # beyond the paper


def _sign_code(n_bits: int) -> dict[str, Any]:
    return {"n_bits": n_bits, "n_pool": n_bits}


_ADAPTIVE = {"n_bits": N_BITS, "n_pool": N_POOL}
_GROUPED = {"n_bytes": GROUPED_BYTES, "projection": "hadamard"}
DETECTORS = (
    Detector("uncompressed", 32 * N_FEATURES, {"scoring": "uncompressed"}),
    Detector("adaptive, entries adapt", STORAGE, {"scoring": "hamming", **_ADAPTIVE}),
    Detector("adaptive, queries adapt", N_POOL, {"scoring": "hamming", **_ADAPTIVE}),
    Detector(f"sign, {STORAGE} (equal storage)", STORAGE, {"scoring": "hamming", **_sign_code(STORAGE)}),
    Detector(
        f"sign, {AUTHORS_STORAGE} (authors' demo)",
        AUTHORS_STORAGE,
        {"scoring": "hamming", **_sign_code(AUTHORS_STORAGE)},
    ),
    Detector(f"universal, {STORAGE} (equal storage)", STORAGE, {"scoring": "universal", "n_bits": STORAGE}),
    Detector(f"sign, {N_BITS} (equal computation)", N_BITS, {"scoring": "hamming", **_sign_code(N_BITS)}),
    Detector(f"universal, {N_BITS} (equal computation)", N_BITS, {"scoring": "universal", "n_bits": N_BITS}),
    Detector("adaptive, real query", STORAGE, {"scoring": "asymmetric", **_ADAPTIVE}, True),
    Detector("adaptive, Hadamard", STORAGE, {"scoring": "hamming", "projection": "hadamard", **_ADAPTIVE}, True),
    Detector(
        f"sign, {STORAGE}, Hadamard, real query",
        STORAGE,
        {"scoring": "asymmetric", "projection": "hadamard", **_sign_code(STORAGE)},
        True,
    ),
    Detector(
        "adaptive, Hadamard, real query",
        STORAGE,
        {"scoring": "asymmetric", "projection": "hadamard", **_ADAPTIVE},
        True,
    ),
    Detector("grouped, Hadamard", 8 * GROUPED_BYTES, {"scoring": "hamming", **_GROUPED}, True),
    Detector("grouped, Hadamard, real query", 8 * GROUPED_BYTES, {"scoring": "asymmetric", **_GROUPED}, True),
)


@dataclass(frozen=True)
class Detection:
    """Results of one detector: exact and measured curve, area and detection rates with standard errors."""

    name: str
    stored_bits: int
    ours: bool
    exact_pd: Float64  # at the false alarms of the whole
    measured_pd: Float64
    exact_auc: float
    auc: float
    auc_error: float
    exact_at_levels: Float64
    at_levels: Float64
    errors_at_levels: Float64

    @property
    def deviations(self) -> Float64:
        """Deviations from exact theory in standard errors: of the area, then of the detection rate at each level."""
        measured, exact = np.append(self.auc, self.at_levels), np.append(self.exact_auc, self.exact_at_levels)
        return np.asarray((measured - exact) / np.append(self.auc_error, self.errors_at_levels))

    def interval_at_levels(self, n_matches: int) -> tuple[Float64, Float64]:
        """Return Wilson's 95% intervals for the detection rates, with the effective number of draws."""
        with np.errstate(divide="ignore", invalid="ignore"):
            worth = self.at_levels * (1 - self.at_levels) / self.errors_at_levels**2
        worth = np.where(worth > 0, worth, n_matches)  # zero variance: use the number of draws
        z = 1.959964
        middle = (self.at_levels + z**2 / (2 * worth)) / (1 + z**2 / worth)
        half = z / (1 + z**2 / worth) * np.sqrt(self.at_levels * (1 - self.at_levels) / worth + (z / worth) ** 2 / 4)
        return np.minimum(middle - half, self.at_levels), np.maximum(middle + half, self.at_levels)  # rounding near one


@dataclass(frozen=True)
class Roc:
    """Results of all detectors on the same signals."""

    n_features: int
    n_bits: int
    n_pool: int
    noise: float
    correlation: float
    n_matrices: int
    n_references: int  # per matrix; each has one match, and is an impostor of all others
    pfa: Float64
    levels: Float64
    detections: list[Detection]

    @property
    def n_matches(self) -> int:
        return self.n_matrices * self.n_references

    def of(self, name: str) -> Detection:
        """Return the results of the detector with this name."""
        return next(one for one in self.detections if one.name == name)


def roc(*, n_matrices: int = 8, n_references: int = 1000, advance: Advance = unwatched) -> Roc:
    """Score every query against every reference with the same matrix, for several matrices.

    Query i is reference i plus noise, so each matrix gives one match per reference; all other pairs are impostors.
    """
    n_matrices, n_references = check_count(n_matrices, "n_matrices"), check_draws(n_references, "n_references")
    scores = {one.name: np.empty((n_matrices, n_references, n_references), np.float32) for one in DETECTORS}
    steps, done = n_matrices * 3 + len(DETECTORS), 0
    for matrix in range(n_matrices):
        rng = np.random.default_rng([3, matrix])
        references = _units(rng.standard_normal((n_references, N_FEATURES), dtype=np.float32))
        noise = rng.standard_normal((n_references, N_FEATURES), dtype=np.float32)
        queries = _units(references + np.float32(NOISE) * noise)
        for name, found in _all_scores(references, queries, seed=matrix):
            scores[name][matrix] = found
        done += 3
        advance(done / steps)
    detections = []
    for one in DETECTORS:
        law: dict[str, Any] = {"projection": "gaussian", "step": STEP} | one.law
        exact = theory.roc(correlation=CORRELATION, n_features=N_FEATURES, **law)
        detections.append(_measured(one, scores.pop(one.name), exact))
        done += 1
        advance(done / steps)
    return Roc(
        n_features=N_FEATURES,
        n_bits=N_BITS,
        n_pool=N_POOL,
        noise=NOISE,
        correlation=CORRELATION,
        n_matrices=n_matrices,
        n_references=n_references,
        pfa=SHOWN,
        levels=LEVELS,
        detections=detections,
    )


def _units(signals: Scores) -> Scores:
    return np.asarray(signals / np.linalg.norm(signals, axis=1, keepdims=True))


def _all_scores(references: Scores, queries: Scores, *, seed: int) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Return scores (n_queries, n_references) by detector; larger is closer, and entries are the references.

    Plain signs use the first rows of the same pool, as in the authors' demonstration.
    """
    names = [one.name for one in DETECTORS]
    yield names[0], queries @ references.T
    pool, entries, projected = _projected("gaussian", references, queries, seed)
    codes = _codes(entries, pool)
    yield names[1], -codes.mismatches(projected)
    yield names[2], -_codes(projected, pool).mismatches(entries).T
    for name, n_bits in ((names[3], STORAGE), (names[4], AUTHORS_STORAGE), (names[6], N_BITS)):
        yield name, signs_of(projected[:, :n_bits] >= 0) @ signs_of(entries[:, :n_bits] >= 0).T
    for name, n_bits in ((names[5], STORAGE), (names[7], N_BITS)):
        odd, odd_entries = (np.floor(part[:, :n_bits] / STEP) % 2 == 1 for part in (projected, entries))
        yield name, signs_of(odd) @ signs_of(odd_entries).T
    norms = np.ones(len(queries))
    yield names[8], codes.scores(projected, query_norms=norms)
    pool, entries, projected = _projected("hadamard", references, queries, seed)
    codes = _codes(entries, pool)
    yield names[9], -codes.mismatches(projected)
    yield names[10], projected[:, :STORAGE] @ signs_of(entries[:, :STORAGE] >= 0).T
    yield names[11], codes.scores(projected, query_norms=norms)
    recipe = GroupedRecipe.make(n_features=N_FEATURES, n_bytes=GROUPED_BYTES, random_state=seed)
    entries, projected = recipe.projection.apply(references), recipe.projection.apply(queries)
    grouped = GroupedCodes(recipe.packed(entries)[0], recipe=recipe)
    yield names[12], -grouped.mismatches(projected)
    yield names[13], grouped.scores(projected, query_norms=norms)


def _projected(kind: str, references: Scores, queries: Scores, seed: int) -> tuple[Projection, Scores, Scores]:
    pool = make_projection(kind, n_features=N_FEATURES, n_pool=N_POOL, random_state=seed)
    return pool, pool.apply(references), pool.apply(queries)


def _codes(projected: Scores, pool: Projection) -> AdaptiveCodes:
    """Return codes of unit signals from their projections, which avoids projecting them again."""
    recipe = AdaptiveRecipe.make(n_features=N_FEATURES, n_bits=N_BITS, n_pool=N_POOL, basis=pool)
    return AdaptiveCodes(recipe.packed(projected)[0], recipe=recipe)


def _measured(detector: Detector, scores: Scores, exact: RocCurve) -> Detection:
    """Return areas and detection rates, with standard errors of means over independent draws (Hoeffding projection).

    A draw is a reference with its query. It contributes one match, and one row and one column of impostors. Its term
    in the area is the fraction of impostors below its match, plus the mean fraction of matches above its impostors.
    Its term in a detection rate is 1 if its match is detected, minus the slope of the curve times its false alarms;
    the latter is the error of the threshold. If nearly all matches are detected, the sample variance is too small, so
    the difference to the exact variance is added.
    """
    n_references = scores.shape[1]
    own = np.eye(n_references, dtype=bool)
    matches = scores[:, own]
    ranked, ranked_matches = np.sort(scores[:, ~own], axis=None), np.sort(matches, axis=None)

    def by_draw(values: Any) -> Float64:
        """Return the mean over a draw's row plus the mean over its column, without its match."""
        values = np.where(own, 0.0, values)
        return np.asarray((values.sum(axis=1) + values.sum(axis=2)) / (n_references - 1))

    below = _shares_below(ranked, matches)
    auc = float(below.mean())
    above = by_draw(1 - _shares_below(ranked_matches, scores))
    false_alarm = (exact.pfa[1:] + exact.pfa[:-1]) / 2
    exact_variance = float(false_alarm**2 @ np.diff(exact.pd)) - exact.missed_area**2
    errors = []
    at_levels = _detections(ranked, ranked_matches, LEVELS)
    exact_at_levels = exact.detection_at(LEVELS)
    for level, expected in zip(LEVELS, exact_at_levels, strict=True):
        threshold, coin = _test(ranked, level)
        slope = float(np.diff(exact.detection_at([0.9 * level, 1.1 * level]))[0] / (0.2 * level))
        detected = (matches > threshold) + coin * (matches == threshold)
        false_alarms = by_draw((scores > threshold) + coin * (scores == threshold))
        errors.append(_error(detected, -slope * false_alarms, expected * (1 - expected)))
    return Detection(
        name=detector.name,
        stored_bits=detector.stored_bits,
        ours=detector.ours,
        exact_pd=np.interp(SHOWN, exact.pfa, exact.pd),
        measured_pd=_detections(ranked, ranked_matches, SHOWN),
        exact_auc=exact.auc,
        auc=auc,
        auc_error=_error(below, above, exact_variance),
        exact_at_levels=exact_at_levels,
        at_levels=at_levels,
        errors_at_levels=np.array(errors),
    )


def _error(own: Float64, shared: Float64, exact_variance: float) -> float:
    """Return the standard error of a mean over draws with a term of the match, whose exact variance is known."""
    lacking = max(0.0, exact_variance - own.var(ddof=1))
    return float(np.sqrt(((own + shared).var(ddof=1) + lacking) / own.size))


def _shares_below(ranked: Scores, scores: Scores) -> Float64:
    """Return the fraction of the ascending values that each score exceeds, with ties counted as one half."""
    places = np.searchsorted(ranked, scores, "left") + np.searchsorted(ranked, scores, "right")
    return np.asarray(places / (2 * ranked.size))


def _test(ranked: Scores, level: float) -> tuple[np.float32, float]:
    """Return the randomised test of this level: a threshold, and the probability of accepting a score equal to it."""
    wanted = level * ranked.size
    threshold = ranked[ranked.size - min(ranked.size, int(np.ceil(wanted)))]
    first, last = np.searchsorted(ranked, threshold, "left"), np.searchsorted(ranked, threshold, "right")
    return threshold, float((wanted - (ranked.size - last)) / (last - first))


def _detections(ranked: Scores, ranked_matches: Scores, levels: Float64) -> Float64:
    found = []
    for level in levels:
        threshold, coin = _test(ranked, level)
        at_least = ranked_matches.size - np.searchsorted(ranked_matches, threshold, "left")
        above = ranked_matches.size - np.searchsorted(ranked_matches, threshold, "right")
        found.append((above + coin * (at_least - above)) / ranked_matches.size)
    return np.array(found)
