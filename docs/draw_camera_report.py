"""Draw the picture of a report in docs/images: simulated cameras, and a page rendered by Chromium.

python docs/draw_camera_report.py [docs/images/camera_report.png]
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from shared.sensors import natural_images, pattern_of, photograph, synthetic_scene  # noqa: E402

from topsign import cameras  # noqa: E402

SIDE, SIZE = 480, 384
MODELS = ("Canon EOS 5D", "Canon EOS 5D", "Nikon D200", "Nikon D200", "Pixel 7", "Galaxy S9")


def write(path, rng, sensor, model, colours=None):
    """Write a photograph of a simulated sensor with the model in its EXIF fields."""
    if colours is None:
        grey = 25 + 190 * synthetic_scene(rng.standard_normal((SIDE, SIDE)), rng.uniform(1.0, 1.6))
        colours = (grey[:, :, np.newaxis] * rng.uniform(0.7, 1, 3)).astype(np.float32)
    path.write_bytes(photograph(rng, pattern_of(sensor, SIDE, [0.03, 0.04]), colours).content)
    exif = Image.Exif()
    exif[0x0110] = model
    Image.open(path).save(path, quality="keep", exif=exif)
    return path


def main():
    picture = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs" / "images" / "camera_report.png").resolve()
    rng = np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        database = cameras.CameraDatabase("sensors.topsign", size=SIZE)
        for number, model in enumerate(MODELS):
            files = [write(Path(f"{number}-{i}.jpg"), rng, number, model) for i in range(12)]
            cameras.enroll(database, f"{model} #{number + 1}", files)
        impostors = [write(Path(f"other-{i}.jpg"), rng, 100 + i, MODELS[i % len(MODELS)]) for i in range(30)]
        cameras.calibrate(database, impostors)
        colours = natural_images(SIDE)[0][:SIDE, :SIDE]
        found = cameras.identify(database, write(Path("IMG_0042.jpg"), rng, 2, MODELS[2], colours))
        command = "topsign cameras identify sensors.topsign IMG_0042.jpg --report IMG_0042.html"
        cameras.write_report("IMG_0042.html", database, found, command=command)
        chromium = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1000,1180"]
        subprocess.run([*chromium, f"--screenshot={picture}", f"file://{name}/IMG_0042.html"], check=True)
        Image.open(picture).convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(picture, optimize=True)


if __name__ == "__main__":
    main()
