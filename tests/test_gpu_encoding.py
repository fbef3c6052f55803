"""GPU encoding without a GPU: its kernels, compiled for the CPU, give the same bytes as the CPU kernels."""

import numpy as np
import pytest
import reference
from emulator import COMPILER, EmulatedDevice
from numpy.testing import assert_array_equal

import topsign as ts
from topsign import gpu, kernels
from topsign.families import SignRecipe
from topsign.families.trellis.design import design_trellis
from topsign.gpu import viterbi
from topsign.gpu.viterbi import Viterbi, ViterbiSteps, source_table
from topsign.kernels import TrellisSignals
from topsign.kernels.trellis import Events, trellis_levels, trellis_sequences

emulated = pytest.mark.skipif(COMPILER is None, reason="the emulator of the kernels needs g++")


@pytest.fixture(scope="module")
def device():
    return EmulatedDevice()


def make(n_features, n_bits, window, *, uneven=True, extra=0):
    variances = np.geomspace(1, 0.05, n_features) if uneven else np.ones(n_features)
    design = design_trellis(variances, n_bits=n_bits, window=window)
    return design, design.tables(np.zeros(design.n_coded), 0.0, -(-n_bits // 8) + extra)


# n_features, n_bits, window: rates below and above one, rings of whole bytes and not, one event, two events, advances
# of a bit and of a whole window, and windows that more than four coordinates share.
SHAPES = [
    (40, 24, 4),
    (300, 64, 4),
    (1, 16, 4),
    (7, 40, 4),
    (60, 23, 5),
    (3, 24, 6),
    (70, 75, 7),
    (16, 16, 8),
    (2, 300, 8),
    (70, 75, 9),
    (40, 32, 10),
    (24, 200, 10),
    (20, 22, 11),
    (30, 100, 12),
    (3, 100, 12),
    (300, 40, 8),
]


@emulated
@pytest.mark.slow
@pytest.mark.parametrize(("n_features", "n_bits", "window"), SHAPES)
def test_trellis_codes_are_the_bytes_of_the_processor(device, rng, n_features, n_bits, window):
    for uneven in (False, True):
        design, tables = make(n_features, n_bits, window, uneven=uneven, extra=int(uneven))
        values = rng.standard_normal((5, design.n_coded)).astype(np.float32) * design.deviations
        values[1] *= 100  # far outside the range of targets
        values[2] = 0  # ties
        values[3] = design.deviations
        made = Viterbi(device).trellis_encode([TrellisSignals(tables, values)])
        assert_array_equal(made, kernels.active().trellis_encode([TrellisSignals(tables, values)]))


@emulated
@pytest.mark.slow
def test_blocks_take_signals_in_turn_and_chunks_do(device, rng, monkeypatch):
    design, tables = make(40, 24, 4)
    values = rng.standard_normal((7, design.n_coded)).astype(np.float32)
    arrays = (*trellis_sequences(4), trellis_levels())
    expected = np.array([reference.trellis_encode(row, tables, *arrays) for row in values])
    for size in (1, 4 * design.n_coded * 3, 2**20):  # one signal, several and all at a time
        monkeypatch.setattr(device, "free_bytes", lambda size=size: 4 * size)
        for n in (0, 1, 7):
            assert_array_equal(Viterbi(device).trellis_encode([TrellisSignals(tables, values[:n])]), expected[:n])


@pytest.mark.parametrize(("n_features", "n_bits", "window"), SHAPES)
def test_bits_of_a_code_come_from_events_that_read_them(n_features, n_bits, window):
    _, tables = make(n_features, n_bits, window, extra=1)
    starts, _, offsets, _ = Events.of(tables)
    sources = source_table(tables)
    assert len(sources) == 8 * tables.code_bytes
    read = np.zeros(8 * tables.code_bytes, bool)
    for start in starts:
        read[(tables.offsets[start] + np.arange(window)) % n_bits] = True
    assert_array_equal(sources != viterbi.NONE, read)
    bits = np.flatnonzero(read)
    assert_array_equal((offsets[sources[bits] // 16] + window - 1 - sources[bits] % 16) % n_bits, bits)


@pytest.mark.parametrize(("n_features", "n_bits", "window"), SHAPES)
def test_steps_are_the_events_in_parts_of_four_coordinates(n_features, n_bits, window):
    _, tables = make(n_features, n_bits, window)
    starts, ends, _, advances = Events.of(tables)
    plan, held = ViterbiSteps.of(tables), min(5, window)
    counts = plan.steps[:, 3] >> 12 & 15
    assert_array_equal(plan.steps[:, 0], np.append(0, np.cumsum(counts))[:-1])
    assert counts.sum() == tables.n_coded
    assert counts.max() <= 4
    assert_array_equal(plan.events & 255, advances)
    before = 0
    for number, (first, end) in enumerate(zip(plan.first_steps[:-1], plan.first_steps[1:], strict=True)):
        steps = plan.steps[first:end]
        assert (steps[0, 0], steps[-1, 0] + counts[end - 1]) == (starts[number], ends[number])
        assert set(steps[:, 1]) == {number}
        advance, turned, exchanges = steps[0, 3] & 15, steps[0, 3] >> 4 & 15, steps[0, 3] >> 8 & 1
        assert (advance, turned) == (advances[number], plan.events[number] >> 8)
        assert not (steps[1:, 3] & 15).any()  # they read no new bits
        assert exchanges or before + advance == turned <= held
        assert not exchanges or turned == (0 if advance > held else advance)
        before = turned
    pairs = plan.pairs & 0x7FFFFFFF
    assert_array_equal(
        np.concatenate([[p, p + 1][: 1 + (q >> 31)] for p, q in zip(pairs, plan.pairs, strict=True)]),
        np.arange(tables.n_coded),
    )


@pytest.mark.parametrize(("begin", "count"), [(0, 5), (0, 2), (3, 2), (3, 4), (4, 5)])
def test_steps_of_events_go_around_the_ring(begin, count):
    sizes = np.array([1, 3, 2, 1, 4])
    nothing = np.empty(0, np.uint32)
    plan = ViterbiSteps(nothing, np.zeros(5, np.uint32), nothing, np.append(0, np.cumsum(sizes)))
    expected = sizes[np.arange(begin, begin + count) % 5].sum()
    assert plan.steps_of(begin, count) == (sizes[:begin].sum(), expected)


def some_signals(n, n_features):
    return np.random.default_rng(1).standard_normal((n, n_features)) * np.geomspace(1, 0.3, n_features)


@emulated
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*shrunk")
@pytest.mark.parametrize(
    "options",
    [
        {"basis": "hadamard", "center": False, "random_state": 7},
        {"basis": "principal", "norms": True, "random_state": 7},
        {"basis": "principal", "n_local": 4, "random_state": 7},
        {"basis": ts.make_projection("circulant", n_features=24, random_state=2), "center": np.full(24, 0.01)},
    ],
    ids=["hadamard", "principal", "local", "given"],
)
def test_encoders_and_indexes_of_trellis_codes_on_the_device(device, options):
    signals = some_signals(80, 24)
    encoder = ts.TrellisEncoder(6, window=6, **options).fit(signals)
    held = encoder.to(device)
    for n in (0, 1, 33):
        assert held.encode(signals[:n]) == encoder.encode(signals[:n])
    with pytest.raises(ValueError, match=r"signals\[1\] is all zeros"):
        held.encode([signals[0], 0 * signals[0]])
    with pytest.raises(ValueError, match="24"):
        held.encode(signals[:, :20])
    ours, theirs = (ts.TrellisIndex(n_features=24, n_bytes=6, window=6, **options) for _ in range(2))
    for index, where in ((ours, device), (theirs, None)):
        index.add(signals, device=where)  # learns if the recipe is learned
        index.upsert(signals[30:50] + 0.1, ids=np.arange(70, 90), device=where)
    assert ours.get(ours.ids).codes == theirs.get(theirs.ids).codes


@emulated
@pytest.mark.slow
@pytest.mark.parametrize("center", [False, True])
def test_sign_codes_are_made_on_the_device(device, center):
    signals = some_signals(9, 64) + 1
    ours, theirs = (ts.SignIndex(n_features=64, n_pool=100, center=center, random_state=7) for _ in range(2))
    ours.add(signals, device=device)
    theirs.add(signals)
    assert ours.get(ours.ids).codes == theirs.get(theirs.ids).codes


@emulated
@pytest.mark.slow
@pytest.mark.parametrize("center", [False, True])
def test_adaptive_codes_are_made_on_the_device(device, center):
    signals = some_signals(9, 64) + 1
    encoder = ts.AdaptiveEncoder(16, n_pool=64, center=center, random_state=7).fit(signals)
    assert encoder.to(device).encode(signals) == encoder.encode(signals)
    ours, theirs = (ts.AdaptiveIndex(n_features=64, n_bits=16, center=center, random_state=7) for _ in range(2))
    ours.add(signals, device=device)
    theirs.add(signals)
    assert ours.get(ours.ids).codes == theirs.get(theirs.ids).codes
    with pytest.raises(ValueError, match=r"signals\[0\]"):
        ours.add(np.zeros((1, 64)) + (0 if ours.recipe.mean is None else ours.recipe.mean), device=device)
    assert len(ours) == 9


def test_columns_in_another_order_are_refused_by_a_device_too():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(some_signals(20, 8), columns=list("abcdefgh"))
    options = {"basis": "hadamard", "center": False, "random_state": 1}
    for encoder in (ts.TrellisEncoder(4, **options), ts.AdaptiveEncoder(2, random_state=1)):
        held = encoder.fit(table).to(WithoutKernels())
        with pytest.raises(ValueError, match="column 0 is 'h', and was 'a'"):
            held.encode(table[list("hgfedcba")])


class WithoutKernels(EmulatedDevice):
    """Device that provides only memory."""

    def module(self, files, constants):
        return None


def test_what_a_device_cannot_make_is_refused_before_anything_is_learned(tmp_path):
    class Unknown(SignRecipe):
        """Recipe without an encoder for devices."""

    signals = some_signals(20, 8)
    others = ts.index_for(Unknown.make(n_features=8, n_pool=16, random_state=1))
    with pytest.raises(TypeError, match="families adaptive, sign, trellis, got Unknown, a recipe of sign codes"):
        others.add(signals, device=EmulatedDevice())
    assert len(others) == 0
    others = ts.AdaptiveIndex(
        n_features=8, n_bits=4, projection="gaussian", center=True, random_state=1, path=tmp_path / "adaptive"
    )
    with pytest.raises(TypeError, match="Hadamard projections, got a gaussian one"):
        others.add(signals, device=EmulatedDevice())
    index = ts.TrellisIndex(n_features=8, n_bytes=4, random_state=1, path=tmp_path / "trellis")
    for name in ("cpu", "cuda:", 3):
        with pytest.raises(gpu.GpuError, match='must be "cuda" or "cuda:" and a number, got'):
            index.add(signals, device=name)
    assert not index.is_fitted
    assert list(tmp_path.iterdir()) == []


@emulated
@pytest.mark.slow
def test_codes_too_long_for_the_device_are_refused():
    device = EmulatedDevice()
    device.shared_bytes = 1024
    index = ts.AdaptiveIndex(n_features=64, n_bits=16, n_pool=64, random_state=1)
    with pytest.raises(gpu.GpuError, match=r"codes of 16 bits need .* bytes of shared memory, and this GPU has 1,024"):
        index.add(some_signals(2, 64), device=device)
    assert len(index) == 0


def test_a_missing_device_is_named_before_anything_is_written(tmp_path, monkeypatch):
    def missing(number):
        raise gpu.GpuError(f"no card {number}")

    monkeypatch.setattr("topsign.gpu.device.cuda_device", missing)
    signals = some_signals(20, 8)
    index = ts.TrellisIndex(n_features=8, n_bytes=4, random_state=1, path=tmp_path / "index")
    with pytest.raises(gpu.GpuError, match="no card 1"):
        index.add(signals, device="cuda:1")
    assert list(tmp_path.iterdir()) == []
    encoder = ts.TrellisEncoder(4, basis="hadamard", center=False, random_state=1).fit(signals)
    with pytest.raises(gpu.GpuError, match="no card 0"):
        encoder.to("cuda")
