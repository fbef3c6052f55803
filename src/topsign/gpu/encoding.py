"""Encoding on a device, with the bits of the CPU: Hadamard projections, codes, trellis codes, and inputs of heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from .._arrays import Bytes, Float32
from .._checks import as_signals, suggests_keywords
from ..codes import Codes
from ..encoding import BlockEncoder, encode
from ..errors import GpuError
from ..families import AdaptiveRecipe, GroupedRecipe, Recipe, SignRecipe, TrellisRecipe
from ..families.projected import ProjectedRecipe
from ..families.signs import MIN_TOTAL, ProjectionSignsRecipe
from ..kernels import Ring, pack_log_factors
from ..projections import Hadamard
from ..projections.blocks import Block
from .device import Array, Device, empty_like, find_device, on_host
from .scan import DeviceQueries, code_constants

PROJECTED_BYTES = 2**28  # of projections at a time
WORK_BYTES = 2**30  # GPU memory for trellis encoding; less if little is free
RING_THREADS = 128
RING_SIGNALS = 4  # per 16 threads


class Projector:
    """Hadamard projection of signals on a device, with the bits of the CPU.

    Others use matrix products and transforms whose rounding depends on the library, so codes would differ.
    """

    def __init__(self, projection: Any, *, device: Device) -> None:
        if not isinstance(projection, Hadamard):
            raise TypeError(
                f"a GPU computes Hadamard projections, got a {projection.kind} one; project on the CPU, or use "
                'basis="hadamard"'
            )
        self.device, n = device, projection.n_features
        power = 1 << n.bit_length() - 1
        self.n_features, self.n_pool, self._operators = n, projection.n_pool, projection.n_blocks
        self._signs = device.put(np.ascontiguousarray(projection.signs))
        self._coordinates = device.put(projection.last_coordinates.astype(np.uint32))
        self._scales = tuple(np.float32(scale) for scale in (1 / np.sqrt(power), np.sqrt(n), np.sqrt(0.5)))
        self._threads = max(32, min(1024, -(-n // 64) * 32))  # two values per thread
        constants = {"N_FEATURES": n, "POWER": power, "ROUNDS": projection.rounds, "ROTATE_THREADS": self._threads}
        self._module = device.module(("rotate.cu",), constants)
        self._row = n + n // 32 + 1  # words per signal in shared memory, padded against bank conflicts
        self._in_shared = 4 * self._row + 2048 <= device.shared_bytes

    def project(self, signals: Array, out: Array, norms: Array | None = None) -> None:
        """Write projections (n_signals, n_pool) of signals (n_signals, n_features), both float32 on the device.

        With ``norms``, float64, signals are divided by their norms, which are written there.
        """
        work = None
        if not self._in_shared:
            work = self.device.empty((self._operators * len(signals), self._row), np.float32)
        grid, shared = (len(signals), self._operators), 4 * self._row if self._in_shared else 0
        operators = self._signs, self._coordinates, np.uint32(self.n_pool), *self._scales
        self._module.launch("rotate", grid, self._threads, signals, *operators, work, norms, out, shared=shared)


class SignsEncoder:
    """Encoder of adaptive, grouped and sign codes: the device projects signals and packs codes."""

    def __init__(self, recipe: ProjectionSignsRecipe, *, device: Device) -> None:
        self.device, self.recipe = device, recipe
        self._projector = Projector(recipe.projection, device=device)
        constants = code_constants(recipe.scorer)
        self._module = device.module(("codes.cuh", "encode.cu"), constants)
        self._n_bits = constants.get("N_BITS", 0)  # of adaptive codes
        self._shared = 4 * self._n_bits + -(-constants["DATA_BYTES"] // 4) * 4 if self._n_bits else 0

    def encode(self, block: Block) -> Bytes:
        """Return the codes of signals in host memory: see :meth:`topsign.families.Recipe.encode`."""
        signals, norms = self.device.put(block.values), np.sqrt(block.square_norms)
        with self.device.stream_of(signals):
            codes, totals = (self.device.get(array) for array in self._pack(signals))
        if (totals <= MIN_TOTAL * norms).any():
            return self.recipe.encode(block)  # which raises, except for zero signals
        if self.recipe.factor is not None:
            codes[:, self.recipe.n_bytes :] = pack_log_factors(norms)
        return codes

    def encode_resident(self, signals: Array) -> Array:
        """Return codes (n_signals, code_bytes) of signals (n_signals, n_features) float32, both on the device."""
        codes, _ = self._pack(signals)
        if self.recipe.factor is not None:
            squares = self.device.empty((len(signals),), np.float64)
            sizes = np.uint32(len(signals)), np.uint32(self.recipe.n_features)
            self._module.launch("square_norms", -(-len(signals) // 8), 256, signals, *sizes, squares)
            codes[:, self.recipe.n_bytes :] = self.device.put(pack_log_factors(np.sqrt(self.device.get(squares))))
        return codes

    def _pack(self, signals: Array) -> tuple[Array, Array]:
        """Return codes whose factors are not set, and the sums of the kept magnitudes, float64."""
        n_signals, device, n_pool = len(signals), self.device, self.recipe.n_pool
        if self._shared + 1024 > device.shared_bytes:
            raise GpuError(
                f"codes of {self._n_bits} bits need {self._shared + 1024:,} bytes of shared memory, and this GPU "
                f"has {device.shared_bytes:,}; encode on the CPU"
            )
        codes = device.empty((n_signals, self.recipe.code_bytes), np.uint8)
        totals = device.empty((n_signals,), np.float64)
        size = max(1, PROJECTED_BYTES // (4 * n_pool))
        projected = device.empty((min(size, n_signals), n_pool), np.float32)
        for start in range(0, n_signals, size):
            rows = slice(start, min(start + size, n_signals))
            self._projector.project(signals[rows], projected)
            count = rows.stop - start
            blocks, threads = (count, 512) if self._n_bits else (-(-count // 8), 256)
            arguments = projected, np.uint32(count), np.uint32(self.recipe.code_bytes), codes[rows], totals[rows]
            self._module.launch("pack_codes", blocks, threads, *arguments, shared=self._shared)
        return codes, totals


class RingEncoder:
    """Viterbi encoder of trellis codes on a device, with the bytes of ``kernels.active().ring_encode``.

    Costs of states are in registers, decisions in GPU memory. The next batch of signals is copied while one is encoded.
    """

    def __init__(self, device: Device, ring: Ring) -> None:
        self.device, self.ring = device, ring
        self._module = device.module(("ring.cu",), {"THREADS": RING_THREADS, "SIGNALS": RING_SIGNALS})
        self._tables = tuple(map(device.put, encoder_tables(ring)))
        self._squares = device.put(np.ascontiguousarray(ring.squares))

    def ring_encode(self, ring: Ring, coordinates: Float32) -> Bytes:
        """Return codes and their factors."""
        assert ring is self.ring
        codes = np.empty((len(coordinates), self.ring.n_steps // 2 + 2), np.uint8)
        device = self.device
        with device.stream_of(self._squares):
            room = min(WORK_BYTES, device.free_bytes() // 4)
            size = max(1, min(room // (16 * self.ring.n_steps + 4 * self.ring.n_coded), len(coordinates)))
            shape = size, self.ring.n_coded
            buffers = [device.empty(shape, np.float32) for _ in range(2 if size < len(coordinates) else 1)]
            device.wait()  # memory freed by earlier work may still be in use
            encoded: tuple[slice, Array] | None = None
            for number, start in enumerate(range(0, len(coordinates), size)):
                rows = slice(start, min(start + size, len(coordinates)))
                here = buffers[number % 2][: rows.stop - start]
                with device.background():  # while the previous batch is encoded
                    device.copy(coordinates[rows], here)
                    device.wait()
                if encoded is not None:
                    codes[encoded[0]] = device.get(encoded[1])
                encoded = rows, self._encode(here)
            if encoded is not None:
                codes[encoded[0]] = device.get(encoded[1])
        return codes

    def _encode(self, coordinates: Array) -> Array:
        """Return the codes of coordinates (n_signals, n_coded) on the device; asynchronous."""
        n, device = len(coordinates), self.device
        before, last = device.empty((self.ring.n_steps, n, 16), np.uint8), device.empty((n,), np.uint8)
        counts = np.uint32(self.ring.n_steps), np.uint32(n)
        blocks = -(-n // (RING_THREADS // 16 * RING_SIGNALS))
        sizes = np.uint32(self.ring.n_coded), *counts
        self._module.launch("find_paths", blocks, RING_THREADS, coordinates, *self._tables, *sizes, before, last)
        codes = device.empty((n, self.ring.n_steps // 2 + 2), np.uint8)
        norms = self._squares, np.float64(self.ring.constant)
        self._module.launch("write_codes", -(-n // 128), 128, before, last, *norms, *counts, codes)
        return codes


def encoder_tables(ring: Ring) -> tuple[npt.NDArray[Any], ...]:
    """Return the steps, columns, costs and slopes that ``cuda/ring.cu`` describes."""
    dims = np.diff(ring.first)
    steps = np.stack([ring.first[:-1], ring.starts // 16, dims, dims], axis=1).astype(np.uint32)
    squares = np.zeros((ring.n_steps, 256), np.float32)
    for step, start in enumerate(ring.starts.tolist()):
        levels = ring.columns[start : start + 256 * dims[step]].reshape(-1, 256).astype(np.float32)
        for weight, level in zip(ring.weights[ring.first[step] :], levels, strict=False):
            squares[step] += weight * (level * level)
    slopes = np.stack([np.float32(-2) * ring.weights, ring.scales], axis=1)
    columns = (by_state(ring.columns).astype(np.int16) + 128).astype(np.uint8)
    return steps, columns, np.ascontiguousarray(by_state(squares)), slopes


def by_state(windows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return rows of 256 windows in the order [state after][state before] instead of [before][after]."""
    return windows.reshape(-1, 16, 16).transpose(0, 2, 1)


class TrellisEncoder:
    """Encoder of trellis codes: the CPU projects signals, the device runs the Viterbi algorithm."""

    def __init__(self, recipe: TrellisRecipe, *, device: Device) -> None:
        self._recipe, self._encoder = recipe, RingEncoder(device, recipe.ring)

    def encode(self, block: Block) -> Bytes:
        return self._recipe.encode(block, encoder=self._encoder)


ENCODERS: dict[type[Recipe], Callable[..., BlockEncoder]] = {
    AdaptiveRecipe: SignsEncoder,
    GroupedRecipe: SignsEncoder,
    SignRecipe: SignsEncoder,
    TrellisRecipe: TrellisEncoder,
}
"""Encoders by type of recipe."""


def block_encoder(recipe: Recipe, device: str | Device) -> BlockEncoder:
    """Return an encoder of this recipe on a device; raise TypeError if there is none."""
    return _encoder_type(type(recipe))(recipe, device=find_device(device))


def check_encoder(recipe: Recipe | type[Recipe], device: str | Device) -> None:
    """Raise unless the device exists and encodes this recipe, or recipes of this type before one is learned."""
    if isinstance(recipe, type):
        find_device(device)
        _encoder_type(recipe)
    else:
        block_encoder(recipe, device)


def _encoder_type(recipe_type: type[Recipe]) -> Callable[..., BlockEncoder]:
    if recipe_type not in ENCODERS:
        supported = ", ".join(known.family for known in ENCODERS)
        raise TypeError(
            f"a GPU makes codes of the families {supported}, got {recipe_type.__name__}, a recipe of "
            f"{recipe_type.family} codes; encode on the CPU, without a device"
        )
    return ENCODERS[recipe_type]


@suggests_keywords
class DeviceEncoder:
    """Encoder of a recipe on a CUDA device, with the same bytes as the CPU.

    Made by the ``to`` methods of encoders. Adaptive, grouped and sign codes need a Hadamard projection and are computed
    entirely on the device. Trellis codes can have any basis: the CPU projects the signals, and the device runs the
    Viterbi algorithm.

    Parameters
    ----------
    recipe : Recipe
    device : str
        "cuda", or "cuda:1" for the second GPU.
    feature_names : sequence of str, optional
        Required column names of tables, in order.
    """

    def __init__(
        self, recipe: Recipe, *, device: str | Device = "cuda", feature_names: Sequence[str] | None = None
    ) -> None:
        self.recipe, self.feature_names = recipe, feature_names
        self._device = find_device(device)
        self._encoder = block_encoder(recipe, self._device)

    @property
    def device(self) -> str:
        """Name of the device."""
        return self._device.name

    def encode(self, signals: npt.ArrayLike) -> Codes:
        """Return one code per signal, with the bytes of the CPU encoder; signals may be CUDA tensors."""
        values = as_signals(on_host(signals), n_features=self.recipe.n_features, feature_names=self.feature_names)
        made = encode(self.recipe, values, encoder=self._encoder)
        return self.recipe.codes_type(made, recipe=self.recipe, checked=True)

    def __repr__(self) -> str:
        return f"DeviceEncoder({self.recipe.family} codes of {self.recipe.n_features} features on {self.device})"


class InputRounder:
    """Rounding of inputs on a device, with the bits of the CPU if the projection is a Hadamard one."""

    def __init__(self, recipe: ProjectedRecipe, *, device: Device) -> None:
        self.recipe, self.device = recipe, device
        self._module = device.module(("inputs.cu",), {})
        self._projector = None  # others project inputs themselves
        if isinstance(recipe.projection, Hadamard):
            self._projector = Projector(recipe.projection, device=device)
        self._places = self._weights = self._mean = None
        self.normalises = recipe.scorer.ring is not None
        if self.normalises:
            trellis = cast(TrellisRecipe, recipe)
            design = trellis.design
            self._places = device.put(design.coded.astype(np.uint32))
            self._weights = device.put((design.values / recipe.n_features).astype(np.float32))
            if recipe.mean is not None:
                self._mean = device.put(trellis.projected_mean)

    def round(self, inputs: Array) -> DeviceQueries:
        """Project and round inputs, (n_inputs, n_features) float32 on the device."""
        assert self._projector is not None
        projected = empty_like(self.device, inputs, (len(inputs), self.recipe.n_pool), "float32")
        norms = empty_like(self.device, inputs, (len(inputs),), "float64") if self.normalises else None
        with self.device.stream_of(inputs):
            self._projector.project(inputs, projected, norms)
        return self.round_projected(projected, norms)

    def round_projected(self, projected: Array, norms: Array | None) -> DeviceQueries:
        """Round projections of inputs; if :attr:`normalises`, of unit inputs with these norms, float64."""
        n_inputs, width = len(projected), self.recipe.width
        values = empty_like(self.device, projected, (n_inputs, width), "int16")
        scales, constants = (empty_like(self.device, projected, (n_inputs,), "float32") for _ in range(2))
        with self.device.stream_of(projected):
            places = self._places, self._weights, np.uint32(width), np.float32(self.recipe.scorer.limit)
            arguments = projected, np.uint32(self.recipe.n_pool), *places, self._mean, norms
            self._module.launch("round_inputs", n_inputs, 256, *arguments, values, scales, constants)
        return DeviceQueries(values, scales, constants)
