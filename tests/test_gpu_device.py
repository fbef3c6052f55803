"""Results on a CUDA device are bit-identical to those of the CPU."""

from dataclasses import replace

import numpy as np
import pytest
from gpu_cases import equal_results, some_codes, some_trellis_codes, words_of
from numpy.testing import assert_array_equal

import topsign as ts
from topsign import gpu, kernels
from topsign.families.trellis.design import design_trellis
from topsign.gpu.best import BestSearch
from topsign.gpu.rings import RoundedOnDevice, TrellisFormat
from topsign.gpu.scan import Part, Tuning
from topsign.gpu.stripes import Stripes
from topsign.gpu.viterbi import Viterbi
from topsign.kernels import CodeRange, Layout, QueriedCells, RoundedQueries, TrellisRange, TrellisSignals

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device():
    try:
        return gpu.cuda_device(0)
    except gpu.GpuError as error:
        pytest.skip(str(error))


LAYOUTS = [
    Layout("compact", 512, 4096),
    Layout("fast", 512, 8192),
    Layout("compact", 7, 50),
    Layout("compact", 200, 256),
    Layout("fast", 1100, 3001),
    Layout("compact", 64, 40_000),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("n_queries", [1, 3, 7, 16, 70, 300])
def test_searches(device, layout, n_queries):
    n_codes, rng = 5000, np.random.default_rng(n_queries)
    codes, weights = some_codes(layout, n_codes, 3), rng.random(n_codes).astype(np.float32)
    weights[rng.random(n_codes) < 0.1] = 0
    alive = rng.random(n_codes) < 0.7
    packed, words = np.packbits(alive, bitorder="little"), words_of(alive)
    queries = rng.standard_normal((n_queries, layout.n_pool)).astype(np.float32)
    stripes = Stripes.load(device, layout, codes)
    for tuning in (Tuning(), Tuning(sample=64, first=256, growth=2, largest=1024, waves=1)):
        search = BestSearch(device, stripes.format, n_queries, 12, n_codes, tuning=tuning)
        search.start(device.put(queries))
        search.scan(Part(stripes, device.put(weights), None, device.put(words)))
        ranges = [CodeRange(codes, alive=packed, weights=weights)]
        positions, scores = kernels.active().rank_scores(layout, ranges, queries, 12, n_threads=4)
        assert_array_equal(device.get(search.positions), positions)
        assert_array_equal(device.get(search.scores), scores)


@pytest.mark.parametrize("kind", ["compact", "fast", "long", "sign"])
@pytest.mark.parametrize("memory", [None, 0])
def test_indexes(device, kind, memory, tmp_path):
    rng = np.random.default_rng(0)
    signals = rng.standard_normal((12_000, 256)).astype(np.float32)
    path = tmp_path / "index"
    if kind == "sign":
        index = ts.SignIndex(n_features=256, n_pool=300, random_state=7, path=path)
    elif kind == "long":
        index = ts.AdaptiveIndex(n_features=256, n_bits=1200, n_pool=4096, random_state=7, path=path)
    else:
        index = ts.AdaptiveIndex(n_features=256, n_bits=64, layout=kind, random_state=7, path=path)
    index.add(signals[:8000])
    index.add(signals[8000:8100], ids=np.arange(50_000, 50_100)[::-1])
    index.add(signals[8100:8200], ids=np.arange(10_000, 10_100) * 3)
    index.remove([5, 17, 50_003])
    held = index.to("cuda", memory=memory)
    chosen = [{}, {"adaptive_bits": 20}] if kind == "sign" else [{}]
    for n_queries in (1, 5, 40):
        queries = signals[:n_queries] + 0.5 * rng.standard_normal((n_queries, 256)).astype(np.float32)
        for more in chosen:
            for scoring in ("asymmetric", "hamming"):
                options = {"k": 7, "scoring": scoring, **more}
                equal_results(held.search(queries, **options), index.search(queries, **options))
                options["among"] = [1, 2, 3, 50_050, 40, 299]
                equal_results(held.search(queries, **options), index.search(queries, **options))
                options = {"false_alarm": 0.5, "scoring": scoring, **more}
                equal_results(held.within(queries, **options), index.within(queries, **options))
    index.add(signals[8200:])
    assert held.refresh()
    equal_results(held.search(signals[9000:9002], k=3), index.search(signals[9000:9002], k=3))
    equal_results(held.search(signals[:2], k=2500), index.search(signals[:2], k=2500))


@pytest.mark.filterwarnings("ignore:.*the signals are not isotropic")
def test_duplicates_are_ordered_by_id(device):
    signals = np.repeat(np.random.default_rng(0).standard_normal((2, 64)), 20_000, axis=0)
    index = ts.AdaptiveIndex(n_features=64, n_bits=16, random_state=7)
    index.add(signals)
    held = index.to("cuda")
    for scoring in ("asymmetric", "hamming"):
        equal_results(held.search(signals[::25_000], scoring=scoring), index.search(signals[::25_000], scoring=scoring))


@pytest.mark.parametrize(("n_features", "n_pool"), [(64, 64), (100, 250), (768, 600), (4096, 4096), (1, 3)])
@pytest.mark.parametrize("layout", ["compact", "fast"])
def test_encoding(device, n_features, n_pool, layout):
    n_bits = max(1, n_pool // 7)
    signals = np.random.default_rng(0).standard_normal((50, n_features)).astype(np.float32)
    signals[1] = np.round(signals[1]) + 1
    projection = ts.make_projection("hadamard", n_features=n_features, n_pool=n_pool, random_state=3)
    expected = ts.AdaptiveEncoder(n_bits, n_pool=n_pool, projection=projection, layout=layout).fit(signals)
    expected = expected.encode(signals)
    encoder = gpu.GpuEncoder(projection, Layout(layout, n_bits, n_pool), device=device)
    made = encoder.encode(device.put(signals))
    for ours, theirs in zip(made, (expected.data, expected.norms, expected.scales), strict=True):
        assert_array_equal(device.get(ours), theirs)


@pytest.mark.parametrize("window", range(4, 13))
@pytest.mark.parametrize(("n_features", "n_bits"), [(300, 64), (60, 75), (7, 100), (1, 40)])
def test_trellis_encoding(device, n_features, n_bits, window):
    rng = np.random.default_rng(window)
    for variances in (np.ones(n_features), np.geomspace(1, 0.05, n_features)):
        design = design_trellis(variances, n_bits=n_bits, window=window)
        tables = design.tables(np.zeros(design.n_coded), 0.0, -(-n_bits // 8) + 1)
        values = rng.standard_normal((5000, design.n_coded)).astype(np.float32) * design.deviations
        values[1] *= 100
        values[2] = 0
        values[3] = design.deviations
        for n in (0, 1, 33, 5000):
            expected = kernels.active().trellis_encode([TrellisSignals(tables, values[:n])], n_threads=4)
            assert_array_equal(Viterbi(device).trellis_encode([TrellisSignals(tables, values[:n])]), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"basis": "hadamard", "center": False},
        {"basis": "principal", "norms": True},
        {"basis": "principal", "n_local": 16},
    ],
    ids=["hadamard", "principal", "local"],
)
def test_signals_are_added_to_indexes_by_the_device(device, options):
    signals = np.random.default_rng(0).standard_normal((9000, 96)) * np.geomspace(1, 0.2, 96)
    encoder = ts.TrellisEncoder(12, random_state=7, **options).fit(signals)
    assert encoder.to("cuda").encode(signals) == encoder.encode(signals)
    ours, theirs = (ts.TrellisIndex(n_features=96, n_bytes=12, random_state=7, **options) for _ in range(2))
    for index, where in ((ours, "cuda"), (theirs, None)):
        if not index.is_fitted:
            index.fit(signals)
        index.add(signals, device=where)
    assert ours.get(ours.ids).codes == theirs.get(theirs.ids).codes
    adaptive = ts.AdaptiveEncoder(64, center=True, random_state=7).fit(signals)
    assert adaptive.to("cuda").encode(signals) == adaptive.encode(signals)


def test_damaged_codes_and_full_memory_raise_and_leave_the_device_usable(device):
    layout = Layout("compact", 64, 1024)
    codes = some_codes(layout, 1000, 0)
    broken = codes.copy()
    broken[333, -4:] = 0
    with pytest.raises(ValueError, match="code 333 is not valid"):
        Stripes.load(device, layout, broken)
    with pytest.raises(gpu.GpuMemoryError, match="bytes free"):
        device.empty((2**42,), np.uint8)
    assert Stripes.load(device, layout, codes).n_codes == 1000


@pytest.mark.parametrize("layout", ["compact", "fast"])
@pytest.mark.parametrize("bias", [True, False])
def test_layers(device, layout, bias):
    torch = pytest.importorskip("torch")
    linear = torch.nn.Linear(512, 3000, bias=bias)
    small = ts.nn.compress(linear, n_bits=64, layout=layout, random_state=7)
    x = torch.randn(5, 512)
    values, classes = small.topk(x, k=7)
    logits = small(x)
    small.cuda()
    ours = small.topk(x.cuda(), k=7)
    assert_array_equal(ours.indices.cpu(), classes)
    assert_array_equal(ours.values.cpu(), values)
    np.testing.assert_allclose(small(x.cuda()).cpu(), logits, rtol=0, atol=1e-5 * float(logits.abs().max()))
    assert small.topk(x.cuda().bfloat16(), k=7).values.dtype == torch.bfloat16
    small.codes[1] = small.codes[2]  # an in-place change is detected
    small.columns[:, 1] = small.columns[:, 2]
    if not bias:
        changed = small(x.cuda())
        assert_array_equal(changed[:, 1].cpu(), changed[:, 2].cpu())


def test_layers_called_in_a_loop_answer_each_input(device):
    """After the second call with the same memory, calls become a CUDA graph; other calls are interleaved."""
    torch = pytest.importorskip("torch")
    small = ts.nn.compress(torch.nn.Linear(512, 3000), n_bits=64, random_state=7)
    inputs = torch.randn(9, 2, 512)
    expected = [small.topk(x, k=5) for x in inputs]
    small.cuda()
    held = torch.empty(2, 512, device="cuda")
    for x, (values, classes) in zip(inputs, expected, strict=True):
        held.copy_(x)
        found = small.topk(held, k=5)
        assert_array_equal(found.indices.cpu(), classes)
        assert_array_equal(found.values.cpu(), values)
        other = small.topk(held[:1].clone(), k=5)
        assert_array_equal(other.indices.cpu(), classes[:1])
        del found, other
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        found = small.topk(held, k=5)
    side.synchronize()
    assert_array_equal(found.indices.cpu(), expected[-1].indices)


def test_layers_can_be_captured_in_a_graph(device):
    torch = pytest.importorskip("torch")
    small = ts.nn.compress(torch.nn.Linear(512, 3000), n_bits=64, random_state=7).cuda()
    x = torch.randn(2, 512, device="cuda")
    small.topk(x, k=5)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = small.topk(x, k=5)
    for _ in range(3):
        x.copy_(torch.randn(2, 512, device="cuda"))
        graph.replay()
        expected = small.topk(x, k=5)
        assert_array_equal(found.indices.cpu(), expected.indices.cpu())
        assert_array_equal(found.values.cpu(), expected.values.cpu())


TRELLISES = [  # features, bits, window
    (384, 192, 10),
    (384, 384, 10),
    (100, 75, 12),
    (40, 320, 4),
    (1100, 300, 8),
]


@pytest.mark.parametrize("sizes", TRELLISES, ids=str)
@pytest.mark.parametrize("n_queries", [1, 3, 16, 17, 70, 300])
@pytest.mark.parametrize("fine_bits", [0, 5])
def test_trellis_searches(device, sizes, n_queries, fine_bits):
    """Any bytes are a valid code; these are random, with many duplicates, so scores tie."""
    n_features, n_bits, window = sizes
    n_codes, rng = 5000, np.random.default_rng(n_queries)
    tables, codes = some_trellis_codes(n_features, n_bits, window, n_codes, rng)
    codes[2500:4000] = codes[:1500]
    alive = rng.random(n_codes) < 0.7
    packed, words = np.packbits(alive, bitorder="little"), words_of(alive)
    values = rng.integers(-127, 128, (n_queries, n_features), np.int8)
    fine = rng.integers(-16, 16, (n_queries, n_features), np.int8) if fine_bits else None
    scales, constants = rng.uniform(1e-4, 1, (2, n_queries)).astype(np.float32)
    tables, queries = replace(tables, fine_bits=fine_bits), RoundedQueries(values, scales, constants, fine, fine_bits)
    form = TrellisFormat(device, tables)
    rings = form.load(codes, norms=True)
    assert_array_equal(device.get(rings.weights), kernels.active().trellis_weights(tables, codes))
    small, crowded = Tuning(first=256, growth=2, largest=1024), Tuning(first=256, candidate_bytes=1)
    for tuning, waits in ((Tuning(), False), (small, False), (Tuning(), True), (crowded, True)):
        search = BestSearch(device, form, n_queries, 12, n_codes, waits=waits, tuning=tuning)
        for norms, weights in ((False, rings.weights), (True, rings.with_norms)):
            search.start(RoundedOnDevice.put(device, queries))
            search.scan(Part(rings, weights, None, device.put(words)))
            cells, ranges = QueriedCells.one(tables, queries, norms=norms), [TrellisRange(codes, alive=packed)]
            positions, scores = kernels.active().rank_trellis(cells, ranges, 12, n_threads=4)
            assert_array_equal(device.get(search.positions), positions)
            assert_array_equal(device.get(search.scores), scores)


@pytest.mark.filterwarnings("ignore:.*the signals are not isotropic")
@pytest.mark.parametrize("kind", ["hadamard", "principal", "local", "inner_product"])
@pytest.mark.parametrize("memory", [None, 0])
def test_trellis_indexes(device, kind, memory, tmp_path):
    rng = np.random.default_rng(0)
    signals = (rng.standard_normal((12_000, 96)) * np.geomspace(1, 0.1, 96)).astype(np.float32)
    path = tmp_path / "index"
    options = {
        "hadamard": {"basis": "hadamard", "center": False},
        "principal": {},
        "local": {"n_local": 16},
        "inner_product": {"metric": "inner_product", "norms": True},
    }[kind]
    index = ts.TrellisIndex(n_features=96, n_bytes=12, random_state=7, path=path, **options)
    if kind != "hadamard":
        index.fit(signals[:4000])
    index.add(signals[:8000])
    index.add(signals[8000:8100], ids=np.arange(50_000, 50_100)[::-1])
    index.add(np.repeat(signals[8100:8110], 10, axis=0), ids=np.arange(10_000, 10_100) * 3)
    index.remove([5, 17, 50_003])
    held = index.to("cuda", memory=memory)
    assert held.nbytes == (held.needed_bytes if memory is None else 0)
    for n_queries in (1, 5, 40):
        queries = signals[:n_queries] + 0.2 * rng.standard_normal((n_queries, 96)).astype(np.float32)
        queries[-1] = signals[8105]  # ties
        for options in ({"k": 7}, {"k": 15}, {"k": 5, "among": [1, 2, 3, 50_050, 40, 299]}):
            equal_results(held.search(queries, **options), index.search(queries, **options))
        threshold = 3.0 if kind == "inner_product" else 0.3
        equal_results(held.within(queries, threshold=threshold), index.within(queries, threshold=threshold))
        if kind == "hadamard":
            equal_results(held.within(queries, false_alarm=0.01), index.within(queries, false_alarm=0.01))
    index.add(signals[8200:])
    assert held.refresh()
    equal_results(held.search(signals[9000:9002], k=3), index.search(signals[9000:9002], k=3))
    equal_results(held.search(signals[:2], k=2500), index.search(signals[:2], k=2500))


@pytest.mark.filterwarnings("ignore:.*their covariance is shrunk")
@pytest.mark.parametrize("projection", ["hadamard", "principal"])
@pytest.mark.parametrize("bias", [True, False])
def test_trellis_layers(device, projection, bias):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    linear = torch.nn.Linear(512, 3000, bias=bias)
    small = ts.nn.compress(linear, family="trellis", n_bits=256, projection=projection, random_state=7)
    for n_inputs in (1, 5, 40):
        x = torch.randn(n_inputs, 512)
        x[-1] = 0
        small.cpu()
        values, classes = small.topk(x, k=7)
        logits = small(x)
        small.cuda()
        for _ in range(3):  # later calls use recorded launches
            ours = small.topk(x.cuda(), k=7)
            if projection == "hadamard":
                assert_array_equal(ours.indices.cpu(), classes)
                assert_array_equal(ours.values.cpu(), values)
            else:  # another library computes the projections, so rounded inputs may differ by one
                assert (ours.indices.cpu() == classes).float().mean() > 0.95
        atol = (1e-6 if projection == "hadamard" else 1e-2) * float(logits.abs().max())
        np.testing.assert_allclose(small(x.cuda()).cpu(), logits, rtol=0, atol=atol)
    x[0, 3] = torch.nan
    assert torch.isnan(small.topk(x.cuda(), k=7).values[0]).all()
    assert small.topk(x.cuda().bfloat16(), k=7).values.dtype == torch.bfloat16


def test_trellis_layers_can_be_captured_in_a_graph(device):
    torch = pytest.importorskip("torch")
    small = ts.nn.compress(torch.nn.Linear(512, 3000), family="trellis", n_bits=256, random_state=7).cuda()
    x = torch.randn(2, 512, device="cuda")
    small.topk(x, k=5)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = small.topk(x, k=5)
    for _ in range(3):
        x.copy_(torch.randn(2, 512, device="cuda"))
        graph.replay()
        expected = small.topk(x, k=5)
        assert_array_equal(found.indices.cpu(), expected.indices.cpu())
        assert_array_equal(found.values.cpu(), expected.values.cpu())
