"""Hostile, failing and restored folders: foreign files are kept, and errors say what is stored."""

import errno
import os
import shutil

import numpy as np
import pytest
from folders import files_of, newest, rewrite
from numpy.testing import assert_array_equal
from small import make_index

import topsign as ts
from topsign.store import backends, folder_store, stored_columns, versions
from topsign.store.backends import LocalFolder
from topsign.store.versions import UnknownOutcomeError

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
        for change in (lambda: index.add(signals[40:]), lambda: index.remove([3], erase=True), index.compact):
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
    monkeypatch.setattr(stored_columns, "INLINE_BYTES", 0)
    strays = [
        f"{folder}/{name}"
        for folder in ("versions", "segments", "removed", "metadata", "recipes")
        for name in ("README.md", ".DS_Store", "notes.json", "codes.safetensors", "2.json", "0" * 32, f"{'1' * 32}.txt")
    ]
    strays += [f"versions/{'2' * 32}.json", f"segments/{'2' * 32}.json", f"segments/.{'2' * 32}"]
    for name in strays:
        (filled / name).write_text("mine")
    left = f"segments/{'0' * 32}.safetensors"  # of a writer that was killed
    (filled / left).write_bytes(b"partial")
    with ts.open_index(filled) as index:
        index.add(signals[40:])
        index.remove([3], erase=True)
        index.verify()
        named = {file.path for file in index._store.now.manifest.files}
    assert left not in files_of(filled)
    assert len(files_of(filled)) == len(named) + 1 + len(strays)


# Versions that readers refuse


@pytest.mark.parametrize("limit", ["versions", "bytes"])
def test_a_version_that_no_reader_accepts_is_not_written(filled, signals, monkeypatch, limit):
    """Otherwise it is acknowledged, and the version before it is deleted."""
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
    monkeypatch.setattr("topsign.store.versions.N_ANCESTORS", 3)
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
    monkeypatch.setattr("topsign.store.versions.N_ANCESTORS", 3)
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


def test_a_change_lists_the_versions_once(filled, signals, monkeypatch):
    listed, plain = [], LocalFolder.list
    monkeypatch.setattr(LocalFolder, "list", lambda self, folder: listed.append(folder) or plain(self, folder))
    index = ts.open_index(filled)
    for change in (lambda: index.add(signals[40:]), lambda: index.remove([3]), index.compact):
        listed.clear()
        change()
        assert listed.count("versions") == 1


def test_files_of_kept_versions_are_kept_and_others_deleted(filled, signals, monkeypatch):
    """Two writers, one of which keeps versions that the other has made."""
    monkeypatch.setattr(stored_columns, "INLINE_BYTES", 0)
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
        named = {file.path for one in opened for file in one._store.now.manifest.files}
        assert len(files_of(filled)) == len(named) + len(kept)
        assert set(named) < set(files_of(filled))
    index.refresh()
    index.remove(index.ids[:1], erase=True)
    assert len(index.versions()) == 1
    assert len(files_of(filled)) == 1 + len({file.path for file in index._store.now.manifest.files})


# Errors after the commit


@pytest.fixture
def failing_disk(monkeypatch):
    """Disk on which, once a manifest has its name, nothing can be synced or deleted until the test repairs it."""
    linked, plain = [], {name: getattr(os, name) for name in ("link", "fsync", "unlink")}

    def link(source, target, **options):
        plain["link"](source, target, **options)
        linked.append(target)

    def fail(name):
        def call(*arguments, **options):
            if linked:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            return plain[name](*arguments, **options)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", link)
        for name in ("fsync", "unlink"):
            patched.setattr(os, name, fail(name))
        yield patched.undo


@posix
@pytest.mark.parametrize("repeated", [True, False])
def test_a_version_that_can_be_neither_synced_nor_removed_is_unknown(filled, signals, failing_disk, repeated):
    """Both versions stay complete, because either can be the newest after a power loss."""
    index, before = ts.open_index(filled), files_of(filled)
    with pytest.raises(UnknownOutcomeError, match="unknown whether the change was stored: Read-only file system"):
        index.add(signals[40:50])
    assert set(before) < set(files_of(filled))
    assert len(index) == 40
    failing_disk()
    with ts.open_index(filled, readonly=True) as reader:
        assert len(reader) == 50
    synced, plain = [], backends.sync_folder
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            backends, "sync_folder", lambda folder: synced.append(os.path.basename(folder)) or plain(folder)
        )
        if repeated:
            assert index.add(signals[40:50]).tolist() == list(range(40, 50))
        else:
            assert index.add(signals[50:]).tolist() == list(range(50, 60))
    assert "versions" in synced, "a version that lies on the unknown one must be durable"
    with ts.open_index(filled) as other:
        other.verify()
        assert_array_equal(other.ids, np.arange(50 if repeated else 60))
        assert other.versions() == [4]
    assert len(files_of(filled)) == 1 + len([*index._store.now.manifest.files])


def test_a_later_sync_does_not_prove_that_a_version_is_durable(filled, signals, monkeypatch):
    """After a failed sync, a system may drop what it could not write; the next sync then succeeds without it."""
    index, failed, plain = ts.open_index(filled), [], backends.sync_folder

    def fail_once(folder):
        if os.path.basename(folder) == "versions" and not failed:
            failed.append(folder)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        plain(folder)

    with monkeypatch.context() as patched:
        patched.setattr(backends, "sync_folder", fail_once)
        patched.setattr(backends.LocalFolder, "delete", lambda *_: False)
        with pytest.raises(UnknownOutcomeError, match="unknown whether the change was stored: Input/output error"):
            index.add(signals[40:50])
    assert index.add(signals[40:50]).tolist() == list(range(40, 50))
    assert len(ts.open_index(filled)) == 50


def test_an_error_of_closing_the_lock_is_no_refusal(filled, signals, monkeypatch):
    """Network file systems report errors of writing when a file is closed."""
    index = ts.open_index(filled)

    class Closing:
        def __init__(self, *arguments, **options):
            self.file = open(*arguments, **options)  # noqa: SIM115

        def __enter__(self):
            return self.file

        def __exit__(self, *_):
            self.file.close()
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    def opened(path, *arguments, **options):
        return (Closing if path.endswith("/lock") else open)(path, *arguments, **options)

    monkeypatch.setattr(backends, "open", opened, raising=False)
    assert index.add(signals[40:]).tolist() == list(range(40, 60))
    index.remove([0])
    index.compact()
    monkeypatch.undo()
    assert len(ts.open_index(filled)) == len(index) == 59


def test_a_folder_that_can_be_neither_synced_nor_removed_is_said_to_exist(tmp_path, signals, monkeypatch):
    def fail(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    memory = make_index()
    memory.add(signals)
    plain = backends.sync_folder
    monkeypatch.setattr(backends, "sync_folder", lambda folder: (fail if folder == str(tmp_path) else plain)(folder))
    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(ts.StorageError, match="exists, but may not survive a power loss: Read-only file system"):
        memory.save(tmp_path / "copy.topsign")
    assert len(ts.open_index(tmp_path / "copy.topsign")) == 60


# Drafts


def test_a_folder_that_is_being_written_for_an_hour_is_not_removed(tmp_path, signals, monkeypatch):
    """Another process that creates an index of the same name removes only drafts whose creators are gone."""
    memory, target, plain = make_index(), tmp_path / "copy.topsign", folder_store.write_segment
    memory.add(signals)

    def write(*arguments):
        (draft,) = tmp_path.glob(".copy*")
        abandoned = tmp_path / f".copy.topsign.{'0' * 32}"
        (abandoned / "segments").mkdir(parents=True)
        for folder in (draft, abandoned):
            os.utime(folder, (1, 1))
        with pytest.raises(ZeroDivisionError):
            backends.make_folder(str(target), lambda folder: 1 / 0)
        assert [*tmp_path.glob(".copy*")] == [draft]
        return plain(*arguments)

    monkeypatch.setattr(folder_store, "write_segment", write)
    memory.save(target)
    assert os.listdir(tmp_path) == ["copy.topsign"]
    with ts.open_index(target) as index:
        index.verify()
        assert len(index) == 60
