"""Cameras: detection by photographs enrolled and bytes per fingerprint, and seconds of reading and identifying.

Sensors and scenes are simulated (``shared/sensors.py``); residuals and fingerprints are those of ``topsign.cameras``.
Detection is the share of matches above the threshold of a normal law of the impostor scores at 1e-6. Comparisons of
photographs that show the same scene are left out, as in ``topsign.cameras``. Peers of equal bytes: digests, the largest
pixels with 8 bits each and their places (Goljan, Fridrich and Filler 2010), and binarised fingerprints, signs of a
random part of the pixels (Bayram, Sencar and Memon 2012). ``--residuals`` is a file of residuals of real photographs,
arrays ``residuals`` (int8), ``scale`` and ``camera``: the first half of each camera's are enrolled.
"""

import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from scipy.special import gammaln
from scipy.stats import norm
from search import clock, random_blocks
from shared.families import FAMILIES, scores_of, untrained
from shared.results import arguments, interleaved, save, spread, table
from shared.sensors import decoded, pattern_of, photograph

from topsign import cameras
from topsign.cameras.alignment import CUSTOMARY
from topsign.cameras.photographs import read_residual, read_residuals, same_scene, scene_signature
from topsign.kernels import CodeRange, active

LEVEL = 1e-6


def take(seed, pattern):
    """Residual and scene signature of a photograph, drawn until one has enough usable pixels."""
    rng = np.random.default_rng(seed)
    while True:
        pixels = decoded(photograph(rng, pattern).content)
        try:
            return cameras.extract_residual(pixels), scene_signature(pixels)
        except ValueError:
            continue


def one_sensor(task):
    """Fingerprints of a sensor by photographs enrolled, their signatures, and its queries with theirs."""
    sensor, size, strength, enrolled, n_queries = task
    pattern, sums, found, signatures = pattern_of(sensor, size, strength), None, {}, []
    for number in range(max(enrolled, default=0)):
        residual, signature = take([2, sensor, number], pattern)
        signatures.append(signature)
        one = cameras.FingerprintSums.of([residual])
        sums = one if sums is None else sums + one
        if number + 1 in enrolled:
            found[number + 1] = sums.fingerprint().astype(np.float32)
    asked = [take([3, sensor, number], pattern) for number in range(n_queries)]
    return (
        found,
        signatures,
        [
            (one.noise * one.intensity, one.noise * (one.intensity > 0), one.intensity, signature)
            for one, signature in asked
        ],
    )


def unit(rows):
    return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)).astype(np.float32)


def digest(n_bytes, fingerprints, queries):
    n, counts = fingerprints.shape[1], np.arange(1, 8 * n_bytes // 9)
    bits = 8 * counts + (gammaln(n + 1) - gammaln(counts + 1) - gammaln(n - counts + 1)) / np.log(2)
    k = int(counts[bits <= 8 * n_bytes].max())
    scores = np.empty((len(queries), len(fingerprints)))
    for at, one in enumerate(fingerprints):
        chosen = np.argpartition(-np.abs(one), k)[:k]
        scores[:, at] = unit(queries[:, chosen]) @ (one[chosen] / np.linalg.norm(one[chosen]))
    return scores


def binarised(n_bytes, fingerprints, queries):
    chosen = np.random.default_rng(0).permutation(fingerprints.shape[1])[: 8 * n_bytes]
    return unit(queries[:, chosen]) @ np.sign(fingerprints[:, chosen]).T / np.sqrt(len(chosen))


def methods(n_bytes, fingerprints, queries):
    """Yield the name and the scores of each code of this size; trellis codes only if they can be made."""
    for family in reversed(FAMILIES):
        try:
            recipe = untrained(family, fingerprints.shape[1], n_bytes)
        except ValueError as error:
            print(f"{family}, {n_bytes} bytes: {error}")
            continue
        yield family, scores_of(recipe, fingerprints, queries)
    yield "digest", digest(n_bytes, fingerprints, queries)
    yield "binarised", binarised(n_bytes, fingerprints, queries)


def detection(matches, impostors):
    """Share detected at the level of a normal law of impostors, and d'."""
    threshold = impostors.mean() + norm.isf(LEVEL) * impostors.std()
    deviation = np.sqrt((matches.var() + impostors.var()) / 2)
    return float((matches >= threshold).mean()), float((matches.mean() - impostors.mean()) / deviation)


def simulated(options):
    tasks = [(one, options.size, options.strength, options.enrolled, options.queries) for one in range(options.sensors)]
    tasks += [(1000 + one, options.size, options.strength, [], 1) for one in range(options.impostors)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        made = [*pool.map(one_sensor, tasks, chunksize=1)]
    asked = [query for one in made for query in one[2]]
    queries = np.stack([query[0].ravel() for query in asked]).astype(np.float32)
    sensors = np.array([task[0] for task, one in zip(tasks, made, strict=True) for _ in one[2]])
    own, rows = sensors[:, np.newaxis] == np.arange(options.sensors), []
    for enrolled in options.enrolled:
        shown = [one[1][:enrolled] for one in made[: options.sensors]]
        same = np.array([[any(same_scene(query[3], other) for other in one) for one in shown] for query in asked])
        matches, impostors = own & ~same, ~own & ~same
        whole = np.stack([one[0][enrolled].ravel() for one in made[: options.sensors]])
        size = 4 * options.size**2

        def add(name, n_bytes, scores, matches=matches, impostors=impostors, enrolled=enrolled):
            rows.append([name, enrolled, n_bytes, *detection(scores[matches], scores[impostors])])
            print(rows[-1], flush=True)

        add("uncompressed", size, unit(queries) @ unit(whole).T)
        for n_bytes in options.bytes:
            for name, scores in methods(n_bytes, whole, queries):
                add(name, n_bytes, scores)
        part = min(options.pce, len(asked))
        pce = np.array(
            [
                [
                    cameras.peak_to_correlation_energy(query[1], query[2] * one[0][enrolled])
                    for one in made[: options.sensors]
                ]
                for query in asked[:part]
            ]
        )
        rows.append(["PCE above 60", enrolled, size, float((pce[matches[:part]] >= CUSTOMARY).mean()), None])
    columns = ["code", "photographs enrolled", "bytes", "detected", "d'"]
    note = f"""{options.sensors} sensors of {options.size} x {options.size} pixels, {options.queries} photographs to
    identify of each, and {options.impostors} of other sensors. Detected at a false-alarm rate of {LEVEL:g} per
    comparison; PCE at its customary threshold, on the first {options.pce} photographs."""
    shown = [row for row in rows if row[:3] == ["grouped", options.enrolled[-1], options.bytes[-1]]]
    whole = next(row for row in rows if row[:2] == ["uncompressed", options.enrolled[-1]])
    task = f"""Identify simulated cameras by {options.bytes[-1]:,} bytes ({options.enrolled[-1]} photographs enrolled,
    false-alarm rate {LEVEL:g})"""
    words = f"""found: {shown[0][3]:.0%} of the photographs; {whole[3]:.0%} by uncompressed fingerprints of
    {whole[2]:,} bytes"""
    shown = {"photographs enrolled": options.enrolled[-1:], "bytes": [4 * options.size**2, *options.bytes[::2]]}
    found = table("Simulated cameras: detection by bytes per fingerprint", columns, rows, note, shown=shown)
    return found, [[task, words]]


def speed(options):
    """Seconds to read photographs, to enroll them and to identify one."""
    rng, pattern, rows = np.random.default_rng(0), pattern_of(0, options.size, [0.02, 0.02]), []
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.jpg" for number in range(options.photographs)]
        for path in paths:
            path.write_bytes(photograph(rng, pattern).content)
        times = interleaved(
            [lambda: [*read_residuals(paths, size=options.size)]],
            options.repeats,
            clock(options),
        )
        rows.append(["read a photograph: decoding, residual, signature", spread(times[:, 0] / len(paths))])
        database = cameras.CameraDatabase(Path(folder) / "sensors.topsign", size=options.size)
        timer = clock(options)
        start = timer()
        cameras.enroll(database, "one", paths)
        rows.append(["enroll a photograph", (timer() - start) / len(paths)])
        query = read_residual(paths[0], size=options.size).residual.query
        n_features = options.size**2
        recipe = untrained("grouped", n_features, n_features // 64)
        codes = random_blocks(recipe, rng, options.fingerprints)

        def search():
            prepared = recipe.prepare(query[np.newaxis])
            return active().rank(prepared.scorer, [CodeRange(codes)], prepared.rounded, 5)

        times = interleaved([search], options.repeats, clock(options))
        rows.append(
            [f"compare with {options.fingerprints:,} grouped codes of {recipe.code_bytes:,} bytes", spread(times[:, 0])]
        )
    return table(
        f"Seconds of photographs of {options.size} x {options.size} pixels",
        ["call", "seconds"],
        rows,
        f"{options.threads} thread(s); processor time with one.",
    )


def real(options):
    """Residuals of photographs of real cameras."""
    with np.load(options.residuals) as stored:
        residuals, camera = stored["residuals"].astype(np.float32) * stored["scale"], stored["camera"]
    names, first = np.unique(camera), np.zeros(len(camera), bool)
    for name in names:
        first[np.flatnonzero(camera == name)[: np.count_nonzero(camera == name) // 2]] = True
    prints = np.stack([residuals[first & (camera == name)].mean(axis=0) for name in names])
    queries, own, rows = residuals[~first], camera[~first][:, np.newaxis] == names, []

    def add(name, n_bytes, scores):
        top = float(np.mean(names[scores.argmax(axis=1)] == camera[~first]))
        rows.append([name, n_bytes, detection(scores[own], scores[~own])[1], top])

    add("uncompressed", 4 * residuals.shape[1], unit(queries) @ unit(prints).T)
    for n_bytes in options.bytes:
        for name, scores in methods(n_bytes, prints, queries):
            add(name, n_bytes, scores)
    note = f"{len(names)} cameras, {len(queries):,} photographs to identify, {residuals.shape[1]:,} pixels."
    shown = {"bytes": [4 * residuals.shape[1], *options.bytes[::2]]}
    return table("Real cameras", ["code", "bytes", "d'", "identified"], rows, note, shown=shown)


def main():
    options = arguments(
        __doc__,
        sensors=(20, 3),
        size=(384, 128),
        strength=[0.01, 0.03],
        enrolled=([1, 5, 20], [1, 2]),
        bytes=([512, 1024, 2048, 4096, 8192], [256, 512]),
        queries=(4, 2),
        impostors=(120, 6),
        pce=(40, 2),
        photographs=(8, 2),
        fingerprints=(10_000, 200),
        repeats=(3, 2),
        residuals=None,
    )
    shown, headline = simulated(options)
    save(options, [shown], headline)
    tables = [shown, speed(options)] + ([real(options)] if options.residuals else [])
    save(options, tables, headline)


if __name__ == "__main__":
    main()
