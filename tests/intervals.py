"""Simulated coverage of the library's intervals and certificates, for short tests and for long simulations."""

import numpy as np

from topsign.evaluation.sample import share_interval
from topsign.heads.classifier import loss_interval
from topsign.significance import LikelihoodRatioModel
from topsign.theory import correlation_interval

NOMINAL, REQUIRED = 0.95, 0.93


def normal_laws(shift):
    """Return samplers of normal scores with equal variances, whose log-likelihood ratio is linear."""
    ratio = lambda score: shift * score - shift**2 / 2  # noqa: E731
    scores = np.array([-1.0, 0.0, shift / 2, shift, shift + 1])
    return lambda rng, n: shift + rng.standard_normal(n), lambda rng, n: rng.standard_normal(n), ratio, scores


def binomial_laws(flip, n_bits=64):
    """Return samplers of mismatches for matches with this flip probability and impostors with 1/2."""
    ratio = lambda count: count * np.log(2 * flip) + (n_bits - count) * np.log(2 * (1 - flip))  # noqa: E731
    counts = np.array([0, round(flip * n_bits), round((flip + 0.5) / 2 * n_bits), n_bits // 2])
    return lambda rng, n: rng.binomial(n_bits, flip, n), lambda rng, n: rng.binomial(n_bits, 0.5, n), ratio, counts


LIKELIHOODS = {
    **{f"normal, {shift:g} apart": (normal_laws(shift), "larger") for shift in (0.5, 1, 2.5, 5, 8)},
    **{f"{flip:.0%} of 64 signs flip": (binomial_laws(flip), "smaller") for flip in (0.02, 0.2, 0.4)},
}
KNOWN = ((10, 30), (30, 30), (30, 300), (150, 300), (10, 1000))


def likelihood_ratio_coverage(rng, laws, known, n_repetitions):
    """Return the coverage of the likelihood ratio's interval, the smallest over several scores."""
    (matches, impostors, ratio, scores), closer = LIKELIHOODS[laws]
    truth, covered, n_fitted = ratio(scores) / np.log(10), np.zeros(len(scores)), 0
    for _ in range(n_repetitions):
        given = matches(rng, known[0]), impostors(rng, known[1])
        try:
            found = LikelihoodRatioModel.fit(given[0], impostors=given[1], closer=closer).ratio(scores)
        except ValueError:  # some of the weakest samples have matches no closer than impostors, and fit refuses them
            continue
        covered += (found.low <= truth) & (truth <= found.high)
        n_fitted += 1
    assert n_fitted > 0.8 * n_repetitions
    return float(covered.min()) / n_fitted


RECALLS = {
    "all or nothing": lambda rng, p, n: (rng.random(n) < p).astype(float),
    "ten, independent": lambda rng, p, n: rng.binomial(10, p, n) / 10,
    "ten, alike within a query": lambda rng, p, n: rng.binomial(10, rng.beta(2 * p, 2 * (1 - p), n)) / 10,
    "a few queries lose all": lambda rng, p, n: (rng.random(n) < np.sqrt(p)) * rng.binomial(10, np.sqrt(p), n) / 10,
}
SHARES = (0.001, 0.01, 0.1, 0.5, 0.9, 0.98, 0.99, 0.995, 0.999)
QUERIES = (50, 200, 500, 1000)


def recall_coverage(rng, law, share, n_queries, n_repetitions):
    """Return the coverage of the recall's interval."""
    found = [share_interval(RECALLS[law](rng, share, n_queries)) for _ in range(n_repetitions)]
    return np.mean([low <= share <= high for low, high in found])


LOSSES = ((0.0, 0.0), (0.0005, 0.0), (0.001, 0.001), (0.01, 0.002), (0.05, 0.05), (0.4, 0.1), (0.99, 0.005))


def certificate_coverage(rng, rates, n_samples, n_repetitions):
    """Return the fraction of repetitions in which a head's certificate covers the true loss of accuracy."""
    lost, gained = rates
    counts = rng.multinomial(n_samples, [lost, gained, 1 - lost - gained], n_repetitions)
    found = {
        tuple(one): loss_interval(*one, n_samples=n_samples, confidence=NOMINAL)
        for one in np.unique(counts[:, :2], axis=0).tolist()
    }
    ends = [found[tuple(one)] for one in counts[:, :2].tolist()]
    return np.mean([low <= lost - gained <= high for low, high in ends])


CORRELATIONS = (-0.99, -0.5, 0.0, 0.1, 0.5, 0.9, 0.99, 0.999)
CODES = ((8, 64), (32, 512), (64, 128), (128, 8192))


def correlation_coverage(rng, scoring, correlation, code, n_repetitions):
    """Return the coverage of a correlation's interval, with a Gaussian pool by its definition."""
    n_bits, n_pool = code
    magnitudes = np.abs(rng.standard_normal((n_repetitions, n_pool)))
    kept = -np.partition(-magnitudes, n_bits - 1, axis=1)[:, :n_bits]
    noise = np.sqrt(1 - correlation**2) * rng.standard_normal(kept.shape)
    projected = correlation * kept + noise  # projections of the query, times the signs of the entry's
    observed = (projected < 0).sum(axis=1) if scoring == "hamming" else projected.sum(axis=1) / kept.sum(axis=1)
    low, high = correlation_interval(observed, n_bits=n_bits, n_pool=n_pool, scoring=scoring).T
    return np.mean((low <= correlation) & (correlation <= high))
