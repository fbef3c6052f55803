"""Identification of cameras by sensor noise: trellis, adaptive and sign codes of the same bytes.

    python benchmarks/trellis_cameras.py residuals.npz [--bytes 320 768 2560 8192] [--seeds 5] [--json FILE]

As cameras.py: half of each camera's photographs make its fingerprint, whose code is kept; the others are compared with
all fingerprints, then the halves change places. Bases and projections are random, nothing is learned, no code keeps a
norm. d' is the distance of scores of the own camera and of others in standard deviations, AUC the chance that the own
camera scores higher, top-1 the share of photographs whose own camera scores highest; means over seeds, with intervals
of 95% bootstrapped over photographs, and differences of d' on the same photographs.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

import numpy as np
from cameras import halves, quality
from shared.codes import adaptive_shape
from shared.fingerprint_codes import correlations
from shared.results import Record

import topsign as ts

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from camera_fingerprints import by_camera, fingerprints, load

NAMES = ("top1", "auc", "d_prime")
OURS = "trellis"
N_BOOTSTRAP = 1000


def trellis(n_features, n_bytes, seed):
    basis = {"basis": "hadamard", "center": False}
    return ts.TrellisIndex(n_features=n_features, n_bytes=n_bytes, random_state=seed, **basis)


def adaptive(n_features, n_bytes, seed):
    shape = adaptive_shape(n_features, n_bytes)
    return ts.AdaptiveIndex(n_features=n_features, norms=False, random_state=seed, **shape)


def signs(n_features, n_bytes, seed):
    return ts.SignIndex(n_features=n_features, n_pool=8 * n_bytes, norms=False, random_state=seed)


METHODS = {"trellis": trellis, "adaptive": adaptive, "sign codes": signs}


def scored(make, residuals, cameras):
    """Scores of the photographs of either half with all cameras, and their own cameras."""
    found = []
    for enrolled in halves(cameras):
        index = make()
        index.add(fingerprints(residuals[enrolled], cameras[enrolled]))
        near = index.search(residuals[~enrolled], k=len(index))
        found.append((by_camera(near, near.scores), cameras[~enrolled]))
    return found


def resampled(runs):
    """Qualities, means over seeds and halves: of all photographs, and of N_BOOTSTRAP draws of as many."""
    rng = np.random.default_rng(0)
    n_photographs = len(runs[0][0][1])
    draws = [np.arange(n_photographs), *rng.integers(0, n_photographs, (N_BOOTSTRAP, n_photographs))]
    return np.array(
        [np.mean([quality(scores[rows], own[rows]) for run in runs for scores, own in run], axis=0) for rows in draws]
    )


def interval(values):
    return [float(end) for end in np.percentile(values, [2.5, 97.5])]


def measured(method, n_bytes, runs, qualities):
    row = {"method": method, "bytes": n_bytes}
    for name, values in zip(NAMES, qualities.T, strict=True):
        row[name] = {"mean": float(values[0]), "interval": interval(values[1:])}
    row["d_prime"]["by_seed"] = [float(np.mean([quality(*half)[-1] for half in run])) for run in runs]
    return row


def compare(options):
    residuals, cameras, names = load(options.residuals)
    n_features = residuals.shape[1]
    planned = [(method, n_bytes) for n_bytes in options.bytes for method in METHODS]
    rows = [f"uncompressed, {4 * n_features} bytes", *("{}, {} bytes".format(*one) for one in planned)]
    sizes = {"photographs": len(cameras), "cameras": len(names), "features": n_features}
    record = Record(options, rows, "{method}, {bytes} bytes".format_map, **sizes, differences=[])
    exact = []
    for enrolled in halves(cameras):
        enrolment = fingerprints(residuals[enrolled], cameras[enrolled])
        exact.append((correlations(enrolment, residuals[~enrolled]), cameras[~enrolled]))
    record.add(measured("uncompressed", 4 * n_features, [exact], resampled([exact])))
    found = {}
    for method, n_bytes in planned:
        make = partial(METHODS[method], n_features, n_bytes)
        runs = [scored(partial(make, seed), residuals, cameras) for seed in range(options.seeds)]
        found[method, n_bytes] = resampled(runs)
        if method != OURS:
            gain = found[OURS, n_bytes][:, -1] - found[method, n_bytes][:, -1]
            one = {"less": method, "bytes": n_bytes, "mean": float(gain[0]), "interval": interval(gain[1:])}
            record.notes["differences"].append(one)
        record.add(measured(method, n_bytes, runs, found[method, n_bytes]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("residuals", help=".npz file")
    parser.add_argument("--bytes", type=int, nargs="+", default=[320, 768, 2560, 8192])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", help="write the numbers into this file")
    compare(parser.parse_args())


if __name__ == "__main__":
    main()
