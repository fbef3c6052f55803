"""Plans reach their targets in simulations, and raise an error if no code can."""

import re

import numpy as np
import pytest
from simulate import draw_pairs, observe

from topsign import theory

pytestmark = pytest.mark.core

# Family, correlation, detection, false alarm, features, pool, scoring: over the parameter space, small to simulate.
PLANS = [
    ("adaptive", 0.3, 0.9, 0.05, 256, "hadamard", None),
    ("adaptive", 0.3, 0.9, 0.05, 256, "gaussian", None),
    ("adaptive", 0.2, 0.5, 0.01, 512, "hadamard", None),
    ("adaptive", 0.5, 0.95, 0.01, 200, "hadamard", None),
    ("adaptive", 0.4, 0.99, 0.02, 300, "hadamard", "hamming"),
    ("adaptive", 0.15, 0.7, 0.1, 1000, "hadamard", None),
    ("adaptive", 0.6, 0.999, 0.01, 128, "hadamard", None),
    ("adaptive", 0.25, 0.8, 0.05, 512, "hadamard", "hamming"),
    ("adaptive", 0.5, 0.9, 0.01, 128, "gaussian", "hamming"),
    ("adaptive", 0.35, 0.95, 0.05, 384, "circulant", None),
    ("grouped", 0.3, 0.9, 0.05, 256, "hadamard", None),
    ("grouped", 0.3, 0.8, 0.05, 256, "gaussian", None),
    ("grouped", 0.4, 0.95, 0.02, 300, "hadamard", "hamming"),
    ("grouped", 0.5, 0.95, 0.01, 200, "hadamard", None),
]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "rho", "detection", "false_alarm", "n_features", "pool", "scoring"), PLANS)
def test_plans_reach_their_targets(rng, family, rho, detection, false_alarm, n_features, pool, scoring):
    target = {"correlation": rho, "false_alarm": false_alarm, "n_features": n_features, "projection": pool}
    plan = theory.plan(**target, detection=detection, scoring=scoring, family=family)
    assert plan.detection >= detection
    rows = "independent" if pool == "gaussian" else "orthonormal"
    assert f"the pool's rows are {rows} ({pool})" in plan.assumptions
    n_bits = plan.n_bits if family == "adaptive" else None
    kept = n_bits or plan.n_pool // 8
    n_pairs = 1000 if pool == "gaussian" else 3000
    shares = []
    for correlation, seed in ((rho, 0), (0.0, 10**6)):
        pairs = draw_pairs(rng, n_pairs, n_features, correlation)
        mismatches, scores = observe(*pairs, seed=seed, pool=pool, n_pool=plan.n_pool, n_bits=n_bits)
        accepted = scores >= plan.threshold if plan.radius is None else mismatches <= plan.radius * kept + 1e-9
        shares.append(accepted.mean())
    found, alarmed = shares
    assert abs(found - plan.detection) < 4 * np.sqrt(plan.detection * (1 - plan.detection) / n_pairs) + 1e-9
    assert alarmed < false_alarm + 4 * np.sqrt(false_alarm * (1 - false_alarm) / n_pairs)


@pytest.mark.parametrize(("family", "detection"), [("adaptive", 0.99), ("grouped", 0.9)])
def test_a_smaller_code_would_not_do(family, detection):
    target = {"correlation": 0.1, "false_alarm": 1e-3, "n_features": 8192, "family": family}
    best = theory.plan(**target, detection=detection)
    with pytest.raises(theory.TargetError, match="cannot be reached within"):
        theory.plan(**target, detection=detection, max_bytes=best.bytes_per_entry - 1)
    within = theory.plan(**target, max_bytes=best.bytes_per_entry)
    assert within.bytes_per_entry == best.bytes_per_entry
    assert within.detection == pytest.approx(best.detection)
    assert best.detection >= detection


def test_trellis_codes_are_planned_with_the_bytes_of_their_factor():
    target = {"correlation": 0.4, "false_alarm": 0.01, "n_features": 256, "family": "trellis"}
    plan = theory.plan(**target, max_bytes=10)
    assert (plan.n_bytes, plan.bytes_per_entry) == (8, 10)
    assert theory.plan(**target, detection=plan.detection).bytes_per_entry == 10
    rate = theory.trellis_detection(8, correlation=0.4, false_alarm=0.01, n_features=256)
    assert plan.detection == pytest.approx(float(rate), rel=1e-12)
    with pytest.raises(theory.TargetError, match="no trellis code fits max_bytes=2: the smallest takes 3 bytes"):
        theory.plan(**target, max_bytes=2)
    with pytest.raises(ValueError, match="projection of trellis codes must be one of 'hadamard', got 'gaussian'"):
        theory.plan(**target, max_bytes=10, projection="gaussian")


def test_false_alarms_are_counted_per_search():
    plan = theory.plan(correlation=0.3, detection=0.9, false_alarm=0.01, n_features=4096, n_entries=1000)
    assert 1 - (1 - plan.false_alarm_per_entry) ** 1000 == pytest.approx(0.01)


def test_unreachable_targets_name_the_best_code():
    with pytest.raises(
        ValueError, match=r"cannot be reached .* the best code .* detects 0\.\d+, and uncompressed signals 0\.\d+"
    ):
        theory.plan(correlation=0.07, detection=0.99, false_alarm=1e-6, n_features=8192)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"correlation": 0.0}, "correlation must lie in (0, 1), got 0.0"),
        ({"correlation": 2.0}, "correlation must lie in [-1, 1], got 2.0"),
        ({"false_alarm": 0}, "false_alarm must lie strictly between 0 and 1, got 0"),
        ({"detection": 1.0}, "detection must lie in (0, 1), got 1.0"),
        ({"detection": None}, "give detection (a target), max_bytes (a budget), or both"),
        ({"n_entries": 0}, "n_entries must be at least 1, got 0"),
        ({"projection": "fourier"}, "projection must be one of 'hadamard'"),
        ({"max_bytes": 1}, "no adaptive code fits max_bytes=1: the smallest takes"),
        ({"n_features": 3}, "n_features must be in [16,"),
    ],
)
def test_bad_targets(options, words):
    target = {"correlation": 0.3, "detection": 0.9, "false_alarm": 0.01, "n_features": 256}
    with pytest.raises(ValueError, match=re.escape(words)):
        theory.plan(**(target | options))
