"""User-defined ids, upserts, metadata changes, saving and pickling, in memory and in a file, compared with a dict."""

import copy
import pickle

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import topsign as ts
from topsign.store import segments

N_FEATURES = 64


@pytest.fixture(params=["memory", "file"])
def make_index(request, tmp_path):
    def make(name="a", **options):
        options = {"n_features": N_FEATURES, "n_bits": 8, "random_state": 7} | options
        path = tmp_path / f"{name}.topsign" if request.param == "file" else None
        return ts.Index(family="adaptive", **options, path=path)

    return make


@pytest.fixture
def signals(rng):
    return rng.standard_normal((40, N_FEATURES)).astype(np.float32)


def names_of(numbers):
    return [f"doc-{number}é" for number in numbers]


def test_texts_find_what_numbers_find(make_index, signals, monkeypatch):
    """With integer ids and with text ids, results are the same except for the ids."""
    monkeypatch.setattr(segments, "MERGED_ENTRIES", 16)
    numbered, named = make_index("numbered"), make_index("named")
    for part in np.array_split(np.arange(40), 5):
        numbered.add(signals[part], metadata=[{"row": int(i)} for i in part])
        assert named.add(signals[part], ids=names_of(part), metadata=[{"row": int(i)} for i in part]).tolist() == (
            names_of(part)
        )
    numbered.remove([3, 30])
    named.remove(names_of([3, 30]))
    queries, few = signals[::7] + 0.1, [5, 9, 33]
    for options, among in (({}, None), ({"scoring": "hamming"}, few)):
        expected = numbered.search(queries, 50, among=among, **options)
        found = named.search(queries, 50, among=among and names_of(among), **options)
        known = expected.ids >= 0
        assert found.ids[known].tolist() == names_of(expected.ids[known])
        assert all(one is None for one in found.ids[~known])
        assert_array_equal(found.scores, expected.scores)
        assert_array_equal(found.p_values, expected.p_values)
        matches = named.within(queries, false_alarm=0.5, among=among and names_of(among), **options)
        numbers = numbered.within(queries, false_alarm=0.5, among=among, **options).ids
        assert matches.ids.tolist() == names_of(numbers)
    assert named.ids.tolist() == list(named) == names_of(numbered.ids)
    assert named.get(names_of([7, 6])).codes == numbered.get([7, 6]).codes
    assert named["doc-7é"].metadata == {"row": 7}
    assert "doc-7é" in named
    assert "doc-3é" not in named
    assert 7 not in named
    exact = named.search(queries, 2, rescore=lambda ids: signals[[int(one[4:-1]) for one in ids]])
    assert exact.ids.tolist() == [names_of(row) for row in numbered.search(queries, 2, rescore=signals).ids]
    named.compact()
    named.verify()
    assert named.ids.tolist() == names_of(numbered.ids)


def test_upserts_and_removals_are_those_of_a_dict(make_index, signals):
    index, expected, rng = make_index(), {}, np.random.default_rng(1)
    for step in range(12):
        chosen = rng.choice(15, 4, replace=False)
        rows = rng.choice(40, 4, replace=False)
        index.upsert(signals[rows], ids=names_of(chosen), metadata=[{"step": step}] * 4)
        expected |= {name: (row, step) for name, row in zip(names_of(chosen), rows, strict=True)}
        gone = names_of(rng.choice(15, 2, replace=False))
        known = [name for name in gone if name in expected]
        index.remove(known)
        for name in known:
            del expected[name]
        assert set(index) == set(expected)
        assert len(index) == len(expected)
    plain = ts.Index(N_FEATURES, family="adaptive", n_bits=8, random_state=7)
    plain.add(signals)
    for name, (row, step) in expected.items():
        assert index[name].code == plain[row].code
        assert index[name].metadata == {"step": step}
    index.verify()


def test_upsert_replaces_numbers_in_one_change(make_index, signals):
    index = make_index()
    index.add(signals[:10], metadata=[{"row": i} for i in range(10)])
    index.upsert(signals[20:23], ids=[100, 3, 5], metadata=[None, {"row": 21}, None])
    assert index.ids.tolist() == [*range(10), 100]
    assert [entry.metadata for entry in index.get([2, 3, 5, 100])] == [{"row": 2}, {"row": 21}, None, None]
    assert index.search(signals[21], 1).ids == [[3]]
    bad = signals[:2].copy()
    bad[1, 0] = np.nan
    with pytest.raises(ValueError, match="first at row 1, column 0"):
        index.upsert(bad, ids=[3, 4])
    assert index.search(signals[21], 1).ids == [[3]]
    with pytest.raises(ValueError, match="ids must differ, but 4 is given more than once"):
        index.upsert(signals[:2], ids=[4, 4])
    with pytest.raises(ValueError, match="ids must differ, but a is given more than once"):
        make_index("b").upsert(signals[:2], ids=["a", "a"])


def test_an_upsert_of_many_segments_is_one_change(signals, tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "MERGED_ENTRIES", 4)
    index = ts.Index(N_FEATURES, family="adaptive", n_bits=8, random_state=7, path=tmp_path / "a.topsign")
    index.add(signals[:20], ids=names_of(range(20)))
    index.upsert(signals[10:30][::-1], ids=names_of(range(10, 30)))
    assert set(index) == set(names_of(range(30)))
    assert index.search(signals[29], 1).ids == [["doc-10é"]]
    index.verify()


def test_metadata_takes_numpy_scalars(make_index, signals):
    index = make_index()
    given = {"i": np.int64(7), "f": np.float32(0.1), "b": np.bool_(True), "s": np.str_("x"), "l": [np.uint8(3)]}
    index.add(signals[:1], metadata=[given])
    assert index[0].metadata == given
    assert index.search(signals[:1], k=1, where="i == 7 and b == true").ids.tolist() == [[0]]
    for bad in (np.float32("nan"), np.datetime64("2026-01-01"), np.arange(3), np.complex64(1)):
        with pytest.raises(ValueError, match="metadata at row 0 is not JSON"):
            index.add(signals[:1], metadata=[{"a": bad}])


def test_metadata_changes_and_codes_stay(make_index, signals):
    index = make_index()
    index.add(signals[:6], ids=[9, 8, 7, 6, 5, 4], metadata=[{"a": 1}] * 6)
    codes = index.get(index.ids).codes
    index.update_metadata([5, 9], [{"b": [2]}, None])
    assert [entry.metadata for entry in index.get([9, 5, 4])] == [None, {"b": [2]}, {"a": 1}]
    assert index.get(index.ids).codes == codes
    assert index.ids.tolist() == [4, 5, 6, 7, 8, 9]
    with pytest.raises(ValueError, match="ids must be in the index, but 1 is not"):
        index.update_metadata([1], [None])
    with pytest.raises(ValueError, match="ids must differ"):
        index.update_metadata([4, 4], [None, None])
    index.verify()


def test_an_index_has_one_kind_of_ids(make_index, signals):
    numbered, named = make_index("a"), make_index("b")
    numbered.add(signals[:2])
    named.add(signals[:2], ids=["x", "y"])
    with pytest.raises(TypeError, match="the ids of this index are integers, got texts"):
        numbered.add(signals[:1], ids=["x"])
    with pytest.raises(TypeError, match="the ids of this index are texts, got integers"):
        named.add(signals[:1], ids=[7])
    with pytest.raises(TypeError, match=r"the ids of this index are texts, got no ids; give one text per signal"):
        named.add(signals[:1])
    with pytest.raises(TypeError, match=r"texts, got among of dtype int64; list the ids of the index"):
        named.search(signals[0], among=[1])
    with pytest.raises(TypeError, match="the ids of this index are integers, got among of texts"):
        numbered.search(signals[0], among=["x"])
    with pytest.raises(TypeError, match="ids must be all texts or all integers, got 4 of type int at row 1"):
        named.add(signals[:2], ids=["a", 4])
    with pytest.raises(ValueError, match="1 to 512 bytes in UTF-8, got 513 at row 0"):
        named.add(signals[:1], ids=["é" * 256 + "a"])
    with pytest.raises(ValueError, match="got 0 at row 0"):
        named.add(signals[:1], ids=[""])
    with pytest.raises(ValueError, match="ids must be new, but y is in the index already; upsert replaces"):
        named.add(signals[:2], ids=["z", "y"])
    with pytest.raises(ValueError, match="ids must be one per signal, got 1 ids for 2 signals"):
        named.add(signals[:2], ids=["z"])
    with pytest.raises(ValueError, match="ids must be in the index, but w is not"):
        named.remove(["x", "w"])
    with pytest.raises(TypeError, match="rescore must be a callable that takes ids"):
        named.search(signals[0], rescore=signals)
    assert (len(numbered), len(named)) == (2, 2)


def test_texts_with_equal_hashes_are_distinguished(monkeypatch):
    from topsign.store import segments as module

    monkeypatch.setattr(module, "hash_text_ids", lambda names: np.zeros(len(list(names)), np.uint64))
    table = module.TextIds.of([b"a", b"b", b"c"])
    assert sorted(table.find([b"c", b"x", b"b"], module.hash_text_ids([1, 2, 3]))) == [(0, 2), (2, 1)]


@pytest.mark.parametrize("own_ids", [False, True])
def test_saved_copied_and_pickled_indexes_are_the_same(make_index, signals, tmp_path, own_ids):
    index = make_index()
    ids = names_of(range(40)) if own_ids else None
    index.add(
        signals, ids=ids, metadata=[{"row": i} if i % 2 else None for i in range(40)], source=("f", {"taken": 40})
    )
    index.remove(index.ids[:30:3])
    index.save(tmp_path / "saved.topsign")
    saved = ts.open_index(tmp_path / "saved.topsign")
    saved.verify()
    joblib.dump(index, tmp_path / "index.joblib", compress=3)
    loaded = joblib.load(tmp_path / "index.joblib")
    for other in (saved, pickle.loads(pickle.dumps(index)), copy.deepcopy(index), loaded):
        assert other.ids.tolist() == index.ids.tolist()
        assert other.search(signals[:5], 4).ids.tolist() == index.search(signals[:5], 4).ids.tolist()
        assert other.get(index.ids).metadata == index.get(index.ids).metadata
        assert other.sources == index.sources
        assert other.path == (index.path if other is not saved else saved.path)
    assert saved.info["removed"] == 0
    if not own_ids:
        assert saved.add(signals[0]).tolist() == [40]  # ids of removed entries are not given again
    with pytest.raises(FileExistsError, match=r"saved.topsign exists; choose another name"):
        index.save(tmp_path / "saved.topsign")
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []
    make_index("empty").save(tmp_path / "copy.topsign")
    assert ts.open_index(tmp_path / "copy.topsign").add(signals[0]).tolist() == [0]


def test_defaults_fit_any_length_and_warn_where_they_cannot(recwarn):
    assert ts.Index(384, family="adaptive").recipe.n_bits == 48
    assert ts.Index(8192, family="adaptive").recipe.n_bits == 1024
    assert ts.Index(20, family="adaptive").recipe.n_bits == 16
    with pytest.warns(UserWarning, match=r"n_bits=128 keeps 33% of the pool of 384, in \d+ bytes .* in 48 bytes"):
        ts.Index(384, family="adaptive", n_bits=128)
    with pytest.raises(ValueError, match="n_bits must be a number or \"auto\", got 'many'"):
        ts.Index(384, family="adaptive", n_bits="many")
