"""NumPy model of the GPU kernels: rounded queries, margins, thresholds and the exact second pass, in float32."""

from __future__ import annotations

import numpy as np

RADIX = 254
NOTHING = np.float32(-np.inf)


def round_up(values):
    """Return the smallest float32 that is not below the value."""
    near = np.asarray(values, np.float64).astype(np.float32)
    return np.where(near.astype(np.float64) < values, np.nextafter(near, np.float32(np.inf)), near).astype(np.float32)


def round_query(query, n_bits, digits):
    """Return rounded integers, their step and the margin of a sum of ``n_bits`` of them, as in ``cuda/queries.cu``."""
    largest = np.abs(query).max(initial=np.float32(0))
    limit = np.float32(127)
    for _ in range(1, digits):
        limit = np.float32(limit * RADIX + 126)
    step = max(np.float32(largest / limit), np.finfo(np.float32).tiny) if largest > 0 else np.float32(1)
    rounded = np.clip(np.rint(query.astype(np.float64) * (1 / np.float64(step))), -limit, limit)
    errors = round_up(np.abs(query.astype(np.float64) - np.float64(step) * rounded))
    worst = np.float64(errors.max(initial=np.float32(0)))
    margin = round_up(n_bits * (worst * (1 + 1e-6) + 5e-7 * np.float64(largest)))
    return rounded.astype(np.int64), np.float32(step), np.float32(margin)


def split_digits(whole, digits):
    """Split integers into digits of eight bits, most significant first."""
    out, left = [], whole.copy()
    for place in range(digits - 1, -1, -1):
        digit = np.rint(left / RADIX**place).astype(np.int64)
        left = left - digit * RADIX**place
        out.append(digit)
    return np.stack(out)


def centers(sums, step, digits):
    """Return rounded scores of integer sums."""
    if digits == 1:
        return np.float32(step) * sums.astype(np.float32)
    return (sums.astype(np.float64) * np.float64(step)).astype(np.float32)


def bounds(center, margin, weights):
    """Return lower and upper bounds of the exact score."""
    spread = np.where(weights < 0, -margin, margin).astype(np.float32)
    return (center - spread) * weights, (center + spread) * weights


def search(sums_of, exact, weights, alive, margin, k, chunk):
    """Return positions and scores of the k best; in each chunk, codes that may exceed the threshold are scored exactly.

    ``sums_of(part)`` returns the centers of a part, and ``exact[i]`` is the score of code i on the CPU.
    """
    held, bar, n_scored = [], NOTHING, 0
    for start in range(0, len(exact), chunk):
        part = np.arange(start, min(start + chunk, len(exact)))
        low, high = bounds(sums_of(part), margin, weights[part])
        candidates = (high > bar) & alive[part]
        if candidates.sum() > 2 * k:  # k codes certainly exceed all scores below this
            least = np.sort(low[candidates])[-k]
            candidates &= high >= least
        n_scored += int(candidates.sum())
        held += [(exact[i], i) for i in part[candidates]]
        held = sorted(held, key=lambda pair: (-pair[0], pair[1]))[:k]
        if len(held) == k:
            bar = held[-1][0]
    positions = [i for _, i in held] + [-1] * (k - len(held))
    scores = [score for score, _ in held] + [np.nan] * (k - len(held))
    return np.array(positions), np.array(scores, np.float32), n_scored
