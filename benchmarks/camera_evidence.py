"""Likelihood ratios of cameras, fitted on one half of the photographs and tested on the other, both ways.

    python benchmarks/camera_evidence.py residuals.npz [--kept 512 2048] [--json FILE]

Residuals as ``examples/camera_fingerprints.py`` reads them. In the training half, each photograph is compared with the
fingerprints of the others, and thresholds and likelihood ratios are fitted to these scores. In the test half,
photographs are compared with the fingerprints of the whole training half. Cllr is the log-likelihood-ratio cost in
bits: 0 for perfect evidence, 1 for none.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from cameras import halves
from shared.results import save

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from camera_fingerprints import compare, learn_evidence, load

FALSE_ALARM = 0.01


def judge(residuals, cameras, kept):
    """Return the results of the thresholds and ratios of each half on the photographs of the other half."""
    ratios, scores, missed, alarms, words = ([], []), ([], []), [], [], []
    for learning in halves(cameras):
        matches, null = learn_evidence(residuals[learning], cameras[learning], kept)
        judged = residuals[~learning], cameras[~learning]
        found = compare(residuals[learning], cameras[learning], *judged, kept)
        threshold = null.threshold(FALSE_ALARM)
        missed.extend(found[0] < threshold)
        alarms.extend(found[1] >= threshold)
        for side, part in enumerate(found):
            evidence = null.likelihood_ratio(part, matches=matches)
            ratios[side].extend(evidence.log10)
            scores[side].extend(part)
            words += evidence.words if side == 0 else []
    matched, others = (np.log(10) * np.array(side) for side in ratios)
    cost = (np.mean(np.logaddexp(0, -matched)) + np.mean(np.logaddexp(0, others))) / (2 * np.log(2))
    found = {
        "kept": kept,
        "missed": float(np.mean(missed)),
        "false_alarms": float(np.mean(alarms)),
        "misleading_matches": float(np.mean(matched <= 0)),
        "misleading_impostors": float(np.mean(others >= 0)),
        "median_log10": {"matches": float(np.median(ratios[0])), "impostors": float(np.median(ratios[1]))},
        "cllr": float(cost),
        "words": {word: words.count(word) for word in dict.fromkeys(words)},
        "log10": {"matches": list(map(float, ratios[0])), "impostors": list(map(float, ratios[1]))},
        "scores": {"matches": list(map(float, scores[0])), "impostors": list(map(float, scores[1]))},
    }
    print(
        f"{kept} kept: {found['missed']:.1%} missed, {found['false_alarms']:.1%} false alarms at {FALSE_ALARM:.0%}; "
        f"{found['misleading_matches']:.1%} of matches and {found['misleading_impostors']:.1%} of impostors mislead; "
        f"Cllr {cost:.3f}"
    )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("residuals", help=".npz file")
    parser.add_argument("--kept", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    residuals, cameras, names = load(options.residuals)
    rows = [judge(residuals, cameras, kept) for kept in options.kept]
    if options.json:
        save(options.json, options, {"rows": rows, "n_cameras": len(names), "false_alarm": FALSE_ALARM})


if __name__ == "__main__":
    main()
