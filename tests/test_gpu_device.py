"""Results on a CUDA device are bit-identical to those of the CPU."""

from unittest.mock import patch

import numpy as np
import pytest
from gpu_cases import CODES, equal_results, some_codes, some_queries, some_ring, words_of
from numpy.testing import assert_array_equal

import topsign as ts
from topsign import gpu, kernels
from topsign.families import AdaptiveRecipe, GroupedRecipe, SignRecipe
from topsign.gpu import scan
from topsign.gpu.encoding import RingEncoder
from topsign.gpu.scan import (
    CodeFormat,
    DeviceQueries,
    Part,
    TopkSearch,
    WithinSearch,
    make_scanner,
    put_rows,
)
from topsign.kernels import CodeBlocks, CodeRange

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device():
    try:
        return gpu.cuda_device(0)
    except gpu.GpuError as error:
        pytest.skip(str(error))


LARGE = {
    "512 signs": ("signs", 512, None),
    "512 groups": ("groups", 512, "log"),
    "24 bytes": ("ring", (8,) * 48, "cosine"),
    "300 bytes": ("ring", (1, 2, 0) * 200, "log"),
    "512 of 8192": ("kept", (512, 8192), "log"),
    "64 of 40000": ("kept", (64, 40_000), None),
}


@pytest.mark.parametrize("n_queries", [1, 3, 8, 9, 70, 300])
@pytest.mark.parametrize("case", [*CODES, *LARGE])
def test_searches(device, rng, case, n_queries):
    n_codes = 5000
    scoring, rows = some_codes(LARGE.get(case, case), n_codes, rng)
    queries = some_queries(scoring, n_queries, rng)
    alive = rng.random(n_codes) < 0.7
    form, on_device = CodeFormat(device, scoring), DeviceQueries.put(device, queries)
    part = Part(put_rows(device, rows), n_codes, None, device.put(words_of(alive)))
    values = kernels.active().scores(scoring, CodeBlocks.of(rows), queries)
    scanner, out = make_scanner(form, n_queries), device.empty((n_queries, n_codes), np.float32)
    scanner.start(on_device)
    scanner.values(part, out)
    assert_array_equal(device.get(out), values)
    ranges = [CodeRange(CodeBlocks.of(rows), alive=np.packbits(alive, bitorder="little"))]
    positions, best = kernels.active().rank(scoring, ranges, queries, 12)
    plain, small = {"GROWTH": scan.GROWTH}, {"FIRST_SCAN": 256, "GROWTH": 2, "LARGEST_SCAN": 1024}
    crowded = {"FIRST_SCAN": 256, "CANDIDATE_BYTES": 1}
    for sizes, waits in ((plain, False), (small, False), (plain, True), (crowded, True)):
        with patch.multiple(scan, **sizes):
            search = TopkSearch(form, n_queries, 12, n_codes, waits=waits)
            search.start(on_device)
            search.scan(part)
        assert_array_equal(device.get(search.positions), positions)
        assert_array_equal(device.get(search.values), best)
    bounds = np.sort(values, axis=1)[:, -40]
    found = list(WithinSearch(form, on_device, bounds, n_codes).scan(part))
    reached = np.nonzero((values >= bounds[:, np.newaxis]) & alive)
    queries_found, positions_found = (np.concatenate([parts[i] for parts in found]) for i in (0, 1))
    order = np.lexsort((positions_found, queries_found))
    assert_array_equal(queries_found[order], reached[0])
    assert_array_equal(positions_found[order], reached[1])


def make_index(family, metric, path):
    options = {"n_features": 256, "metric": metric, "random_state": 7, "path": path}
    return {
        "adaptive": lambda: ts.Index(family="adaptive", n_bits=64, **options),
        "grouped": lambda: ts.Index(family="grouped", n_bytes=40, **options),
        "sign": lambda: ts.Index(family="sign", n_bytes=40, **options),
        "trellis": lambda: ts.Index(n_bytes=16, basis="hadamard", center=False, **options),
        "principal": lambda: ts.Index(n_bytes=16, **options),
    }[family]()


@pytest.mark.filterwarnings("ignore:.*the signals are not isotropic")
@pytest.mark.parametrize("metric", ["correlation", "inner_product"])
@pytest.mark.parametrize("family", ["adaptive", "grouped", "sign", "trellis", "principal"])
@pytest.mark.parametrize("memory", [None, 0])
def test_indexes(device, family, metric, memory, tmp_path):
    rng = np.random.default_rng(0)
    signals = rng.standard_normal((12_000, 256)).astype(np.float32)
    index = make_index(family, metric, tmp_path / "index")
    index.add(signals[:8000], device="cuda")
    index.add(signals[8000:8100], ids=np.arange(50_000, 50_100)[::-1])
    index.add(np.repeat(signals[8100:8110], 10, axis=0), ids=np.arange(10_000, 10_100) * 3)
    index.remove([5, 17, 50_003])
    held = index.to("cuda", memory=memory)
    assert held.nbytes == (held.needed_bytes if memory is None else 0)
    chosen = [{"scoring": scoring} for scoring in index.recipe.scorings]
    chosen += [{"adaptive_bits": 20}] if family == "sign" else []
    for n_queries in (1, 5, 40):
        queries = signals[:n_queries] + 0.5 * rng.standard_normal((n_queries, 256)).astype(np.float32)
        queries[-1] = signals[8105]  # ties
        for options in chosen:
            equal_results(held.search(queries, k=15, **options), index.search(queries, k=15, **options))
            among = {"k": 5, "among": [1, 2, 3, 50_050, 40, 299], **options}
            equal_results(held.search(queries, **among), index.search(queries, **among))
            if family != "principal":
                limit = {"false_alarm": 0.5, **options}
                equal_results(held.within(queries, **limit), index.within(queries, **limit))
    index.add(signals[8200:])
    assert held.refresh()
    equal_results(held.search(signals[9000:9002], k=3), index.search(signals[9000:9002], k=3))
    equal_results(held.search(signals[:2], k=2500), index.search(signals[:2], k=2500))


RECIPES = {
    "adaptive": lambda n_pool, **more: AdaptiveRecipe.make(n_bits=n_pool // 7, n_pool=n_pool, **more),
    "grouped": lambda n_pool, **more: GroupedRecipe.make(n_bytes=n_pool // 16, **more),
    "sign": lambda n_pool, **more: SignRecipe.make(n_bytes=n_pool // 8, **more),
}


@pytest.mark.parametrize(("n_features", "n_pool"), [(64, 64), (100, 256), (768, 608), (4096, 4096), (1, 16)])
@pytest.mark.parametrize("family", RECIPES)
def test_encoding(device, family, n_features, n_pool):
    signals = np.random.default_rng(0).standard_normal((50, n_features)).astype(np.float32)
    signals[1] = np.round(signals[1]) + 1
    recipe = RECIPES[family](n_pool, n_features=n_features, metric="inner_product", random_state=3)
    codes = ts.encoding.encode(recipe, signals)
    assert_array_equal(device.get(gpu.SignsEncoder(recipe, device=device).encode_resident(device.put(signals))), codes)
    assert_array_equal(gpu.DeviceEncoder(recipe).encode(signals).data, codes)


@pytest.mark.parametrize("dims", [(1, 0), (8,) * 48, (2, 2, 3, 1) * 10, (0, 0, 0, 1, 30, 2)], ids=str)
def test_trellis_encoding(device, rng, dims):
    ring = some_ring(dims, rng)
    coordinates = rng.standard_normal((5000, ring.n_coded)).astype(np.float32)
    coordinates[1] *= 100
    coordinates[2] = 0
    encoder = RingEncoder(device, ring)
    for n in (0, 1, 33, 5000):
        expected = kernels.active().ring_encode(ring, coordinates[:n])
        assert_array_equal(encoder.ring_encode(ring, coordinates[:n]), expected)


def test_full_memory_raises_and_leaves_the_device_usable(device):
    with pytest.raises(gpu.GpuMemoryError, match="bytes free"):
        device.empty((2**42,), np.uint8)
    assert device.zeros((5,), np.uint8).shape == (5,)


HEADS = {
    "adaptive": {"n_bits": 64},
    "grouped": {"n_bytes": 32},
    "sign": {"n_bytes": 32},
    "trellis": {"n_bytes": 32},
}


def compressed(family, **options):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    linear = torch.nn.Linear(512, 3000, bias=options.pop("bias", True))
    return torch, ts.nn.compress(linear, family=family, random_state=7, **HEADS[family], **options)


@pytest.mark.parametrize("family", HEADS)
@pytest.mark.parametrize("bias", [True, False])
def test_layers(device, family, bias):
    torch, small = compressed(family, bias=bias)
    for n_inputs in (1, 5, 40):
        x = torch.randn(n_inputs, 512)
        x[-1] = 0
        small.cpu()
        values, classes = small.topk(x, k=7)
        logits = small(x)
        small.cuda()
        for _ in range(3):  # later calls use the buffers of the first
            ours = small.topk(x.cuda(), k=7)
            assert_array_equal(ours.indices.cpu(), classes)
            assert_array_equal(ours.values.cpu(), values)
        assert_array_equal(small(x.cuda()).cpu(), logits)
    x[0, 3] = torch.nan
    assert torch.isnan(small.topk(x.cuda(), k=7).values[0]).all()
    assert small.topk(x.cuda().bfloat16(), k=7).values.dtype == torch.bfloat16
    small.codes[1] = small.codes[2]  # an in-place change is detected
    if not bias:
        changed = small(x.cuda())
        assert_array_equal(changed[:, 1].cpu(), changed[:, 2].cpu())


@pytest.mark.filterwarnings("ignore:.*their covariance is shrunk")
def test_layers_of_learned_axes(device):
    torch, small = compressed("trellis", basis="principal")
    x = torch.randn(40, 512)
    classes, logits = small.topk(x, k=7).indices, small(x)
    small.cuda()  # another library computes the projections, so rounded inputs may differ by one
    assert (small.topk(x.cuda(), k=7).indices.cpu() == classes).float().mean() > 0.95
    np.testing.assert_allclose(small(x.cuda()).cpu(), logits, rtol=0, atol=1e-2 * float(logits.abs().max()))


def test_layers_called_in_a_loop_answer_each_input(device):
    """Interleave calls with other shapes and on another stream."""
    torch, small = compressed("grouped")
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


@pytest.mark.parametrize("family", HEADS)
def test_layers_can_be_captured_in_a_graph(device, family):
    torch, small = compressed(family)
    small.cuda()
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
