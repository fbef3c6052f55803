"""Heads of grouped and trellis codes: unbiased logits, equal results as classifier, layer and file, bad options."""

import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import topsign as ts
from topsign.families import GroupedRecipe, TrellisRecipe
from topsign.heads import advice
from topsign.heads.advice import SizeWarning
from topsign.nn import CompressedLinear, compress
from topsign.paper.heads import load_cifar10_head


@pytest.fixture
def weights(rng):
    return (rng.standard_normal((60, 96)) * rng.uniform(0.5, 2, (60, 1))).astype(np.float32)


def head_of(weights, rng, **options):
    biases = rng.standard_normal(len(weights))
    return ts.Head.from_weights(weights, biases=biases, family="trellis", random_state=7, **{"n_bytes": 12} | options)


@pytest.mark.parametrize("projection", ["hadamard", "principal"])
def test_logits_are_those_of_reconstructions(rng, weights, projection):
    X = rng.standard_normal((40, 96)).astype(np.float32)
    with pytest.warns(UserWarning, match="shrunk") if projection == "principal" else _nothing():
        head = head_of(weights, rng, basis=projection)
    exact = X @ head.recipe.weight_coding().decode(head.codes).T + head.biases
    error = np.abs(head.logits(X) - exact).max() / np.abs(exact).max()
    assert error < 1e-3  # inputs are rounded to 16 bits
    assert np.corrcoef(head.logits(X).ravel(), (X @ weights.T + head.biases).ravel())[0, 1] > 0.8
    best = head.topk(X, 7)
    order = np.argsort(-head.logits(X), axis=1, kind="stable")[:, :7]
    assert_array_equal(best.indices, order)
    assert_allclose(best.values, np.take_along_axis(head.logits(X), order, axis=1), rtol=1e-6)
    assert head.nbytes == len(weights) * (12 + 2 + 8) + head.recipe.shared_nbytes


def _nothing():
    import contextlib

    return contextlib.nullcontext()


@pytest.mark.parametrize("family", [GroupedRecipe, TrellisRecipe])
def test_estimates_have_no_bias(rng, family):
    """The mean estimate of one logit over bases is within four standard errors."""
    weights, x = rng.standard_normal((1, 64)).astype(np.float32), rng.standard_normal((1, 64)).astype(np.float32)
    found = []
    for seed in range(60):
        coding = family.for_weights(weights, n_bytes=4, random_state=seed).weight_coding()
        found.append(float(coding.decode(coding.encode(weights))[0] @ x[0]))
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found) - float(weights[0] @ x[0])) < 4 * error + 1e-3 * np.linalg.norm(weights) * 8


def test_classifiers_layers_and_files_agree(rng, weights, tmp_path):
    X = rng.standard_normal((9, 96)).astype(np.float32)
    weights[5] = 0
    head = head_of(weights, rng, link="softmax")
    assert_allclose(head.logits(X)[:, 5], head.biases[5])  # the score of a zero vector is its bias
    head.save(tmp_path / "head.npz")
    again = ts.Head.load(tmp_path / "head.npz")
    assert_array_equal(again.logits(X), head.logits(X))
    assert_array_equal(again.predict_proba(X), head.predict_proba(X))
    classifier = ts.CompressedLinearClassifier.from_head(head)
    assert_array_equal(classifier.decision_function(X), head.logits(X))
    layer = CompressedLinear.from_head(head)
    assert_allclose(layer(torch.from_numpy(X)).numpy(), head.logits(X), rtol=1e-5, atol=1e-5)
    assert_array_equal(layer.topk(torch.from_numpy(X), 5).indices.numpy(), head.topk(X, 5).indices)
    assert_array_equal(layer.to_head().codes, head.codes)
    other = CompressedLinear(96, 60, family="trellis", n_bytes=12)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(torch.from_numpy(X)), layer(torch.from_numpy(X)))
    short = head.with_shortlist(10, weights)
    exact = X @ weights.T + head.biases
    assert_allclose(short.topk(X, 1).values[:, 0], np.take_along_axis(exact, short.topk(X, 1).indices, 1)[:, 0], 1e-5)


def test_layers_and_classifiers_are_compressed(rng, weights):
    X = rng.standard_normal((50, 96)).astype(np.float32)
    linear = torch.nn.Linear(96, 60)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(weights))
    layer = compress(linear, family="trellis", n_bytes=48, random_state=7)
    exact = linear(torch.from_numpy(X)).detach()
    assert (layer(torch.from_numpy(X)).argmax(1) == exact.argmax(1)).float().mean() > 0.9
    small = ts.CompressedLinearClassifier.from_weights(weights, family="trellis", n_bytes=48, random_state=7)
    assert np.mean(small.predict(X) == (X @ weights.T).argmax(1)) > 0.9
    with pytest.warns(UserWarning, match="shrunk"):
        ts.CompressedLinearClassifier.from_weights(weights, family="trellis", n_bytes=12, basis="principal")


@pytest.mark.parametrize("family", [GroupedRecipe, TrellisRecipe])
def test_the_automatic_size_is_predicted_from_weights(family):
    """The prediction is within 3 points of the measured agreement of the CIFAR-10 head, mean of 3 seeds."""
    head, name = load_cifar10_head(), family.family
    features = head.features[::4]
    exact = (features @ head.weights.T).argmax(axis=1)

    def error(n_bytes):
        recipe = family.for_weights(head.weights, n_bytes=n_bytes, random_state=0)
        return recipe.weight_coding().error(head.weights)

    predicted = advice.simulated_agreement(head.weights, error)
    for n_bytes in (8, 16, 64):
        options = {"family": name, "n_bytes": n_bytes}
        small = [ts.Head.from_weights(head.weights, random_state=seed, **options) for seed in range(3)]
        measured = np.mean([one.predict(features) == exact for one in small])
        assert abs(predicted(n_bytes) - measured) < 0.03
    auto = ts.CompressedLinearClassifier.from_weights(head.weights, family=name, random_state=7)
    assert auto.choice_.basis == "theory"
    assert auto.choice_.reached
    sizes, size = family.weight_sizes(1024), auto.choice_.size
    assert auto.head_.codes.shape[1] == size + 2
    assert predicted(sizes[sizes.index(size) - 1]) < 0.99 <= predicted(size) == auto.choice_.agreement
    whole = ts.Head.from_weights(head.weights, family=name, random_state=7)
    assert_array_equal(whole.codes, auto.head_.codes)
    linear = torch.nn.Linear(1024, 10, bias=False)
    linear.weight.data = torch.from_numpy(np.array(head.weights, np.float32))
    assert compress(linear, family=name, random_state=7).recipe.n_bytes == size
    assert compress(linear, family=name, shortlist=3, random_state=7).recipe.n_bytes < size


@pytest.mark.parametrize("projection", ["hadamard", "principal"])
def test_the_automatic_size_is_measured_where_there_are_data(rng, weights, projection):
    from sklearn.linear_model import LogisticRegression

    y = np.repeat(np.arange(20), 40)
    X = 3 * weights[y] + rng.standard_normal((800, 96)) * 6
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "axes of 96 features")
        auto = ts.CompressedLinearClassifier(
            LogisticRegression(max_iter=50), family="trellis", basis=projection, random_state=7
        ).fit(X, y)
    assert auto.choice_.basis == "data"
    assert auto.choice_.agreement == np.mean(auto.predict(X) == auto.estimator_.predict(X)) >= 0.99
    assert auto.choice_.size == auto.head_.recipe.n_bytes in TrellisRecipe.weight_sizes(96)
    assert auto.head_.recipe.projection.kind == projection


def test_heads_for_which_no_size_will_do_are_warned_of(rng):
    alike = rng.standard_normal(64) + 0.01 * rng.standard_normal((200, 64))
    with pytest.warns(SizeWarning, match=r"found no size that reaches 99% agreement: the best, n_bytes=32, "):
        head = ts.Head.from_weights(alike, family="trellis", random_state=7)
    assert head.recipe.n_bytes == 32


def test_incompatible_options_raise(rng, weights):
    for family, options, words in [
        ("trellis", {"n_bytes": 12, "n_pool": 200}, "trellis codes have n_bytes, got n_pool"),
        ("grouped", {"n_bits": 96, "n_pool": 200}, "grouped codes have n_bytes, got n_bits and n_pool"),
        ("grouped", {"n_bytes": 0}, "n_bytes must be at least 1, got 0"),
        ("grouped", {"bits_per_weight": 0.1}, "at least 3 bytes, two of them its scale"),
        ("adaptive", {"bits_per_weight": 0.25}, "n_bytes must be at least"),
    ]:
        with pytest.raises(ValueError, match=words):
            ts.Head.from_weights(weights, family=family, **options)
    with pytest.raises(ValueError, match="family must be one of"):
        ts.Head.from_weights(weights, family="plain")
    with pytest.raises(ValueError, match="no signs to compare"):
        ts.CompressedLinearClassifier.from_weights(weights, family="trellis", n_bytes=12, scoring="hamming")
