"""False-alarm rates after calibration, by simulation: laws of signals x families x own signals or impostors given.

    python tests/statistics/false_alarms.py --calibrations 20 --seeds 3

For each law, family, seed and way of calibrating it draws an index and fresh signals for every calibration, counts the
impostor queries that have any match, and checks three promises:

- the rate averaged over calibrations is at most 1.2 times nominal, plus four standard errors;
- nine calibrations of ten are at most 1.5 times nominal, within four standard errors of a binomial count;
- at least 95% of copies of entries with noise of a tenth of their norm are found at 0.01.

A calibration that is refused counts as refused, not as held; the table shows how many were.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import topsign as ts

N_FEATURES, N_ENTRIES, N_IMPOSTORS, N_QUERIES, N_COPIES = 96, 4000, 2000, 4000, 100
LEVELS = (0.05, 0.01, 0.001)
REAL = Path(__file__).parent.parent / "data" / "real" / "signals.npz"

Law = Callable[[np.random.Generator, int], np.ndarray]


def spectrum() -> np.ndarray:
    return np.geomspace(1, 0.15, N_FEATURES)


def clusters(rng: np.random.Generator, n: int, *, copied: float = 0.0) -> np.ndarray:
    centres = np.random.default_rng(99).standard_normal((60, N_FEATURES))
    signals = 0.4 * centres[rng.integers(0, 60, n)] + rng.standard_normal((n, N_FEATURES)) * spectrum()
    n_copies = int(copied * n)
    if n_copies:
        signals[-n_copies:] = signals[:n_copies] + 0.05 * rng.standard_normal((n_copies, N_FEATURES))
    return signals


def sentences(rng: np.random.Generator, n: int) -> np.ndarray:
    """Sentence embeddings, resampled: a convex combination of two neighbours in a random order, and noise."""
    with np.load(REAL) as file:
        real = file["sentences"].astype(np.float64)
    real /= np.linalg.norm(real, axis=1, keepdims=True)
    first, second, share = rng.integers(0, len(real), n), rng.integers(0, len(real), n), rng.uniform(0.3, 0.7, (n, 1))
    mixed = share * real[first] + (1 - share) * real[second]
    return mixed + 0.03 * rng.standard_normal(mixed.shape)


LAWS: dict[str, Law] = {
    "isotropic": lambda rng, n: rng.standard_normal((n, N_FEATURES)),
    "anisotropic": lambda rng, n: rng.standard_normal((n, N_FEATURES)) * spectrum(),
    "Student t, 3 degrees": lambda rng, n: rng.standard_t(3, (n, N_FEATURES)) * spectrum(),
    "large mean": lambda rng, n: rng.standard_normal((n, N_FEATURES)) * spectrum() + 1.0,
    "clusters": clusters,
    "clusters, 1% copies": lambda rng, n: clusters(rng, n, copied=0.01),
    "sparse counts": lambda rng, n: rng.poisson(0.15, (n, N_FEATURES)) + 1e-3 * rng.standard_normal((n, N_FEATURES)),
    "sentences": sentences,
}

FAMILIES: dict[str, Callable[[int], ts.Index]] = {
    "adaptive": lambda n: ts.AdaptiveIndex(n_features=n, n_bits=n // 4, center=True, random_state=3),
    "sign": lambda n: ts.SignIndex(n_features=n, center=True, random_state=3),
    "trellis": lambda n: ts.TrellisIndex(n_features=n, n_bytes=n // 8, random_state=3),
}


@dataclass
class Outcome:
    """Rates of one law, family and way of calibrating."""

    rates: dict[float, list[float]]
    detected: list[float]
    refused: int = 0

    def problems(self) -> list[str]:
        found = []
        for level, rates in self.rates.items():
            if not rates:
                continue
            mean, n = float(np.mean(rates)), len(rates)
            # One calibration: beta spread of the order statistic, and binomial spread of the queries.
            spread = np.sqrt(level * (1 / N_IMPOSTORS + 1 / N_QUERIES))
            if mean > 1.2 * level + 4 * spread / np.sqrt(n):
                found.append(f"{level}: mean rate {mean:.4f}")
            counted = np.asarray(rates) - 4 * np.sqrt(1.5 * level / N_QUERIES)
            share = float(np.mean(counted > 1.5 * level))
            if share > 0.1 + 4 * np.sqrt(0.09 / n):
                found.append(f"{level}: {share:.0%} of calibrations above 1.5 times nominal")
        if self.detected and np.mean(self.detected) < 0.95:
            found.append(f"{np.mean(self.detected):.1%} of copies found")
        return found


def simulate(law: str, family: str, own: bool, *, n_calibrations: int, seed: int) -> Outcome:
    """Calibrate several indexes of fresh signals and count false alarms."""
    outcome = Outcome({level: [] for level in LEVELS}, [])
    for number in range(n_calibrations):
        rng = np.random.default_rng([seed, number])
        draw = LAWS[law]
        signals = draw(rng, N_ENTRIES).astype(np.float32)
        index = FAMILIES[family](signals.shape[1])
        index.add(signals)
        plain = LAWS["clusters"] if law.startswith("clusters") else draw  # impostors have no copies among the entries
        try:
            index.calibrate(None if own else plain(rng, N_IMPOSTORS).astype(np.float32))
        except ValueError as error:
            if "calibrate with" not in str(error):
                raise
            outcome.refused += 1
            continue
        queries = plain(rng, N_QUERIES).astype(np.float32)
        for level in LEVELS:
            starts = index.within(queries, false_alarm=level, force=True).starts
            outcome.rates[level].append(float(np.mean(np.diff(starts) > 0)))
        scale = 0.1 * np.linalg.norm(signals[:N_COPIES] - signals.mean(axis=0), axis=1, keepdims=True)
        noise = rng.standard_normal((N_COPIES, signals.shape[1])) / np.sqrt(signals.shape[1])
        found = index.within(signals[:N_COPIES] + scale * noise, false_alarm=0.01, force=True)
        hits = [i in found.ids[found.starts[i] : found.starts[i + 1]] for i in range(N_COPIES)]
        outcome.detected.append(float(np.mean(hits)))
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calibrations", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    failed = 0
    for law in LAWS:
        for family in FAMILIES:
            for own in (True, False):
                for seed in range(options.seeds):
                    outcome = simulate(law, family, own, n_calibrations=options.calibrations, seed=seed)
                    problems = outcome.problems()
                    failed += bool(problems)
                    rates = " ".join(
                        f"{np.mean(rates) / level:.2f}" if rates else "-" for level, rates in outcome.rates.items()
                    )
                    found = f"{np.mean(outcome.detected):.3f}" if outcome.detected else "-"
                    how = "own signals" if own else "impostors"
                    print(
                        f"{law:22} {family:9} {how:11} seed {seed}: rate over nominal {rates}; copies found {found}; "
                        f"refused {outcome.refused}/{options.calibrations}",
                        *(["FAILED", "; ".join(problems)] if problems else []),
                        flush=True,
                    )
    print(f"{failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
