"""Results on a cluster of processes are bit-identical to those of one process, even after failures."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import topsign as ts

pytest.importorskip("distributed", reason="needs the extra distributed: pip install 'topsign[distributed]'")

import folders
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import scipy.sparse
from faults import cluster as faults
from processes import PATIENCE, Processes
from typer.testing import CliRunner

from topsign.cli import app
from topsign.distributed import cluster as clusters
from topsign.distributed import encoding_job
from topsign.distributed import entries as cluster_entries
from topsign.distributed import index as cluster_index
from topsign.distributed import placement as placing
from topsign.store.versions import PENDING

N_FEATURES = 96
KINDS = ["adaptive", "grouped", "inner product", "sign"]

# Dask clients warn when they lose workers or the scheduler.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


def make_index(kind, **options):
    options = {"n_features": N_FEATURES, "random_state": 7} | options
    if kind in ("grouped", "sign"):
        return ts.Index(family=kind, n_bytes=12, **options)
    options |= {"metric": "inner_product"} if kind == "inner product" else {}
    return ts.Index(family="adaptive", n_bits=20, **options)


def draw_signals(seed, n_signals):
    """Return integer signals of which every third is a copy, so there are many ties, also between segments."""
    rng = np.random.default_rng(seed)
    signals = rng.integers(-9, 10, (n_signals, N_FEATURES)).astype(np.float32)
    signals[::3] = signals[rng.permutation(np.arange(0, n_signals, 3)) - 1]
    return signals


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    with Processes(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def client(processes):
    if not processes._clients:
        processes.client()
    return processes._clients[-1]


@pytest.fixture
def signals():
    return draw_signals(1, 700)


@pytest.fixture
def source(tmp_path, signals):
    """Five files of different lengths; segments of 90 entries begin and end within them."""
    folder = tmp_path / "signals"
    folder.mkdir()
    for i, part in enumerate(np.split(signals, [100, 101, 350, 600])):
        np.save(folder / f"part{i}.npy", part)
    return folder


@pytest.fixture
def queries(signals):
    noise = np.random.default_rng(2).integers(-4, 5, (12, N_FEATURES))
    return (signals[::60] + noise).astype(np.float32)


def assert_same(found, expected):
    for name in ("ids", "distances", "scores", "p_values"):
        assert_array_equal(getattr(found, name), getattr(expected, name))
        assert getattr(found, name).dtype == getattr(expected, name).dtype
    if isinstance(expected, ts.Matches):
        assert_array_equal(found.starts, expected.starts)


def assert_same_pairs(index, memory, monkeypatch, limits):
    """Assert equal pairs if codes are sent in parts of a segment, or two segments at a time."""
    n_rows = 60 if "k" in limits[0] else 220
    monkeypatch.setattr(cluster_entries, "TRAVELLING_BYTES", n_rows * memory.recipe.code_bytes)
    calls = []
    for limit in limits:
        found, expected = index.pairs(**limit, progress=lambda *done: calls.append(done)), memory.pairs(**limit)
        assert len(expected)
        for name in ("first", "second", "scores", "p_values"):
            assert_array_equal(getattr(found, name), getattr(expected, name))
        assert calls[-1] == (len(memory), len(memory))
    assert index.groups(**limits[0]) == memory.groups(**limits[0])
    assert found.to_arrow() == expected.to_arrow()


def inodes(out):
    return {file.name: file.stat().st_ino for file in Path(out).glob("segments/*")}


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_one_index(client, source, tmp_path, signals, queries, kind, monkeypatch):
    memory = make_index(kind)
    memory.add(signals)
    out = tmp_path / "codes"
    encoded = ts.distributed.encode(source, out, make_index(kind), client=client, segment_entries=90)
    assert encoded == ts.distributed.EncodingResult(version=3, n_entries=700, n_segments=8, n_written=8)
    index = ts.distributed.open(out, client=client)
    assert (len(index), index.recipe, index.metric) == (700, memory.recipe, memory.metric)
    assert len(index.placement) == 4
    among = np.random.default_rng(3).permutation(700)[:250]
    few = np.array([5, 699])  # in two segments of eight
    adaptive = [{}, {"adaptive_bits": 17}] if kind == "sign" else [{}]
    for scoring in ("asymmetric", "hamming"):
        near = {"radius": 0.45} if scoring == "hamming" else {"threshold": float(memory.search(queries).scores[0, 9])}
        for options in adaptive:
            options = options | {"scoring": scoring}
            for k in (10, 800):
                assert_same(index.search(queries, k=k, **options), memory.search(queries, k=k, **options))
            for chosen in (among, few, few[:0]):
                found, expected = (one.search(queries, k=7, among=chosen, **options) for one in (index, memory))
                assert_same(found, expected)
            for limit in (near, {"false_alarm": 1e-3}, {"false_alarm": 0.9}):
                assert_same(index.within(queries, **limit, **options), memory.within(queries, **limit, **options))
            found, expected = (
                one.within(queries, false_alarm=0.5, among=[*among, *among], **options) for one in (index, memory)
            )
            assert_same(found, expected)
    if kind != "inner product":
        assert_same_pairs(index, memory, monkeypatch, [{"k": 2} if kind == "sign" else {"threshold": 0.3}])
    index.close()


def test_queries_travel_in_blocks(client, source, tmp_path, signals, queries, monkeypatch):
    monkeypatch.setattr(cluster_index, "SMALL_QUERY_BYTES", 4 * 4 * N_FEATURES)
    memory = make_index("adaptive")
    memory.add(signals)
    ts.distributed.encode(source, tmp_path / "codes", memory, client=client)
    with ts.distributed.open(tmp_path / "codes", client=client) as index:
        assert_same(index.search(queries), memory.search(queries))
        assert_same(index.within(queries, false_alarm=0.5), memory.within(queries, false_alarm=0.5))
        assert_same(index.search(queries[:0]), memory.search(queries[:0]))
    with pytest.raises(ts.StorageError, match="this index is closed; open it again"):
        index.search(queries)


def test_no_client_starts_a_local_cluster_and_any_file_system_works(source, tmp_path, signals, queries):
    """The object store is in memory, so only workers in this process have access."""
    import fsspec

    fs = fsspec.filesystem("memory")
    for file in source.iterdir():
        fs.pipe_file(f"/in/{file.name}", file.read_bytes())
    table = pyarrow.table({"x": pyarrow.array(signals[:50].tolist())})
    with fs.open("/in/zlast.parquet", "wb") as file:
        pyarrow.parquet.write_table(table, file, row_group_size=20)
    memory = make_index("adaptive")
    memory.add(np.vstack([signals, signals[:50]]))
    try:
        assert ts.distributed.encode("memory://in", "memory://out", memory, segment_entries=90).n_entries == 750
        assert ts.distributed.encode("memory://in", "memory://out", memory, segment_entries=90).n_written == 0
        with ts.distributed.open("memory://out") as index, ts.open_index("memory://out") as here:
            for one in (index, here):
                assert_same(one.search(queries), memory.search(queries))
            index.verify()
            index.remove([0, 749])
            index.compact()
            index.verify()
            assert here.refresh()
            assert len(here) == 748
            assert [name for name in fs.find("/out") if "probe" in name] == []
        for name in fs.find("/out/segments"):  # segments, and the table of the calibration sample
            fs.pipe_file(name, fs.cat_file(name)[:-9])
        with pytest.raises(ts.StorageError, match=r"segments/.*: damaged: .* bytes expected"):
            ts.distributed.open("memory://out")
    finally:
        fs.rm("/", recursive=True)


def test_files_added_later_are_a_new_version(client, source, tmp_path, signals, queries):
    out = tmp_path / "codes"
    memory = make_index("adaptive")
    memory.add(signals)
    ts.distributed.encode(source, out, memory, client=client, segment_entries=90)
    index = ts.distributed.open(out, client=client)
    placement, before = index.placement, memory.search(queries)
    assert not index.refresh()
    np.save(source / "a_new_one.npy", signals[:200] + 1)
    assert ts.distributed.encode(
        source, out, memory, client=client, segment_entries=90
    ) == ts.distributed.EncodingResult(version=5, n_entries=900, n_segments=11, n_written=3)
    assert_same(index.search(queries), before)
    assert index.refresh()
    assert (index.version, len(index)) == (5, 900)
    memory.add(signals[:200] + 1)
    assert_same(index.search(queries), memory.search(queries))
    for address, names in placement.items():
        assert set(names) <= set(index.placement[address])
    assert ts.distributed.encode(source, out, memory, client=client, segment_entries=90).n_written == 0
    np.save(source / "part0.npy", signals[:100] + 1)
    with pytest.raises(ValueError, match=r"part0.npy is in .* already and has changed since"):
        ts.distributed.encode(source, out, memory, client=client)


def write_table(path, signals, ids, first=0):
    """Write vectors with ids, a year, and a language that is missing in every third row."""
    rows = range(first, first + len(signals))
    columns = {"id": pyarrow.array(list(ids)), "vector": pyarrow.array(signals.tolist())}
    columns["year"] = pyarrow.array([2000 + row % 25 for row in rows])
    columns["lang"] = pyarrow.array([None if row % 3 == 0 else "en" if row % 2 else "it" for row in rows])
    table = pyarrow.table(columns)
    (pyarrow.parquet.write_table if path.suffix == ".parquet" else pyarrow.feather.write_feather)(table, path)
    return table


TABLE = {"id_column": "id", "metadata_columns": ("year", "lang")}


@pytest.mark.parametrize("texts", [True, False])
def test_tables_keep_their_ids_and_metadata(client, tmp_path, signals, queries, texts, monkeypatch):
    """Ids are unordered and interleave between segments; workers filter by metadata."""
    monkeypatch.setattr(encoding_job, "GROUP_ENTRIES", 200)  # ids are compared in several groups
    order = np.random.default_rng(5).permutation(5000)[:700]
    ids = [f"doc-{i}" for i in order] if texts else order.tolist()
    source, out, memory = tmp_path / "tables", tmp_path / "codes", make_index("adaptive")
    source.mkdir()
    for i, rows in enumerate(np.split(np.arange(700), [300])):
        name = source / f"{i}.{'parquet' if i else 'arrow'}"
        table = write_table(name, signals[rows], [ids[row] for row in rows], rows[0])
        memory.add_table(table, vector_column="vector", **TABLE)
    options = {"client": client, "vector_column": "vector", "segment_entries": 90} | TABLE
    assert ts.distributed.encode(source, out, memory, **options).n_segments == 8
    assert ts.distributed.encode(source, out, memory, **options).n_written == 0
    index = ts.distributed.open(out, client=client)
    index.verify()
    some = [*ids[::7], ids[0]]
    wheres = [None, "year >= 2015 and lang in ('en', 'it')", {"lang": "it", "year": [2003, 2004]}, "year > 3000"]
    for where, among in zip(wheres, (None, some, None, some), strict=True):
        limits = {"where": where, "among": among, "with_metadata": True}
        found, expected = (one.search(queries, 9, **limits) for one in (index, memory))
        assert_same(found, expected)
        assert (found.metadata == expected.metadata).all()
        assert found.n_entries == expected.n_entries
        found, expected = (one.within(queries, false_alarm=0.5, **limits) for one in (index, memory))
        assert_same(found, expected)
        assert found.to_pandas().equals(expected.to_pandas())
        assert found.to_arrow() == expected.to_arrow()
    asked = [ids[300], ids[5], ids[5]]
    entries, expected = index.get(asked), memory.get(asked)
    assert (entries.ids.tolist(), entries.metadata) == (expected.ids.tolist(), expected.metadata)
    assert entries.codes == expected.codes
    assert index[ids[3]].metadata == memory[ids[3]].metadata
    assert sorted(index) == sorted(memory)
    assert (ids[3] in index, "nobody" in index, 6000 in index, None in index) == (True, False, False, False)
    with pytest.raises(KeyError):
        index["nobody" if texts else 6000]
    with pytest.raises(ValueError, match="where names the field 'size', which no entry has"):
        index.search(queries, where="size > 3", among=some)
    if texts:
        assert_same_pairs(index, memory, monkeypatch, [{"false_alarm": 1e-3}, {"k": 1}])
    exact = dict(zip(ids, signals, strict=True))
    rescore = lambda found: np.array([exact[id] for id in found])  # noqa: E731
    assert_same(index.search(queries, 3, rescore=rescore), memory.search(queries, 3, rescore=rescore))
    assert_same(ts.open_index(out).search(queries), memory.search(queries))

    write_table(source / "2.parquet", signals[:50], [f"new-{i}" for i in range(49)] + [ids[0]] if texts else ids[:50])
    with pytest.raises(ValueError, match=r"ids must differ, but .* given more than once; nothing was changed"):
        ts.distributed.encode(source, out, memory, **options)
    index.refresh()  # a version that reserves ids, without entries
    assert len(index) == len(memory)
    write_table(source / "2.parquet", signals[:50], ["a", "b"] * 25 if texts else [9, 10] * 25)
    with pytest.raises(ValueError, match=r"1 of 1 .* rows from row 0 of 2.parquet: ids must differ, but (a, b|9, 10)"):
        ts.distributed.encode(source, out, memory, **options)
    write_table(source / "2.parquet", signals[:50], range(50) if texts else map(str, range(50)))
    with pytest.raises(TypeError, match="ids must be all texts or all integers, got both"):
        ts.distributed.encode(source, out, memory, **options)
    index.refresh()
    assert len(index) == len(memory)


def test_changes_are_those_of_one_index(client, source, tmp_path, signals, queries):
    out, memory = tmp_path / "codes", make_index("adaptive")
    memory.add(signals)
    ts.distributed.encode(source, out, memory, client=client, segment_entries=90)
    index, other = (ts.distributed.open(out, client=client) for _ in range(2))
    before = {f"{name}.safetensors" for names in index.placement.values() for name in names}
    for one in (index, memory):
        one.remove([3, 699, 4])
        one.upsert(signals[:3] + 1, ids=[5, 9000, 180], metadata=[{"n": 1}, None, {"n": 3}])
        one.update_metadata([7, 9000], [{"n": 2}, {"n": 4}])
        assert one.add(signals[:2] - 1).tolist() == [9001, 9002]
    assert (index.version, len(index)) == (7, len(memory))
    options = {"where": "n >= 2", "with_metadata": True}
    for limits in ({}, options):
        found, expected = (one.search(queries, **limits) for one in (index, memory))
        assert_same(found, expected)
        assert limits == {} or (found.metadata == expected.metadata).all()
    assert (index.get([9000]).metadata, index.ids.tolist()) == ([{"n": 4}], memory.ids.tolist())
    held = {f"{name}.safetensors" for names in index.placement.values() for name in names}
    assert before <= held, "segments are not written anew"
    index.verify()
    assert 3 in other
    with pytest.raises(
        ts.ConflictError, match="5, 7 are changed by another client since this index was last refreshed"
    ):
        other.remove([0, 5, 7])
    other.remove([0])  # no other client changed it
    assert 0 in index
    memory.remove([0])
    index.refresh()
    index.compact()
    index.verify()
    assert_same(index.search(queries), memory.search(queries))
    names = make_index("adaptive", path=tmp_path / "texts")
    names.add(signals[:200], ids=[f"d{i}" for i in range(200)])
    expected = make_index("adaptive")
    expected.add(signals[:200], ids=[f"d{i}" for i in range(200)])
    with ts.distributed.open(tmp_path / "texts", client=client) as named:
        for one in (named, expected):
            one.upsert(signals[3:6] + 1, ids=["d100", "new", "d7"])
            one.remove(["d8"])
            columns = {"doc": ["d7", "more"], "x": signals[:2].tolist()}
            one.add_table(pyarrow.table(columns), id_column="doc", upsert=True)
        assert_same(named.search(queries), expected.search(queries))


def test_entries_that_others_add_while_a_cluster_encodes_are_kept(client, source, tmp_path, signals):
    """Ids are reserved, a local writer leaves files that no version references yet, and a second job is refused."""
    out, encoder = tmp_path / "codes", make_index("adaptive")
    added = []

    def add(done, total):
        if not added:
            with ts.open_index(out) as local:
                assert len(local) == 0
                added.extend(local.add(signals[:3] + 1).tolist())

    options = {"client": client, "segment_entries": 90}
    assert ts.distributed.encode(source, out, encoder, progress=add, **options).n_written == 8
    assert added == [700, 701, 702]
    with ts.open_index(out) as index:
        index.verify()
        assert_array_equal(index.ids, np.arange(703))
        assert PENDING not in index._store.now.sources
    np.save(source / "more.npy", signals[:200] + 2)
    done = []

    def encode_too(*_):
        if not done:
            done.append(ts.distributed.encode(source, out, encoder, **options))

    with pytest.raises(ts.ConflictError, match="changed by another client"):
        ts.distributed.encode(source, out, encoder, progress=encode_too, **options)
    with ts.open_index(out) as index:
        index.verify()
        assert len(index) == 903


def test_means_and_nulls_are_stored(client, tmp_path):
    rng = np.random.default_rng(6)
    signals = (rng.standard_normal((900, N_FEATURES)) * np.linspace(3, 0.1, N_FEATURES) + 0.5).astype(np.float32)
    entries, queries, impostors = np.split(signals, [600, 620])
    np.save(tmp_path / "entries.npy", entries)
    run_encode, out = ts.distributed.encode, tmp_path / "codes"
    plain = make_index("adaptive")
    plain.add(entries)
    run_encode(tmp_path / "entries.npy", out, plain, client=client, segment_entries=90)
    with ts.distributed.open(out, client=client) as index:
        found = index.within(queries, false_alarm=0.9, force=True)
        assert_same(found, plain.within(queries, false_alarm=0.9, force=True))
        learned = index.calibrate(impostors, false_alarm=0.05)
        expected = plain.calibrate(impostors, false_alarm=0.05)
        assert learned.to_json() == expected.to_json(), "to the last bit"
        held = index.search(queries, 600)
        assert_same(held, plain.search(queries, 600))
    for again in (ts.distributed.open(out, client=client), ts.open_index(out)):
        assert again.calibration.to_json() == learned.to_json()
        assert_same(again.search(queries, 600), held)

    mean = entries.mean(axis=0, dtype=np.float64).astype(np.float32)
    centred = make_index("adaptive", center=mean)
    centred.add(entries)
    encoder = ts.Encoder(entries.shape[1], family="adaptive", n_bits=20, center=True, random_state=7).fit(entries)
    forms = [(tmp_path / "entries.npy", make_index("adaptive", center=True)), (tmp_path / "entries.npy", encoder)]
    for i, (form, made) in enumerate(forms):
        assert run_encode(form, tmp_path / f"centred{i}", made, client=client).n_written
        assert run_encode(form, tmp_path / f"centred{i}", made, client=client).n_written == 0
        with ts.distributed.open(tmp_path / f"centred{i}", client=client) as index:
            assert_array_equal(index.recipe.mean, mean)
            assert_same(index.search(queries), centred.search(queries))


def test_sparse_and_trellis_codes(client, tmp_path, signals, monkeypatch):
    matrix = scipy.sparse.random_array((300, N_FEATURES), density=0.2, rng=np.random.default_rng(7), format="csr")
    scipy.sparse.save_npz(tmp_path / "sparse.npz", matrix)
    np.save(tmp_path / "dense.npy", signals)
    options = {"n_features": N_FEATURES, "n_bytes": 12, "random_state": 7}
    trellis = ts.Index(metric="inner_product", **options).fit(signals)
    for name, index, values in (("sparse.npz", make_index("adaptive"), matrix), ("dense.npy", trellis, signals)):
        index.add(values)
        ts.distributed.encode(tmp_path / name, tmp_path / f"codes {name}", index, client=client, segment_entries=90)
        with ts.distributed.open(tmp_path / f"codes {name}", client=client) as opened:
            assert_same(opened.search(signals[:5]), index.search(signals[:5]))
            assert opened.get([4]).codes == index.get([4]).codes
            if index is trellis:
                assert_same_trellis_pairs(opened, index, monkeypatch, k=2)
    encoder = ts.Encoder(signals.shape[1], n_bytes=12, random_state=7).fit(signals)
    for i, made in enumerate((encoder, encoder.recipe_)):
        ts.distributed.encode(tmp_path / "dense.npy", tmp_path / f"encoder{i}", made, client=client)
        with ts.open_index(tmp_path / f"encoder{i}") as opened:
            assert_array_equal(opened.get([4, 699]).codes.data, encoder.encode(signals[[4, 699]]).data)
    stored = ts.Index(path=tmp_path / "stored", **options).fit(signals)
    stored.add(signals[::2])
    with ts.distributed.open(tmp_path / "stored", client=client) as opened:
        assert_same_trellis_pairs(opened, stored, monkeypatch, threshold=0.9)


def assert_same_trellis_pairs(opened, index, monkeypatch, **limit):
    monkeypatch.setattr(cluster_entries, "TRAVELLING_BYTES", 150 * index.recipe.code_bytes)
    found, expected = opened.pairs(**limit), index.pairs(**limit)
    assert len(expected)
    for name in ("first", "second", "scores", "p_values"):
        assert_array_equal(getattr(found, name), getattr(expected, name))


def test_an_empty_index_finds_nothing(tmp_path, queries):
    empty = make_index("adaptive", path=tmp_path / "codes")
    with ts.distributed.open(tmp_path / "codes") as index:
        assert len(index) == 0
        assert_same(index.search(queries), empty.search(queries))
        assert_same(index.within(queries, false_alarm=0.5), empty.within(queries, false_alarm=0.5))
        with pytest.raises(ValueError, match="among must be in the index, but 3 is not"):
            index.search(queries, among=[3])


@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.__name__)
def test_faults(processes, client, tmp_path, fault):
    """After each fault the cluster recovers, and its results equal those of one index."""
    client = fault(processes, client, tmp_path, random.Random(5)) or client
    client.wait_for_workers(4, timeout=PATIENCE)
    assert len(client.nthreads()) == 4


def test_a_job_that_kills_its_workers_is_named(processes, client, monkeypatch):
    monkeypatch.setattr(clusters, "RETRIES", 0)
    faults.allow_failures(client, 0)
    deadly = "__import__('os').kill(__import__('os').getpid(), 9)"
    try:
        ((job, result, error),) = clusters.run_all(
            client, ["x"], lambda job: client.submit(eval, deadly, pure=False), name=lambda job: f"segment {job}"
        )
    finally:
        faults.allow_failures(client, 3)
        processes.start_worker()
        client.wait_for_workers(4, timeout=PATIENCE)
    assert (job, result, type(error)) == ("x", None, RuntimeError)
    assert re.match(r"segment x: 1 workers died one after another .*, the last at tcp://127.0.0.1:\d+;", str(error))


def test_bad_signals_are_named_and_the_rest_is_kept(client, source, tmp_path, signals, queries):
    bad = signals[101:350].copy()
    bad[149, 7], bad[200] = np.nan, 0
    np.save(source / "part2.npy", bad)
    out = tmp_path / "codes"
    with pytest.raises(ValueError, match=r"2 of 8 segments could not be encoded") as raised:
        ts.distributed.encode(source, out, make_index("adaptive"), client=client, segment_entries=90)
    message = str(raised.value)
    assert f"{source}/part2.npy: NaN or infinity in signals, first at row 149, column 7 (nan)" in message
    assert f"{source}/part2.npy: signals[200] is all zeros" in message
    assert "fix these and run again" in message
    kept = inodes(out)
    assert len(kept) == 6
    assert len(ts.open_index(out)) == 0
    np.save(source / "part2.npy", signals[101:350])
    encoded = ts.distributed.encode(source, out, make_index("adaptive"), client=client, segment_entries=90)
    assert encoded.n_written == 3  # the segments with rows of the file that was mended
    now = inodes(out)
    same = [name for name in kept if name in now]  # one of the six had rows of the file that was mended
    assert len(same) == 5
    assert {name: now[name] for name in same} == {name: kept[name] for name in same}
    with ts.distributed.open(out, client=client) as index:
        memory = make_index("adaptive")
        memory.add(signals)
        assert_same(index.search(queries), memory.search(queries))


def test_bad_calls_say_what_to_do(client, source, tmp_path, signals):
    out, index = tmp_path / "codes", make_index("adaptive")
    (tmp_path / "empty").mkdir()
    encode = ts.distributed.encode
    with pytest.raises(ValueError, match=r"empty is a folder without .npy, .npz, .parquet"):
        encode(tmp_path / "empty", out, index, client=client)
    with pytest.raises(TypeError, match=r"got ndarray; save the array with np.save first"):
        encode(signals, out, index, client=client)
    with pytest.raises(TypeError, match="encoder must be a fitted encoder, an Index or a Recipe, got str"):
        encode(source, out, "hadamard", client=client)
    with pytest.raises(ValueError, match=r"part0.npy is not a table; id and metadata columns need"):
        encode(source, out, index, client=client, id_column="id")
    with pytest.raises(TypeError, match=r"client must be a distributed.Client"):
        encode(source, out, index, client="tcp://127.0.0.1:1")
    with pytest.raises(ValueError, match=r"part0.npy has signals of 96 features, the encoder takes 50"):
        encode(source, out, ts.Index(50, family="adaptive", n_bits=20), client=client)
    with pytest.raises(ValueError, match="segment_entries must be at least 1, got -3"):
        encode(source, out, index, client=client, segment_entries=-3)
    (source / "broken.npy").write_bytes(b"nothing")
    with pytest.raises(ts.StorageError, match=r"broken.npy, signals: "):
        encode(source, out, index, client=client)
    (source / "broken.npy").unlink()
    assert not out.exists(), "something was written"
    encode(source, out, index, client=client)
    with pytest.raises(ts.StorageError, match="version 7 is not kept"):
        ts.distributed.open(out, client=client, version=7)
    with pytest.raises(ts.StorageError, match=r"recipe: written with seed=7, not seed=8; .* of their own"):
        encode(source, out, make_index("adaptive", random_state=8), client=client)


def test_damage_is_named(client, source, tmp_path, signals):
    out = tmp_path / "codes"
    ts.distributed.encode(source, out, make_index("adaptive"), client=client, segment_entries=90)
    files = folders.segment_paths(out)
    index = ts.distributed.open(out, client=client)
    whole = files[2].read_bytes()
    flipped = bytearray(whole)
    flipped[-20] ^= 16
    files[2].write_bytes(flipped)
    files[4].unlink()
    with pytest.raises(ts.StorageError) as raised:
        index.verify()
    assert f"segments/{files[2].name}, " in str(raised.value)
    assert "damaged: checksum" in str(raised.value)
    assert f"segments/{files[4].name}: missing; restore it" in str(raised.value)
    files[2].write_bytes(whole)
    for name, content, problem in (("missing", None, "is missing"), ("damaged", flipped, r"segments/.*damaged")):
        copy = shutil.copytree(out, tmp_path / name)
        if content is not None:
            (copy / "segments" / files[4].name).write_bytes(content)
        with pytest.raises(ts.StorageError, match=problem):
            ts.distributed.open(copy, client=client)


def test_segments_that_do_not_fit_are_refused(client, source, tmp_path, monkeypatch):
    ts.distributed.encode(source, tmp_path / "codes", make_index("adaptive"), client=client, segment_entries=90)
    monkeypatch.setattr(placing, "memory_limits", lambda client: dict.fromkeys(client.nthreads(), 5000))
    with pytest.raises(MemoryError, match=r"would have to hold more than 3,000, .* add workers"):
        ts.distributed.open(tmp_path / "codes", client=client)


def test_a_missing_worker_is_reported(processes, monkeypatch, tmp_path):
    from distributed import Client, LocalCluster

    monkeypatch.setattr(clusters, "WORKER_SECONDS", 0.2)
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as empty,
        Client(empty, set_as_default=False) as client,
        pytest.raises(TimeoutError, match=r"has no workers, waited 0.2 s for one; start some"),
    ):
        clusters.live_workers(client)


def run(command, *, code=0):
    result = CliRunner(env={"COLUMNS": "150", "NO_COLOR": "1", "TERM": "dumb"}).invoke(app, command.split())
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


def output(command):
    """Return what a command writes to the standard output."""
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 0, result.output
    return result.stdout


def test_commands(processes, client, source, tmp_path, signals, queries, monkeypatch):
    """The commands of one machine, with the workers of a scheduler or of this process."""
    monkeypatch.chdir(tmp_path)
    np.save("queries.npy", queries)
    memory = make_index("adaptive")
    memory.add(signals)
    codes = "--family adaptive --n-bits 20 --random-state 7"
    at, here = f"--scheduler {processes.address}", "--scheduler local"
    command = f"build signals -o codes {codes} --segment-entries 90 {at}"
    assert "codes: 700 entries in " in run(command)
    assert "codes exists; use --resume" in run(command, code=2)
    files = inodes("codes")
    for resumed in (command, f"build signals -o codes {at}"):
        assert "codes: 700 entries in " in run(f"{resumed} --resume")
        assert inodes("codes") == files
    assert "was started with n_bits=20, got n_bits=21" in run(
        f"build signals -o codes --family adaptive --n-bits 21 --resume {at}", code=2
    )
    for place in (at, here, ""):
        rows = json.loads(output(f"search codes queries.npy -k 3 --json {place}"))
        assert [row["id"] for row in rows] == memory.search(queries, k=3).ids.ravel().tolist()
        assert json.loads(output(f"verify codes --json {place}"))["entries"] == 700
        assert json.loads(output(f"inspect codes --json {place}"))["sizes"]["entries"] == 700
        run(f"export codes -o codes.parquet {place}")
        assert ts.export.read_parquet("codes.parquet").entries.ids.tolist() == list(range(700))
    rows = json.loads(output(f"search codes queries.npy --false-alarm 0.01 --scoring hamming --json {here}"))
    assert [row["id"] for row in rows] == memory.within(queries, false_alarm=0.01, scoring="hamming").ids.tolist()
    Path("tables").mkdir()
    table = write_table(Path("tables/a.parquet"), signals, [f"doc-{i}" for i in range(700)])
    named = make_index("adaptive", center=signals.astype(np.float64).mean(axis=0))
    named.add_table(table, vector_column="vector", **TABLE)
    columns = "--id-column id --vector-column vector --metadata-columns year,lang"
    assert "named: 700 entries" in run(f"build tables -o named {columns} {codes} --center {here}")
    assert "read with other options (columns: ['id', 'year', 'lang'] then, ['id'] now)" in run(
        f"build tables -o named --id-column id {codes} --center --resume {here}", code=2
    )
    rows = json.loads(output(f"search named queries.npy -k 3 --where lang=='it' --with-metadata --json {here}"))
    expected = named.search(queries, k=3, where={"lang": "it"}, with_metadata=True)
    assert [(row["id"], row["metadata"]) for row in rows] == [
        (match.id, match.metadata) for matches in expected for match in matches
    ]
    assert json.loads(output(f"get named doc-7 {here}")) == {"id": "doc-7", "metadata": named["doc-7"].metadata}
    assert "named: 2 removed, 698 entries left" in run(f"remove named doc-7 doc-8 {here}")
    assert "but doc-7 is not" in run(f"get named doc-7 {here}", code=2)
    assert "calibrated by 12 searches" in run(f"calibrate named queries.npy --false-alarm 0.2 {here}")
    assert run(f"list named --limit 8 {here}") == " ".join(f"doc-{i}" for i in (*range(7), 9))
    write_table(Path("more.parquet"), signals[:2] + 1, ["doc-0", "doc-7"], 7)
    shown = run(f"add named more.parquet {columns} --upsert {here}")
    assert "more.parquet: 2 entries added, ids doc-0 to doc-7 named: 699 entries" in shown
    assert " removed entries freed, 699 entries in" in run(f"compact named {here}")
    for command in (f"dedupe codes {at} -o cluster.json", f"dedupe signals {codes} -o here.json"):
        assert " of 700 entries in " in run(command)
    assert Path("cluster.json").read_text() == Path("here.json").read_text()
    bad = folders.segment_paths("codes")[0]
    os.truncate(bad, 100)
    assert f"segments/{bad.name}: damaged: " in run(f"verify codes {here}", code=1)


def test_workers_of_another_version_are_refused(client, source, tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "_checked", {})
    monkeypatch.setattr(clusters, "get_versions", lambda packages: {"packages": dict.fromkeys(packages, "9.9")})
    with pytest.raises(RuntimeError, match=r"the worker at tcp://.* has topsign 0.1.0, this client has 9.9; install"):
        ts.distributed.encode(source, tmp_path / "codes", make_index("adaptive"), client=client)
    assert not (tmp_path / "codes").exists()


def test_a_suspended_worker_does_not_block_the_check_of_versions(client, monkeypatch):
    monkeypatch.setattr(clusters, "_checked", {})
    monkeypatch.setattr(clusters, "VERSION_SECONDS", 0.5)
    address, process = sorted(faults.worker_pids(client).items())[0]
    os.kill(process, signal.SIGSTOP)
    try:
        assert address in clusters.live_workers(client)
        assert clusters._checked[client] == client.nthreads().keys() - {address}
    finally:
        os.kill(process, signal.SIGCONT)
    clusters.live_workers(client)
    assert address in clusters._checked[client]


def test_a_search_during_additions_of_the_same_object_loads_the_newer_version(client, tmp_path, monkeypatch):
    """The second addition replaces the segment of the first while a search loads it."""
    monkeypatch.setattr("topsign.store.stored_columns.INLINE_BYTES", 0)
    signals = draw_signals(3, 300)
    make_index("grouped", path=tmp_path / "one").add(signals[:100], ids=[f"a{i}" for i in range(100)])
    index = ts.distributed.open(tmp_path / "one", client=client)
    load, added = cluster_index.ClusterIndex._load, []

    def add_first(self, now):
        if not added:
            added.append(index.add(signals[200:], ids=[f"c{i}" for i in range(100)]))
        return load(self, now)

    monkeypatch.setattr(cluster_index.ClusterIndex, "_load", add_first)
    index.add(signals[100:200], ids=[f"b{i}" for i in range(100)])
    assert_same(index.search(signals[:5]), ts.open_index(tmp_path / "one").search(signals[:5]))
    assert len(added) == 1
    assert len(index) == 300
    index.close()


def test_scikit_learn_is_needed_only_for_encoders():
    program = "import sys; sys.modules['sklearn'] = None; import topsign; topsign.distributed"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_dask_the_missing_package_is_named():
    program = "import sys; sys.modules['distributed'] = None; import topsign; topsign.distributed"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "ImportError: topsign.distributed needs dask, distributed and fsspec, but " in shown.stderr
    assert "pip install 'topsign[distributed]'" in shown.stderr
