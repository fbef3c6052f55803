"""The paper's detection problem: how well codes of equal bytes separate matches from impostors.

References are normal vectors of 8,192 features; a match is its reference in noise of 0.15 in each feature of a unit
reference (correlation 0.0735), an impostor is the match of another reference. d' is the distance between the mean
scores of matches and impostors in standard deviations; its 95% interval is bootstrapped over blocks of 200 pairs.
``theory`` is the value of topsign.theory.roc, and for trellis codes that of their measured energy. Trellis codes have a
random basis, so none of the codes is trained.
"""

from statistics import NormalDist

import numpy as np
from shared.families import FAMILIES, all_scores, untrained
from shared.results import arguments, bounds, save, table

import topsign as ts
from topsign.encoding import encode

N_FEATURES, NOISE, BLOCK = 8192, 0.15, 200
CORRELATION = 1 / np.hypot(1, NOISE * np.sqrt(N_FEATURES))
RATES = (3 / 64, 13 / 128, 0.25, 51 / 128, 0.5, 1.0, 2.0, 4.0)


def moments(scores):
    """Return counts, sums and sums of squares of one block: matches on the diagonal, impostors off the diagonal."""
    own = np.eye(len(scores), dtype=bool)
    sides = scores[own].astype(np.float64), scores[~own].astype(np.float64)
    return [value for side in sides for value in (len(side), side.sum(), (side**2).sum())]


def d_prime(sums):
    """Return d' from the summed moments of blocks."""
    n1, s1, q1, n0, s0, q0 = sums.sum(axis=0)
    variances = q1 / n1 - (s1 / n1) ** 2, q0 / n0 - (s0 / n0) ** 2
    return (s1 / n1 - s0 / n0) / np.sqrt(np.mean(variances))


def with_interval(sums):
    """Return d' and its interval."""
    rng = np.random.default_rng(1)
    draws = [d_prime(sums[rng.integers(0, len(sums), len(sums))]) for _ in range(1000)]
    return float(d_prime(sums)), [float(one) for one in np.percentile(draws, [2.5, 97.5])]


def simulate(cases, n_pairs, n_recipes):
    """Moments of every block by (family, bytes, scoring), and the bytes of each code; recipes take turns."""
    rng, tables, sizes = np.random.default_rng(0), {case: [] for case in cases}, {}
    n_blocks = max(2, n_pairs // BLOCK)
    for seed in range(n_recipes):
        recipes = {case[:2]: untrained(case[0], N_FEATURES, case[1], seed) for case in cases}
        sizes = {key: recipe.code_bytes for key, recipe in recipes.items()}
        for _ in range(seed, n_blocks, n_recipes):
            references = rng.standard_normal((BLOCK, N_FEATURES), dtype=np.float32)
            references /= np.linalg.norm(references, axis=1, keepdims=True)
            matches = references + np.float32(NOISE) * rng.standard_normal(references.shape, dtype=np.float32)
            codes = {key: encode(recipe, references) for key, recipe in recipes.items()}
            for case, sums in tables.items():
                family, n_bytes, scoring = case
                recipe = recipes[family, n_bytes]
                sums.append(moments(all_scores(recipe, codes[family, n_bytes], matches, scoring=scoring)))
    return {case: np.array(sums) for case, sums in tables.items()}, sizes


def predicted(family, n_bytes, scoring):
    """Return the d' of theory; that of trellis codes follows from the energy that they capture of white signals."""
    if family == "trellis":
        return float(CORRELATION * np.sqrt(N_FEATURES * ts.theory.trellis_energy(8 * n_bytes / N_FEATURES)))
    recipe = untrained(family, N_FEATURES, n_bytes)
    shape = {"n_bytes": n_bytes} if family == "grouped" else {"n_bits": recipe.n_kept, "n_pool": recipe.n_pool}
    curve = ts.theory.roc(scoring=scoring, correlation=CORRELATION, n_features=N_FEATURES, **shape)
    return curve.d_prime


def found(index):
    """Share of matches found at one false alarm in a thousand comparisons, given d'."""
    return NormalDist().cdf(index - NormalDist().inv_cdf(0.999))


def detection(options):
    """Rows of all families, sizes and scorings, and of the limit that no code exceeds."""
    scorings = {family: ("asymmetric", *(["hamming"] * (family != "trellis"))) for family in FAMILIES}
    cases = [(family, n, one) for family in FAMILIES for n in options.bytes for one in scorings[family]]
    tables, sizes = simulate(cases, options.pairs, options.recipes)
    rows, by_case = {"asymmetric": [], "hamming": []}, {}
    for (family, n_bytes, scoring), sums in tables.items():
        value, ends = with_interval(sums)
        by_case[family, n_bytes, scoring] = value
        theory = predicted(family, n_bytes, scoring)
        rows[scoring].append([family, n_bytes, sizes[family, n_bytes], value, bounds(ends, 2), theory, found(value)])
    for n_bytes in options.bytes:
        share = float(ts.theory.rate_distortion_limit(8 * n_bytes / N_FEATURES))
        limit = CORRELATION * (N_FEATURES * share) ** 0.5
        rows["asymmetric"].append(["limit", n_bytes, n_bytes, limit, "", limit, found(limit)])
    note = f"""{options.pairs:,} pairs, {options.recipes} seeds of the projections. "limit" is the rate-distortion
    limit of white signals, which no code exceeds. Matches found: at one false alarm in 1,000 comparisons, by the normal
    law with this d'. Trellis codes have two bytes more, for their factor."""
    columns = ["code", "bytes", "stored bytes", "d'", "95% interval", "theory", "matches found"]
    chart = {"file": "detection", "x": "bytes", "y": "matches found", "by": "code", "log": "x"}
    title = f"Detection at a correlation of {CORRELATION:.4f}, {N_FEATURES:,} features"
    real = table(f"{title}, real-valued queries", columns, rows["asymmetric"], note, chart)
    return [real, table(f"{title}, Hamming distance", columns, rows["hamming"])], by_case


def energies(options):
    """Mean squared cosine of white signals of 1,024 features with their reconstructions, by bits per feature."""
    rng, rows, errors = np.random.default_rng(2), [], []
    signals = rng.standard_normal((options.signals, 1024), dtype=np.float32)
    for rate in RATES:
        n_bytes, cells = round(rate * 128), []
        for family in FAMILIES:
            recipe = untrained(family, 1024, n_bytes)
            if family == "adaptive" and recipe.n_kept == recipe.n_pool:  # all are kept
                cells.append(None)
                continue
            decoded = recipe.decode(encode(recipe, signals))
            products = np.sum(signals * decoded, 1) ** 2
            shares = products / np.maximum(np.sum(signals**2, 1) * np.sum(decoded**2, 1), 1e-30)
            cells.append(float(shares.mean()))
            errors.append(shares.std() / np.sqrt(len(shares)))
        rows.append([rate, n_bytes, *cells, float(ts.theory.rate_distortion_limit(rate))])
    note = f"""Mean squared cosine of {options.signals:,} signals of 1,024 features and their reconstructions, with one
    seed; standard errors are at most {max(errors):.4f}. Without the two bytes of a trellis code's factor."""
    columns = ["bits per feature", "bytes", *FAMILIES, "limit"]
    return table("Fraction of the energy of white signals that codes capture", columns, rows, note)


def main():
    options = arguments(
        __doc__,
        pairs=(20_000, 600),
        bytes=([128, 256, 448, 512, 1024], [256, 448]),
        recipes=(5, 1),
        signals=(4000, 300),
    )
    shown, values = detection(options)
    size = 448 if 448 in options.bytes else options.bytes[-1]
    parts = [f"{family} {found(values[family, size, 'asymmetric']):.0%}" for family in reversed(FAMILIES)]
    task = f"""Find signals at a correlation of {CORRELATION:.3f} ({N_FEATURES:,} features, {size} bytes, one false
    alarm in 1,000)"""
    save(options, [*shown, energies(options)], [[task, "found: " + ", ".join(parts)]])


if __name__ == "__main__":
    main()
