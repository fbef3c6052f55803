"""Image files of cameras: formats, bit depths, orientations, and malicious files."""

import io
import os
import re
import struct
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from topsign import cameras
from topsign.cameras.photographs import MAX_PIXELS, thumbnail

SIZE, WIDTH, HEIGHT = 128, 150, 141


def png(size, *, colour=2, depth=8, content=bytes(100)):
    """Return a PNG file that declares a size; by default it contains almost no data."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(content)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def tiff_file(fields, content, *, order="<"):
    """Return a TIFF file with one directory of types and values by tag; values of tag 273 count from the content."""
    kinds, start = {1: "B", 2: "B", 3: "H", 4: "I", 5: "I", 10: "i"}, 8 + 2 + 12 * len(fields) + 4
    first = start + sum(struct.calcsize(f"{order}{len(one)}{kinds[kind]}") for kind, one in fields.values())
    fields, entries, behind = fields | {273: (4, [first + at for at in fields[273][1]])}, b"", b""
    for tag, (kind, values) in sorted(fields.items()):
        packed = struct.pack(f"{order}{len(values)}{kinds[kind]}", *values)
        if len(packed) > 4:
            place, behind = start + len(behind), behind + packed
            packed = struct.pack(f"{order}I", place)
        count = len(values) // (2 if kind in (5, 10) else 1)
        entries += struct.pack(f"{order}HHI", tag, kind, count) + packed.ljust(4, b"\0")
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}IH", 8, len(fields))
    return head + entries + struct.pack(f"{order}I", 0) + behind.ljust(first - start, b"\0") + content


def tiff(pixels, *, order="<", deflated=False, planes=False):
    """Return a TIFF file with 16-bit colours, which Pillow cannot write."""
    height, width, channels = pixels.shape
    content = (pixels.transpose(2, 0, 1) if planes else pixels).astype(f"{order}u2").tobytes()
    content = zlib.compress(content) if deflated else content
    n_strips, length = (channels, len(content) // channels) if planes else (1, len(content))
    values = {256: width, 257: height, 259: 8 if deflated else 1, 262: 2, 277: channels, 278: height}
    fields = {tag: (3, [value]) for tag, value in (values | {284: 2 if planes else 1}).items()}
    fields |= {258: (3, [16] * channels), 279: (4, [length] * n_strips)}
    return tiff_file(fields | {273: (4, [length * strip for strip in range(n_strips)])}, content, order=order)


def dng(mosaic):
    """Return a DNG file of a Bayer mosaic of 16 bits."""
    height, width = mosaic.shape
    fields = {
        254: (4, [0]), 256: (4, [width]), 257: (4, [height]), 258: (3, [16]), 259: (3, [1]), 262: (3, [32803]),
        273: (4, [0]), 274: (3, [1]), 277: (3, [1]), 278: (4, [height]), 279: (4, [mosaic.nbytes]),
        33421: (3, [2, 2]), 33422: (1, [0, 1, 1, 2]), 50706: (1, [1, 4, 0, 0]), 50708: (2, [*b"Model\0"]),
        50721: (10, [1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1]), 50728: (5, [1, 1, 1, 1, 1, 1]),
    }  # fmt: skip
    return tiff_file(fields, mosaic.astype("<u2").tobytes())


def saved(image, form, **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def hostile_images():
    rng = np.random.default_rng(0)
    photograph = Image.fromarray(rng.integers(0, 255, (200, 200, 3), dtype=np.uint8))
    jpeg = saved(photograph, "JPEG")
    pages = {"save_all": True, "append_images": [photograph.rotate(90)]}
    return {
        "empty.jpg": (b"", "is empty"),
        "text.jpg": (b"no image at all", "not an image of a supported format"),
        "truncated.jpg": (jpeg[: len(jpeg) // 2], "damaged or truncated"),
        "truncated.png": (saved(photograph, "PNG")[:9000], "damaged or truncated"),
        "truncated.tif": (saved(photograph, "TIFF")[:9000], "damaged or truncated"),
        "header.jpg": (jpeg[:20], "damaged or truncated|supported format"),
        "bomb.png": (png((50_000, 50_000)), "has 50000 x 50000 pixels, but at most 268,435,456"),
        "wide.png": (png((2**14, 2**14 + 1)), "has 16384 x 16385 pixels, but at most"),
        "large.png": (png((16_320, 12_240)), "damaged or truncated"),  # 200 megapixels are decoded
        "wrong.png": (jpeg, "is a JPEG file, which its extension does not say"),
        "wrong.gif": (jpeg, "is a JPEG file"),
        "animated.png": (saved(photograph, "PNG", **pages), "is animated or has 2 pages"),
        "pages.tif": (saved(photograph, "TIFF", **pages), "is animated or has 2 pages"),
        "cmyk.jpg": (saved(photograph.convert("CMYK"), "JPEG"), "mode CMYK"),
        "palette.png": (saved(photograph.convert("P"), "PNG"), "mode P"),
        "line.png": (saved(photograph.resize((200, 1)), "PNG"), "200 x 1 pixels, but the crop .* resolution$"),
        "small.png": (
            saved(photograph.resize((200, 90)), "PNG"),
            r"smaller crop \(--size 80; enroll takes it for a new database only\)",
        ),
        "column.tif": (saved(photograph.resize((1, 200)), "TIFF"), "1 x 200 pixels, but the crop has 128 x 128"),
        "nothing.png": (png((0, 0)), "damaged or truncated|supported format"),
        "grey_alpha.png": (png((200, 200), colour=4, depth=16), r"16 bits in a layout \(LA;16B\)"),
        "planes.tif": (tiff(np.zeros((200, 200, 3), np.uint16), planes=True), r"16 bits in a layout \(R, G, B\)"),
        "float.tif": (saved(Image.fromarray(np.zeros((200, 200), np.float32)), "TIFF"), "mode F"),
        "white.png": (saved(Image.new("RGB", (200, 200), "white"), "PNG"), "0 usable pixels of 16,384"),
    }


@pytest.mark.parametrize("name", hostile_images())
def test_hostile_images_are_refused_by_name(name, tmp_path):
    content, problem = hostile_images()[name]
    (tmp_path / name).write_bytes(content)
    database = cameras.CameraDatabase(tmp_path / "s.topsign", size=SIZE)
    with pytest.raises(ValueError, match=rf"{re.escape(name)}: .*({problem})"):
        cameras.enroll(database, "a", [tmp_path / name])
    assert not (tmp_path / "s.topsign").exists()


def test_the_limit_of_pixels_is_our_own():
    assert MAX_PIXELS < 2**14 * (2**14 + 1)


@pytest.mark.parametrize("read", [cameras.read_photograph, thumbnail])
def test_pipes_are_refused_without_waiting(read, tmp_path):
    os.mkfifo(tmp_path / "a.jpg")
    with pytest.raises(cameras.PhotographError, match=r"a\.jpg: is not a regular file"):
        read(tmp_path / "a.jpg")


def test_the_packages_of_other_formats_are_named(tmp_path, monkeypatch):
    for name, package in (("a.heic", "pillow-heif"), ("a.dng", "rawpy")):
        (tmp_path / name).write_bytes(b"content")
        monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)
        with pytest.raises(cameras.PhotographError, match=rf"reading it needs {package} \(pip install {package}\)"):
            cameras.read_photograph(tmp_path / name)


def test_heic_photographs_are_read(tmp_path, rng):
    package = pytest.importorskip("pillow_heif")
    pixels = np.kron(rng.integers(0, 256, (18, 20, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    package.from_pillow(Image.fromarray(pixels)).save(tmp_path / "a.heic", quality=-1, chroma=444)
    found = cameras.read_photograph(tmp_path / "a.heic", size=SIZE)
    assert (found.width, found.height) == (160, 144)
    assert np.abs(found.crop() - pixels[8 : 8 + SIZE, 16 : 16 + SIZE]).mean() < 4
    assert thumbnail(tmp_path / "a.heic").startswith(b"\xff\xd8")


def test_dng_photographs_are_read(tmp_path, rng):
    pytest.importorskip("rawpy")
    (tmp_path / "a.dng").write_bytes(dng(np.full((HEIGHT, WIDTH), 20_000, np.uint16)))
    found = cameras.read_photograph(tmp_path / "a.dng", size=SIZE)
    assert (found.width, found.height, found.crop().shape) == (WIDTH, HEIGHT, (SIZE, SIZE, 3))
    assert thumbnail(tmp_path / "a.dng").startswith(b"\xff\xd8")


def test_missing_files_are_named(tmp_path):
    with pytest.raises(cameras.PhotographError, match=r"none\.jpg: cannot be read: No such file"):
        cameras.read_photograph(tmp_path / "none.jpg")


@pytest.mark.parametrize("form", ["png", "tif", "jpg"])
def test_images_of_all_formats_are_read(form, tmp_path, rng):
    pixels = rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / f"a.{form}")
    found = cameras.read_photograph(tmp_path / f"a.{form}", size=SIZE)
    assert (found.width, found.height, found.frame("rotated by 90 degrees")) == (WIDTH, HEIGHT, (HEIGHT, WIDTH))
    if form != "jpg":
        np.testing.assert_array_equal(found.crop(), pixels[6 : 6 + SIZE, 11 : 11 + SIZE])


def test_images_of_16_bits_keep_their_precision(tmp_path, rng):
    pixels = rng.integers(0, 2**16, (HEIGHT, WIDTH), dtype=np.uint16)
    for name in ("a.png", "a.tif"):
        Image.fromarray(pixels).save(tmp_path / name)
        found = cameras.read_photograph(tmp_path / name, size=SIZE).crop()[:, :, 0]
        np.testing.assert_allclose(found, pixels[6 : 6 + SIZE, 11 : 11 + SIZE] / 257, rtol=1e-6)


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("form", ["png", "little.tif", "big.tif", "little_deflated.tif", "big_deflated.tif"])
def test_colours_of_16_bits_keep_their_precision(form, channels, tmp_path, rng):
    """Pillow reads such images with 8 bits."""
    pixels = rng.integers(0, 2**16, (HEIGHT, WIDTH, channels), dtype=np.uint16)
    if form == "png":
        rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
        content = png((WIDTH, HEIGHT), colour=2 if channels == 3 else 6, depth=16, content=rows)
    else:
        content = tiff(pixels, order="<" if form.startswith("little") else ">", deflated="deflated" in form)
    path = tmp_path / f"a.{form[-3:]}"
    path.write_bytes(content)
    found = cameras.read_photograph(path, size=SIZE).crop()
    np.testing.assert_allclose(found, pixels[6 : 6 + SIZE, 11 : 11 + SIZE, :3] / 257, rtol=1e-6)
    assert len(np.unique(found)) > 10_000


@pytest.mark.parametrize("orientation", cameras.ORIENTATIONS)
def test_crops_of_orientations_are_those_of_turned_images(orientation, tmp_path, rng):
    """Margins are odd in height and even in width, so cropping and rotating do not commute."""
    turns, mirrored = cameras.ORIENTATIONS[orientation]
    pixels = rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    turned = np.rot90(pixels[:, ::-1] if mirrored else pixels, turns)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    Image.fromarray(np.ascontiguousarray(turned)).save(tmp_path / "b.png")
    first, second = (cameras.read_photograph(tmp_path / name, size=SIZE) for name in ("a.png", "b.png"))
    np.testing.assert_array_equal(first.crop(orientation), second.crop())
    assert first.frame(orientation) == second.frame()
