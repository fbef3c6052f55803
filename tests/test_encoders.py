"""Encoders of all families have the same methods and agree with indexes that have the same recipe."""

import inspect

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError

import topsign as ts
from topsign.index import index_for

ENCODERS = {
    "adaptive": lambda: ts.AdaptiveEncoder(n_bits=12, random_state=7),
    "centred": lambda: ts.AdaptiveEncoder(n_bits=12, center=True, random_state=7),
    "trellis": lambda: ts.TrellisEncoder(6, random_state=7),
    "hadamard": lambda: ts.TrellisEncoder(6, basis="hadamard", center=False, random_state=7),
}


def public(kind):
    return {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}


def test_encoders_have_the_same_public_methods():
    adaptive, trellis = public(ts.AdaptiveEncoder), public(ts.TrellisEncoder)
    assert set(adaptive) == set(trellis)
    assert set(adaptive) >= {"fit", "encode", "decode", "project", "as_projected", "transform", "to"}
    for name, member in adaptive.items():
        if callable(member):
            ours, theirs = inspect.signature(member), inspect.signature(trellis[name])
            assert list(ours.parameters) == list(theirs.parameters), name
            assert inspect.getdoc(member), name
            assert inspect.getdoc(trellis[name]), name


@pytest.mark.parametrize("name", ENCODERS)
def test_every_method_works_for_every_family(rng, name):
    signals = (rng.standard_normal((700, 32)) + 0.3).astype(np.float32)
    encoder = ENCODERS[name]()
    for method in (encoder.encode, encoder.project, encoder.transform, encoder.decode, encoder.as_projected):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            method(signals)
    codes = encoder.fit(signals).encode(signals)
    assert codes.recipe is encoder.recipe_
    assert_array_equal(encoder.decode(codes), codes.decode())
    assert codes.decode().shape == signals.shape
    projected = encoder.project(signals[:5])
    assert_array_equal(codes.scores(encoder.as_projected(np.asarray(projected))), codes.scores(projected))
    assert codes.scores(projected).shape == (5, 700)
    assert len(encoder.transform(signals).shape) == 2
    assert len(encoder.get_feature_names_out()) == encoder.transform(signals[:2]).shape[1]
    other = ENCODERS[name]().set_params(random_state=8).fit(signals)
    with pytest.raises(ValueError, match="these codes were made with another recipe"):
        other.decode(codes)
    index = index_for(encoder.recipe_)
    index.add(signals)
    assert index.get(index.ids).codes == codes
    assert_allclose(index.project(signals[:5]), projected)
