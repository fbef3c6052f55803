"""Simulated cameras: detection by photographs enrolled and bytes per fingerprint, false matches, likelihood ratios.

    python benchmarks/cameras_simulation.py [--sensors 40] [--size 512] [--strength 0.01 0.03] [--json FILE]

Sensors and scenes are those of ``shared/sensors.py``, residuals and fingerprints those of ``topsign.cameras``, codes
those of ``shared/fingerprint_codes.py``. Detection is the share of matches above the threshold of a normal law of the
impostor scores at 1e-6. False matches are counted among comparisons that the threshold was not learned from. As in
``topsign.cameras``, comparisons of photographs that show the same scene are recognised by their signatures and left
out; their scores are published separately. The file describes the photographs of each false match.
"""

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import beta, norm
from shared.fingerprint_codes import METHODS, code_scores, correlations
from shared.results import save
from shared.sensors import Photograph, decoded, pattern_of, photograph
from sklearn.isotonic import IsotonicRegression

import topsign as ts
from topsign import cameras
from topsign.cameras.pce import CUSTOMARY
from topsign.cameras.scene import same_scene, scene_signature

LEVEL = 1e-6
N_SHOWN = 400
"""Likelihood ratios of each kind that are saved, for the Tippett plot."""

fingerprints, queries = [], []  # of the processes that compute PCE: forked, so that nothing is copied


@dataclass(frozen=True)
class Shown:
    """Description of a photograph: crop and exposure, scene signature, and share of usable pixels."""

    photograph: Photograph  # without content
    signature: bytes | None
    usable: float

    def record(self):
        crop = self.photograph.crop
        return {"exposure": self.photograph.exposure, "crop": crop, "usable": round(self.usable, 4)}


def take(seed, pattern):
    """Residual and description of a photograph, drawn until one has enough usable pixels."""
    rng = np.random.default_rng(seed)
    while True:
        one = photograph(rng, pattern)
        pixels = decoded(one.content)
        try:
            residual = cameras.extract_residual(pixels)
        except ValueError:
            continue
        usable = residual.n_usable / residual.intensity.size
        return residual, Shown(replace(one, content=b""), scene_signature(pixels), usable)


def one_sensor(task):
    """Fingerprints of a sensor by photographs enrolled, descriptions of these, its queries, and CPU seconds.

    A query is a residual, an intensity and a description.
    """
    sensor, size, strength, enrolled, n_queries = task
    pattern, sums, found, enrolled_shown = pattern_of(sensor, size, strength), None, {}, []
    start = time.process_time()
    for number in range(max(enrolled, default=0)):
        residual, shown = take([2, sensor, number], pattern)
        enrolled_shown.append(shown)
        one = cameras.FingerprintSums.of([residual], size=size)
        sums = one if sums is None else sums + one
        if number + 1 in enrolled:
            found[number + 1] = sums.fingerprint().astype(np.float16)
    taken = [take([3, sensor, number], pattern) for number in range(n_queries)]
    asked = [(one.noise.astype(np.float16), one.intensity.astype(np.float16), shown) for one, shown in taken]
    return found, enrolled_shown, asked, time.process_time() - start


def pce_row(row):
    """PCE of one query with all fingerprints."""
    noise, intensity, _ = queries[row]
    usable = noise.astype(np.float32) * (intensity > 0)
    patterns = (intensity.astype(np.float32) * one.astype(np.float32) for one in fingerprints)
    return [cameras.peak_to_correlation_energy(usable, one) for one in patterns]


def pce_scores(workers, n_rows):
    """PCE of the first queries with all fingerprints, (n_rows, n_fingerprints)."""
    with ProcessPoolExecutor(workers) as pool:
        return np.array([*pool.map(pce_row, range(n_rows), chunksize=4)])


def interval(count, total):
    """95% interval of a rate (Clopper and Pearson); one-sided if nothing was counted."""
    if not count:
        return [0.0, 1 - 0.05 ** (1 / total)]
    return [float(beta.ppf(0.025, count, total - count + 1)), float(beta.ppf(0.975, count + 1, total - count))]


class Comparisons:
    """Which of the comparisons are matches and which are with impostors; those of one scene are neither."""

    def __init__(self, own, shown, enrolled_shown):
        """Take the matches, and descriptions of the queries and of the enrolled photographs of each sensor."""
        self.shown, self.enrolled_shown = shown, enrolled_shown
        same = np.array(
            [
                [any(same_scene(one.signature, other.signature) for other in sensor) for sensor in enrolled_shown]
                for one in shown
            ]
        )
        self.matches, self.impostors, self.same = own & ~same, ~own & ~same, same & ~own

    def summary(self, scores, method, enrolled, n_bytes):
        """Detection at the level of a normal law of impostors, and d'."""
        matches, impostors = scores[self.matches], scores[self.impostors]
        threshold = impostors.mean() + norm.isf(LEVEL) * impostors.std()
        spread = np.sqrt((matches.var() + impostors.var()) / 2)
        row = {
            "method": method,
            "enrolled": enrolled,
            "bytes": n_bytes,
            "detection": float((matches >= threshold).mean()),
            "matches": len(matches),
            "d_prime": float((matches.mean() - impostors.mean()) / spread),
            "impostor_deviation": float(impostors.std()),
            "match_mean": float(matches.mean()),
        }
        shown = f"detection {row['detection']:.3f}  d' {row['d_prime']:.2f}"
        print(f"{method:13s} enrolled {enrolled:2d} {n_bytes:8d} B  {shown}", flush=True)
        return row

    def pce(self, scores, enrolled, n_bytes):
        """Detection and false matches of PCE at its customary threshold, among comparisons of the first queries."""
        rows = slice(len(scores))
        matches, impostors = scores[self.matches[rows]], scores[self.impostors[rows]]
        false = int((impostors >= CUSTOMARY).sum())
        row = {
            "method": "PCE above 60",
            "enrolled": enrolled,
            "bytes": n_bytes,
            "detection": float((matches >= CUSTOMARY).mean()),
            "matches": len(matches),
            "false": false,
            "impostors": len(impostors),
            "interval": interval(false, len(impostors)),
            "largest_impostor": float(impostors.max()),
            "same_scene": sorted(scores[self.same[rows]].tolist(), reverse=True),
        }
        print(row, flush=True)
        return row

    def false_matches(self, scores, n_learned):
        """False matches at thresholds learned from the last impostor photographs, among all other comparisons."""
        learned, rest = scores[-n_learned:][self.impostors[-n_learned:]], slice(None, -n_learned)
        tested, same = scores[rest][self.impostors[rest]], scores[rest][self.same[rest]]
        null = ts.theory.EmpiricalNull(learned, method="normal")
        rows = []
        for level in (1e-2, 1e-3, 1e-4, LEVEL):
            threshold = float(null.threshold(level))
            count = int((tested >= threshold).sum())
            counts = {"count": count, "comparisons": len(tested), "same_scene": int((same >= threshold).sum())}
            rows.append({"level": level, "interval": interval(count, len(tested))} | counts)
        mean, deviation = float(learned.mean()), float(learned.std(ddof=1))
        above = np.argwhere((scores >= null.threshold(LEVEL))[rest] & self.impostors[rest])
        return {
            "learned_from": len(learned),
            "normal_law_p_value": cameras.calibration.normality_p_value(learned),
            "mean": mean,
            "deviation": deviation,
            "same_scene": len(same),
            "rows": rows,
            "false_matches": [self.described(scores, row, column, mean, deviation) for row, column in above],
            "kinds": self.kinds((scores - mean) / deviation),
        }

    def described(self, scores, row, column, mean, deviation):
        """Record of a false match, with its score in deviations of all impostors and of its own photograph."""
        others = scores[row][self.impostors[row] & (np.arange(scores.shape[1]) != column)]
        shown, enrolled = self.shown[row], self.enrolled_shown[column]
        shifts = [shown.photograph.shift(one.photograph) for one in enrolled]
        bits = [different_bits(shown.signature, one.signature) for one in enrolled]
        noise, intensity, _ = queries[row]
        expected = intensity.astype(np.float32) * fingerprints[column].astype(np.float32)
        pce = cameras.peak_to_correlation_energy(noise.astype(np.float32) * (intensity > 0), expected)
        return shown.record() | {
            "query": int(row),
            "sensor": int(column),
            "score": float(scores[row, column]),
            "deviations": float((scores[row, column] - mean) / deviation),
            "own_deviations": float((scores[row, column] - others.mean()) / others.std(ddof=1)),
            "least_shift": min((one for one in shifts if one is not None), default=None),
            "least_different_bits": min((one for one in bits if one is not None), default=None),
            "pce": float(pce),
        }

    def kinds(self, standardised):
        """Deviation and extremes of standardised impostor scores by kind of photograph."""
        rows = []
        photographs = [one.photograph for one in self.shown]
        natural, exposures = (
            np.array([one.crop is not None for one in photographs]),
            np.array([one.exposure for one in photographs]),
        )
        for is_natural in (False, True):
            for exposure in np.unique(exposures):
                chosen = (natural == is_natural) & (exposures == exposure)
                found = standardised[chosen][self.impostors[chosen]]
                if len(found):
                    about = {"natural": is_natural, "exposure": float(exposure), "comparisons": len(found)}
                    rows.append(about | {"deviation": float(found.std()), "largest": float(found.max())})
        return rows

    def evidence(self, scores, sensors):
        """Likelihood ratios learned from even sensors and judged by odd ones: Cllr, and Cllr of ideal calibration."""
        even = (sensors % 2 == 0)[:, np.newaxis] & np.ones(scores.shape, bool)
        model = ts.theory.LikelihoodRatioModel.fit(scores[self.matches & even], impostors=scores[self.impostors & even])
        matches, impostors = (model.ratio(scores[kind & ~even]).log10 for kind in (self.matches, self.impostors))
        least = cost(*ideal(scores[self.matches & ~even], scores[self.impostors & ~even]))
        return {
            "cllr": cost(matches, impostors),
            "least_cllr": least,
            "misleading_matches": float((matches < 0).mean()),
            "misleading_impostors": float((impostors > 0).mean()),
            "log10": {"matches": ranks(matches), "impostors": ranks(impostors)},
        }


def different_bits(first, second):
    """Number of bits in which two scene signatures differ; None if one is missing."""
    if first is None or second is None:
        return None
    return (int.from_bytes(first) ^ int.from_bytes(second)).bit_count()


def cost(matches, impostors):
    """Cllr of log10 likelihood ratios, in bits."""
    positive, negative = (np.mean(np.logaddexp(0, np.log(10) * one)) for one in (-matches, impostors))
    return float((positive + negative) / 2 / np.log(2))


def ideal(matches, impostors):
    """Log10 likelihood ratios of the scores themselves, by pooling adjacent violators."""
    scores = np.concatenate([matches, impostors]).astype(np.float64)
    truth = np.repeat([1.0, 0.0], [len(matches), len(impostors)])
    share = np.clip(IsotonicRegression(y_min=0, y_max=1).fit_transform(scores, truth), 1e-12, 1 - 1e-12)
    ratios = np.log10(share / (1 - share)) - np.log10(len(matches) / len(impostors))
    return ratios[: len(matches)], ratios[len(matches) :]


def ranks(values):
    """Evenly spaced order statistics."""
    ranked = np.sort(values)
    chosen = ranked[np.linspace(0, len(ranked) - 1, min(N_SHOWN, len(ranked))).round().astype(int)]
    return [round(float(one), 4) for one in chosen]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sensors", type=int, default=40)
    parser.add_argument("--size", type=int, default=512, help="pixels a side")
    parser.add_argument("--strength", type=float, nargs=2, default=[0.01, 0.03], help="of patterns, from and to")
    parser.add_argument("--enrolled", type=int, nargs="+", default=[1, 5, 20])
    parser.add_argument("--bytes", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--queries", type=int, default=4, help="photographs of each sensor to identify")
    parser.add_argument("--impostors", type=int, default=440, help="photographs of other sensors")
    parser.add_argument("--learned", type=int, default=40, help="impostors that the threshold is learned from")
    parser.add_argument(
        "--pce",
        type=int,
        nargs="+",
        help="photographs whose PCE is computed, for each number enrolled; those of enrolled sensors come first",
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--json", help="write the numbers into this file")
    parser.add_argument("--scores", help="write all scores of uncompressed fingerprints and adaptive codes, .npz")
    options = parser.parse_args()
    tasks = [(one, options.size, options.strength, options.enrolled, options.queries) for one in range(options.sensors)]
    tasks += [(1000 + one, options.size, options.strength, [], 1) for one in range(options.impostors)]
    start = time.perf_counter()
    with ProcessPoolExecutor(options.workers) as pool:
        made = [*pool.map(one_sensor, tasks, chunksize=1)]
    n_photographs = options.sensors * (max(options.enrolled) + options.queries) + options.impostors
    cpu = sum(one[3] for one in made) / n_photographs
    print(f"{n_photographs} photographs in {time.perf_counter() - start:.0f} s, {cpu:.2f} CPU seconds each", flush=True)
    queries[:] = [asked for one in made for asked in one[2]]
    signals = np.stack([(noise.astype(np.float32) * intensity).ravel() for noise, intensity, _ in queries])
    sensors = np.array([task[0] for task, one in zip(tasks, made, strict=True) for _ in one[2]])
    own = sensors[:, np.newaxis] == np.arange(options.sensors)
    measured, every = {"rows": [], "evidence": [], "n_photographs": n_photographs, "cpu_seconds": cpu}, {}
    for enrolled, n_pce in zip(options.enrolled, options.pce or [len(queries)] * len(options.enrolled), strict=True):
        fingerprints[:] = [one[0][enrolled] for one in made[: options.sensors]]
        shown = [one[1][:enrolled] for one in made[: options.sensors]]
        comparisons = Comparisons(own, [asked[2] for asked in queries], shown)
        whole = np.stack(fingerprints).astype(np.float32).reshape(options.sensors, -1)
        n_bytes = 4 * options.size**2
        exact = correlations(whole, signals)
        measured["rows"].append(comparisons.summary(exact, "uncompressed", enrolled, n_bytes))
        judged = {"uncompressed": (n_bytes, exact)}
        pce = pce_scores(options.workers, min(n_pce, len(queries)))
        measured["rows"].append(comparisons.pce(pce, enrolled, n_bytes))
        for n_bytes in options.bytes:
            for method in options.methods:
                try:
                    scores = code_scores(method, n_bytes, whole, signals)
                except ValueError as error:
                    about = {"method": method, "enrolled": enrolled, "bytes": n_bytes, "refused": str(error)}
                    measured["rows"].append(about)
                    print(about, flush=True)
                    continue
                measured["rows"].append(comparisons.summary(scores, method, enrolled, n_bytes))
                if method == "adaptive":
                    judged[n_bytes] = n_bytes, scores
        for name, (n_bytes, scores) in judged.items():
            about = {"method": "adaptive" if name == n_bytes else name, "enrolled": enrolled, "bytes": n_bytes}
            tested = comparisons.false_matches(scores, options.learned)
            measured["evidence"].append(about | tested | comparisons.evidence(scores, sensors))
            every[f"{enrolled} {name}"] = scores.astype(np.float32)
        every |= {f"{enrolled} {name}": getattr(comparisons, name) for name in ("matches", "impostors", "same")}
        if options.scores:
            np.savez_compressed(options.scores, **every)
        if options.json:  # saved after each number of photographs, so a stopped run keeps its results
            save(options.json, options, measured)
    print(f"{time.perf_counter() - start:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
