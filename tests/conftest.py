"""Fixtures shared by all tests."""

import numpy as np
import pytest
from hypothesis import settings

from topsign import kernels

# The same examples in every run: a failure here is a failure everywhere.
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("fixed")


@pytest.fixture(params=kernels.available())
def path(request):
    """The kernels of every path this machine can run, one after another."""
    with kernels.use(request.param) as chosen:
        yield chosen


@pytest.fixture
def rng():
    return np.random.default_rng(12345)
