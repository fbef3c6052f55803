"""Identify the camera of a photograph by its sensor fingerprint, with p-values and likelihood ratios.

    python examples/camera_fingerprints.py [residuals.npz] [--bits 2048] [--enrol 5] [--figure camera_scores.png]

Every sensor leaves a faint pattern in the noise of its photographs. The file contains this noise as ``residuals``
(n_photographs, n_features), optionally with a ``scale``, the number of the ``camera`` of each photograph, and
optionally the names of the ``cameras``. The fingerprint of a camera is the mean residual of a few photographs; the
index stores its code. Without a file, sensors are simulated.

P-values use one of two null distributions. The theoretical one assumes that impostors are independent and isotropic.
Cameras of one maker share parts of their pattern and their processing, so real impostors score higher; the empirical
null distribution is learned from the enrolled photographs and the fingerprints of the other cameras.

Likelihood ratios are learned only from the enrolled photographs: each is compared with fingerprints that do not contain
it. The other photographs then test the ratios, in a Tippett plot and a DET curve.
"""

import argparse
from pathlib import Path

import matplotlib
import numpy as np

import topsign as ts
import topsign.plots

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PATTERN = 0.17  # relative to noise of 1; fingerprints of five photographs correlate by 0.06, like real ones


def load(path):
    """Return residuals as float32, the camera number of each, and the names of the cameras."""
    with np.load(path) as file:
        residuals = file["residuals"].astype(np.float32) * file.get("scale", np.float32(1))
        cameras = file["camera"].astype(np.int64)
        names = file.get("cameras", np.arange(cameras.max() + 1)).astype(str)
    return residuals, cameras, names


def simulate(rng, *, n_cameras=6, n_photographs=8, n_features=2**18):
    """Simulate photographs of sensors with white patterns in white noise."""
    cameras = np.repeat(np.arange(n_cameras), n_photographs)
    patterns = PATTERN * rng.standard_normal((n_cameras, n_features), dtype=np.float32)
    residuals = rng.standard_normal((len(cameras), n_features), dtype=np.float32)
    residuals += patterns[cameras]
    return residuals, cameras, np.array([f"simulated {camera}" for camera in range(n_cameras)])


def split(cameras, n_enrol):
    """Return a mask of the enrolled photographs, the first ``n_enrol`` of each camera."""
    enrolled = np.zeros(len(cameras), bool)
    for camera in np.unique(cameras):
        enrolled[np.flatnonzero(cameras == camera)[:n_enrol]] = True
    return enrolled


def fingerprints(residuals, cameras):
    """Mean residual of each camera, (n_cameras, n_features)."""
    return np.stack([residuals[cameras == camera].mean(axis=0) for camera in np.unique(cameras)])


def by_camera(neighbors, values):
    """Return the values of a search with one column per camera."""
    return np.take_along_axis(values, np.argsort(neighbors.ids, axis=1), axis=1)


def compare(residuals, cameras, photographs, took, n_bits):
    """Return scores of photographs with the fingerprints of their own cameras and of the others."""
    index = ts.Index(residuals.shape[1], family="adaptive", n_bits=n_bits, random_state=7)
    index.add(fingerprints(residuals, cameras))
    found = index.search(photographs, k=len(index))
    scores, own = by_camera(found, found.scores), took[:, np.newaxis] == np.unique(cameras)
    return scores[own], scores[~own]


def learn_evidence(residuals, cameras, n_bits):
    """Return scores of known matches and impostors; no photograph is part of the fingerprint it is compared with."""
    place = np.array([np.count_nonzero(cameras[:i] == camera) for i, camera in enumerate(cameras)])
    known = [
        compare(
            residuals[place != left], cameras[place != left], residuals[place == left], cameras[place == left], n_bits
        )
        for left in np.unique(place)
    ]
    matches, impostors = (np.concatenate(part) for part in zip(*known, strict=True))
    return matches, impostors


def report_evidence(genuine, impostor, matches, impostors, figure):
    """Print error rates of the learned threshold and likelihood ratios on the other photographs."""
    null = ts.significance.ScoreCalibration.fit(impostors, n_entries=1, tail="normal")
    threshold = null.threshold(0.01)
    print(
        f"\nthreshold for one false alarm in 100: {threshold:.4f}; {np.mean(genuine < threshold):.1%} of the questioned"
    )
    print(f"photographs miss it at their own camera, and {np.mean(impostor >= threshold):.1%} pass it at another")
    model = ts.significance.LikelihoodRatioModel.fit(matches, impostors=impostors)
    ratios = [model.ratio(scores) for scores in (genuine, impostor)]
    typical = int(np.argsort(ratios[0].log10)[len(genuine) // 2])
    low, high = (10 ** getattr(ratios[0], name)[typical] for name in ("low", "high"))
    print(f"likelihood ratio of a typical match: {10 ** ratios[0].log10[typical]:.0f} ({low:.0f} to {high:.0f}),")
    print(f"{ratios[0].words[typical]}; {np.mean(ratios[0].log10 <= 0):.1%} of matches and")
    print(f"{np.mean(ratios[1].log10 >= 0):.1%} of impostors get a ratio on the wrong side of 1")
    for name, draw_it, parts in (
        ("tippett", ts.plots.plot_tippett, [one.log10 for one in ratios]),
        ("det", ts.plots.plot_det, [genuine, impostor]),
    ):
        path = Path(figure).with_stem(f"{Path(figure).stem}_{name}")
        draw_it(*parts, path)
        print(f"saved {path}")


def draw(path, genuine, impostor, null, n_bits):
    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    bins = np.linspace(min(impostor.min(), 0), genuine.max(), 40)
    axes.hist(impostor, bins, density=True, color="#D55E00", alpha=0.6, label="photographs of other cameras")
    axes.hist(genuine, bins, density=True, color="#0072B2", alpha=0.7, hatch="//", label="photographs of the camera")
    mean, spread = np.mean(null.best), np.std(null.best, ddof=1)
    normal = np.exp(-(((bins - mean) / spread) ** 2) / 2) / (spread * np.sqrt(2 * np.pi))
    axes.plot(bins, normal, "k--", lw=1.5, label="null distribution from enrolled photographs")
    axes.set(xlabel=f"estimated correlation with a fingerprint, {n_bits} bits kept", ylabel="density")
    axes.margins(y=0.3)  # room for the legend
    axes.legend(loc="upper right")
    figure.savefig(path, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("residuals", nargs="?", help=".npz file; simulated sensors by default")
    parser.add_argument("--bits", type=int, default=2048, help="projections kept per fingerprint")
    parser.add_argument("--enrol", type=int, default=5, help="photographs per fingerprint")
    parser.add_argument("--figure", default="camera_scores.png")
    options = parser.parse_args()
    residuals, cameras, names = load(options.residuals) if options.residuals else simulate(np.random.default_rng(1))
    n_features, enrolled = residuals.shape[1], split(cameras, options.enrol)

    index = ts.Index(n_features, family="adaptive", n_bits=options.bits, random_state=7)  # a Hadamard pool
    index.add(fingerprints(residuals[enrolled], cameras[enrolled]), ids=np.arange(len(names)))
    code_bytes = index.get([0]).codes.nbytes
    print(f"{options.bits} of {n_features} projections kept: {code_bytes} bytes per camera", end=", ")
    print(
        f"{4 * n_features / code_bytes:.0f} times less than float32; {len(names)} cameras, {options.enrol} "
        f"photographs each"
    )

    known = index.search(residuals[enrolled], k=len(names))
    others = cameras[enrolled, np.newaxis] != np.arange(len(names))
    null = ts.significance.ScoreCalibration.fit(by_camera(known, known.scores)[others], n_entries=1, tail="normal")

    questioned, truth = index.search(residuals[~enrolled], k=len(names)), cameras[~enrolled]
    named, best = questioned.ids[:, 0], questioned.scores[:, 0]
    theoretical = ts.significance.correct_pvalues(questioned.p_values[:, 0], n_entries=len(names) * len(truth))
    empirical = ts.significance.correct_pvalues(null.p_value(best), n_entries=len(names) * len(truth))
    print(
        f"right: {np.count_nonzero(named == truth)} of {len(truth)}; largest p-value of a first place, "
        f"corrected for all"
    )
    print(f"comparisons: {theoretical.max():.1e} theoretical, {empirical.max():.1e} empirical")
    print("\nconfusion: rows took the photograph, columns were named")
    for camera, name in enumerate(names):
        counts = np.bincount(named[truth == camera], minlength=len(names))
        print(f"{name:>14} " + "".join(f"{count:4d}" for count in counts))

    scores, own = by_camera(questioned, questioned.scores), truth[:, np.newaxis] == np.arange(len(names))
    draw(options.figure, scores[own], scores[~own], null, options.bits)
    print(f"\nsaved {options.figure}")

    matches, learned = learn_evidence(residuals[enrolled], cameras[enrolled], options.bits)
    report_evidence(scores[own], scores[~own], matches, learned, options.figure)


if __name__ == "__main__":
    main()
