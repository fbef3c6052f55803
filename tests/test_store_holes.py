"""Stores that others have prepared, disturbed or restored: nothing foreign is deleted, nothing stored is denied."""

import os
import shutil

import numpy as np
import pytest
from folders import files_of, newest, rewrite

import topsign as ts
from topsign.store import stored_file, versions
from topsign.store.local import LocalFolder

pytestmark = pytest.mark.core
posix = pytest.mark.skipif(os.name == "nt", reason="needs links")


# Links and foreign files


@posix
@pytest.mark.parametrize("name", ["versions", "segments", "removed", "metadata", "recipes", "lock"])
def test_nothing_is_written_or_deleted_through_a_link(filled, signals, tmp_path, name):
    """An archive can contain links to folders of the user who unpacks it."""
    outside = tmp_path / "outside"
    if name == "lock":
        (filled / "lock").unlink()
        (filled / "lock").symlink_to(outside)
        before = None
    else:
        (filled / name).rename(outside)
        (filled / name).symlink_to(outside)
        (outside / "thesis.tex").write_text("precious")
        (outside / f"{'0' * 32}.safetensors").write_text("precious")
        before = sorted(os.listdir(outside))
    with ts.open_index(filled) as index:
        assert index.search(signals[:1], k=1).ids == [[0]], "reading is safe"
        for change in (lambda: index.add(signals[40:]), lambda: index.erase([3]), index.compact):
            with pytest.raises(ts.StorageError, match=f"nothing was changed: {name} is a link"):
                change()
    assert outside.exists() == (name != "lock")
    assert before is None or sorted(os.listdir(outside)) == before
    if name != "lock":
        folder = LocalFolder(str(filled))  # workers of a cluster write without the lock
        with pytest.raises(OSError, match="is a link"):
            folder.create(f"{name}/{'1' * 32}.safetensors", [b"1"])
        assert not folder.delete(f"{name}/thesis.tex")
        assert sorted(os.listdir(outside)) == before


def test_files_of_others_are_kept(filled, signals, monkeypatch):
    monkeypatch.setattr(stored_file, "INLINE_BYTES", 0)
    strays = [
        f"{folder}/{name}"
        for folder in ("versions", "segments", "removed", "metadata", "recipes")
        for name in ("README.md", ".DS_Store", "notes.json", "codes.safetensors", "2.json")
    ]
    for name in strays:
        (filled / name).write_text("mine")
    left = f"segments/{'0' * 32}.safetensors"  # of a writer that was killed
    (filled / left).write_bytes(b"partial")
    with ts.open_index(filled) as index:
        index.add(signals[40:])
        index.erase([3])
        index.verify()
        named = {file.path for file in index.store.now.manifest.files}
    assert left not in files_of(filled)
    assert len(files_of(filled)) == len(named) + 1 + len(strays)


# Versions that readers refuse


@pytest.mark.parametrize("limit", ["versions", "bytes"])
def test_a_version_that_no_reader_accepts_is_not_written(filled, signals, monkeypatch, limit):
    """It would be acknowledged, and the version before it deleted."""
    if limit == "versions":
        rewrite(filled, manifest=lambda record: record.update(version=2**63 - 1))
        newest(filled).rename(filled / "versions" / f"{2**63 - 1:020d}.json")
    else:
        monkeypatch.setattr(versions, "MAX_BYTES", newest(filled).stat().st_size)
    before = files_of(filled)
    with ts.open_index(filled) as index:
        with pytest.raises(ts.StorageError, match="nothing was changed: readers accept at most 9223372036854775807"):
            index.add(signals[40:])
        assert len(index) == 40
    assert files_of(filled) == before
    with ts.open_index(filled) as index:
        index.verify()
        assert len(index) == 40


# Restored copies


@pytest.mark.parametrize("n_changes", [2, 8])
def test_a_change_meant_for_a_lost_branch_touches_no_other_entry(filled, signals, monkeypatch, n_changes):
    """A copy is restored under an open index, and others change it until its manifest forgets the old ancestors."""
    monkeypatch.setattr("topsign.store.manifest.N_ANCESTORS", 3)
    index = ts.open_index(filled)
    copy = shutil.copytree(filled, filled.with_name("copy"))
    index.add(signals[40:45], metadata=[{"of": "lost branch"}] * 5)
    index.add(signals[45:46], source=("a.npy", {"taken": 1}))
    shutil.rmtree(filled)
    copy.rename(filled)
    with pytest.raises(ts.StorageError, match="was replaced, moved or deleted since it was opened"):
        index.refresh()
    with ts.open_index(filled) as other:
        for row in range(n_changes):
            other.add(signals[row : row + 1], metadata=[{"of": "restored"}])
    words = "changed by another client since" if n_changes > 4 else "was replaced, moved or deleted"
    for change in (
        lambda: index.remove([43]),
        lambda: index.update_metadata([41], [{"n": 1}]),
        lambda: index.upsert(signals[:1], ids=[40]),
        lambda: index.add(signals[:1], source=("a.npy", {"taken": 2})),
    ):
        with pytest.raises(ts.StorageError, match=words):
            change()
    with ts.open_index(filled) as other:
        assert len(other) == 40 + n_changes
        assert other.get([40, 41]).metadata == [{"of": "restored"}] * 2


def test_a_writer_that_slept_long_changes_entries_that_it_saw(filled, signals, monkeypatch):
    monkeypatch.setattr("topsign.store.manifest.N_ANCESTORS", 3)
    index = ts.open_index(filled)
    with ts.open_index(filled) as other:
        for row in range(8):
            other.add(signals[row : row + 1])
        other.compact()
    index.remove([3])
    index.update_metadata([4], [{"n": -4}])
    assert len(index) == 47
    assert index[4].metadata == {"n": -4}


# Kept versions


def test_a_change_does_not_read_every_kept_version(filled, signals, monkeypatch):
    read, plain = [], LocalFolder.read
    monkeypatch.setattr(LocalFolder, "read", lambda self, name, limit: read.append(name) or plain(self, name, limit))
    with ts.open_index(filled, keep_versions=100) as index:
        for row in range(20):
            index.add(signals[row : row + 1])
        assert index.versions() == list(range(2, 23))
    assert len([name for name in read if name.startswith("versions/")]) <= 50


def test_files_of_kept_versions_are_kept_and_others_deleted(filled, signals, monkeypatch):
    """Two writers, one of which keeps versions that the other has made."""
    monkeypatch.setattr(stored_file, "INLINE_BYTES", 0)
    rng = np.random.default_rng(3)
    index, other = ts.open_index(filled, keep_versions=4), ts.open_index(filled, keep_versions=5)
    for number in range(40):
        writer = other if number % 7 == 3 else index
        writer.refresh()
        kind = rng.integers(4)
        if kind == 0:
            writer.add(signals[:20])
        elif kind == 1:
            writer.remove(rng.choice(writer.ids, 5, replace=False))
        elif kind == 2:
            writer.update_metadata(writer.ids[:2], [{"number": number}] * 2)
        else:
            writer.compact()
        kept = writer.versions()
        opened = [ts.open_index(filled, version=version) for version in kept]
        for one in opened:
            one.verify()
        named = {file.path for one in opened for file in one.store.now.manifest.files}
        assert len(files_of(filled)) == len(named) + len(kept)
        assert set(named) < set(files_of(filled))
    index.refresh()
    index.erase(index.ids[:1])
    assert len(index.versions()) == 1
    assert len(files_of(filled)) == 1 + len({file.path for file in index.store.now.manifest.files})
