"""Photographs: image files read into the frame of the sensor, with their hash, size and EXIF fields."""

from __future__ import annotations

import hashlib
import os
import threading
import warnings
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from .._arrays import Array, Float32
from .._checks import check_count
from ..errors import install

try:
    from PIL import ExifTags, Image, UnidentifiedImageError
except ImportError:
    raise ImportError(f"reading photographs needs Pillow: {install('cameras')}") from None

SUFFIXES = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".tif": "TIFF", ".tiff": "TIFF"}
FORMATS = tuple(dict.fromkeys(SUFFIXES.values()))
MAX_PIXELS = 2**28
"""Pixels of the largest photograph that is decoded: 16,384 x 16,384."""

FULL_SCALE = {"L": 255, "RGB": 255, "RGBA": 255, "I;16": 65535, "I;16B": 65535, "I;16L": 65535}
"""Modes of Pillow that hold what a sensor measured, with the value of a saturated pixel."""

GRID = 16
"""Sizes of crops are multiples of this: four levels of wavelets halve them four times."""

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
"""Quarter turns counter-clockwise, after mirroring left to right, by the words of reports."""

_opening = threading.Lock()  # filters of warnings belong to the whole process


class PhotographError(ValueError):
    """A photograph that cannot be used: the message names the file, says why and what to do."""

    def __init__(self, path: str | os.PathLike[str], problem: str) -> None:
        super().__init__(f"{os.fspath(path)}: {problem}")
        self.path, self.problem = os.fspath(path), problem

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.problem)


@dataclass(frozen=True, eq=False)
class Photograph:
    """The centre of a photograph in the orientation of the file, which is that of the sensor, and what is known of it.

    EXIF's orientation is a remark on how to show the picture. It is not applied: fingerprints belong to pixels.
    """

    path: str
    sha256: str
    n_bytes: int
    width: int
    height: int
    size: int  # side of the square crop
    centre: Float32  # (size or size + 1, size or size + 1, channels) in [0, 255]; one more if the margin is odd
    exif: dict[str, str]  # model, date, orientation: those that the file has

    def crop(self, orientation: str = "as stored") -> Float32:
        """Return the square centre of the photograph in one of the ``ORIENTATIONS``: (size, size, channels)."""
        turns, mirrored = ORIENTATIONS[orientation]
        shown = np.rot90(self.centre[:, ::-1] if mirrored else self.centre, turns)
        top, left = ((length - self.size) // 2 for length in shown.shape[:2])
        return np.ascontiguousarray(shown[top : top + self.size, left : left + self.size])

    def frame(self, orientation: str = "as stored") -> tuple[int, int]:
        """Return width and height in one of the ``ORIENTATIONS``."""
        turns, _ = ORIENTATIONS[orientation]
        return (self.height, self.width) if turns % 2 else (self.width, self.height)

    def record(self, *, hashes: bool = True, exif: bool = True) -> dict[str, Any]:
        """Return what a database keeps of the photograph; the hash and EXIF fields only if asked for."""
        kept: dict[str, Any] = {"sha256": self.sha256} if hashes else {}
        kept |= {"bytes": self.n_bytes, "width": self.width, "height": self.height}
        return kept | ({name: self.exif[name] for name in ("model", "date") if name in self.exif} if exif else {})


def check_size(size: object) -> int:
    """Return the side of a crop, a multiple of 16 from 64 on."""
    value = check_count(size, "size", minimum=64)
    if value % GRID:
        raise ValueError(f"size must be a multiple of {GRID}, got {value}")
    return value


def read_photograph(path: str | os.PathLike[str], *, size: int = 1024) -> Photograph:
    """Read a JPEG, PNG or TIFF file of 8 or 16 bits; PhotographError for anything else, and for damaged files.

    Only the centre of ``size`` x ``size`` pixels is kept. Values of 16 bits are scaled to [0, 255] without rounding,
    except for colour images of 16 bits, which Pillow reads as 8 bits.
    """
    size = check_size(size)
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise PhotographError(path, f"cannot be read: {error.strerror}") from None
    if not content:
        raise PhotographError(path, "is empty (0 bytes)")
    try:
        with _opened(path, content) as image:
            _check(path, image, size)
            exif = _exif(image)
            centre = _centre(image, size)
            width, height = image.size
    except PhotographError:
        raise
    except Exception as error:  # decoders raise whatever their formats made them think of
        problem = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise PhotographError(path, f"cannot be decoded, it is damaged or truncated ({problem})") from None
    digest = hashlib.sha256(content).hexdigest()
    return Photograph(os.fspath(path), digest, len(content), width, height, size, centre, exif)


def thumbnail(path: str | os.PathLike[str], *, side: int = 320) -> bytes:
    """Return a small JPEG of a photograph that :func:`read_photograph` accepts, without its EXIF fields."""
    with _opened(path, Path(path).read_bytes()) as image:
        if image.mode.startswith("I;16"):
            shown = Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
        else:
            image.draft("RGB", (side, side))
            shown = image.convert("RGB")
    shown.thumbnail((side, side))
    small = BytesIO()
    shown.save(small, "JPEG", quality=80)
    return small.getvalue()


def _opened(path: str | os.PathLike[str], content: bytes) -> Any:
    """Return the image of a file whose header was read; its pixels are not decoded yet."""
    with _opening, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # large images are checked below, by their number of pixels
        try:
            return Image.open(BytesIO(content), formats=FORMATS)
        except Image.DecompressionBombError as error:
            raise PhotographError(path, f"is too large to decode: {error}") from None
        except UnidentifiedImageError:
            raise PhotographError(path, f"is not an image of a known format ({', '.join(FORMATS)})") from None


def _check(path: str | os.PathLike[str], image: Any, size: int) -> None:
    """Raise PhotographError if an image is no photograph that can be compared."""
    width, height = image.size
    form = "JPEG" if image.format == "MPO" else image.format  # a JPEG with previews behind it, as phones write
    expected = SUFFIXES.get(Path(path).suffix.lower())
    if expected != form:
        raise PhotographError(path, f"contains {form}, which is not what its name says; rename it if that is right")
    if width * height > MAX_PIXELS:
        raise PhotographError(path, f"has {width} x {height} pixels, at most {MAX_PIXELS:,} are decoded")
    if getattr(image, "n_frames", 1) > 1 and image.format != "MPO":
        raise PhotographError(path, f"is animated or has pages ({image.n_frames}); give one photograph per file")
    if image.mode not in FULL_SCALE:
        raise PhotographError(
            path, f"has pixels of mode {image.mode}, which no camera writes; give the original of the camera"
        )
    if min(width, height) < size:
        raise PhotographError(
            path, f"has {width} x {height} pixels, at least {size} x {size} are needed; give the full resolution"
        )


def _centre(image: Any, size: int) -> Float32:
    width, height = image.size
    left, top = (width - size) // 2, (height - size) // 2
    box = (left, top, width - left, height - top)  # of size, or size + 1 if the margin is odd
    values: Array = np.asarray(image.crop(box)).astype(np.float32) * np.float32(255 / FULL_SCALE[image.mode])
    return values[:, :, np.newaxis] if values.ndim == 2 else values[:, :, :3]


def _exif(image: Any) -> dict[str, str]:
    """Return model, date and orientation as texts; fields that cannot be read are left out."""
    try:
        tags = image.getexif()
        details = tags.get_ifd(ExifTags.IFD.Exif)
    except Exception:  # a damaged block of remarks does not make pixels worse
        return {}
    base = ExifTags.Base
    makes = [_text(tags.get(tag)) for tag in (base.Make, base.Model)]
    found = {
        "model": " ".join(one for one in makes if one),
        "date": _text(details.get(base.DateTimeOriginal) or tags.get(base.DateTime)),
        "orientation": _text(tags.get(base.Orientation)),
    }
    return {name: value for name, value in found.items() if value}


def _text(value: object) -> str:
    """Return a field of EXIF as printable text of at most 100 characters."""
    if value is None:
        return ""
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    return "".join(one for one in text if one.isprintable()).strip()[:100]
