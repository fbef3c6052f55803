"""Simulated sensors: patterns, scenes and photographs as JPEG files."""

import io
from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image
from scipy.ndimage import convolve, zoom
from sklearn.datasets import load_sample_images

KERNELS = {
    "green": np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]]) / 4,
    "other": np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 4,
}


@dataclass(frozen=True)
class Photograph:
    """Content of a JPEG file, its exposure and, for natural images, its crop."""

    content: bytes
    exposure: float
    crop: tuple[int, int, int, bool] | None  # image, top, left, whether mirrored; None for synthetic scenes

    def shift(self, other):
        """Greatest distance in pixels, along an axis, from the same crop of the same image; None for other scenes."""
        if self.crop is None or other.crop is None or self.crop[::3] != other.crop[::3]:
            return None
        return max(abs(self.crop[1] - other.crop[1]), abs(self.crop[2] - other.crop[2]))


def pattern_of(sensor, size, strength):
    """Multiplicative pattern of a sensor, (size, size); its strength is drawn between two values."""
    rng = np.random.default_rng([1, sensor])
    return (rng.uniform(*strength) * rng.standard_normal((size, size))).astype(np.float32)


@cache
def natural_images(side):
    """Photographs that ship with scikit-learn, enlarged to at least this many pixels a side."""
    images = load_sample_images().images
    return [
        zoom(one, (*[1.02 * max(1, side / min(one.shape[:2]))] * 2, 1), order=1).astype(np.float32) for one in images
    ]


def synthetic_scene(noise, exponent):
    """Grey scene in [0, 1]: white noise (side, side) whose spectrum is divided by this power of the frequency."""
    side = len(noise)
    frequencies = np.maximum(np.hypot(np.fft.fftfreq(side)[:, np.newaxis], np.fft.rfftfreq(side)), 1 / side)
    grey = np.fft.irfft2(np.fft.rfft2(noise) / frequencies**exponent, (side, side))
    return (grey - grey.min()) / np.ptp(grey)


def scene(rng, side):
    """Colours of a scene in [0, 255], (side, side, 3), and its crop: two fifths are natural, the others synthetic."""
    if rng.random() < 0.4:
        images = natural_images(side)
        number = int(rng.integers(len(images)))
        image = images[number]
        top, left = (int(rng.integers(length - side + 1)) for length in image.shape[:2])
        found, is_mirrored = image[top : top + side, left : left + side], bool(rng.random() < 0.5)
        return found[:, ::-1] if is_mirrored else found, (number, top, left, is_mirrored)
    grey = 25 + 190 * synthetic_scene(rng.standard_normal((side, side)), rng.uniform(1.0, 1.6))
    return (grey[:, :, np.newaxis] * rng.uniform(0.7, 1, 3)).astype(np.float32), None


def photograph(rng, pattern, shown=None):
    """A JPEG file of quality 75 to 95, taken by a sensor with this pattern.

    A tenth of the photographs are overexposed and a tenth are dark; those of given colours are neither. The sensor has
    shot and read noise, a Bayer mosaic, white balance and bilinear demosaicing.
    """
    side = len(pattern)
    exposure = rng.choice([1.0, 1.7, 0.12], p=[0.8, 0.1, 0.1]) if shown is None else 1.0
    gains = np.array([rng.uniform(1.2, 2), 1, rng.uniform(1.2, 2)])
    colours, crop = scene(rng, side) if shown is None else (shown, None)
    light = exposure * colours / gains  # before white balance
    mosaic = np.zeros((side, side), int)
    mosaic[0::2, 1::2] = mosaic[1::2, 0::2] = 1
    mosaic[1::2, 1::2] = 2
    raw = np.take_along_axis(light, mosaic[:, :, np.newaxis], axis=2)[:, :, 0] * (1 + pattern)
    raw = np.clip(raw + rng.standard_normal(raw.shape) * np.sqrt(0.02 * np.maximum(raw, 0) + 0.5), 0, 255)
    channels = []
    for channel in range(3):
        kernel = KERNELS["green" if channel == 1 else "other"]
        channels.append(convolve(np.where(mosaic == channel, raw, 0), kernel, mode="mirror") * gains[channel])
    return Photograph(jpeg(np.stack(channels, axis=2), int(rng.integers(75, 96))), float(exposure), crop)


def jpeg(pixels, quality):
    """Content of a JPEG file of these pixels."""
    file = io.BytesIO()
    Image.fromarray(np.clip(np.round(pixels), 0, 255).astype(np.uint8)).save(file, "JPEG", quality=quality)
    return file.getvalue()


def decoded(content):
    """Pixels of a JPEG file."""
    return np.asarray(Image.open(io.BytesIO(content)), np.float32)
