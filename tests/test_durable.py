"""Durable indexes: what a call returned from is there, what is damaged is told, several processes are safe."""

import json
import os
import pickle
import runpy
import shutil
import subprocess
import sys
import textwrap
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import topsign as ts
from topsign.encoding import encode
from topsign.index.storage import lmdb_environment as environment
from topsign.index.storage import segments
from topsign.index.storage.lmdb_environment import Environment
from topsign.index.storage.lmdb_pages import PageReader

N_FEATURES = 96
KINDS = ["compact", "fast", "signs"]


def make_index(kind, path=None, **options):
    options = {"n_features": N_FEATURES, "random_state": 7, "path": path} | options
    if kind == "signs":
        return ts.SignIndex(**options)
    return ts.AdaptiveIndex(n_bits=20, layout=kind, **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cameras.topsign"


@pytest.fixture
def small_segments(monkeypatch):
    """Full at 16 entries, so that small indexes have many."""
    monkeypatch.setattr(segments, "MERGED_ENTRIES", 16)


@pytest.fixture
def signals(rng):
    return rng.standard_normal((200, N_FEATURES)).astype(np.float32)


def assert_same(index, other, queries):
    """Two indexes give the same answers and hold the same entries."""
    assert_array_equal(index.ids, other.ids)
    for scoring in ("asymmetric", "hamming"):
        found, expected = (one.search(queries, k=12, scoring=scoring) for one in (index, other))
        assert_array_equal(found.ids, expected.ids)
        assert_array_equal(found.scores, expected.scores)
        assert_array_equal(found.p_values, expected.p_values)
        found, expected = (one.within(queries, false_alarm=0.9, scoring=scoring) for one in (index, other))
        assert_array_equal(found.ids, expected.ids)
    entries, expected = (one.get(other.ids[::3]) for one in (index, other))
    if isinstance(index, ts.SignIndex):
        assert_array_equal(entries.codes, expected.codes)
    else:
        assert entries.codes == expected.codes
    assert entries.metadata == expected.metadata


def files_in(folder):
    return sorted(file.name for file in folder.iterdir())


def run_python(program, *arguments, **options):
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


@pytest.mark.parametrize("norms", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_answers_as_memory_does(path, rng, signals, small_segments, kind, norms):
    """Additions of all sizes, removals and compactions in random order; opened again in between."""
    index, memory = make_index(kind, path, norms=norms), make_index(kind, norms=norms)
    start = 0
    for step in range(30):
        if step % 5 == 3:
            removed = rng.permutation(memory.ids)[: len(memory) // 4]
            for one in (index, memory):
                one.remove(removed)
        elif step % 11 == 7:
            index.compact()
            assert all(segment.alive is None for segment in index.store.snapshot.segments)
        else:
            n_signals = int(rng.choice([0, 1, 3, 20]))
            rows = np.arange(start, start + n_signals) % len(signals)
            notes = [{"row": int(row)} if row % 2 else None for row in rows]
            ids = None if step % 2 else [int(7 * memory.store.next_id + i) for i in rng.permutation(n_signals)]
            for one in (index, memory):
                one.add(signals[rows], ids=ids, metadata=notes)
            start += n_signals
        if step % 6 == 5:
            index.close()
            index = ts.open_index(path)
            assert_same(index, memory, signals[:3])
    index.verify()
    assert len(index.store.snapshot.segments) <= 2 * len(index) / 16 + 5
    assert files_in(path.parent) == ["cameras.topsign", "cameras.topsign-lock"]


def test_codes_are_scanned_in_place(path, signals):
    index = make_index("fast", path)
    index.add(np.vstack(3 * [signals]))  # each column takes more than a page
    index = ts.open_index(path)
    (segment,) = index.store.snapshot.segments
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(path) in line]
    (bounds,) = [[int(end, 16) for end in line[0].split("-")] for line in maps if not line[-1].endswith("-lock")]
    for column in (segment.ids, segment.codes):
        assert bounds[0] <= column.ctypes.data < bounds[1]
        assert column.ctypes.data % 8 == 0
        assert not column.flags.writeable


def test_arrays_keep_their_pages(path, rng, signals):
    """A snapshot outlives removal, compaction, closing and many additions that would reuse its pages."""
    index = make_index("fast", path)
    index.add(signals)
    codes = index.store.snapshot.segments[0].codes
    before = codes.copy()
    index.remove(np.arange(150))
    index.compact()
    for _ in range(10):
        index.remove(index.ids)
        index.add(rng.standard_normal((200, N_FEATURES)))
    index.close()
    del index
    assert_array_equal(codes, before)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_come_from_the_file(path, signals, kind):
    options = {"metric": "inner_product", "projection": "circulant", "n_pool": 64, "random_state": 2**64 - 1}
    make_index(kind, path, **options).add(signals)
    for readonly in (True, False):
        index = ts.open_index(path, readonly=readonly)
        assert type(index) is type(make_index(kind))
        assert (index.metric, index.norms, index.n_pool, index.seed) == ("inner_product", True, 64, 2**64 - 1)
        assert index.projection == make_index(kind, **options).projection
        assert index.path == str(path)
    del options["n_pool"], options["random_state"]  # not given: those of the file
    assert len(make_index(kind, path, **options | {"random_state": None})) == 200


def test_an_option_of_the_projection_is_kept(path, signals):
    projection = ts.make_projection("hadamard", n_features=N_FEATURES, random_state=3, rounds=2)
    index = ts.AdaptiveIndex(n_features=N_FEATURES, n_bits=20, projection=projection, path=path)
    index.add(signals)
    assert ts.open_index(path).projection == projection
    with pytest.raises(ValueError, match=r"options=\{'rounds': 2\}, got options=\{'rounds': 6\}"):
        make_index("compact", path, random_state=3)


def test_metadata_come_back(path, signals):
    notes = [{"camera": "Ä", "shots": [1, 2.5, None, True]}, None, {}]
    for index in (make_index("compact"), make_index("compact", path)):
        index.add(signals[:3], metadata=notes)
        index.add(signals[3])
        entries = index.get([2, 0, 3, 1])
        assert entries.metadata == [{}, notes[0], None, None]
        assert_array_equal(entries.ids, [2, 0, 3, 1])
        assert len(entries) == 4
        assert index.get([]).metadata == []


@pytest.mark.parametrize(
    ("metadata", "error", "words"),
    [
        ({"a": 1}, TypeError, "a sequence of one dict (or None) per signal, got dict"),
        (7, TypeError, "got int"),
        ([{}], ValueError, "one per signal, got 1 for 2 signals"),
        ([{}, 3], TypeError, "got 3 of type int at row 1"),
        ([{"x": np.int64(3)}, {}], ValueError, "metadata at row 0 is not JSON: Object of type int64"),
        ([{"x": float("nan")}, {}], ValueError, "metadata at row 0 is not JSON"),
        ([{}, {1: 2}], ValueError, "row 1 would not come back from JSON as it is, got {1: 2}"),
    ],
)
def test_bad_metadata_are_refused(signals, metadata, error, words):
    index = make_index("compact")
    with pytest.raises(error) as raised:
        index.add(signals[:2], metadata=metadata)
    assert words in str(raised.value)
    assert len(index) == 0


def test_a_failing_addition_leaves_nothing(path, signals, small_segments, monkeypatch):
    """The last of many segments fails; those written ahead are gone."""
    index = make_index("compact", path)
    index.add(signals[:20])
    before, calls = os.path.getsize(path), []

    def failing(*arguments, **options):
        calls.append(os.path.getsize(path))
        if len(calls) == 10:
            raise ValueError("the tenth part")
        return encode(*arguments, **options)

    monkeypatch.setattr("topsign.index.entries.encode", failing)
    with pytest.raises(ValueError, match="the tenth part"):
        index.add(signals)
    assert calls[-1] > before  # it had begun to write
    keys = set(stored_values(path))
    assert len([key for key in keys if key.startswith(b"segment/")]) == len(index.store.snapshot.segments)
    assert_array_equal(index.ids, np.arange(20))
    assert_array_equal(ts.open_index(path).ids, np.arange(20))
    index.remove([0])
    index.verify()
    assert_array_equal(index.add(signals[:1]), [20])


def test_adding_a_memory_mapped_file_holds_little_of_it(tmp_path, rng):
    """Codes of 40 MB from a file of 328 MB; an addition holds a few segments of 1.8 MB and some blocks."""
    block = rng.standard_normal((500, 8192)).astype(np.float32)
    signals = np.lib.format.open_memmap(tmp_path / "signals.npy", "w+", np.float32, (10_000, 8192))
    for start in range(0, len(signals), 500):
        signals[start : start + 500] = block
    del signals
    program = """
        import resource, sys, numpy as np, topsign as ts
        from topsign.index.storage import segments
        segments.MERGED_ENTRIES = 500
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        index = ts.AdaptiveIndex(n_features=8192, n_bits=5000, layout="fast", random_state=7, path=sys.argv[2])
        signals = np.load(sys.argv[1], mmap_mode="r")
        index.add(signals[:500])
        before = peak()
        index.add(signals)
        print(peak() - before, len(index), index.nbytes // 2**20)
    """
    shown = run_python(program, tmp_path / "signals.npy", tmp_path / "a.topsign")
    grown, n_entries, megabytes = map(int, shown.stdout.split())
    assert (n_entries, megabytes) == (10_500, 50)
    assert grown < 25


def test_removed_bytes_are_used_again(path, rng, small_segments):
    index = make_index("fast", path)
    sizes = []
    for _ in range(12):
        index.add(rng.standard_normal((400, N_FEATURES)))
        index.remove(index.ids[:-20])
        index.compact()
        index.verify()
        sizes.append(os.path.getsize(path))
    assert sizes[-1] == sizes[3]  # the file no longer grows
    assert len(index) == 20


def stored_values(path):
    """Offset and size of every value in a file."""
    with open(path, "rb") as file:
        reader = PageReader(str(path), file.fileno())
        return reader.values(reader.metas()[0])


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0xFF]))


@pytest.fixture
def filled(path, signals, small_segments):
    """A closed file with several segments, removed entries, metadata and free pages."""
    index = make_index("compact", path)
    for start in range(0, 60, 6):
        index.add(signals[start : start + 6], metadata=6 * [{"start": start}])
    index.remove([3, 4, 17, 59])
    index.close()
    return path


SECTIONS = ["header", "state", "segment", "ids", "codes", "weights", "norms", "scales", "metadata", "alive"]


@pytest.mark.parametrize("section", SECTIONS)
def test_a_flipped_byte_is_reported_where_it_is(filled, rng, signals, section):
    """By verify, and by the first call that touches it; always with the name of the part."""
    values = {key: place for key, place in stored_values(filled).items() if key.startswith(section.encode())}
    assert values
    original = filled.read_bytes()
    for key, (offset, size) in values.items():
        number = int(key.split(b"/")[1]) if b"/" in key else None
        for at in {0, size - 1, *rng.integers(0, size, 3).tolist()}:
            copy = filled.with_name("copy.topsign")
            copy.write_bytes(original)
            flip(copy, offset + at)
            name = section if number is None else f"segment {number}"
            name += f", {section}" if section in SECTIONS[3:] else ""
            with pytest.raises(ts.StorageError, match=f"{copy}, {name}: damaged: checksum"):
                ts.open_index(copy).verify()
            with pytest.raises(ts.StorageError, match=name):
                touch(ts.open_index(copy), section, signals)
            copy.unlink()


def touch(index, section, signals):
    if section in ("norms", "scales", "metadata"):
        index.get(index.ids)
    else:
        index.search(signals[:1])


def test_no_flipped_byte_is_answered_wrongly(filled, rng, signals):
    """Any byte of the file, LMDB's own pages and both meta pages included: told, or of no consequence."""
    original = filled.read_bytes()
    expected = ts.open_index(filled).search(signals[:1], k=60)
    metas = [page * 4096 + at for page in (0, 1) for at in range(0, 152, 2)]
    places = metas + rng.integers(0, len(original), 250).tolist()
    reported = 0
    for at in places:
        copy = filled.with_name(f"copy{at}.topsign")
        copy.write_bytes(original)
        flip(copy, at)
        try:
            index = ts.open_index(copy)
            index.verify()
        except ts.StorageError:
            reported += 1
        else:
            assert_array_equal(index.search(signals[:1], k=60).scores, expected.scores)
        index = None
        for file in filled.parent.glob("copy*"):
            file.unlink()
    assert reported > 100


def test_verify_names_every_damaged_part(filled):
    values = stored_values(filled)
    numbers = sorted(int(key.split(b"/")[1]) for key in values if key.startswith(b"codes/"))
    for key in (b"codes/%012d" % numbers[0], b"scales/%012d" % numbers[0], b"ids/%012d" % numbers[-1]):
        flip(filled, values[key][0] + 3)
    with pytest.raises(ts.StorageError) as raised:
        ts.open_index(filled).verify()
    for part in (f"segment {numbers[0]}, codes", f"segment {numbers[0]}, scales", f"segment {numbers[-1]}, ids"):
        assert f"{part}: damaged: checksum" in str(raised.value)
    assert raised.value.section == f"segment {numbers[0]}, codes"
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_a_meta_page_that_hides_the_last_transaction_is_reported(filled):
    """The newer meta page made to look older: LMDB alone would answer with the state before the last change."""
    with open(filled, "rb") as file:
        reader = PageReader(str(filled), file.fileno())
        newer, _ = reader.metas()
    page = newer.transaction % 2
    with open(filled, "r+b") as file:
        file.seek(page * 4096 + 16 + 128)
        assert int.from_bytes(file.read(8), "little") == newer.transaction
        file.seek(page * 4096 + 16 + 128)
        file.write((newer.transaction - 2).to_bytes(8, "little"))
    with pytest.raises(ts.StorageError, match="meta pages: damaged: the newer one leads to state"):
        ts.open_index(filled)


def test_truncation_is_reported(filled, rng):
    original = filled.read_bytes()
    with open(filled, "rb") as file:
        reader, used = PageReader(str(filled), file.fileno()), []
        meta = reader.metas()[0]
        reader._walk(meta, meta.free, "", used)
        reader._walk(meta, meta.records, "", used)
    end = 4096 * max(start + n_pages for start, n_pages in used)  # free pages may follow
    for length in [0, 1, 100, 4095, 4096, 8191, 8192, end - 1, *rng.integers(8192, end, 30).tolist()]:
        copy = filled.with_name("copy.topsign")
        copy.write_bytes(original[:length])
        with pytest.raises(ts.StorageError, match=r"truncated: the file has \d+ bytes, this needs"):
            ts.open_index(copy)
        with pytest.raises(ts.StorageError, match="truncated"):
            make_index("compact", copy)
        assert copy.read_bytes() == original[:length]
        copy.unlink()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"random_state": 8}, ValueError, "was written with seed=7, got seed=8"),
        ({"n_bits": 21}, ValueError, "was written with n_bits=20, got n_bits=21"),
        ({"projection": "gaussian"}, ValueError, "with projection='hadamard', options={'rounds': 6}, got projection="),
        ({"n_features": 97}, ValueError, "was written with n_features=96, got n_features=97"),
        ({"n_pool": 95}, ValueError, "was written with n_pool=96, got n_pool=95"),
        ({"layout": "fast"}, ValueError, "was written with layout='compact', got layout='fast'"),
        ({"norms": False}, ValueError, "was written with norms=True, got norms=False"),
        ({"metric": "inner_product"}, ValueError, "metric='correlation', got metric='inner_product'"),
        ({"timeout": -1}, ValueError, "timeout must be finite and at least 0, got -1"),
        ({"path": None, "timeout": 1}, ValueError, "got timeout=1 without a path"),
        ({"path": "no/such/folder/x"}, ts.StorageError, "folder"),
    ],
)
def test_other_parameters_are_refused_with_both_values(filled, change, error, words):
    options = {"n_features": N_FEATURES, "n_bits": 20, "random_state": 7, "path": filled} | change
    with pytest.raises(error) as raised:
        ts.AdaptiveIndex(**options)
    assert words in str(raised.value)


def rewrite_header(path, **changes):
    """Another header with a checksum that fits, written by LMDB itself."""
    import lmdb

    with lmdb.open(str(path), subdir=False, lock=False) as env, env.begin(write=True) as txn:
        header = json.loads(txn.get(b"header")[4:]) | changes
        text = json.dumps(header).encode()
        txn.put(b"header", zlib.crc32(text).to_bytes(4, "little") + text)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, "header: 'topsign index' of format 2; this library reads 'topsign index' of format 1"),
        ({"magic": "other"}, "'other' of format 1; this library reads 'topsign index'"),
        ({"kind": "sorted"}, "family must be one of 'adaptive', 'sign', got 'sorted'"),
        ({"fingerprint": "00ff"}, "has the fingerprint 00ff, the one made from its parameters here has "),
    ],
)
def test_files_of_other_makers_are_refused(filled, changes, words):
    rewrite_header(filled, **changes)
    with pytest.raises(ts.StorageError) as raised:
        ts.open_index(filled)
    assert words in str(raised.value)


def test_another_kind_is_refused(path, signals):
    make_index("signs", path).add(signals)
    with pytest.raises(ValueError, match="was written with kind='sign', got kind='adaptive'"):
        make_index("compact", path)


def test_what_is_no_index_is_refused_and_left_alone(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("nothing to see here\n" * 1000)
    for call in (ts.open_index, lambda file: make_index("compact", file)):
        with pytest.raises(ts.StorageError, match="not that of an LMDB file; is this a topsign index at all"):
            call(text)
    assert text.read_text().startswith("nothing")
    for missing in (tmp_path / "missing", tmp_path):
        with pytest.raises(ts.StorageError, match="does not exist, or is not a file"):
            ts.open_index(missing)
    with pytest.raises(TypeError, match="readonly must be True or False"):
        ts.open_index(text, readonly="yes")


def test_an_index_that_is_closed_or_readonly_says_so(filled, signals):
    with ts.open_index(filled, readonly=True) as index:
        for call in (lambda: index.add(signals), lambda: index.remove([0]), index.compact):
            with pytest.raises(ts.StorageError, match="cannot be written: it was opened with readonly=True"):
                call()
        assert len(index) == 56
    for call in (lambda: index.search(signals), index.refresh, index.verify, lambda: len(index)):
        with pytest.raises(ts.StorageError, match="this index is closed; open it again"):
            call()


def test_a_reader_sees_its_snapshot_until_it_refreshes(path, signals):
    writer = make_index("compact", path)
    writer.add(signals[:10])
    reader = ts.open_index(path, readonly=True)
    writer.add(signals[10:30])
    writer.remove([0])
    assert (len(reader), reader.refresh(), len(reader), reader.refresh()) == (10, True, 29, False)
    assert_same(reader, writer, signals[:2])
    other = ts.open_index(path)
    other.add(signals[:5])  # sees what the first wrote, goes on from there
    writer.add(signals[:1])
    assert len(writer) == 35
    memory = make_index("compact")
    assert memory.refresh() is False
    memory.verify()


def test_the_map_grows_by_itself(path, rng, monkeypatch):
    """Beside searches of other threads; several times its reserved addresses."""
    monkeypatch.setattr(environment, "MAP_BYTES", 2**18)
    index = make_index("fast", path)
    queries = rng.standard_normal((2, N_FEATURES))
    done, failures = threading.Event(), []

    def keep_searching():
        try:
            while not done.is_set():
                index.search(queries, k=3, n_threads=1)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=keep_searching) for _ in range(2)]
    for thread in threads:
        thread.start()
    memory = make_index("fast")
    for n_signals in (10, 2000, 1, 12_000):
        signals = rng.standard_normal((n_signals, N_FEATURES))
        for one in (index, memory):
            one.add(signals)
    done.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert index.store._environment._lmdb.info()["map_size"] >= os.path.getsize(path) > 2**19
    assert_same(index, memory, queries)
    index.verify()


@pytest.mark.parametrize("opener", ["the same thread", "another thread"])
def test_growing_lets_a_search_end_that_needs_another_view(path, signals, monkeypatch, opener):
    """A search that holds a view and opens one more, itself or in a thread that it waits for."""
    monkeypatch.setattr(environment, "MAP_BYTES", 2**18)
    index = make_index("fast", path)
    index.add(signals)
    growing, held = threading.Event(), threading.Event()
    drop = index.store.drop
    monkeypatch.setattr(index.store, "drop", lambda: (drop(), growing.set()))  # new views are kept out by now

    def search():
        before = index.store.load()
        held.set()
        assert growing.wait(120)
        if opener == "the same thread":
            return before, index.store.load()
        with ThreadPoolExecutor(1) as pool:
            return before, pool.submit(index.store.load).result()

    with ThreadPoolExecutor(1) as pool:
        searching = pool.submit(lambda: [state.sequence for state, _ in search()])
        assert held.wait(120)
        index.add(np.repeat(signals, 45, axis=0))
        assert searching.result() == [1, 1]
    assert index.store._environment._lmdb.info()["map_size"] > 2**18
    assert len(index) == 9200


def test_a_file_that_another_process_outgrew_is_mapped_anew(path, signals, monkeypatch):
    monkeypatch.setattr(environment, "MAP_BYTES", 2**18)
    index = make_index("fast", path)
    index.add(signals)
    program = """
        import sys, numpy as np, topsign as ts
        ts.open_index(sys.argv[1]).add(np.random.default_rng(0).standard_normal((9000, 96)))
    """
    assert run_python(program, path).returncode == 0
    assert index.refresh()
    assert len(index) == 9200
    index.add(signals)
    index.verify()


def test_few_addresses_are_enough(filled):
    """Where a terabyte of addresses is refused, fewer are reserved."""
    program = """
        import resource, sys, topsign as ts
        limit = 4 * 2**30
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        index = ts.open_index(sys.argv[1])
        index.verify()
        print(len(index), index.store._environment._lmdb.info()["map_size"] < limit)
    """
    shown = run_python(program, filled, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    assert shown.stdout == "56 True\n", shown.stderr


def test_a_full_disk_keeps_what_was_there(filled, signals):
    """A limit on the file's size stands for the end of the disk."""
    program = """
        import os, resource, sys, numpy as np, topsign as ts
        limit = os.path.getsize(sys.argv[1]) + 20_000
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        index = ts.open_index(sys.argv[1])
        try:
            index.add(np.random.default_rng(0).standard_normal((3000, 96)))
        except ts.StorageError as error:
            print(error)
        index.verify()
        print(len(index), len(index.add(np.eye(2, 96))))
        try:
            ts.AdaptiveIndex(n_features=96, n_bits=20, path=sys.argv[1] + ".new")
        except ts.StorageError as error:
            print(error)
    """
    before = ts.open_index(filled).search(signals[:2], k=60)
    first, counts = run_python(program, filled).stdout.splitlines()
    assert "could not be written, nothing was changed" in first
    assert counts == "56 2"
    index = ts.open_index(filled)
    index.verify()
    after = index.search(signals[:2], k=60, among=ts.open_index(filled).ids[:56])
    assert_array_equal(after.scores[:, :56], before.scores[:, :56])


def test_a_new_file_on_a_full_disk_is_not_left_half_made(path):
    program = """
        import resource, sys, topsign as ts
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        try:
            ts.AdaptiveIndex(n_features=96, n_bits=20, path=sys.argv[1])
        except ts.StorageError as error:
            print(error)
    """
    assert "cannot be made" in run_python(program, path).stdout
    assert files_in(path.parent) == []


@pytest.mark.skipif(os.getuid() != 0, reason="permissions bind others than root; root becomes nobody here")
@pytest.mark.parametrize("lock_file", [True, False])
def test_a_readonly_folder_can_be_read_and_not_written(filled, lock_file):
    """Read by a user who may write neither the file nor its folder, with and without root's lock file in it."""
    folder = Path("/tmp") / f"topsign-readonly-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        file = shutil.copy(filled, folder / "cameras.topsign")
        if lock_file:
            ts.open_index(file)
        program = """
            import importlib.metadata, os, sys, numpy as np
            import topsign as ts, topsign.index.storage.lmdb_store
            ts.AdaptiveIndex, importlib.metadata.version("topsign")  # import what nobody may not read
            os.setgid(65534)
            os.setuid(65534)
            for call in (
                lambda: print(len(ts.open_index(sys.argv[1], readonly=True)), "readonly"),
                lambda: ts.open_index(sys.argv[1], readonly=True).verify(),
                lambda: ts.open_index(sys.argv[1]).add(np.eye(1, 96)),
                lambda: ts.AdaptiveIndex(n_features=96, n_bits=20, path=sys.argv[1] + ".new"),
            ):
                try:
                    call()
                except ts.StorageError as error:
                    print(error)
        """
        lines = run_python(program, file).stdout.splitlines()
        assert lines[0] == "56 readonly"
        assert "cannot be written: the file or its folder is read-only; open it with readonly=True" in lines[1]
        assert "cannot be made" in lines[2]
        assert len(lines) == 3
        ts.open_index(file).verify()
    finally:
        shutil.rmtree(folder)


HOLD = """
    import sys, time, topsign as ts
    index = ts.open_index(sys.argv[1])
    with index.store.change():
        print("writing", flush=True)
        sys.stdin.readline()
"""


def test_a_second_writer_waits_or_gives_up(filled, signals):
    command = [sys.executable, "-c", textwrap.dedent(HOLD), str(filled)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "writing\n"
        impatient = ts.open_index(filled, timeout=0.05)
        with pytest.raises(TimeoutError, match=r"is being written by another process or thread, waited 0\.05 s"):
            impatient.add(signals[:1])
        assert len(impatient.search(signals[:1], k=3)) == 1  # readers never wait
        patient = ts.open_index(filled)
        waiting = threading.Thread(target=lambda: patient.add(signals[:1]))
        waiting.start()
        waiting.join(0.1)
        assert waiting.is_alive()
        holder.stdin.write("\n")
        holder.stdin.flush()
        waiting.join(120)
        assert not waiting.is_alive()
        assert len(patient) == 57
    impatient.add(signals[:1])
    assert len(impatient) == 58


def test_two_writers_take_turns(path):
    """Two processes of 40 additions each: every acknowledged id is there once."""
    program = """
        import sys, numpy as np, topsign as ts
        index = ts.AdaptiveIndex(n_features=96, n_bits=20, random_state=7, path=sys.argv[1])
        rng = np.random.default_rng(int(sys.argv[2]))
        for _ in range(40):
            print(*index.add(rng.standard_normal((3, 96))))
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(path)]
    writers = [subprocess.Popen([*command, str(i)], stdout=subprocess.PIPE, text=True) for i in range(2)]
    given = [int(i) for writer in writers for i in writer.communicate()[0].split()]
    index = ts.open_index(path)
    index.verify()
    assert sorted(given) == list(range(240)) == index.ids.tolist()


WRITER = """
    import sys, numpy as np, topsign as ts
    signals = np.load(sys.argv[2])
    index = ts.AdaptiveIndex(n_features=96, n_bits=20, random_state=7, path=sys.argv[1])
    for number, batch in enumerate(np.split(signals, 200)):
        index.add(batch)
        print(len(index), flush=True)
        if number % 5 == 0:
            sys.stdin.readline()  # so that the reader sees many states, however slow it is
"""


def test_searches_beside_another_process_that_adds(path, tmp_path, rng):
    """Every result is the naive answer for a prefix of the additions: at least what was acknowledged before."""
    signals = rng.standard_normal((600, N_FEATURES)).astype(np.float32)
    queries = rng.standard_normal((2, N_FEATURES)).astype(np.float32)
    np.save(tmp_path / "signals.npy", signals)
    encoder = ts.AdaptiveEncoder(n_bits=20, random_state=7).fit(signals)
    mismatches = encoder.encode(signals).mismatches(encoder.project(queries))
    answers = {0: [5 * [-1]] * 2}
    for n in range(3, 601, 3):  # naive: all mismatches, sorted, ties by id
        best = [sorted(range(n), key=lambda i, row=row: (row[i], i))[:5] for row in mismatches]
        answers[n] = [ids + (5 - len(ids)) * [-1] for ids in best]
    index = make_index("compact", path)
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(path), str(tmp_path / "signals.npy")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        seen = []
        for number, line in enumerate(writer.stdout):
            index.refresh()
            n, found = len(index), index.search(queries, k=5, scoring="hamming").ids.tolist()
            assert n >= int(line)
            assert found == answers[n]
            seen.append(n)
            if number % 5 == 0:
                print(file=writer.stdin, flush=True)
    assert seen[-1] == 600
    assert len(set(seen)) > 20


def test_a_forked_child_is_told_to_open_the_file_itself(filled, signals):
    program = """
        import os, sys, numpy as np, topsign as ts
        index, query = ts.open_index(sys.argv[1]), np.eye(1, 96)
        expected = index.search(query).ids.tolist()
        if os.fork() == 0:
            try:
                index.search(query)
            except ts.StorageError as error:
                print(error)
            print(ts.open_index(sys.argv[1]).search(query).ids.tolist() == expected)
            sys.exit()
        os.wait()
        print(str(os.getpid()) in index.store._environment._lmdb.readers())
    """
    shown = run_python(program, filled)
    lines = shown.stdout.splitlines()
    assert "opened before this process was forked; open it again here" in lines[0]
    assert lines[1:] == [
        "True",
        "True",
    ]  # the child answers alike; the parent's place among the readers is still its own


def test_killed_writers_lose_nothing():
    script = Path(__file__).parent / "faults" / "kill.py"
    shown = subprocess.run([sys.executable, str(script), "--rounds", "20"], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "20 writers killed" in shown.stdout
    for words in ("add", "remove", "compact", "committing"):
        assert words in shown.stdout


def test_a_file_system_without_hard_links(path, signals, monkeypatch):
    def refused(*_):
        raise PermissionError

    monkeypatch.setattr(os, "link", refused)
    make_index("compact", path).add(signals)
    assert len(ts.open_index(path)) == 200
    assert files_in(path.parent) == ["cameras.topsign", "cameras.topsign-lock"]


def test_a_child_does_not_keep_its_parents_lock(filled, signals):
    """A writer that forked and was killed: the next writer goes on although the child lives."""
    program = """
        import os, signal, sys, time, topsign as ts
        index = ts.open_index(sys.argv[1])
        with index.store.change():
            child = os.fork()
            if child == 0:
                os.close(1)
                os.close(2)
                time.sleep(60)
            print(child, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    shown = run_python(program, filled)
    assert shown.returncode == -9
    try:
        ts.open_index(filled, timeout=1).add(signals[:1])
    finally:
        os.kill(int(shown.stdout), 9)


def test_one_file_is_opened_once_in_a_process(filled):
    indexes = [ts.open_index(filled) for _ in range(3)]
    assert len({id(index.store._environment) for index in indexes}) == 1
    key = os.stat(filled).st_dev, os.stat(filled).st_ino
    assert key in Environment._open
    del indexes
    assert key not in Environment._open


OLD_FILES = sorted(Path(__file__).parent.glob("data/v*/*.topsign"))


@pytest.mark.parametrize("file", OLD_FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_files_of_earlier_versions_still_answer(file, path):
    made = runpy.run_path(str(file.parent / "make.py"))
    shutil.copy(file, path)
    index = ts.open_index(path, readonly=True)
    index.verify()
    expected = json.loads((file.parent / "answers.json").read_text())[file.stem]
    assert json.loads(json.dumps(made["answers"](index))) == expected
    again = path.with_name("again.topsign")
    kind = type(index)
    options = {"n_bits": index.n_bits, "layout": index.layout} if kind is ts.AdaptiveIndex else {}
    options |= {"metric": index.metric, "norms": index.norms, "random_state": index.seed}
    new = kind(n_features=index.n_features, path=again, **options)
    made["fill"](new)  # the same signals still give the same codes
    assert json.loads(json.dumps(made["answers"](new))) == expected
    writer = ts.open_index(path)
    writer.add(made["signals"](1))
    writer.verify()
