"""Photographs: image files in the orientation of the sensor, with their residuals and scene signatures."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # loads its modules on first use

from .. import kernels
from .._arrays import Array, Float32
from .._checks import check_count
from ..errors import install
from .fingerprint import GRID, SATURATED, Residual, extract_residual, luminance

try:
    from PIL import ExifTags, Image, UnidentifiedImageError
except ImportError:
    raise ImportError(f"reading photographs needs Pillow: {install('cameras')}") from None

FORMATS = ("JPEG", "PNG", "TIFF")
SUFFIXES = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".tif": "TIFF", ".tiff": "TIFF"}
SUFFIXES |= {".heic": "HEIF", ".heif": "HEIF", ".dng": "DNG"}
READERS = {"HEIF": "pillow-heif", "DNG": "rawpy"}
"""Optional packages that read further formats."""

MIN_SIZE = 64
MAX_PIXELS = 2**28
"""Greatest number of pixels of a photograph that is decoded: 16,384 x 16,384."""

FULL_SCALE = {"L": 255, "RGB": 255, "RGBA": 255, "I;16": 65535, "I;16B": 65535, "I;16L": 65535}
"""Pillow modes of photographs, with the value of a saturated pixel."""

DEEP_COLOUR = re.compile("(RGB|RGBA|RGBX);16[BLN]")
"""Raw modes of colour images of 16 bits. Pillow keeps the high bytes or, in the other byte order, the low bytes."""

OTHER_ORDER = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}
GREY_RAW = ("L", "L;I", "I;16", "I;16B", "I;16L", "I;16N")
BITS_PER_SAMPLE = 258  # tag of TIFF

ORIENTATIONS = {
    "as stored": (0, False),
    "rotated by 90 degrees": (1, False),
    "rotated by 180 degrees": (2, False),
    "rotated by 270 degrees": (3, False),
    "mirrored": (0, True),
    "mirrored, rotated by 90 degrees": (1, True),
    "mirrored, rotated by 180 degrees": (2, True),
    "mirrored, rotated by 270 degrees": (3, True),
}
"""Quarter turns counter-clockwise and whether the image is mirrored first, by the name of the orientation."""

N_BLOCKS = 16
"""Blocks a side over which luminance is averaged."""

SCENE_BITS = 128
MAX_DIFFERENT = 28
"""Bits in which signatures of one scene differ at most. Independent signatures do so with probability 5e-11."""

EVEN = 0.02
"""Scenes whose blocks vary by less than this share of their mean have no signature."""

_SUMS = np.add.outer(np.arange(N_BLOCKS), np.arange(N_BLOCKS))
_ORDER = np.argsort(_SUMS, axis=None, kind="stable")
_CHOSEN = _ORDER[_SUMS.ravel()[_ORDER] >= 3][:SCENE_BITS]  # vignetting is in the orders below

DARK_MEAN, BRIGHT_MEAN, MAX_LOST = 50.0, 205.0, 0.1
CONDITIONS = ("normal", "dark", "overexposed")
"""Conditions of photographs, whose scores have null distributions of their own.

A photograph is dark if its mean luminance is below the first value, and overexposed if the mean is above the second or
if more than a tenth of the pixels are saturated.
"""

Progress = Callable[[int, int], None]

_opening = threading.Lock()  # warning filters and Pillow's limit of pixels are global


class PhotographError(ValueError):
    """Raised for a photograph that cannot be used; the message names the file, the reason and the remedy."""

    def __init__(self, path: str | os.PathLike[str], problem: str) -> None:
        super().__init__(f"{os.fspath(path)}: {problem}")
        self.path, self.problem = os.fspath(path), problem

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.problem)


@dataclass(frozen=True, eq=False)
class Photograph:
    """Photograph or its centre in the orientation of the sensor, with its SHA-256, size and EXIF fields.

    The EXIF orientation only says how to display the image. It is not applied, because fingerprints belong to the
    pixels of the sensor.
    """

    path: str  #: path of the file
    sha256: str  #: SHA-256 of the file, in hexadecimal digits
    n_bytes: int  #: size of the file in bytes
    width: int  #: width in pixels
    height: int  #: height in pixels
    size: int | None  #: side of the square crop; None for all pixels
    pixels: Float32  #: (height, width, channels) in [0, 255]; of a crop one row or column more if the margin is odd
    exif: dict[str, str]  #: fields that the file has, by name

    def crop(self, orientation: str = "as stored") -> Float32:
        """Return the pixels in an ``orientation``: (size, size, channels), or all of them without a size."""
        shown = turned(self.pixels, orientation)
        if self.size is None:
            return shown
        top, left = ((length - self.size) // 2 for length in shown.shape[:2])
        return np.ascontiguousarray(shown[top : top + self.size, left : left + self.size])

    def frame(self, orientation: str = "as stored") -> tuple[int, int]:
        """Return width and height in an ``orientation``, one of the ``ORIENTATIONS``."""
        turns, _ = ORIENTATIONS[orientation]
        return (self.height, self.width) if turns % 2 else (self.width, self.height)

    def record(self, *, names: bool = True, hashes: bool = True, exif: bool = True) -> dict[str, Any]:
        """Return the fields that a database stores; with file name (``names``), SHA-256 (``hashes``) and EXIF fields
        (``exif``) only if asked for.
        """
        kept: dict[str, Any] = {"file": Path(self.path).name} if names else {}
        kept |= {"sha256": self.sha256} if hashes else {}
        kept |= {"bytes": self.n_bytes, "width": self.width, "height": self.height}
        return kept | ({name: self.exif[name] for name in ("model", "date") if name in self.exif} if exif else {})


def turned(values: Array, orientation: str) -> Array:
    """Return an image (height, width, ...) in an orientation, one of the ``ORIENTATIONS``."""
    turns, mirrored = ORIENTATIONS[orientation]
    return np.ascontiguousarray(np.rot90(values[:, ::-1] if mirrored else values, turns))


def check_size(size: object) -> int:
    """Return the side of a crop: a multiple of 16, at least 64."""
    value = check_count(size, "size", minimum=MIN_SIZE)
    if value % GRID:
        raise ValueError(f"size must be a multiple of {GRID}, got {value}")
    return value


def photographs_in(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return the files of ``paths``, and in place of each folder the photographs in it and below, sorted by name."""
    found = []
    for path in paths:
        inside = sorted(Path(path).rglob("*")) if Path(path).is_dir() else [Path(path)]
        if Path(path).is_dir():
            inside = [one for one in inside if one.suffix.lower() in SUFFIXES and not one.is_dir()]
            if not inside:
                raise PhotographError(path, f"has no photographs ({', '.join(SUFFIXES)})")
        found += [os.fspath(one) for one in inside]
    return found


def read_photograph(path: str | os.PathLike[str], *, size: int | None = 1024) -> Photograph:
    """Read a JPEG, PNG, TIFF, HEIC or DNG file ``path``; PhotographError for anything else, and for damaged files.

    Only the centre of ``size`` x ``size`` pixels is kept, or all pixels if the size is None. Values of 16 bits, grey or
    colour, are scaled to [0, 255] without rounding. Other depths and layouts (12 bits, separate colour planes of 16
    bits) raise PhotographError. HEIC needs pillow-heif and gives the pixels as displayed, with 8 bits. DNG needs rawpy,
    which interpolates the colours.
    """
    size = None if size is None else check_size(size)
    content = _content(path)
    try:
        if Path(path).suffix.lower() == ".dng":
            shown = _developed(path, content)
            (height, width), exif = shown.shape[:2], {}
            _check_size(path, width, height, size)
            left, top, right, bottom = _box(width, height, size)
            pixels = shown[top:bottom, left:right].astype(np.float32) * np.float32(255 / 65535)
        else:
            with _opened(path, content) as image:
                _check(path, image, size)
                pixels = _pixels(path, content, image, size)
                exif = _exif(image)
                width, height = image.size
    except PhotographError:
        raise
    except Exception as error:  # decoders raise errors of many types
        problem = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise PhotographError(path, f"cannot be decoded, because it is damaged or truncated ({problem})") from None
    digest = hashlib.sha256(content).hexdigest()
    return Photograph(os.fspath(path), digest, len(content), width, height, size, pixels, exif)


def thumbnail(path: str | os.PathLike[str]) -> bytes:
    """Return a small JPEG of a photograph that :func:`read_photograph` accepts, without its EXIF fields."""
    content, size = _content(path), (320, 320)
    if Path(path).suffix.lower() == ".dng":
        shown = Image.fromarray((_developed(path, content) // 257).astype(np.uint8))
    else:
        with _opened(path, content) as image:
            if image.mode.startswith("I;16"):
                shown = Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
            else:
                image.draft("RGB", size)
                shown = image.convert("RGB")
    shown.thumbnail(size)
    small = BytesIO()
    shown.save(small, "JPEG", quality=80)
    return small.getvalue()


def _content(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a regular file; pipes and devices would block or never end."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise PhotographError(path, "is not a regular file; copy the photograph to a file first")
        content = Path(path).read_bytes()
    except OSError as error:
        raise PhotographError(path, f"cannot be read: {error.strerror}") from None
    if not content:
        raise PhotographError(path, "is empty (0 bytes)")
    return content


def _reader(path: str | os.PathLike[str], form: str) -> Any:
    """Return the optional package that reads a format."""
    try:
        if form == "HEIF":
            import pillow_heif

            return pillow_heif
        import rawpy

        return rawpy
    except ImportError:
        problem = f"is a {form} file, and reading it needs {READERS[form]} (pip install {READERS[form]})"
        raise PhotographError(path, f"{problem}; or use the JPEG file of the camera") from None


def _developed(path: str | os.PathLike[str], content: bytes) -> Array:
    """Return the colours of a DNG file with 16 bits, without the adjustments of a display: (height, width, 3)."""
    with _reader(path, "DNG").imread(BytesIO(content)) as raw:
        sizes = raw.sizes
        _check_size(path, sizes.iwidth, sizes.iheight, None)
        shown: Array = raw.postprocess(use_camera_wb=True, no_auto_bright=True, user_flip=0, output_bps=16)
    return shown


def _opened(path: str | os.PathLike[str], content: bytes) -> Any:
    """Open an image and read only its header."""
    if Path(path).suffix.lower() in (".heic", ".heif"):
        package = _reader(path, "HEIF")
        read = package.open_heif(BytesIO(content))
        _check_size(path, read.size[0], read.size[1], None)
        image = read.to_pillow()
        image.format = "HEIF"
        return image
    with _opening, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # below MAX_PIXELS, which _check applies
        try:
            return Image.open(BytesIO(content), formats=FORMATS)
        except UnidentifiedImageError:
            known = (*FORMATS, "HEIC", "DNG")
            raise PhotographError(path, f"is not an image of a supported format ({', '.join(known)})") from None
        finally:
            Image.MAX_IMAGE_PIXELS = limit


def _check_size(path: str | os.PathLike[str], width: int, height: int, size: int | None) -> None:
    """Raise PhotographError for too many pixels, or for fewer than the crop has."""
    if width * height > MAX_PIXELS:
        raise PhotographError(path, f"has {width} x {height} pixels, but at most {MAX_PIXELS:,} pixels are decoded")
    if min(width, height) < (MIN_SIZE if size is None else size):
        fits = min(width, height) // GRID * GRID
        wanted = f"at least {MIN_SIZE} are needed a side" if size is None else f"the crop has {size} x {size}"
        smaller = f", or a smaller crop (--size {fits}; enroll takes it for a new database only)"
        advice = "" if size is None or fits < MIN_SIZE else smaller
        raise PhotographError(path, f"has {width} x {height} pixels, but {wanted}; use the full resolution{advice}")


def _check(path: str | os.PathLike[str], image: Any, size: int | None) -> None:
    """Raise PhotographError if an image cannot be compared."""
    width, height = image.size
    form = "JPEG" if image.format == "MPO" else image.format  # JPEG with embedded previews, written by phones
    expected = SUFFIXES.get(Path(path).suffix.lower())
    if expected != form:
        raise PhotographError(path, f"is a {form} file, which its extension does not say; rename it if that is right")
    _check_size(path, width, height, size)
    if getattr(image, "n_frames", 1) > 1 and image.format != "MPO":
        raise PhotographError(path, f"is animated or has {image.n_frames} pages; use files with one photograph each")
    if image.mode not in FULL_SCALE:
        raise PhotographError(
            path, f"has pixels of mode {image.mode}, which cameras do not write; use the original file of the camera"
        )
    _check_samples(path, image)


def _check_samples(path: str | os.PathLike[str], image: Any) -> None:
    """Raise PhotographError if samples have more than 8 bits in a layout that cannot be read exactly."""
    raw_modes = _raw_modes(image)
    depths = image.tag_v2.get(BITS_PER_SAMPLE, (8,)) if image.format == "TIFF" else ()
    depth = max((*depths, 16 if any(";16" in raw for raw in raw_modes) else 8))
    if image.mode.startswith("I;16") or image.mode == "L":
        exact = all(raw in GREY_RAW for raw in raw_modes)
    elif depth > 8 or any(";" in raw for raw in raw_modes):
        exact = all(DEEP_COLOUR.fullmatch(raw) for raw in raw_modes)
    else:
        exact = True
    if not exact:
        layout = ", ".join(dict.fromkeys(raw_modes))
        raise PhotographError(
            path,
            f"has samples of {depth} bits in a layout ({layout}) that cannot be read without loss; convert it to "
            "a TIFF or PNG of 16 bits with interleaved colours and without transparency",
        )


def _raw_modes(image: Any) -> list[str]:
    """Return how the samples of each tile of an image are stored, in the words of Pillow."""
    return [tile.args if isinstance(tile.args, str) else tile.args[0] for tile in getattr(image, "tile", ())]


def _box(width: int, height: int, size: int | None) -> tuple[int, int, int, int]:
    """Return the ends of the central crop, which has one row or column more if the margin is odd."""
    left, top = (0, 0) if size is None else ((width - size) // 2, (height - size) // 2)
    return left, top, width - left, height - top


def _pixels(path: str | os.PathLike[str], content: bytes, image: Any, size: int | None) -> Float32:
    box = _box(image.width, image.height, size)
    deep = image.mode.startswith("RGB") and any(";16" in raw for raw in _raw_modes(image))
    full_scale = 65535 if deep else FULL_SCALE[image.mode]
    values: Array = np.asarray(image.crop(box)).astype(np.float32)
    if deep:
        values *= 256
        with _opened(path, content) as again:
            again.tile = [_in_other_order(tile) for tile in again.tile]
            values += np.asarray(again.crop(box))
    values *= np.float32(255 / full_scale)
    return values[:, :, np.newaxis] if values.ndim == 2 else values[:, :, :3]


def _in_other_order(tile: Any) -> Any:
    """Return a tile of 16-bit samples that is decoded in the other byte order, so that Pillow keeps the low bytes."""
    raw = tile.args if isinstance(tile.args, str) else tile.args[0]
    swapped = raw[:-1] + OTHER_ORDER[raw[-1]]
    args = swapped if isinstance(tile.args, str) else (swapped, *tile.args[1:])
    return type(tile)(tile.codec_name, tile.extents, tile.offset, args)


def _exif(image: Any) -> dict[str, str]:
    """Return EXIF fields as texts; fields that cannot be read are left out."""
    try:
        tags = image.getexif()
        details = tags.get_ifd(ExifTags.IFD.Exif)
    except Exception:  # damaged EXIF does not affect the pixels
        return {}
    base = ExifTags.Base
    make, model = (_text(tags.get(tag)) for tag in (base.Make, base.Model))
    found = {
        "model": model if model.lower().startswith(make.lower()) else f"{make} {model}".strip(),
        "date": _text(details.get(base.DateTimeOriginal) or tags.get(base.DateTime)),
        "orientation": _text(tags.get(base.Orientation)),
        "software": _text(tags.get(base.Software)),
        "serial number": _text(details.get(base.BodySerialNumber)),
        "lens": _text(details.get(base.LensModel)),
        "exposure time": _text(details.get(base.ExposureTime)),
        "f-number": _text(details.get(base.FNumber)),
        "sensitivity": _text(details.get(base.ISOSpeedRatings)),
        "focal length": _text(details.get(base.FocalLength)),
    }
    return {name: value for name, value in found.items() if value}


def _text(value: object) -> str:
    """Return an EXIF field as printable text of at most 100 characters."""
    if value is None:
        return ""
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    return "".join(one for one in text if one.isprintable()).strip()[:100]


def scene_signature(pixels: Array) -> bytes | None:
    """Return the signature of a scene, 16 bytes, from ``pixels`` of shape (size, size, 1 or 3); None for an even scene.

    Denoising leaves some detail of the scene in the residual. Two photographs that show the same scene at the same
    place (a copy, or a series from a tripod) therefore have correlated residuals, whichever cameras took them.

    The bits are signs of low-frequency cosine coefficients of the luminance. They hardly depend on exposure, noise,
    compression, or shifts of a few pixels.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> first, second = (np.kron(rng.uniform(0, 255, (16, 16, 1)), np.ones((8, 8, 1))) for _ in range(2))
    >>> same_scene(scene_signature(first), scene_signature(0.8 * first + rng.standard_normal(first.shape)))
    True
    >>> same_scene(scene_signature(first), scene_signature(second))
    False
    """
    values = luminance(pixels)
    side = len(values) // N_BLOCKS
    blocks = values.reshape(N_BLOCKS, side, N_BLOCKS, side).mean(axis=(1, 3), dtype=np.float64)
    chosen = scipy.fft.dctn(blocks, norm="ortho").ravel()[_CHOSEN]
    deviation = float(np.sqrt(np.mean(chosen**2)))
    if deviation < EVEN * float(blocks.mean()) or deviation == 0:
        return None
    return np.packbits(chosen >= 0).tobytes()


def same_scene(first: bytes | None, second: bytes | None) -> bool:
    """Return whether two signatures, ``first`` and ``second``, are those of one scene; False if one is None."""
    if first is None or second is None:
        return False
    return (int.from_bytes(first) ^ int.from_bytes(second)).bit_count() <= MAX_DIFFERENT


def condition_of(pixels: Array) -> str:
    """Return the condition of a photograph, one of the ``CONDITIONS``, from pixels (height, width, 1 or 3)."""
    mean, values = float(luminance(pixels).mean(dtype=np.float64)), np.asarray(pixels)
    if mean < DARK_MEAN:
        return "dark"
    lost = float(np.mean(values.max(axis=2) >= SATURATED))
    return "overexposed" if mean > BRIGHT_MEAN or lost > MAX_LOST else "normal"


@dataclass(frozen=True, eq=False)
class Reading:
    """A photograph with its residual and scene signature, both in one orientation.

    Photographs of which all pixels were read have no signature, because signatures belong to crops.
    """

    photograph: Photograph
    residual: Residual
    scene: bytes | None
    condition: str  # one of the CONDITIONS


def read_residual(path: str | os.PathLike[str], *, size: int | None) -> Reading:
    """Return a photograph with its residual; PhotographError names the file if it cannot be used."""
    return reading_of(read_photograph(path, size=size))


def reading_of(photograph: Photograph, orientation: str = "as stored") -> Reading:
    """Return a photograph with its residual in an orientation; PhotographError if too few pixels are usable."""
    pixels = photograph.crop(orientation)
    try:
        scene = None if photograph.size is None else scene_signature(pixels)
        return Reading(photograph, extract_residual(pixels), scene, condition_of(pixels))
    except ValueError as error:
        raise PhotographError(photograph.path, str(error)) from None


def read_residuals(
    paths: Sequence[str | os.PathLike[str]],
    *,
    size: int,
    progress: Progress | None = None,
) -> Iterator[Reading | PhotographError]:
    """Yield each file's photograph, without pixels, and residual in order, or the error that names the file.

    At most twice as many photographs as threads are held in memory.
    """

    def attempt(path: str | os.PathLike[str]) -> Reading | PhotographError:
        try:
            read = read_residual(path, size=size)
        except PhotographError as error:
            return error
        return replace(read, photograph=replace(read.photograph, pixels=np.empty((0, 0, 3), np.float32)))

    threads = kernels.n_threads()
    with ThreadPoolExecutor(threads) as pool:
        waiting = [pool.submit(attempt, path) for path in paths[: 2 * threads]]
        for done in range(len(paths)):
            read = waiting.pop(0).result()
            if done + 2 * threads < len(paths):
                waiting.append(pool.submit(attempt, paths[done + 2 * threads]))
            if progress is not None:
                progress(done + 1, len(paths))
            yield read
