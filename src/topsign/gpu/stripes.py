"""Adaptive and sign codes on a device, interleaved in groups of 32; ``cuda/codes.cuh`` describes the layout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .._lazy import lazy
from ..kernels import Layout
from .device import Array, Device, Module

GROUP = 32
COPY_BYTES = 2**28  # per copy of codes to the device


class CodeFormat(ABC):
    """Sizes of codes on the device, and the kernels that read them."""

    reader: str  # CUDA file with the functions that read a code
    scratch_bytes: int  # shared memory per warp of exact scoring
    scores_exactly: bool = False  # whether scans are exact, so that candidates need no second scoring

    @abstractmethod
    def best_module(self, device: Device) -> Module:
        """Return the kernels that find the best of candidates."""

    @property
    @abstractmethod
    def constants(self) -> Mapping[str, int]:
        """Compile-time constants of the kernels."""

    @property
    @abstractmethod
    def code_words(self) -> int:
        """Number of 32-bit words per code."""

    def nbytes(self, n_codes: int) -> int:
        """Return the bytes of a number of codes on the device, with padding for reads past the last group."""
        return 4 * GROUP * (self.code_words * -(-n_codes // GROUP) + 1)

    def module(self, device: Device, *files: str, **constants: int) -> Module:
        """Return the kernels of these files, compiled for this format."""
        return device.module((self.reader, *files), {**self.constants, "DIGITS": 1, **constants})


@dataclass(frozen=True)
class Format(CodeFormat):
    """Format of adaptive and sign codes; both adaptive layouts are stored in the same way."""

    n_bits: int
    n_pool: int
    signs: bool = False  # sign codes: all signs of the pool, without locations

    reader = "codes.cuh"

    @classmethod
    def of(cls, layout: Layout) -> Format:
        return cls(layout.n_bits, layout.n_pool, layout.name == "signs")

    def best_module(self, device: Device) -> Module:
        return self.module(device, "exact.cu", "best.cu", "bars.cu")

    @property
    def scratch_bytes(self) -> int:  # type: ignore[override]
        return 4 * (min(self.n_bits, 1024) + (self.code_words if self.code_words <= 2048 else 0))

    @lazy
    def low_bits(self) -> int:
        return 0 if self.signs else Layout("compact", self.n_bits, self.n_pool).low_bits

    @lazy
    def code_words(self) -> int:
        sign_words = -(-self.n_bits // 32)
        if self.signs:
            return sign_words
        high_size = Layout("compact", self.n_bits, self.n_pool).high_size
        return sign_words - (-self.n_bits * self.low_bits // 32) - (-high_size // 32)

    @property
    def constants(self) -> dict[str, int]:
        """Compile-time constants of the kernels."""
        return {
            "N_BITS": self.n_bits,
            "N_POOL": self.n_pool,
            "LOW_BITS": self.low_bits,
            "SIGNS": int(self.signs),
        }


@dataclass(frozen=True, eq=False)
class Stripes:
    """Codes on a device, interleaved in groups of 32."""

    format: CodeFormat
    words: Array  # uint32, flat
    n_codes: int

    @classmethod
    def load(cls, device: Device, layout: Layout, codes: npt.NDArray[np.uint8] | Any) -> Stripes:
        """Convert codes from host or GPU memory, in parts; raise ValueError for an invalid code."""
        form = Format.of(layout)
        kernels = form.module(device, "stripes.cu")
        n_codes = len(codes)
        words = device.zeros((form.nbytes(n_codes) // 4,), np.uint32)
        first_bad = device.put(np.array([2**32 - 1], np.uint32))
        size = max(GROUP, COPY_BYTES // max(1, layout.code_bytes) // GROUP * GROUP)
        for start in range(0, n_codes, size):
            part = codes[start : start + size]
            bytes_ = device.put(part) if isinstance(part, np.ndarray) else part
            out, count = words[start * form.code_words :], np.uint32(len(part))
            if layout.name == "fast":
                kernels.launch("convert_fast", -(-len(part) // 128), 128, bytes_, count, out)
            else:
                kernels.launch("convert_compact", -(-len(part) // GROUP), 256, bytes_, count, out)
            blocks = min(-(-len(part) // 8), 32 * device.n_processors)
            kernels.launch("check_codes", blocks, 256, out, count, first_bad)
            bad = int(device.get(first_bad)[0])  # synchronizes, so the bytes may be freed
            if bad < 2**32 - 1:
                raise ValueError(
                    f"code {start + bad} is not valid: its locations must be {form.n_bits} ascending rows of a pool of "
                    f"{form.n_pool}; the codes are damaged or belong to other parameters"
                )
        return cls(form, words, n_codes)

    @property
    def nbytes(self) -> int:
        return 4 * int(self.words.shape[0])

    def at(self, position: int) -> Array:
        """Return the codes from a position on, which must be a multiple of 32."""
        return self.words[position * self.format.code_words :]
