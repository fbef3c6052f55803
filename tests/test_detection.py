"""Detection curves: values derived for the paper's problem, and simulations."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from simulate import draw_pairs, observe

from topsign import significance, theory

pytestmark = pytest.mark.core

PAPER = {"correlation": 1 / np.sqrt(1 + 0.15**2 * 8192), "n_features": 8192}

# Area under the curve, d' and detection at 0.1, 0.01, 0.001, to the digits given; Gaussian pool.
TABLE = [
    ({"scoring": "uncompressed"}, 1.0000, 6.67, 1.000, 1.000, 0.9998),
    ({"scoring": "hamming", "n_bits": 512, "n_pool": 8192}, 0.9731, 2.73, 0.926, 0.654, 0.356),
    ({"scoring": "hamming", "n_bits": 512, "n_pool": 512}, 0.7703, 1.05, 0.407, 0.100, 0.020),
    ({"scoring": "hamming", "n_bits": 3269, "n_pool": 3269}, 0.9605, 2.48, 0.885, 0.562, 0.272),
    ({"scoring": "universal", "n_bits": 512}, 0.655, 0.57, 0.237, 0.039, 0.006),
    ({"scoring": "universal", "n_bits": 3269}, 0.839, 1.40, 0.548, 0.178, 0.046),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]['scoring']}-{row[0].get('n_bits')}")
def test_the_papers_problem(row):
    options, auc, d_prime, *detections = row
    curve = theory.roc(**PAPER, projection="gaussian", **options)
    assert_allclose(curve.auc, auc, atol=6e-4)
    assert_allclose(curve.d_prime, d_prime, atol=0.01)
    assert_allclose(curve.detection_at([0.1, 0.01, 0.001]), detections, atol=1.1e-3)


@pytest.mark.parametrize(
    ("scoring", "n_bits", "n_pool", "gaussian", "orthonormal"),
    [
        ("hamming", 512, 8192, 2.73, 2.99),
        ("asymmetric", 3269, 3269, 3.00, 3.36),
        ("asymmetric", 512, 8192, 3.27, 3.75),
        ("asymmetric", 3584, 3584, None, 3.52),
        ("asymmetric", 4096, 4096, None, 3.76),
        ("asymmetric", 4608, 4608, None, 3.99),
    ],
)
def test_an_orthonormal_pool_detects_better(scoring, n_bits, n_pool, gaussian, orthonormal):
    for pool, expected in (("gaussian", gaussian), ("hadamard", orthonormal)):
        if expected is not None:
            curve = theory.roc(**PAPER, scoring=scoring, n_bits=n_bits, n_pool=n_pool, projection=pool)
            assert_allclose(curve.d_prime, expected, atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["gaussian", "hadamard"])
@pytest.mark.parametrize("scoring", ["hamming", "asymmetric"])
def test_curves_agree_with_simulation(rng, pool, scoring):
    """Area and detection rate of simulated codes are within four standard errors."""
    shape = {"n_bits": 32, "n_pool": 256}
    n_pairs, n_features, rho = 1200, 256, 0.25
    found = observe(*draw_pairs(rng, n_pairs, n_features, rho), pool=pool, **shape)
    false = observe(*draw_pairs(rng, n_pairs, n_features, 0.0), pool=pool, seed=10**6, **shape)
    matches, impostors = (-found[0], -false[0]) if scoring == "hamming" else (found[1], false[1])
    curve = theory.roc(correlation=rho, n_features=n_features, scoring=scoring, projection=pool, **shape)
    above = (matches[:, np.newaxis] > impostors).mean(axis=1) + (matches[:, np.newaxis] == impostors).mean(axis=1) / 2
    below = (impostors[:, np.newaxis] < matches).mean(axis=1) + (impostors[:, np.newaxis] == matches).mean(axis=1) / 2
    error = np.sqrt((above.var(ddof=1) + below.var(ddof=1)) / n_pairs)  # DeLong's standard error of the area
    assert abs(above.mean() - curve.auc) < 4 * error
    tail = significance.match_pvalue
    observed = -matches if scoring == "hamming" else matches
    p_values = tail(observed, n_features=n_features, projection=pool, scoring=scoring, **shape)
    for level in (0.1, 0.01):
        detected = np.mean(p_values <= level)
        if scoring == "hamming":  # the test is not randomised, so compare at a level that integer thresholds attain
            counts = tail(np.arange(33), n_features=n_features, projection=pool, **shape)
            level = counts[counts <= level].max()
        expected = curve.detection_at(level)
        assert abs(detected - expected) < 4 * np.sqrt(expected * (1 - expected) / n_pairs)


def test_small_false_alarm_rates_are_precise():
    """At a false-alarm rate of 1e-9, compare with a normal approximation that is accurate to a few percent."""
    curve = theory.roc(**PAPER, scoring="asymmetric", n_bits=4096, n_pool=8192)
    pfa = np.array([1e-12, 1e-9, 1e-6])
    detection = curve.detection_at(pfa)
    assert (np.diff(detection) > 0).all()
    assert_allclose(detection, norm.sf(norm.isf(pfa) - curve.d_prime), rtol=0.1)
    strong = theory.roc(correlation=0.3, n_features=8192, scoring="asymmetric", n_bits=512, n_pool=8192)
    assert 0 < strong.missed_area < 1e-20
    assert strong.auc == 1
    assert strong.d_prime > 10


@pytest.mark.parametrize(
    ("scoring", "sizes"),
    [
        ("uncompressed", {}),
        ("universal", {"n_bits": 64}),
        *(
            (scoring, {"n_bits": 64, "n_pool": n_pool})
            for scoring in ("hamming", "asymmetric")
            for n_pool in (64, 1000)
        ),
    ],
)
@pytest.mark.parametrize("pool", ["gaussian", "hadamard"])
def test_every_curve_rises_from_nothing_to_everything(scoring, sizes, pool):
    for n_features, rho in ((5, 0.5), (300, 0.2), (1000, 0.0)):
        curve = theory.roc(correlation=rho, n_features=n_features, scoring=scoring, projection=pool, **sizes)
        assert (np.diff(curve.pfa) >= 0).all()
        assert (np.diff(curve.pd) >= -1e-12).all()
        assert curve.pd.min() >= 0
        assert curve.pd.max() <= 1 + 1e-12
        assert_allclose(curve.detection_at(1 - 1e-9), 1, atol=1e-6)
        if rho == 0:
            assert_allclose(curve.auc, 0.5, atol=1e-3)
            assert_allclose(curve.detection_at([1e-6, 0.3]), [1e-6, 0.3], rtol=1e-3)


@pytest.mark.parametrize("correlation", [1, -0.2])
def test_curves_need_a_correlation_in_range(correlation):
    with pytest.raises(ValueError, match=r"correlation must lie in \[0, 1\), got"):
        theory.roc(correlation=correlation, n_features=100)
