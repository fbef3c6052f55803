"""Noise residuals of photographs, and maximum-likelihood fingerprints of cameras estimated from them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import scipy  # loads its modules on first use

from .._arrays import Array, Float32
from .._files import write_file
from .._safetensors import header_size, pack_header, parse_header
from ..errors import StorageError, install

try:
    import pywt
except ImportError:
    raise ImportError(f"noise residuals need PyWavelets: {install('cameras')}") from None

WAVELET, N_LEVELS, WINDOWS, SIGMA = "db8", 4, (3, 5, 7, 9), 3.0
LUMINANCE = (0.299, 0.587, 0.114)
SATURATED, DARK, FLAT = 250.0, 10.0, 0.25
"""Pixels have no weight at or above the first value, or below the second with a local variance below the third."""

GRID = 16
"""Sizes of crops are multiples of this, because four wavelet levels halve them four times."""

MIN_USABLE = 0.25
"""Least fraction of usable pixels in a crop."""

SUMS_FORMAT = "topsign camera sums 1"
INTENSITY_UNIT, ESTIMATE_UNIT = 256.0, 2.0**-10


@dataclass(frozen=True, eq=False)
class Residual:
    """Residual ``noise`` and weighted ``intensity`` of a photograph or a crop, each of shape (height, width)."""

    noise: Float32
    intensity: Float32  #: 0 for saturated and for flat dark pixels

    @property
    def n_usable(self) -> int:
        """Number of pixels whose weight is not zero."""
        return int(np.count_nonzero(self.intensity))

    @property
    def query(self) -> Float32:
        """Signal W I that is compared with codes of fingerprints, (height * width,)."""
        return (self.noise * self.intensity).ravel()


def extract_residual(pixels: Array) -> Residual:
    """Return the residual of an image of shape (height, width, 1 or 3), with values in [0, 255].

    Sides that are not multiples of 16 are extended by reflection, and the residual is cut to their length.

    :func:`denoise` is applied to each channel, and the residuals are combined with the weights of luminance. Then
    :func:`remove_linear_pattern` gives rows and columns zero mean, and :func:`filter_spectrum` removes periodic
    components. ValueError is raised if fewer than a quarter of the ``pixels`` are usable.
    """
    height, width = pixels.shape[:2]
    margins = (0, -height % GRID), (0, -width % GRID), (0, 0)
    values = np.pad(np.asarray(pixels, np.float32), margins, mode="reflect")
    intensity = luminance(values)
    weights = pixel_weights(values)
    n_usable, n_pixels = int(np.count_nonzero(weights)), weights.size
    if n_usable < MIN_USABLE * n_pixels:
        raise ValueError(
            f"has {n_usable:,} usable pixels of {n_pixels:,} (the others are saturated, or dark and flat), but at "
            f"least {int(MIN_USABLE * n_pixels):,} are needed; use a photograph with better exposure"
        )
    noise = np.zeros_like(intensity)
    for share, channel in zip(_shares(values), values.transpose(2, 0, 1), strict=True):
        noise += share * (channel - denoise(channel))
    noise = filter_spectrum(remove_linear_pattern(noise))
    return Residual(noise[:height, :width], (intensity * weights)[:height, :width])


def luminance(pixels: Array) -> Float32:
    """Return the luminance of pixels of shape (height, width, 1 or 3)."""
    values = np.asarray(pixels, np.float32)
    return np.asarray(values @ _shares(values), np.float32)


def _shares(pixels: Float32) -> Float32:
    """Return the share of each channel in the luminance."""
    return np.array(LUMINANCE if pixels.shape[2] == 3 else (1.0,), np.float32)


def pixel_weights(pixels: Float32) -> Float32:
    """Return 0 for saturated and for flat dark pixels, otherwise 1; ``pixels`` has the shape (height, width, channels).

    Saturated pixels show no pattern, and neither do dark pixels that were clipped or flattened by compression (Chen,
    Fridrich, Goljan and Lukas 2008, Section II).
    """
    brightest = pixels.max(axis=2)
    mean = scipy.ndimage.uniform_filter(brightest, 3)
    variance = scipy.ndimage.uniform_filter(brightest.astype(np.float64) ** 2, 3) - mean.astype(np.float64) ** 2
    lost = (brightest >= SATURATED) | ((brightest < DARK) & (variance < FLAT))
    return np.where(lost, np.float32(0), np.float32(1))


def denoise(channel: Float32) -> Float32:
    """Return a ``channel`` without its noise of standard deviation 3: a Wiener filter on wavelet coefficients.

    Lukas, Fridrich and Goljan 2006, Appendix A: coefficients of Daubechies 8 wavelets over four levels are multiplied
    by ``v / (v + 3**2)``, where v is the smallest of the local variances in windows of 3, 5, 7 and 9 coefficients.
    """
    smooth, shrunk = channel, []
    for _ in range(N_LEVELS):
        smooth, details = pywt.dwt2(smooth, WAVELET, mode="periodization")
        shrunk.append(tuple(band * _share(band, SIGMA**2) for band in details))
    for bands in reversed(shrunk):
        smooth = pywt.idwt2((smooth, bands), WAVELET, mode="periodization")
    return np.asarray(smooth, np.float32)


def remove_linear_pattern(noise: Array) -> Float32:
    """Return noise with zero mean in each row and column of the four grids of a colour filter array.

    Patterns common to a row or a column come from readout and demosaicing, which cameras of one model share (Chen,
    Fridrich, Goljan and Lukas 2008, Section III).
    """
    cleaned = np.array(noise, np.float32)
    for row in (0, 1):
        for column in (0, 1):
            grid = cleaned[row::2, column::2]
            grid -= grid.mean(axis=0, keepdims=True)
            grid -= grid.mean(axis=1, keepdims=True)
    return cleaned


def filter_spectrum(noise: Array) -> Float32:
    """Return noise without peaks in its spectrum, by Wiener filtering of the discrete Fourier transform.

    The pattern of a sensor is white, but JPEG blocks and other periodic processing cause peaks (Chen,
    Fridrich, Goljan and Lukas 2008, Section III; Goljan, Fridrich and Filler 2009).
    """
    variance = float(np.var(noise, dtype=np.float64))
    spectrum = scipy.fft.fft2(np.asarray(noise, np.float32))
    magnitudes = np.abs(spectrum) / np.sqrt(noise.size)
    return np.asarray(scipy.fft.ifft2(spectrum * (1 - _share(magnitudes, variance, mode="wrap"))).real, np.float32)


def _share(values: Float32, variance: float, *, mode: str = "reflect") -> Float32:
    """Return the Wiener gain ``v / (v + variance)`` of the least local variance v in four windows, less the noise."""
    squares = values * values
    local = scipy.ndimage.uniform_filter(squares, WINDOWS[0], mode=mode)
    for window in WINDOWS[1:]:
        np.minimum(local, scipy.ndimage.uniform_filter(squares, window, mode=mode), out=local)
    signal = np.maximum(local - np.float32(variance), 0)
    total = signal + np.float32(variance)
    return np.asarray(np.divide(signal, total, out=np.zeros_like(signal), where=total > 0), np.float32)


@dataclass(frozen=True, eq=False)
class FingerprintSums:
    """Sums over photographs: ``residuals`` of W I and ``intensities`` of I squared, each (height, width).

    Further photographs are added to the sums without reading the earlier ones again.
    """

    residuals: Float32
    intensities: Float32
    n_photographs: int  #: number of photographs

    @classmethod
    def of(cls, photographs: Iterable[Residual]) -> Self:
        """Return the sums of ``photographs`` of one camera, at least one."""
        residuals, intensities, count = np.zeros(()), np.zeros(()), 0
        for one in photographs:
            residuals = residuals + one.noise * one.intensity
            intensities = intensities + one.intensity.astype(np.float64) ** 2
            count += 1
        return cls(residuals.astype(np.float32), intensities.astype(np.float32), count)

    def __add__(self, other: FingerprintSums) -> FingerprintSums:
        counts = self.n_photographs + other.n_photographs
        return FingerprintSums(self.residuals + other.residuals, self.intensities + other.intensities, counts)

    def without(self, photograph: Residual) -> FingerprintSums:
        """Return the sums without ``photograph``, one of theirs."""
        residuals = self.residuals - photograph.noise * photograph.intensity
        intensities = np.maximum(self.intensities - photograph.intensity**2, 0)
        return FingerprintSums(residuals, intensities, self.n_photographs - 1)

    @property
    def estimate(self) -> Float32:
        """The maximum-likelihood estimate before its linear patterns and spectral peaks are removed."""
        known = self.intensities >= 1
        return np.divide(self.residuals, self.intensities, out=np.zeros_like(self.residuals), where=known)

    def fingerprint(self) -> Float32:
        """Return the maximum-likelihood estimate of the multiplicative pattern K, (height, width).

        ``sum(W I) / sum(I**2)``, Chen, Fridrich, Goljan and Lukas 2008, Equation 6; 0 for pixels without weight in all
        photographs. Linear patterns and spectral peaks are removed again, because those that are hidden in the noise of
        one residual appear in the mean of many.
        """
        return filter_spectrum(remove_linear_pattern(self.estimate))


def write_sums(folder: str | os.PathLike[str], sums: FingerprintSums, *, camera: str, compact: bool = False) -> str:
    """Write the sums of a camera to a new safetensors file and return its name, the SHA-256 of its content.

    A compact file has half the size. It stores the estimate K and the mean of I squared in float16, in units that use
    the range of this type.
    """
    arrays = {"residuals": sums.residuals, "intensities": sums.intensities}
    if compact:
        mean = sums.intensities / (sums.n_photographs * INTENSITY_UNIT)
        arrays = {"estimate": (sums.estimate / ESTIMATE_UNIT).astype(np.float16), "intensity": mean.astype(np.float16)}
    notes = {"format": SUMS_FORMAT, "camera": camera, "n_photographs": str(sums.n_photographs)}
    content = pack_header(arrays, notes) + b"".join(np.ascontiguousarray(one).tobytes() for one in arrays.values())
    name = f"{hashlib.sha256(content).hexdigest()}.safetensors"
    try:
        write_file(Path(folder) / name, lambda file: file.write(content))
    except OSError as error:
        raise StorageError(folder, "sums", f"cannot be written: {error}") from None
    return name


def read_sums(path: str | os.PathLike[str], *, shape: tuple[int, int], compact: bool = False) -> FingerprintSums:
    """Return the sums in a file; StorageError if the file is missing, damaged or of another shape."""
    names, kind = (("estimate", "intensity"), "F16") if compact else (("residuals", "intensities"), "F32")
    expected = 2 * shape[0] * shape[1] * (2 if compact else 4)
    try:
        n_bytes = Path(path).stat().st_size
        if not expected < n_bytes < expected + 4096:
            raise ValueError(f"it has {n_bytes} bytes instead of {expected} and a header")
        content = Path(path).read_bytes()
        if hashlib.sha256(content).hexdigest() != Path(path).stem:
            raise ValueError("it is damaged, because its SHA-256 differs from its name")
        header = parse_header(content[8 : 8 + header_size(content[:8], n_bytes)], n_bytes)
        if set(header.tensors) != set(names) or header.metadata.get("format") != SUMS_FORMAT:
            raise ValueError("it does not contain the sums of a camera")
        count = int(header.metadata["n_photographs"])
        arrays = [header.tensors[name] for name in names]
        if any(one.kind != kind or one.shape != shape for one in arrays):
            raise ValueError(f"the sums are not {kind} of {shape[1]} x {shape[0]} pixels")
        first, second = (one.view(np.frombuffer(content, np.uint8)).astype(np.float32) for one in arrays)
        if count < 1 or not np.isfinite(first).all() or not (second >= 0).all() or not np.isfinite(second).all():
            raise ValueError("the sums are negative, infinite or of no photograph")
    except (OSError, ValueError, KeyError) as error:
        raise StorageError(path, "sums", f"cannot be read: {error}; restore the file from a backup") from None
    if compact:
        second *= np.float32(count * INTENSITY_UNIT)
        first *= np.float32(ESTIMATE_UNIT) * second
    return FingerprintSums(first, second, count)
