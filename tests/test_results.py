"""Results as rows and tables."""

import numpy as np
import pytest

import topsign as ts


@pytest.fixture(params=["numbers", "texts"])
def found(request, rng):
    signals = rng.standard_normal((5, 32))
    index = ts.Index(32, family="adaptive", n_bits=8, random_state=7)
    ids = None if request.param == "numbers" else [f"<{i}>" for i in range(5)]
    index.add(signals, ids=ids, metadata=[{"row": i} for i in range(5)])
    return index, signals, index.search(signals[:3], 7, with_metadata=True)


def test_one_query_at_a_time(found):
    index, _, neighbors = found
    assert [len(matches) for matches in neighbors] == [5, 5, 5]
    best = neighbors[1][0]
    assert best.id == index.ids[1]
    assert best.metadata == {"row": 1}
    assert (best.score, best.distance, best.p_value) == (
        neighbors.scores[1, 0],
        neighbors.distances[1, 0],
        neighbors.p_values[1, 0],
    )
    assert neighbors[-1] == neighbors[2]
    with pytest.raises(IndexError):
        neighbors[3]


def test_matches_are_rows_too(found):
    index, signals, _ = found
    matches = index.within(signals[:3], false_alarm=0.05)
    assert [[match.id for match in row] for row in matches] == [
        matches.ids[start:end].tolist() for start, end in zip(matches.starts, matches.starts[1:], strict=False)
    ]
    assert matches[0][0].metadata is None
    assert index.within(signals[:3], false_alarm=0.05, with_metadata=True)[0][0].metadata == {"row": 0}


def test_tables_have_one_row_per_match(found):
    _, _, neighbors = found
    rows = list(neighbors.rows())
    assert len(rows) == 15
    assert rows[5][:3] == (1, 1, neighbors.ids[1, 0])
    pandas = pytest.importorskip("pandas")
    frame = neighbors.to_pandas()
    assert list(frame.columns) == [
        "query",
        "rank",
        "id",
        "score",
        "distance",
        "p_value",
        "log10_p_value",
        "e_value",
        "metadata",
    ]
    assert frame["id"].tolist() == [row[2] for row in rows]
    assert isinstance(frame, pandas.DataFrame)
    pytest.importorskip("pyarrow")
    table = neighbors.to_arrow()
    assert table.column("id").to_pylist() == frame["id"].tolist()
    assert table.column("metadata").to_pylist()[5] == '{"row": 1}'
    nothing = ts.Index(32, family="adaptive", n_bits=8).search(np.ones((2, 32)), k=3)
    assert (len(nothing.to_arrow()), nothing.to_dict()["id"]) == (0, [])


def test_repr(found):
    _, _, neighbors = found
    text = repr(neighbors)
    assert text.startswith("Neighbors: 3 queries, 15 matches\nquery  rank")
    assert text.endswith("... 5 more")
    page = neighbors._repr_html_()
    assert page.count("<tr>") == 11
    assert "<0>" not in page
    assert (
        repr(ts.Index(32, family="adaptive", n_bits=8).search(np.ones((2, 32)), k=3))
        == "Neighbors: 2 queries, 0 matches"
    )


def test_tables_without_p_values_say_how_to_get_them(rng):
    signals = rng.standard_normal((300, 32))
    index = ts.Index(32, family="trellis", n_bytes=8, basis="hadamard")
    index.add(signals)
    for results in (index.search(signals[:1], k=2, with_metadata=True), index.within(signals[:1], threshold=0.5)):
        text, page = repr(results), results._repr_html_()
        assert "nan" not in text
        assert text.split("\n")[1].split()[:5] == ["query", "rank", "id", "score", "distance"]
        assert text.endswith("\nno p-values: calibrate the index first")
        assert "<th>p_value</th>" not in page
        assert page.endswith("<p>no p-values: calibrate the index first</p>")
    index.calibrate(rng.standard_normal((400, 32)))
    assert "e_value" in repr(index.search(signals[:1], k=2))


def test_pairs_that_are_not_shown_are_not_formatted():
    class Name:
        def __str__(self):
            assert self in names[:10]
            return "name"

    names = np.array([Name() for _ in range(12)])
    pairs = ts.Pairs(names, names, np.linspace(1, 0, 12), np.zeros(12))
    assert repr(pairs) == "\n".join(
        ["Pairs: 12", *(f"  name - name: {score:.4f}" for score in pairs.scores[:10]), "  ... 2 more"]
    )
