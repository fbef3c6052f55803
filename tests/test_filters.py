"""Filters on metadata: the k best of those that pass, exactly; text that is no condition is refused."""

import json

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import topsign as ts
from topsign.index import filters
from topsign.store import Metadata

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
    index = ts.AdaptiveIndex(n_features=N_FEATURES, n_bits=8, random_state=7, path=path)
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
    ("lang in ('en', \"de\") AND NOT draft = true", lambda n: n.get("lang") in ("en", "de") and not n.get("draft")),
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


def test_few_of_many_are_gathered_and_the_rest_is_not_touched(index, rng):
    queries = rng.standard_normal((3, N_FEATURES))
    for where in ("year == 2005", "year >= 2002"):
        found = index.search(queries, 300, where=where, with_metadata=True)
        known = found.ids >= 0
        assert known.sum() > 0
        assert all(
            index.get([id]).metadata == [note] for id, note in zip(found.ids[known], found.metadata[known], strict=True)
        )


def test_changes_are_seen(index, rng):
    query = rng.standard_normal(N_FEATURES)
    index.update_metadata([3], [{"year": 1900}])
    assert index.search(query, 5, where="year == 1900").ids.tolist() == [[3, -1, -1, -1, -1]]
    index.add(query, metadata=[{"year": 1900}])
    assert index.search(query, 2, where="year == 1900").ids[0, 0] == 200


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("", "it ends where a field is expected"),
        ("year", "it ends where a comparison is expected"),
        ("year >=", "it ends where a value is expected"),
        ("year >= 2020 and", "it ends where a field is expected"),
        ("year >= 2020 lang", "'lang' is not expected"),
        ("year + 1 == 3", r"cannot read '\+ 1 == 3'"),
        ("year >= lang", "a number, a text in quotes, true, false or null is expected, got 'lang'"),
        ("__import__('os')", r"a comparison is expected after '__import__', got '\('"),
        ("lang in ('en'", r"'\)' is expected, got 'the end'"),
        ("lang in 'en'", r"'\(' is expected"),
        ("5 < year", "a field is expected, got '5'"),
        ("draft > true", "> compares numbers or texts, got True"),
        ("colour == 'red'", "where names the field 'colour', which no entry has"),
    ],
)
def test_what_is_no_condition_is_refused(index, where, words):
    with pytest.raises(ValueError, match=words):
        index.search(np.ones(N_FEATURES), where=where)


def test_where_must_be_text_or_dict(index):
    with pytest.raises(TypeError, match=r"where must be a text such as .* got list"):
        index.search(np.ones(N_FEATURES), where=["year"])
    with pytest.raises(TypeError, match="where must name fields by texts, got 3"):
        index.search(np.ones(N_FEATURES), where={3: 4})


FLAT = [
    {"year": 2020, "title": "a"},
    {"title": 'a "quoted", {braceless} text\\'.replace("{", "").replace("}", ""), "year": -1.5e3},
    {'x"year': 7, "title": '"year":9'},
    {"title": ',"year":9', "year": None},
    {"ye": 1, "yearly": 3, "year": True},
    {"year": "2020"},
    {"année": 3, "year": "\n\u2028 ü"},
    {},
    None,
]


@pytest.mark.parametrize("field", ["year", "title", 'x"year', "année", "absent", "a.b"])
@pytest.mark.parametrize("notes", [FLAT, FLAT[:2] * 5, [None] * 3, [*FLAT, {"year": [1, "year"]}], [{"a": {"b": 1}}]])
def test_scanned_fields_are_parsed_fields(notes, field):
    """One pass over the text gives what a parser does, or nothing where only a parser can tell."""
    texts = [b"" if n is None else json.dumps(n, ensure_ascii=False, separators=(",", ":")).encode() for n in notes]
    metadata = Metadata.of(texts)
    parsed, scanned = filters._parse_field(metadata, field), filters._scan_field(metadata, field)
    expected = [None if note is None else note.get(field) for note in notes]
    if field != "a.b":
        assert_array_equal(parsed.codes == 0, [value is None for value in expected])
    nested = any(isinstance(value, dict) for note in notes for value in (note or {}).values())
    assert (scanned is None) == (nested or any(isinstance(value, list) for value in expected))
    if scanned is not None:
        names = [{code: key for key, code in column.known.items()} for column in (parsed, scanned)]
        assert [names[0][code] for code in parsed.codes] == [names[1][code] for code in scanned.codes]
        assert_array_equal(parsed.numbers[parsed.codes], scanned.numbers[scanned.codes])
