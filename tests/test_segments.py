"""Segments without an index: slicing, grouping and counting."""

import threading
import time

import numpy as np
import pytest
from folders import newest, read_manifest, write_manifest
from numpy.testing import assert_array_equal

import topsign as ts
from topsign.families import SignRecipe
from topsign.store import Snapshot, make_segments
from topsign.store.lock import hold_lock
from topsign.store.manifest import Manifest
from topsign.store.segments import cut_segment
from topsign.store.stores import exists, store_for_recipe


def make_segment(first, n_entries, **columns):
    ids, codes = np.arange(first, first + n_entries), np.arange(4 * n_entries, dtype=np.uint8).reshape(-1, 4)
    (segment,) = make_segments(ids, codes, {}, **columns)
    return segment


@pytest.mark.parametrize("limit", [1, 3, 7, 10, 11])
def test_parts_of_a_segment_are_its_entries(limit):
    segment = make_segment(5, 10, texts=[b'{"n":%d}' % n for n in range(10)])
    parts = cut_segment(segment, limit)
    assert max(map(len, parts)) <= limit
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert_array_equal(np.concatenate([part.ids for part in parts]), segment.ids)
    assert_array_equal(np.concatenate([part.codes for part in parts]), segment.codes)
    assert parts[-1].columns.metadata.texts(range(len(parts[-1])))[-1] == b'{"n":9}'


def test_a_segment_without_metadata_has_no_bytes_of_them():
    assert make_segment(0, 10).columns.metadata_bytes == 0
    assert make_segment(0, 10, texts=[b"{}"] * 10).columns.metadata_bytes > 0


def test_neighbours_are_grouped_while_they_fit():
    snapshot = Snapshot(tuple(make_segment(10 * number, 10) for number in range(10)))
    assert snapshot.groups(limit=30) == [slice(0, 3), slice(3, 6), slice(6, 9), slice(9, 10)]
    assert snapshot.groups(limit=20) == [slice(number, number + 2) for number in range(0, 10, 2)]
    assert snapshot.groups(limit=9) == [slice(number, number + 1) for number in range(10)]


@pytest.mark.parametrize("version", [0, 2**63])
def test_versions_have_positive_numbers_of_64_bits(tmp_path, version):
    ts.SignIndex(n_features=16, random_state=7, path=tmp_path / "index")
    write_manifest(tmp_path / "index", read_manifest(tmp_path / "index") | {"version": version})
    with pytest.raises(ts.StorageError, match="damaged: says that it is version"):
        Manifest.from_bytes(newest(tmp_path / "index").read_bytes(), "index", version)


def test_a_writer_waits_for_the_lock_as_long_as_it_is_told(tmp_path):
    held, path = threading.Event(), str(tmp_path / "lock")

    def hold():
        with hold_lock(path, None, folder="index"):
            held.set()
            time.sleep(0.3)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    with pytest.raises(TimeoutError, match=r"waited 0\.05 s"), hold_lock(path, 0.05, folder="index"):
        pass
    with hold_lock(path, 60, folder="index"):
        holder.join()
    assert not holder.is_alive()


def test_a_store_checks_its_path():
    recipe = SignRecipe.learn(np.ones((1, 16)), n_features=16, random_state=7)
    with pytest.raises(ValueError, match="without a path"):
        store_for_recipe(recipe, path=None, timeout=3)


def test_nothing_exists_in_an_empty_bucket():
    pytest.importorskip("fsspec", reason="needs the extra distributed: pip install 'topsign[distributed]'")
    assert not exists("memory://nothing-was-ever-here/index")
