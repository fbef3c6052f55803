"""Trellis codes on a device: rings of bits, interleaved in groups of 32; ``cuda/trellis.cuh`` describes the layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .._lazy import lazy
from ..errors import GpuError
from ..kernels import RoundedQueries, TrellisTables
from ..kernels.trellis import N_SEQUENCES, norm_fractions, trellis_levels
from .device import Array, Device, Module
from .stripes import COPY_BYTES, GROUP, CodeFormat, Stripes

PIECE = 16  # coordinates; tables are padded to a multiple
LEVELS = 128
THREADS = 256
TURNS = 0x80000000
MAX_JOINT_STEP = 4  # bits


class TrellisFormat(CodeFormat):
    """Format of the trellis codes of one cell, with the tables that kernels read."""

    reader = "trellis.cuh"
    scratch_bytes = 0
    scores_exactly = True

    def __init__(self, device: Device, tables: TrellisTables) -> None:
        self.device, self.tables, self.n_pool = device, tables, tables.n_coded
        if self.table_bytes + 1024 > device.shared_bytes:
            raise GpuError(
                f"a GPU reads trellis codes of at most {(device.shared_bytes - 1024 - LEVELS) // 8} coordinates, "
                f"got {self.n_pool}; search this index on the CPU"
            )
        self.coordinates = device.put(coordinate_table(tables))
        self.levels = device.put(trellis_levels().view(np.uint8))
        self._norm = device.put(norm_table(tables))
        self._fractions = device.put(norm_fractions())

    def best_module(self, device: Device) -> Module:
        return shared_module(device, "best.cu")

    @property
    def constants(self) -> dict[str, int]:
        return {
            "TRELLIS": 1,
            "RING_BITS": self.tables.n_bits,
            "WINDOW": self.tables.window,
            "N_POOL": self.n_pool,
            "FINE_BITS": self.tables.fine_bits,
        }

    @property
    def n_digits(self) -> int:
        """Number of digits of queries."""
        return 2 if self.tables.fine_bits else 1

    @property
    def code_words(self) -> int:
        return ring_words(self.tables)

    @property
    def table_bytes(self) -> int:
        """Size of the tables of coordinates and levels in shared memory."""
        return 8 * padded(self.n_pool) + LEVELS

    @lazy
    def joint_step(self) -> int:
        """Bits between the windows of every fourth coordinate, see :func:`joint_step`."""
        return joint_step(self.tables)

    @lazy
    def joint(self) -> Array:
        """Levels of four coordinates at a time, see :func:`joint_tables`; computed once for all searches."""
        return self.device.put(joint_tables(self.tables))

    def load(self, codes: npt.NDArray[np.uint8] | Any, *, norms: bool) -> Rings:
        """Convert codes from host or GPU memory, in parts. Any bytes are a valid code."""
        device, kernels = self.device, self.module(self.device, "rings.cu")
        count = len(codes)
        words = device.zeros((self.nbytes(count) // 4,), np.uint32)
        weights = device.empty((count,), np.float32)
        with_norms = device.empty((count,), np.float32) if norms else None
        size = max(GROUP, COPY_BYTES // self.tables.code_bytes // GROUP * GROUP)
        for start in range(0, count, size):
            rows = slice(start, min(start + size, count))
            part = codes[rows]
            bytes_ = device.put(part) if isinstance(part, np.ndarray) else part
            n, width = np.uint32(rows.stop - start), np.uint32(self.tables.code_bytes)
            out = words[start * self.code_words :]
            blocks = -(-int(n) // THREADS)
            kernels.launch("unroll", blocks, THREADS, bytes_, width, n, out)
            kernels.launch(
                "weigh",
                blocks,
                THREADS,
                out,
                self.coordinates,
                self.levels,
                self._norm,
                np.float32(self.tables.unit),
                np.float32(self.tables.constant),
                self._fractions,
                bytes_,
                width,
                n,
                weights[rows],
                None if with_norms is None else with_norms[rows],
                shared=self.table_bytes,
            )
            device.wait()  # before the bytes are freed
        return Rings(self, words, count, weights, with_norms)


@dataclass(frozen=True, eq=False)
class Rings(Stripes):
    """Trellis codes on a device, with the factors of their scores."""

    weights: Array  # inverse norms of the reconstructions
    with_norms: Array | None  # weights times the norms stored in the codes


@dataclass(frozen=True, eq=False)
class RoundedOnDevice:
    """Rounded queries on a device, see :class:`topsign.kernels.RoundedQueries`."""

    values: Array  # (n_queries, n_coded) int8
    scales: Array
    constants: Array
    fine: Array | None = None  # second digits

    @classmethod
    def put(cls, device: Device, queries: RoundedQueries) -> RoundedOnDevice:
        """Copy rounded queries to the device."""
        fine = None if queries.fine is None else device.put(queries.fine)
        return cls(device.put(queries.values), device.put(queries.scales), device.put(queries.constants), fine)

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.values, self.scales, self.constants

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> RoundedOnDevice:
        fine = None if self.fine is None else self.fine[rows]
        return RoundedOnDevice(self.values[rows], self.scales[rows], self.constants[rows], fine)


def shared_module(device: Device, *files: str) -> Module:
    """Return kernels that do not depend on the sizes of trellis codes."""
    return device.module(files, {"TRELLIS": 1, "DIGITS": 1, "RING_BITS": 1, "WINDOW": 1})


def padded(n_coded: int) -> int:
    """Return the number of coordinates in padded tables."""
    return -(-n_coded // PIECE) * PIECE


def ring_words(tables: TrellisTables) -> int:
    """Return the words of a ring, with its beginning repeated after its end."""
    return -(-(tables.n_bits + tables.window - 1) // 32)


def coordinate_table(tables: TrellisTables) -> npt.NDArray[np.uint32]:
    """Return window offsets and scrambling constants of coordinates, (padded n_coded, 2); the last row is padding."""
    which = np.minimum(np.arange(padded(tables.n_coded)), tables.n_coded - 1)
    offsets, turn = tables.offsets[which].astype(np.uint32), which % N_SEQUENCES
    multipliers, addends = (values[turn].astype(np.uint32) for values in tables.sequences)
    words = offsets // 32
    turns = np.diff(words, prepend=words[0]) > 0
    turns = np.repeat(turns.reshape(-1, 4).any(axis=1), 4)
    places = offsets % 32 | words << np.uint32(5) | np.where(turns, np.uint32(TURNS), np.uint32(0))
    return np.stack([places, addends << np.uint32(16) | multipliers], axis=1)


def norm_table(tables: TrellisTables) -> npt.NDArray[np.int32]:
    """Return quadratic and linear coefficients of the square norm, (padded n_coded, 2), padded with zeros."""
    table = np.zeros((padded(tables.n_coded), 2), np.int32)
    table[: tables.n_coded] = np.stack([tables.quadratic, tables.linear], axis=1)
    return table


def joint_step(tables: TrellisTables) -> int:
    """Return the bits by which windows advance every four coordinates; 0 if uneven or more than the kernels support."""
    step = 4 * tables.n_bits // tables.n_coded
    even = 1 <= step <= MAX_JOINT_STEP and np.array_equal(tables.offsets, np.arange(tables.n_coded) * step // 4)
    return step if even and 32 % step == 0 else 0


def joint_tables(tables: TrellisTables) -> npt.NDArray[np.uint8]:
    """Return tables of four levels, (64, 2**span, 4), by the bits that the windows of four coordinates cover."""
    step, window = joint_step(tables), tables.window
    number, covered = np.arange(N_SEQUENCES)[:, np.newaxis], np.arange(2 ** (window + step - 1))
    words = (covered >> step - 1 - number % 4 * step // 4 & 2**window - 1) << 16 - window
    multipliers, addends = (values.astype(np.int64)[:, np.newaxis] for values in tables.sequences)
    found = trellis_levels()[(words * multipliers + addends & 0xFFFF) >> 9]
    return np.ascontiguousarray(found.reshape(-1, 4, len(covered)).transpose(0, 2, 1)).view(np.uint8)
