"""GPU encoding without a GPU: its kernels, compiled for the CPU, give the same bytes as the CPU kernels."""

import numpy as np
import pytest
from emulator import COMPILER, EmulatedDevice
from gpu_cases import some_ring
from numpy.testing import assert_array_equal

import topsign as ts
from topsign import gpu, kernels
from topsign.families import AdaptiveRecipe, GroupedRecipe, SignRecipe
from topsign.gpu.encoding import Projector, RingEncoder
from topsign.index import deferred_of

emulated = pytest.mark.skipif(COMPILER is None, reason="the emulator of the kernels needs g++")


@pytest.fixture(scope="module")
def device():
    return EmulatedDevice()


# Coordinates of steps: the smallest ring, empty steps, shared books, and steps of many coordinates.
RINGS = [(1, 0), (2, 2, 2, 2), (5, 0, 3, 1), (0, 0, 0, 1, 30, 2), (4,) * 12]


@emulated
@pytest.mark.slow
@pytest.mark.parametrize("dims", RINGS, ids=str)
def test_trellis_codes_are_the_bytes_of_the_processor(device, rng, dims):
    ring = some_ring(dims, rng)
    coordinates = rng.standard_normal((67, ring.n_coded)).astype(np.float32)
    coordinates[1] *= 100  # far outside the levels
    coordinates[2] = 0  # ties
    encoder = RingEncoder(device, ring)
    for n in (0, 1, 67):
        made = encoder.ring_encode(ring, coordinates[:n])
        assert_array_equal(made, kernels.active().ring_encode(ring, coordinates[:n]))


@emulated
@pytest.mark.slow
def test_of_equal_costs_the_lower_state_wins(device, rng):
    ring = some_ring((3, 2, 1, 4), rng)
    ring.levels[:] = np.repeat(rng.integers(-3, 4, len(ring.levels) // 2), 2)
    ring.weights[:], ring.scales[:] = 1, 4
    coordinates = rng.integers(-3, 4, (50, ring.n_coded)).astype(np.float32) / 4
    assert_array_equal(
        RingEncoder(device, ring).ring_encode(ring, coordinates), kernels.active().ring_encode(ring, coordinates)
    )


@emulated
@pytest.mark.slow
def test_signals_are_encoded_in_batches_that_fit(device, rng, monkeypatch):
    ring = some_ring((2, 3, 1, 4), rng)
    coordinates = rng.standard_normal((7, ring.n_coded)).astype(np.float32)
    expected = kernels.active().ring_encode(ring, coordinates)
    for size in (1, 3 * (16 * ring.n_steps + 4 * ring.n_coded), 2**20):  # one signal, several and all at a time
        monkeypatch.setattr(device, "free_bytes", lambda size=size: 4 * size)
        assert_array_equal(RingEncoder(device, ring).ring_encode(ring, coordinates), expected)


def some_signals(n, n_features):
    return np.random.default_rng(1).standard_normal((n, n_features)) * np.geomspace(1, 0.3, n_features)


@emulated
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*shrunk")
@pytest.mark.parametrize(
    "options",
    [
        {"basis": "hadamard", "center": False, "random_state": 7},
        {"basis": "principal", "metric": "inner_product", "random_state": 7},
        {"basis": ts.make_projection("circulant", n_features=24, random_state=2), "center": np.full(24, 0.01)},
    ],
    ids=["hadamard", "principal", "given"],
)
def test_encoders_and_indexes_of_trellis_codes_on_the_device(device, options):
    signals = some_signals(80, 24)
    encoder = ts.Encoder(signals.shape[1], n_bytes=6, **options).fit(signals)
    held = encoder.to(device)
    for n in (0, 1, 33):
        assert held.encode(signals[:n]) == encoder.encode(signals[:n])
    with pytest.raises(ValueError, match=r"signals\[1\] is all zeros"):
        held.encode([signals[0], 0 * signals[0]])
    with pytest.raises(ValueError, match="24"):
        held.encode(signals[:, :20])
    ours, theirs = (ts.Index(24, n_bytes=6, **options) for _ in range(2))
    for index, where in ((ours, device), (theirs, None)):
        index.add(signals, device=where)  # learns if the recipe is learned
        index.upsert(signals[30:50] + 0.1, ids=np.arange(70, 90), device=where)
    assert ours.get(ours.ids).codes == theirs.get(theirs.ids).codes


RECIPES = {
    "adaptive": lambda **more: AdaptiveRecipe.make(n_bits=16, n_pool=100, **more),
    "grouped": lambda **more: GroupedRecipe.make(n_bytes=5, **more),
    "sign": lambda **more: SignRecipe.make(n_bytes=9, **more),
}


@emulated
@pytest.mark.slow
@pytest.mark.parametrize("n_features", [64, 100])
@pytest.mark.parametrize("metric", ["correlation", "inner_product"])
@pytest.mark.parametrize("family", RECIPES)
def test_codes_of_projections_are_made_on_the_device(device, family, metric, n_features):
    signals = some_signals(9, n_features).astype(np.float32) + 1
    signals[1] = np.round(signals[1])  # ties
    recipe = RECIPES[family](n_features=n_features, metric=metric, random_state=3)
    projected = np.empty((9, recipe.n_pool), np.float32)
    Projector(recipe.projection, device=device).project(signals, projected)
    assert_array_equal(projected.view(np.uint32), recipe.projection.apply(signals).view(np.uint32))
    expected = ts.Index.from_recipe(recipe)
    expected.add(signals)
    codes = expected.get(expected.ids).codes
    assert_array_equal(gpu.SignsEncoder(recipe, device=device).encode_resident(signals), codes.data)
    assert gpu.DeviceEncoder(recipe, device=device).encode(signals) == codes


@emulated
@pytest.mark.slow
@pytest.mark.parametrize("center", [False, True])
def test_indexes_are_filled_by_the_device(device, center):
    signals = some_signals(9, 64) + 1
    encoder = ts.Encoder(signals.shape[1], family="adaptive", n_bits=16, n_pool=64, center=center, random_state=7).fit(
        signals
    )
    assert encoder.to(device).encode(signals) == encoder.encode(signals)
    ours, theirs = (ts.Index(64, family="grouped", n_bytes=5, center=center, random_state=7) for _ in range(2))
    ours.add(signals, device=device)
    theirs.add(signals)
    assert ours.get(ours.ids).codes == theirs.get(theirs.ids).codes
    with pytest.raises(ValueError, match=r"signals\[0\]"):
        ours.add(np.zeros((1, 64)) + (0 if ours.recipe.mean is None else ours.recipe.mean), device=device)
    assert len(ours) == 9


@emulated
def test_a_signal_that_the_pool_misses_is_named(device):
    index = ts.Index(64, family="sign", n_bytes=1, random_state=7)
    rows = index.recipe.projection.rows(np.arange(8))
    signal = np.random.default_rng(0).standard_normal(64)
    signal -= np.linalg.pinv(rows) @ (rows @ signal)
    with pytest.raises(ValueError, match=r"signals\[0\].*all its kept projections are zero"):
        index.add(signal[np.newaxis], device=device)


class WithoutKernels(EmulatedDevice):
    """Device that provides only memory."""

    def module(self, files, constants):
        return None


def test_other_projections_are_refused():
    recipe = GroupedRecipe.make(n_features=8, n_bytes=1, basis="gaussian", random_state=1)
    with pytest.raises(TypeError, match="Hadamard projections, got a gaussian one"):
        gpu.SignsEncoder(recipe, device=WithoutKernels())


def test_what_a_device_cannot_make_is_refused_before_anything_is_learned(tmp_path):
    class Unknown(SignRecipe):
        """Recipe without an encoder for devices."""

    signals = some_signals(20, 8)
    others = ts.Index.from_recipe(Unknown.make(n_features=8, n_bytes=2, random_state=1))
    families = "families adaptive, grouped, sign, trellis, got Unknown, a recipe of sign codes"
    with pytest.raises(TypeError, match=families):
        others.add(signals, device=EmulatedDevice())
    assert len(others) == 0
    others = ts.Index(
        8, family="adaptive", n_bits=4, basis="gaussian", center=True, random_state=1, path=tmp_path / "adaptive"
    )
    with pytest.raises(TypeError, match="Hadamard projections, got a gaussian one"):
        others.add(signals, device=EmulatedDevice())
    index = ts.Index(8, n_bytes=4, random_state=1, path=tmp_path / "trellis")
    for name in ("cpu", "cuda:", 3):
        with pytest.raises(gpu.GpuError, match='must be "cuda" or "cuda:" and a number, got'):
            index.add(signals, device=name)
    assert deferred_of(index) is not None
    assert list(tmp_path.iterdir()) == []


@emulated
@pytest.mark.slow
def test_codes_too_long_for_the_device_are_refused():
    device = EmulatedDevice()
    device.shared_bytes = 1024
    index = ts.Index(64, family="adaptive", n_bits=16, n_pool=64, random_state=1)
    with pytest.raises(gpu.GpuError, match=r"codes of 16 bits need .* bytes of shared memory, and this GPU has 1,024"):
        index.add(some_signals(2, 64), device=device)
    assert len(index) == 0


def test_a_missing_device_is_named_before_anything_is_written(tmp_path, monkeypatch):
    def missing(number):
        raise gpu.GpuError(f"no card {number}")

    monkeypatch.setattr("topsign.gpu.device.cuda_device", missing)
    signals = some_signals(20, 8)
    index = ts.Index(8, n_bytes=4, random_state=1, path=tmp_path / "index")
    with pytest.raises(gpu.GpuError, match="no card 1"):
        index.add(signals, device="cuda:1")
    assert list(tmp_path.iterdir()) == []
    encoder = ts.Encoder(signals.shape[1], n_bytes=4, basis="hadamard", center=False, random_state=1).fit(signals)
    with pytest.raises(gpu.GpuError, match="no card 0"):
        encoder.to("cuda")
