"""Small parts that tests share: an index for invalid or malicious input, and a calibration of recall."""

import numpy as np

import topsign as ts
from topsign.index.regions import IndexRegions
from topsign.search.recall import N_NEIGHBORS, N_STRATA, RecallCalibration

N_FEATURES = 64


def make_index(**options):
    return ts.Index(family="adaptive", **{"n_features": N_FEATURES, "n_bits": 16, "random_state": 1} | options)


def visit_regions(monkeypatch, n_regions):
    """Let searches for a recall of .9 visit the nearest regions of each query, this many of them."""
    n_queries, one = 1000, np.zeros(1, np.int64)
    calibration = RecallCalibration(
        generation=0,
        of_signals=False,
        own=False,
        path=one + n_regions,
        coarse=one + 10**6,
        candidates=one,
        edges=np.zeros(N_STRATA - 1),
        least=-np.inf,
        strata=np.zeros(n_queries, np.uint8),
        found=np.zeros((n_queries, N_NEIGHBORS), np.uint8),
        code_ranks=np.zeros((n_queries, N_NEIGHBORS), np.uint16),
        entries=np.zeros((N_STRATA, 1)),
    )
    monkeypatch.setattr(IndexRegions, "calibration", lambda *_: calibration)
