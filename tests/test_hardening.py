"""Hostile input: arrays, files and processes that try to make the library crash, hang, or answer wrongly."""

import fcntl
import mmap
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import topsign as ts
from topsign.index.storage.lmdb_environment import Environment

N_FEATURES = 64


def make_index(**options):
    return ts.AdaptiveIndex(**{"n_features": N_FEATURES, "n_bits": 16, "random_state": 1} | options)


# Memory of the caller


@pytest.mark.parametrize("kind", ["copy on write", "anonymous", "shared"])
def test_the_memory_of_the_caller_is_left_alone(tmp_path, rng, kind):
    signals = rng.standard_normal((20_000, N_FEATURES)).astype(np.float32)
    signals.tofile(tmp_path / "signals.bin")
    with open(tmp_path / "signals.bin", "r+b") as file:
        if kind == "copy on write":
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        elif kind == "anonymous":
            pages = mmap.mmap(-1, signals.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            pages = mmap.mmap(-1, signals.nbytes)
    mapped = np.ndarray(signals.shape, np.float32, buffer=pages)
    mapped[:] = expected = -signals
    index, plain = make_index(), make_index()
    index.add(mapped)
    index.search(mapped[:4000], k=1)
    assert_array_equal(mapped, expected)
    plain.add(expected)
    assert index.get(index.ids).codes == plain.get(plain.ids).codes


# Scores that are not finite


@pytest.mark.parametrize("metric", ["correlation", "inner_product"])
@pytest.mark.parametrize(("factor", "word"), [(1e20, "large"), (1e-30, "small"), (1e-43, "small"), (1e-60, "small")])
def test_norms_that_scores_cannot_hold_are_refused(rng, metric, factor, word):
    signals = rng.standard_normal((30, N_FEATURES))
    index = make_index(metric=metric)
    index.add(signals)
    signals[7] *= factor
    for call in (index.add, index.search):
        with pytest.raises(ValueError, match=rf"row 7 is too {word} for float32 scores, its norm is"):
            call(signals)
    assert len(index) == 30


@pytest.mark.parametrize("path", ts.kernels.available())
@pytest.mark.parametrize("metric", ["correlation", "inner_product"])
@pytest.mark.parametrize("factor", [1e17, 1e-16])
def test_extreme_norms_find_every_entry(rng, path, metric, factor):
    signals = rng.standard_normal((90, N_FEATURES)) * factor / 10
    signals[::2] *= 5
    with ts.kernels.use(path):
        index = make_index(metric=metric)
        index.add(signals[:50])
        index.add(signals[50:])
        found = index.search(signals[:5], k=90)
        assert_array_equal(np.sort(found.ids, axis=1), np.tile(np.arange(90), (5, 1)))
        assert np.isfinite(found.scores).all()
        plain = make_index(metric=metric)
        plain.add(signals / factor)
        assert_array_equal(found.ids, plain.search(signals[:5] / factor, k=90).ids)
        assert len(index.within(signals[:1], threshold=-3e38).ids) == 90


@pytest.mark.parametrize("kind", [ts.AdaptiveIndex, ts.SignIndex])
@pytest.mark.parametrize("projection", ["sparse", "rademacher"])
def test_signals_without_projections_are_refused(kind, projection):
    options = {"n_bits": 2} if kind is ts.AdaptiveIndex else {}
    index = kind(n_features=400, n_pool=4, projection=projection, random_state=1, **options)
    rows = index.projection.rows(range(4))
    signal = np.ones(400)
    signal -= np.linalg.pinv(rows) @ (rows @ signal)  # orthogonal to the whole pool, but for rounding
    if projection == "sparse":
        signal = (rows == 0).all(axis=0).astype(float)  # exactly zero on all of it
    good = rows.sum(axis=0)
    with pytest.raises(ValueError, match=r"signals row 1: all its kept projections are zero on this \w+ pool of 4"):
        index.add(np.stack([good, signal]))
    assert len(index) == 0
    index.add(good)
    found = index.search(np.stack([good, signal]), k=1)
    assert_array_equal(found.ids, 0)
    assert np.isfinite(found.scores).all()


# Files reached by two names, replaced, deleted


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cameras.topsign"


@pytest.fixture
def signals(rng):
    return rng.standard_normal((60, N_FEATURES)).astype(np.float32)


@pytest.fixture
def filled(path, signals):
    with make_index(path=path) as index:
        index.add(signals[:40])
    return path


def run_python(program, *arguments, **options):
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


ADD = """
    import sys, numpy as np, topsign as ts
    try:
        index = ts.open_index(sys.argv[1])
        index.add(np.eye(1, index.n_features))
        print("added", len(index))
    except ts.StorageError as error:
        print(error)
"""


def test_a_symbolic_link_is_the_file_that_it_leads_to(filled, signals):
    link = filled.with_name("link.topsign")
    link.symlink_to(filled)
    index = ts.open_index(filled)
    assert run_python(ADD, link).stdout == "added 41\n"
    assert index.refresh()
    index.add(signals[40:])
    assert len(index) == 61
    index.verify()
    assert ts.open_index(link).path == index.path == str(filled)
    assert not os.path.exists(f"{link}-lock")


def test_a_file_with_two_hard_links_is_refused(filled):
    os.link(filled, filled.with_name("other.topsign"))
    for name in ("cameras.topsign", "other.topsign"):
        with pytest.raises(ts.StorageError, match=r"has 2 names \(hard links\); .* keep one name, or make a real copy"):
            ts.open_index(filled.with_name(name))
    os.unlink(filled)
    assert len(ts.open_index(filled.with_name("other.topsign"))) == 40


def test_a_draft_left_by_a_killed_creator_is_cleared(filled):
    os.link(filled, filled.with_name(".cameras.topsign.0123456789abcdef"))
    assert len(ts.open_index(filled)) == 40
    assert not list(filled.parent.glob(".*"))


def test_a_draft_that_its_creator_removes_meanwhile_is_no_error(filled, monkeypatch):
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: [*listed(folder), f".{filled.name}.{'0' * 16}"])
    os.link(filled, filled.with_name("second"))
    with pytest.raises(ts.StorageError, match=r"has 2 names"):
        ts.open_index(filled)


@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="open file description locks are Linux's")
def test_a_file_moved_while_open_is_refused_by_its_new_name(filled, signals):
    index, moved = ts.open_index(filled), filled.with_name("moved.topsign")
    os.rename(filled, moved)
    assert "another process has this file open under another name" in run_python(ADD, moved).stdout
    with pytest.raises(ts.StorageError, match="is open in this process as"):
        ts.open_index(moved)
    with pytest.raises(ts.StorageError, match="was replaced, moved or deleted since it was opened"):
        index.add(signals[40:])
    assert len(index.search(signals[:3])) == 3  # what was read stays readable
    index.close()
    del index
    assert run_python(ADD, moved).stdout == "added 41\n"


@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="open file description locks are Linux's")
def test_a_removed_lock_file_does_not_split_readers_from_writers(filled):
    index = ts.open_index(filled)
    os.unlink(f"{filled}-lock")
    assert "under a lock file that was removed" in run_python(ADD, filled).stdout
    index.close()
    del index
    assert run_python(ADD, filled).stdout == "added 41\n"


@pytest.mark.parametrize("n_changes", [1, 2, 5, 9])
@pytest.mark.parametrize("how", ["rename", "delete"])
def test_a_replaced_path_is_a_new_file(path, signals, n_changes, how):
    """An old file stays open while its path leads to a new index: both are sound, nothing hangs, nothing is lost."""
    old = make_index(path=path)
    for _ in range(5):
        old.add(signals[:2])
    if how == "rename":
        with make_index(path=path.with_name("new.topsign")) as new:
            for _ in range(n_changes):
                new.add(signals[:3])
        os.replace(path.with_name("new.topsign"), path)
    else:
        os.unlink(path)
        with make_index(path=path) as new:
            new.add(signals[: 3 * n_changes])
    expected = 3 * n_changes
    assert run_python(ADD, path).stdout == f"added {expected + 1}\n"
    with ts.open_index(path) as new:
        assert len(new) == expected + 1
        new.add(signals[40:])
        for call in (lambda: old.add(signals[:1]), old.refresh):
            with pytest.raises(ts.StorageError, match="was replaced, moved or deleted since it was opened"):
                call()
        assert len(old.search(signals[:2], k=20).ids) == 2
        new.verify()
    assert run_python(ADD, path).stdout == f"added {expected + 22}\n"


def test_adding_to_a_deleted_file_is_refused(filled, signals):
    index = ts.open_index(filled)
    os.unlink(filled)
    with pytest.raises(ts.StorageError, match="was replaced, moved or deleted"):
        index.add(signals[40:])


def test_a_copy_is_restored_beside_processes_that_have_the_damaged_file_open(filled, signals):
    """The steps of docs/reliability.md."""
    shutil.copy(filled, filled.with_name("backup"))
    index = ts.open_index(filled)
    index.add(signals[40:])
    draft = filled.with_name("cameras.topsign.new")
    shutil.copy(filled.with_name("backup"), draft)
    with ts.open_index(draft, readonly=True) as copied:
        copied.verify()
    os.replace(draft, filled)
    with pytest.raises(ts.StorageError, match="close this index and open it again"):
        index.refresh()
    index.close()
    with ts.open_index(filled) as restored:
        assert len(restored) == 40
        restored.add(signals[40:])
        restored.verify()


# Lock files


def test_a_planted_lock_file_is_refused_or_replaced(filled, tmp_path):
    lock, victim = f"{filled}-lock", tmp_path / "victim"
    victim.write_bytes(b"precious")
    os.unlink(lock)
    os.symlink(victim, lock)
    with pytest.raises(ts.StorageError, match="is a link or a special file, not a lock file; remove it"):
        ts.open_index(filled)
    assert victim.read_bytes() == b"precious"
    for content in (b"", b"junk", bytes(10**5), os.urandom(65_712)):
        os.unlink(lock)
        Path(lock).write_bytes(content)
        with ts.open_index(filled) as index:
            index.verify()
        assert os.path.getsize(lock) == 65_712


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_lock_file_of_a_stranger_is_refused(filled):
    os.chown(f"{filled}-lock", 65534, 65534)
    with pytest.raises(ts.StorageError, match="belongs to user 65534, who owns neither this process nor the index"):
        ts.open_index(filled)
    filled.chmod(0o664)  # a group may share it
    assert len(ts.open_index(filled)) == 40


def test_a_full_disk_refuses_the_lock_file_in_words(filled, tmp_path):
    """Where the lock file cannot be allocated, opening says so and the process lives."""
    os.unlink(f"{filled}-lock")
    program = """
        import resource, signal, sys, topsign as ts, topsign.index.storage.lmdb_store
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try:
            print(len(ts.open_index(sys.argv[1], readonly=True)))
        except ts.StorageError as error:
            print(error)
    """
    shown = run_python(program, filled)
    assert shown.returncode == 0
    assert "lock file: cannot be made" in shown.stdout
    assert os.listdir(tmp_path) == ["cameras.topsign"]


def test_the_lock_file_has_no_holes(filled):
    assert os.stat(f"{filled}-lock").st_blocks * 512 >= 65_712


def test_slots_of_killed_readers_are_cleared_at_open(filled):
    program = """
        import os, signal, sys, topsign as ts
        indexes = [ts.open_index(sys.argv[1], readonly=True)]
        environment = indexes[0].store._environment
        views = [environment.view() for _ in range(int(sys.argv[2]))]
        os.kill(os.getpid(), signal.SIGKILL)
    """
    for _ in range(3):
        assert run_python(program, filled, 700).returncode == -9
    with ts.open_index(filled) as index:
        assert index.store._environment._lmdb.info()["num_readers"] <= 1024
        assert index.store._environment._lmdb.readers().count("\n") <= 3
        index.add(np.eye(1, N_FEATURES))


# Threads and forks


def test_opening_and_closing_in_threads(filled):
    problems, stop, other = [], threading.Event(), filled.with_name("other.topsign")
    shutil.copy(filled, other)
    with ts.open_index(other) as index:
        index.remove(range(10))

    def work(path, expected):
        while not stop.is_set():
            try:
                with ts.open_index(path, readonly=True) as index:
                    index.search(np.ones((1, N_FEATURES)), k=3, n_threads=1)
                    if len(index) != expected:
                        problems.append(len(index))
            except Exception as error:
                problems.append(error)

    threads = [threading.Thread(target=work, args=(path, n)) for path, n in 2 * [(filled, 40), (other, 30)]]
    for thread in threads:
        thread.start()
    time.sleep(1.5)
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert not [key for key in Environment._open if key == (os.stat(filled).st_dev, os.stat(filled).st_ino)]


def test_a_file_is_closed_that_was_left_while_another_was_closed(filled, monkeypatch):
    """Who is busy with the list of open files looks again when it is done: the other does not wait for it."""
    other = filled.with_name("other.topsign")
    shutil.copy(filled, other)
    first, second = ts.open_index(filled), ts.open_index(other)
    keys = [(os.stat(path).st_dev, os.stat(path).st_ino) for path in (filled, other)]
    plain = Environment._close_unused

    def close_late():
        plain()
        if not second.store._closed:
            leaving = threading.Thread(target=second.close)
            leaving.start()
            leaving.join()

    monkeypatch.setattr(Environment, "_close_unused", close_late)
    first.close()
    assert not [key for key in keys if key in Environment._open]


def test_children_forked_while_threads_open_do_not_hang(filled):
    """They answer, or say in words why they cannot."""
    program = """
        import os, sys, threading, time, numpy as np, topsign as ts
        path, stop = sys.argv[1], threading.Event()
        ts.open_index(path, readonly=True).search(np.ones((1, 64)))  # imports hold locks, too
        def work():
            while not stop.is_set():
                with ts.open_index(path, readonly=True) as index:
                    index.search(np.ones((1, index.n_features)), k=1, n_threads=1)
        threads = [threading.Thread(target=work) for _ in range(2)]
        [thread.start() for thread in threads]
        left = 0
        for _ in range(12):
            child = os.fork()
            if child == 0:
                try:
                    os._exit(0 if len(ts.open_index(path, readonly=True)) == 40 else 1)
                except ts.StorageError as error:
                    os._exit(0 if "was in use by other threads when this process was forked" in str(error) else 2)
                except BaseException as error:
                    os.write(2, repr(error).encode())
                    os._exit(3)
            deadline = time.monotonic() + 60
            while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
                time.sleep(0.01)
            if ended[0] == 0:
                os.kill(child, 9)
                os.waitpid(child, 0)
                left += 1
            elif ended[1]:
                print("failed", ended[1])
        stop.set()
        [thread.join() for thread in threads]
        print("hanging", left)
    """
    shown = run_python(program, filled)
    assert shown.stdout == "hanging 0\n", shown.stderr


# Damaged meta pages


def test_no_flipped_bit_of_a_transaction_number_hides_entries(path, signals):
    """Every bit of both numbers, after one addition and after more: the newest state, or an error."""
    for n_changes in (1, 2, 3):
        file = path.with_name(f"{n_changes}.topsign")
        with make_index(path=file) as index:
            for change in range(n_changes):
                index.add(signals[change : change + 1])
        whole = file.read_bytes()
        for page in (0, 4096):
            for bit in range(64):
                damaged = bytearray(whole)
                damaged[page + 144 + bit // 8] ^= 1 << bit % 8
                file.write_bytes(damaged)
                try:
                    with ts.open_index(file, readonly=True) as index:
                        assert len(index) == n_changes
                except ts.StorageError:
                    pass
