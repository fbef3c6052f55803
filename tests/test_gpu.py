"""GPU code without a GPU: a NumPy model of its two passes, and its kernels compiled for the CPU."""

from concurrent.futures import ThreadPoolExecutor

import gpu_model as model
import numpy as np
import pytest
from emulator import COMPILER, EmulatedDevice
from gpu_cases import best_of, equal_results, logits_of, some_codes, words_of
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy_kernels import NumpyKernels

import topsign as ts
from topsign import gpu, kernels
from topsign.gpu import chunks
from topsign.gpu.best import BestSearch
from topsign.gpu.device import device_number, multiply_tile, on_host
from topsign.gpu.scan import GatherScanner, Part, ProductScanner, Tuning
from topsign.gpu.stripes import Format, Stripes
from topsign.kernels import CodeRange, Layout

pytestmark = pytest.mark.slow

SMALL = Tuning(sample=64, first=128, growth=2, largest=256, waves=1)

emulated = pytest.mark.skipif(COMPILER is None, reason="the emulator of the kernels needs g++")


@pytest.fixture(scope="module")
def device():
    return EmulatedDevice()


shapes = st.tuples(st.integers(1, 40), st.integers(0, 60), st.integers(1, 50), st.integers(0, 2**32 - 1))


@settings(max_examples=60, deadline=None)
@given(shapes, st.sampled_from([1, 2]), st.sampled_from([1e-30, 1.0, 3e4, 1e30]), st.booleans())
def test_rounded_scores_bound_the_exact_ones_and_the_two_passes_find_the_best(shape, digits, size, coarse):
    n_bits, more, n_codes, seed = shape
    rng = np.random.default_rng(seed)
    layout = Layout("compact", n_bits, n_bits + more)
    codes = some_codes(layout, n_codes, seed)
    query = (rng.standard_normal((1, layout.n_pool)) * size).astype(np.float32)
    if coarse:  # ties
        query, weights = np.round(query / size).astype(np.float32), np.ones(n_codes, np.float32)
    else:
        weights = rng.choice([-1.5, 0.0, 0.3, 1.0, 7.0], n_codes).astype(np.float32)
    locations, packed = kernels.active().unpack_codes(layout, codes)
    signs = np.unpackbits(packed, axis=1, count=n_bits, bitorder="little").astype(np.int64) * 2 - 1
    whole, step, margin = model.round_query(query[0], n_bits, digits)
    sums = model.centers((whole[locations] * signs).sum(axis=1), step, digits)
    exact = kernels.active().score_sums(layout, codes, query)[0] * weights
    low, high = model.bounds(sums, margin, weights)
    assert (low <= exact).all()
    assert (exact <= high).all()
    alive, k = rng.random(n_codes) < 0.8, int(rng.integers(1, 8))
    positions, scores, _ = model.search(lambda part: sums[part], exact, weights, alive, margin, k, chunk=8)
    ranges = [CodeRange(codes, alive=np.packbits(alive, bitorder="little"), weights=weights)]
    expected = NumpyKernels().rank_scores(layout, ranges, query, k)  # the library requires weights >= 0
    assert_array_equal(positions, expected[0][0])
    assert_array_equal(scores, expected[1][0])


@given(st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_digits_are_of_eight_bits_and_add_up(digits, seed):
    query = np.random.default_rng(seed).standard_cauchy(50).astype(np.float32)
    whole, step, _ = model.round_query(query, 5, digits)
    parts = model.split_digits(whole, digits)
    assert np.abs(parts).max() <= 127
    assert_array_equal(sum(part * model.RADIX ** (digits - 1 - i) for i, part in enumerate(parts)), whole)
    assert np.abs(query - whole * float(step)).max() <= 0.51 * float(step)


@pytest.mark.parametrize("n_codes", [2000])
def test_few_codes_are_scored_exactly(n_codes):
    layout = Layout("compact", 128, 2048)
    codes, rng = some_codes(layout, n_codes, 0), np.random.default_rng(1)
    query = rng.standard_normal((1, 2048)).astype(np.float32)
    locations, packed = kernels.active().unpack_codes(layout, codes)
    signs = np.unpackbits(packed, axis=1, count=128, bitorder="little").astype(np.int64) * 2 - 1
    whole, step, margin = model.round_query(query[0], 128, 1)
    sums = model.centers((whole[locations] * signs).sum(axis=1), step, 1)
    ones, exact = np.ones(n_codes, np.float32), kernels.active().score_sums(layout, codes, query)[0]
    _, _, n_scored = model.search(lambda part: sums[part], exact, ones, ones > 0, margin, 10, chunk=500)
    assert n_scored < 200


@emulated
@pytest.mark.slow
@pytest.mark.parametrize(("n_queries", "scanner"), [(1, GatherScanner), (6, GatherScanner), (20, ProductScanner)])
@pytest.mark.parametrize("layout", [Layout("compact", 96, 768), Layout("fast", 40, 300)], ids=str)
def test_the_kernels_find_what_the_processor_finds(device, layout, n_queries, scanner):
    n_codes, rng = 400, np.random.default_rng(n_queries)
    codes, weights = some_codes(layout, n_codes, 3), rng.random(n_codes).astype(np.float32)
    alive = rng.random(n_codes) < 0.7
    queries = rng.standard_normal((n_queries, layout.n_pool)).astype(np.float32)
    stripes = Stripes.load(device, layout, codes)
    search = BestSearch(device, stripes.format, n_queries, 5, n_codes, tuning=SMALL)
    assert isinstance(search.scanner, scanner)
    search.start(queries)
    search.scan(Part(stripes, weights, None, words_of(alive)))
    ranges = [CodeRange(codes, alive=np.packbits(alive, bitorder="little"), weights=weights)]
    positions, scores = kernels.active().rank_scores(layout, ranges, queries, 5)
    assert_array_equal(search.positions, positions)
    assert_array_equal(search.scores, scores)
    steps, margins = zip(*(model.round_query(query, layout.n_bits, 1)[1:] for query in queries), strict=True)
    assert_array_equal(search.candidates.steps[:n_queries], steps)
    assert_array_equal(search.candidates.margins, margins)


@emulated
@pytest.mark.parametrize("whole", [False, True])
def test_codes_that_score_zero_are_found(device, whole):
    layout, projected = Layout("compact", 8, 32), np.random.default_rng(0).standard_normal((400, 32), np.float32)
    projected[:, -1] = 1e-6  # a location that no code has
    locations, signs, _ = kernels.active().select(projected, 8, n_threads=1)
    stripes = Stripes.load(device, layout, kernels.active().pack_codes(layout, locations, signs))
    search = BestSearch(device, stripes.format, 1, 5, 400, whole=whole, tuning=SMALL)
    assert isinstance(search.scanner, GatherScanner)
    search.start(np.eye(32, dtype=np.float32)[-1:])
    search.scan(Part(stripes))
    assert_array_equal(search.positions, [range(5)])
    assert_array_equal(search.scores, np.zeros((1, 5)))


@emulated
@pytest.mark.slow
def test_an_index_on_the_device_answers_as_the_index(device, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 256)
    signals = np.random.default_rng(0).standard_normal((400, 64)).astype(np.float32)
    index = ts.AdaptiveIndex(n_features=64, n_bits=24, n_pool=96, random_state=7)
    index.add(signals[:300])
    index.add(signals[300:350], ids=np.arange(50)[::-1] * 3 + 1000)
    index.remove([5, 17, 1003])
    queries = signals[:2] + 0.5
    for memory in (None, 0):  # all on the device, or all copied for each search
        held = gpu.GpuIndex(index, device=device, memory=memory)
        assert held.nbytes == (held.needed_bytes if memory is None else 0)
        for scoring in ("asymmetric", "hamming"):
            few = [1, 2, 40, 299, 1009]
            equal_results(held.search(queries, k=7, scoring=scoring), index.search(queries, k=7, scoring=scoring))
            options = {"k": 3, "scoring": scoring, "among": few}
            equal_results(held.search(queries, **options), index.search(queries, **options))
            options = {"false_alarm": 0.5, "scoring": scoring}
            equal_results(held.within(queries, **options), index.within(queries, **options))
    index.add(signals[350:])
    assert len(held) == 347
    assert held.refresh()
    assert not held.refresh()
    equal_results(held.search(signals[390:], k=2), index.search(signals[390:], k=2))
    with pytest.raises(ValueError, match="queries, first at row 0"):
        held.search(np.full(64, np.nan))


@emulated
@pytest.mark.slow
def test_a_sign_index_on_the_device_answers_as_the_index(device):
    signals = np.random.default_rng(0).standard_normal((150, 32)).astype(np.float32)
    index = ts.SignIndex(n_features=32, n_pool=70, random_state=7)
    index.add(signals)
    held = gpu.GpuIndex(index, device=device)
    for options in ({}, {"adaptive_bits": 9}, {"scoring": "hamming"}, {"scoring": "hamming", "adaptive_bits": 9}):
        equal_results(held.search(signals[:2] + 0.5, k=4, **options), index.search(signals[:2] + 0.5, k=4, **options))


@emulated
@pytest.mark.slow
def test_a_head_on_the_device_answers_as_the_processor(device):
    layout, rng = Layout("compact", 32, 256), np.random.default_rng(0)
    codes, scales, bias = some_codes(layout, 300, 0), rng.random(300).astype(np.float32), rng.random(300)
    bias = bias.astype(np.float32)
    head = gpu.HeadScanner(codes, scales, bias, layout, device=device, tuning=SMALL)
    projected = rng.standard_normal((3, 256)).astype(np.float32)
    projected[1, 5] = np.nan
    for _ in range(2):  # the second time with the recorded launches of the first, if addresses are the same
        values, classes = head.topk(projected, 7)
        expected = best_of(logits_of(layout, codes, scales, bias, projected[[0, 2]]), 7)
        assert_array_equal(classes[[0, 2]], expected[0])
        assert_array_equal(values[[0, 2]], expected[1].astype(np.float32))
        assert np.isnan(values[1]).all()
        assert_array_equal(classes[1], np.arange(7))
    logits = head.logits(projected[[0]])
    exact = logits_of(layout, codes, scales, bias, projected[[0]])
    np.testing.assert_allclose(logits, exact, rtol=0, atol=4e-6 * np.abs(exact).max())
    with pytest.raises(ValueError, match="k must lie in"):
        head.topk(projected, 301)


@emulated
def test_threads_may_share_a_head(device):
    """The emulator runs one kernel at a time, so calls that are not serialised would crash."""
    layout, rng = Layout("compact", 32, 256), np.random.default_rng(1)
    codes, scales = some_codes(layout, 100, 1), rng.random(100).astype(np.float32)
    head = gpu.HeadScanner(codes, scales, None, layout, device=device, tuning=SMALL)
    projected = rng.standard_normal((3, 256)).astype(np.float32)
    counts = [1, 3, 5] * 4
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: head.topk(projected, k), counts))
    for k, (values, classes) in zip(counts, found, strict=True):
        expected = best_of(logits_of(layout, codes, scales, None, projected), k)
        assert_array_equal(classes, expected[0])
        assert_array_equal(values, expected[1].astype(np.float32))


@emulated
@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_features", "n_bits", "n_pool", "layout"), [(64, 16, 64, "compact"), (100, 30, 250, "fast")]
)
def test_signals_are_encoded_to_the_same_bits(device, n_features, n_bits, n_pool, layout):
    signals = np.random.default_rng(0).standard_normal((4, n_features)).astype(np.float32)
    signals[1] = np.round(signals[1])
    projection = ts.make_projection("hadamard", n_features=n_features, n_pool=n_pool, random_state=3)
    encoder = ts.AdaptiveEncoder(n_bits, n_pool=n_pool, projection=projection, layout=layout).fit(signals)
    expected = encoder.encode(signals)
    made = gpu.GpuEncoder(projection, Layout(layout, n_bits, n_pool), device=device)
    projected = np.empty((4, n_pool), np.float32)
    made.project(signals, projected)
    assert_array_equal(projected.view(np.uint32), projection.apply(signals).view(np.uint32))
    for ours, theirs in zip(made.encode(signals), (expected.data, expected.norms, expected.scales), strict=True):
        assert_array_equal(ours, theirs)


@emulated
@pytest.mark.slow
@pytest.mark.parametrize("name", ["compact", "fast"])
def test_damaged_codes_are_refused(device, name):
    layout = Layout(name, 16, 256)
    codes = some_codes(layout, 70, 0)
    codes[33, layout.code_bytes - 3 :] = 0
    with pytest.raises(ValueError, match="code 33 is not valid"):
        Stripes.load(device, layout, codes)


def test_codes_on_the_device_take_the_bytes_of_the_compact_layout():
    assert Format(512, 8192).code_words * 4 == Layout("compact", 512, 8192).code_bytes == 448
    assert Format(512, 4096).code_words * 4 == 384


def test_other_projections_are_refused():
    projection = ts.make_projection("gaussian", n_features=8, random_state=1)
    with pytest.raises(TypeError, match="Hadamard projections, got a gaussian one"):
        gpu.GpuEncoder(projection, Layout("compact", 4, 8), device=None)


def test_a_missing_device_is_named():
    index = ts.AdaptiveIndex(n_features=8, n_bits=4, random_state=1)
    for name in ("gpu", "cuda:", "cpu"):
        with pytest.raises(gpu.GpuError, match="must be"):
            index.to(name)
    assert (device_number("cuda"), device_number("cuda:3")) == (0, 3)
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception:
        with pytest.raises(gpu.GpuError, match=r"(needs CuPy|finds no CUDA device).*topsign\[gpu\]"):
            index.to("cuda")


def test_queries_of_a_device_come_to_the_host():
    class OnDevice:
        __cuda_array_interface__ = None

        def get(self):
            return "host"

    assert on_host(OnDevice()) == "host"
    assert on_host([1]) == [1]


def test_the_instruction_of_a_tile_names_all_its_registers():
    text = multiply_tile(16)
    assert "m64n16k32" in text
    assert '"+r"(sums[7])' in text
    assert "sums[8]" not in text
