"""Identify the cameras of photographs: edited ones of simulated cameras, and those of a folder of real cameras.

    python benchmarks/camera_photographs.py [--data FOLDER [--size 1024]] [--quick] [--json FILE]

Without ``--data``, photographs of simulated sensors (``shared/sensors.py``, synthetic scenes) are cropped to 60% of
their area at a random place, resized to 70%, or both, compressed again, and searched for; the search in larger frames
is timed. With ``--data``, cameras of a folder are enrolled, calibrated and identified. The folder has the layout of
VISION (``CAMERA/images/flat``, ``CAMERA/images/nat``, ...), of Dresden (files named ``MODEL_INSTANCE_NUMBER.JPG`` in
any folders), or one folder per camera. Flat photographs are enrolled if there are any. The last third of the cameras is
not enrolled: the first half of them are impostors of the calibration, the others are unknown.
"""

import io
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
from PIL import Image
from shared.results import arguments, interleaved, save, spread, table
from shared.sensors import jpeg, pattern_of, photograph, synthetic_scene

from topsign import cameras
from topsign.cameras.alignment import N_REFINED, N_STEPS, FrameSpectrum, trial_scales

EDITS = {"cropped to 60%": ("crop",), "resized to 70%": ("scale",), "cropped and resized": ("crop", "scale")}
KERNELS = (Image.Resampling.BICUBIC, Image.Resampling.LANCZOS, Image.Resampling.BILINEAR)
DRESDEN = re.compile(r"(?P<camera>.+_\d+)_\d+\.jpe?g", flags=re.IGNORECASE)


def take(rng, pattern):
    """Content of a photograph of a synthetic scene, so that no two photographs show the same."""
    side = len(pattern)
    grey = 25 + 190 * synthetic_scene(rng.standard_normal((side, side)), rng.uniform(1.0, 1.6))
    return photograph(rng, pattern, (grey[:, :, np.newaxis] * rng.uniform(0.7, 1, 3)).astype(np.float32)).content


def edited(rng, content, search):
    """Content of a photograph that is cropped, resized or both."""
    image = Image.open(io.BytesIO(content))
    if "crop" in search:
        side = round(image.width * 0.6**0.5)
        left, top = (int(one) for one in rng.integers(0, image.width - side + 1, 2))
        image = image.crop((left, top, left + side, top + side))
    if "scale" in search:
        image = image.resize([round(0.7 * one) for one in image.size], KERNELS[rng.integers(len(KERNELS))])
    return jpeg(np.asarray(image, np.float32), int(rng.integers(75, 96)))


def searched(options, folder):
    """Search cropped and resized photographs of enrolled and of unknown cameras."""
    rng, rows = np.random.default_rng(0), []
    patterns = [pattern_of(sensor, options.frame, options.strength) for sensor in range(options.cameras)]
    database = cameras.CameraDatabase(folder / "sensors.topsign", size=options.frame // 32 * 16)

    def written(name, pattern):
        path = folder / name
        path.write_bytes(take(rng, pattern))
        return path

    for number, pattern in enumerate(patterns):
        files = [written(f"{number}-{i}.jpg", pattern) for i in range(options.enrolled)]
        cameras.enroll(database, f"camera {number}", files, keep_fingerprints=True, keep_outliers=True)
    unknown = (pattern_of(1000 + number, options.frame, options.strength) for number in range(10**6))
    cameras.calibrate(database, [written(f"impostor-{i}.jpg", next(unknown)) for i in range(options.impostors)])
    for edit, search in EDITS.items():
        for kind in ("enrolled", "unknown"):
            found, start = [], time.process_time()
            for number in range(options.photographs):
                own = number % options.cameras
                pattern = patterns[own] if kind == "enrolled" else next(unknown)
                path = folder / "questioned.jpg"
                path.write_bytes(edited(rng, take(rng, pattern), search))
                one = cameras.identify(database, path, search=search, orientations=["as stored"])
                found.append((one, f"camera {own}"))
            took = (time.process_time() - start) / len(found)
            each = took / options.cameras if kind == "unknown" else None
            unsure = sum(one.result == "inconclusive" for one, _ in found)
            matched = [(one, own) for one, own in found if one.is_match]
            right = sum(one.aligned[0].camera == own for one, own in matched) if kind == "enrolled" else None
            surprising = float(np.mean([one.aligned[0].e_value <= 0.1 for one, _ in found]))
            trials = max(one.n_trials for one, _ in found)
            median = float(np.median([one.aligned[0].alignment.pce for one, _ in found]))
            rows.append([edit, kind, len(found), len(matched), right, unsure, surprising, median, trials, took, each])
            print(rows[-1], flush=True)
    columns = ["edit", "camera", "photographs", "matches", "right", "inconclusive", "E-value at most 0.1"]
    columns += ["median PCE", "shifts and scales", "seconds per photograph", "and camera"]
    note = f"""{options.cameras} enrolled cameras with frames of {options.frame} x {options.frame} pixels,
    {options.enrolled} photographs each; false-alarm rate {cameras.FALSE_ALARM:g}. Processor time with one thread; a
    search ends at the first camera that matches, so photographs of unknown cameras are compared with all of them.
    """
    return table("Simulated photographs that were cropped and resized", columns, rows, note)


def larger_frames(options):
    """Time the comparison of a crop of 60% of the area with whole frames of larger cameras, at one scale."""
    rng, rows = np.random.default_rng(0), []
    for width in options.widths:
        shape = width * 3 // 4, width
        frame = FrameSpectrum(rng.standard_normal(shape, dtype=np.float32))
        crop = rng.standard_normal([round(side * 0.6**0.5) for side in shape], dtype=np.float32)
        times = interleaved([lambda frame=frame, crop=crop: frame.best_shift(crop, 1.0)], 3, time.process_time)
        for search in (("crop",), ("crop", "scale")):
            scales = len(trial_scales(crop.shape, shape, search))
            scales += N_REFINED * N_STEPS if scales > len(search) else 0
            total = scales * float(np.median(times))
            rows.append([f"{width} x {shape[0]}", ",".join(search), scales, spread(times), total])
            print(rows[-1], flush=True)
    columns = ["frame", "--search", "scales", "seconds per scale", "seconds per camera and orientation"]
    note = """Crops of 60% of the area, in processor time with one thread. The last column is the product of the two
    before it."""
    return table("Seconds of the search in larger frames", columns, rows, note)


def layout(folder):
    """Photographs of a folder by camera and kind."""
    found = defaultdict(lambda: defaultdict(list))
    for path in sorted(map(Path, cameras.photographs_in([folder]))):
        inside = path.relative_to(folder).parts
        named = DRESDEN.fullmatch(path.name)
        if "images" in inside[1:-2]:
            at = inside.index("images", 1)
            found[inside[at - 1]][inside[at + 1]].append(path)
        elif named:
            found[named["camera"]]["flat" if "flat" in "/".join(inside[:-1]).lower() else "natural"].append(path)
        elif len(inside) > 1:
            found[inside[0]]["photographs"].append(path)
    return found


def real(options, folder):
    """Enroll, calibrate and identify the cameras of a folder."""
    if not Path(options.data).is_dir():
        sys.exit(f"{options.data} is not a folder")
    known = layout(Path(options.data))
    names = sorted(known)
    if len(names) < 4:
        sys.exit(f"{options.data} has photographs of {len(names)} cameras, and at least 4 are needed")
    n_enrolled = len(names) - max(2, len(names) // 3)
    own, others = names[:n_enrolled], names[n_enrolled:]
    database = cameras.CameraDatabase(folder / "sensors.topsign", size=options.size)
    asked, enrolment = [], []
    for name in names:
        kinds = known[name]
        if name in own:
            start = "flat" if kinds.get("flat") else next(iter(kinds))
            given = kinds[start][: options.enrolled]
            try:
                done = cameras.enroll(database, name, given)
                enrolment.append([name, done.n_enrolled, len(done.refused), "; ".join(done.notes)])
            except ValueError as error:  # of damaged photographs, for example
                enrolment.append([name, 0, len(given), str(error)])
            kinds[start] = kinds[start][options.enrolled :]
        elif name in others[: -(-len(others) // 2)]:
            continue
        asked += [(name, kind, path) for kind, paths in kinds.items() for path in paths]
    if not len(database):
        sys.exit(f"no camera of {options.data} can be enrolled: {enrolment[0][-1]}")
    impostors = [path for name in others[: -(-len(others) // 2)] for paths in known[name].values() for path in paths]
    try:
        learned, refused = cameras.calibrate(database, impostors)
    except ValueError as error:  # of other sizes, for example
        print(f"enrolled photographs are the impostors, because of the others: {error}")
        learned, refused = cameras.calibrate(database)
    counts, seconds = defaultdict(Counter), time.perf_counter()
    results = cameras.identify_all(database, [path for *_, path in asked])
    for (name, kind, _), found in zip(asked, results, strict=True):
        result = "refused" if isinstance(found, cameras.PhotographError) else found.result
        if result == "match" and found.best.camera != name:
            result = "wrong match"
        counts["enrolled" if name in database else "unknown", kind][result] += 1
    seconds = (time.perf_counter() - seconds) / max(1, len(asked))
    results = ("match", "wrong match", "inconclusive", "no match", "refused")
    rows = [[*key, *(counts[key][one] for one in results)] for key in sorted(counts)]
    note = f"""{learned.statement()} {len(refused)} impostors were left out. {seconds:.2f} seconds per photograph.
    Photographs are refused if their size is that of no enrolled camera."""
    columns = ["camera", "photographs enrolled", "left out", "notes"]
    return [
        table("Enrolled cameras", columns, enrolment, f"Crops of {options.size} x {options.size} pixels."),
        table("Photographs by result", ["camera", "kind", *results], rows, note),
    ]


def main():
    options = arguments(
        __doc__,
        data=None,
        cameras=(5, 2),
        frame=(384, 256),
        size=(1024, 128),
        strength=[0.01, 0.03],
        enrolled=(20, 3),
        impostors=(20, 16),
        photographs=(25, 2),
        widths=([1024, 4000], [256]),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.data is not None:
            save(options, real(options, folder))
            return
        shown, larger = searched(options, folder), larger_frames(options)
        rows = [row for row in shown["rows"] if row[1] == "enrolled"]
        words = "; ".join(f"{row[0]}: {row[3]} of {row[2]}" for row in rows)
        wrong = sum(row[3] for row in shown["rows"] if row[1] == "unknown")
        task = f"Find the cameras of edited photographs of {options.frame} x {options.frame} pixels (simulated)"
        save(options, [shown, larger], [[task, f"{words}; of unknown cameras {wrong}"]])


if __name__ == "__main__":
    main()
