"""Adaptive codes on a device: groups of 32, word by word, as ``cuda/codes.cuh`` describes."""

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
COPY_BYTES = 2**28  # of codes on their way to the device


class CodeFormat(ABC):
    """Description of the codes for the kernels."""

    reader: str  # file that reads a code
    scratch_bytes: int  # shared memory of a warp that scores a code exactly
    scores_exactly: bool = False  # whether scans do, so that nothing is scored again

    @abstractmethod
    def best_module(self, device: Device) -> Module:
        """Kernels that find the best of candidates."""

    @property
    @abstractmethod
    def constants(self) -> Mapping[str, int]:
        """Compile-time constants of the kernels."""

    @property
    @abstractmethod
    def code_words(self) -> int:
        """Words of a code."""

    def nbytes(self, n_codes: int) -> int:
        """Bytes of so many codes on the device; one group more is never read past."""
        return 4 * GROUP * (self.code_words * -(-n_codes // GROUP) + 1)

    def module(self, device: Device, *files: str, **constants: int) -> Module:
        """Kernels of these files for this format."""
        return device.module((self.reader, *files), {**self.constants, "DIGITS": 1, **constants})


@dataclass(frozen=True)
class Format(CodeFormat):
    """Sizes of a code on the device; both adaptive layouts have the same."""

    n_bits: int
    n_pool: int
    signs: bool = False  # of the whole pool, without locations

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
    """Codes on a device."""

    format: CodeFormat
    words: Array  # uint32, flat
    n_codes: int

    @classmethod
    def load(cls, device: Device, layout: Layout, codes: npt.NDArray[np.uint8] | Any) -> Stripes:
        """Copy codes from the host or the device in parts; raise ValueError for an invalid code."""
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
            bad = int(device.get(first_bad)[0])  # also waits: the bytes may go
            if bad < 2**32 - 1:
                raise ValueError(
                    f"code {start + bad} is not valid: its locations must be {form.n_bits} ascending rows of a pool of "
                    f"{form.n_pool}; the codes are damaged, or of other parameters"
                )
        return cls(form, words, n_codes)

    @property
    def nbytes(self) -> int:
        return 4 * int(self.words.shape[0])

    def at(self, position: int) -> Array:
        """The codes from a position on, which is a multiple of 32."""
        return self.words[position * self.format.code_words :]
