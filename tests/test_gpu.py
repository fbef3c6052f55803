"""Searches and heads on a GPU without a GPU: the kernels, compiled for the CPU, give the bits of the CPU kernels."""

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import numpy as np
import pytest
from emulator import COMPILER, EmulatedDevice
from folders import rewrite
from gpu_cases import CODES, best_of, equal_results, some_codes, some_queries, words_of
from numpy.testing import assert_array_equal

import topsign as ts
from topsign import gpu, kernels
from topsign.families import TrellisRecipe
from topsign.gpu import engine, scan
from topsign.gpu.device import device_number, multiply_tile, on_host, source
from topsign.gpu.encoding import InputRounder, RingEncoder
from topsign.gpu.scan import (
    CodeFormat,
    DeviceQueries,
    Part,
    ProductScanner,
    TableScanner,
    TopkSearch,
    WithinSearch,
    make_scanner,
    put_rows,
)
from topsign.kernels import CodeBlocks, CodeRange

SMALL = {"FEW_QUERIES": 3, "FIRST_SCAN": 128, "GROWTH": 2, "LARGEST_SCAN": 256, "TABLE_THREADS": 64}
CROWDED = {
    "FEW_QUERIES": 3,
    "FIRST_SCAN": 128,
    "CANDIDATE_BYTES": 1,
    "TABLE_THREADS": 64,
}  # scans find more candidates than fit

emulated = pytest.mark.skipif(COMPILER is None, reason="the emulator of the kernels needs g++")


@pytest.fixture(scope="module")
def device():
    return EmulatedDevice()


@emulated
@pytest.mark.slow
@pytest.mark.parametrize(("n_queries", "scanner"), [(1, TableScanner), (3, TableScanner), (10, ProductScanner)])
@pytest.mark.parametrize("case", CODES)
@patch.multiple(scan, **SMALL)
def test_scans_find_what_the_processor_finds(device, rng, case, n_queries, scanner):
    n_codes = 300
    scoring, rows = some_codes(case, n_codes, rng)
    queries = some_queries(scoring, n_queries, rng)
    values = kernels.active().scores(scoring, CodeBlocks.of(rows), queries)
    form, on_device = CodeFormat(device, scoring), DeviceQueries.put(device, queries)
    made = make_scanner(form, n_queries)
    assert type(made) is scanner
    made.start(on_device)
    out = device.empty((n_queries, n_codes), np.float32)
    made.values(Part(put_rows(device, rows), n_codes), out)
    assert_array_equal(out, values)

    alive = rng.random(n_codes) < 0.7
    part = Part(put_rows(device, rows), n_codes, None, words_of(alive), base=1000)
    ranges = [CodeRange(CodeBlocks.of(rows), 1000, np.packbits(alive, bitorder="little"))]
    expected = kernels.active().rank(scoring, ranges, queries, 5)
    for waits in (False, True):
        search = TopkSearch(form, n_queries, 5, n_codes, waits=waits)
        search.start(on_device)
        search.scan(part)
        assert_array_equal(search.positions, expected[0])
        assert_array_equal(search.values, expected[1])

    bounds = np.quantile(values, 0.9, axis=1).astype(np.float32)
    bounds[0] = values[0, 7]
    starts, positions, reached = kernels.active().within(scoring, ranges, queries, bounds)
    found = [
        np.concatenate(parts) for parts in zip(*WithinSearch(form, on_device, bounds, n_codes).scan(part), strict=True)
    ]
    order = np.lexsort((found[1], found[0]))
    owners = np.repeat(np.arange(n_queries), np.diff(starts))
    theirs = np.lexsort((positions, owners))
    for ours, all_of_them in zip(found, (owners, positions, reached), strict=True):
        assert_array_equal(ours[order], all_of_them[theirs])


@emulated
@pytest.mark.slow
@patch.multiple(scan, **CROWDED)
def test_a_scan_with_too_many_candidates_is_repeated(device, rng):
    scoring, rows = some_codes("ring", 400, rng)
    queries = some_queries(scoring, 3, rng)
    falling, _ = kernels.active().rank(scoring, [CodeRange(CodeBlocks.of(rows))], queries, len(rows))
    rows = rows[falling[0, ::-1]]  # the best codes come last, so that all are candidates of the first query
    search = TopkSearch(CodeFormat(device, scoring), 3, 5, len(rows))
    overflows, method = [], search._overflows
    search._overflows = lambda: overflows.append(method()) or overflows[-1]
    search.start(DeviceQueries.put(device, queries))
    search.scan(Part(put_rows(device, rows), len(rows)))
    assert any(overflows)
    expected = kernels.active().rank(scoring, [CodeRange(CodeBlocks.of(rows))], queries, 5)
    assert_array_equal(search.positions, expected[0])
    assert_array_equal(search.values, expected[1])


@emulated
@pytest.mark.slow
@pytest.mark.parametrize(("shared_bytes", "batch"), [(1024 + 16 * 2**10, 1), (1024 + 16 * 2**11, 2), (2**18, 4)])
def test_tables_that_do_not_fit_together_are_read_one_after_the_other(rng, shared_bytes, batch):
    device = EmulatedDevice()
    device.shared_bytes = shared_bytes
    scoring, rows = some_codes(("ring", (1,) * 16, "cosine"), 100, rng)  # tables of 16 KiB
    queries = some_queries(scoring, 3, rng)
    scanner = TableScanner(CodeFormat(device, scoring), 3)
    assert scanner._batch == batch
    scanner.start(DeviceQueries.put(device, queries))
    out = device.empty((3, 100), np.float32)
    scanner.values(Part(put_rows(device, rows), 100), out)
    assert_array_equal(out, kernels.active().scores(scoring, CodeBlocks.of(rows), queries))


def test_long_codes_are_multiplied_for_one_query_too(device, rng):
    class NoKernels(EmulatedDevice):
        def module(self, files, constants):
            return None

    scoring, _ = some_codes(("ring", (1,) * 300, "cosine"), 8, rng)
    assert type(make_scanner(CodeFormat(NoKernels(), scoring), 1)) is ProductScanner
    scoring, _ = some_codes(("groups", 512, None), 8, rng)
    assert type(make_scanner(CodeFormat(NoKernels(), scoring), 8)) is TableScanner


@emulated
def test_rows_on_the_device_become_planes(device, rng):
    class OnDevice:
        """Array that is not NumPy's."""

        def __init__(self, rows):
            self.rows, self.shape, self.data_ptr = rows, rows.shape, lambda: rows.ctypes.data

    for n_codes in (1, 32, 75):
        rows = rng.integers(0, 256, (n_codes, 7), np.uint8)
        assert_array_equal(put_rows(device, OnDevice(rows)), CodeBlocks.of(rows).planes)


INDEXES = {
    "adaptive": lambda **more: ts.Index(64, family="adaptive", n_bits=24, n_pool=96, random_state=7, **more),
    "sign": lambda **more: ts.Index(64, family="sign", n_bytes=9, random_state=7, **more),
    "grouped": lambda **more: ts.Index(64, family="grouped", n_bytes=5, random_state=7, **more),
    "trellis": lambda **more: ts.Index(64, n_bytes=6, basis="hadamard", center=False, random_state=7, **more),
}


@emulated
@pytest.mark.slow
@pytest.mark.parametrize("metric", ["correlation", "inner_product"])
@pytest.mark.parametrize("family", INDEXES)
def test_an_index_on_the_device_answers_as_the_index(device, monkeypatch, family, metric):
    monkeypatch.setattr(engine, "CHUNK", 128)
    signals = np.random.default_rng(0).standard_normal((300, 64)).astype(np.float32)
    index = INDEXES[family](metric=metric)
    index.add(signals[:200])
    index.add(np.repeat(signals[200:210], 5, axis=0), ids=np.arange(50)[::-1] * 3 + 1000)
    index.add(signals[210:220], ids=np.arange(500, 510))
    index.remove([5, 17, 1003])
    queries = np.stack([signals[0] + 0.5, signals[204]])
    chosen = [{"scoring": scoring} for scoring in index.recipe.scorings]
    if family == "sign":
        chosen += [{"scoring": scoring, "adaptive_bits": 9} for scoring in index.recipe.scorings]
    for memory in (None, 0):  # all on the device, or all copied for each search
        held = gpu.GpuIndex(index, device=device, memory=memory)
        assert held.nbytes == (held.needed_bytes if memory is None else 0)
        for options in chosen:
            equal_results(held.search(queries, k=7, **options), index.search(queries, k=7, **options))
            among = {"k": 3, "among": [1, 2, 40, 199, 1009], **options}
            equal_results(held.search(queries, **among), index.search(queries, **among))
            equal_results(
                held.within(queries, false_alarm=0.5, **options), index.within(queries, false_alarm=0.5, **options)
            )
        equal_results(held.within(queries, threshold=0.3), index.within(queries, threshold=0.3))
    index.add(signals[220:])
    assert len(held) == 257
    assert held.refresh()
    assert not held.refresh()
    many = signals[290:]  # products instead of tables
    equal_results(held.search(many, k=2), index.search(many, k=2))
    with pytest.raises(ValueError, match="queries, first at row 0"):
        held.search(np.full(64, np.nan))


@emulated
@pytest.mark.slow
def test_learned_trellis_codes_are_searched_on_the_device(device, monkeypatch):
    signals = np.random.default_rng(0).standard_normal((300, 40)) * np.geomspace(1, 0.1, 40) + 0.2
    index = ts.Index(40, n_bytes=5, random_state=7)
    with pytest.warns(UserWarning, match="shrunk"):
        index.add(signals)
    held = gpu.GpuIndex(index, device=device)
    for queries in (signals[:2] + 0.05, signals[3:13]):
        equal_results(held.search(queries, k=5), index.search(queries, k=5))
        monkeypatch.setattr(engine, "MAX_K", 4)  # more are ranked on the host
        equal_results(held.search(queries, k=5), index.search(queries, k=5))
        monkeypatch.undo()


HEADS = {
    "adaptive": {"n_bits": 32, "n_pool": 128},
    "sign": {"n_bytes": 12},
    "grouped": {"n_bytes": 5},
    "trellis": {"n_bytes": 8},
    "trellis with a mean": {"n_bytes": 8, "center": True},
}


def some_head(case, n_classes, rng):
    """Return the recipe of a head of 48 features, its rows and its scoring."""
    options, family = dict(HEADS[case]), case.split()[0]
    weights = rng.standard_normal((n_classes, 48)).astype(np.float32)
    recipe_type = ts.families.Recipe.families[family]
    if options.pop("center", False):
        weights += 0.3
        recipe = TrellisRecipe.learn(weights, basis="hadamard", center=True, random_state=7, n_features=48, **options)
    else:
        recipe = recipe_type.for_weights(weights, random_state=7, **options)
    encoder = recipe.weight_encoder()
    return recipe, encoder.encode(weights), recipe.scoring_of("log", code_bytes=encoder.nbytes)


@emulated
@pytest.mark.slow
@pytest.mark.parametrize("n_inputs", [3, 10])
@pytest.mark.parametrize("case", HEADS)
@patch.multiple(scan, **SMALL)
def test_a_head_on_the_device_answers_as_the_processor(device, rng, case, n_inputs):
    recipe, rows, scoring = some_head(case, 300, rng)
    bias = rng.standard_normal(300).astype(np.float32)
    inputs = rng.standard_normal((n_inputs, 48)).astype(np.float32)
    inputs[0] *= 1e-12
    inputs[-1] = 0
    rounded = recipe.weight_encoder().logits(inputs, "asymmetric").inputs
    rounder = InputRounder(recipe, device=device)
    on_device = rounder.round(inputs)
    assert_array_equal(on_device.values, rounded.values)
    assert_array_equal(on_device.scales, rounded.scales)
    assert_array_equal(on_device.constants, rounded.constants)
    logits = kernels.active().scores(scoring, CodeBlocks.of(rows), rounded) + bias.astype(np.float64)
    head = gpu.HeadScanner(scoring, rows, bias, device=device)
    assert_array_equal(head.logits(on_device), logits.astype(np.float32))
    inputs[1, 5] = np.nan
    on_device, finite = rounder.round(inputs), np.arange(n_inputs) != 1
    for _ in range(2):  # the second time with the buffers of the first
        values, classes = head.topk(on_device, 7)
        expected = best_of(logits, 7)
        assert_array_equal(classes[finite], expected[0][finite])
        assert_array_equal(values[finite], expected[1][finite].astype(np.float32))
        assert np.isnan(values[1]).all()
        assert_array_equal(classes[1], np.arange(7))
    with pytest.raises(ValueError, match="k must lie in"):
        head.topk(on_device, 301)


@emulated
@patch.multiple(scan, **SMALL)
def test_threads_may_share_a_head(device, rng):
    """The emulator runs one kernel at a time, so calls that are not serialised would crash."""
    scoring, rows = some_codes("groups with factors", 100, rng)
    head = gpu.HeadScanner(scoring, rows, None, device=device)
    queries = some_queries(scoring, 3, rng)
    logits = kernels.active().scores(scoring, CodeBlocks.of(rows), queries)
    counts, on_device = [1, 3, 5] * 4, DeviceQueries.put(device, queries)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: head.topk(on_device, k), counts))
    for k, (values, classes) in zip(counts, found, strict=True):
        expected = best_of(logits, k)
        assert_array_equal(classes, expected[0])
        assert_array_equal(values, expected[1])


@emulated
@patch.multiple(scan, **SMALL)
def test_streams_are_followed_under_the_launch_lock(rng):
    """Two threads on two streams must not both pass the synchronization before either launches."""
    device, seen = EmulatedDevice(), []
    scoring, rows = some_codes("groups with factors", 40, rng)
    head = gpu.HeadScanner(scoring, rows, None, device=device)
    device.follow = lambda last: seen.append((last, head._lock.locked())) or 7
    queries = DeviceQueries.put(device, some_queries(scoring, 3, rng))
    head.logits(queries)
    head.topk(queries, 2)
    assert seen == [(None, True), (7, True)]


def test_damaged_codes_are_refused_before_they_are_copied(device, tmp_path):
    """Bytes whose checksums are valid, but which are not adaptive codes."""
    with ts.Index(64, family="adaptive", n_bits=24, n_pool=96, random_state=7, path=tmp_path / "a.topsign") as index:
        index.add(np.random.default_rng(0).standard_normal((50, 64)))

    def spoil(columns):
        columns["codes"][:] = 0

    rewrite(tmp_path / "a.topsign", spoil)
    with pytest.raises(ts.StorageError, match="not a packed code"):
        gpu.GpuIndex(ts.open_index(tmp_path / "a.topsign"), device=device)


class Sources(EmulatedDevice):
    """Device that keeps the sources of kernels, as for Hopper or for older devices."""

    def __init__(self, has_wgmma):
        super().__init__()
        self.has_wgmma, self.sources = has_wgmma, []

    def module(self, files, constants):
        self.sources.append((source(files, constants), tuple(constants.items())))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs the CUDA compiler")
@pytest.mark.parametrize(("architecture", "has_wgmma"), [("sm_80", False), ("sm_90a", True)])
def test_kernels_compile_for_real_devices(rng, tmp_path, architecture, has_wgmma):
    device = Sources(has_wgmma)
    for case in ("signs with factors", "groups", "ring", "kept with factors"):
        form = CodeFormat(device, some_codes(case, 8, rng)[0])
        TopkSearch(form, 2, 5, 100)
        TopkSearch(form, 100, 5, 100)
    for family in ("adaptive", "grouped", "sign"):
        gpu.SignsEncoder(INDEXES[family]().recipe, device=device)
    InputRounder(INDEXES["trellis"]().recipe, device=device)
    RingEncoder(device, INDEXES["trellis"]().recipe.ring)
    for text, constants in set(device.sources):
        path = tmp_path / "kernels.cu"
        path.write_text(text)
        options = [f"-arch={architecture}", "-std=c++17", *(f"-D{name}={value}" for name, value in constants)]
        made = subprocess.run(["nvcc", "-cubin", *options, "-o", "/dev/null", path], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr


def test_a_missing_device_is_named():
    index = ts.Index(8, family="adaptive", n_bits=4, random_state=1)
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
