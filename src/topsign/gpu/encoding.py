"""Hadamard projections, adaptive and sign codes of signals on a device, with the bits of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import GpuError
from ..kernels import Layout
from ..projections import Hadamard
from .device import Array, Device
from .stripes import Format

PROJECTED_BYTES = 2**28  # of projections at a time


class GpuEncoder:
    """Encoder of signals that are on a device already, with the bits of the CPU.

    Only Hadamard projections are supported: others use matrix products and transforms whose rounding depends on the
    library, so codes would differ.
    """

    _files: tuple[str, ...] = ("encode.cu",)

    def __init__(self, projection: Any, layout: Layout, *, device: Device) -> None:
        if not isinstance(projection, Hadamard):
            raise TypeError(
                f"a GPU computes Hadamard projections, got a {projection.kind} one; project on the CPU, or use "
                'projection="hadamard"'
            )
        self.device = device
        self.layout = layout
        n = projection.n_features
        power = 1 << n.bit_length() - 1
        self.n_features, self.n_pool, self._operators = n, projection.n_pool, projection.n_blocks
        self._signs = device.put(np.ascontiguousarray(projection.signs))
        self._coordinates = device.put(projection.last_coordinates.astype(np.uint32))
        scales = 1 / np.sqrt(power), np.sqrt(n), np.sqrt(0.5)
        self._scales = tuple(np.float32(scale) for scale in scales)
        self._threads = max(32, min(1024, -(-n // 64) * 32))  # two values per thread
        self._module = Format.of(layout).module(
            device,
            *self._files,
            N_FEATURES=n,
            POWER=power,
            ROUNDS=projection.rounds,
            ROTATE_THREADS=self._threads,
            FAST=int(layout.name == "fast"),
        )
        self._row = n + n // 32 + 1  # words per signal in shared memory, padded against bank conflicts
        self._in_shared = 4 * self._row + 2048 <= device.shared_bytes

    def project(self, signals: Array, out: Array) -> None:
        """Write projections (n_signals, n_pool) of signals (n_signals, n_features), both float32 on the device."""
        n_signals = len(signals)
        work = None
        if not self._in_shared:
            work = self.device.empty((self._operators * n_signals, self._row), np.float32)
        self._module.launch(
            "rotate",
            (n_signals, self._operators),
            self._threads,
            signals,
            self._signs,
            self._coordinates,
            np.uint32(self.n_pool),
            *self._scales,
            work,
            out,
            shared=4 * self._row if self._in_shared else 0,
        )

    def encode(self, signals: Array) -> tuple[Array, Array, Array]:
        """Return codes (n_signals, code_bytes), norms and scales of signals; the scale of a zero signal is NaN."""
        codes, totals = self.pack(signals)
        squares = self.device.empty((len(signals),), np.float64)
        self.square_norms(signals, squares)
        return codes, np.sqrt(squares).astype(np.float32), (squares / totals).astype(np.float32)

    def pack(self, signals: Array) -> tuple[Array, Array]:
        """Return codes of signals on the device, and the sums of the selected magnitudes, float64."""
        n_signals, device = len(signals), self.device
        if not self._keeps_all and self._shared + 1024 > device.shared_bytes:
            raise GpuError(
                f"codes of {self.layout.n_bits} bits need {self._shared + 1024:,} bytes of shared memory, and this GPU "
                f"has {device.shared_bytes:,}; encode on the CPU"
            )
        codes = device.empty((n_signals, self.layout.code_bytes), np.uint8)
        totals = device.empty((n_signals,), np.float64)
        size = max(1, PROJECTED_BYTES // (4 * self.n_pool))
        projected = device.empty((min(size, n_signals), self.n_pool), np.float32)
        for start in range(0, n_signals, size):
            rows = slice(start, start + size)
            part = signals[rows]
            self.project(part, projected)
            if self._keeps_all:
                self._pack_signs(projected[: len(part)], codes[rows], totals[rows])
            else:
                self._module.launch(
                    "pack_codes", len(part), 512, projected, codes[rows], totals[rows], shared=self._shared
                )
        return codes, totals

    def _pack_signs(self, projected: Array, codes: Array, totals: Array) -> None:
        count = len(projected)
        blocks = min(-(-count * self.layout.code_bytes // 256), 32 * self.device.n_processors)
        self._module.launch("pack_bits", blocks, 256, projected, np.uint32(count), codes)
        sizes = np.uint32(count), np.uint32(self.n_pool)
        self._module.launch("magnitude_sums", -(-count // 8), 256, projected, *sizes, totals)

    def square_norms(self, signals: Array, out: Array) -> None:
        """Write square norms of signals, float64, summed in the order of the CPU."""
        counts = np.uint32(len(signals)), np.uint32(self.n_features)
        self._module.launch("square_norms", -(-len(signals) // 8), 256, signals, *counts, out)

    @property
    def _keeps_all(self) -> bool:
        """Whether codes are sign codes, which keep the whole pool."""
        return self.layout.name == "signs"

    @property
    def _shared(self) -> int:
        return 4 * self.layout.n_bits + -(-self.layout.code_bytes // 4) * 4
