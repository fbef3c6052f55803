"""Coverage of every interval and certificate over grids that include proportions near 0 and 1; false-alarm rates."""

import false_alarms
import intervals
import numpy as np
import pytest

pytestmark = pytest.mark.statistics


@pytest.mark.parametrize("known", intervals.KNOWN, ids=str)
@pytest.mark.parametrize("laws", intervals.LIKELIHOODS)
def test_likelihood_ratios(laws, known):
    rng = np.random.default_rng(1)
    assert intervals.likelihood_ratio_coverage(rng, laws, known, 400) >= intervals.REQUIRED


@pytest.mark.parametrize("n_queries", intervals.QUERIES)
@pytest.mark.parametrize("share", intervals.SHARES)
@pytest.mark.parametrize("law", intervals.RECALLS)
def test_recalls(law, share, n_queries):
    rng = np.random.default_rng(2)
    assert intervals.recall_coverage(rng, law, share, n_queries, 300) >= intervals.REQUIRED


@pytest.mark.parametrize("n_samples", [100, 1000, 10_000])
@pytest.mark.parametrize("rates", intervals.LOSSES, ids=str)
def test_certificates_of_heads(rates, n_samples):
    rng = np.random.default_rng(3)
    assert intervals.certificate_coverage(rng, rates, n_samples, 4000) >= intervals.REQUIRED


@pytest.mark.parametrize("code", intervals.CODES, ids=str)
@pytest.mark.parametrize("correlation", intervals.CORRELATIONS)
@pytest.mark.parametrize("scoring", ["hamming", "asymmetric"])
def test_correlations(scoring, correlation, code):
    rng = np.random.default_rng(4)
    assert intervals.correlation_coverage(rng, scoring, correlation, code, 2000) >= intervals.REQUIRED


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("own", [True, False], ids=["own signals", "impostors"])
@pytest.mark.parametrize("family", false_alarms.FAMILIES)
@pytest.mark.parametrize("law", false_alarms.LAWS)
def test_false_alarm_rates(law, family, own):
    """The conditions hold for 20 calibrations of each of three seeds, and for all of them together."""
    found = [false_alarms.simulate(law, family, own, n_calibrations=20, seed=seed) for seed in range(3)]
    assert [one.problems() for one in (*found, sum(found, false_alarms.Outcome()))] == [[]] * 4
