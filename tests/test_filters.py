"""Filters on metadata: exact results among the entries that pass, and errors for invalid conditions."""

import datetime
import enum
import time
from functools import reduce

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import topsign as ts

N_FEATURES = 64
NOTES = [
    None if i % 11 == 0 else {"year": 2000 + i % 25, "lang": ["en", "it", "de"][i % 3], "draft": i % 2 == 0}
    for i in range(200)
]
NOTES[5] |= {"author": {"name": "Ada"}, "size": 2.5, "tags": ["a"], "odd name": "x'y"}
NOTES[6] |= {"size": "large"}


@pytest.fixture(params=["memory", "file"])
def index(request, tmp_path, rng):
    path = tmp_path / "a.topsign" if request.param == "file" else None
    index = ts.Index(N_FEATURES, family="adaptive", n_bits=8, random_state=7, path=path)
    signals = rng.standard_normal((200, N_FEATURES)).astype(np.float32)
    for part in np.array_split(np.arange(200), 3):
        index.add(signals[part], metadata=[NOTES[i] for i in part])
    index.remove([7, 8, 9, 150])
    return index


def passing(test):
    return [i for i, note in enumerate(NOTES) if i not in (7, 8, 9, 150) and test(note or {})]


CONDITIONS = [
    ("year >= 2020", lambda n: n.get("year", 0) >= 2020),
    ("year < 2003.5 and lang == 'it'", lambda n: n.get("year", 9999) < 2003.5 and n.get("lang") == "it"),
    ("lang in ('en', \"de\") and not draft == true", lambda n: n.get("lang") in ("en", "de") and not n.get("draft")),
    ("lang not in ('en') and lang != null", lambda n: n.get("lang") not in ("en", None)),
    ("year == null", lambda n: "year" not in n),
    (
        "(year > 2020 or year <= 2001) and draft == false",
        lambda n: (not 2001 < n.get("year", 2010) <= 2020) and n.get("draft") is False,
    ),
    ("author.name == 'Ada'", lambda n: "author" in n),
    ("size > 2", lambda n: n.get("size") == 2.5),
    ("size >= 'large'", lambda n: n.get("size") == "large"),
    ("lang < 'en'", lambda n: n.get("lang") == "de"),
    ("'odd name' == 'x\\'y'", lambda n: "odd name" in n),
    ("draft == 1", lambda n: False),
    ({"lang": "en", "draft": True}, lambda n: n.get("lang") == "en" and n.get("draft")),
    ({"lang": ["en", "it"]}, lambda n: n.get("lang") in ("en", "it")),
    ({"tags": [["a"]]}, lambda n: n.get("tags") == ["a"]),
]


@pytest.mark.parametrize(("where", "test"), CONDITIONS, ids=[str(where) for where, _ in CONDITIONS])
def test_a_filter_is_among_of_those_that_pass(index, rng, where, test):
    queries, expected = rng.standard_normal((4, N_FEATURES)), passing(test)
    for among in (None, np.setdiff1d(np.arange(0, 200, 3), [9, 150])):
        chosen = expected if among is None else np.intersect1d(expected, among)
        for scoring in ("asymmetric", "hamming"):
            found = index.search(queries, 7, where=where, among=among, scoring=scoring)
            plain = index.search(queries, 7, among=chosen, scoring=scoring)
            assert_array_equal(found.ids, plain.ids)
            assert_array_equal(found.scores, plain.scores)
            assert set(found.ids.ravel().tolist()) <= {-1, *map(int, chosen)}
        matches = index.within(queries, false_alarm=0.9, where=where, among=among)
        assert_array_equal(matches.ids, index.within(queries, false_alarm=0.9, among=chosen).ids)


def test_changes_are_seen(index, rng):
    query = rng.standard_normal(N_FEATURES)
    index.update_metadata([3], [{"year": 1900}])
    assert index.search(query, 5, where="year == 1900").ids.tolist() == [[3, -1, -1, -1, -1]]
    index.add(query, metadata=[{"year": 1900}])
    assert index.search(query, 2, where="year == 1900").ids[0, 0] == 200


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("", "invalid syntax"),
        ("year", "a comparison is expected, got 'year'"),
        ("year >=", "invalid syntax"),
        ("year + 1 == 3", r"a field is expected before the comparison, got 'year \+ 1'"),
        ("year >= lang", "a number, a text in quotes, true, false or null is expected, got 'lang'"),
        ("__import__('os')", "a comparison is expected, got"),
        ("lang in ('en'", "was never closed"),
        ("lang in (open('x'),)", "a number, a text in quotes, true, false or null is expected"),
        ("2000 < year < 2010", "compare one value at a time"),
        ("year is null", "a comparison is one of"),
        ("draft > true", "> compares numbers or texts, got True"),
        ("year == b'x'", "a number, a text in quotes"),
        ("(" * 5000 + "a == 1" + ")" * 5000, "nested"),
        ("not " * 50_000 + "a == 1", "characters"),
        ("colour == 'red'", "where names the field 'colour', which no entry has"),
    ],
)
def test_invalid_conditions_are_refused(index, where, words):
    with pytest.raises(ValueError, match=words):
        index.search(np.ones(N_FEATURES), where=where)


def test_where_must_be_text_or_dict(index):
    with pytest.raises(TypeError, match=r"where must be a string such as .* got list"):
        index.search(np.ones(N_FEATURES), where=["year"])
    with pytest.raises(TypeError, match="where must name fields by texts, got 3"):
        index.search(np.ones(N_FEATURES), where={3: 4})


def index_of(notes):
    index = ts.Index(16, family="adaptive", n_bits=4, random_state=1)
    index.add(np.random.default_rng(0).standard_normal((len(notes), 16)), metadata=notes)
    return index


def found(index, where):
    ids = index.search(np.ones(16), k=len(index), where=where).ids[0]
    return sorted(ids[ids >= 0].tolist())


def test_integers_are_exact():
    """Two integers that are equal as floats, and one larger than all floats."""
    a, b = 1234567890123456789, 1234567890123456800
    assert float(a) == float(b)
    index = index_of([{"user": a}, {"user": b}, {"user": 5}, {"user": 10**400}, {"user": -(10**400)}, {"user": 5.5}])
    for where in (f"user == {a}", {"user": a}, {"user": np.int64(a)}, f"user >= {a} and user < {b}"):
        assert found(index, where) == [0]
    assert found(index, f"user > {a}") == [1, 3]
    assert found(index, f"user <= {a}") == [0, 2, 4, 5]
    assert found(index, "user > 5") == [0, 1, 3, 5]
    assert found(index, f"user == 1{'0' * 400}") == [3]
    assert found(index, f"user < -{'9' * 399}") == [4]
    assert found(index, "user == 5.0") == [2]


class Lang(enum.StrEnum):
    EN = "en"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.str_("en"), [0]),
        (Lang.EN, [0]),
        (frozenset(["en", "it"]), [0, 1]),
        (np.array(["it"]), [1]),
        (datetime.date(2020, 1, 2), [2]),
        (datetime.datetime(2020, 1, 2, 3), [3]),
        (np.datetime64("2020-01-02"), [2]),
        (None, []),
        (1, []),
    ],
)
def test_values_of_dicts_are_taken_as_json_has_them(value, expected):
    index = index_of([{"lang": "en"}, {"lang": "it"}, {"lang": "2020-01-02"}, {"lang": "2020-01-02T03:00:00"}])
    assert found(index, {"lang": value}) == expected


@pytest.mark.parametrize(
    ("where", "error", "words"),
    [
        ({"y": {"$gt": 3}}, ValueError, r"a dict of equalities, got .*write other comparisons as a text"),
        ({"y": float("nan")}, ValueError, "finite numbers"),
        ({"y": object()}, TypeError, "with numbers, texts, dates, true, false or None, got <object"),
        ("y > 'a'", ValueError, "where orders 'y' by 'a', but no entry has a text in that field, only a number"),
        ("lang >= 3", ValueError, "no entry has a number in that field, only a text"),
        ("y > 1e999", ValueError, "beyond the largest float"),
        ("y == " + 5000 * "1", ValueError, "Exceeds the limit"),
        ("lang < 0x" + 90_000 * "f", ValueError, "where orders 'lang' by an integer of 360,000 bits, but no"),
        (
            {"y": reduce(lambda inner, _: [inner], range(100_000), 1)},
            TypeError,
            r"got \[\[\[\[\[\[\[...\]{7} of type list",
        ),
        ({"y": {"a": [10**5000, object()]}}, TypeError, r"\[an integer of 16,610 bits, <object"),
        ("y == 1" + 100_000 * " and y == 1", ValueError, "it has 1,100,006 characters, at most 100,000 are read"),
    ],
)
def test_incomparable_values_are_refused(where, error, words):
    index = index_of([{"y": 1, "lang": "en"}, {"y": 2, "lang": "it"}])
    with pytest.raises(error, match=words) as raised:
        found(index, where)
    assert len(str(raised.value)) < 1000


def test_long_conditions_are_read_in_linear_time():
    """9,000 terms take less than a second; parsing in quadratic time took minutes."""
    index = index_of([{"y": 1}, {"y": 2}])
    start = time.process_time()
    assert found(index, " or ".join(9000 * ["y==1"])) == [0]
    assert time.process_time() - start < 10


def test_fields_are_those_of_living_entries():
    index = index_of([{"a": 1}, {"b": 1}, {"b": 2}])
    index.remove([0])
    for _ in range(2):
        with pytest.raises(ValueError, match="where names the field 'a', which no entry has"):
            found(index, "a == 1 or b == 2")
        assert found(index, "b == 2") == [2]
        index.compact()
