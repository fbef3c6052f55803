"""Plan a code for a detection problem, build the index, and measure detection and false alarms.

400 noisy recordings contain one of 2,000 known fingerprints at a correlation of 0.15, and 400 contain none. The plan
predicts the number of bytes and the threshold.
"""

import numpy as np

import topsign as ts

N_ENTRIES, N_FEATURES, N_RECORDINGS, CORRELATION = 2_000, 4096, 400, 0.15


def main():
    target = {"correlation": CORRELATION, "detection": 0.95, "false_alarm": 0.01}
    plan = ts.theory.plan(**target, n_features=N_FEATURES, n_entries=N_ENTRIES, family="grouped")
    print(f"plan: {plan.n_bytes} bytes per entry, {plan.n_pool} projections")
    print(f"      accept estimated correlations of at least {plan.threshold:.4f}")

    rng = np.random.default_rng(1)
    fingerprints = rng.standard_normal((N_ENTRIES, N_FEATURES)).astype(np.float32)
    index = ts.Index(N_FEATURES, family="grouped", n_bytes=plan.n_bytes, random_state=7)
    index.add(fingerprints)

    noise = rng.standard_normal((N_RECORDINGS, N_FEATURES)).astype(np.float32)
    strength = CORRELATION / np.sqrt(1 - CORRELATION**2)
    present = strength * fingerprints[:N_RECORDINGS] + noise
    found = index.within(present, false_alarm=0.01)
    queries = np.repeat(np.arange(N_RECORDINGS), np.diff(found.starts))
    detected = (found.ids == queries).sum()
    print(f"detected {detected / N_RECORDINGS:.1%} of {N_RECORDINGS} (planned: {plan.detection:.1%})")
    alarms = np.diff(index.within(noise, false_alarm=0.01).starts) > 0
    print(f"false alarms in {alarms.mean():.2%} of {N_RECORDINGS} searches without a match (planned: 1%)")

    best = index.search(present[0], k=2)
    for id, score, p_value in zip(best.ids[0], best.scores[0], best.p_values[0], strict=True):
        low, high = ts.theory.correlation_interval(float(score), n_bytes=plan.n_bytes, scoring="asymmetric")
        print(f"recording 0: entry {id}, correlation {score:.3f} [{low:.3f}, {high:.3f}], p-value {p_value:.1e}")


if __name__ == "__main__":
    main()
