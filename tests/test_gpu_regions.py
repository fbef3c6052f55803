"""Searches for a recall on a GPU, emulated: the CPU visits regions, or the device compares all entries."""

import numpy as np
import pytest
from emulator import COMPILER, EmulatedDevice
from gpu_cases import equal_results
from numpy.testing import assert_array_equal
from small import visit_regions

import topsign as ts
from topsign import gpu

N_FEATURES, N_REGIONS = 32, 16

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="the emulator of the kernels needs g++"),
    pytest.mark.filterwarnings("ignore::topsign.errors.CalibrationWarning"),  # clusters correlate
    pytest.mark.filterwarnings("ignore:.*shrunk"),
]

FAMILIES = {
    "trellis": lambda: ts.Index(N_FEATURES, n_bytes=6, random_state=7),
    "inner_product": lambda: ts.Index(N_FEATURES, n_bytes=6, metric="inner_product", random_state=7),
    "adaptive": lambda: ts.Index(N_FEATURES, family="adaptive", n_bits=8, center=True, random_state=7),
    "grouped": lambda: ts.Index(N_FEATURES, family="grouped", n_bytes=4, random_state=7),
    "sign": lambda: ts.Index(N_FEATURES, family="sign", n_bytes=4, random_state=7),
}


@pytest.fixture(scope="module")
def device():
    return EmulatedDevice()


def clustered(n, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((20, N_FEATURES))
    return (centres[rng.integers(20, size=n)] + 0.5 * rng.standard_normal((n, N_FEATURES))).astype(np.float32)


@pytest.fixture(params=FAMILIES)
def index(request):
    """Segments whose ids interleave, equal entries in them, and removed entries."""
    index = FAMILIES[request.param]()
    signals, ids = clustered(600), np.random.default_rng(3).permutation(948)
    index.add(signals, ids=ids[:600])
    index.learn_regions(n_regions=N_REGIONS)
    index.add(np.repeat(signals[:62], 4, axis=0), ids=ids[600:848])
    index.add(signals[:100], ids=ids[848:])
    index.remove(ids[::7])
    assert len(index._store.snapshot.segments) == 3
    return index


def test_searches_visit_the_regions_that_the_processor_visits(device, index, monkeypatch):
    held = gpu.GpuIndex(index, device=device)
    queries, among = clustered(3, seed=5), index.ids[::2]
    for n_regions, options in ((3, {}), (2, {"among": among})):
        visit_regions(monkeypatch, n_regions)
        ours, theirs = (one.search(queries, 5, recall=0.9, **options) for one in (held, index))
        equal_results(ours, theirs)
        assert_array_equal(ours.visited, theirs.visited)
        assert (ours.visited < 0.5).all()


def test_a_search_for_a_recall_visits_regions(device):
    index = FAMILIES["trellis"]()
    index.add(clustered(4000))
    index.learn_regions(n_regions=64)
    query = clustered(1, seed=5)
    for memory in ({}, {"memory": 0}):
        found = gpu.GpuIndex(index, device=device, **memory).search(query, k=5, recall=0.9)
        assert found.exhaustive.tolist() == [""]
        equal_results(found, index.search(query, k=5, recall=0.9))
