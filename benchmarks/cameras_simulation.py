"""Simulated cameras: detection against photographs enrolled and bytes, false matches, and a large index.

    python benchmarks/cameras_simulation.py [--sensors 40] [--size 512] [--strength 0.01 0.03] [--json FILE]
    python benchmarks/cameras_simulation.py --size 1024 --entries 10000 [--json FILE]

Sensors have a multiplicative pattern, shot and read noise, a Bayer mosaic, white balance, bilinear demosaicing and JPEG
of quality 75 to 95. Scenes are photographs that ship with scikit-learn, and synthetic ones with natural spectra; a
tenth is overexposed, a tenth is dark. Residuals and fingerprints are those of ``topsign.cameras``. Compressed
fingerprints of equal bytes: adaptive codes and trellis codes; digests, the k largest pixels with 8 bits each and their
places at log2 C(n, k) bits (Goljan, Fridrich and Filler 2010); binarised fingerprints, signs of a random part of the
pixels (Bayram, Sencar and Memon 2012). Detection is the share of matches above the threshold of a normal law of the
impostor scores at 1e-6; false matches are counted among comparisons that the threshold was not learned from.
"""

import argparse
import io
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.ndimage import convolve, zoom
from scipy.special import gammaln
from scipy.stats import beta, norm
from shared.results import save
from sklearn.datasets import load_sample_images

import topsign as ts
from topsign import cameras

LEVEL = 1e-6
KERNELS = {
    "green": np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]]) / 4,
    "other": np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 4,
}


@cache
def natural_images(side):
    """Photographs of installed packages, enlarged to at least this many pixels a side."""
    images = load_sample_images().images
    return [
        zoom(one, (*[1.02 * max(1, side / min(one.shape[:2]))] * 2, 1), order=1).astype(np.float32) for one in images
    ]


def scene(rng, side):
    """Colours of a scene in [0, 255], (side, side, 3)."""
    if rng.random() < 0.4:
        images = natural_images(side)
        image = images[rng.integers(len(images))]
        top, left = (rng.integers(length - side + 1) for length in image.shape[:2])
        found = image[top : top + side, left : left + side]
        return found[:, ::-1] if rng.random() < 0.5 else found
    frequencies = np.maximum(np.hypot(np.fft.fftfreq(side)[:, np.newaxis], np.fft.rfftfreq(side)), 1 / side)
    spectrum = np.fft.rfft2(rng.standard_normal((side, side))) / frequencies ** rng.uniform(1.0, 1.6)
    grey = np.fft.irfft2(spectrum, (side, side))
    return ((25 + 190 * (grey - grey.min()) / np.ptp(grey))[:, :, np.newaxis] * rng.uniform(0.7, 1, 3)).astype(
        np.float32
    )


def photograph(rng, pattern):
    """What a camera with this pattern stores: the content of a JPEG file."""
    side = len(pattern)
    exposure = rng.choice([1.0, 1.7, 0.12], p=[0.8, 0.1, 0.1])
    gains = np.array([rng.uniform(1.2, 2), 1, rng.uniform(1.2, 2)])
    light = exposure * scene(rng, side) / gains  # before white balance
    places = np.zeros((side, side), int)
    places[0::2, 1::2] = places[1::2, 0::2] = 1
    places[1::2, 1::2] = 2
    raw = np.take_along_axis(light, places[:, :, np.newaxis], axis=2)[:, :, 0] * (1 + pattern)
    raw = np.clip(raw + rng.standard_normal(raw.shape) * np.sqrt(0.02 * np.maximum(raw, 0) + 0.5), 0, 255)
    channels = []
    for channel in range(3):
        kernel = KERNELS["green" if channel == 1 else "other"]
        channels.append(convolve(np.where(places == channel, raw, 0), kernel, mode="mirror") * gains[channel])
    pixels = np.clip(np.round(np.stack(channels, axis=2)), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=int(rng.integers(75, 96)))
    return file.getvalue()


def residual(seed, pattern):
    """Residual of a photograph, drawn until one has enough usable pixels."""
    rng = np.random.default_rng(seed)
    while True:
        pixels = np.asarray(Image.open(io.BytesIO(photograph(rng, pattern))), np.float32)
        try:
            return cameras.extract_residual(pixels)
        except ValueError:
            continue


def pattern_of(sensor, size, strength):
    rng = np.random.default_rng([1, sensor])
    return (rng.uniform(*strength) * rng.standard_normal((size, size))).astype(np.float32)


def one_sensor(task):
    """Fingerprints of a sensor by photographs enrolled, and its queries W I with residual and intensity."""
    sensor, size, strength, enrolled, n_queries = task
    pattern, sums, found = pattern_of(sensor, size, strength), None, {}
    start = time.process_time()
    for number in range(max(enrolled, default=0)):
        one = cameras.FingerprintSums.of([residual([2, sensor, number], pattern)], size=size)
        sums = one if sums is None else sums + one
        if number + 1 in enrolled:
            found[number + 1] = sums.fingerprint().ravel().astype(np.float16)
    queries = [residual([3, sensor, number], pattern) for number in range(n_queries)]
    noises = [(one.noise.astype(np.float16), one.intensity.astype(np.float16)) for one in queries]
    return found, noises, time.process_time() - start


def normalised(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)


def by_index(make, fingerprints, queries):
    index = make()
    index.add(fingerprints)
    scores = np.empty((len(queries), len(fingerprints)), np.float32)
    for start in range(0, len(queries), 64):
        found = index.search(queries[start : start + 64], k=len(fingerprints))
        np.put_along_axis(scores[start : start + 64], found.ids, found.scores, axis=1)
    return scores


def digest(n_bytes, fingerprints, queries):
    """Scores of the k largest pixels; k is the largest that fits."""
    n = fingerprints.shape[1]
    counts = np.arange(1, 8 * n_bytes // 9)
    bits = 8 * counts + (gammaln(n + 1) - gammaln(counts + 1) - gammaln(n - counts + 1)) / np.log(2)
    k = int(counts[bits <= 8 * n_bytes].max())
    scores = np.empty((len(queries), len(fingerprints)))
    for at, one in enumerate(fingerprints):
        chosen = np.argpartition(-np.abs(one), k)[:k]
        scores[:, at] = normalised(queries[:, chosen]) @ (one[chosen] / np.linalg.norm(one[chosen]))
    return scores


def binarised(n_bytes, fingerprints, queries):
    chosen = np.random.default_rng(0).permutation(fingerprints.shape[1])[: 8 * n_bytes]
    signs = np.where(fingerprints[:, chosen] >= 0, np.float32(1), np.float32(-1))
    return normalised(queries[:, chosen]) @ signs.T / np.sqrt(len(chosen))


def methods(n_features):
    """Functions of bytes, fingerprints and queries, by name."""

    def adaptive(n_bytes, fingerprints, queries):
        make = lambda: ts.AdaptiveIndex(n_features=n_features, n_bytes=n_bytes, norms=False, random_state=0)  # noqa: E731
        return by_index(make, fingerprints, queries)

    def trellis(n_bytes, fingerprints, queries):
        basis = {"basis": "hadamard", "center": False, "random_state": 0}
        make = lambda: ts.TrellisIndex(n_features=n_features, n_bytes=n_bytes, **basis)  # noqa: E731
        return by_index(make, fingerprints, queries)

    return {"adaptive": adaptive, "trellis": trellis, "digest": digest, "binarised": binarised}


def summary(scores, own, name, enrolled, n_bytes):
    """Detection at the level of a normal law of impostors, and d'."""
    matches, impostors = scores[own], scores[~own]
    threshold = impostors.mean() + norm.isf(LEVEL) * impostors.std()
    detected = int((matches >= threshold).sum())
    spread = np.sqrt((matches.var() + impostors.var()) / 2)
    row = {
        "method": name,
        "enrolled": enrolled,
        "bytes": n_bytes,
        "detection": detected / len(matches),
        "matches": len(matches),
        "d_prime": float((matches.mean() - impostors.mean()) / spread),
        "impostor_deviation": float(impostors.std()),
        "match_mean": float(matches.mean()),
    }
    print(
        f"{name:13s} enrolled {enrolled:2d} {n_bytes:8d} B  detection {row['detection']:.3f}  d' {row['d_prime']:.2f}",
        flush=True,
    )
    return row


def false_matches(scores, own, n_learned):
    """False matches at thresholds learned from the first impostor photographs, among all other comparisons."""
    learned = scores[-n_learned:].ravel()
    tested = np.concatenate([scores[:-n_learned][~own[:-n_learned]]])
    null = ts.theory.EmpiricalNull(learned, method="normal")
    rows = []
    for level in (1e-2, 1e-3, 1e-4, LEVEL):
        count = int((tested >= float(null.threshold(level))).sum())
        low = float(beta.ppf(0.025, count, len(tested) - count + 1)) if count else 0.0
        high = float(beta.ppf(0.975, count + 1, len(tested) - count)) if count else 1 - 0.05 ** (1 / len(tested))
        rows.append({"level": level, "count": count, "comparisons": len(tested), "interval": [low, high]})
    return {
        "learned_from": len(learned),
        "normal_law_p_value": cameras.calibration.normality_p_value(learned),
        "rows": rows,
    }


def false_match_pce(scores, own, n_learned, fingerprints, noises):
    """PCE, the second test, of the false matches at 1e-6."""
    threshold = float(ts.theory.EmpiricalNull(scores[-n_learned:], method="normal").threshold(LEVEL))
    places = np.argwhere(~own[:-n_learned] & (scores[:-n_learned] >= threshold))
    return [pce_of(fingerprints[camera], noises[row]) for row, camera in places.tolist()]


def pce_of(fingerprint, pair):
    noise, intensity = (one.astype(np.float32) for one in pair)
    return cameras.peak_to_correlation_energy(noise, intensity * fingerprint.reshape(noise.shape))


def evidence(scores, own, sensors):
    """Cllr of likelihood ratios learned from even sensors and judged by odd ones."""
    even = (sensors % 2 == 0)[:, np.newaxis] & np.ones(scores.shape, bool)
    model = ts.theory.LikelihoodRatioModel.fit(scores[own & even], impostors=scores[~own & even])
    ratios = [model.ratio(scores[kind & ~even]).log10 * np.log(10) for kind in (own, ~own)]
    cost = (np.mean(np.logaddexp(0, -ratios[0])) + np.mean(np.logaddexp(0, ratios[1]))) / 2 / np.log(2)
    misleading = [float((ratios[0] < 0).mean()), float((ratios[1] > 0).mean())]
    return {"cllr": float(cost), "misleading_matches": misleading[0], "misleading_impostors": misleading[1]}


def pce_scores(fingerprints, noises, own):
    """PCE of every match and of as many impostors, since all pairs would take hours."""
    found = {"matches": [], "impostors": []}
    for row, pair in enumerate(noises):
        if not own[row].any():
            continue
        camera = int(own[row].argmax())
        for kind, at in (("matches", camera), ("impostors", (camera + 1) % len(fingerprints))):
            found[kind].append(pce_of(fingerprints[at], pair))
    return found


def large_index(n_entries, size, pattern, seed=0):
    """Bytes and seconds of an index of many simulated fingerprints, which are made as they are added."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.topsign"
        index = ts.AdaptiveIndex(n_features=size**2, n_bits=size**2 // 64, norms=False, random_state=0, path=path)
        start = time.perf_counter()
        for first in range(0, n_entries, 50):
            index.add(rng.standard_normal((min(50, n_entries - first), size**2), dtype=np.float32))
        added = time.perf_counter() - start
        query = rng.standard_normal((1, size**2), dtype=np.float32)
        times = {"search": [], "uncompressed part": [], "residual": []}
        part = rng.standard_normal((64, size**2), dtype=np.float32)
        pixels = np.asarray(Image.open(io.BytesIO(photograph(rng, pattern))), np.float32)
        calls = {
            "search": lambda: index.search(query, k=5),
            "uncompressed part": lambda: part @ query[0],
            "residual": lambda: cameras.extract_residual(pixels),
        }
        for _ in range(7):
            for name, call in calls.items():
                start = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - start)
        disk = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    least = {name: min(values) for name, values in times.items()}
    return {
        "entries": n_entries,
        "features": size**2,
        "bytes_per_entry": index.nbytes / n_entries,
        "disk_bytes": disk,
        "add_seconds": added,
        "search_seconds": least["search"],
        "residual_seconds": least["residual"],
        "uncompressed_seconds_extrapolated": least["uncompressed part"] * n_entries / len(part),
        "uncompressed_bytes": 4 * size**2 * n_entries,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sensors", type=int, default=40)
    parser.add_argument("--size", type=int, default=512, help="pixels a side")
    parser.add_argument("--strength", type=float, nargs=2, default=[0.01, 0.03], help="of patterns, from and to")
    parser.add_argument("--enrolled", type=int, nargs="+", default=[1, 5, 20])
    parser.add_argument("--bytes", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--queries", type=int, default=4, help="photographs of each sensor to identify")
    parser.add_argument("--impostors", type=int, default=440, help="photographs of other sensors")
    parser.add_argument("--learned", type=int, default=40, help="impostors that the threshold is learned from")
    parser.add_argument("--entries", type=int, default=0, help="measure an index of so many fingerprints instead")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    size, n = options.size, options.size**2
    if options.entries:
        large = large_index(options.entries, size, pattern_of(0, size, options.strength))
        print(large)
        if options.json:
            save(options.json, options, large)
        return
    tasks = [(one, size, options.strength, options.enrolled, options.queries) for one in range(options.sensors)]
    tasks += [(1000 + one, size, options.strength, [], 1) for one in range(options.impostors)]
    start = time.perf_counter()
    with ProcessPoolExecutor(options.workers) as pool:
        made = [*pool.map(one_sensor, tasks, chunksize=1)]
    n_photographs = options.sensors * (max(options.enrolled) + options.queries) + options.impostors
    cpu = sum(one[2] for one in made) / n_photographs
    print(f"{n_photographs} photographs in {time.perf_counter() - start:.0f} s, {cpu:.2f} CPU seconds each", flush=True)
    noises = [pair for one in made for pair in one[1]]
    sensors = np.array([task[0] for task, one in zip(tasks, made, strict=True) for _ in one[1]])
    queries = np.stack([(noise.astype(np.float32) * intensity).ravel() for noise, intensity in noises])
    own = sensors[:, np.newaxis] == np.arange(options.sensors)
    rows, found = [], {}
    for enrolled in options.enrolled:
        fingerprints = np.stack([one[0][enrolled].astype(np.float32) for one in made[: options.sensors]])
        exact = normalised(queries) @ normalised(fingerprints).T
        rows.append(summary(exact, own, "uncompressed", enrolled, 4 * n))
        pce = pce_scores(fingerprints, noises, own)
        share = float(np.mean(np.array(pce["matches"]) >= 60))
        false = int(np.sum(np.array(pce["impostors"]) >= 60))
        median = float(np.median(pce["matches"]))
        rows.append(
            {"method": "PCE above 60", "enrolled": enrolled, "bytes": 4 * n, "detection": share, "false": false}
            | {"matches": len(pce["matches"]), "median": median}
        )
        print(rows[-1], flush=True)
        for n_bytes in options.bytes:
            for name, score in methods(n).items():
                try:
                    scores = score(n_bytes, fingerprints, queries)
                except ValueError as error:
                    rows.append({"method": name, "enrolled": enrolled, "bytes": n_bytes, "refused": str(error)})
                    continue
                rows.append(summary(scores, own, name, enrolled, n_bytes))
                if name == "adaptive":
                    second = false_match_pce(scores, own, options.learned, fingerprints, noises)
                    found[enrolled, n_bytes] = scores, second
        partial_save(options, rows, found, own, sensors, cpu, n_photographs)


def partial_save(options, rows, found, own, sensors, cpu, n_photographs):
    """Write what is measured so far: a long run that is stopped has not been for nothing."""
    judged = []
    for (enrolled, n_bytes), (scores, second) in found.items():
        about = {"enrolled": enrolled, "bytes": n_bytes, "false_match_pce": second}
        judged.append(about | false_matches(scores, own, options.learned) | evidence(scores, own, sensors))
    measured = {"rows": rows, "evidence": judged, "n_photographs": n_photographs, "cpu_seconds": cpu}
    if options.json:
        save(options.json, options, measured)


if __name__ == "__main__":
    main()
