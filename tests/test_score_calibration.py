"""Calibration of scores of any engine: false alarms at once and after growth, p-values, refusals, files, reports."""

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import topsign as ts
from topsign.significance import ScoreCalibration

N = 1000
SCORES = Path(__file__).parent / "data" / "real" / "scores.npz"


class Independent:
    """Scores of independent entries; the best of n has the distribution function ``cdf ** n``."""

    def __init__(self, law, spread=0.0):
        self.law, self.spread = law, spread  # queries differ in scale by a factor exp(spread * normal)

    def scales(self, rng, m):
        return np.exp(self.spread * rng.standard_normal(m))

    def lists(self, rng, m, k=50, n=N):
        logs = np.cumsum(np.log(rng.random((m, k))) / (n - np.arange(k)), axis=1)  # of uniform order statistics
        return self.law.isf(-np.expm1(logs)) * self.scales(rng, m)[:, np.newaxis]

    def rate(self, threshold, n):
        at = threshold / self.scales(np.random.default_rng(9), 5000)
        return float(np.mean(-np.expm1(n * np.log1p(-self.law.sf(at)))))


class Clusters:
    """Entries in 40 clusters; the scores of a cluster with a query have a common part."""

    def centres(self, rng, m):
        return 0.8 * rng.standard_normal((m, 40))

    def lists(self, rng, m, k=50, n=N):
        scores = self.centres(rng, m)[:, np.arange(n) % 40] + 0.6 * rng.standard_normal((m, n))
        return -np.sort(-scores, axis=1)[:, :k]

    def rate(self, threshold, n):
        below = stats.norm.logcdf((threshold - self.centres(np.random.default_rng(9), 5000)) / 0.6).sum(axis=1)
        return float(np.mean(-np.expm1(n / 40 * below)))


STRAIGHT = {
    "normal": Independent(stats.norm),
    "exponential": Independent(stats.expon),
    "hubs": Independent(stats.norm, 0.2),
    "clusters": Clusters(),
}
TOLERANCE = {1: 1.0, 3: 1.3, 10: 1.5, 50: 2.0}
"""Factors to the nominal rate that the mean rate keeps, by growth of the corpus."""


@pytest.mark.parametrize("law", STRAIGHT)
@pytest.mark.parametrize("k", [10, 100])
def test_false_alarm_rates_hold_at_once_and_after_growth(law, k):
    rng, n_calibrations = np.random.default_rng(0), 6
    known = [ScoreCalibration.fit(STRAIGHT[law].lists(rng, 1000, k), n_entries=N) for _ in range(n_calibrations)]
    known = [one for one in known if one.is_straight]
    assert len(known) >= n_calibrations - 1
    for growth, tolerance in TOLERANCE.items():
        for level in (0.05, 0.01):
            rates = [STRAIGHT[law].rate(one.threshold(level, growth * N), growth * N) for one in known]
            error = level / math.sqrt(1000 * level * len(known))  # of the mean of order statistics
            assert np.mean(rates) <= tolerance * level + 4 * error, (growth, level)
            assert np.mean(rates) >= level / 20, (growth, level)


@pytest.mark.parametrize("level", [0.05, 0.01])
def test_false_alarm_rates_hold_on_real_sentences(level):
    """1,500 queries and 1,000 entries calibrate, 3,000 other queries are searched for among 300 to 50,000 entries.

    The scores are cosines of sentence vectors (all-MiniLM-L6-v2); entries are definitions of WordNet, queries the first
    two thirds of the words of others.
    """
    with np.load(SCORES) as file:
        lists, sizes, best = (file[name] for name in ("lists", "sizes", "best"))
    one = ScoreCalibration.fit(lists, n_entries=1000)
    assert one.is_straight
    error = np.sqrt(level * (1 / 1500 + 1 / 3000))
    for n_entries, found in zip(sizes, best, strict=True):
        assert level / 4 < np.mean(one.matches(found, level, n_entries)) < 1.1 * level + 3 * error, n_entries
    assert np.mean(one.matches(best[-1], level)) > 4 * level  # a threshold that does not grow


@pytest.mark.parametrize("law", STRAIGHT)
def test_smaller_corpora_have_the_thresholds_of_thinned_lists(law):
    rng = np.random.default_rng(1)
    known = [ScoreCalibration.fit(STRAIGHT[law].lists(rng, 1000, 100), n_entries=N) for _ in range(6)]
    rates = [STRAIGHT[law].rate(one.threshold(0.05, 300), 300) for one in known]
    assert 0.025 <= np.mean(rates) <= 1.5 * 0.05
    assert known[0].threshold(0.05, 1) == known[0].threshold(0.05, 100)  # lists cover no smaller share


@pytest.mark.parametrize("degrees", [5, 10])
def test_small_samples_allow_for_curvature_that_they_cannot_show(degrees):
    """160 queries often miss the curvature of Student's t; with a straight line, rates would be up to four nominal."""
    law, rng = Independent(stats.t(degrees)), np.random.default_rng(11)
    known = [ScoreCalibration.fit(law.lists(rng, 160), n_entries=N) for _ in range(40)]
    straight = [one for one in known if one.is_straight]
    assert len(straight) >= 15
    for growth, tolerance in TOLERANCE.items():
        rates = [law.rate(one.threshold(0.05, growth * N), growth * N) for one in straight]
        assert np.mean(rates) <= tolerance * 0.05 + 4 * np.std(rates) / math.sqrt(len(rates)), growth
    lines = [replace(one, curvature=(0.0, 0.0)) for one in straight]
    assert np.mean([law.rate(one.threshold(0.05, 50 * N), 50 * N) for one in lines]) > 2 * np.mean(rates)


def test_few_queries_may_miss_the_bend_of_very_heavy_tails():
    """The limit that the page about real hits states: of 200 calibrations by 160 queries, 46 pass as straight."""
    law, rng = Independent(stats.t(3)), np.random.default_rng(12)
    known = [ScoreCalibration.fit(law.lists(rng, 160), n_entries=N) for _ in range(200)]
    straight = [one for one in known if one.is_straight]
    assert 30 <= len(straight) <= 60
    for growth, least, most in ((10, 1.5, 2.5), (50, 2.3, 3.9)):
        rates = [law.rate(one.threshold(0.05, growth * N), growth * N) for one in straight]
        assert least * 0.05 <= np.mean(rates) <= most * 0.05, growth


@pytest.mark.parametrize("law", [Independent(stats.t(3)), Independent(stats.pareto(2))], ids=["student", "pareto"])
def test_scores_that_bend_upwards_are_not_extrapolated(law):
    """Rates hold at once for any law; after growth the union bound holds, until the sample is exhausted."""
    rng = np.random.default_rng(2)
    known = [ScoreCalibration.fit(law.lists(rng, 2000), n_entries=N) for _ in range(6)]
    assert not any(one.is_straight for one in known)
    for growth, level in ((1, 0.05), (1, 0.01), (3, 0.05), (10, 0.05)):
        rates = [law.rate(one.threshold(level, growth * N), growth * N) for one in known]
        assert np.mean(rates) <= level + 4 * level / math.sqrt(2000 * level / growth * 6), (growth, level)
    with pytest.raises(
        ValueError, match=r"among 50,000 entries \(thresholds bend upwards.* calibrate with [0-9,]+, or"
    ):
        known[0].threshold(0.01, 50 * N)
    assert known[0].p_value(50.0, 3 * N) == pytest.approx(min(1.0, 3 * known[0].p_value(50.0)))


def test_growth_needs_lists_and_warns_when_it_is_far():
    rng = np.random.default_rng(3)
    lists = STRAIGHT["exponential"].lists(rng, 500)
    best = ScoreCalibration.fit(lists[:, 0], n_entries=N)
    assert best.threshold(0.03, 3 * N) == best.threshold(0.01)
    with pytest.raises(ValueError, match=r"among 10,000 entries \(growth is known only from lists of"):
        best.threshold(0.01, 10 * N)
    few = ScoreCalibration.fit(lists[:39], n_entries=N)
    assert not few.is_straight
    assert few.p_value(50.0, 2 * N) == pytest.approx(2 * few.p_value(50.0))
    whole = ScoreCalibration.fit(lists, n_entries=N)
    with pytest.warns(ts.CalibrationWarning, match="extrapolated from 1,000, more than 50 times fewer"):
        whole.threshold(0.05, 51 * N)


def test_the_order_statistic_is_that_of_the_beta_distribution():
    """Compare every rank with the definition: mean r / (m + 1), and the probability of over 1.5 times the level."""
    for m, level in ((30, 0.05), (153, 0.01), (2000, 0.05), (2000, 0.001), (1000, 0.001)):
        ranks = np.arange(1, m)
        fine = (ranks / (m + 1) <= level) & (stats.beta.sf(1.5 * level, ranks, m + 1 - ranks) <= 0.1)
        one = ScoreCalibration.fit(np.arange(float(m)), n_entries=9)
        assert one.order_statistic(level) == (ranks[fine].max() if fine.any() else 0)
    assert ScoreCalibration.fit(np.arange(2000.0), n_entries=9).threshold(0.01) == np.nextafter(1980.0, np.inf)


def test_rates_that_the_sample_does_not_support_are_refused():
    for m, supported in ((152, False), (153, True)):
        one = ScoreCalibration.fit(np.linspace(0, 1, m), n_entries=N)
        assert (one.level <= 0.01) == supported
        if supported:
            assert one.threshold(0.01) == np.nextafter(1.0, 2)
        else:
            with pytest.raises(ValueError, match="the least that 152 queries support; calibrate with 153, or"):
                one.matches([0.5], 0.01)
    for tail, floor in (("pareto", 1 / 1540), ("normal", 0.0)):
        assert ScoreCalibration.fit(np.linspace(0, 1, 153), n_entries=N, tail=tail).floor == floor


TAILS = {
    "gumbel": stats.gumbel_r(),
    "student": stats.t(3),
    "normal": Independent(stats.norm),
    "bounded": stats.beta(3, 3),
    "counts": stats.poisson(20),
}


@pytest.mark.parametrize("law", TAILS)
@pytest.mark.parametrize(("m", "tail"), [(153, "pareto"), (2000, "pareto"), (2000, "far")])
def test_rates_by_the_tail_model_hold(law, m, tail):
    """The mean rate is at most nominal, and 1 of 10 calibrations exceeds 1.5 times that, within 4 standard errors."""
    rng, n_calibrations = np.random.default_rng(0), 40
    if law == "normal":
        samples, reached = [TAILS[law].lists(rng, m, 1) for _ in range(n_calibrations)], lambda t: TAILS[law].rate(t, N)
    else:
        samples, reached = (
            TAILS[law].rvs((n_calibrations, m), random_state=rng),
            lambda t: TAILS[law].sf(np.nextafter(t, -np.inf)),
        )
    known = [ScoreCalibration.fit(one, n_entries=N, tail=tail) for one in samples]
    for level in (0.01, 3 * known[0].floor, 1.5 * known[0].floor):
        rates = np.array([reached(one.threshold(level)) for one in known])
        spread = max(rates.std(), level / np.sqrt(m * level))
        assert rates.mean() <= level + 4 * spread / np.sqrt(n_calibrations), level
        assert law == "bounded" or tail == "far" or rates.mean() >= level / 20, level
        assert np.mean(rates > 1.5 * level) <= 0.1 + 4 * np.sqrt(0.09 / n_calibrations), level
    p_values = known[0].p_value(np.linspace(-9, 99, 500))
    assert (np.diff(p_values) <= 0).all()
    assert p_values[-1] >= known[0].floor


@pytest.mark.parametrize("best", [[0.5] * 200, [1e-300, 1e300] * 100, [-1e308] * 100 + [1e308] * 100])
def test_extreme_scores_are_fast(best):
    one = ScoreCalibration.fit(best, n_entries=10, tail="pareto")
    assert (one.p_value([-1.0, 0.0, 1.0, 1e308]) > 0).all()
    assert min(best) <= one.threshold(0.5) <= one.threshold(one.floor)


def test_matches_p_values_and_e_values():
    one = ScoreCalibration.fit(np.arange(999.0), n_entries=N)
    assert_allclose(one.p_value([998.5, 998, 499.5, -1]), [0.001, 0.002, 0.5, 1])
    assert_allclose(one.e_value([998.5, 499.5]), [-np.log(0.999), np.log(2)])
    assert_array_equal(one.matches([[2000.0, 998.0], [np.nan, -np.inf]], 0.01), [[True, True], [False, False]])
    normal = ScoreCalibration.fit(stats.norm.ppf((np.arange(999) + 0.5) / 999), n_entries=1, tail="normal")
    assert_allclose(normal.p_value(normal.threshold(1e-6)), 1e-6)
    assert normal.log10_p_value(60.0) < -300
    for calibration in (one, normal, ScoreCalibration.fit(np.arange(999.0), n_entries=N, tail="pareto")):
        assert np.isnan(calibration.p_value([np.nan, 3.0])).tolist() == [True, False]
        assert np.isnan(calibration.e_value(np.nan))
        assert not calibration.matches(np.nan, 0.01)


def test_distances_are_mirrored_similarities():
    lists = STRAIGHT["normal"].lists(np.random.default_rng(4), 400)
    near = ScoreCalibration.fit(lists, n_entries=N)
    far = ScoreCalibration.fit(10 - lists, n_entries=N, closer="smaller")
    for n_entries in (None, 300, 5000):
        assert far.threshold(0.02, n_entries) == pytest.approx(10 - near.threshold(0.02, n_entries))
        assert_allclose(far.p_value(10 - lists[:9], n_entries), near.p_value(lists[:9], n_entries))
    assert_array_equal(far.matches(10 - lists, 0.02), near.matches(lists, 0.02))


def test_groups_and_covariates_hold_in_each_kind_of_query():
    """Half of the queries are hubs, whose scores are higher; a common threshold gives all false alarms to them."""
    rng = np.random.default_rng(5)

    def queries(m):
        hubs = rng.random(m) < 0.5
        known = np.where(hubs, 3.0, 0.0) + 0.1 * rng.standard_normal(m)
        return STRAIGHT["normal"].lists(rng, m, 20) + known[:, np.newaxis], np.where(hubs, "hub", "plain"), known

    lists, kinds, known = queries(4000)
    fresh, fresh_kinds, fresh_known = queries(20_000)
    options = {"n_entries": N}
    plain = ScoreCalibration.fit(lists, **options)
    grouped = ScoreCalibration.fit(lists, groups=kinds, **options)
    adjusted = ScoreCalibration.fit(lists, covariates=known, **options)
    both = ScoreCalibration.fit(lists, groups=kinds, covariates=known, **options)
    given = {"groups": fresh_kinds, "covariates": fresh_known}
    cases = [(plain, []), (grouped, ["groups"]), (adjusted, ["covariates"]), (both, ["groups", "covariates"])]
    for one, names in cases:
        fired = one.matches(fresh[:, 0], 0.05, **{name: given[name] for name in names})
        rates = [fired[fresh_kinds == kind].mean() for kind in ("hub", "plain")]
        assert fired.mean() <= 0.05 + 4 * np.sqrt(0.05 / 4000)
        assert (min(rates) < 0.001) == (not names)
        if names:
            assert max(rates) <= 0.05 + 4 * np.sqrt(0.05 / 2000)
    assert grouped.threshold(0.05, groups="hub") > grouped.threshold(0.05, groups="plain") + 2
    assert grouped.matches(fresh[:, :3], 0.05, groups=fresh_kinds).shape == (20_000, 3)
    assert grouped.p_value(5.0, 3 * N, groups="hub") > grouped.p_value(5.0, 3 * N, groups="plain")
    with pytest.raises(ValueError, match="this calibration takes groups"):
        grouped.threshold(0.05)
    with pytest.raises(ValueError, match="takes neither groups nor covariates"):
        plain.threshold(0.05, covariates=known)
    with pytest.raises(ValueError, match="group 'other' was not calibrated; known are hub, plain"):
        grouped.threshold(0.05, groups="other")
    with pytest.raises(ValueError, match=r"groups must have shape \(5,\), one for each row, got \(3,\)"):
        grouped.matches(lists[:5], 0.05, groups=kinds[:3])
    with pytest.raises(ValueError, match=r"covariates must have shape \(5,\), one for each row, got \(2,\)"):
        adjusted.p_value(lists[:5], covariates=known[:2])
    with pytest.raises(ValueError, match="covariates must be finite"):
        adjusted.matches(lists[:2], 0.05, covariates=[np.nan, 0.0])
    small = ScoreCalibration.fit(lists[:400], groups=np.arange(400) < 10, **options)
    with pytest.raises(ValueError, match=r"group 'True': false_alarm=0.01 is below .* that 10 queries support"):
        small.threshold(0.01, groups=[True, False])


def test_repeated_queries_count_once():
    lists = STRAIGHT["normal"].lists(np.random.default_rng(6), 10)
    with pytest.warns(ts.CalibrationWarning, match="590 of 600 queries have the same scores as another one"):
        one = ScoreCalibration.fit(np.tile(lists, (60, 1)), n_entries=N)
    assert one.n_queries == 10
    with pytest.raises(ValueError, match="the least that 10 queries support"):
        one.threshold(0.01)
    assert ScoreCalibration.fit(np.round(lists), n_entries=N).n_queries == 10  # counts may be equal by chance
    lists = STRAIGHT["normal"].lists(np.random.default_rng(6), 100)
    assert ScoreCalibration.fit(np.concatenate([lists, lists[:20]]), n_entries=N).n_queries == 120  # popular queries


def test_missing_hits_are_the_worst():
    lists = STRAIGHT["normal"].lists(np.random.default_rng(7), 400, 20)
    holes = lists.copy()
    holes[::3, 15:] = np.nan
    holes[1::3, 15:] = -np.inf
    whole, part = (ScoreCalibration.fit(one, n_entries=N) for one in (lists, holes))
    assert part.threshold(0.01) == whole.threshold(0.01)
    assert part.threshold(0.02, 3 * N) == pytest.approx(whole.threshold(0.02, 3 * N), abs=0.05)
    worst = float(np.finfo(np.float32).max)  # what FAISS gives to missing hits
    for one, sign, closer in ((holes, 1, "larger"), (-holes, -1, "smaller")):
        filled = np.where(np.isfinite(one), one, -sign * worst)
        other = ScoreCalibration.fit(filled, n_entries=N, closer=closer)
        assert sign * other.threshold(0.02, 3 * N) == part.threshold(0.02, 3 * N)
    for bad in (np.nan, -np.inf, np.inf):
        holes[7] = bad
        with pytest.raises(ValueError, match=r"scores\[7\] has no finite best score"):
            ScoreCalibration.fit(holes, n_entries=N)


@pytest.mark.parametrize(
    ("scores", "options", "words"),
    [
        ([], {}, r"scores must have shape \(n_queries,\) or"),
        ([[[1.0]]], {}, r"scores must have shape \(n_queries,\) or"),
        ([[1.0, 2.0], [3.0]], {}, "scores must be numbers, as many for each query; fill shorter lists with nan"),
        ([1.0, 2.0], {"n_entries": 0}, "n_entries must be at least 1"),
        ([[2.0, 1.0]] * 2, {"n_entries": 1}, "each query has 2 scores, but n_entries=1 entries were searched"),
        ([1.0, 2.0], {"closer": "nearer"}, "closer must be one of"),
        ([1.0, 2.0], {"tail": "fat"}, "tail must be one of"),
        ([1.0, 2.0], {"groups": ["a"]}, r"groups must have shape \(2,\), one for each row"),
        ([1.0, 2.0], {"covariates": [1.0, np.nan]}, "covariates must be finite"),
        ([1.0, 2.0], {"covariates": [3.0, 3.0]}, "covariates are all equal"),
        ([[1.0, 2.0, np.nan]] * 9, {}, "the last score of every list is the best if larger scores are closer"),
        ([[2.0, 1.0, np.inf]] * 9, {"closer": "smaller"}, "the last score of every list is the best if smaller scores"),
        ([3.0], {"tail": "normal"}, "a normal law takes at least two best scores that differ"),
        ([3.0, 3.0], {"tail": "normal"}, "a normal law takes at least two best scores that differ"),
    ],
)
def test_bad_input(scores, options, words):
    with pytest.raises(ValueError, match=words):
        ScoreCalibration.fit(scores, **({"n_entries": 10} | options))


def test_bad_scores_of_answers_are_named():
    one = ScoreCalibration.fit(np.arange(99.0), n_entries=N)
    for bad in ([[1.0, 2.0], [3.0]], ["a"], [{"score": 1.0}]):
        with pytest.raises(ValueError, match="scores must be numbers, as many for each query; fill shorter lists"):
            one.matches(bad, 0.05)


def test_a_calibration_survives_its_file_and_hostile_files_do_not(tmp_path):
    rng = np.random.default_rng(8)
    lists, path = STRAIGHT["normal"].lists(rng, 300), tmp_path / "model.json"
    given = {"groups": np.arange(300) % 2, "covariates": rng.random(300)}
    one = ScoreCalibration.fit(lists, n_entries=N, tail="pareto", **given)
    one.save(path)
    again = ScoreCalibration.load(path)
    assert again.to_json() == one.to_json()
    asked = {"groups": [0, 1], "covariates": [0.1, 0.9]}
    assert_array_equal(again.threshold(0.01, 2000, **asked), one.threshold(0.01, 2000, **asked))
    record = one.to_json()
    bad = [
        *(b"", b"\xff", b"[1", b"NaN", b"[]", b"3", b"{}", b'"x"', b"[" * 100_000, b'{"format": 1, "format": 1}'),
        *(json.dumps({name: record[name] for name in record if name != left}).encode() for left in record),
        *(
            json.dumps(record | change).encode()
            for change in (
                {"format": 2},
                {"best": []},
                {"best": record["best"][::-1]},
                {"best": [10**400, *record["best"]]},
                {"best": [None, *record["best"]]},
                {"best": "abc"},
                {"best": [record["best"]]},
                {"slopes": [1.0]},
                {"slopes": [-1.0] * 300},
                {"n_entries": 0},
                {"n_entries": 1.5},
                {"n_entries": True},
                {"closer": "x"},
                {"tail": ["none"]},
                {"tail": "normal", "best": [1.0] * 300},
                {"least_share": 0},
                {"least_share": 1.0},
                {"curvature": [1]},
                {"curvature": [1e300, 0.1]},
                {"curvature": [0.1, -1.0]},
                {"curvature": 3},
                {"covariate": [1, "x"]},
                {"own": 1},
                {"groups": []},
                {"groups": {"a": record}},
                {"groups": {"a": 1}},
            )
        ),
    ]
    for content in bad:
        path.write_bytes(content)
        with pytest.raises(ts.StorageError, match=r"model\.json, calibration: cannot be read: "):
            ScoreCalibration.load(path)


def cosines(entries, ids=None):
    """Return a search of unit vectors by their inner products."""

    def search(queries, k):
        scores = np.asarray(queries) @ entries.T
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(scores, best, axis=1), best if ids is None else ids[best]

    return search


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("closer", ["larger", "smaller"])
def test_a_corpus_calibrates_itself_if_the_engine_finds_fewer_hits(closer):
    """An engine that visits few cells returns 30 of 50 hits; FAISS gives the others an id of -1 and the worst float."""
    entries, sign = unit(np.random.default_rng(9).standard_normal((1000, 32))), 1 if closer == "larger" else -1

    def search(queries, k, n_found=30):
        scores, ids = cosines(entries)(queries, k)
        missing = np.arange(k) >= n_found
        return np.where(missing, sign * -np.finfo(np.float32).max, sign * scores), np.where(missing, -1, ids)

    known = ScoreCalibration.fit_corpus(search, entries, k=50, closer=closer)
    whole = ScoreCalibration.fit_corpus(lambda queries, k: search(queries, k, k), entries, k=50, closer=closer)
    assert known.n_queries == 1000
    assert known.threshold(0.01) == whole.threshold(0.01)


@pytest.mark.parametrize("n_copies", [0, 100])
def test_a_corpus_calibrates_itself_without_its_near_duplicates(n_copies):
    rng = np.random.default_rng(9)
    entries, ids = unit(rng.standard_normal((2000, 32))), rng.permutation(5000)[:2000]
    entries[:n_copies] = unit(entries[1000 : 1000 + n_copies] + 0.01 * rng.standard_normal((n_copies, 32)))
    one = ScoreCalibration.fit_corpus(cosines(entries, ids), entries, ids=ids, k=50, n_queries=1000)
    assert one.own
    assert one.n_queries == 1000
    best = (unit(rng.standard_normal((5000, 32))) @ entries.T).max(axis=1)
    for level in (0.05, 0.01):
        assert level / 3 < np.mean(one.matches(best, level)) < level + 4 * np.sqrt(level / 1000)
    with pytest.raises(ValueError, match=r"only 0% of the entries are their own best hit.* give ids="):
        ScoreCalibration.fit_corpus(cosines(entries, ids + 5000), entries, ids=ids)
    shapes = (lambda queries, k: (np.zeros((3, k)), np.zeros((2, k))), lambda queries, k: np.zeros((1000, k)))
    for search in shapes:
        with pytest.raises(ValueError, match="must return scores and ids of one shape"):
            ScoreCalibration.fit_corpus(search, entries, n_queries=1000)
    for n_entries in (0, 1):
        with pytest.raises(ValueError, match=f"vectors must hold at least two entries, got {n_entries}"):
            ScoreCalibration.fit_corpus(cosines(entries), entries[:n_entries])
    with pytest.raises(ValueError, match=r"duplicates must be in \(0, 1\], got 2"):
        ScoreCalibration.fit_corpus(cosines(entries), entries, duplicates=2)


def test_the_report_says_what_is_missed_and_draws_it(tmp_path):
    rng = np.random.default_rng(10)
    lists = STRAIGHT["normal"].lists(rng, 500)
    one = ScoreCalibration.fit(10 - lists, n_entries=N, closer="smaller")
    limit = one.threshold(0.01, 2000)
    related = limit + np.array([-1.0] * 30 + [1.0] * 10)
    with warnings.catch_warnings(action="error"):  # the picture goes on to more entries
        one.report(tmp_path / "calibration.png", n_entries=20_000)
    text = one.report(tmp_path / "calibration.png", related=related, n_entries=2000)
    assert "500 queries without a match, 1,000 entries, smaller scores are closer" in text
    assert f"threshold at a false-alarm rate of 0.01 among 2,000 entries: {limit:.6g}" in text
    assert "of 40 related queries, 10 are missed (25.0%)" in text
    found = np.stack([limit + np.array([-1.0, np.nan]), [np.nan, np.inf]])  # the last query has no hits
    text_of_two = one.report(tmp_path / "two.png", related=found, n_entries=2000)
    assert "of 2 related queries, 1 are missed (50.0%)" in text_of_two
    assert "thresholds follow a line" in text
    assert (tmp_path / "calibration.png").read_bytes().startswith(b"\x89PNG")
    kinds, known = np.arange(500) % 2, np.linspace(0, 1, 500)
    both = ScoreCalibration.fit(lists + known[:, np.newaxis], n_entries=N, groups=kinds, covariates=known)
    text = both.report(tmp_path / "groups.png", related=lists[:50] + 9, groups=kinds[:50], covariates=known[:50])
    assert (tmp_path / "groups.png").read_bytes().startswith(b"\x89PNG")
    limit = both.threshold(0.01, groups="1", covariates=known[kinds == 1].mean())
    line = f"group 1 (250 queries), threshold at a false-alarm rate of 0.01 among 1,000 entries: {limit:.6g}"
    assert line in text
    assert "group 0 (250 queries), thresholds are for a covariate of 0.499 and change by" in text
    assert "of 50 related queries, 0 are missed" in text
    with pytest.raises(ValueError, match="this calibration takes groups and covariates"):
        both.report(related=lists)


@pytest.mark.filterwarnings("ignore:.*are extrapolated from 1,000")
def test_the_picture_shows_scores_and_misses_for_the_number_of_entries(monkeypatch):
    drawn, figures, plain = [], [], Axes.hist

    def hist(axes, values, *edges, **look):
        drawn.append(values)
        return plain(axes, values, *edges, **look)

    monkeypatch.setattr(Axes, "hist", hist)
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    lists = STRAIGHT["normal"].lists(np.random.default_rng(10), 500)
    one = ScoreCalibration.fit(10 - lists, n_entries=N, closer="smaller")
    limit = one.threshold(0.01, 20_000)
    related = limit + np.array([-1.0] * 30 + [1.0] * 10)
    one.report("calibration.png", related=related, n_entries=20_000)
    assert_allclose(drawn[0], -one.grown(20_000).best)
    assert_allclose(drawn[1], related)
    left, right = figures[0].axes
    assert [text.get_text() for text in left.get_legend().get_texts()] == [
        "without a match",
        "related, 25.0% missed",
        "threshold",
    ]
    assert_allclose([line.get_xdata()[0] for line in left.lines], limit)
    sizes, levels = right.lines[0].get_data()
    assert sizes.max() == 200_000
    assert_allclose(levels, [one.threshold(0.01, size) for size in sizes.tolist()])
