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


# Modules that `make test-fast` leaves out: clusters, faults, simulations, pages, models, whole programs.
SLOW = {
    "test_benchmarks",
    "test_calibration",
    "test_distributed",
    "test_docs",
    "test_durable",
    "test_evaluate",
    "test_gpu",
    "test_gpu_trellis",
    "test_hardening",
    "test_hardening_files",
    "test_heads",
    "test_index_batches",
    "test_index_simulation",
    "test_inference",
    "test_language_models",
    "test_law",
    "test_memory",
    "test_nn",
    "test_nn_export",
    "test_packaging",
    "test_notebooks",
    "test_pairs",
    "test_reference",
    "test_reproduce",
    "test_theory_simulation",
    "test_trellis_index",
}


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.stem in SLOW:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=PATHS)
def path(request):
    """The kernels of each path that this machine can run, and those in NumPy, one after another."""
    with use_path(request.param) as chosen:
        yield chosen


@pytest.fixture
def rng():
    return np.random.default_rng(12345)
