"""Measure d' of codes whose scores use a scale stored per entry, and of codes that use the expected scale.

``python experiments/expected_scale/measure.py`` takes 15 seconds. Scores are correlations of a real-valued query
with the signs of kept projections, over a Hadamard pool. A stored scale is the reciprocal of the entry's own sum of
kept magnitudes; the expected scale is the same for all entries. d' is the distance of the mean scores of matches and
impostors, divided by the standard deviation of the impostors.
"""

import numpy as np

import topsign as ts

N_FEATURES, CORRELATION, N_SIGNALS, N_SEEDS = 8192, 0.0735, 1000, 8


def kept_signs(projected, n_bits):
    """Return the signs of the n_bits largest projections of each row, and zeros elsewhere."""
    kept = np.argpartition(-np.abs(projected), n_bits - 1, axis=1)[:, :n_bits]
    signs = np.zeros(projected.shape, np.float32)
    np.put_along_axis(signs, kept, np.where(np.take_along_axis(projected, kept, axis=1) >= 0, 1, -1), axis=1)
    return signs


def d_primes(references, queries, signs):
    """Return d' with stored scales and with the expected scale; row i of the queries matches reference i."""
    sums = queries @ signs.T
    scaled = sums / np.einsum("ij,ij->i", signs, references)  # columns are entries
    found = []
    for scores in (scaled, sums):
        matches, impostors = np.diagonal(scores), scores[~np.eye(len(scores), dtype=bool)]
        found.append((matches.mean() - impostors.mean()) / impostors.std())
    return found


def main():
    names = {
        "sign, 448 bytes": lambda y: np.where(np.arange(N_FEATURES) < 3584, np.where(y >= 0, 1, -1), 0),
        "adaptive, 512 of 8,192 (448 bytes)": lambda y: kept_signs(y, 512),
        "grouped, 448 bytes": lambda y: np.where(
            np.arange(N_FEATURES) < 7168, kept_signs(y.reshape(-1, 8), 1).reshape(y.shape), 0
        ),
    }
    found = {name: [] for name in names}
    for seed in range(N_SEEDS):
        rng = np.random.default_rng(seed)
        signals, noise = rng.standard_normal((2, N_SIGNALS, N_FEATURES), dtype=np.float32)
        matches = np.float32(CORRELATION) * signals + np.float32(np.sqrt(1 - CORRELATION**2)) * noise
        pool = ts.make_projection("hadamard", n_features=N_FEATURES, n_pool=N_FEATURES, random_state=seed)
        references, queries = (
            pool.apply(one / np.linalg.norm(one, axis=1, keepdims=True)) for one in (signals, matches)
        )
        for name, encode in names.items():
            found[name].append(d_primes(references, queries, encode(references).astype(np.float32)))
    print(
        f"{N_SEEDS} seeds of {N_SIGNALS} matches and {N_SIGNALS * (N_SIGNALS - 1):,} impostors, mean (standard error)"
    )
    for name, values in found.items():
        both = np.array(values)
        columns = [*both.T, both[:, 1] - both[:, 0]]
        shown = [f"{one.mean():.4f} ({one.std(ddof=1) / np.sqrt(N_SEEDS):.4f})" for one in columns]
        print(f"{name}: stored scale {shown[0]}, expected scale {shown[1]}, difference {shown[2]}")


if __name__ == "__main__":
    main()
