"""Signals from other libraries give the same results as NumPy arrays, and results are NumPy arrays."""

import numpy as np
import pyarrow
import pytest
import torch
from numpy.testing import assert_array_equal

import topsign as ts
from topsign.projections import Projected


class OnlyArray:
    """Object with ``__array__``."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return self.values if dtype is None else self.values.astype(dtype)


class OnlyDLPack:
    """Object with only the DLPack protocol."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


def fixed_lists(values):
    return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values.ravel()), values.shape[1])


FORMS = {
    "torch": torch.from_numpy,
    "torch with gradients": lambda values: torch.from_numpy(values).requires_grad_(),
    "arrow lists": lambda values: pyarrow.array(list(values)),
    "arrow fixed-size lists": fixed_lists,
    "a slice of arrow lists": lambda values: fixed_lists(np.vstack([values[:1], values]))[1:],
    "arrow chunks": lambda values: pyarrow.chunked_array([fixed_lists(values[:3]), fixed_lists(values[3:])]),
    "__array__": OnlyArray,
    "dlpack": OnlyDLPack,
    "nested lists": lambda values: values.tolist(),
}


@pytest.fixture
def signals(rng):
    return rng.standard_normal((20, 64)).astype(np.float32)


@pytest.mark.parametrize("form", FORMS)
def test_the_same_answers_from_every_form(signals, form):
    given = FORMS[form](signals)
    projection = ts.make_projection("hadamard", n_features=64, random_state=7)
    assert_array_equal(projection.apply(given), projection.apply(signals))
    encoder = ts.Encoder(64, family="adaptive", n_bits=8, random_state=7, center=True).fit(given)
    plain = ts.Encoder(signals.shape[1], family="adaptive", n_bits=8, random_state=7, center=True).fit(signals)
    assert encoder.encode(given) == plain.encode(signals)
    assert type(encoder.project(given)) is Projected  # an ndarray that carries its projection
    assert type(encoder.transform(given).toarray()) is np.ndarray
    assert_array_equal(encoder.project(given), plain.project(signals))
    for kind in (ts.SignEmbedding, ts.UniversalEmbedding):
        assert_array_equal(
            kind(16, random_state=7).fit_transform(given), kind(16, random_state=7).fit_transform(signals)
        )
    adaptive = ts.AdaptiveEmbedding(n_bits=8, random_state=7).fit(signals[0])
    assert_array_equal(adaptive.transform(given), adaptive.transform(signals))
    index = ts.Index(64, family="adaptive", n_bits=8, random_state=7)
    index.add(given)
    assert_array_equal(index.search(given, k=1).ids[:, 0], range(20))
    assert_array_equal(ts.query_bits(FORMS[form](plain.project(signals))), ts.query_bits(plain.project(signals)))


def test_a_tensor_is_not_copied():
    from topsign._checks import as_signals

    tensor = torch.zeros(3, 4)
    assert np.shares_memory(as_signals(tensor), tensor.numpy())
    lists = fixed_lists(np.zeros((3, 4), np.float32))
    assert np.shares_memory(as_signals(lists), np.asarray(lists.flatten()))


def test_unreadable_signals_are_refused_with_a_reason():
    projection = ts.make_projection("hadamard", n_features=2, random_state=7)
    with pytest.raises(TypeError, match=r"signals of type Tensor cannot be read as a NumPy array: .*BFloat16.*float32"):
        projection.apply(torch.zeros(3, 2, dtype=torch.bfloat16))
    with pytest.raises(TypeError, match="signals of type Tensor cannot be read as a NumPy array"):
        projection.apply(torch.zeros(3, 2, device="meta"))
    with pytest.raises(ValueError, match="signals must be lists of one length, got lengths 1 to 2"):
        projection.apply(pyarrow.array([[1.0, 2.0], [1.0]]))
    with pytest.raises(ValueError, match="signals must be lists of one length, got lengths 1 to 2"):
        projection.apply(pyarrow.chunked_array([[[1.0, 2.0]], [[1.0]]]))
    for lists in ([[1.0, None]], [[1.0, 2.0], None]):
        with pytest.raises(ValueError, match="signals have empty cells"):
            projection.apply(pyarrow.array(lists))
    with pytest.raises(TypeError, match="signals must be real numbers"):
        projection.apply(pyarrow.array([["a", "b"]]))
