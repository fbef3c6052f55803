"""Simulate identifications and look for reports whose words contradict their conclusion.

    python tests/camera_reports.py [--identifications 10000] [--databases 10]

Every database has six simulated cameras and a calibration of its own. Half of the photographs are of these cameras,
half of unknown ones; they are compressed with JPEG qualities from 95 to 10, and some are dark or overexposed. A tenth
are searched for at other shifts and scales, and half of these were cropped, resized or both.
"""

import argparse
import io
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image

from topsign import cameras

SIZE, WIDTH, HEIGHT = 128, 150, 141
SEARCHES = (("crop",), ("scale",), ("crop", "scale"))
QUALITIES, EXPOSURES = (95, 75, 50, 30, 10), (1.0, 1.0, 1.0, 0.2, 2.0)
AGAINST = {
    "match": ("No match", "Inconclusive", "different sources", "not significant", "does not reach"),
    "no match": ("matches", "Inconclusive", "same source", "confirms", "reaches its", "is significant"),
    "inconclusive": ("The photograph matches", "No match", "confirms"),
}
"""Phrases that contradict a result."""


def contradictions(found):
    """Return the phrases and numbers of a report that contradict its result."""
    conclusion, wrong = found.conclusion(), []
    wrong += [phrase for phrase in AGAINST[found.result] if phrase in conclusion]
    is_edited = any(one.alignment.width < 0.99 * one.frame[0] for one in found.aligned_matches[:1])
    wrong += ["a copy that is neither cropped nor scaled"] * (not is_edited and "such a copy" in conclusion)
    for one in found.candidates:
        is_own = found.result == "match" and one.camera == found.best.camera and not is_edited
        is_low = one.pce < 60 and not found.aligned_matches
        if is_own and (is_low or "different sources" in (one.words or "")):
            wrong.append(f"{one.camera} is opposed")
        if found.result == "no match" and (one.pce >= 60 or "same source" in (one.words or "")):
            wrong.append(f"{one.camera} is supported")
    chances = {one.camera: one.e_value for one in (*found.candidates, *found.aligned)}
    peaks = [one.alignment.pce for one in found.aligned]
    if found.result == "match":
        wrong += ["the E-value of the match is too high"] * (found.best.e_value > found.false_alarm)
    if found.result == "no match":
        wrong += [f"{name} is significant" for name, chance in chances.items() if chance < 0.999 * found.false_alarm]
        wrong += ["the PCE of an alignment is high"] * any(pce >= 60 for pce in peaks)
    if found.result == "inconclusive":
        wrong += ["the disputed camera is not named"] * (repr(found.best.camera) not in conclusion)
    for one in found.candidates:  # likelihood ratios do not apply to edited photographs
        is_supported = "same source" in str(one.words) and not is_edited
        if (one.score >= found.threshold or one.pce >= 60 or is_supported) and repr(one.camera) not in conclusion:
            wrong.append(f"{one.camera} passes a test and is not named")
    return wrong


def scene(rng, height=HEIGHT, width=WIDTH):
    """A grey image with the spectrum of natural ones."""
    spectrum = np.fft.rfft2(rng.standard_normal((height, width)))
    frequencies = np.hypot(np.fft.fftfreq(height)[:, np.newaxis], np.fft.rfftfreq(width))
    image = np.fft.irfft2(spectrum / np.maximum(frequencies, 1 / height) ** 1.2, (height, width))
    return 40 + 160 * (image - image.min()) / np.ptp(image)


def photograph(path, rng, pattern, *, quality=92, exposure=1.0, edits=()):
    """Write a photograph of a sensor as grey JPEG, cropped or resized to 80% after these edits."""
    seen = exposure * scene(rng) * (1 + pattern)
    pixels = np.clip(seen + rng.standard_normal(seen.shape), 0, 255).astype(np.uint8)
    content = io.BytesIO()
    image = Image.fromarray(pixels)
    image = image.crop((9, 5, 139, 125)) if "crop" in edits else image
    image = image.resize([int(0.8 * one) for one in image.size]) if "scale" in edits else image
    image.save(content, "JPEG", quality=quality)
    Path(path).write_bytes(content.getvalue())
    return path


def simulate(seed, n_identifications, folder):
    """Yield the quality, whether the camera is in the database, and the identification of each photograph."""
    rng = np.random.default_rng(seed)
    strength, n_impostors = rng.uniform(0.01, 0.05), int(rng.choice([8, 15, 40]))
    own = strength * rng.standard_normal((6, HEIGHT, WIDTH))
    database = cameras.CameraDatabase(folder / "s.topsign", size=SIZE, n_bits=1024)
    for number, pattern in enumerate(own):
        files = [photograph(folder / f"{number}-{i}.jpg", rng, pattern, quality=90) for i in range(5)]
        cameras.enroll(database, f"camera {number}", files, keep_outliers=True, keep_fingerprints=True)
    impostors = []
    for number in range(n_impostors):
        pattern, options = strength * rng.standard_normal((HEIGHT, WIDTH)), {"quality": int(rng.choice(QUALITIES))}
        impostors.append(photograph(folder / f"impostor-{number}.jpg", rng, pattern, **options))
    cameras.calibrate(database, impostors)
    orientations = [*cameras.ORIENTATIONS][:3:2]  # not turned, and turned by 180 degrees
    for number in range(n_identifications):
        is_own, quality = number % 2 == 0, int(rng.choice(QUALITIES))
        pattern = own[rng.integers(6)] if is_own else strength * rng.standard_normal((HEIGHT, WIDTH))
        search = SEARCHES[rng.integers(3)] if rng.random() < 0.1 else ()
        exposure, edits = float(rng.choice(EXPOSURES)), search if number % 4 < 2 else ()
        options = {"quality": quality, "exposure": exposure, "edits": edits}
        path = photograph(folder / "questioned.jpg", rng, pattern, **options)
        try:
            found = cameras.identify(database, path, orientations=orientations, search=search)
        except cameras.PhotographError:  # too few usable pixels
            found = None
        yield quality, is_own, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--identifications", type=int, default=10_000)
    parser.add_argument("--databases", type=int, default=10)
    options = parser.parse_args()
    counts, wrong = Counter(), []
    for seed in range(options.databases):
        with tempfile.TemporaryDirectory() as folder:
            each = options.identifications // options.databases
            for quality, is_own, found in simulate(seed, each, Path(folder)):
                result = "refused" if found is None else found.result
                counts["enrolled" if is_own else "unknown", quality, result] += 1
                wrong += [] if found is None else [(seed, one, found.conclusion()) for one in contradictions(found)]
        print(f"{seed + 1} of {options.databases} databases, {len(wrong)} contradictions", flush=True)
    results = ("match", "inconclusive", "no match", "refused")
    print(f"{'camera':10}{'quality':>9}" + "".join(f"{one:>14}" for one in results))
    for camera in ("enrolled", "unknown"):
        for quality in QUALITIES:
            print(f"{camera:10}{quality:>9}" + "".join(f"{counts[camera, quality, one]:>14,}" for one in results))
    print(f"{sum(counts.values()):,} identifications, {len(wrong)} contradictions")
    for one in wrong[:10]:
        print(*one)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
