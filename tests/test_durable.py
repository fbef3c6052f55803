"""Durable indexes: completed changes persist, damage is reported, and several processes can use an index."""

import contextlib
import errno
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from folders import column_places, files_of, flip, newest, read_manifest, rewrite
from numpy.testing import assert_array_equal

import topsign as ts
from topsign import _files
from topsign.encoding import encode
from topsign.store import backends, segments, stored_columns, versions

pytestmark = [pytest.mark.core, pytest.mark.slow]

posix = pytest.mark.skipif(
    sys.platform == "win32", reason="needs fork, limits or permissions of POSIX, or changes files that are mapped"
)
N_FEATURES = 96
KINDS = ["adaptive", "grouped", "sign"]


def make_index(kind, path=None, **options):
    options = {"n_features": N_FEATURES, "random_state": 7, "path": path} | options
    if kind == "adaptive":
        return ts.Index(family="adaptive", n_bits=20, **options)
    return ts.Index(family=kind, n_bytes=8, **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cameras.topsign"


@pytest.fixture
def small_segments(monkeypatch):
    """Limit segments to 16 entries, so that small indexes have many segments."""
    monkeypatch.setattr(segments, "MERGED_ENTRIES", 16)


@pytest.fixture
def signals(rng):
    return rng.standard_normal((200, N_FEATURES)).astype(np.float32)


def assert_same(index, other, queries):
    """Assert that two indexes have the same entries and give the same results."""
    assert_array_equal(index.ids, other.ids)
    for scoring in ("asymmetric", "hamming"):
        found, expected = (one.search(queries, k=12, scoring=scoring) for one in (index, other))
        assert_array_equal(found.ids, expected.ids)
        assert_array_equal(found.scores, expected.scores)
        assert_array_equal(found.p_values, expected.p_values)
        found, expected = (one.within(queries, false_alarm=0.9, scoring=scoring) for one in (index, other))
        assert_array_equal(found.ids, expected.ids)
    entries, expected = (one.get(other.ids[::3]) for one in (index, other))
    assert entries.codes == expected.codes
    assert entries.metadata == expected.metadata


def files_in(folder):
    return sorted(file.name for file in folder.iterdir())


def run_python(program, *arguments, **options):
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


@pytest.mark.parametrize("metric", ["correlation", "inner_product"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_answers_as_memory_does(path, rng, signals, small_segments, kind, metric):
    """Additions of all sizes, removals and compactions in random order, with reopening in between."""
    index, memory = make_index(kind, path, metric=metric), make_index(kind, metric=metric)
    start = 0
    for step in range(30):
        if step % 5 == 3:
            removed = rng.permutation(memory.ids)[: len(memory) // 4]
            for one in (index, memory):
                one.remove(removed)
        elif step % 11 == 7:
            index.compact()
            assert all(segment.alive is None for segment in index._store.snapshot.segments)
        else:
            n_signals = int(rng.choice([0, 1, 3, 20]))
            rows = np.arange(start, start + n_signals) % len(signals)
            notes = [{"row": int(row)} if row % 2 else None for row in rows]
            ids = None if step % 2 else [int(7 * memory._store.now.next_id + i) for i in rng.permutation(n_signals)]
            for one in (index, memory):
                one.add(signals[rows], ids=ids, metadata=notes)
            start += n_signals
        if step % 6 == 5:
            index.close()
            index = ts.open_index(path)
            assert_same(index, memory, signals[:3])
    index.verify()
    assert len(index._store.snapshot.segments) <= 2 * len(index) / 16 + 5
    assert files_in(path.parent) == ["cameras.topsign"]


@posix
def test_codes_are_scanned_in_place(path, signals):
    index = make_index("grouped", path)
    index.add(np.vstack(9 * [signals]))  # too large for the manifest
    index = ts.open_index(path)
    (segment,) = index._store.snapshot.segments
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(path) in line]
    bounds = [[int(end, 16) for end in line[0].split("-")] for line in maps]
    for column in (segment.ids, segment.codes.planes):
        assert any(low <= column.ctypes.data < high for low, high in bounds)
        assert column.ctypes.data % 8 == 0
        assert not column.flags.writeable


def test_arrays_keep_their_pages(path, rng, signals):
    """A snapshot stays valid after removal, compaction, closing and many additions."""
    index = make_index("grouped", path)
    index.add(signals)
    codes = index._store.snapshot.segments[0].codes
    before = codes.planes.copy()
    index.remove(np.arange(150))
    index.compact()
    for _ in range(10):
        index.remove(index.ids)
        index.add(rng.standard_normal((200, N_FEATURES)))
    index.close()
    del index
    assert_array_equal(codes.planes, before)


def test_a_failing_addition_leaves_nothing(path, signals, small_segments, monkeypatch):
    """The files of all segments are deleted after the last of them fails."""
    monkeypatch.setattr(stored_columns, "INLINE_BYTES", 0)
    index = make_index("adaptive", path)
    index.add(signals[:20])
    before, calls = files_of(path), []

    def failing(*arguments, **options):
        calls.append(len(files_of(path)))
        if len(calls) == 10:
            raise ValueError("the tenth part")
        return encode(*arguments, **options)

    monkeypatch.setattr("topsign.index.addition.encode", failing)
    with pytest.raises(ValueError, match="the tenth part"):
        index.add(signals)
    assert calls[-1] > len(before)  # it had begun to write
    assert files_of(path) == before
    assert_array_equal(index.ids, np.arange(20))
    assert_array_equal(ts.open_index(path).ids, np.arange(20))
    index.remove([0])
    index.verify()
    assert_array_equal(index.add(signals[:1]), [20])


@posix
def test_adding_a_memory_mapped_file_holds_little_of_it(tmp_path, rng):
    """Codes of 40 MB are made from a file of 328 MB; memory holds only a few segments of 1.8 MB and some blocks."""
    block = rng.standard_normal((500, 8192)).astype(np.float32)
    signals = np.lib.format.open_memmap(tmp_path / "signals.npy", "w+", np.float32, (10_000, 8192))
    for start in range(0, len(signals), 500):
        signals[start : start + 500] = block
    del signals
    program = """
        import resource, sys, numpy as np, topsign as ts
        from topsign.store import segments
        segments.MERGED_ENTRIES = 500
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        index = ts.Index(8192, family="sign", n_bytes=5000, random_state=7, path=sys.argv[2])
        signals = np.load(sys.argv[1], mmap_mode="r")
        index.add(signals[:500])
        before = peak()
        index.add(signals)
        print(peak() - before, len(index), index.nbytes // 2**20)
    """
    shown = run_python(program, tmp_path / "signals.npy", tmp_path / "a.topsign")
    grown, n_entries, megabytes = map(int, shown.stdout.split())
    assert n_entries == 10_500
    assert megabytes >= 49
    assert grown < 25


@pytest.fixture
def filled(path, signals, small_segments, monkeypatch):
    """Closed index with several segments, removed entries and replaced metadata, each in a separate file."""
    monkeypatch.setattr(stored_columns, "INLINE_BYTES", 0)
    monkeypatch.setattr("topsign.store.folder_store.REMOVED_BYTES", 2**20)
    index = make_index("adaptive", path)
    for start in range(0, 60, 6):
        index.add(signals[start : start + 6], metadata=6 * [{"start": start}])
    index.update_metadata([2], [{"start": "replaced"}])
    index.remove([3, 4, 17, 59])
    index.close()
    return path


COLUMNS = ["ids", "codes", "metadata.starts", "metadata.text", "removed", "rows"]


@posix
@pytest.mark.parametrize("column", COLUMNS)
def test_a_flipped_byte_is_reported_where_it_is(filled, rng, signals, column):
    """verify and the first call that reads the byte report it with the name of the file and the column."""
    places = {key: place for key, place in column_places(filled).items() if key[1] == column}
    assert places
    for (file, _), (offset, size) in places.items():
        original = file.read_bytes()
        for at in {0, size - 1, *rng.integers(0, size, 3).tolist()}:
            flip(file, offset + at)
            name = f"{file.parent.name}/{file.name}, {column}"
            with pytest.raises(ts.StorageError, match=f"{filled}, {name}: damaged: checksum"):
                ts.open_index(filled).verify()
            with pytest.raises(ts.StorageError, match=name):
                touch(ts.open_index(filled), column, signals)
            file.write_bytes(original)
    ts.open_index(filled).verify()


def touch(index, column, signals):
    if column == "rows" or column.startswith("metadata"):
        index.get(index.ids)
    else:
        index.search(signals[:1])


@posix
def test_verify_names_every_damaged_part(filled):
    places = column_places(filled)
    files = sorted({file for file, column in places if column == "codes"})
    parts = [(files[0], "codes"), (files[0], "metadata.text"), (files[-1], "ids")]
    for part in parts:
        flip(part[0], places[part][0] + 3)
    with pytest.raises(ts.StorageError) as raised:
        ts.open_index(filled).verify()
    for file, column in parts:
        assert f"segments/{file.name}, {column}: damaged: checksum" in str(raised.value)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


@posix
def test_a_damaged_newest_manifest_names_the_version_before(path, signals):
    with make_index("adaptive", path) as index:
        index.add(signals[:5])
    with ts.open_index(path, keep_versions=2) as index:
        index.add(signals[5:9])
        assert index.versions() == [2, 3]
    flip(newest(path), 100)
    with pytest.raises(
        ts.StorageError, match=r"0003\.json: damaged: .*; open_index\(path, version=2\) opens the version"
    ):
        ts.open_index(path)
    with ts.open_index(path, version=2) as older:
        assert len(older) == 5
        older.verify()
        with pytest.raises(ts.StorageError, match="cannot be written: version 2 of it was opened"):
            older.add(signals[:1])


def test_versions_are_kept_and_opened(path, signals):
    make_index("adaptive", path).close()
    index = ts.open_index(path, keep_versions=3)
    for at in range(5):
        index.add(signals[at : at + 1])
    assert index.versions() == [4, 5, 6]
    assert [len(ts.open_index(path, version=number)) for number in (4, 5, 6)] == [3, 4, 5]
    with pytest.raises(ts.StorageError, match="version 3 is not kept; versions: 4, 5, 6"):
        ts.open_index(path, version=3)
    with pytest.raises(ValueError, match="version must be"):
        ts.open_index(path, version=0)
    index.verify()
    older = pickle.loads(pickle.dumps(ts.open_index(path, version=5)))
    assert len(older) == 4
    index.remove([0], erase=True)
    assert index.versions() == [7]
    assert make_index("adaptive").versions() == []


def test_erased_entries_are_gone_from_every_file(path, signals, monkeypatch):
    monkeypatch.setattr(stored_columns, "INLINE_BYTES", 0)
    make_index("adaptive", path).close()
    with ts.open_index(path, keep_versions=5) as index:
        index.add(signals, metadata=[{"name": f"secret {row}"} for row in range(200)])
        index.update_metadata([7], [{"name": "secret 7, replaced"}])
        index.remove([7, 8], erase=True)
        index.verify()
        assert len(index) == 198
    content = b"".join((path / name).read_bytes() for name in files_of(path))
    assert b'"secret 6"' in content
    for gone in (b'"secret 7"', b'"secret 7, replaced"', b'"secret 8"'):
        assert gone not in content
    assert len(list((path / "versions").iterdir())) == 1


@pytest.mark.parametrize("refuses", [{"readonly": True}, {"version": 1}])
@pytest.mark.parametrize("option", [{"timeout": 1}, {"keep_versions": 2}])
def test_options_of_changes_are_refused_where_changes_are(path, refuses, option):
    ts.Index(8, family="sign", path=path).close()
    with pytest.raises(ValueError, match="timeout and keep_versions are for changes"):
        ts.open_index(path, **refuses, **option)
    ts.open_index(path, **refuses).close()


def test_replaced_metadata_take_an_overlay_and_not_the_segment(path, signals, monkeypatch):
    monkeypatch.setattr(stored_columns, "INLINE_BYTES", 0)
    index, memory = make_index("adaptive", path), make_index("adaptive")
    for one in (index, memory):
        one.add(signals, metadata=[{"row": row} if row % 2 else None for row in range(200)])
        segment = files_of(path)[-2]
        for ids, notes in (([5, 3], [{"a": 1}, None]), ([3, 4, 5], [{"b": 2}, {"c": 3}, None])):
            one.update_metadata(ids, notes)
    assert segment in files_of(path)
    assert len(list((path / "metadata").iterdir())) == 1  # one overlay has all replacements
    assert_same(index, memory, signals[:2])
    assert_array_equal(index.search(signals[:1], where="b == 2", k=1).ids, [[3]])
    index.remove([4])
    memory.remove([4])
    index.compact()
    assert not list((path / "metadata").iterdir())
    assert_same(ts.open_index(path), memory, signals[:2])
    index.update_metadata(index.ids, [{"all": 1}] * 199)  # most of a segment is replaced, so it is rewritten
    assert not list((path / "metadata").iterdir())
    assert ts.open_index(path).get([0, 199]).metadata == [{"all": 1}] * 2


@posix
@pytest.mark.parametrize(("number", "remedy"), [(1, "encode the signals again"), (3, "upgrade topsign")])
def test_other_formats_are_refused(filled, number, remedy):
    rewrite(filled, manifest=lambda record: record.update(format=number))
    with pytest.raises(ts.StorageError, match=f"format {number}; this library reads format 2: {remedy}"):
        ts.open_index(filled)


def test_other_folders_are_refused_and_not_changed(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("nothing to see here\n" * 1000)
    for call in (ts.open_index, lambda file: make_index("adaptive", file)):
        with pytest.raises(ts.StorageError, match=r"notes\.txt, folder: is not a topsign index, which is a folder"):
            call(text)
    assert text.read_text().startswith("nothing")
    with pytest.raises(ts.StorageError, match="missing, folder: does not exist"):
        ts.open_index(tmp_path / "missing")
    with pytest.raises(ts.StorageError, match="versions: there are none; this folder is not a topsign index"):
        ts.open_index(tmp_path)
    (tmp_path / "versions").mkdir()
    with pytest.raises(ts.StorageError, match="versions: there are none; this folder is not a topsign index"):
        ts.open_index(tmp_path)
    with pytest.raises(TypeError, match="readonly must be True or False"):
        ts.open_index(text, readonly="yes")


@pytest.mark.parametrize(
    ("place", "error", "words"),
    [
        (None, TypeError, "path must be a str or a path, got None"),
        (7, TypeError, "path must be a str or a path, got 7"),
        ("", ValueError, "path must be a text that is not empty"),
        ("a\0b", ValueError, "has no null character"),
    ],
)
def test_invalid_paths_are_refused(place, error, words):
    memory = make_index("adaptive")
    with pytest.raises(error, match=words):
        ts.open_index(place)
    with pytest.raises(error, match=words):
        memory.save(place)


def test_an_index_opened_readonly_says_so(filled, signals):
    with ts.open_index(filled, readonly=True) as index:
        for call in (lambda: index.add(signals), lambda: index.remove([0]), index.compact):
            with pytest.raises(ts.StorageError, match="cannot be written: it was opened with readonly=True"):
                call()
        assert len(index) == 56


def test_a_reader_sees_its_snapshot_until_it_refreshes(path, signals):
    writer = make_index("adaptive", path)
    writer.add(signals[:10])
    reader = ts.open_index(path, readonly=True)
    writer.add(signals[10:30])
    writer.remove([0])
    assert (len(reader), reader.refresh(), len(reader), reader.refresh()) == (10, True, 29, False)
    assert_same(reader, writer, signals[:2])
    other = ts.open_index(path)
    other.add(signals[:5])  # sees the first writer's changes and continues from them
    writer.add(signals[:1])
    assert len(writer) == 35
    memory = make_index("adaptive")
    assert memory.refresh() is False
    memory.verify()


def test_a_full_disk_keeps_what_was_there(filled, signals):
    """A limit on the file size simulates a full disk."""
    program = """
        import os, resource, sys, numpy as np, topsign as ts
        limit = 20_000
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        index = ts.open_index(sys.argv[1])
        try:
            index.add(np.random.default_rng(0).standard_normal((3000, 96)))
        except ts.StorageError as error:
            print(error)
        index.verify()
        print(len(index), len(index.add(np.eye(2, 96))))
        try:
            ts.Index(96, family="adaptive", n_bits=20, path=sys.argv[1] + ".new")
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


@posix
@pytest.mark.skipif(
    not hasattr(os, "getuid") or os.getuid() != 0, reason="permissions bind others than root; root becomes nobody here"
)
def test_a_readonly_folder_can_be_read_and_not_written(filled):
    """A user without write permission reads the folder while its owner writes."""
    folder = Path("/tmp") / f"topsign-readonly-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        copy = shutil.copytree(filled, folder / "cameras.topsign")
        program = """
            import importlib.metadata, os, sys, numpy as np
            import topsign as ts, topsign.store.folder_store
            ts.Index, importlib.metadata.version("topsign")  # import what nobody may not read
            os.setgid(65534)
            os.setuid(65534)
            for call in (
                lambda: print(len(ts.open_index(sys.argv[1], readonly=True)), "readonly"),
                lambda: ts.open_index(sys.argv[1], readonly=True).verify(),
                lambda: ts.open_index(sys.argv[1]).add(np.eye(1, 96)),
                lambda: ts.Index(96, family="adaptive", n_bits=20, path=sys.argv[1] + ".new"),
            ):
                try:
                    call()
                except ts.StorageError as error:
                    print(error)
        """
        lines = run_python(program, copy).stdout.splitlines()
        assert lines[0] == "56 readonly"
        assert "cannot be written: the folder is read-only; open it with readonly=True" in lines[1]
        assert "cannot be created" in lines[2]
        assert len(lines) == 3
        ts.open_index(copy).verify()
    finally:
        shutil.rmtree(folder)


@posix
def test_permissions_follow_the_folder(path, signals):
    index = make_index("adaptive", path)
    path.chmod(0o770)
    for mask in (0o077, 0o000):
        before = os.umask(mask)
        try:
            index = ts.open_index(path)
            index.add(np.vstack(3 * [signals]))
        finally:
            os.umask(before)
        for name in files_of(path):
            if not name.startswith("recipes"):
                assert (path / name).stat().st_mode & 0o777 == 0o660, name


HOLD = """
    import sys, time, topsign as ts
    index = ts.open_index(sys.argv[1])
    with index._store.change():
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


@posix
def test_a_forked_child_reads_and_opens_for_itself(filled):
    """A child inherits memory maps, so it can search and refresh; it writes under its own lock."""
    program = """
        import os, sys, numpy as np, topsign as ts
        index, query = ts.open_index(sys.argv[1]), np.eye(1, 96)
        expected = index.search(query).ids.tolist()
        if os.fork() == 0:
            print(index.search(query).ids.tolist() == expected, index.refresh())
            index.add(query)
            print(len(index), flush=True)
            os._exit(0)
        os.wait()
        print(len(index), index.refresh(), len(index))
    """
    assert run_python(program, filled).stdout.splitlines() == ["True False", "57", "56 True 57"]


@posix
def test_a_child_forked_during_a_change_cannot_commit_it(filled):
    program = """
        import os, sys, numpy as np, topsign as ts
        index = ts.open_index(sys.argv[1])
        try:
            with index._store.change() as change:
                child = os.fork()
                change.next_id = 1000
                if child:
                    os.waitpid(child, 0)
        except ts.StorageError as error:
            print(error, flush=True)
            os._exit(0)
        print(index._store.now.next_id, ts.open_index(sys.argv[1])._store.now.next_id)
    """
    refused, kept = run_python(program, filled).stdout.splitlines()
    assert "this process was forked during a change; only its parent can write" in refused
    assert kept == "1000 1000"


def test_a_file_system_without_hard_links(path, signals, monkeypatch):
    def refused(*_):
        raise PermissionError(errno.EPERM, "no hard links")

    monkeypatch.setattr(os, "link", refused)
    index = make_index("adaptive", path)
    index.add(signals)
    assert len(ts.open_index(path)) == 200
    assert files_in(path.parent) == ["cameras.topsign"]
    before = read_manifest(path)
    monkeypatch.setattr(_files, "_exclusive_rename", lambda: None)
    with pytest.raises(ts.StorageError, match="nothing was changed: this file system can neither link nor rename"):
        index.add(signals[:1])
    assert read_manifest(path) == before


def change_slowly(index, meanwhile):
    with index._store.change() as change:
        meanwhile()
        change.next_id = 100


def test_a_commit_never_replaces_a_version(path, signals, monkeypatch):
    """Two writers commit without a lock, as on a file system without locks: one is refused, and no change is lost."""
    for has_links in (True, False):
        target = path.with_name(f"{has_links}.topsign")
        index, other = make_index("adaptive", target), make_index("adaptive", target)
        if not has_links:
            monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError(errno.EPERM, "none")))
        monkeypatch.setattr(backends, "hold_lock", lambda *_, **__: contextlib.nullcontext())
        with pytest.raises(ts.ConflictError, match="another client committed version 2 first; nothing was changed"):
            change_slowly(index, lambda: other.add(signals[:3]))  # noqa: B023
        assert index.refresh()
        assert len(index) == 3
        index.verify()


def test_a_writer_that_slept_while_its_version_was_cleaned_is_refused(path, signals, monkeypatch):
    """The number of its version is free again, so only the second listing detects it."""
    index, other = make_index("adaptive", path), make_index("adaptive", path)
    monkeypatch.setattr(backends, "hold_lock", lambda *_, **__: contextlib.nullcontext())
    with pytest.raises(ts.ConflictError):
        change_slowly(index, lambda: [other.add(signals[at : at + 1]) for at in range(4)])
    assert other.versions() == [5]
    assert index.refresh()
    assert (len(index), index._store.now.next_id) == (4, 4)


def test_verification_beside_a_writer_reports_no_missing_files(path, signals, monkeypatch):
    """Files deleted by a compaction during verification are not damage, because a newer version replaces them."""
    monkeypatch.setattr(stored_columns, "INLINE_BYTES", 0)
    index, writer = make_index("adaptive", path), make_index("adaptive", path)
    index.add(signals[:100])
    index.add(signals[100:130])
    plain, turns = stored_columns.StoredFile.verify, iter([writer.compact, lambda: writer.add(signals[:90])])

    def disturbed(self):
        found = plain(self)
        next(turns, lambda: None)()
        return found

    writer.refresh()
    monkeypatch.setattr(stored_columns.StoredFile, "verify", disturbed)
    index.verify()
    assert next(turns, None) is None
    assert len(ts.open_index(path)) == 220


def test_a_version_that_cannot_be_synced_is_taken_back(path, signals, monkeypatch):
    """After a failed sync of the folder, the manifest's name could disappear even after a later sync succeeds."""
    index = make_index("adaptive", path)
    index.add(signals[:3])
    before, plain, calls = files_of(path), backends.sync_folder, []

    def failing(folder):
        calls.append(folder)
        if os.path.basename(folder) == "versions":
            raise OSError(errno.EIO, "Input/output error")
        plain(folder)

    with monkeypatch.context() as patched:
        patched.setattr(backends, "sync_folder", failing)
        with pytest.raises(ts.StorageError, match="nothing was changed: Input/output error"):
            index.add(signals[:1])
    assert calls
    assert files_of(path) == before
    assert len(index) == len(ts.open_index(path)) == 3
    index.add(signals[:1])


def test_a_folder_that_cannot_be_synced_is_not_left(path, monkeypatch):
    def failing(folder):
        if folder == str(path.parent):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(backends, "sync_folder", failing)
    with pytest.raises(ts.StorageError, match="cannot be created: Input/output error"):
        make_index("adaptive", path)
    assert files_in(path.parent) == []


@posix
def test_files_of_a_kept_version_that_cannot_be_read_are_not_deleted(path, signals, monkeypatch):
    monkeypatch.setattr(stored_columns, "INLINE_BYTES", 0)
    make_index("adaptive", path).close()
    index = ts.open_index(path, keep_versions=3)
    index.add(signals[:100])
    index.remove(range(90))  # rewrites the segment, so only the previous version references the old one
    older = sorted((path / "versions").glob("*.json"))[-2]
    original, files = older.read_bytes(), set(files_of(path))
    flip(older, 100)
    index = ts.open_index(path, keep_versions=3)  # does not know the files of older versions
    index.update_metadata([95], [{"a": 1}])
    assert files < set(files_of(path))
    older.write_bytes(original)
    assert len(ts.open_index(path, version=2)) == 100
    index.update_metadata([95], [{"a": 2}])
    assert index.versions() == [3, 4, 5]


def test_a_manifest_holds_a_bounded_number_of_bytes(path, signals, monkeypatch):
    """Small files are inline while there is room, half of it for segments, so small additions stay fast."""
    monkeypatch.setattr(stored_columns, "MANIFEST_BYTES", 6000)
    monkeypatch.setattr("topsign.store.segments.MERGED_ENTRIES", 8)  # there are many segments
    index, inside, outside = make_index("adaptive", path), set(), set()
    for start in range(0, 200, 4):
        index.add(signals[start : start + 4])
        index.update_metadata([start], [{"text": "m" * 50}])
        manifest = index._store.now.manifest
        assert manifest.n_inline <= 6000
        assert sum(file.n_bytes for file in manifest.records if file.content and file.folder == "metadata") <= 3000
        inside |= {file.folder for file in manifest.records if file.content}
        outside |= {file.folder for file in manifest.files}
    assert inside == {"segments", "metadata"}
    assert outside == {"recipes", "segments", "metadata"}
    reopened = ts.open_index(path)
    reopened.verify()
    assert_same(index, reopened, signals[:2])


@posix
@pytest.mark.parametrize(("module", "step"), [(os, "link"), (os, "listdir"), (os, "unlink")])
def test_an_interrupt_after_the_commit_leaves_the_whole_change(path, signals, monkeypatch, module, step):
    index, plain, committed = make_index("adaptive", path), getattr(module, step), []

    def link(*names):
        plain_link(*names)
        committed.append(names)

    def interrupted(*arguments):
        found = (link if step == "link" else plain)(*arguments)
        if committed:
            signal.raise_signal(signal.SIGINT)
        return found

    plain_link = os.link
    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(module, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        index.add(signals[:3])
    monkeypatch.undo()
    index.refresh()
    assert len(index) == len(ts.open_index(path)) == 3
    assert_array_equal(index.add(signals[3:5]), [3, 4])
    index.verify()


@posix
def test_an_interrupted_commit_is_durable_before_the_version_before_it_is_deleted(path, signals, monkeypatch):
    index, link, unlink, sync, seen = make_index("adaptive", path), os.link, os.unlink, backends.sync_folder, []

    def interrupted(*names):
        link(*names)
        seen.append("named")
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(os, "link", interrupted)
    monkeypatch.setattr(os, "unlink", lambda name: seen.append(os.path.basename(name)) or unlink(name))
    monkeypatch.setattr(backends, "sync_folder", lambda name: seen.append(os.path.basename(name)) or sync(name))
    with pytest.raises(KeyboardInterrupt):
        index.add(signals[:3])
    monkeypatch.undo()
    after = [name for name in seen[seen.index("named") + 1 :] if not name.startswith(".")]  # without the draft
    assert after[0] == "versions"
    assert len(after) > 1, "the version before is deleted"
    assert len(ts.open_index(path)) == 3


@posix
def test_compact_finishes_an_erasure_that_was_interrupted(path, signals, monkeypatch):
    make_index("adaptive", path).add(signals[:9])
    index, plain = ts.open_index(path, keep_versions=3), versions.Versions.clean

    def interrupted(*arguments, **options):
        signal.raise_signal(signal.SIGINT)
        return plain(*arguments, **options)

    monkeypatch.setattr(versions.Versions, "clean", interrupted)
    with pytest.raises(KeyboardInterrupt):
        index.remove([0], erase=True)
    monkeypatch.undo()
    again = ts.open_index(path)
    assert 0 not in again
    assert len(again.versions()) == 2, "with an earlier one, which has the entry"
    again.compact()
    assert again.versions() == [again._store.version]
    again.verify()


def test_large_buffers_are_written_in_parts(tmp_path, monkeypatch):
    """A system call writes at most 2 GiB, and may write less."""
    content = np.arange(100_000, dtype="<i8")
    with open(tmp_path / "a", "wb", buffering=0) as file:

        class Short:
            def write(self, part):
                assert len(part) <= 2**30
                return file.write(part[:7777])

        _files.write_all(Short(), content)
        _files.write_all(Short(), b"")
    assert (tmp_path / "a").read_bytes() == content.tobytes()


def test_an_erasure_cleans_under_the_lock(path, signals, monkeypatch):
    """Without the lock, cleaning would delete new files of another writer before their commit."""
    index = make_index("adaptive", path)
    index.add(signals)
    held, plain, seen = [], backends.hold_lock, []

    @contextlib.contextmanager
    def watched(*arguments, **options):
        with plain(*arguments, **options):
            held.append(1)
            yield
            held.pop()

    clean = versions.Versions.clean
    monkeypatch.setattr(backends, "hold_lock", watched)
    monkeypatch.setattr(versions.Versions, "clean", lambda *one, **two: seen.append(bool(held)) or clean(*one, **two))
    index.remove([3], erase=True)
    assert seen
    assert all(seen)


def test_a_reply_that_was_lost_is_settled_by_the_token(path, signals, monkeypatch):
    """A link succeeds but reports failure, as can happen on NFS."""
    index, link = make_index("adaptive", path), os.link

    def lost(source, target):
        link(source, target)
        raise FileExistsError(errno.EEXIST, "File exists", target)

    monkeypatch.setattr(os, "link", lost)
    assert_array_equal(index.add(signals[:3]), [0, 1, 2])
    assert len(ts.open_index(path)) == 3


@pytest.mark.parametrize("stored", [False, True])
def test_a_closed_index_raises(path, signals, stored):
    index = make_index("adaptive", path if stored else None)
    index.add(signals, metadata=[{}] * len(signals))
    index.close()
    index.close()
    calls = [
        *(lambda: index.search(signals[:1]), lambda: index.add(signals[:1]), lambda: len(index), lambda: index.ids),
        *(lambda: 3 in index, lambda: index.get([3]), lambda: index.remove([3]), lambda: index.compact()),
        *(lambda: index.update_metadata([3], [{}]), lambda: index.sources, lambda: index.nbytes, lambda: index.regions),
        *([index.refresh, index.verify] if stored else []),
    ]
    for call in calls:
        with pytest.raises(ts.StorageError, match="this index is closed"):
            call()
    assert repr(index) == f"Index(family='adaptive', {repr(str(path)) if stored else 'in memory'}, closed)"


def test_nothing_is_raised_after_a_commit(path, signals, monkeypatch):
    """The change is stored although cleaning fails, and the next change cleans."""
    monkeypatch.setattr(stored_columns, "INLINE_BYTES", 0)
    index, calls = make_index("adaptive", path), []
    index.add(signals[:5])

    def failing(self):
        calls.append(1)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(versions.Versions, "listing", failing)
    index.remove([0])
    assert calls
    assert len(index) == 4
    monkeypatch.undo()
    assert len(index.versions()) == 2
    index.compact()
    assert len(index.versions()) == 1
    assert len(files_of(path)) <= 3


@posix
def test_a_child_does_not_keep_its_parents_lock(filled, signals):
    """The next writer can proceed after a writer forked and was killed, although the child is alive."""
    program = """
        import os, signal, sys, time, topsign as ts
        index = ts.open_index(sys.argv[1])
        with index._store.change():
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
