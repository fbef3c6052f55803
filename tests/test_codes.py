"""Codes of all families: bytes and exports are lossless, and distances and scores are those of plain loops."""

import hashlib
import json
import pickle
import zlib
from functools import cache

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import topsign as ts
from topsign.codes import HEADER
from topsign.encoding import encode
from topsign.families import AdaptiveRecipe, GroupedRecipe, SignRecipe
from topsign.projections import Projected

pytestmark = pytest.mark.core

SIZES = [(1, 1), (3, 7), (63, 64), (65, 65), (12, 100), (100, 384), (64, 1000), (512, 8192)]


def make_codes(rng, n_codes, n_bits, n_pool, metric="correlation"):
    locations = np.sort([rng.choice(n_pool, n_bits, replace=False) for _ in range(n_codes)], axis=1)
    signs = rng.choice([-1, 1], (n_codes, n_bits))
    factors = rng.integers(1, 256, (n_codes, 2), np.uint8) if metric == "inner_product" else None
    shape = n_codes, n_bits
    return ts.AdaptiveCodes.from_locations(
        locations.reshape(shape), signs.reshape(shape), recipe=make_recipe(n_bits, n_pool, metric), factors=factors
    )


def make_recipe(n_bits, n_pool, metric="correlation"):
    return AdaptiveRecipe.make(n_features=max(2, n_pool), n_pool=n_pool, n_bits=n_bits, metric=metric, random_state=7)


def grouped_codes(rng, n_codes, n_bytes, metric="correlation"):
    recipe = GroupedRecipe.make(n_features=40, n_bytes=n_bytes, metric=metric, random_state=7)
    return ts.GroupedCodes(rng.integers(0, 256, (n_codes, recipe.code_bytes), np.uint8), recipe=recipe)


def projected(codes, values):
    """Mark values as projections of queries, which codes accept."""
    return Projected.of(np.asarray(values, np.float32), codes.recipe)


def made_up_signals(n_signals, n_features):
    """Return pseudo-random integers without a random generator."""
    numbers = np.arange(n_signals * n_features, dtype=np.uint64) * np.uint64(2654435761) % np.uint64(2**32)
    return ((numbers >> np.uint64(7)) % np.uint64(2001)).astype(np.float32).reshape(n_signals, n_features) - 1000


@pytest.mark.parametrize("size", [*SIZES, 1, 2, 5, 64])
def test_one_hot_and_sparse_exports_are_exact(path, rng, size):
    codes = make_codes(rng, 5, *size) if isinstance(size, tuple) else grouped_codes(rng, 5, size)
    n_kept, n_pool = codes.n_kept, codes.n_pool
    values = rng.standard_normal((4, n_pool)).astype(np.float32)
    mismatches = codes.mismatches(projected(codes, values))
    entries = list(zip(codes.signs > 0, codes.locations, strict=True))
    assert_array_equal(mismatches, [[reference.mismatches(q >= 0, *entry) for entry in entries] for q in values])
    bits = codes.to_bits()
    assert_array_equal(bits, [reference.pack(reference.one_hot(where, s, n_pool)) for s, where in entries])
    queries = ts.query_bits(values)
    plain_hamming = ts.hamming(queries[:, np.newaxis], bits, n_bits=2 * n_pool) * 2 * n_pool
    assert_array_equal(np.rint(plain_hamming), n_pool - n_kept + 2 * mismatches)
    sparse = codes.to_sparse()
    assert sparse.shape == (5, n_pool)
    signs = np.where(values >= 0, 1, -1).astype(np.float32)
    assert_array_equal((sparse @ signs.T).T, n_kept - 2 * mismatches)
    assert_array_equal(sparse.toarray(), codes.recipe.levels(codes.data))


def test_grouped_codes_keep_the_largest_of_each_group(rng, path):
    signals = rng.standard_normal((20, 48)).astype(np.float32)
    recipe = GroupedRecipe.make(n_features=48, n_bytes=4, random_state=7)
    codes = ts.GroupedCodes(encode(recipe, signals), recipe=recipe)
    projected = recipe.projection.apply(signals)
    for row, locations, signs in zip(projected, codes.locations, codes.signs, strict=True):
        for group in range(8):
            some = np.abs(row[8 * group : 8 * group + 8]).tolist()
            assert locations[group] == 8 * group + some.index(max(some))
            assert signs[group] == (1 if row[locations[group]] >= 0 else -1)
    again = ts.GroupedCodes.from_locations(codes.locations, codes.signs, recipe=recipe)
    assert again == codes
    with pytest.raises(ValueError, match="one of each group of eight"):
        ts.GroupedCodes.from_locations(np.tile(np.arange(8), (20, 1)), codes.signs, recipe=recipe)


@pytest.mark.parametrize("metric", ["correlation", "inner_product"])
@pytest.mark.parametrize(("n_bits", "n_pool"), SIZES)
def test_bytes_round_trip_near_the_entropy_bound(path, rng, metric, n_bits, n_pool):
    codes = make_codes(rng, 9, n_bits, n_pool, metric)
    message = codes.to_bytes()
    again = ts.read_codes(message)
    assert isinstance(again, ts.AdaptiveCodes)
    assert again == codes
    bound = ts.theory.storage_bits(n_bits=n_bits, n_pool=n_pool) / 8 + 2 * (metric == "inner_product")
    assert len(message) <= 9 * (1.02 * bound + 5) + 64 + len(json.dumps(codes.recipe.to_json()))


def test_empty_codes(path, rng):
    codes = make_codes(rng, 3, 5, 20)[:0]
    assert len(codes) == 0
    assert ts.read_codes(codes.to_bytes()) == codes
    assert codes.locations.shape == (0, 5)
    assert codes.mismatches(projected(codes, np.zeros((2, 20)))).shape == (2, 0)
    assert codes.scores(projected(codes, np.zeros((2, 20)))).shape == (2, 0)
    assert codes.to_sparse().shape == (0, 20)


@cache
def codes_of_each_family():
    signals = np.random.default_rng(1).standard_normal((3, 40))
    trellis = ts.Encoder(signals.shape[1], n_bytes=5, basis="hadamard", center=False, random_state=1).fit(signals)
    signs = ts.Index(40, family="sign", n_bytes=5, random_state=1)
    return {
        "adaptive": make_codes(np.random.default_rng(1), 3, 5, 40),
        "grouped": grouped_codes(np.random.default_rng(1), 3, 5, "inner_product"),
        "sign": signs.get(signs.add(signals)).codes,
        "trellis": trellis.encode(signals),
    }


FAMILIES = ["adaptive", "grouped", "sign", "trellis"]


@pytest.mark.parametrize("family", FAMILIES)
@given(st.data())
def test_any_damage_to_messages_is_noticed(family, data):
    message = codes_of_each_family()[family].to_bytes()
    place = data.draw(st.integers(0, len(message) - 1))
    flipped = bytes([message[place] ^ 1 << data.draw(st.integers(0, 7))])
    with pytest.raises(ts.StorageError, match=r"damaged|not a message of codes|format"):
        ts.read_codes(message[:place] + flipped + message[place + 1 :])
    with pytest.raises(ts.StorageError, match=r"damaged|not a message of codes"):
        ts.read_codes(message[:place])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n_codes", [2**32, 2**61, 2**64 - 1])
def test_a_message_that_claims_more_codes_than_it_has_is_refused(family, n_codes):
    """Its checksum is valid; counts larger than an array can have must not overflow."""
    message = bytearray(codes_of_each_family()[family].to_bytes()[:-4])
    fields = list(HEADER.unpack_from(message))
    fields[3] = n_codes
    HEADER.pack_into(message, 0, *fields)
    with pytest.raises(ts.StorageError, match="damaged"):
        ts.read_codes(bytes(message) + zlib.crc32(message).to_bytes(4, "little"))


def test_slicing_concatenation_equality_and_pickling(rng):
    codes = make_codes(rng, 10, 20, 100)
    assert ts.AdaptiveCodes.concatenate([codes[:4], codes[4], codes[5:]]) == codes
    assert codes[[3, 1]] == ts.AdaptiveCodes.concatenate([codes[3], codes[1]])
    assert codes[np.arange(10) % 2 == 0] == codes[::2]
    assert codes[3] != codes[4]
    assert codes != codes[:9]
    other = make_recipe(20, 100, "inner_product")
    factors = np.full((10, 2), 128, np.uint8)
    assert codes != ts.AdaptiveCodes.from_locations(codes.locations, codes.signs, recipe=other, factors=factors)
    assert pickle.loads(pickle.dumps(codes)) == codes
    assert codes.nbytes == codes.data.nbytes
    with pytest.raises(TypeError, match="unhashable"):
        hash(codes)


def test_inner_products_need_norms(rng):
    codes = make_codes(rng, 3, 5, 40)
    values = projected(codes, rng.standard_normal((2, 40)))
    with pytest.raises(ValueError, match="these codes keep no norms"):
        codes.scores(values, metric="inner_product")
    assert codes.norms is None
    with pytest.raises(ValueError, match="query_norms go with"):
        make_codes(rng, 3, 5, 40, "inner_product").scores(values, query_norms=[1, 1])


def test_query_norms_from_an_orthonormal_pool_are_exact(rng):
    signals = rng.standard_normal((4, 128))
    encoder = ts.Encoder(signals.shape[1], family="adaptive", n_bits=16, random_state=7).fit(signals)
    codes, projected = encoder.encode(signals), encoder.project(signals)
    given = codes.scores(projected, metric="correlation", query_norms=np.linalg.norm(signals, axis=1))
    assert_allclose(codes.scores(projected), given, rtol=1e-5)
    # The score of a signal with its own code is the sum of its kept magnitudes over the expected one.
    kept = -np.sort(-np.abs(np.asarray(projected)), axis=1)[:, :16].sum(axis=1) / np.linalg.norm(signals, axis=1)
    expected = kept / (16 * ts.theory.mean_kept_magnitude(n_bits=16, n_pool=128))
    assert_allclose(np.diag(given), expected, rtol=1e-3)  # projections are rounded to 15 bits
    assert_array_equal(codes.scores(encoder.project(np.zeros((1, 128))), metric="correlation"), 0)


@pytest.mark.parametrize(
    ("n_features", "n_bits", "n_pool", "expected"),
    [
        (64, 8, 64, "970b0d82b1406c6f"),
        (384, 48, 384, "e392be9f4b00b00f"),
        (1000, 65, 600, "b63dfc00f1d10db5"),
        (1000, 129, 2500, "00c27e0f8ef1c17e"),
        (8191, 512, 8191, "d9a540d24f547a84"),
        (8192, 512, 8192, "d77096ed00221a99"),
    ],
)
def test_codes_of_a_seed_never_change(path, n_features, n_bits, n_pool, expected):
    """Adaptive codes and norms, and the grouped and sign codes of pools of about this size."""
    signals = made_up_signals(4, n_features)
    options = {"n_features": n_features, "metric": "inner_product", "random_state": 7}
    digest = hashlib.sha256()
    for recipe in (
        AdaptiveRecipe.make(n_bits=n_bits, n_pool=n_pool, **options),
        GroupedRecipe.make(n_bytes=n_pool // 16, **options),
        SignRecipe.make(n_bytes=n_pool // 8, **options),
    ):
        digest.update(encode(recipe, signals).tobytes())
    assert digest.hexdigest()[:16] == expected


def test_codes_and_queries_of_different_projections_do_not_mix(rng):
    signals = rng.standard_normal((20, 64)).astype(np.float32)
    one, other = (
        ts.Encoder(signals.shape[1], family="adaptive", n_bits=16, random_state=seed).fit(signals) for seed in (1, 2)
    )
    codes = one.encode(signals)
    assert codes[3:7].mismatches(one.project(signals)[2:5]).shape == (3, 4)
    for compare in (codes.mismatches, codes.scores):
        with pytest.raises(ValueError, match="queries and codes were made with different projections"):
            compare(other.project(signals))
    with pytest.raises(ValueError, match="encode all signals with one encoder"):
        ts.AdaptiveCodes.concatenate([codes, other.encode(signals)])
    centred = ts.Encoder(signals.shape[1], family="adaptive", n_bits=16, random_state=1, center=True).fit(signals)
    with pytest.raises(ValueError, match="different projections"):
        codes.scores(centred.project(signals))
    index = ts.Index(64, family="adaptive", n_bits=16, random_state=1)
    index.add(signals)
    assert (index.get(range(20)).codes.mismatches(one.project(signals)) == codes.mismatches(one.project(signals))).all()


def test_signals_are_not_accepted_as_projections(rng):
    """Shapes agree if n_pool is n_features, so only results of project() and marked arrays are accepted."""
    signals = rng.standard_normal((20, 64)).astype(np.float32)
    encoder = ts.Encoder(signals.shape[1], family="adaptive", n_bits=16, random_state=1).fit(signals)
    codes, projected = encoder.encode(signals), encoder.project(signals)
    for compare in (codes.mismatches, codes.scores):
        with pytest.raises(ValueError, match="got a plain ndarray, which may hold the signals themselves"):
            compare(signals)
    joined = np.concatenate([np.asarray(projected)[:5], np.asarray(projected)[5:]])
    assert_array_equal(codes.mismatches(encoder.as_projected(joined)), codes.mismatches(projected))
    with pytest.raises(ValueError, match="one column per row of the pool"):
        encoder.as_projected(signals[:, :7])
    assert_array_equal(
        codes.scores(encoder.recipe_.projection.apply(signals)), codes.scores(projected)
    )  # there is no mean to subtract
    centred = ts.Encoder(signals.shape[1], family="adaptive", n_bits=16, random_state=1, center=True).fit(signals)
    with pytest.raises(ValueError, match="different projections"):
        centred.encode(signals).scores(centred.recipe_.projection.apply(signals))
