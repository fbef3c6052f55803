"""Maximum-likelihood fingerprints of cameras, and the sums from which they are updated."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from .._arrays import Float32
from .._files import write_file
from .._safetensors import header_size, pack_header, parse_header
from ..errors import StorageError
from .residual import Residual, filter_spectrum, remove_linear_pattern

FORMAT = "topsign camera sums 1"
NAMES = ("residuals", "intensities")


@dataclass(frozen=True, eq=False)
class FingerprintSums:
    """Sums over photographs: ``residuals`` of W I and ``intensities`` of I squared, each (size, size).

    Further photographs are added to the sums without reading the earlier ones again.
    """

    residuals: Float32
    intensities: Float32
    n_photographs: int

    @classmethod
    def of(cls, photographs: Iterable[Residual], *, size: int) -> Self:
        """Return the sums of photographs of one camera."""
        residuals, intensities, count = np.zeros((size, size)), np.zeros((size, size)), 0
        for one in photographs:
            residuals += one.noise * one.intensity
            intensities += one.intensity**2
            count += 1
        return cls(residuals.astype(np.float32), intensities.astype(np.float32), count)

    def __add__(self, other: FingerprintSums) -> FingerprintSums:
        counts = self.n_photographs + other.n_photographs
        return FingerprintSums(self.residuals + other.residuals, self.intensities + other.intensities, counts)

    def without(self, photograph: Residual) -> FingerprintSums:
        """Return the sums without one of the photographs."""
        residuals = self.residuals - photograph.noise * photograph.intensity
        intensities = np.maximum(self.intensities - photograph.intensity**2, 0)
        return FingerprintSums(residuals, intensities, self.n_photographs - 1)

    def fingerprint(self) -> Float32:
        """Return the maximum-likelihood estimate of the multiplicative pattern K, (size, size).

        ``sum(W I) / sum(I**2)``, Chen, Fridrich, Goljan and Lukas 2008, Equation 6; 0 for pixels without weight in all
        photographs. Linear patterns and spectral peaks are removed again, because those that are hidden in the noise of
        one residual appear in the mean of many.
        """
        known = self.intensities >= 1
        estimate = np.divide(self.residuals, self.intensities, out=np.zeros_like(self.residuals), where=known)
        return filter_spectrum(remove_linear_pattern(estimate))


def write_sums(folder: str | os.PathLike[str], sums: FingerprintSums, *, camera: str) -> str:
    """Write the sums of a camera to a new safetensors file and return its name, the SHA-256 of its content."""
    arrays = dict(zip(NAMES, (sums.residuals, sums.intensities), strict=True))
    notes = {"format": FORMAT, "camera": camera, "n_photographs": str(sums.n_photographs)}
    content = pack_header(arrays, notes) + b"".join(np.ascontiguousarray(one).tobytes() for one in arrays.values())
    name = f"{hashlib.sha256(content).hexdigest()}.safetensors"
    write_file(Path(folder) / name, lambda file: file.write(content))
    return name


def read_sums(path: str | os.PathLike[str], *, size: int) -> FingerprintSums:
    """Return the sums in a file; StorageError if the file is missing, damaged or of another size."""
    expected = 2 * size * size * 4
    try:
        n_bytes = Path(path).stat().st_size
        if not expected < n_bytes < expected + 4096:
            raise ValueError(f"it has {n_bytes} bytes instead of {expected} and a header")
        content = Path(path).read_bytes()
        if hashlib.sha256(content).hexdigest() != Path(path).stem:
            raise ValueError("it is damaged, because its SHA-256 differs from its name")
        header = parse_header(content[8 : 8 + header_size(content[:8], n_bytes)], n_bytes)
        if set(header.tensors) != set(NAMES) or header.metadata.get("format") != FORMAT:
            raise ValueError("it does not contain the sums of a camera")
        count = int(header.metadata["n_photographs"])
        arrays = [header.tensors[name] for name in NAMES]
        if any(one.kind != "F32" or one.shape != (size, size) for one in arrays):
            raise ValueError(f"the sums are not float32 of {size} x {size} pixels")
        residuals, intensities = (one.view(np.frombuffer(content, np.uint8)).copy() for one in arrays)
        if count < 1 or not np.isfinite(residuals).all() or not (intensities >= 0).all():
            raise ValueError("the sums are negative, infinite or of no photograph")
    except (OSError, ValueError, KeyError) as error:
        raise StorageError(path, "sums", f"cannot be read: {error}; restore the file from a backup") from None
    return FingerprintSums(residuals, intensities, count)
