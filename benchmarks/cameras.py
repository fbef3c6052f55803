"""Camera identification from real residuals: adaptive codes, other codes of equal bytes, uncompressed correlation.

    python benchmarks/cameras.py residuals.npz [--kept 32 128 512 2048 8192] [--seeds 10] [--json FILE]

Residuals as ``examples/camera_fingerprints.py`` reads them. Half of each camera's photographs make its fingerprint, the
others are compared with all fingerprints; then the halves change places. Sign codes of equal computation have as many
bits as an adaptive code keeps; of equal information, n_bits + log2 C(n_pool, n_bits); of equal bytes, those of the
compact layout. Trellis codes, digests and binarised fingerprints (``shared/fingerprint_codes.py``) have equal bytes as
well. No code keeps a norm or a scale. Top-1 is the fraction of photographs whose own camera scores highest, AUC the
probability that a match scores above an impostor, and d' the distance between the mean scores of matches and impostors
in standard deviations. The table has means over seeds of the projection and both halves, and the spread over seeds.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from shared.fingerprint_codes import code_scores, correlations
from shared.results import save

import topsign as ts

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from camera_fingerprints import by_camera, fingerprints, load

OTHERS = {"trellis": "trellis codes", "digest": "digests", "binarised": "binarised fingerprints"}


def quality(scores, truth):
    """Top-1, AUC and d' of scores (n_photographs, n_cameras)."""
    own = truth[:, np.newaxis] == np.arange(scores.shape[1])
    genuine, impostor = scores[own], scores[~own]
    above = genuine[:, np.newaxis] - impostor
    pooled = np.sqrt((genuine.var(ddof=1) + impostor.var(ddof=1)) / 2)
    return np.mean(scores.argmax(axis=1) == truth), np.mean((above > 0) + (above == 0) / 2), np.mean(above) / pooled


def halves(cameras):
    """Yield both ways to enrol one half of each camera's photographs."""
    place = np.array([np.count_nonzero(cameras[:i] == camera) for i, camera in enumerate(cameras)])
    first = place < np.array([np.count_nonzero(cameras == camera) for camera in cameras]) / 2
    return first, ~first


def methods(kept, n_features):
    """Name, index and bytes of a camera, for one number of projections kept."""
    information = ts.theory.storage_bits(n_bits=kept, n_pool=n_features)
    adaptive = ts.AdaptiveIndex(n_features=n_features, n_bits=kept, norms=False, random_state=0)
    compact = adaptive.recipe.layout.code_bytes
    yield (
        "adaptive",
        lambda seed: ts.AdaptiveIndex(n_features=n_features, n_bits=kept, norms=False, random_state=seed),
        {
            "bits": information,
            "bytes": compact,
        },
    )
    for name, n_bits in [
        ("sign codes, equal computation", kept),
        ("sign codes, equal information", round(information)),
        ("sign codes, equal bytes", 8 * compact),
    ]:

        def make(seed, n_bits=n_bits):
            return ts.SignIndex(n_features=n_features, n_pool=n_bits, norms=False, random_state=seed)

        yield name, make, {"bits": n_bits, "bytes": -(-n_bits // 8)}


def measure(make, residuals, cameras, seeds):
    """Quality by scoring: (n_seeds, 3), means over both halves."""
    n_cameras = len(np.unique(cameras))
    found = {"real query": [], "Hamming": []}
    for seed in range(seeds):
        both = {scoring: [] for scoring in found}
        for enrolled in halves(cameras):
            index = make(seed)
            index.add(fingerprints(residuals[enrolled], cameras[enrolled]))
            real = index.search(residuals[~enrolled], k=n_cameras)
            binary = index.search(residuals[~enrolled], k=n_cameras, scoring="hamming")
            both["real query"].append(quality(by_camera(real, real.scores), cameras[~enrolled]))
            both["Hamming"].append(quality(by_camera(binary, -binary.distances), cameras[~enrolled]))
        for scoring, values in both.items():
            found[scoring].append(np.mean(values, axis=0))
    return {scoring: np.array(values) for scoring, values in found.items()}


def measure_codes(method, n_bytes, residuals, cameras, seeds):
    """Quality of a method of ``shared/fingerprint_codes.py``: (n_seeds, 3), means over both halves."""
    found = []
    for seed in range(seeds):
        both = []
        for enrolled in halves(cameras):
            known = fingerprints(residuals[enrolled], cameras[enrolled])
            both.append(quality(code_scores(method, n_bytes, known, residuals[~enrolled], seed), cameras[~enrolled]))
        found.append(np.mean(both, axis=0))
    return np.array(found)


def row(method, scoring, kept, values, sizes):
    means, spreads = values.mean(axis=0), values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(3)
    names = ("top1", "auc", "d_prime")
    result = {"method": method, "scoring": scoring, "kept": kept, **sizes}
    result |= {name: {"mean": m, "spread": s} for name, m, s in zip(names, means, spreads, strict=True)}
    print(
        f"{method:32s} {scoring:10s} {kept or '':>6} {sizes['bytes']:8} B  top-1 {means[0]:.4f}  AUC {means[1]:.5f}  "
        f"d' {means[2]:.2f} (+-{spreads[2]:.2f})"
    )
    return result


def identify(residuals, cameras, kept):
    """Return scores of the second halves of the photographs, and p-values of their best cameras by both nulls."""
    enrolled, _ = halves(cameras)
    n_cameras, truth = len(np.unique(cameras)), cameras[~enrolled]
    index = ts.AdaptiveIndex(n_features=residuals.shape[1], n_bits=kept, norms=False, random_state=7)
    index.add(fingerprints(residuals[enrolled], cameras[enrolled]))
    known, questioned = (index.search(residuals[part], k=n_cameras) for part in (enrolled, ~enrolled))
    others = cameras[enrolled, np.newaxis] != np.arange(n_cameras)
    null = ts.theory.EmpiricalNull(by_camera(known, known.scores)[others], method="normal")
    scores, own = by_camera(questioned, questioned.scores), truth[:, np.newaxis] == np.arange(n_cameras)
    corrected = {
        name: ts.theory.correct_pvalues(p_values, n_entries=scores.size).max()
        for name, p_values in [
            ("theoretical", questioned.p_values[:, 0]),
            ("empirical", null.pvalue(questioned.scores[:, 0])),
        ]
    }
    theoretical = by_camera(questioned, questioned.p_values)[~own]
    return {
        "kept": kept,
        "right": int(np.count_nonzero(questioned.ids[:, 0] == truth)),
        "photographs": len(truth),
        "genuine": scores[own].tolist(),
        "impostor": scores[~own].tolist(),
        "null": np.asarray(null.impostors).tolist(),
        "largest_p_value": {name: float(value) for name, value in corrected.items()},
        "impostors_below_0.01": {
            "theoretical": float(np.mean(theoretical <= 0.01)),
            "empirical": float(np.mean(null.pvalue(scores[~own]) <= 0.01)),
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("residuals", help=".npz file")
    parser.add_argument("--kept", type=int, nargs="+", default=[32, 128, 512, 2048, 8192])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    residuals, cameras, names = load(options.residuals)
    n_photographs, n_features = residuals.shape
    print(f"{n_photographs} photographs of {len(names)} cameras, {n_features} features, {options.seeds} seeds")
    exact = []
    for enrolled in halves(cameras):
        enrolment = fingerprints(residuals[enrolled], cameras[enrolled])
        exact.append(quality(correlations(enrolment, residuals[~enrolled]), cameras[~enrolled]))
    whole = {"bits": 32 * n_features, "bytes": 4 * n_features}
    rows = [row("uncompressed", "real query", None, np.mean(exact, axis=0, keepdims=True), whole)]
    for kept in options.kept:
        for method, make, sizes in methods(kept, n_features):
            for scoring, values in measure(make, residuals, cameras, options.seeds).items():
                rows.append(row(method, scoring, kept, values, sizes))
        for method, words in OTHERS.items():  # of the bytes of the last
            found = measure_codes(method, sizes["bytes"], residuals, cameras, options.seeds)
            rows.append(row(f"{words}, equal bytes", "real query", kept, found, sizes))
    if options.json:
        shape = {"cameras": list(names), "n_photographs": n_photographs, "n_features": n_features}
        scores = identify(residuals, cameras, 2048 if 2048 in options.kept else options.kept[-1])
        save(options.json, options, shape | {"rows": rows, "identification": scores})


if __name__ == "__main__":
    main()
