"""Messages to workers carry no recipe."""

import io
import pickle

import numpy as np
import pytest

import topsign as ts

messages = pytest.importorskip("topsign.distributed.entries")


def comparison(n_queries=2):
    signals = np.random.default_rng(0).standard_normal((2000, 64)).astype(np.float32)
    recipe = ts.Index(64, n_bytes=8, random_state=7).fit(signals).recipe
    return recipe, recipe.prepare(signals, part=slice(0, n_queries))


def test_a_message_has_the_receivers_recipe_in_place_of_the_senders():
    recipe, prepared = comparison()
    other = pickle.loads(pickle.dumps(recipe))
    message = messages.pack((prepared, 3), recipe)
    received, three = messages.unpack(message, other)
    assert received.recipe is other
    assert received.scorer is other.scorer
    assert three == 3
    assert len(message) < 2048  # two queries of 64 values, and no codebook


def test_a_message_that_names_anything_else_is_refused():
    class Naming(pickle.Pickler):
        def persistent_id(self, value):
            return "index" if value == 3 else None

    file = io.BytesIO()
    Naming(file).dump((3,))
    with pytest.raises(pickle.UnpicklingError, match="'index', which workers do not hold"):
        messages.unpack(file.getvalue(), comparison()[0])
