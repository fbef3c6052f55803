"""Malicious input: arrays, files and processes that could make the library crash, hang or return wrong results."""

import mmap
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from small import N_FEATURES, make_index

import topsign as ts
from topsign import kernels

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("path", kernels.available())
@pytest.mark.parametrize("metric", ["correlation", "inner_product"])
@pytest.mark.parametrize("factor", [2.0**56, 2.0**-53])  # powers of two, because norms are rounded
def test_extreme_norms_find_every_entry(rng, path, metric, factor):
    signals = rng.standard_normal((90, N_FEATURES)) * factor / 10
    signals[::2] *= 5
    with kernels.use(path):
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


@pytest.mark.parametrize("kind", ["adaptive", "grouped", "sign"])
@pytest.mark.parametrize("projection", ["sparse", "rademacher"])
def test_signals_without_projections_are_refused(kind, projection):
    options = {"n_bits": 2, "n_pool": 8} if kind == "adaptive" else {"n_bytes": 1}
    index = ts.Index(family=kind, n_features=400, basis=projection, random_state=1, **options)
    rows = index.recipe.projection.rows(range(index.recipe.n_pool))
    signal = np.ones(400)
    signal -= np.linalg.pinv(rows) @ (rows @ signal)  # orthogonal to the whole pool, but for rounding
    if projection == "sparse":
        signal = (rows == 0).all(axis=0).astype(float)  # exactly zero on all of it
    good = rows.sum(axis=0)
    with pytest.raises(ValueError, match=r"signals\[1\]: all its kept projections are zero on this \w+ pool of (8|16)"):
        index.add(np.stack([good, signal]))
    assert len(index) == 0
    index.add(good)
    found = index.search(np.stack([good, signal]), k=1)
    assert_array_equal(found.ids, 0)
    assert np.isfinite(found.scores).all()


# Files with two names, replaced files, deleted files


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cameras.topsign"


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


def test_a_symbolic_link_is_the_folder_that_it_leads_to(filled, signals):
    link = filled.with_name("link.topsign")
    link.symlink_to(filled)
    index = ts.open_index(filled)
    assert run_python(ADD, link).stdout == "added 41\n"
    assert index.refresh()
    index.add(signals[40:])
    assert len(index) == 61
    index.verify()
    assert ts.open_index(link).path == index.path == str(filled)


def test_a_folder_moved_while_open_is_written_by_its_new_name(filled, signals):
    index, moved = ts.open_index(filled), filled.with_name("moved.topsign")
    os.rename(filled, moved)
    assert run_python(ADD, moved).stdout == "added 41\n"
    for call in (lambda: index.add(signals[40:]), index.refresh):
        with pytest.raises(ts.StorageError, match="was replaced, moved or deleted since it was opened"):
            call()
    assert len(index.search(signals[:3])) == 3  # data that were read stay readable
    assert not filled.exists()


@pytest.mark.parametrize(("how", "n_changes"), [("rename", 2), ("rename", 5), ("delete", 5), ("delete", 9)])
def test_a_replaced_path_is_a_new_index(path, signals, n_changes, how):
    """An index stays open while its path is replaced by a new index, whose versions restart; both stay valid."""
    old = make_index(path=path)
    for _ in range(5):
        old.add(signals[:2])
    if how == "rename":
        with make_index(path=path.with_name("new.topsign")) as new:
            for _ in range(n_changes):
                new.add(signals[:3])
        os.rename(path, path.with_name("old.topsign"))
        os.rename(path.with_name("new.topsign"), path)
    else:
        shutil.rmtree(path)
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


def test_a_copy_is_restored_beside_processes_that_have_the_damaged_index_open(filled, signals):
    """The steps of reliability.md; the version that is open has the number of one in the copy's future."""
    shutil.copytree(filled, filled.with_name("backup"))
    index = ts.open_index(filled)
    index.add(signals[40:])
    with ts.open_index(filled.with_name("backup"), readonly=True) as copied:
        copied.verify()
    os.rename(filled, filled.with_name("damaged"))
    os.rename(filled.with_name("backup"), filled)
    for _ in range(2):
        with pytest.raises(ts.StorageError, match="close this index and open it again"):
            index.refresh()
        with ts.open_index(filled) as restored:  # the second time with the same number as the open version
            restored.add(signals[40:])
    index.close()
    with ts.open_index(filled) as restored:
        assert len(restored) == 80
        restored.verify()


# Lock files


def test_a_deleted_lock_file_does_not_admit_two_writers(filled, signals):
    """A writer that waits for a deleted lock file takes the lock file that replaced it."""
    index, other = ts.open_index(filled), ts.open_index(filled, timeout=0.2)
    with index._store.change():
        waiting = threading.Thread(target=lambda: ts.open_index(filled).add(signals[40:41]))
        waiting.start()
        time.sleep(0.1)
        os.unlink(filled / "lock")
        other.add(signals[41:42])  # the lock excludes other writers only while its file exists
    waiting.join(60)
    assert not waiting.is_alive()
    assert len(ts.open_index(filled)) == 42
    ts.open_index(filled).verify()


def test_a_planted_pipe_does_not_block(filled):
    for name in ("segments", "recipes", "versions"):
        for file in list((filled / name).iterdir()):
            content = file.read_bytes()
            file.unlink()
            os.mkfifo(file)
            shown = run_python(ADD, filled)
            assert "is not a regular file" in shown.stdout, shown.stderr
            file.unlink()
            file.write_bytes(content)


# Threads and forks


def test_children_forked_while_threads_open_do_not_hang(filled):
    """Forked children that have the index open can search and write."""
    program = """
        import os, sys, threading, time, numpy as np, topsign as ts
        path, stop = sys.argv[1], threading.Event()
        ts.open_index(path, readonly=True).search(np.ones((1, 64)))  # imports hold locks, too
        def work():
            while not stop.is_set():
                with ts.open_index(path, readonly=True) as index:
                    index.search(np.ones((1, index.n_features)), k=1)
        threads = [threading.Thread(target=work) for _ in range(2)]
        [thread.start() for thread in threads]
        left = 0
        for number in range(12):
            child = os.fork()
            if child == 0:
                try:
                    index = ts.open_index(path)
                    index.remove(index.ids[:1])
                    os._exit(0 if len(index) == 39 - number else 1)
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
