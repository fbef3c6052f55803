"""Originals: signals that an index stores in addition to their codes."""

import pickle

import numpy as np
import pytest
from folders import content_of, pack, read_manifest, store, unpack, write_manifest

import topsign as ts
from topsign.errors import StorageError
from topsign.search import originals
from topsign.search.originals import KeptOriginals

KINDS = ("float32", "float16", "int8")
ERRORS = {"float32": 0.0, "float16": 2**-11, "int8": 0.5 / 127}
"""Largest rounding error, relative to the largest magnitude of a signal."""


def made(n=600, n_features=32, seed=0):
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.integers(-12, 12, (n, 1))  # far outside of float16
    return (rng.standard_normal((n, n_features)) * scales).astype(np.float32)


@pytest.fixture(params=["memory", "folder"])
def path(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "index.topsign"


@pytest.fixture
def stored(tmp_path):
    """Return a folder whose originals are in separate files."""
    signals = made(n=3000)
    index = ts.Index(32, family="adaptive", random_state=7, originals="float32", path=tmp_path / "index.topsign")
    index.add(signals)
    (segment,) = index._store.snapshot.segments
    return tmp_path / "index.topsign", tmp_path / "index.topsign" / segment.columns.record.originals.path, signals


@pytest.mark.parametrize("kind", KINDS)
def test_get_returns_the_signals_within_the_rounding_of_their_type(kind, path):
    signals = made()
    index = ts.Index(32, family="adaptive", random_state=7, originals=kind, path=path)
    ids = np.random.default_rng(1).permutation(600)
    index.add(signals[:500], ids=ids[:500])
    index.upsert(signals[500:], ids=ids[500:])
    found = index.get(ids).signals
    errors = np.abs(found - signals).max(axis=1) / np.abs(signals).max(axis=1)
    assert errors.max() <= ERRORS[kind] * 1.001
    assert np.array_equal(index[int(ids[3])].signal, found[3])
    assert index.originals == kind
    assert index.info["bytes"]["originals"] >= 600 * 32 * np.dtype(kind).itemsize
    without = ts.Index(32, family="adaptive", random_state=7)
    without.add(signals[:500], ids=ids[:500])
    without.add(signals[500:], ids=ids[500:])
    assert index.info["bytes"]["codes"] == without.info["bytes"]["codes"]
    assert without.get(ids[:2]).signals is None
    assert without[int(ids[0])].signal is None


@pytest.mark.parametrize("kind", KINDS)
def test_removal_compaction_copies_and_pickles_keep_originals(kind, path, tmp_path):
    signals = made()
    index = ts.Index(32, family="sign", n_bytes=4, random_state=7, originals=kind, path=path)
    for part in np.array_split(np.arange(600), 7):
        index.add(signals[part], ids=part)
    expected = index.get(np.arange(0, 600, 3)).signals
    index.remove(np.setdiff1d(np.arange(600), np.arange(0, 600, 3)))
    index.compact()
    index.verify()
    index.save(tmp_path / "copy.topsign")
    for other in (index, pickle.loads(pickle.dumps(index)), ts.open_index(tmp_path / "copy.topsign")):
        assert np.array_equal(other.get(np.arange(0, 600, 3)).signals, expected)
        assert other.originals == kind


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("metric", ["correlation", "inner_product"])
def test_rescoring_by_kept_signals_equals_that_by_the_users_array(center, metric, path):
    signals = np.random.default_rng(0).standard_normal((600, 32)).astype(np.float32) + 0.3
    options = {"n_features": 32, "n_bits": 8, "random_state": 7, "center": center, "metric": metric}
    index = ts.Index(family="adaptive", originals="float32", path=path, **options)
    index.add(signals)
    queries = signals[:9] + 0.1
    for among in (None, np.arange(0, 600, 2), np.arange(50)):
        expected = index.search(queries, 5, rescore=signals, among=among)
        found = index.search(queries, 5, rescore=True, among=among)
        for name in ("ids", "scores", "p_values"):
            assert np.array_equal(getattr(found, name), getattr(expected, name))


def test_rescoring_without_originals_is_refused():
    index = ts.Index(32, family="adaptive", random_state=7)
    with pytest.raises(ValueError, match="make it with originals="):
        index.search(np.ones(32), rescore=True)


def test_an_unknown_type_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(ValueError, match="originals must be one of"):
        ts.Index(32, family="adaptive", originals="float64", path=tmp_path / "index.topsign")
    assert not (tmp_path / "index.topsign").exists()


def test_a_folder_must_agree_with_the_type_asked_for(tmp_path):
    ts.Index(32, family="adaptive", random_state=7, originals="int8", path=tmp_path / "index.topsign")
    with pytest.raises(ValueError, match="originals='int8', got originals='float16'"):
        ts.Index(32, family="adaptive", random_state=7, originals="float16", path=tmp_path / "index.topsign")
    assert ts.Index(32, family="adaptive", random_state=7, path=tmp_path / "index.topsign").originals == "int8"


@pytest.mark.parametrize("damage", ["byte", "header", "short", "gone"])
def test_damaged_originals_stop_no_search_by_code(stored, damage):
    path, file, signals = stored
    expected = ts.open_index(path).search(signals[:5], 3)
    content = bytearray(file.read_bytes())
    if damage == "gone":
        file.unlink()
    else:
        content[-5 if damage == "byte" else 20] ^= 4
        file.write_bytes(content[:-100] if damage == "short" else content)
    index = ts.open_index(path)
    assert np.array_equal(index.search(signals[:5], 3).ids, expected.ids)
    assert index.add(signals[:1]) == [3000]
    for use in (index.verify, lambda: index.get([2999]), lambda: index.search(signals[2999:], 3, rescore=True)):
        with pytest.raises(StorageError, match=file.name):
            use()


@pytest.mark.parametrize("column", ["originals", "original_scales"])
def test_originals_that_are_not_finite_are_refused(tmp_path, column):
    path, signals = tmp_path / "index.topsign", made(n=3000)
    index = ts.Index(32, n_bytes=6, random_state=7, originals="float32", path=path)
    index.add(signals)
    index.learn_regions(n_regions=16)
    bad = index._store.snapshot.segments[0].ids[7]
    record = read_manifest(path)
    (segment,) = record["segments"]
    columns = {name: np.array(array) for name, array in unpack(content_of(path, segment["originals"])).items()}
    columns[column][7] = np.nan
    store(path, segment["originals"], *pack(columns, block=2**16))
    write_manifest(path, record)
    index = ts.open_index(path)
    uses = [
        index.verify,
        lambda: index.get([bad]),
        lambda: index.search(signals[bad], 3, rescore=True),
        lambda: index.search(signals[bad], 3, recall=0.9),  # kernels read blocks that were verified before
    ]
    for use in (*uses, *reversed(uses)):
        with pytest.raises(StorageError, match=f"{column}: damaged: values must be finite"):
            use()


def test_a_zero_signal_is_uncorrelated_with_every_query():
    rng = np.random.default_rng(0)
    signals = rng.standard_normal((40, 32)).astype(np.float32)
    index = ts.Index(32, family="sign", n_bytes=4, random_state=7)
    index.add(signals)
    originals = signals.copy()
    originals[3] = 0
    found = index.search(signals[3], k=40, rescore=originals)
    (scores,) = found.scores
    assert np.isfinite(scores).all()
    assert scores[found.ids[0] == 3] == 0
    assert (scores != 0).sum() == 39


@pytest.mark.parametrize("n_queries", [1, 20])
@pytest.mark.parametrize("metric", ["correlation", "inner_product"])
def test_a_recall_that_reads_all_originals_compares_no_entry_twice(n_queries, metric, monkeypatch):
    signals = np.random.default_rng(0).standard_normal((600, 32)).astype(np.float32)
    index = ts.Index(32, family="grouped", n_bytes=2, metric=metric, originals="float32")
    index.add(signals)
    compared, compare_entries, compare_rows = [], KeptOriginals.compare_entries, originals.compare_rows

    def count(rows, starts):
        compared.extend((query, row) for query, row in enumerate(np.split(rows, starts[1:-1])))

    def counted_entries(self, ids, rows, starts, queries):
        count(rows, starts)
        return compare_entries(self, ids, rows, starts, queries)

    def counted_rows(values, scales, starts, queries, mean, rows=None):
        if rows is not None:  # not called by compare_entries
            count(rows, starts)
        return compare_rows(values, scales, starts, queries, mean, rows)

    monkeypatch.setattr(KeptOriginals, "compare_entries", counted_entries)
    monkeypatch.setattr(originals, "compare_rows", counted_rows)
    found = index.search(signals[:n_queries], k=5, recall=0.9)
    for query in range(n_queries):
        rows = np.concatenate([rows for one, rows in compared if one == query])
        assert len(np.unique(rows)) == len(rows)
    products = signals[:n_queries].astype(np.float64) @ signals.T
    norms = np.linalg.norm(signals.astype(np.float64), axis=1)
    exact = products / norms / norms[:n_queries, np.newaxis] if metric == "correlation" else products
    assert np.array_equal(found.ids, np.argsort(-exact, axis=1)[:, :5])
    np.testing.assert_allclose(found.scores, np.take_along_axis(exact, found.ids, axis=1), rtol=1e-6)
