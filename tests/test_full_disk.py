"""Full disks: changes raise a clear error, stored data stay intact, and no files are left behind."""

import os
import subprocess

import numpy as np
import pytest
from folders import files_of

import topsign as ts
from topsign.store import stored_columns

N_FEATURES = 64
FULL = "the disk is full"


@pytest.fixture
def disk(tmp_path):
    """A file system of 2 MB and 200 inodes."""
    place = tmp_path / "disk"
    place.mkdir()
    options = "size=2m,nr_inodes=200"
    if os.name != "posix" or subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", place]).returncode:
        pytest.skip("only root can mount a small file system")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def fill(disk, what):
    """Use up the bytes or the inodes; return the folder whose deletion frees them."""
    filler = disk / "filler"
    filler.mkdir()
    try:
        for number in range(10**6):
            with open(filler / str(number), "wb", buffering=0) as file:
                while what == "bytes":
                    file.write(bytes(4096))
    except OSError:
        return filler
    raise AssertionError("the disk did not fill")


def empty(filler):
    for file in filler.iterdir():
        file.unlink()
    filler.rmdir()


def state(index):
    return index.ids.tolist(), index.get(index.ids).metadata, index._store.now.next_id


@pytest.mark.parametrize("what", ["bytes", "inodes"])
def test_a_full_disk_refuses_every_change_and_keeps_what_was_there(disk, rng, monkeypatch, what):
    monkeypatch.setattr(stored_columns, "INLINE_BYTES", 0)  # every column is a separate file
    monkeypatch.setattr("topsign.store.folder_store.REMOVED_BYTES", 2**20)
    signals = rng.standard_normal((500, N_FEATURES)).astype(np.float32)
    path = disk / "i.topsign"
    index = ts.Index(N_FEATURES, family="adaptive", n_bits=16, random_state=1, path=path)
    for start in (0, 200):
        index.add(signals[start : start + 200 - start // 2], metadata=(200 - start // 2) * [{"start": start}])
    index.remove([7])
    before, files, filler = state(index), files_of(path), fill(disk, what)
    memory = ts.Index(N_FEATURES, family="adaptive", n_bits=16, random_state=1)
    memory.add(signals)
    learning = ts.Index(N_FEATURES, family="adaptive", n_bits=16, center=True, path=disk / "new.topsign")
    for name, call in {
        "add": lambda: index.add(signals),
        "add one": lambda: index.add(signals[0]),
        "upsert": lambda: index.upsert(signals[:5], ids=range(5)),
        "remove": lambda: index.remove([3]),
        "update_metadata": lambda: index.update_metadata([3], [{"a": 1}]),
        "calibrate": lambda: index.calibrate(rng.standard_normal((200, N_FEATURES))),
        "compact": index.compact,
        "erase": lambda: index.remove([3], erase=True),
        "save": lambda: index.save(disk / "copy.topsign"),
        "save from memory": lambda: memory.save(disk / "copy.topsign"),
        "create": lambda: ts.Index(N_FEATURES, family="adaptive", n_bits=16, path=disk / "new.topsign"),
        "learn": lambda: learning.add(signals),
    }.items():
        with pytest.raises(ts.StorageError, match=FULL):
            call()
        assert state(index) == before, name
        assert files_of(path) == files, name
        assert sorted(os.listdir(disk)) == ["filler", "i.topsign"], name
    index.verify()
    assert state(ts.open_index(path)) == before
    empty(filler)
    index.add(signals[:1])
    index.remove([3], erase=True)
    index.save(disk / "copy.topsign")
    for one in (path, disk / "copy.topsign"):
        reopened = ts.open_index(one)
        reopened.verify()
        assert len(reopened) == len(before[0])


def test_a_disk_that_fills_during_an_addition(disk, rng, monkeypatch):
    """Some segments of an addition are written before the disk is full."""
    monkeypatch.setattr("topsign.store.segments.MERGED_ENTRIES", 500)
    signals = np.tile(rng.standard_normal((1000, N_FEATURES)).astype(np.float32), (100, 1))
    path = disk / "i.topsign"
    index = ts.Index(N_FEATURES, family="sign", random_state=1, path=path)
    index.add(signals[:1000])
    files = files_of(path)
    for _ in range(2):
        with pytest.raises(ts.StorageError, match=f"could not be written, nothing was changed: {FULL}"):
            index.add(signals)
        assert files_of(path) == files
    index.verify()
    assert len(index) == len(ts.open_index(path)) == 1000


@pytest.mark.parametrize("cause", ["full disk", "bad signal"])
def test_a_failed_build_leaves_no_file_behind(disk, rng, cause):
    from typer.testing import CliRunner

    from topsign.cli.app import app

    signals = rng.standard_normal((20_000, N_FEATURES)).astype(np.float32)
    words, options = (FULL, ["--n-bits", "512", "--n-pool", "2048"]) if cause == "full disk" else ("first at row 5", [])
    if cause == "bad signal":
        signals[5] = np.nan
    np.save(disk.parent / "x.npy", signals)
    shown = CliRunner().invoke(
        app, ["build", str(disk.parent / "x.npy"), "-o", str(disk / "i.topsign"), "--family", "adaptive", *options]
    )
    assert shown.exit_code == (1 if cause == "full disk" else 2), shown.output
    assert words in " ".join(shown.output.split())
    assert os.listdir(disk) == []
