"""Weak sensor patterns under strong compression: separation d' of adaptive codes and of uncompressed fingerprints.

    python benchmarks/cameras_weak.py [--strength 0.005] [--quality 82] [--enrolled 8] [--json FILE]

Sensors without a mosaic: a synthetic scene in three tints, a multiplicative pattern, shot and read noise, and JPEG. The
frame has 1100 x 1100 pixels and the crop 1024 x 1024. d' is the difference of the mean scores of matches and impostors,
over the standard deviation of the impostor scores. Fingerprints are those of ``topsign.cameras`` and, for comparison,
plain maximum-likelihood estimates without zero mean in rows and columns, whose scores have an offset that matches and
impostors share. The isotropic deviation of a correlation is 1 / size.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from shared.fingerprint_codes import correlations, index_scores
from shared.results import save
from shared.sensors import decoded, jpeg, synthetic_scene

import topsign as ts
from topsign import cameras

FRAME, SIZE = 1100, 1024
TINTS = np.array([1, 0.95, 0.85])


def take(rng, pattern, quality):
    """Residual of a photograph."""
    scene = 30 + 190 * synthetic_scene(rng.standard_normal((FRAME, FRAME)), 1.2)
    light = (scene * (1 + pattern))[:, :, np.newaxis] * TINTS
    seen = light + rng.standard_normal(light.shape) * np.sqrt(0.05 * light + 1)
    margin = (FRAME - SIZE) // 2
    crop = slice(margin, margin + SIZE)
    return cameras.extract_residual(decoded(jpeg(seen, quality))[crop, crop])


def one_sensor(task):
    """Fingerprints of a sensor by kind (empty without enrolment), and its query."""
    sensor, strength, quality, n_enrolled = task
    rng = np.random.default_rng([7, sensor])
    pattern = strength * rng.standard_normal((FRAME, FRAME))
    sums = cameras.FingerprintSums.of((take(rng, pattern, quality) for _ in range(n_enrolled)), size=SIZE)
    found = {"cleaned": sums.fingerprint(), "plain": sums.residuals / sums.intensities} if n_enrolled else {}
    return found, take(rng, pattern, quality).query


def separation(scores, own):
    """Means of matches and impostors, deviation of impostors, d', and matches that are first."""
    matches, impostors = scores[own], scores[~own]
    means, deviation = [float(one.mean()) for one in (matches, impostors)], float(impostors.std())
    return {
        "match_mean": means[0],
        "impostor_mean": means[1],
        "impostor_deviation": deviation,
        "d_prime": (means[0] - means[1]) / deviation,
        "right": int((scores.argmax(axis=1) == np.arange(len(scores))).sum()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sensors", type=int, default=12)
    parser.add_argument("--impostors", type=int, default=6, help="photographs of other sensors")
    parser.add_argument("--strength", type=float, default=0.005)
    parser.add_argument("--quality", type=int, default=82, help="of JPEG")
    parser.add_argument("--enrolled", type=int, default=8)
    parser.add_argument("--bits", type=int, nargs="+", default=[256, 1024, 4096, 16384], help="projections kept")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    about = options.strength, options.quality
    tasks = [(sensor, *about, options.enrolled) for sensor in range(options.sensors)]
    tasks += [(1000 + sensor, *about, 0) for sensor in range(options.impostors)]
    with ProcessPoolExecutor(options.workers) as pool:
        made = [*pool.map(one_sensor, tasks, chunksize=1)]
    queries = np.stack([one[1] for one in made])
    own = np.eye(len(queries), options.sensors, dtype=bool)
    rows = []
    for kind in ("cleaned", "plain"):
        fingerprints = np.stack([one[0][kind].ravel() for one in made[: options.sensors]])
        exact = separation(correlations(fingerprints, queries), own)
        rows.append({"fingerprints": kind, "n_bits": None, "bytes": 4 * SIZE**2} | exact)
        for n_bits in options.bits:
            index = ts.AdaptiveIndex(n_features=SIZE**2, n_bits=n_bits, random_state=1)
            found = separation(index_scores(index, fingerprints, queries), own)
            rows.append({"fingerprints": kind, "n_bits": n_bits, "bytes": index.nbytes / options.sensors} | found)
    for row in rows:
        print(row)
    if options.json:
        save(options.json, options, {"rows": rows, "isotropic_deviation": 1 / SIZE})


if __name__ == "__main__":
    main()
