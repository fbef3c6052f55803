"""Regions on a GPU without one: the kernels run by this processor visit what its own kernels visit."""

import numpy as np
import pytest
from emulator import COMPILER, EmulatedDevice
from gpu_cases import equal_results
from numpy.testing import assert_array_equal

import topsign as ts
from topsign import gpu
from topsign.families import Visits
from topsign.gpu import GpuEngine, chunks
from topsign.gpu.scan import Tuning
from topsign.search import ENGINE, visiting

N_FEATURES, N_REGIONS = 32, 16
SMALL = Tuning(sample=64, first=128, candidate_bytes=1, waves=1)  # several scans of each part

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="the emulator of the kernels needs g++"),
    pytest.mark.filterwarnings("ignore::topsign.errors.CalibrationWarning"),  # clusters correlate
    pytest.mark.filterwarnings("ignore:.*shrunk"),
]

FAMILIES = {
    "trellis": lambda: ts.TrellisIndex(n_features=N_FEATURES, n_bytes=6, random_state=7),
    "local": lambda: ts.TrellisIndex(
        n_features=N_FEATURES, n_bytes=6, n_local=2, norms=True, metric="inner_product", random_state=7
    ),
    "adaptive": lambda: ts.AdaptiveIndex(n_features=N_FEATURES, n_bits=8, center=True, random_state=7),
    "sign": lambda: ts.SignIndex(n_features=N_FEATURES, random_state=7),
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
    index.learn_regions(N_REGIONS)
    index.add(np.repeat(signals[:62], 4, axis=0), ids=ids[600:848])
    index.add(signals[:100], ids=ids[848:])
    index.remove(ids[::7])
    assert len(index.store.snapshot.segments) == 3
    return index


def some_visits(index, n_queries):
    """Some regions for each query at random: none for the first, all for the second."""
    rng = np.random.default_rng(0)
    chosen = [rng.permutation(N_REGIONS)[: rng.integers(1, 5)].astype(np.int32) for _ in range(n_queries)]
    chosen[:2] = np.empty(0, np.int32), np.arange(N_REGIONS, dtype=np.int32)
    ranges = index._learned().regional.regions().order.ranges(index.store.snapshot)
    return Visits(ranges, np.append(0, np.cumsum([len(one) for one in chosen])), np.concatenate(chosen))


def equal_hits(ours, theirs):
    for name in ("queries", "rows", "ids", "values"):
        assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name, strict=True)


@pytest.mark.parametrize("k", [1, 7, 3000])
def test_visits_find_what_the_processor_finds(device, monkeypatch, index, k):
    monkeypatch.setattr(chunks, "CHUNK", 256)
    monkeypatch.setattr("topsign.gpu.engine.MAX_QUERIES", 3)
    snapshot, queries = index.store.snapshot, clustered(5, seed=5)
    visits = some_visits(index, len(queries))
    for memory in (2**34, 0):
        engine = GpuEngine(device, index.recipe, memory=memory, tuning=SMALL)
        engine.chunks.keep(snapshot)
        for scoring in index.recipe.scorings:
            comparison = index.recipe.prepare(queries, scoring=scoring)
            expected = ENGINE.visit(comparison, snapshot, visits, k, n_threads=1)
            assert len(expected) >= 4 * min(k, 100)
            equal_hits(engine.visit(comparison, snapshot, visits, k, n_threads=1), expected)


def test_searches_visit_regions_on_the_device(device, monkeypatch, index):
    held = gpu.GpuIndex(index, device=device)
    queries, among = clustered(3, seed=5), index.ids[::2]
    for options in ({"probes": 3}, {"probes": 2, "among": among}, {"recall": 0.9}):
        ours, theirs = held.search(queries, k=5, **options), index.search(queries, k=5, **options)
        equal_results(ours, theirs)
        assert_array_equal(ours.visited, theirs.visited)
        assert (ours.visited < 0.5).all() == ("probes" in options)


def test_a_search_for_a_recall_visits_regions_if_that_takes_less_time(device, monkeypatch):
    for name in ("CALL_COST", "QUERY_COST", "REGION_COST"):
        monkeypatch.setattr(visiting, name, 0.0)
    index = FAMILIES["trellis"]()
    index.add(clustered(4000))
    index.learn_regions(64)
    held, query = gpu.GpuIndex(index, device=device), clustered(1, seed=5)
    assert held.search(query, k=5, recall=0.9).exhaustive.tolist() == [visiting.FASTER]
    monkeypatch.setattr("topsign.gpu.engine.VISIT_COST", 0.0)
    found = held.search(query, k=5, recall=0.9)
    assert found.exhaustive.tolist() == [""]
    equal_results(found, index.search(query, k=5, recall=0.9))
    streamed = gpu.GpuIndex(index, device=device, memory=0)  # the processor visits what is not on the device
    equal_results(streamed.search(query, k=5, recall=0.9), found)
