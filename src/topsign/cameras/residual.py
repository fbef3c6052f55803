"""Noise residual of a photograph, which contains the pattern of the sensor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # loads its modules on first use

from .._arrays import Array, Float32
from ..errors import install

try:
    import pywt
except ImportError:
    raise ImportError(f"noise residuals need PyWavelets: {install('cameras')}") from None

WAVELET, N_LEVELS, WINDOWS, SIGMA = "db8", 4, (3, 5, 7, 9), 3.0
LUMINANCE = (0.299, 0.587, 0.114)
SATURATED, DARK, FLAT = 250.0, 10.0, 0.25
"""Pixels have no weight at or above the first value, or below the second with a local variance below the third."""

MIN_USABLE = 0.25
"""Least fraction of usable pixels in a crop."""


@dataclass(frozen=True, eq=False)
class Residual:
    """Residual W and weighted intensity I of a photograph, each of shape (size, size)."""

    noise: Float32
    intensity: Float32  # 0 for saturated and for flat dark pixels

    @property
    def n_usable(self) -> int:
        """Number of pixels whose weight is not zero."""
        return int(np.count_nonzero(self.intensity))

    @property
    def query(self) -> Float32:
        """Signal W I that is compared with codes of fingerprints, (size * size,)."""
        return (self.noise * self.intensity).ravel()


def extract_residual(pixels: Array) -> Residual:
    """Return the residual of an image of shape (size, size, 1 or 3), with values in [0, 255].

    :func:`denoise` is applied to each channel, and the residuals are combined with the weights of luminance. Then
    :func:`remove_linear_pattern` gives rows and columns zero mean, and :func:`filter_spectrum` removes periodic
    components. ValueError is raised if fewer than a quarter of the pixels are usable.
    """
    values = np.asarray(pixels, np.float32)
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
    return Residual(filter_spectrum(remove_linear_pattern(noise)), intensity * weights)


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
