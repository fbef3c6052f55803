"""Codes, results and logits shared by the tests of the emulated and of the real GPU."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal

from topsign import kernels
from topsign.families import TrellisRecipe
from topsign.kernels import QueriedCells, TrellisRange


def some_codes(layout, n_codes, seed):
    """Adaptive codes of normal projections."""
    projected = np.random.default_rng(seed).standard_normal((n_codes, layout.n_pool)).astype(np.float32)
    locations, signs, _ = kernels.active().select(projected, layout.n_bits, n_threads=4)
    return kernels.active().pack_codes(layout, locations, signs)


def some_trellis_codes(n_features, n_bits, window, n_codes, rng):
    """Return tables of a random basis and random codes (any bytes are a valid code); norms are near one."""
    recipe = TrellisRecipe.learn(
        np.empty((0, n_features), np.float32),
        n_features=n_features,
        n_bits=n_bits,
        basis="hadamard",
        center=False,
        window=window,
        norms=True,
    )
    tables = recipe.cells[0].tables
    codes = rng.integers(0, 256, (n_codes, tables.code_bytes), np.uint8)
    codes[:, -1] = 0x80
    return tables, codes


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


def logits_of(layout, codes, scales, bias, projected):
    """Return the logits of all classes by the definition, in float64: the CPU's scores plus the bias."""
    scores = kernels.active().score_sums(layout, codes, projected) * scales
    return scores.astype(np.float64) + (0 if bias is None else bias.astype(np.float64))


def trellis_logits_of(tables, codes, bias, queries):
    """Return the logits of all classes for trellis codes."""
    cells = QueriedCells.one(tables, queries, norms=True)
    classes, scores = kernels.active().rank_trellis(cells, [TrellisRange(codes)], len(codes))
    logits = np.empty(scores.shape)
    np.put_along_axis(logits, classes, scores.astype(np.float64), axis=1)
    return logits + bias.astype(np.float64)


def best_of(logits, k):
    """Return classes and values of the k highest logits; ties are ordered by class."""
    order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(logits, order, axis=1)
