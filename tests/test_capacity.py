"""Plans of clusters: the cost model compared with plain arithmetic, and invalid targets."""

import math
from dataclasses import replace

import pytest
from numpy.testing import assert_allclose

from topsign import theory

pytestmark = pytest.mark.core


@pytest.mark.parametrize(("n_entries", "n_regions"), [(10, 64), (4_000_000, 16_384), (10**10, 65_536)])
@pytest.mark.parametrize("recall", [0.5, 0.9, 0.98])
def test_plans_follow_the_model(n_entries, n_regions, recall):
    plan = theory.plan_cluster(n_entries, recall=recall, queries_per_second=100, n_bytes=24)
    visited = 0.0093 * (n_entries / 10**6) ** -0.5 * (0.05 / (1 - recall)) ** 0.75
    larger = max(1, 8 * math.sqrt(n_entries) / 65_536) ** 0.5  # the number of regions has reached its maximum
    assert plan.n_regions == n_regions
    assert_allclose(plan.visited, min(1, visited * larger))
    seconds = 0.85e-3 + 32e-9 * n_regions + 38e-9 * plan.visited * n_entries
    assert_allclose(plan.seconds_per_query, seconds)
    assert plan.n_cores == math.ceil(seconds * 100 / 0.7)
    assert plan.memory_bytes == n_entries * (24 + 8 + 2 + 4)  # code, id, region, order of regions
    assert plan.n_workers == max(1, math.ceil(plan.n_cores / 16), math.ceil(plan.memory_bytes / (0.7 * 64 * 2**30)))


@pytest.mark.parametrize("target", [{"recall": 0}, {"recall": 1}, {"n_entries": math.nan}, {"queries_per_second": -1}])
def test_invalid_targets_are_refused(target):
    with pytest.raises(theory.TargetError, match=r"recall must lie in \(0, 1\)"):
        theory.plan_cluster(**({"n_entries": 1000, "recall": 0.5} | target))


def batch_costs():
    costs = theory.SearchCosts(seconds_per_entry=3e-7, batch_seconds_per_entry=1e-7, batch_seconds_per_query=1e-4)
    return replace(costs, batch_seconds_per_region=1e-8, network_seconds=0.0256, network_seconds_per_query=2e-5)


def test_batches_share_the_entries_that_several_queries_visit():
    costs, fixed = batch_costs(), 1e-4 + 1e-5
    each = 1 / costs.throughput(1000, 1000, n_entries=4000, batch=2)
    first = 4000 * (1 - 0.75**2) / 2  # 875 of the 1,000 visits are first visits
    assert each == pytest.approx(fixed + first * 3e-7 + (1000 - first) * 1e-7)
    alike = 1 / costs.throughput(1000, 1000, n_entries=1000, batch=4)  # every query visits all entries
    assert alike == pytest.approx(fixed + 250 * 3e-7 + 750 * 1e-7)
    far = costs.throughput(1000, 1000, n_entries=1e15)
    assert far == pytest.approx(costs.throughput(1000, 1000), rel=1e-3)


@pytest.mark.parametrize(
    ("target", "constants"),
    [
        ({"n_entries": 1e300, "queries_per_second": 1e300}, {}),
        ({}, {"seconds_per_entry": 1e308, "visited_slope": 0.0}),
        ({"n_entries": 10}, {"visited_slope": 1e4}),
        ({"n_entries": 1e11}, {"network_seconds": 1e308, "network_seconds_per_query": 1e308}),
    ],
)
def test_plans_beyond_floating_point_numbers_are_refused(target, constants):
    with pytest.raises(theory.TargetError, match="exceeds the range"):
        theory.plan_cluster(**({"n_entries": 1e9} | target), costs=theory.SearchCosts(**constants))


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (-1e-9, ValueError, "seconds_per_entry must be finite and at least 0, got -1e-09"),
        (10**400, ValueError, "seconds_per_entry must be finite and at least 0, got 1000"),
        ("1e-9", TypeError, "seconds_per_entry must be a number, got '1e-9' of type str"),
    ],
)
def test_constants_must_be_finite_numbers_that_are_not_negative(value, error, words):
    with pytest.raises(error, match=words):
        theory.SearchCosts(seconds_per_entry=value)
