"""Fixtures shared by all tests."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from numpy_kernels import PATHS, use_path

collect_ignore_glob = ["data/*"]  # programs that wrote the data

# The same examples in every run, however slow the machine: a failure here is a failure everywhere.
SLOWNESS = [HealthCheck.too_slow]
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=60, suppress_health_check=SLOWNESS)
settings.load_profile("fixed")


def pytest_ignore_collect(collection_path, config):
    """Leave out modules without core tests if only those run: others import packages that may not be installed."""
    is_module = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    if config.option.markexpr == "core" and is_module and "pytest.mark.core" not in collection_path.read_text("utf-8"):
        return True
    return None


@pytest.fixture(params=PATHS)
def path(request):
    """The kernels of each path that this machine can run, and those in NumPy, one after another."""
    with use_path(request.param) as chosen:
        yield chosen


@pytest.fixture
def rng():
    return np.random.default_rng(12345)
