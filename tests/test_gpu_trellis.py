"""Trellis codes on a GPU without one: tables as they are read, and the kernels run by this processor."""

import dataclasses

import numpy as np
import pytest
from emulator import COMPILER, EmulatedDevice
from numpy.testing import assert_array_equal

import topsign as ts
from topsign import gpu, kernels
from topsign.gpu import pieces
from topsign.gpu.best import BestSearch
from topsign.gpu.heads import TrellisHeadScanner
from topsign.gpu.rings import RoundedOnDevice, TrellisFormat, coordinate_table
from topsign.gpu.scan import Part, Tuning
from topsign.gpu.trellis import FewScanner, LevelScanner
from topsign.heads.queries import encode_weights, rounded_inputs
from topsign.heads.recipes import trellis_recipe
from topsign.heads.scores import TrellisScores
from topsign.kernels import RoundedQueries, TrellisEntries
from topsign.kernels.tables import trellis_levels
from topsign.learning import learn_recipe

SMALL = Tuning(first=128, growth=2, largest=256)
CROWDED = Tuning(first=128, candidate_bytes=1)  # scans take more codes than there is room for

emulated = pytest.mark.skipif(COMPILER is None, reason="the emulator of the kernels needs g++")


@pytest.fixture(scope="module")
def device():
    return EmulatedDevice()


def some_codes(n_features, n_bits, window, n_codes, rng):
    recipe = learn_recipe(
        np.empty((0, n_features), np.float32), n_bits=n_bits, basis="hadamard", center=False, window=window, norms=True
    )
    tables = recipe.cells[0].tables
    codes = rng.integers(0, 256, (n_codes, tables.code_bytes), np.uint8)
    codes[:, -1] = 0x80
    return tables, codes


@pytest.mark.parametrize(("n_features", "n_bits", "window"), [(70, 75, 10), (384, 192, 12), (20, 333, 4), (300, 40, 8)])
def test_tables_of_coordinates_give_the_levels(rng, n_features, n_bits, window):
    """What trellis.cuh does, in NumPy."""
    tables, codes = some_codes(n_features, n_bits, window, 20, rng)
    bits = np.unpackbits(codes, axis=1)[:, :n_bits]
    around = np.take(bits, np.arange(-(-(n_bits + window - 1) // 32) * 32) % n_bits, axis=1)
    words = np.packbits(around, axis=1).view(">u4").astype(np.uint64)
    words = np.concatenate([words, np.zeros_like(words[:, :1])], axis=1)
    places, scrambling = coordinate_table(tables).astype(np.uint64).T
    at, shift = (places & np.uint64(0x7FFFFFFF)) >> np.uint64(5), places & np.uint64(31)
    windows = (words[:, at] << np.uint64(32) | words[:, at + np.uint64(1)]) << shift >> np.uint64(32)
    windows &= np.uint64(0xFFFFFFFF << 32 - window & 0xFFFFFFFF)
    levels = trellis_levels()[(windows * scrambling + scrambling & np.uint64(0xFFFFFFFF)) >> np.uint64(25)]
    assert_array_equal(levels[:, :n_features], kernels.active().trellis_decode(tables, codes))
    turns = places.reshape(-1, 4) >> np.uint64(31)
    changes = np.diff(at.astype(np.int64), prepend=0).reshape(-1, 4).any(axis=1)
    assert_array_equal(turns.astype(bool), np.repeat(changes[:, np.newaxis], 4, axis=1))


N_FEATURES, N_BYTES = 140, 70  # one of 560 bits is for the cell; the same in all tests: kernels are compiled once


def watch(monkeypatch, owner, name):
    """What a method returns from now on."""
    returned, method = [], getattr(owner, name)

    def called():
        returned.append(method())
        return returned[-1]

    monkeypatch.setattr(owner, name, called)
    return returned


@emulated
@pytest.mark.slow
@pytest.mark.parametrize(("n_queries", "scanner", "waits"), [(3, FewScanner, True), (17, LevelScanner, False)])
def test_the_kernels_find_what_the_processor_finds(device, rng, monkeypatch, n_queries, scanner, waits):
    n_codes = 400 if waits else 200
    tables, codes = some_codes(N_FEATURES, 8 * N_BYTES - 1, 10, n_codes, rng)
    codes[100:180] = codes[:80]  # ties
    alive = np.packbits(rng.random(n_codes) < 0.7, bitorder="little")
    words = np.append(alive, np.zeros(-len(alive) % 4, np.uint8)).view(np.uint32)
    values = rng.integers(-127, 128, (n_queries, N_FEATURES), np.int8)
    scales, constants = rng.uniform(1e-4, 1, (2, n_queries)).astype(np.float32)
    queries = RoundedQueries(values, scales, constants)
    falling, _ = kernels.active().trellis_search(TrellisEntries(tables, codes, True), queries, n_codes)
    codes = codes[falling[0, ::-1]]  # the best ones last, so that all are candidates of the first query
    form = TrellisFormat(device, tables)
    rings = form.load(codes, norms=True)
    assert_array_equal(rings.weights, kernels.active().trellis_weights(tables, codes))
    positions, scores = kernels.active().trellis_search(TrellisEntries(tables, codes, True, alive), queries, 5)
    search = BestSearch(device, form, n_queries, 5, n_codes, waits=waits, tuning=CROWDED if waits else SMALL)
    assert isinstance(search.scanner, scanner)
    overflows = watch(monkeypatch, search, "_overflows")
    search.start(RoundedOnDevice.put(device, queries))
    search.scan(Part(rings, rings.with_norms, None, words))
    assert any(overflows) == waits
    assert_array_equal(search.positions, positions)
    assert_array_equal(search.scores, scores)


@emulated
@pytest.mark.slow
@pytest.mark.parametrize(
    ("spread", "fine"),
    [(np.geomspace(1, 0.3, N_FEATURES), False), (np.where(np.arange(N_FEATURES) < 3, 1, 0.03), True)],
)
def test_an_index_on_the_device_answers_as_the_index(device, monkeypatch, spread, fine):
    monkeypatch.setattr(pieces, "PIECE", 64)
    monkeypatch.setattr("topsign.gpu.trellis_engine.MANY_CELLS", SMALL)
    signals = np.random.default_rng(0).standard_normal((200, N_FEATURES)) * spread
    sizes = {"n_features": N_FEATURES, "n_bytes": N_BYTES, "n_local": 2}
    with pytest.warns(UserWarning, match="shrunk"):
        index = ts.TrellisIndex(**sizes, metric="inner_product", norms=True, random_state=7).fit(signals)
    assert all(design.fine == fine for design in index.recipe.designs)
    index.add(signals[:90])
    index.add(np.repeat(signals[90:95], 4, axis=0), ids=np.arange(20)[::-1] * 3 + 1000)
    index.remove([5, 17, 1003])
    queries = np.stack([signals[2] + 0.1, signals[93], signals[6]])
    for memory in (None, 0):  # all on the device, or all copied for each search
        held = gpu.GpuIndex(index, device=device, memory=memory)
        assert held.nbytes == (held.needed_bytes if memory is None else 0)
        equal_results(held.search(queries, k=8), index.search(queries, k=8))
    equal_results(held.search(queries, k=3, among=[1, 2, 40, 1009]), index.search(queries, k=3, among=[1, 2, 40, 1009]))
    equal_results(held.within(queries, threshold=1.0), index.within(queries, threshold=1.0))
    index.add(signals[95:])
    assert held.refresh()
    equal_results(held.search(signals[175:185], k=2), index.search(signals[175:185], k=2))  # two turns of two digits


def equal_results(ours, theirs):
    for field in dataclasses.fields(ours):
        assert_array_equal(getattr(ours, field.name), getattr(theirs, field.name))


@emulated
@pytest.mark.slow
def test_a_head_on_the_device_answers_as_the_processor(device, rng):
    weights = rng.standard_normal((200, N_FEATURES)).astype(np.float32)
    bias = rng.standard_normal(200).astype(np.float32)
    recipe = trellis_recipe(weights, n_bits=8 * N_BYTES - 1, random_state=3)
    codes, _ = encode_weights(recipe, None, weights)
    tables = recipe.cells[0].tables
    queries = rounded_inputs(recipe, rng.standard_normal((3, N_FEATURES)).astype(np.float32), "inputs")
    queries.scales[1] = np.nan
    head = TrellisHeadScanner(codes, bias, tables, device=device, tuning=SMALL)
    on_device = RoundedOnDevice.put(device, queries)
    kept = RoundedQueries(queries.values[[0, 2]], queries.scales[[0, 2]], queries.constants[[0, 2]])
    scores = TrellisScores(tables, codes, bias.astype(np.float64))
    for _ in range(2):  # the second time by the launches of the first
        values, classes = head.topk(on_device, 7)
        expected = scores.best(kept, 7)
        assert_array_equal(classes[[0, 2]], expected[0])
        assert_array_equal(values[[0, 2]], expected[1].astype(np.float32))
        assert np.isnan(values[1]).all()
        assert_array_equal(classes[1], np.arange(7))
    assert_array_equal(head.logits(on_device)[[0, 2]], scores.values(kept).astype(np.float32))


def test_too_many_coordinates_are_refused(rng):
    device = EmulatedDevice()
    device.shared_bytes = 2048
    tables, _ = some_codes(300, 75, 10, 1, rng)
    with pytest.raises(gpu.GpuError, match="at most 112 coordinates, got 300"):
        TrellisFormat(device, tables)
