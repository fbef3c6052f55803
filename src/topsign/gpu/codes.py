"""Codes on a device: blocks of 32 codes in byte planes, as in memory and in segments, and the numbers kernels need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..kernels import BLOCK, CodeBlocks, Ring, RoundedQueries, Scoring, unpack_factors
from .device import Array, Device, Module

KINDS = {"signs": 0, "groups": 1, "ring": 2, "kept": 3}  # of Scoring, in cuda/codes.cuh
UInt32 = npt.NDArray[np.uint32]


class CodeFormat:
    """Codes of one scoring: compile-time constants of the kernels, factors, and codebooks of rings."""

    def __init__(self, device: Device, scoring: Scoring) -> None:
        self.device, self.scoring, self.width = device, scoring, scoring.width
        self.constants = code_constants(scoring)
        self.n_bytes = self.constants["DATA_BYTES"]  # of a code without its factor
        self.factors = None
        if scoring.factor is not None:
            numbers = np.arange(2**16, dtype="<u2").view(np.uint8).reshape(-1, 2)
            self.factors = device.put(unpack_factors(numbers, scoring.factor))
        self.steps = self.coordinates = self.levels = None
        if scoring.ring is not None:
            self.steps = device.put(step_places(scoring.ring))
            self.coordinates = device.put(coordinate_places(scoring.ring))
            self.levels = device.put(scoring.ring.levels)

    def module(self, *files: str, **constants: int) -> Module:
        """Return the kernels of these files, compiled for these codes."""
        return self.device.module(("codes.cuh", *files), {**self.constants, **constants})


def code_constants(scoring: Scoring) -> dict[str, int]:
    """Return the constants of ``cuda/codes.cuh``."""
    constants = {"KIND": KINDS[scoring.kind], "CODE_BYTES": scoring.code_bytes, "WIDTH": scoring.width}
    if scoring.layout is None:
        n_steps = 0 if scoring.ring is None else scoring.ring.n_steps
        sizes = {"signs": scoring.width // 8, "groups": scoring.width // 16, "ring": n_steps // 2}
        return constants | {"DATA_BYTES": sizes[scoring.kind]}
    layout, low = scoring.layout, -(-scoring.layout.n_bits * scoring.layout.low_bits // 8)
    constants |= {"DATA_BYTES": layout.code_bytes, "N_BITS": layout.n_bits, "LOW_BITS": layout.low_bits}
    high = layout.code_bytes - layout.sign_bytes - low
    return constants | {"SIGN_BYTES": layout.sign_bytes, "LOW_BYTES": low, "HIGH_BYTES": high}


def step_places(ring: Ring) -> UInt32:
    """Return the first level, the first coordinate and the number of coordinates of each step, (n_steps, 4)."""
    first = ring.first.astype(np.uint32)
    columns = ring.starts, first[:-1], np.diff(first), np.zeros(ring.n_steps)
    return np.stack([column.astype(np.uint32) for column in columns], axis=1)


def coordinate_places(ring: Ring) -> UInt32:
    """Return the step, the first level and the number of coordinates of the step of each coordinate, (n_coded, 4)."""
    steps = step_places(ring)
    numbers = np.repeat(np.arange(len(steps), dtype=np.uint32), steps[:, 2])
    levels, first, dims, nothing = steps[numbers].T
    inside = np.arange(len(numbers), dtype=np.uint32) - first
    return np.ascontiguousarray(np.stack([numbers, levels + inside, dims, nothing], axis=1))


@dataclass(frozen=True, eq=False)
class Part:
    """Consecutive codes on a device."""

    planes: Array  # (n_blocks, code_bytes, 32) uint8
    count: int
    biases: Array | None = None  # (count,) float32, added to values
    alive: Array | None = None  # packed bitmap in uint32; None: all
    base: int = 0  # position of the first code

    def __len__(self) -> int:
        return self.count


def put_rows(device: Device, codes: Any) -> Array:
    """Return the planes of rows of bytes, (n_codes, code_bytes), a NumPy array or an array on the device."""
    if isinstance(codes, np.ndarray):
        return device.put(CodeBlocks.of(np.ascontiguousarray(codes)).planes)
    count, code_bytes = codes.shape
    planes = device.zeros((-(-count // BLOCK), code_bytes, BLOCK), np.uint8)
    sizes = np.uint32(count), np.uint32(code_bytes)
    device.module(("best.cu",), {}).launch("to_planes", -(-count * code_bytes // 256), 256, codes, *sizes, planes)
    return planes


@dataclass(frozen=True, eq=False)
class DeviceQueries:
    """Rounded queries on a device, see :class:`topsign.kernels.RoundedQueries`."""

    values: Array  # (n_queries, width) int16
    scales: Array  # (n_queries,) float32
    constants: Array

    @classmethod
    def put(cls, device: Device, queries: RoundedQueries, rows: slice = slice(None)) -> DeviceQueries:
        """Copy rounded queries to the device."""
        arrays = queries.values, queries.scales, queries.constants
        return cls(*(device.put(np.ascontiguousarray(array[rows])) for array in arrays))

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.values, self.scales, self.constants

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> DeviceQueries:
        return DeviceQueries(*(array[rows] for array in self.arrays))
