"""Encoders of all families have the same methods and agree with indexes that have the same recipe."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError

import topsign as ts
from topsign.index import Index

ENCODERS = {
    "adaptive": lambda: ts.Encoder(family="adaptive", n_bits=12, random_state=7),
    "centred": lambda: ts.Encoder(family="adaptive", n_bits=12, center=True, random_state=7),
    "trellis": lambda: ts.Encoder(n_bytes=6, random_state=7),
    "grouped": lambda: ts.Encoder(family="grouped", n_bytes=2, random_state=7),
    "sign": lambda: ts.Encoder(32, family="sign", random_state=7),
    "hadamard": lambda: ts.Encoder(n_bytes=6, basis="hadamard", center=False, random_state=7),
}


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
    index = Index.from_recipe(encoder.recipe_)
    index.add(signals)
    assert index.get(index.ids).codes == codes
    assert_allclose(index.project(signals[:5]), projected)
