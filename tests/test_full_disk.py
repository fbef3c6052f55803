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


def test_a_build_that_fills_the_disk_leaves_no_file_behind(disk, rng):
    from typer.testing import CliRunner

    from topsign.cli.app import app

    signals = rng.standard_normal((20_000, N_FEATURES)).astype(np.float32)
    np.save(disk.parent / "x.npy", signals)
    options = ["--family", "adaptive", "--n-bits", "512", "--n-pool", "2048"]
    shown = CliRunner().invoke(app, ["build", str(disk.parent / "x.npy"), "-o", str(disk / "i.topsign"), *options])
    assert shown.exit_code == 1, shown.output
    assert FULL in " ".join(shown.output.split())
    assert os.listdir(disk) == []
