"""Segments without an index: slicing, grouping and counting."""

import numpy as np
import pytest
from folders import content_of, newest, read_manifest, size_of, unpack, write_manifest
from numpy.testing import assert_array_equal

import topsign as ts
from topsign.store.segments import Snapshot, cut_segment, make_segments, merge_segments, take_positions
from topsign.store.versions import Manifest


def make_segment(first, n_entries, **columns):
    ids, codes = np.arange(first, first + n_entries), np.arange(4 * n_entries, dtype=np.uint8).reshape(-1, 4)
    (segment,) = make_segments(ids, codes, **columns)
    return segment


@pytest.mark.parametrize("limit", [1, 3, 7, 10, 11])
def test_parts_of_a_segment_are_its_entries(limit):
    segment = make_segment(5, 10, texts=[b'{"n":%d}' % n for n in range(10)])
    parts = cut_segment(segment, limit)
    assert max(map(len, parts)) <= limit
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert_array_equal(np.concatenate([part.ids for part in parts]), segment.ids)
    assert_array_equal(np.concatenate([part.codes.rows() for part in parts]), segment.codes.rows())
    assert parts[-1].columns.metadata.texts(range(len(parts[-1])))[-1] == b'{"n":9}'


def test_neighbours_are_grouped_while_they_fit():
    snapshot = Snapshot(tuple(make_segment(10 * number, 10) for number in range(10)))
    assert snapshot.groups(limit=30) == [slice(0, 3), slice(3, 6), slice(6, 9), slice(9, 10)]
    assert snapshot.groups(limit=20) == [slice(number, number + 2) for number in range(0, 10, 2)]
    assert snapshot.groups(limit=9) == [slice(number, number + 1) for number in range(10)]


@pytest.mark.parametrize("version", [0, 2**63])
def test_versions_have_positive_numbers_of_64_bits(tmp_path, version):
    ts.Index(16, family="sign", n_bytes=2, random_state=7, path=tmp_path / "index")
    write_manifest(tmp_path / "index", read_manifest(tmp_path / "index") | {"version": version})
    with pytest.raises(ts.StorageError, match="damaged: says that it is version"):
        Manifest.from_bytes(newest(tmp_path / "index").read_bytes(), "index", version)


def test_files_hold_codes_in_blocks_of_byte_planes(tmp_path, rng):
    """Code i is lane i % 32 of block i // 32, and unused lanes are zero."""
    path = tmp_path / "index"
    with ts.Index(32, family="sign", n_bytes=4, metric="inner_product", random_state=7, path=path) as index:
        index.add(rng.standard_normal((70, 32)))
        codes = index.get(range(70)).codes.data
    planes = unpack(content_of(path, read_manifest(path)["segments"][0]))["codes"]
    assert planes.shape == (3, 6, 32)
    for i, code in enumerate(codes):
        assert_array_equal(planes[i // 32, :, i % 32], code)
    assert not planes[2, :, 70 % 32 :].any()


@pytest.mark.parametrize("stored", [False, True])
def test_sizes_count_factors_and_unused_lanes(tmp_path, rng, stored):
    options = {"metric": "inner_product", "random_state": 7} | ({"path": tmp_path / "index"} if stored else {})
    index = ts.Index(32, family="grouped", n_bytes=4, **options)
    index.add(rng.standard_normal((33, 32)))
    sizes = index._store.sizes
    assert (sizes["codes"], sizes["ids"]) == (2 * (4 + 2) * 32, 33 * 8)


@pytest.mark.parametrize("n_entries", [40, 3000])  # segments in the manifest, and in files
def test_sizes_count_every_byte_of_the_folder(tmp_path, rng, n_entries):
    signals = rng.standard_normal((n_entries, 32))
    options = {"n_features": 32, "n_bytes": 4, "random_state": 7, "originals": "float16"}
    indexes = [ts.Index(family="grouped", **options, path=path) for path in (None, tmp_path / "index")]
    for index in indexes:
        index.add(signals, ids=[f"t{i}" for i in range(n_entries)], metadata=[{"row": i} for i in range(n_entries)])
        index.learn_regions(n_regions=16)
        index.add(signals[:9], ids=[f"u{i}" for i in range(9)])
        index.remove(["t3"])
        index.update_metadata(["t4"], [{"row": -4}])
    memory, folder = (index._store.sizes for index in indexes)
    assert folder.total() == size_of(tmp_path / "index")
    assert folder.total() == ts.open_index(tmp_path / "index")._store.sizes.total()
    columns = ["codes", "ids", "metadata", "text_ids", "originals", "regions", "removed", "tables"]
    assert set(memory) == set(columns)
    assert set(folder) == {*columns, "manifest"}
    for name in ("codes", "ids", "text_ids"):
        assert memory[name] == folder[name]


@pytest.mark.parametrize("n_entries", [1, 31, 32, 33, 100])
def test_merging_and_cutting_keep_the_codes_of_living_entries(rng, n_entries):
    codes = rng.integers(0, 256, (2 * n_entries, 5)).astype(np.uint8)
    ids = rng.permutation(2 * n_entries)
    parts = [
        segment
        for rows in np.split(np.arange(2 * n_entries), 2)
        for segment in make_segments(ids[rows].copy(), codes[rows].copy())
    ]
    living = rng.random(2 * n_entries) < 0.7
    living[0] = living[-1] = True
    kept = [part.where(living[np.argsort(ids)][part.ids]) for part in parts]
    expected = {int(one): code for one, code in zip(ids, codes, strict=True) if living[np.argsort(ids)][one]}
    merged = merge_segments(kept)
    assert merged.ids.tolist() == sorted(expected)
    assert_array_equal(merged.codes.rows(), [expected[one] for one in sorted(expected)])
    assert merged.codes.planes.shape == (-(-len(expected) // 32), 5, 32)
    some = take_positions(merged, np.arange(len(merged))[::2])
    assert_array_equal(some.codes.rows(), merged.codes.rows()[::2])
    for limit in (1, 7, 32):
        cut = cut_segment(merged, limit)
        assert_array_equal(np.concatenate([part.codes.rows() for part in cut]), merged.codes.rows())
