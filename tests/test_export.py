"""Codes for other engines, and tables of codes: exact in both directions. tests/engines uses real engines."""

import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from numpy.testing import assert_array_equal

import topsign as ts
from topsign import export
from topsign.families import AdaptiveRecipe, GroupedRecipe

SHAPES = [(1, 1), (3, 7), (7, 7), (12, 101), (64, 1024), (2, 16), (30, 240)]  # the last two are grouped codes


def make_codes(rng, n_codes, n_bits, n_pool):
    """Random locations and signs: one of each group of eight if n_bits is n_pool / 8, and any otherwise."""
    signs = rng.choice([-1, 1], (n_codes, n_bits))
    if 8 * n_bits == n_pool and n_bits % 2 == 0:
        locations = 8 * np.arange(n_bits) + rng.integers(8, size=(n_codes, n_bits))
        recipe = GroupedRecipe.make(n_features=n_pool, n_bytes=n_bits // 2, random_state=7)
        nibbles = (locations % 8 + 8 * (signs > 0)).astype(np.uint8)
        return ts.GroupedCodes(nibbles[:, ::2] | nibbles[:, 1::2] << 4, recipe=recipe)
    locations = np.sort([rng.choice(n_pool, n_bits, replace=False) for _ in range(n_codes)], axis=1)
    recipe = AdaptiveRecipe.make(n_features=n_pool, n_bits=n_bits, random_state=7)
    return ts.AdaptiveCodes.from_locations(locations, signs, recipe=recipe)


def test_bits_of_a_sign_index_are_plain_signs(rng):
    index = ts.Index(64, family="sign", n_bytes=7, random_state=7)
    codes = index.get(index.add(rng.standard_normal((5, 64)))).codes
    projected = index.project(rng.standard_normal((3, 64)))
    queries = np.packbits(projected >= 0, axis=1, bitorder="little")
    distances = np.bitwise_count(queries[:, np.newaxis] ^ codes.to_bits()).sum(axis=2)
    assert_array_equal(distances, codes.mismatches(projected))


def test_nearest_orders_ties_by_id_and_refuses_to_guess():
    ids, mismatches = [[9, 4, 7, 1], [3, 2, 1, 0]], [[2, 2, 1, 2], [0, 1, 2, 3]]
    found = export.nearest(ids, mismatches, k=3, n_entries=4)
    assert_array_equal(found[0], [[7, 1, 4], [3, 2, 1]])
    assert_array_equal(found[1], [[1, 2, 2], [0, 1, 2]])
    with pytest.raises(ValueError, match="of 5 entries the 4 nearest were asked for, and the 3-th ties with the last"):
        export.nearest(ids, mismatches, k=3, n_entries=5)
    assert_array_equal(export.nearest(ids[1], mismatches[1], k=3, n_entries=5)[0], [3, 2, 1])


def test_one_hot_codes_come_back(rng):
    for n_bits, n_pool in SHAPES:
        codes = make_codes(rng, 5, n_bits, n_pool)
        assert type(codes).from_bits(codes.to_bits(), recipe=codes.recipe) == codes
    codes = make_codes(rng, 3, 4, 10)
    both = codes.to_bits()
    both[1] = 255
    with pytest.raises(ValueError, match="not a one-hot code at row 1: 4 rows must have one sign each"):
        ts.AdaptiveCodes.from_bits(both, recipe=codes.recipe)
    with pytest.raises(ValueError, match=r"must be uint8 of shape \(n_codes, 3\)"):
        ts.AdaptiveCodes.from_bits(both[:, :2], recipe=codes.recipe)


# Tables


def make_index(rng, *, metric="correlation", n_entries=40):
    index = ts.Index(100, family="adaptive", n_bits=12, random_state=7, metric=metric)
    notes = [{"camera": row, "name": "Zoë"} if row % 3 else None for row in range(n_entries)]
    index.add(rng.standard_normal((n_entries, 100)), ids=rng.permutation(1000)[:n_entries], metadata=notes)
    return index


@pytest.mark.parametrize("metric", ["correlation", "inner_product"])
@pytest.mark.parametrize("form", ["codes", "bits", "sparse"])
def test_an_index_goes_through_parquet_without_loss(rng, tmp_path, monkeypatch, form, metric):
    monkeypatch.setattr(export, "PART_ROWS", 16)  # several row groups
    index = make_index(rng, metric=metric)
    export.write_parquet(tmp_path / "codes.parquet", index, form=form)
    assert [file.name for file in tmp_path.iterdir()] == ["codes.parquet"]
    table = export.read_parquet(tmp_path / "codes.parquet")
    held = index.get(index.ids)
    assert_array_equal(table.entries.ids, held.ids)
    assert table.codes == held.codes
    assert table.entries.metadata == held.metadata
    assert table.recipe == index.recipe
    queries = rng.standard_normal((3, 100))
    assert_array_equal(table.project(queries), index.project(queries))


@pytest.mark.parametrize("form", ["codes", "bits", "sparse"])
def test_codes_without_an_index_and_empty_codes(rng, form):
    encoder = ts.Encoder(100, family="adaptive", n_bits=12, random_state=7).fit(np.zeros((1, 100)))
    codes = encoder.encode(rng.standard_normal((5, 100)))
    table = export.from_arrow(export.to_arrow(codes, form=form))
    assert_array_equal(table.entries.ids, range(5))
    assert table.codes == codes
    assert table.entries.metadata == [None] * 5
    assert table.recipe == encoder.recipe_
    empty = export.from_arrow(export.to_arrow(codes[:0], form=form))
    assert len(empty.entries) == len(empty.codes) == 0
    assert empty.recipe == encoder.recipe_


def test_rows_may_be_filtered_and_reordered(rng):
    index = make_index(rng)
    table = export.to_arrow(index, form="sparse")
    chosen = export.from_arrow(table.take([30, 2, 17]))
    assert chosen.entries.codes == index.get(index.ids[[30, 2, 17]]).codes


def test_tables_without_codes_are_refused(rng, tmp_path):
    path = tmp_path / "other.parquet"
    table = export.to_arrow(make_index(rng))
    told = json.loads(table.schema.metadata[b"topsign"])
    longer = told | {"recipe": told["recipe"] | {"n_bits": 13}}
    for damaged, words in [
        (pyarrow.table({"id": [1]}), "not a table of codes that topsign wrote: its schema has no topsign metadata"),
        (table.drop_columns(["code"]), "it has no column code"),
        (table.replace_schema_metadata({b"topsign": json.dumps(told | {"format": 2})}), "this version reads format 1"),
        (table.drop_columns(["metadata"]), "it has no column metadata"),
        (table.replace_schema_metadata({b"topsign": json.dumps(longer)}), "do not have .* bytes each"),
        (table.replace_schema_metadata({b"topsign": json.dumps(told | {"form": "text"})}), "got 'text'"),
        (table.replace_schema_metadata({b"topsign": json.dumps({"format": 1, "form": "codes"})}), "has no 'recipe'"),
        (export.to_arrow(make_index(rng), form="dense"), "it holds vectors; read them with pyarrow"),
    ]:
        pyarrow.parquet.write_table(damaged, path)
        with pytest.raises(ts.StorageError, match=words) as caught:
            export.read_parquet(path)
        assert str(path) in str(caught.value)
    path.write_bytes(b"PAR1 but nothing else")
    with pytest.raises(ts.StorageError, match=r"other\.parquet"):
        export.read_parquet(path)
    with pytest.raises(TypeError, match="source must be an Index or Codes, got str"):
        export.write_parquet(make_index(rng), str(path))  # the other way round
    with pytest.raises(
        ValueError, match="form must be one of 'codes', 'bits', 'sparse', 'dense' for adaptive codes, got 'text'"
    ):
        export.to_arrow(make_index(rng), form="text")
    with pytest.raises(ValueError, match="an index has its own ids"):
        export.to_arrow(make_index(rng), ids=[1])
    with pytest.raises(ValueError, match="ids must be one per code, got 1 ids for 2 codes"):
        export.to_arrow(make_codes(rng, 2, 3, 10), ids=[1])


def test_ids_of_text_are_texts(rng, tmp_path):
    index = ts.Index(64, family="adaptive", n_bits=8, random_state=7)
    index.add(rng.standard_normal((5, 64)), ids=list("abcde"))
    export.write_parquet(tmp_path / "a.parquet", index)
    table = export.read_parquet(tmp_path / "a.parquet")
    assert table.entries.ids.tolist() == list("abcde")
    assert table.entries.codes == index.get(list("abcde")).codes
