"""Codes, queries and results shared by the tests of the emulated and of the real GPU."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal

from topsign import kernels
from topsign.kernels import Layout, Ring, RoundedQueries, Scoring

# Kind, size and factor of codes: whole and partial units of four planes, one and several slices of 128 coordinates. The
# size is the bytes of a code, (n_bits, n_pool), or the number of coordinates of each step, in which steps may be empty.
CODES = {
    "signs": ("signs", 9, None),
    "signs with factors": ("signs", 24, "log"),
    "groups": ("groups", 9, None),
    "groups with factors": ("groups", 44, "log"),
    "ring": ("ring", (3, 0, 2, 7, 1, 5, 2, 2), "cosine"),
    "long ring": ("ring", (40, 30, 20, 60, 10, 5), "log"),
    "kept": ("kept", (20, 150), None),
    "bitmap": ("kept", (7, 13), None),
    "kept with factors": ("kept", (30, 700), "log"),
}


def some_ring(dims, rng):
    """Return a ring of random books, one for each step, except that equal neighbours share one."""
    dims = np.asarray(dims)
    books = np.cumsum(np.diff(dims, prepend=-1) != 0) - 1
    first = np.append(0, np.cumsum(dims)).astype(np.int32)
    starts = np.append(0, np.cumsum(256 * dims[np.flatnonzero(np.diff(books, prepend=-1))])).astype(np.int64)
    levels = rng.integers(-127, 128, starts[-1], np.int8)
    weights, scales = rng.uniform(0.5, 1, first[-1]), rng.uniform(20, 40, first[-1])
    squares = rng.uniform(0, 0.01, (len(dims), 256))
    numbers = weights.astype(np.float32), scales.astype(np.float32), squares
    return Ring(first, books.astype(np.int32), starts, levels, *numbers, 0.1)


def some_codes(case, n_codes, rng):
    """Return the scoring and random rows of a case; some rows are equal."""
    kind, size, factor = CODES[case] if isinstance(case, str) else case
    ring = layout = None
    if kind == "ring":
        ring = some_ring(size, rng)
        n_bytes, width = ring.n_steps // 2, ring.n_coded
    elif kind == "kept":
        layout = Layout(*size)
        n_bytes, width = layout.code_bytes, layout.n_pool
    else:
        n_bytes, width = size, {"signs": 8, "groups": 16}[kind] * size
    scoring = Scoring(kind, n_bytes + (2 if factor else 0), width, factor, ring, layout)
    rows = rng.integers(0, 256, (n_codes, scoring.code_bytes), np.uint8)
    if layout is not None:
        projected = rng.standard_normal((n_codes, width)).astype(np.float32)
        locations, signs, _ = kernels.active().select(projected, layout.n_bits)
        rows[:, :n_bytes] = kernels.active().pack_codes(layout, locations, signs)
    if factor == "log":
        rows[:, -1] = 0x80  # norms near one
    rows[n_codes // 2 : n_codes // 2 + n_codes // 8] = rows[: n_codes // 8]
    return scoring, rows


def some_queries(scoring, n_queries, rng):
    """Return rounded queries with values up to the limit; the last one is zero."""
    values = rng.integers(-scoring.limit, scoring.limit + 1, (n_queries, scoring.width)).astype(np.int16)
    values[0, 0], values[:, -1] = scoring.limit, -scoring.limit
    values[1:][-1:] = 0
    scales, constants = rng.uniform(1e-4, 1, (2, n_queries)).astype(np.float32)
    return RoundedQueries(values, scales, constants)


def words_of(alive):
    """A bitmap of booleans as words of 32 bits."""
    packed = np.packbits(alive, bitorder="little")
    return np.append(packed, np.zeros(-len(packed) % 4, np.uint8)).view(np.uint32)


def equal_results(ours, theirs):
    """Assert that ids, scores, p-values and distances are bit-identical."""
    assert type(ours) is type(theirs)
    assert ours.n_entries == theirs.n_entries
    for name in ("starts", "ids", "scores", "p_values", "distances"):
        if hasattr(theirs, name):
            assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name, strict=True)


def best_of(logits, k):
    """Return classes and values of the k highest logits; ties are ordered by class."""
    order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(logits, order, axis=1)
