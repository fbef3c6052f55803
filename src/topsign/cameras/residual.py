"""The noise residual of a photograph: what denoising removes, where the pattern of the sensor is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # whose modules are loaded when they are first used

from .._arrays import Array, Float32
from ..errors import install

try:
    import pywt
except ImportError:
    raise ImportError(f"noise residuals need PyWavelets: {install('cameras')}") from None

WAVELET, N_LEVELS, WINDOWS, SIGMA = "db8", 4, (3, 5, 7, 9), 3.0
LUMINANCE = (0.299, 0.587, 0.114)
SATURATED, DARK, FLAT = 250.0, 10.0, 0.25
"""Pixels at or above the first, or both below the second and of a local variance below the third, carry no pattern."""

MIN_USABLE = 0.25
"""Share of the pixels of a crop that must be usable."""


@dataclass(frozen=True, eq=False)
class Residual:
    """Residual W and weighted intensity I of the pixels of a photograph, each of shape (size, size)."""

    noise: Float32
    intensity: Float32  # 0 for saturated and flat dark pixels, so that they count for nothing

    @property
    def n_usable(self) -> int:
        """Pixels whose weight is not zero."""
        return int(np.count_nonzero(self.intensity))

    @property
    def query(self) -> Float32:
        """The signal W I that is compared with codes of fingerprints, (size * size,)."""
        return (self.noise * self.intensity).ravel()


def extract_residual(pixels: Array) -> Residual:
    """Return the residual of an image of shape (size, size, 1 or 3), with values in [0, 255].

    Each channel is denoised by :func:`denoise`; the residuals are combined as luminance is, have zero mean in rows and
    columns (:func:`remove_linear_pattern`), and are filtered by :func:`filter_spectrum`. ValueError if fewer than a
    quarter of the pixels are usable.
    """
    values = np.asarray(pixels, np.float32)
    shares = np.array(LUMINANCE if values.shape[2] == 3 else (1.0,), np.float32)
    intensity = values @ shares
    weights = pixel_weights(values)
    n_usable, n_pixels = int(np.count_nonzero(weights)), weights.size
    if n_usable < MIN_USABLE * n_pixels:
        raise ValueError(
            f"has {n_usable:,} usable pixels of {n_pixels:,} (the others are saturated, or dark and flat), at least "
            f"{int(MIN_USABLE * n_pixels):,} are needed; give a photograph that is exposed better"
        )
    noise = np.zeros_like(intensity)
    for share, channel in zip(shares, values.transpose(2, 0, 1), strict=True):
        noise += share * (channel - denoise(channel))
    return Residual(filter_spectrum(remove_linear_pattern(noise)), intensity * weights)


def pixel_weights(pixels: Float32) -> Float32:
    """Return 0 for saturated and for flat dark pixels, otherwise 1; ``pixels`` has the shape (height, width, channels).

    A saturated pixel shows no pattern at all; black that was clipped, or flattened by compression, shows none either
    (Chen, Fridrich, Goljan and Lukas 2008, Section II).
    """
    brightest = pixels.max(axis=2)
    mean = scipy.ndimage.uniform_filter(brightest, 3)
    variance = scipy.ndimage.uniform_filter(brightest.astype(np.float64) ** 2, 3) - mean.astype(np.float64) ** 2
    lost = (brightest >= SATURATED) | ((brightest < DARK) & (variance < FLAT))
    return np.where(lost, np.float32(0), np.float32(1))


def denoise(channel: Float32, *, sigma: float = SIGMA) -> Float32:
    """Return a channel without its noise of standard deviation ``sigma``, by Wiener filtering in the wavelet domain.

    Lukas, Fridrich and Goljan 2006, Appendix A: coefficients of Daubechies 8 wavelets over four levels are multiplied
    by ``v / (v + sigma**2)``, where v is the smallest of the local variances in windows of 3, 5, 7 and 9 coefficients.
    """
    smooth, shrunk = channel, []
    for _ in range(N_LEVELS):
        smooth, details = pywt.dwt2(smooth, WAVELET, mode="periodization")
        shrunk.append(tuple(band * _share(band, sigma**2) for band in details))
    for bands in reversed(shrunk):
        smooth = pywt.idwt2((smooth, bands), WAVELET, mode="periodization")
    return np.asarray(smooth, np.float32)


def remove_linear_pattern(noise: Array) -> Float32:
    """Return noise with zero mean in each row and column of the four grids of a colour filter array.

    What rows and columns have in common is the readout and the interpolation of colours, which cameras of one model
    share (Chen, Fridrich, Goljan and Lukas 2008, Section III).
    """
    cleaned = np.array(noise, np.float32)
    for row in (0, 1):
        for column in (0, 1):
            grid = cleaned[row::2, column::2]
            grid -= grid.mean(axis=0, keepdims=True)
            grid -= grid.mean(axis=1, keepdims=True)
    return cleaned


def filter_spectrum(noise: Array) -> Float32:
    """Return noise without the peaks of its spectrum, by Wiener filtering of the discrete Fourier transform.

    The pattern of a sensor is white; peaks come from the blocks of JPEG and from other periodic processing (Chen,
    Fridrich, Goljan and Lukas 2008, Section III; Goljan, Fridrich and Filler 2009).
    """
    variance = float(np.var(noise, dtype=np.float64))
    spectrum = scipy.fft.fft2(np.asarray(noise, np.float32))
    magnitudes = np.abs(spectrum) / np.sqrt(noise.size)
    return np.asarray(scipy.fft.ifft2(spectrum * (1 - _share(magnitudes, variance, mode="wrap"))).real, np.float32)


def _share(values: Float32, variance: float, *, mode: str = "reflect") -> Float32:
    """Return ``v / (v + variance)`` of the signal's local variance v above the noise, the smallest of four windows."""
    squares = values * values
    local = scipy.ndimage.uniform_filter(squares, WINDOWS[0], mode=mode)
    for window in WINDOWS[1:]:
        np.minimum(local, scipy.ndimage.uniform_filter(squares, window, mode=mode), out=local)
    signal = np.maximum(local - np.float32(variance), 0)
    total = signal + np.float32(variance)
    return np.asarray(np.divide(signal, total, out=np.zeros_like(signal), where=total > 0), np.float32)
