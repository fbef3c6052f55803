"""Likelihood ratios: correct for known distributions, smooth, monotone and bounded; thresholds and plots."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from topsign import plots
from topsign.significance import LikelihoodRatioModel, likelihood_ratios

# For two normal distributions with equal variances the log-likelihood ratio is linear: 2.5 x - 3.125 (natural log).
SHIFT = 2.5


def ratios(rng, n_matches, n_impostors, observed, **options):
    impostors = rng.standard_normal(n_impostors)
    matches = SHIFT + rng.standard_normal(n_matches)
    return LikelihoodRatioModel.fit(matches, impostors=impostors, **options).ratio(observed)


def test_ratios_are_those_of_the_laws():
    observed = np.linspace(-0.5, 3, 8)
    truth = (SHIFT * observed - SHIFT**2 / 2) / np.log(10)
    found = ratios(np.random.default_rng(1), 4000, 4000, observed)
    assert_allclose(found.log10, truth, atol=0.15)
    assert ((found.low < found.log10) & (found.log10 < found.high)).all()


def test_ratios_are_monotone_and_bounded_by_the_data():
    rng = np.random.default_rng(3)
    impostors = rng.standard_normal(500)
    model = LikelihoodRatioModel.fit(20 + rng.standard_normal(30), impostors=impostors)
    found = model.ratio(np.linspace(-50, 50, 400))
    assert (np.diff(found.log10) >= 0).all()
    assert_allclose([found.log10.min(), found.log10.max()], [-np.log10(31), np.log10(501)])
    # Distributions so far apart bound the evidence for a match from below but not from above.
    assert (found.low <= found.log10).all()
    assert (found.log10 <= found.high).all()
    assert (found.low[-1], found.high[-1]) == (np.log10(501), np.inf)
    assert (found.low[0], found.high[0]) == (-np.inf, -np.log10(31))


def test_smaller_may_be_closer():
    rng = np.random.default_rng(4)
    impostors, matches = rng.standard_normal(300), SHIFT + rng.standard_normal(100)
    larger = LikelihoodRatioModel.fit(matches, impostors=impostors).ratio([0.0, 2.0])
    smaller = LikelihoodRatioModel.fit(-matches, impostors=-impostors, closer="smaller").ratio([0.0, -2.0])
    assert_allclose(larger.log10, smaller.log10)


def test_swapped_matches_and_impostors_are_refused(tmp_path):
    rng = np.random.default_rng(8)
    known, others = SHIFT + rng.standard_normal(50), rng.standard_normal(400)
    words = r"closer than known impostors, but only \d% of the pairs .* swap them back, .* pass closer="
    with pytest.raises(ValueError, match=words):
        LikelihoodRatioModel.fit(known, impostors=others, closer="smaller")
    with pytest.raises(ValueError, match=words):
        LikelihoodRatioModel.fit(others, impostors=known)
    with pytest.raises(ValueError, match=words):
        plots.plot_tippett(others, known, tmp_path / "tippett.png")
    with pytest.raises(ValueError, match=words):
        plots.plot_det(known, others, tmp_path / "det.png", closer="smaller")
    assert not list(tmp_path.iterdir())


def test_many_scores_give_the_same_line_as_all_of_them():
    """Scores between the extremes are condensed to bin means; the line changes by less than its standard error."""
    rng = np.random.default_rng(10)
    matches, impostors, at = SHIFT + rng.standard_normal(5000), rng.standard_normal(50_000), np.linspace(0, 3, 7)
    found = LikelihoodRatioModel.fit(matches, impostors=impostors).ratio(at)
    assert_allclose(found.log10, (SHIFT * at - SHIFT**2 / 2) / np.log(10), atol=0.05)


def test_condensed_scores_keep_their_ends_and_their_number():
    values = np.arange(1000.0)
    kept, counts = likelihood_ratios._condensed(values[::-1])
    assert (len(kept), counts.sum()) == (240, 1000)  # 40 at each end, and 160 means of bins
    assert_array_equal(kept[:40], values[:40])
    assert_array_equal(kept[-40:], values[-40:])
    assert counts[[0, 39, 200, 239]].tolist() == [1, 1, 1, 1]
    assert set(counts[40:200].tolist()) == {5, 6}
    assert_allclose(counts @ kept, values.sum())
    assert_array_equal(likelihood_ratios._condensed(values[:240])[0], values[:240])


def test_an_end_is_infinite_only_beyond_300():
    ends = [300.0, np.nextafter(300.0, 301)]
    for end in ends:
        region = np.log(10) * np.array([[-end, 0.0], [end, 0.0], [0.0, 0.0]])
        model = LikelihoodRatioModel(0.0, 1.0, np.zeros(2), region, 0.95, 9, 9, "larger")
        found = model.ratio(0.0)
        largest = (region[:, 0] / np.log(10)).max()
        assert found.high == (largest if largest <= 300 else np.inf)
        assert found.low == -found.high
    assert (np.log(10) * 300.0) / np.log(10) == 300.0, "the first end is exactly the limit"


def test_lines_of_kinds_that_do_not_overlap_stay_finite():
    """Without Platt's targets the iteration, with steps of at most 4, stops once the line is steeper than 100."""
    values = np.array([-0.1, -0.09, 0.09, 0.1])
    scores = likelihood_ratios._Scores(values, np.ones(4), values > 0)
    line, _ = scores.fit(platt=False)
    assert 100 < np.abs(line).max() <= 104
    line, _ = scores.fit(platt=True)
    assert np.abs(line).max() < 40


def test_the_region_ends_where_the_likelihood_has_dropped():
    rng = np.random.default_rng(12)
    values = np.concatenate([1 + rng.standard_normal(60), rng.standard_normal(90)])
    scores = likelihood_ratios._Scores(values, np.ones(150), np.arange(150) < 60)
    line, information = scores.fit(platt=True)
    best, _ = scores.fit(platt=False)
    drops = scores.log_likelihood(best[np.newaxis])[0] - scores.log_likelihood(
        scores.region(line, information, drop=3.0)
    )
    assert ((drops >= 3.0) & (drops < 3.01)).all()  # the bisection of 12 steps ends slightly outside


def test_bad_matches_raise():
    with pytest.raises(ValueError, match="matches must be at least two finite scores, got 1"):
        LikelihoodRatioModel.fit([1.0], impostors=[0.0, 1.0])
    for confidence in (0, 1):
        with pytest.raises(ValueError, match="confidence must lie in"):
            LikelihoodRatioModel.fit([1.0, 2.0], impostors=[0.0, 1.0], confidence=confidence)


def test_plots_are_drawn(tmp_path):
    rng = np.random.default_rng(7)
    known, others = 2 + rng.standard_normal(100), rng.standard_normal(400)
    plots.plot_tippett(known, others, tmp_path / "tippett.png")
    plots.plot_det(known, others, tmp_path / "det.png")
    plots.plot_det(known + 100, others, tmp_path / "apart.png")
    for name in ("tippett", "det", "apart"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
