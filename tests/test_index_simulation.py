"""Agreement of searches with theory: detection on the paper's problem, false matches at a corrected level."""

import numpy as np
import pytest

import topsign as ts

pytestmark = pytest.mark.slow

PAPER = {"n_features": 8192, "n_bits": 512, "n_pool": 8192}
NOISE = 0.15  # a query is a reference of unit norm in this noise: correlation 0.0735


def draw_normal(rng, n_signals):
    return rng.standard_normal((n_signals, PAPER["n_features"]), dtype=np.float32)


def noisy_units(rng, references):
    units = references / np.linalg.norm(references, axis=1, keepdims=True)
    return units + np.float32(NOISE) * draw_normal(rng, len(references))


def scores_by_id(found):
    return np.take_along_axis(found.scores, np.argsort(found.ids, axis=1), axis=1)


def shares_below(scores, others):
    """Return the fraction of ``others`` that each score exceeds, with ties counted as one half."""
    others = np.sort(others, axis=None)
    return (np.searchsorted(others, scores, "left") + np.searchsorted(others, scores, "right")) / (2 * others.size)


def assert_detection(pool, scoring, matches, *impostors):
    """Assert that area and detection rate at a false-alarm rate of 0.01 are within four standard errors of theory.

    Query i, its match and its impostors are one draw. To first order, both estimates are means over n independent draws
    (Hoeffding projection). The term of draw i in the area is the fraction of impostors below match i, plus the mean
    fraction of matches above its impostors. Its term in the detection rate is 1 if match i is detected, minus the slope
    of the curve times its false alarms, which is the error of the threshold. The standard error follows from the
    variance of these terms.

    ``matches`` are (n,) scores, ``impostors`` (n, n_impostors) with one row per query. If entries are shared, the
    scores are given a second time with one row per entry, because a draw contributes to both.
    """
    law = {"correlation": 1 / np.hypot(1, NOISE * np.sqrt(PAPER["n_features"])), "scoring": scoring, **PAPER}
    curves = {one: ts.theory.roc(projection=one, **law) for one in ("gaussian", "hadamard")}
    curve = curves.pop(pool)
    (other,) = curves.values()

    def error(terms):
        return terms.std(ddof=1) / np.sqrt(len(terms))

    below = shares_below(matches, impostors[0])
    above = sum(1 - shares_below(scores, matches).mean(axis=1) for scores in impostors)
    assert abs(below.mean() - curve.auc) < 4 * error(below + above)
    assert abs(below.mean() - other.auc) > 4 * error(below + above)  # the other kind of pool would fail

    ranked = np.sort(impostors[0], axis=None)[::-1]
    wanted = 0.01 * ranked.size
    threshold = ranked[int(np.ceil(wanted)) - 1]
    coin = (wanted - np.count_nonzero(ranked > threshold)) / np.count_nonzero(ranked == threshold)

    def accepted(scores):
        return (scores > threshold) + coin * (scores == threshold)

    slope = np.diff(curve.detection_at([0.009, 0.011]))[0] / 0.002
    false_alarms = sum(accepted(scores).mean(axis=1) for scores in impostors)
    detected = accepted(matches)
    assert abs(detected.mean() - curve.detection_at(0.01)) < 4 * error(detected - slope * false_alarms)


def test_detection_over_a_hadamard_pool():
    """1,000 queries, each with one match and 100 impostors, in an index of 101,000 entries."""
    rng = np.random.default_rng(5)
    index = ts.Index(family="adaptive", basis="hadamard", random_state=7, **PAPER)
    queries = []
    for _ in range(100):  # ten queries at a time, because all entries would take 3 GB
        entries = draw_normal(rng, 1010)
        index.add(entries)
        queries.append(noisy_units(rng, entries[::101]))
    for scoring in ("hamming", "asymmetric"):
        own = []
        for i, ten in enumerate(queries):
            found = index.search(ten, k=1010, among=range(1010 * i, 1010 * i + 1010), scoring=scoring)
            own.extend(scores_by_id(found).reshape(10, 10, 101)[range(10), range(10)])
        matches, impostors = np.split(np.array(own), [1], axis=1)
        assert_detection("hadamard", scoring, matches[:, 0], impostors)


def test_detection_over_a_gaussian_pool():
    """1,000 queries against 1,000 entries: a thousand pairs match and 999,000 do not."""
    rng = np.random.default_rng(6)
    index = ts.Index(family="adaptive", basis="gaussian", random_state=7, **PAPER)
    entries = draw_normal(rng, 1000)
    index.add(entries)
    queries = noisy_units(rng, entries)
    strangers = ~np.eye(1000, dtype=bool)
    for scoring in ("hamming", "asymmetric"):
        scores = scores_by_id(index.search(queries, k=1000, scoring=scoring))
        impostors = (pairs[strangers].reshape(1000, 999) for pairs in (scores, scores.T))
        assert_detection("gaussian", scoring, np.diagonal(scores), *impostors)
