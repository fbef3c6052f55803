"""Null distributions of the best score of a search: order statistics, tails, p-values, invalid records."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from topsign.significance import SearchNull, searches_needed


class BestOfNormals:
    """Distribution of the best of 50 standard normal scores."""

    def rvs(self, size, random_state):
        return random_state.standard_normal((size, 50)).max(axis=1)

    def sf(self, score):
        return -np.expm1(50 * stats.norm.logcdf(score))


LAWS = {"gumbel": stats.gumbel_r(), "student": stats.t(3), "normal": BestOfNormals(), "bounded": stats.beta(3, 3)}


def null_of(best, n_entries=100, step=0.0):
    return SearchNull.learn(best, n_entries=n_entries, pairs=np.sort(best) - 3, step=step)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n_searches", [153, 2000])
def test_false_alarm_rates_hold_for_any_law(law, n_searches):
    """The mean rate is at most nominal, and 1 of 10 calibrations exceeds 1.5 times that, within four standard errors.

    There are 40 calibrations, and the last two levels depend on the tail model.
    """
    rng, n_calibrations = np.random.default_rng(0), 40
    nulls = [null_of(LAWS[law].rvs(n_searches, random_state=rng)) for _ in range(n_calibrations)]
    floor = nulls[0].floor
    for level in (0.05, 0.01, nulls[0].level, 3 * floor, 1.5 * floor):
        rates = np.array([LAWS[law].sf(null.search_threshold(level, 100)) for null in nulls])
        spread = max(rates.std(), level / np.sqrt(n_searches * level))
        assert rates.mean() <= level + 4 * spread / np.sqrt(n_calibrations), level
        assert np.mean(rates > 1.5 * level) <= 0.1 + 4 * np.sqrt(0.09 / n_calibrations), level


def test_the_order_statistic_is_that_of_the_beta_distribution():
    """Compare every rank with the definition: mean r / (m + 1), and the probability of over 1.5 times the level."""
    for m, level in ((30, 0.05), (153, 0.01), (2000, 0.05), (2000, 0.01), (2000, 0.001), (1000, 0.001)):
        ranks = np.arange(1, m)
        fine = (ranks / (m + 1) <= level) & (stats.beta.sf(1.5 * level, ranks, m + 1 - ranks) <= 0.1)
        expected = ranks[fine].max() if fine.any() else 0
        assert null_of(np.arange(m) / m).order_statistic(level) == expected
    assert null_of(np.arange(2000.0)).search_threshold(0.01, 100) == np.nextafter(1980.0, np.inf)
    assert null_of(-np.arange(2000.0), step=1.0).search_threshold(0.01, 100) == -18.0


def test_the_number_of_searches_for_a_level():
    for level in (0.2, 0.05, 0.01, 0.001):
        needed = searches_needed(level)
        assert null_of(np.arange(float(needed))).order_statistic(level) >= 1
        assert null_of(np.arange(float(needed))).level <= level * (1 + 1e-9)
        assert null_of(np.arange(float(needed - 1))).order_statistic(level) == 0


def test_p_values_of_pairs_hold_on_fresh_scores():
    """Entries are independent, so p-values are known exactly; they agree within 15% from 0.3 to 1e-5."""
    rng, n_entries = np.random.default_rng(1), 1000
    best = np.array([rng.standard_normal(n_entries).max() for _ in range(5000)])
    null = SearchNull.learn(best, n_entries=n_entries, pairs=rng.standard_normal(500_000))
    for level in (0.3, 0.05, 0.01, 1e-3, 1e-4, 1e-5):
        assert null.p_values(stats.norm.isf(level)) == pytest.approx(level, rel=0.15), level
    far = null.p_values(np.array([6.0, 60.0, np.inf]))
    assert (far > 0).all()
    assert far[-1] == pytest.approx(null.floor / n_entries, rel=1e-3)
    assert (np.diff(null.p_values(np.linspace(-5, 9, 400))) <= 0).all()


def test_growth_and_parts_of_an_index():
    null = null_of(np.arange(2000.0), n_entries=1000)
    assert null.search_threshold(0.02, 2000) == null.search_threshold(0.01, 1000)
    assert null.search_threshold(0.01, 10) == null.search_threshold(0.01, 1000)
    assert null.search_threshold(null.floor * 0.99, 1000) == np.inf
    assert not null.significant(np.array([1e9]), null.floor * 0.99, 1000).any()


def test_a_null_survives_json_and_hostile_records_do_not():
    null = null_of(np.random.default_rng(7).standard_normal(300))
    record = json.loads(json.dumps(null.to_json()))
    again = SearchNull.from_json(record)
    assert_array_equal(again.p_values(np.linspace(-3, 6, 50)), null.p_values(np.linspace(-3, 6, 50)))
    assert_allclose(again.search_threshold(0.001, 100), null.search_threshold(0.001, 100))
    best, knots = record["best"], record["knots"]
    bad = [
        {},
        record | {"best": []},
        record | {"best": best[::-1]},
        record | {"best": [*best[:-1], float("nan")]},
        record | {"best": [10**400, *best]},
        record | {"best": [0.0] * 20_001},
        record | {"knots": knots[::-1]},
        record | {"knots": knots[:-1]},
        record | {"survival": "x"},
        record | {"n_entries": 0},
        record | {"n_entries": True},
        record | {"n_entries": 1.5},
        record | {"step": 1e-300},
    ]
    for one in bad:
        with pytest.raises(ValueError, match="not a learned null"):
            SearchNull.from_json(one)


@pytest.mark.parametrize("best", [[0.5] * 200, [1e-300, 1e300] * 100, [-1e308] * 100 + [1e308] * 100])
def test_extreme_scores_are_fast(best):
    null = SearchNull.learn(best, n_entries=10, pairs=best)
    assert (null.p_values(np.array([-1.0, 0.0, 1.0, 1e308])) > 0).all()
    assert null.search_threshold(0.5, 10) >= min(best)
    assert null.search_threshold(null.floor, 10) >= max(best)


def test_bad_scores():
    with pytest.raises(ValueError, match="all of them finite; got 0 best scores"):
        SearchNull.learn([], n_entries=1, pairs=[])
    with pytest.raises(ValueError, match="all of them finite"):
        SearchNull.learn([np.inf], n_entries=1, pairs=[0.0])


def test_thresholds_by_the_tail_model_are_not_wasteful():
    """Over 20 calibrations, the mean rate of thresholds beyond the sample is at least a quarter of the nominal rate."""
    rng = np.random.default_rng(0)
    nulls = [null_of(LAWS["gumbel"].rvs(2000, random_state=rng)) for _ in range(20)]
    level = 3 * nulls[0].floor
    assert nulls[0].order_statistic(level) == 0  # the tail model decides
    assert np.mean([LAWS["gumbel"].sf(null.search_threshold(level, 100)) for null in nulls]) > level / 4


def test_equal_best_scores_have_no_tail():
    null = null_of(np.full(400, 0.5), n_entries=1000)
    assert_allclose(null.p_values([0.5 + 1e-6, 0.6, 2.0]), null.floor / 1000, rtol=1e-3)
    assert null.p_values(0.5) > 0.02  # every search reaches it, so at least 20 of 1,000 entries do
