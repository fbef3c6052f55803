"""Alignment of photographs with fingerprints: peak to correlation energy, and the search for crops and scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # loads its modules on first use
from PIL import Image

from .. import kernels
from .._arrays import Array, Float32, Float64
from ..theory.tails import log_student_tail

NEIGHBORHOOD = 5
"""The energy excludes shifts of up to this many pixels in each direction, a square of 11 x 11."""

CUSTOMARY = 60.0
"""Threshold of Goljan, Fridrich and Filler 2009."""

SEARCHES = ("crop", "scale")
SMALLEST, LARGEST = 0.5, 2.0
"""Scales of a photograph relative to the pixels of the sensor."""

N_REFINED, N_STEPS = 3, 12
"""Number of scales of the grid that are refined by golden section, and number of further scales tried for each."""

PER_STEP = 12
"""Trials that each scale of a refined grid counts as, at each shift.

Refinement follows the highest correlation, so all scales between those of the grid are open to it, not only those that
it tries. By the formula of Rice, the highest correlation z over all scales exceeds a level as often as that of 1 + c z
independent scales per step of the grid. For residuals of simulated photographs c is 0.8 to 1.3, so a PCE of 60
(z = 7.7) needs at most 11.
"""

BLOCK, LEAST_OVERLAP = 8, 1e-3
"""Side of the blocks of JPEG; least share of the largest sum of squares at which correlations are normalised."""

GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Alignment:
    """Position of a photograph in the frame of a camera: its scale, and the region of the frame that it shows."""

    scale: float  #: pixels of the photograph per pixel of the sensor
    left: int  #: first column of the region, in pixels of the sensor
    top: int  #: first row of the region, in pixels of the sensor
    width: int  #: width in pixels
    height: int  #: height in pixels
    pce: float  #: peak to correlation energy

    def is_whole(self, frame: tuple[int, int]) -> bool:
        """Return whether the photograph shows the whole of a ``frame`` of this width and height, within 1%."""
        return self.width >= 0.99 * frame[0] and self.height >= 0.99 * frame[1]

    def words(self, frame: tuple[int, int]) -> str:
        """Return the position in words, for a ``frame`` of this width and height."""
        part = f"{self.width} x {self.height} pixels at ({self.left}, {self.top}) of {frame[0]} x {frame[1]}"
        region = "the whole frame" if self.is_whole(frame) else f"a crop of {part}"
        is_scaled = abs(self.scale - 1) * max(self.width, self.height) > 1  # by more than a pixel
        return f"{region}, scaled by {self.scale:.3f}" if is_scaled else region


def peak_to_correlation_energy(noise: Array, pattern: Array) -> float:
    """Return the PCE of a residual W, ``noise``, and the expected ``pattern`` I K, both (height, width), at shift zero.

    The PCE is the signed squared correlation at shift zero, divided by the mean square of the correlations at all
    circular shifts outside a neighbourhood of 11 x 11 (Goljan, Fridrich and Filler 2009, Equation 7). Its magnitude is
    about 1 for impostors, and 60 is a customary threshold. The PCE is 0 if one of the two is constant.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> pattern = rng.standard_normal((64, 64))
    >>> peak_to_correlation_energy(pattern + 3 * rng.standard_normal((64, 64)), pattern) > 60
    True
    """
    first, second = (np.asarray(one, np.float64) - np.mean(one, dtype=np.float64) for one in (noise, pattern))
    if first.shape != second.shape or first.ndim != 2 or min(first.shape) <= 2 * NEIGHBORHOOD + 1:
        raise ValueError(
            f"noise and pattern must have one shape, more than {2 * NEIGHBORHOOD + 1} pixels a side, "
            f"got {first.shape} and {second.shape}"
        )
    spectrum = scipy.fft.rfft2(first) * np.conj(scipy.fft.rfft2(second))
    return _energy_ratio(scipy.fft.irfft2(spectrum, first.shape), 0, 0)


def _energy_ratio(correlations: Array, top: int, left: int, *, every: int = 1) -> float:
    """Return the PCE of a peak among correlations at circular shifts, of which every one or every eighth counts."""
    peak, reach = float(correlations[top, left]), NEIGHBORHOOD // every * every
    near = np.arange(-reach, reach + 1, every)
    around = correlations[np.ix_((near + top) % len(correlations), (near + left) % correlations.shape[1])]
    compared = correlations[top % every :: every, left % every :: every]
    energy = float(np.sum(compared * compared)) - float(np.sum(around * around))
    return float(np.sign(peak)) * peak**2 * (compared.size - around.size) / energy if energy > 0 else 0.0


def pce_log10_p_value(pce: float, n_shifts: int) -> float:
    """Return the decimal logarithm of the probability that one shift of an impostor has at least this PCE.

    Approximation: normalised correlations follow a normal law whose deviation is estimated from ``n_shifts`` of them,
    so their ratio follows Student's law.
    """
    if pce <= 0:
        return math.log10(0.5)
    return float(log_student_tail(np.array([math.sqrt(pce)]), n_shifts)[0]) / math.log(10)


def trial_scales(shape: tuple[int, int], frame: tuple[int, int], search: Sequence[str]) -> Float64:
    """Return the scales at which a photograph is compared with a frame, both given as (height, width).

    A crop of the original scale needs the scale 1, and a scaled photograph of the whole frame the ratio of the sizes.
    For both together the scales from 0.5 to 2 form a grid. Its steps are 2 divided by the longer side of the photograph
    in pixels of the sensor, so that pixels at the edge are at most half a pixel away from where they belong.
    """
    least = max(shape[0] / frame[0], shape[1] / frame[1])
    is_whole = abs(shape[0] - shape[1] * frame[0] / frame[1]) <= 1 + frame[0] / frame[1]
    scales = [least] if "scale" in search and is_whole and SMALLEST <= least <= LARGEST else []
    if "crop" in search and least <= 1:
        scales.append(1.0)
    if len(set(search)) == len(SEARCHES):
        at = max(SMALLEST, least)
        while at <= LARGEST:
            scales.append(at)
            at *= 1 + 2 * at / max(shape)
    return np.unique(scales)


def n_trials(shape: tuple[int, int], frame: tuple[int, int], search: Sequence[str]) -> int:
    """Return the number of combinations of a shift and a scale that :meth:`FrameSpectrum.align` can choose from."""
    sizes = [_sensor_size(shape, frame, float(scale)) for scale in trial_scales(shape, frame, search)]
    n_shifts = sum((frame[0] - height + 1) * (frame[1] - width + 1) for height, width in sizes)
    return n_shifts * (PER_STEP if len(sizes) > len(SEARCHES) else 1)


def _sensor_size(shape: tuple[int, int], frame: tuple[int, int], scale: float) -> tuple[int, int]:
    """Return height and width of a photograph in whole pixels of the sensor."""
    return min(frame[0], int(shape[0] / scale + 1e-6)), min(frame[1], int(shape[1] / scale + 1e-6))


def on_sensor(query: Float32, frame: tuple[int, int], scale: float) -> Float32:
    """Return the signal W I of a photograph in pixels of the sensor, by bicubic interpolation."""
    height, width = _sensor_size(query.shape, frame, scale)
    if (height, width) == query.shape:
        return query
    box = (0, 0, min(width * scale, query.shape[1]), min(height * scale, query.shape[0]))
    image = Image.fromarray(query).resize((width, height), Image.Resampling.BICUBIC, box)
    return np.asarray(image, np.float32)


def centred_crop(query: Float32, frame: tuple[int, int], scale: float, size: int) -> Float32:
    """Return the central crop (size, size) of a frame that shows the photograph at its centre, and 0 elsewhere."""
    scaled = on_sensor(query, frame, scale)
    top, left = ((one - two) // 2 for one, two in zip(frame, scaled.shape, strict=True))
    whole = np.zeros(frame, np.float32)
    whole[top : top + scaled.shape[0], left : left + scaled.shape[1]] = scaled
    top, left = ((one - size) // 2 for one in frame)
    return whole[top : top + size, left : left + size]


class FrameSpectrum:
    """Spectra of the fingerprint of a whole frame and of its square, for correlations at all shifts.

    The deviation of an impostor's correlation depends on the shift: bright and dark regions of the photograph meet
    those of the fingerprint, and the blocks of JPEG make it depend on the shift modulo 8. Correlations are therefore
    divided by the root of the correlation of the squares, and then by their root mean square over the shifts of equal
    remainder.
    """

    def __init__(self, fingerprint: Float32) -> None:
        self.frame = fingerprint.shape
        self._padded = tuple(BLOCK * scipy.fft.next_fast_len(-(-one // BLOCK), real=True) for one in self.frame)
        centred = fingerprint - fingerprint.mean()
        self._spectra = [self._spectrum(one) for one in (centred, centred * centred)]
        self.n_shifts = self._padded[0] * self._padded[1] // BLOCK**2 - 1  # from which each deviation is estimated

    def _spectrum(self, values: Float32) -> Array:
        return np.asarray(scipy.fft.rfft2(values, self._padded, workers=kernels.n_threads()))

    def best_shift(self, query: Float32, scale: float) -> Alignment:
        """Return the position with the highest correlation of a photograph's signal W I at one scale."""
        scaled = on_sensor(query, self.frame, scale)
        (height, width), centred = scaled.shape, scaled - scaled.mean()
        correlations, squares = (
            scipy.fft.irfft2(np.conj(self._spectrum(one)) * known, self._padded, workers=kernels.n_threads())
            for one, known in zip((centred, centred * centred), self._spectra, strict=True)
        )
        correlations /= np.sqrt(np.maximum(squares, LEAST_OVERLAP * squares.max()))
        for row, column in np.ndindex(BLOCK, BLOCK):
            part = correlations[row::BLOCK, column::BLOCK]
            part /= max(math.sqrt(np.mean(part * part, dtype=np.float64)), 1e-30)
        inside = correlations[: self.frame[0] - height + 1, : self.frame[1] - width + 1]
        top, left = (int(one) for one in np.unravel_index(int(inside.argmax()), inside.shape))
        pce = _energy_ratio(correlations, top, left, every=BLOCK)
        return Alignment(scale, left, top, width, height, pce)

    def align(self, query: Float32, search: Sequence[str]) -> Alignment:
        """Return the best position of a photograph over all shifts and scales of a search.

        The best scales of the grid are refined by golden section within one step of the grid on each side.
        """
        scales = trial_scales(query.shape, self.frame, search)
        found = [self.best_shift(query, float(scale)) for scale in scales]
        ranked = np.argsort([-one.pce for one in found], kind="stable")
        if len(scales) > len(SEARCHES):
            for at in ranked[:N_REFINED]:
                ends = float(scales[max(0, at - 1)]), float(scales[min(len(scales) - 1, at + 1)])
                found.append(self._refined(query, *ends))
        return max(found, key=lambda one: one.pce)

    def _refined(self, query: Float32, low: float, high: float) -> Alignment:
        """Return the best position over scales between two, by golden section."""
        found = [self.best_shift(query, at) for at in (high - GOLDEN * (high - low), low + GOLDEN * (high - low))]
        below, above = found
        for _ in range(N_STEPS - 2):
            if below.pce >= above.pce:
                high, above = above.scale, below
                found.append(below := self.best_shift(query, high - GOLDEN * (high - low)))
            else:
                low, below = below.scale, above
                found.append(above := self.best_shift(query, low + GOLDEN * (high - low)))
        return max(found, key=lambda one: one.pce)
