"""Trellis codes on a GPU without a GPU: tables, and kernels compiled for the CPU."""

from dataclasses import replace

import numpy as np
import pytest
from emulator import COMPILER, EmulatedDevice
from gpu_cases import best_of, equal_results, some_trellis_codes, trellis_logits_of, words_of
from numpy.testing import assert_allclose, assert_array_equal

import topsign as ts
from topsign import gpu, kernels
from topsign.families import TrellisRecipe
from topsign.families.trellis.weights import TrellisWeights
from topsign.gpu import chunks
from topsign.gpu.best import BestSearch
from topsign.gpu.heads import TrellisHeadScanner
from topsign.gpu.inputs import InputRounder
from topsign.gpu.rings import RoundedOnDevice, TrellisFormat, coordinate_table, joint_step
from topsign.gpu.scan import Part, Tuning
from topsign.gpu.trellis import FewScanner, JointScanner, LevelScanner, make_trellis_scanner
from topsign.kernels import QueriedCells, RoundedQueries, TrellisRange
from topsign.kernels.trellis import trellis_levels

pytestmark = pytest.mark.slow

SMALL = Tuning(first=128, growth=2, largest=256)
CROWDED = Tuning(first=128, candidate_bytes=1)  # scans find more candidates than fit

emulated = pytest.mark.skipif(COMPILER is None, reason="the emulator of the kernels needs g++")


@pytest.fixture(scope="module")
def device():
    return EmulatedDevice()


@pytest.mark.parametrize(("n_features", "n_bits", "window"), [(70, 75, 10), (384, 192, 12), (20, 333, 4), (300, 40, 8)])
def test_tables_of_coordinates_give_the_levels(rng, n_features, n_bits, window):
    """Plain NumPy version of trellis.cuh."""
    tables, codes = some_trellis_codes(n_features, n_bits, window, 20, rng)
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


N_FEATURES, N_BYTES = 140, 70  # one of 560 bits is for the cell; one size, so that kernels are compiled once


def watch(monkeypatch, owner, name):
    """Record the return values of a method."""
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
    tables, codes = some_trellis_codes(N_FEATURES, 8 * N_BYTES - 1, 10, n_codes, rng)
    codes[100:180] = codes[:80]  # ties
    alive = rng.random(n_codes) < 0.7
    values = rng.integers(-127, 128, (n_queries, N_FEATURES), np.int8)
    scales, constants = rng.uniform(1e-4, 1, (2, n_queries)).astype(np.float32)
    queries = RoundedQueries(values, scales, constants)
    cells = QueriedCells.one(tables, queries, norms=True)
    falling, _ = kernels.active().rank_trellis(cells, [TrellisRange(codes)], n_codes)
    codes = codes[falling[0, ::-1]]  # the best codes come last, so that all are candidates of the first query
    form = TrellisFormat(device, tables)
    rings = form.load(codes, norms=True)
    assert_array_equal(rings.weights, kernels.active().trellis_weights(tables, codes))
    ranges = [TrellisRange(codes, alive=np.packbits(alive, bitorder="little"))]
    positions, scores = kernels.active().rank_trellis(cells, ranges, 5)
    search = BestSearch(device, form, n_queries, 5, n_codes, waits=waits, tuning=CROWDED if waits else SMALL)
    assert isinstance(search.scanner, scanner)
    overflows = watch(monkeypatch, search, "_overflows")
    search.start(RoundedOnDevice.put(device, queries))
    search.scan(Part(rings, rings.with_norms, None, words_of(alive)))
    assert any(overflows) == waits
    assert_array_equal(search.positions, positions)
    assert_array_equal(search.scores, scores)


# n_features, n_bits, window, n_queries: four windows in one, two and four bits more than one; several codes of a thread
# and one; a period of 256 coordinates and less; a last word of few coordinates.
EVEN = [(140, 35, 6, 1), (300, 150, 8, 12), (96, 96, 5, 2), (1100, 550, 6, 5), (1100, 550, 6, 1)]


@emulated
@pytest.mark.slow
@pytest.mark.parametrize(("n_features", "n_bits", "window", "n_queries"), EVEN)
def test_four_windows_at_a_time_give_the_sums_of_the_processor(device, rng, n_features, n_bits, window, n_queries):
    tables, codes = some_trellis_codes(n_features, n_bits, window, 600, rng)
    values = rng.integers(-127, 128, (n_queries, n_features), np.int8)
    scales, constants = rng.uniform(1e-4, 1, (2, n_queries)).astype(np.float32)
    queries = RoundedQueries(values, scales, constants)
    form = TrellisFormat(device, tables)
    rings = form.load(codes, norms=True)
    cells = QueriedCells.one(tables, queries, norms=True)
    positions, scores = kernels.active().rank_trellis(cells, [TrellisRange(codes)], 5)
    search = BestSearch(device, form, n_queries, 5, len(codes), tuning=SMALL)
    assert isinstance(search.scanner, JointScanner)
    search.start(RoundedOnDevice.put(device, queries))
    search.scan(Part(rings, rings.with_norms))
    assert_array_equal(search.positions, positions)
    assert_array_equal(search.scores, scores)


@pytest.mark.parametrize(
    ("n_features", "n_bits", "step"),
    [(384, 192, 2), (384, 96, 1), (96, 96, 4), (96, 72, 0), (384, 191, 0), (24, 96, 0)],
)
def test_windows_are_even_or_not(rng, n_features, n_bits, step):
    tables, _ = some_trellis_codes(n_features, n_bits, 10, 1, rng)
    assert joint_step(tables) == step


def test_tables_that_do_not_fit_shared_memory_are_not_used(device, rng):
    tables, _ = some_trellis_codes(96, 96, 10, 1, rng)  # 8 of 2**13 words
    assert type(make_trellis_scanner(device, TrellisFormat(device, tables), 1)) is FewScanner


@emulated
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "n_queries", "scanner"),
    [
        ((N_FEATURES, 8 * N_BYTES - 1, 10), 3, FewScanner),
        ((N_FEATURES, 8 * N_BYTES - 1, 10), 11, LevelScanner),
        ((300, 150, 8), 3, JointScanner),
    ],
)
def test_queries_of_two_digits_single_and_in_batches(device, rng, sizes, n_queries, scanner):
    tables, codes = some_trellis_codes(*sizes, 200, rng)
    tables = replace(tables, fine_bits=5)
    values = rng.integers(-127, 128, (n_queries, sizes[0]), np.int8)
    fine = rng.integers(-16, 16, (n_queries, sizes[0]), np.int8)
    scales, constants = rng.uniform(1e-4, 1, (2, n_queries)).astype(np.float32)
    queries = RoundedQueries(values, scales, constants, fine, 5)
    cells = QueriedCells.one(tables, queries)
    positions, scores = kernels.active().rank_trellis(cells, [TrellisRange(codes)], 5)
    form = TrellisFormat(device, tables)
    rings = form.load(codes, norms=False)
    search = BestSearch(device, form, n_queries, 5, len(codes), tuning=SMALL)
    assert type(search.scanner) is scanner
    search.start(RoundedOnDevice.put(device, queries))
    search.scan(Part(rings, rings.weights))
    assert_array_equal(search.positions, positions)
    assert_array_equal(search.scores, scores)


@emulated
@pytest.mark.slow
@pytest.mark.parametrize(
    ("spread", "fine"),
    [(np.geomspace(1, 0.3, N_FEATURES), False), (np.where(np.arange(N_FEATURES) < 3, 1, 0.03), True)],
)
def test_an_index_on_the_device_answers_as_the_index(device, monkeypatch, spread, fine):
    monkeypatch.setattr(chunks, "CHUNK", 64)
    monkeypatch.setattr("topsign.gpu.forms.MANY_CELLS", SMALL)
    signals = np.random.default_rng(0).standard_normal((200, N_FEATURES)) * spread
    sizes = {"n_features": N_FEATURES, "n_bytes": N_BYTES, "n_local": 2}
    with pytest.warns(UserWarning, match="shrunk"):
        index = ts.TrellisIndex(**sizes, metric="inner_product", norms=True, random_state=7).fit(signals)
    assert all(cell.design.fine == fine for cell in index.recipe.cells)
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
    equal_results(held.search(signals[175:185], k=2), index.search(signals[175:185], k=2))


@emulated
@pytest.mark.slow
def test_a_head_on_the_device_answers_as_the_processor(device, rng):
    tables, codes = some_trellis_codes(N_FEATURES, 8 * N_BYTES - 1, 10, 200, rng)
    bias = rng.standard_normal(200).astype(np.float32)
    values = rng.integers(-127, 128, (3, N_FEATURES), np.int8)
    scales, constants = rng.uniform(1e-4, 1, (2, 3)).astype(np.float32)
    logits = trellis_logits_of(tables, codes, bias, RoundedQueries(values, scales, constants))[[0, 2]]
    expected = best_of(logits, 7)
    scales[1] = np.nan
    head = TrellisHeadScanner(codes, bias, tables, device=device, tuning=SMALL)
    on_device = RoundedOnDevice.put(device, RoundedQueries(values, scales, constants))
    for _ in range(2):  # the second time with the recorded launches of the first
        found, classes = head.topk(on_device, 7)
        assert_array_equal(classes[[0, 2]], expected[0])
        assert_array_equal(found[[0, 2]], expected[1].astype(np.float32))
        assert np.isnan(found[1]).all()
        assert_array_equal(classes[1], np.arange(7))
    assert_array_equal(head.logits(on_device)[[0, 2]], logits.astype(np.float32))


@emulated
@pytest.mark.slow
@pytest.mark.parametrize(("n_features", "center"), [(64, False), (100, False), (70, True)])
def test_inputs_are_rounded_as_by_the_processor(device, rng, n_features, center):
    weights = rng.standard_normal((200, n_features)) * np.geomspace(1, 0.2, n_features) + center
    recipe = TrellisRecipe.learn(weights, n_bits=48, basis="hadamard", center=center, norms=True, random_state=7)
    assert InputRounder.supports(recipe, device)
    inputs = rng.standard_normal((3, n_features), dtype=np.float32) * np.float32([[1], [1e-12], [0]])
    rounder = InputRounder(recipe, device=device)
    values, scales, constants = np.empty((3, rounder.n_coded), np.int8), *np.empty((2, 3), np.float32)
    rounder.round(inputs, values, scales, constants)
    (expected,) = TrellisWeights(recipe).logits(inputs).cells.queries
    assert_array_equal(values, expected.values)
    assert_array_equal(scales, expected.scales)
    # The device adds products with the mean in another order.
    assert_allclose(constants, expected.constants, rtol=1e-6, atol=1e-7 * np.abs(expected.constants).max())
    assert constants.any() == center


def test_too_many_coordinates_are_refused(rng):
    device = EmulatedDevice()
    device.shared_bytes = 2048
    tables, _ = some_trellis_codes(300, 75, 10, 1, rng)
    with pytest.raises(gpu.GpuError, match="at most 112 coordinates, got 300"):
        TrellisFormat(device, tables)
