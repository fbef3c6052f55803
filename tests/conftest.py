"""Fixtures shared by all tests."""

import signal

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from small import N_FEATURES, make_index

from topsign import kernels
from topsign.kernels import native

collect_ignore_glob = ["data/*"]  # scripts that wrote the data

# The same examples in every run, without deadlines, so that failures are reproducible on other machines.
SLOWNESS = [HealthCheck.too_slow]
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=60, suppress_health_check=SLOWNESS)
settings.load_profile("fixed")

# A shell ignores interrupts in background jobs, and tests inherit that; tests of interrupts need Python's handler.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path, config):
    """Skip modules without core tests if only core tests run, because they import packages that may be missing."""
    is_module = collection_path.name != "conftest.py" and collection_path.suffix == ".py"  # helpers for their examples
    if config.option.markexpr == "core" and is_module and "pytest.mark.core" not in collection_path.read_text("utf-8"):
        return True
    return None


@pytest.fixture(params=kernels.available())
def path(request):
    """Each kernel path that this machine can run, in turn."""
    with kernels.use(request.param) as chosen:
        yield chosen


@pytest.fixture
def small_grains():
    """Use threads for very little work, so that small cases run on several threads."""
    core = native.load_library()
    core.ts_set_grain(1.0)
    yield
    core.ts_set_grain(100e3)


@pytest.fixture
def rng():
    return np.random.default_rng(12345)


@pytest.fixture
def signals(rng):
    """60 signals of the small index."""
    return rng.standard_normal((60, N_FEATURES)).astype(np.float32)


@pytest.fixture
def filled(tmp_path, signals):
    """Folder of a small index with 40 of the signals."""
    path = tmp_path / "cameras.topsign"
    with make_index(path=path) as index:
        index.add(signals[:40], metadata=[{"n": n} for n in range(40)])
    return path
