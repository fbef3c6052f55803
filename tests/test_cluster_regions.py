"""Searches with a recall on a cluster: results equal those of one machine, and only selected regions are visited."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from small import visit_regions
from test_regions import FAMILIES, FORGED, clustered, forge_regions

import topsign as ts
from topsign.search.query_block import QueryBlock

pytest.importorskip("distributed", reason="needs the extra distributed: pip install 'topsign[distributed]'")

from distributed import Client, LocalCluster

from topsign.distributed.segment_encoding import Piece, PlannedSegment, SegmentFormat, encode_segment, find_segment
from topsign.index import deferred_of
from topsign.signals import list_files, open_file

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("ignore::topsign.errors.CalibrationWarning"),
]


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as made,
    ):
        yield made


@pytest.fixture(
    scope="module", params=["trellis", "adaptive norms", "grouped", "trellis, originals", "adaptive, originals"]
)
def both(request, tmp_path_factory, client):
    """The same folder on one machine and on a cluster: several segments, removed entries, and regions."""
    family, *kept = request.param.split(", ")
    path = tmp_path_factory.mktemp("regions") / "index.topsign"
    index = FAMILIES[family](path=path, **({"originals": "float16"} if kept else {}))
    if deferred_of(index) is not None:
        index.fit(clustered(4000))
    index._store.segment_entries = 700
    signals = clustered(4000)
    for start in range(0, 4000, 800):
        rows = slice(start, start + 800)
        notes = [{"even": row % 2 == 0} for row in range(start, start + 800)]
        index.add(signals[rows], ids=(np.arange(4000) * 7 % 4001)[rows], metadata=notes)
    index.learn_regions(n_regions=64)
    index.remove(index.ids[::9])
    return index, ts.distributed.open(path, client=client)


def assert_same(found, expected):
    for name in ("ids", "scores", "log10_p_values", "distances", "visited", "recall", "recall_low", "exhaustive"):
        assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    assert found.recall_of == expected.recall_of


QUERIES = clustered(60, seed=5)

OPTIONS = {
    "recall": {"recall": 0.9},
    "k": {"recall": 0.9, "k": 40},
    "filter": {"recall": 0.9, "where": "even == true"},
    "few": {"recall": 0.9, "among": [7, 14, 21]},
    "large k": {"recall": 0.9, "k": 101},
    "all": {"recall": 0.9999},
    "one query": {"recall": 0.9, "queries": QUERIES[:1]},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_cluster_finds_what_one_machine_finds(both, name):
    index, cluster = both
    options = {"queries": QUERIES} | OPTIONS[name]
    expected = index.search(**options)
    assert_same(cluster.search(**options), expected)
    if name in ("recall", "one query"):
        assert (expected.exhaustive == "").any()


def test_a_cluster_rescores_with_kept_signals(both):
    index, cluster = both
    if index.originals is None:
        with pytest.raises(ValueError, match="rescore=True needs signals"):
            cluster.search(QUERIES, rescore=True)
        return
    assert_same(cluster.search(QUERIES, rescore=True), index.search(QUERIES, rescore=True))
    assert_array_equal(cluster.get(index.ids[:5]).signals, index.get(index.ids[:5]).signals)


def test_workers_visit_only_the_regions_that_the_client_chose(both, monkeypatch):
    _, cluster = both
    seen = []

    def spy(scan, snapshot, visits, k):
        seen.append(visits)
        return visit(scan, snapshot, visits, k)

    visit = QueryBlock.visit
    monkeypatch.setattr(QueryBlock, "visit", spy)
    visit_regions(monkeypatch, 4)
    found = cluster.search(QUERIES[:2], 5, recall=0.9)
    assert len(seen) == len(cluster.placement) == 3
    assert all(np.diff(one.visits.starts).tolist() == [4, 4] for one in seen)
    assert (found.visited < 0.5).all()


@pytest.mark.parametrize("kind", ["float16", "int8"])
def test_workers_write_originals_and_regions(tmp_path, client, kind, monkeypatch):
    signals = clustered(3000)
    (tmp_path / "signals").mkdir()
    np.save(tmp_path / "signals" / "a.npy", signals[:2000])
    recipe = FAMILIES["sign"]().recipe
    out = tmp_path / "index.topsign"
    encode = partial(ts.distributed.encode, tmp_path / "signals", out, recipe, client=client, segment_entries=500)
    assert encode(originals=kind).n_written == 4
    cluster = ts.distributed.open(out, client=client)
    cluster.learn_regions(n_regions=32)
    np.save(tmp_path / "signals" / "b.npy", signals[2000:])
    assert encode().n_written == 2
    assert encode().n_written == 0
    cluster.refresh()
    alone = FAMILIES["sign"](originals=kind)
    alone.add(signals)
    assert_array_equal(cluster.get(np.arange(3000)).signals, alone.get(np.arange(3000)).signals)
    index = ts.open_index(out)
    index.verify()
    assert_same(cluster.search(QUERIES, recall=0.9), index.search(QUERIES, recall=0.9))
    visit_regions(monkeypatch, 3)
    assert_same(cluster.search(QUERIES, recall=0.9), index.search(QUERIES, recall=0.9))
    regions = index._learned().regions.regions(index._store.now.tables)
    for segment in index._store.snapshot.segments:
        assert_array_equal(segment.columns.extra("regions"), regions.assign_codes(recipe, segment.codes))
    with pytest.raises(ValueError, match=f"has originals='{kind}', got originals='float32'"):
        encode(originals="float32")
    with pytest.raises(ValueError, match="originals"):
        encode(originals="float8")


def test_an_interrupted_job_keeps_only_complete_segments(tmp_path, client):
    np.save(tmp_path / "a.npy", clustered(1000))
    recipe, out = FAMILIES["sign"]().recipe, tmp_path / "index.topsign"
    index = FAMILIES["sign"](path=out, originals="float16")
    index.add(clustered(500, seed=1))
    index.learn_regions(n_regions=8)
    plan = PlannedSegment(500, (Piece(open_file(list_files(tmp_path / "a.npy")[0], None, ()), 0, 1000),))
    form = SegmentFormat(recipe, "float16", index._learned().regions.regions(index._store.now.tables))
    backend = index._store.backend
    first = encode_segment(backend, form, "0" * 32, plan)
    assert find_segment(backend, form, "0" * 32, plan) is not None
    backend.delete(first.record.originals.path)
    assert find_segment(backend, form, "0" * 32, plan) is None
    assert encode_segment(backend, form, "0" * 32, plan).is_new
    other = replace(form, regions=replace(form.regions, generation=5))
    assert find_segment(backend, other, "0" * 32, plan) is None  # its regions are different


@pytest.mark.parametrize(("name", "change", "words"), FORGED.values(), ids=FORGED)
def test_forged_regions_are_named_by_verify(client, tmp_path, name, change, words):
    path = tmp_path / "a"
    index = FAMILIES["grouped"](path=path)
    index.add(clustered(800))
    index.learn_regions(n_regions=16)
    forge_regions(path, name, change)
    with ts.distributed.open(path, client=client) as opened, pytest.raises(ts.StorageError, match=words):
        opened.verify()
