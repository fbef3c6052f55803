"""Coverage of intervals and certificates: short runs of the simulations in tests/statistics."""

import numpy as np
import pytest
from intervals import (
    NOMINAL,
    REQUIRED,
    certificate_coverage,
    correlation_coverage,
    likelihood_ratio_coverage,
    recall_coverage,
)
from numpy.testing import assert_allclose
from scipy.stats import beta

from topsign.evaluation.sample import share_interval


def check(coverage, n_repetitions):
    """Assert that the coverage is at least the required one, within four standard errors."""
    assert coverage >= REQUIRED - 4 * np.sqrt(REQUIRED * (1 - REQUIRED) / n_repetitions)


@pytest.mark.parametrize("laws", ["normal, 2.5 apart", "normal, 5 apart", "20% of 64 signs flip"])
def test_likelihood_ratios(laws):
    check(likelihood_ratio_coverage(np.random.default_rng(1), laws, (30, 300), 50), 50)


@pytest.mark.parametrize("law", ["all or nothing", "ten, alike within a query"])
@pytest.mark.parametrize("share", [0.5, 0.999])
def test_recalls(law, share):
    check(recall_coverage(np.random.default_rng(2), law, share, 500, 40), 40)


@pytest.mark.parametrize("rates", [(0.0005, 0.0), (0.05, 0.05)])
def test_certificates_of_heads(rates):
    check(certificate_coverage(np.random.default_rng(3), rates, 1000, 500), 500)


@pytest.mark.parametrize("scoring", ["hamming", "asymmetric"])
@pytest.mark.parametrize("correlation", [0.1, 0.99])
def test_correlations(scoring, correlation):
    check(correlation_coverage(np.random.default_rng(4), scoring, correlation, (32, 512), 200), 200)


@pytest.mark.parametrize("n_right", [0, 3, 40, 50])
def test_recalls_of_one_neighbour_have_the_limits_of_clopper_and_pearson(n_right):
    """Equal within the error of quantiles of 20,000 draws."""
    found = share_interval(np.arange(50) < n_right)
    risk = (1 - NOMINAL) / 2
    low = beta.ppf(risk, n_right, 51 - n_right) if n_right else 0.0
    high = beta.isf(risk, n_right + 1, 50 - n_right) if n_right < 50 else 1.0
    assert_allclose(found, (low, high), atol=4e-3)


def test_values_outside_0_and_1_are_refused():
    with pytest.raises(ValueError, match=r"at least one value in \[0, 1\], got 0 values"):
        share_interval([])
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        share_interval([0.5, 1.5])
