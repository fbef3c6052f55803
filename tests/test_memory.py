"""Encoding needs memory for codes and a bounded workspace, not for a mapped file or a dense copy of sparse rows."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


SPARSE = """
import resource, sys
import numpy as np, scipy.sparse, topsign as ts
from sklearn.linear_model import SGDClassifier

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

def use(rows, labels):
    encoder = ts.Encoder(rows.shape[1], family="adaptive", random_state=7).fit(rows)
    assert len(encoder.encode(rows)) == rows.shape[0]
    assert ts.SignEmbedding(64, random_state=7).fit(rows).transform(rows).shape == (rows.shape[0], 8)
    index = ts.Index(rows.shape[1], family="adaptive", n_bits=256, random_state=7)
    index.add(rows)
    assert (index.search(rows[:50], 1).ids[:, 0] == np.arange(50)).all()
    exact = SGDClassifier(random_state=0)
    small = ts.CompressedLinearClassifier(exact, n_bytes=rows.shape[1] // 16, random_state=7).fit(rows, labels)
    assert small.report(rows, labels).agreement > 0.9

def make(n_rows, n_features):
    rng = np.random.default_rng(0)
    words = rng.integers(0, n_features, (n_rows, 60))
    labels = np.arange(n_rows) % 3
    words[:, :20] = labels[:, None] * 40 + rng.integers(0, 40, (n_rows, 20))  # words of a topic
    places = np.repeat(np.arange(n_rows), 60).astype(np.int32), words.ravel().astype(np.int32)
    counts = scipy.sparse.coo_array((rng.random(60 * n_rows), places), shape=(n_rows, n_features))
    return counts.tocsr(), labels

use(*make(60, 4096))
before = peak()
use(*make(400, 100_000))
print(peak() - before)
"""


def test_sparse_rows_are_not_made_dense_at_once():
    command = [sys.executable, "-c", SPARSE]
    grown = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    # Codes take 5 MB and the calibration sample 13 MB, plus coefficients of three classes and blocks; all rows as
    # float32 would take 160 MB.
    assert grown < 100
