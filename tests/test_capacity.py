"""Plans of clusters: the cost model compared with plain arithmetic, and invalid targets."""

import math

import pytest
from numpy.testing import assert_allclose

from topsign import theory

pytestmark = pytest.mark.core


@pytest.mark.parametrize(("n_entries", "n_regions"), [(10, 64), (4_000_000, 16_384), (10**10, 65_536)])
@pytest.mark.parametrize("recall", [0.5, 0.9, 0.98])
def test_plans_follow_the_model(n_entries, n_regions, recall):
    plan = theory.plan_cluster(n_entries, recall=recall, queries_per_second=100, n_bytes=24)
    visited = 0.0052 * (n_entries / 10**6) ** -0.6 * (0.05 / (1 - recall)) ** 0.75
    larger = max(1, 8 * math.sqrt(n_entries) / 65_536) ** 0.6  # the number of regions has reached its maximum
    assert plan.n_regions == n_regions
    assert_allclose(plan.visited, min(1, visited * larger))
    seconds = 0.6e-3 + 14e-9 * n_regions + 60e-9 * plan.visited * n_entries
    assert_allclose(plan.seconds_per_query, seconds)
    assert plan.n_cores == math.ceil(seconds * 100 / 0.7)
    assert plan.memory_bytes == n_entries * (24 + 8 + 2 + 4)  # code, id, region, order of regions
    assert plan.n_workers == max(1, math.ceil(plan.n_cores / 16), math.ceil(plan.memory_bytes / (0.7 * 64 * 2**30)))


@pytest.mark.parametrize(
    "target", [{"recall": 0}, {"recall": 1}, {"n_entries": 0}, {"queries_per_second": 0}, {"queries_per_second": -1}]
)
def test_invalid_targets_are_refused(target):
    with pytest.raises(theory.TargetError, match=r"recall must lie in \(0, 1\)"):
        theory.plan_cluster(**({"n_entries": 1000, "recall": 0.5} | target))


def test_less_than_one_query_per_second_is_a_target():
    assert theory.plan_cluster(1, queries_per_second=0.5).n_workers == 1
