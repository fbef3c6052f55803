"""Files under churn: removed bytes are used again, shrinking gives them back, and nothing is lost on the way."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import topsign as ts
from topsign.index.storage import lmdb_change, lmdb_count, lmdb_environment, lmdb_shrink, segments

N_FEATURES = 64


def make_index(path=None, **options):
    return ts.AdaptiveIndex(n_features=N_FEATURES, n_bits=16, random_state=7, path=path, **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cameras.topsign"


@pytest.fixture
def small_segments(monkeypatch):
    monkeypatch.setattr(segments, "MERGED_ENTRIES", 64)
    monkeypatch.setattr(lmdb_change, "REMOVED_BYTES", 0)


@pytest.fixture
def signals(rng):
    return rng.standard_normal((1000, N_FEATURES)).astype(np.float32)


@pytest.fixture
def holey(path, signals):
    """A file of which 50 of 1,000 entries are left; their texts name their rows."""
    with make_index(path) as index:
        index.add(signals, ids=[f"row {i}" for i in range(1000)], metadata=[{"row": i} for i in range(1000)])
        index.remove([f"row {i}" for i in range(950)])
        index.compact()
    return path


def run_python(program, *arguments, **options):
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def assert_whole(index, signals):
    assert index.ids.tolist() == [f"row {i}" for i in range(950, 1000)]
    assert index.get(["row 970"]).metadata == [{"row": 970}]
    assert index.search(signals[990], k=1).ids.tolist() == [["row 990"]]
    index.verify()


def test_shrinking_gives_bytes_back_and_keeps_everything(holey, signals, tmp_path):
    index = ts.open_index(holey)
    header, next_id, before = index.header, index.store.next_id, holey.stat().st_size
    index.compact(shrink=True)
    index.save(tmp_path / "copy.topsign")
    assert holey.stat().st_size <= 1.1 * (tmp_path / "copy.topsign").stat().st_size < before / 3
    assert (index.header, index.store.next_id) == (header, next_id)
    assert_whole(index, signals)
    index.add(signals[:1], ids=["new"])
    index.close()
    with ts.open_index(holey) as again:
        assert len(again) == 51
        again.verify()
    assert sorted(os.listdir(tmp_path)) == ["cameras.topsign", "cameras.topsign-lock", "copy.topsign"]


def test_shrinking_in_memory_compacts(signals):
    index = make_index()
    index.add(signals)
    index.remove(range(400))
    index.compact(shrink=True)
    assert (len(index), index.n_removed) == (600, 0)


def test_an_index_of_the_same_process_goes_over(holey, signals):
    first, second = ts.open_index(holey), ts.open_index(holey)
    found = second.get(["row 950"]).codes
    for _ in range(3):  # over several shrinkings at once
        first.compact(shrink=True)
    assert len(second) == 50  # the old file still answers
    assert second.refresh()
    assert_whole(second, signals)
    assert found == second.get(["row 950"]).codes
    second.add(signals[:1], ids=["new"])
    assert first.refresh()
    assert "new" in first


OTHER = """
    import sys, numpy as np, topsign as ts
    index = ts.open_index(sys.argv[1])
    print("open", flush=True)
    for line in sys.stdin:
        if line == "add\\n":
            index.add(np.eye(1, index.n_features, 3), ids=["theirs"])
        print(index.refresh(), len(index), index.search(np.eye(1, index.n_features, 3), k=1).ids[0, 0], flush=True)
"""


@pytest.mark.parametrize("verb", ["refresh", "add"])
def test_another_process_goes_over(holey, signals, verb):
    command = [sys.executable, "-c", textwrap.dedent(OTHER), str(holey)]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout.readline() == "open\n"
            with ts.open_index(holey) as index:
                index.compact(shrink=True)
                index.add(np.eye(1, N_FEATURES, 3) + 0.01 * signals[:1], ids=["ours"])
                print(verb, file=other.stdin, flush=True)
                said = other.stdout.readline().split()
                assert said == (["True", "51", "ours"] if verb == "refresh" else ["False", "52", "theirs"])
                index.refresh()
                assert len(index) == (51 if verb == "refresh" else 52)
        finally:
            other.kill()


SHRINKING = """
    import sys, topsign as ts
    index = ts.open_index(sys.argv[1])
    index.compact(shrink=True)
    print("shrunk", flush=True)
    sys.stdin.read()
"""


def test_a_file_that_is_shrunk_while_it_is_opened(holey, signals, monkeypatch):
    """Another process puts the shrunk file there, and uses it, before we look for the lock file of the old one."""
    command = [sys.executable, "-c", textwrap.dedent(SHRINKING), str(holey)]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        claimed = []

        def claim_late(*arguments):
            if not claimed:
                assert other.stdout.readline() == "shrunk\n"
            claimed.append(arguments)
            return claim_lock(*arguments)

        claim_lock = lmdb_environment.claim_lock
        monkeypatch.setattr(lmdb_environment, "claim_lock", claim_late)
        try:
            with ts.open_index(holey) as index:
                assert len(claimed) == 2  # the second time for the new file
                assert_whole(index, signals)
        finally:
            other.kill()


def test_a_copy_of_before_is_not_taken_for_a_shrunk_one(holey, signals):
    """The remedy for a mistake, a copy put in the file's place, is refused by who has the file open, as ever."""
    index = ts.open_index(holey)
    index.compact(shrink=True)
    shutil.copy(holey, holey.with_name("copy"))
    index.add(signals[:3], ids=["a", "b", "c"])
    os.replace(holey.with_name("copy"), holey)
    for call in (index.refresh, lambda: index.add(signals[:1], ids=["d"]), lambda: index.compact(shrink=True)):
        with pytest.raises(ts.StorageError, match="was replaced, moved or deleted since it was opened"):
            call()
    with ts.open_index(holey) as restored:
        assert_whole(restored, signals)


def test_a_process_killed_while_it_shrinks_loses_nothing(holey, signals):
    """Killed after each step of it, and just before the last."""
    program = """
        import os, shutil, signal, sys, topsign as ts
        from topsign.index.storage import lmdb_shrink
        from topsign.index.storage.lmdb_environment import Environment

        STEPS = ["_create", "_fill", "write_count", "_sync", "put", "before replacing", "after replacing"]

        def dying(call, late=True):
            def work(*arguments, **options):
                if late:
                    call(*arguments, **options)
                os.kill(os.getpid(), signal.SIGKILL)
            return work

        def shrink(path, step):
            index = ts.open_index(path)
            if step == "put":
                Environment.write = dying(Environment.write)
            elif step.endswith("replacing"):
                os.replace = dying(os.replace, step.startswith("after"))
            else:
                setattr(lmdb_shrink, step, dying(getattr(lmdb_shrink, step)))
            index.compact(shrink=True)

        for step in STEPS:
            path = shutil.copy(sys.argv[1], f"{sys.argv[1]}.{step}")
            child = os.fork()
            if not child:
                shrink(path, step)
                os._exit(1)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), path, sep=":")
    """
    said = run_python(program, holey).stdout.split("\n")[:-1]
    assert len(said) == 7
    for status, path in (line.split(":") for line in said):
        assert int(status) == -signal.SIGKILL
        assert os.path.exists(lmdb_shrink._draft(path)) != path.endswith("after replacing")
        with ts.open_index(path) as index:
            assert_whole(index, signals)
            index.add(signals[:1], ids=["new"])
        assert not os.path.exists(lmdb_shrink._draft(path))  # the next change has removed what was left


def test_a_full_disk_leaves_the_file_as_it_was(holey, signals):
    program = """
        import resource, signal, sys, topsign as ts, topsign.index.storage.lmdb_store
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        index = ts.open_index(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_288, resource.RLIM_INFINITY))
        try:
            index.compact(shrink=True)
        except ts.StorageError as error:
            print(error)
    """
    before = holey.stat()
    assert "could not be shrunk, and is as it was" in run_python(program, holey).stdout
    assert os.path.samestat(before, holey.stat())
    assert not os.path.exists(lmdb_shrink._draft(str(holey)))
    with ts.open_index(holey) as index:
        assert_whole(index, signals)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_the_shrunk_file_belongs_to_whom_the_old_one_did(holey):
    os.chmod(holey, 0o640)
    os.chown(holey, 12345, 54321)
    with ts.open_index(holey) as index:
        index.compact(shrink=True)
    found = holey.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o640, 12345, 54321)


def test_writers_readers_and_shrinking_at_once(path, signals):
    """Three processes add while another shrinks and this one reads: every acknowledged entry is there."""
    make_index(path).close()
    program = """
        import os, sys, time, numpy as np, topsign as ts

        def write(number):
            index, rng = ts.open_index(sys.argv[1]), np.random.default_rng(number)
            for step in range(9):
                ids = 100_000 * number + 10 * step + np.arange(10)
                index.add(rng.standard_normal((10, index.n_features)), ids=ids)
                if step % 3 == 2:
                    index.remove(ids[:5])

        def run(work, *arguments):
            child = os.fork()
            if not child:
                work(*arguments)
                os._exit(0)
            return child

        ts.open_index  # imported once
        children = [run(write, number) for number in (1, 2, 3)]
        index, shrunk = ts.open_index(sys.argv[1]), 0
        while children:
            if os.waitpid(children[0], os.WNOHANG)[0]:
                children.pop(0)
            index.compact(shrink=True)
            shrunk += 1
            time.sleep(0.01)
        print(shrunk)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(path)]
    reading = ts.open_index(path, readonly=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as writing:
        while writing.poll() is None:
            reading.refresh()
            reading.search(signals[:1])
            time.sleep(0.01)
        shrunk, said = writing.communicate()
    assert said == ""
    assert int(shrunk) > 1
    reading.refresh()
    steps = [10 * step + (5 if step % 3 == 2 else 0) for step in range(9)]
    expected = [100_000 * n + i for n in (1, 2, 3) for at in steps for i in range(at, at // 10 * 10 + 10)]
    assert_array_equal(reading.ids, expected)
    reading.verify()


def test_churn_keeps_the_file_within_half_of_its_live_bytes(path, tmp_path, rng, signals, monkeypatch):
    """As benchmarks/churn.py, which goes on for as long as one likes, at 10^6 entries."""
    monkeypatch.setattr(segments, "MERGED_ENTRIES", 1024)
    monkeypatch.setattr(lmdb_change, "REMOVED_BYTES", 0)
    signals = np.repeat(signals, 16, axis=0)
    index = make_index(path)
    index.add(signals)
    live = path.stat().st_size
    reader = ts.open_index(path, readonly=True)
    for step in range(100):
        ids = index.ids
        index.remove(ids[:64] if step % 2 else rng.choice(ids, 64, replace=False))
        index.add(signals[:64])
        reader.refresh()
        assert path.stat().st_size < 1.5 * live
    assert index.n_removed <= 16_000 / 11
    index.save(tmp_path / "copy.topsign")
    assert (tmp_path / "copy.topsign").stat().st_size < 1.05 * live
    index.verify()


def test_saving_joins_small_segments_that_removals_left(path, tmp_path, signals, small_segments):
    index = make_index(path)
    index.add(signals)
    index.remove(np.arange(0, 1000, 9))
    index.save(tmp_path / "copy.topsign")
    with ts.open_index(tmp_path / "copy.topsign") as copy:
        assert_array_equal(copy.ids, index.ids)
        assert copy.n_removed == 0
        copy.verify()


def test_a_removal_of_most_entries_is_tidied_in_steps(path, signals, small_segments):
    index = make_index(path)
    index.add(signals)
    sequence = index.store._loaded[0].sequence
    index.remove(np.arange(1000)[np.arange(1000) % 4 > 0])
    assert (len(index), index.n_removed) == (250, 0)
    assert index.store._loaded[0].sequence > sequence + 4
    index.verify()


def test_much_metadata_takes_several_segments(path, tmp_path, signals, monkeypatch):
    """A value of LMDB holds 4 GiB at most: segments are cut, and not merged, beyond a limit of their metadata."""
    monkeypatch.setattr(segments, "METADATA_BYTES", 4096)
    notes = [{"row": i, "text": "x" * int(1500 * (i % 7 == 0))} for i in range(40)]
    index = make_index(path)
    index.add(signals[:40][::-1], ids=np.arange(40)[::-1], metadata=notes[::-1])
    for i in range(40, 60):
        notes.append({"row": i, "text": "y" * 500})
        index.add(signals[i], metadata=notes[-1:])
    notes[3] = {"row": 3, "text": "z" * 9000}  # alone in its segment
    index.update_metadata([3], [notes[3]])
    for step in (lambda: None, index.compact, lambda: index.compact(shrink=True)):
        step()
        assert index.get(range(60)).metadata == notes
        sizes = [segment.columns.metadata_bytes for segment in index.store.snapshot.segments]
        assert sum(size > 4096 for size in sizes) == 1
        assert index.search(signals[:60], k=1).ids.ravel().tolist() == list(range(60))
    index.verify()
    index.save(tmp_path / "saved.topsign")
    assert ts.open_index(tmp_path / "saved.topsign").get(range(60)).metadata == notes


def test_a_state_behind_the_count_is_reported(path, signals):
    """A meta page that was put back, with its trees, leads to a sound older state; the count beside it disagrees."""
    with make_index(path) as index:
        index.add(signals[:3])
        index.add(signals[3:6])
    before = path.read_bytes()
    with make_index(path) as index:
        for i in range(6, 8):
            index.add(signals[i])
    after = bytearray(path.read_bytes())
    with open(path, "rb") as file:
        assert lmdb_count.read_count(str(path), file.fileno()) == (4, 8)
    path.write_bytes(before[:2048] + bytes(after[2048:4096]) + before[4096:])
    with pytest.raises(ts.StorageError, match="had come to change 4 with 8 entries, but its newest state is change 2"):
        ts.open_index(path)
    after[2060] ^= 1
    path.write_bytes(after)
    with pytest.raises(ts.StorageError, match="count: damaged: its checksum"):
        ts.open_index(path)
    path.write_bytes(bytes(after[:2048]) + bytes(2048) + bytes(after[4096:]))  # as files of earlier versions have it
    with ts.open_index(path) as index:
        assert len(index) == 8
