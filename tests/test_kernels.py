"""Every kernel is bit-identical to the reference on every path, with any number of threads."""

import os
import signal
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import combinations, pairwise, product

import numpy as np
import pytest
import reference
from faults import sanitize
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy_kernels import PATHS, NumpyKernels, use_path

from topsign import kernels
from topsign.kernels import CodeRange, Layout
from topsign.theory import storage_bits

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("small_grains")]

TWIN = NumpyKernels()
EDGES = [1, 2, 3, 5, 8, 63, 64, 65, 100, 127, 128, 129, 384, 1000]
POOLS = [(1, 1), (1, 64), (5, 63), (63, 63), (64, 64), (65, 65), (8, 127), (128, 128), (17, 129), (129, 129)]
POOLS += [(1, 1000), (100, 384), (250, 1000), (512, 8192), (2000, 8191), (8192, 8192), (3, 2**24), (40, 100_000)]


def on_all_paths():
    """Every path with one thread and with three."""
    for name in PATHS:
        with use_path(name) as chosen:
            for n_threads in (1, 3):
                yield chosen, n_threads


def spiky(rng, n):
    """Return five signals: dense, a spike, few values (ties), zeros of both signs, huge range."""
    spike = np.eye(1, n)[0]
    zeros = np.where(rng.random(n) < 0.5, 0.0, -0.0)
    wide = rng.standard_normal(n) * 10.0 ** rng.integers(-12, 12, n)
    return np.array([rng.standard_normal(n), spike, rng.integers(-1, 2, n), zeros, wide], dtype=np.float32)


def random_codes(rng, n_codes, n_bits, n_pool):
    locations = [np.sort(rng.choice(n_pool, n_bits, replace=False)) for _ in range(n_codes)]
    return np.array(locations, np.int32), rng.random((n_codes, n_bits)) < 0.5


def test_the_native_library_is_built_here():
    assert "portable" in kernels.available()


@pytest.mark.parametrize("n", [*EDGES, 2048, 8191])
def test_rotation_equals_the_reference(rng, n):
    signals = spiky(rng, n)[: 5 if n <= 1000 else 2]
    rounds = 3 if n & (n - 1) == 0 else 6
    signs = rng.random((rounds, n)) < 0.5
    packed = np.packbits(signs, axis=1, bitorder="little")
    expected = np.array([reference.rotate(x, np.where(signs, 1, -1)) for x in signals])
    for chosen, n_threads in on_all_paths():
        actual = chosen.rotate(signals, packed, n_threads=n_threads)
        assert_array_equal(actual.view(np.uint32), expected.view(np.uint32), chosen.name)


@pytest.mark.parametrize("n", [2, 3, 64, 100, 384, 1000])
def test_transposed_rotation_undoes_the_rotation(path, rng, n):
    signals = rng.standard_normal((4, n)).astype(np.float32)
    signs = np.packbits(rng.random((6, n)) < 0.5, axis=1, bitorder="little")
    back = path.rotate(path.rotate(signals, signs), signs, transpose=True) / n
    # Errors of twelve rounds of float32 additions grow with the square root of the number of additions.
    assert np.abs(back - signals).max() < 2**-24 * 8 * np.sqrt(12 * np.log2(2 * n)) * np.abs(signals).max()


@pytest.mark.parametrize("n", EDGES)
def test_square_norms_equal_the_reference(rng, n):
    signals = spiky(rng, n)
    expected = [reference.square_norm(x) for x in signals]
    for chosen, n_threads in on_all_paths():
        assert_array_equal(chosen.square_norms(signals, n_threads=n_threads), expected, chosen.name)


@pytest.mark.parametrize("n", EDGES)
def test_inner_products_equal_the_reference(rng, n):
    rows, vector = spiky(rng, n), rng.standard_normal(n)
    expected = [reference.inner_product(row, vector) for row in rows]
    for chosen, n_threads in on_all_paths():
        assert_array_equal(chosen.inner_products(rows, vector, n_threads=n_threads), expected, chosen.name)


@pytest.mark.parametrize("n", EDGES)
def test_sums_of_magnitudes_equal_the_reference_and_select_of_all(rng, n):
    projected = spiky(rng, n)
    expected = [reference.magnitude_sum(x) for x in projected]
    for chosen, n_threads in on_all_paths():
        assert_array_equal(chosen.magnitude_sums(projected, n_threads=n_threads), expected, chosen.name)
        assert_array_equal(chosen.select(projected, n)[2], expected, chosen.name)


def assert_selection(projected, n_bits):
    expected = [reference.select_locations(row, n_bits) for row in projected]
    kept = np.take_along_axis(projected, np.array(expected), axis=1)
    for chosen, n_threads in on_all_paths():
        locations, signs, totals = chosen.select(projected, n_bits, n_threads=n_threads)
        assert_array_equal(locations, expected, chosen.name)
        assert_array_equal(signs, [reference.pack(row >= 0) for row in kept], chosen.name)
        assert_array_equal(totals, [reference.lane_sum(np.abs(row)) for row in kept], chosen.name)


@pytest.mark.parametrize("n_pool", [*EDGES, 2048, 5000, 8192])
def test_selection_equals_the_reference(rng, n_pool):
    for n_bits in {1, min(7, n_pool), max(1, n_pool // 16), n_pool}:
        assert_selection(spiky(rng, n_pool), n_bits)


@pytest.mark.parametrize("sampled", [100.0, 0.001])
def test_selection_survives_a_misleading_sample(rng, sampled):
    """The AVX2 path first samples 8 of every 128 rows; here those rows differ from all others."""
    projected = rng.standard_normal((3, 8192)).astype(np.float32)
    projected[:, np.arange(8192) % 128 < 8] *= sampled
    for n_bits in (1, 100, 512, 600, 4000):
        assert_selection(projected, n_bits)


@given(st.data(), st.integers(1, 300))
def test_selection_with_ties_everywhere(data, n_pool):
    values = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 1e-45, 3e38])
    row = data.draw(st.lists(values, min_size=n_pool, max_size=n_pool))
    assert_selection(np.array([row], np.float32), data.draw(st.integers(1, n_pool)))


@pytest.mark.parametrize("n", EDGES)
def test_packed_bits_equal_the_reference(rng, n):
    projected = spiky(rng, n)
    for chosen, n_threads in on_all_paths():
        actual = chosen.pack_bits(projected, n_threads=n_threads)
        assert_array_equal(actual, [reference.pack(row >= 0) for row in projected], chosen.name)


@pytest.mark.parametrize(("n_bits", "n_pool"), POOLS)
@pytest.mark.parametrize("name", kernels.LAYOUTS)
def test_codes_equal_the_reference(rng, name, n_bits, n_pool):
    n_codes = 4
    locations, bits = random_codes(rng, n_codes, n_bits, n_pool)
    signs = np.packbits(bits, axis=1, bitorder="little")
    layout = Layout(name, n_bits, n_pool)
    if name == "fast":
        expected = [reference.pack_fast(*code, n_pool) for code in zip(locations.tolist(), bits, strict=True)]
    elif n_pool < 2**24:
        expected = [reference.pack_compact(*code, n_pool) for code in zip(locations.tolist(), bits, strict=True)]
    else:
        expected = None  # the reference would need 2**24 Python integers; the round trip below is still tested
    for chosen, n_threads in on_all_paths():
        codes = chosen.pack_codes(layout, locations, signs, n_threads=n_threads)
        assert codes.shape == (n_codes, layout.code_bytes)
        if expected is not None:
            assert_array_equal(codes, expected, chosen.name)
        again = chosen.unpack_codes(layout, codes, n_threads=n_threads)
        assert_array_equal(again[0], locations, chosen.name)
        assert_array_equal(again[1], signs, chosen.name)


@given(st.data(), st.sampled_from(kernels.LAYOUTS), st.integers(1, 400))
def test_any_code_survives_packing(data, name, n_pool):
    locations = sorted(data.draw(st.sets(st.integers(0, n_pool - 1), min_size=1)))
    bits = data.draw(st.lists(st.booleans(), min_size=len(locations), max_size=len(locations)))
    layout = Layout(name, len(locations), n_pool)
    expected = {"fast": reference.pack_fast, "compact": reference.pack_compact}[name](locations, bits, n_pool)
    for chosen, _ in on_all_paths():
        codes = chosen.pack_codes(layout, np.array([locations], np.int32), np.uint8([reference.pack(bits)]))
        assert_array_equal(codes, [expected])
        again = chosen.unpack_codes(layout, codes)
        assert_array_equal(again[0], [locations])
        assert_array_equal(again[1], [reference.pack(bits)])


@given(st.sampled_from(kernels.LAYOUTS), st.integers(1, 300), st.integers(0, 2**32), st.data())
def test_arbitrary_bytes_unpack_to_rows_of_the_pool(name, n_pool, seed, data):
    layout = Layout(name, data.draw(st.integers(1, n_pool)), n_pool)
    garbage = np.random.default_rng(seed).integers(0, 256, (3, layout.code_bytes), dtype=np.uint8)
    unpacked = [chosen.unpack_codes(layout, garbage) for chosen, _ in on_all_paths()]
    for locations, signs in unpacked:
        assert locations.min() >= 0
        assert locations.max() < n_pool
        assert_array_equal(locations, unpacked[0][0])
        assert_array_equal(signs, unpacked[0][1])


def is_code(data, name, n_bits, n_pool):
    """Return whether the reference packs any ascending locations and signs to these bytes, by trying all."""
    pack = {"fast": reference.pack_fast, "compact": reference.pack_compact}[name]
    sets = combinations(range(n_pool), n_bits)
    return any(pack(rows, bits, n_pool) == data for rows in sets for bits in product([0, 1], repeat=n_bits))


@pytest.mark.parametrize("name", kernels.LAYOUTS)
@pytest.mark.parametrize(("n_bits", "n_pool"), [(1, 1), (2, 3), (1, 9), (2, 5), (3, 6)])
def test_valid_codes_are_those_the_reference_packs(rng, name, n_bits, n_pool):
    layout = Layout(name, n_bits, n_pool)
    locations, bits = random_codes(rng, 30, n_bits, n_pool)
    codes = TWIN.pack_codes(layout, locations, np.packbits(bits, axis=1, bitorder="little"))
    codes[10:] ^= (1 << rng.integers(0, 8, codes[10:].shape) & 255).astype(np.uint8) * (
        rng.random(codes[10:].shape) < 0.3
    )
    expected = [is_code(code.tolist(), name, n_bits, n_pool) for code in codes]
    assert {True, False} <= set(expected)
    for chosen, n_threads in on_all_paths():
        assert_array_equal(chosen.valid_codes(layout, codes, n_threads=n_threads), expected, chosen.name)


@pytest.mark.parametrize(("n_bits", "n_pool"), [pair for pair in POOLS if pair[1] < 2**24])
@pytest.mark.parametrize("name", [*kernels.LAYOUTS, "signs"])
def test_a_flipped_bit_is_judged_alike_on_every_path(rng, name, n_bits, n_pool):
    if name == "signs":
        n_bits = n_pool
        codes = np.packbits(rng.random((40, n_pool)) < 0.5, axis=1, bitorder="little")
        layout = Layout(name, n_pool, n_pool)
    else:
        layout = Layout(name, n_bits, n_pool)
        locations, bits = random_codes(rng, 40, n_bits, n_pool)
        codes = TWIN.pack_codes(layout, locations, np.packbits(bits, axis=1, bitorder="little"))
    for chosen, _ in on_all_paths():
        assert chosen.valid_codes(layout, codes).all()
    codes[np.arange(40), rng.integers(0, layout.code_bytes, 40)] ^= 1 << rng.integers(0, 8, 40).astype(np.uint8)
    verdicts = [chosen.valid_codes(layout, codes, n_threads=n_threads) for chosen, n_threads in on_all_paths()]
    for verdict in verdicts:
        assert_array_equal(verdict, verdicts[-1])


@pytest.mark.parametrize(("n_bits", "n_pool"), [pair for pair in POOLS if pair[1] < 2**24])
@pytest.mark.parametrize("name", kernels.LAYOUTS)
def test_mismatches_and_scores_equal_the_reference(rng, name, n_bits, n_pool):
    locations, bits = random_codes(rng, 5, n_bits, n_pool)
    layout = Layout(name, n_bits, n_pool)
    queries = spiky(rng, n_pool)[[0, 2, 3]]
    entries = list(zip(bits, locations, strict=True))
    mismatches = [[reference.mismatches(query >= 0, *entry) for entry in entries] for query in queries]
    sums = [[reference.score_sum(query, *entry) for entry in entries] for query in queries]
    for chosen, n_threads in on_all_paths():
        codes = chosen.pack_codes(layout, locations, np.packbits(bits, axis=1, bitorder="little"))
        query_bits = chosen.pack_bits(queries)
        assert_array_equal(chosen.mismatches(layout, codes, query_bits, n_threads=n_threads), mismatches)
        assert_array_equal(chosen.score_sums(layout, codes, queries, n_threads=n_threads), sums)


@pytest.mark.parametrize(("n_bits", "n_pool"), [(1, 1), (1, 2), (1, 1000), (999, 1000), (64, 1024), (512, 8192)])
def test_set_coder_equals_the_reference_and_the_bound(rng, n_bits, n_pool):
    sets, _ = random_codes(rng, 3, n_bits, n_pool)
    sets[0], sets[1] = np.arange(n_bits), np.arange(n_pool - n_bits, n_pool)  # the first and the last of all sets
    expected = [reference.encode_set(row, n_pool) for row in sets.tolist()]
    bound = (storage_bits(n_bits=n_bits, n_pool=n_pool) - n_bits) / 8
    assert max(map(len, expected)) <= bound + 2
    capacity = int(bound) + 16
    for chosen, n_threads in on_all_paths():
        coded, lengths = chosen.encode_sets(sets, n_pool, capacity, n_threads=n_threads)
        assert [row[:length].tobytes() for row, length in zip(coded, lengths, strict=True)] == expected
        trimmed = np.ascontiguousarray(coded[:, : lengths.max()])
        for stored in (coded, trimmed):
            assert_array_equal(chosen.decode_sets(stored, n_bits, n_pool, n_threads=n_threads), sets)


@given(st.integers(1, 200), st.data())
def test_any_set_survives_the_coder(n_pool, data):
    locations = sorted(data.draw(st.sets(st.integers(0, n_pool - 1), min_size=1)))
    expected = reference.encode_set(locations, n_pool)
    for chosen, _ in on_all_paths():
        coded, lengths = chosen.encode_sets(np.array([locations], np.int32), n_pool, 64)
        assert coded[0, : lengths[0]].tobytes() == expected
        assert_array_equal(chosen.decode_sets(coded, len(locations), n_pool), [locations])


@pytest.mark.parametrize(("n_bits", "n_pool"), POOLS)
def test_compact_layout_is_the_smallest_split(n_bits, n_pool):
    layout = Layout("compact", n_bits, n_pool)
    assert layout.code_bytes <= -(-n_bits // 8) + -(-n_pool // 8)  # a bitmap is always possible
    if n_bits >= 32 and n_pool >= 8 * n_bits:
        assert layout.code_bytes * 8 <= 1.12 * storage_bits(n_bits=n_bits, n_pool=n_pool) + 24


def test_compact_layout_of_the_papers_problem_is_448_bytes():
    assert Layout("compact", 512, 8192).code_bytes == 448
    assert Layout("fast", 512, 8192).code_bytes == 576


SEARCHED = [(1, 1), (1, 64), (5, 63), (31, 400), (32, 400), (33, 129), (100, 384), (250, 1000)]
LARGE = [(512, 8192), (64, 9000), (1040, 5000), (2500, 65_536), (700, 800), (9000, 33_000)]


def search_case(rng, n_bits, n_pool, n_codes, name):
    """Return codes with many duplicates, so that scores tie, their layout, and a bitmap of those that take part."""
    if name == "signs":
        layout = Layout("signs", n_pool, n_pool)
        codes = np.packbits(rng.random((n_codes, n_pool)) < 0.5, axis=1, bitorder="little")
    else:
        layout = Layout(name, n_bits, n_pool)
        locations, bits = random_codes(rng, n_codes, n_bits, n_pool)
        codes = TWIN.pack_codes(layout, locations, np.packbits(bits, axis=1, bitorder="little"))
    codes[1::3] = codes[::3][: len(codes[1::3])]
    return layout, np.ascontiguousarray(codes), np.packbits(rng.random(n_codes) < 0.7, bitorder="little")


@pytest.mark.parametrize(
    ("n_bits", "n_pool"), [*SEARCHED, *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in LARGE)]
)
@pytest.mark.parametrize("name", ["compact", "fast", "signs"])
def test_searches_equal_the_twin_on_every_path(rng, name, n_bits, n_pool):
    """The NumPy kernels sort all codes; tests of the index compare them with the reference."""
    if name == "signs":
        n_pool = min(n_pool, 1000)  # all bits are compared, and the NumPy kernels would take minutes
    n_codes = 130 if n_pool < 10_000 else 45
    layout, codes, alive = search_case(rng, n_bits, n_pool, n_codes, name)
    weights = (rng.random(n_codes) * 2 - 0.5).astype(np.float32)
    for n_queries, k in ((1, 3), (2, 4), (3, 140), (20, 9), (64, 7), (257, 2)):
        queries = rng.standard_normal((n_queries, n_pool)).astype(np.float32)
        queries[::4] = np.rint(queries[::4])  # few distinct values, so scores also tie
        every = n_queries % 2 == 1
        assert_searches_agree(layout, codes, queries, k, None if every else alive, None if every else weights)


def test_searches_of_large_sign_codes_equal_the_twin(rng):
    """Adaptive codes of such pools are read in tiles, sign codes are not."""
    layout, codes, alive = search_case(rng, 0, 33_000, 12, "signs")
    queries = rng.standard_normal((9, 33_000)).astype(np.float32)
    assert_searches_agree(layout, codes, queries, 4, alive, None)


def assert_searches_agree(layout, codes, queries, k, alive, weights):
    ranges = [CodeRange(codes, 7, alive, weights)]
    bits = TWIN.pack_bits(queries)
    masks = TWIN.pack_bits(np.abs(queries) - 1) if layout.name == "signs" else None
    counts = TWIN.rank_mismatches(layout, ranges, bits, k, masks=masks)
    scores = TWIN.rank_scores(layout, ranges, queries, k)
    radii = np.maximum(counts[1][:, 0], 0) + np.arange(len(queries), dtype=np.int32) % 3
    thresholds = np.nan_to_num(scores[1][:, 0]) - np.float32(0.5)
    near = TWIN.within_mismatches(layout, ranges, bits, radii, masks=masks)
    high = TWIN.within_scores(layout, ranges, queries, thresholds)
    for name in PATHS:
        for n_threads in (1, 3):
            with use_path(name) as chosen:
                found = chosen.rank_mismatches(layout, ranges, bits, k, masks=masks, n_threads=n_threads)
                assert_array_equal(found[0], counts[0], name)
                assert_array_equal(found[1], counts[1], name)
                found = chosen.rank_scores(layout, ranges, queries, k, n_threads=n_threads)
                assert_array_equal(found[0], scores[0], name)
                assert_array_equal(found[1], scores[1], name)
                found = chosen.within_mismatches(layout, ranges, bits, radii, masks=masks, n_threads=n_threads)
                for actual, expected in zip(found, near, strict=True):
                    assert_array_equal(actual, expected, name)
                found = chosen.within_scores(layout, ranges, queries, thresholds, n_threads=n_threads)
                for actual, expected in zip(found, high, strict=True):
                    assert_array_equal(actual, expected, name)


@pytest.mark.parametrize("scale", [1e35, 1e-40])
def test_scores_of_extreme_queries_equal_the_twin(rng, scale):
    """Values too large to be rounded are summed exactly; subnormal values have margins as well."""
    for name in ("compact", "fast", "signs"):
        layout, codes, alive = search_case(rng, 31, 400, 50, name)
        queries = (rng.standard_normal((5, 400)) * scale).astype(np.float32)
        expected = TWIN.rank_scores(layout, [CodeRange(codes, 0, alive)], queries, 7)
        for chosen, n_threads in on_all_paths():
            found = chosen.rank_scores(layout, [CodeRange(codes, 0, alive)], queries, 7, n_threads=n_threads)
            assert_array_equal(found[0], expected[0], f"{chosen.name} {name}")
            assert_array_equal(found[1], expected[1], f"{chosen.name} {name}")


@pytest.mark.parametrize("n_codes", [1, 2, 3, 4, 5, 33])
@pytest.mark.parametrize(("n_bits", "n_pool"), [(20, 128), (16, 130), (17, 8200), (300, 9000), (128, 128)])
def test_crowded_blocks_are_compared_whole(rng, n_bits, n_pool, n_codes):
    """All locations are in one block of 128 rows, at either end of the pool, with fewer codes than a group."""
    locations = np.array([np.sort(rng.choice(min(n_pool, 2 * n_bits), n_bits, replace=False)) for _ in range(n_codes)])
    locations[1::2] = n_pool - 1 - locations[1::2, ::-1]
    signs = np.packbits(rng.random((n_codes, n_bits)) < 0.5, axis=1, bitorder="little")
    for name, n_queries in product(kernels.LAYOUTS, (1, 4, 17)):
        layout = Layout(name, n_bits, n_pool)
        codes = TWIN.pack_codes(layout, locations.astype(np.int32), signs)
        queries = rng.standard_normal((n_queries, n_pool)).astype(np.float32)
        assert_searches_agree(layout, codes, queries, 3, None, None)


def cut_into_ranges(rng, codes, alive, weights):
    """Return ranges with interleaved ids (the third is empty) in another order than their rows, and each row's code."""
    owners, living = rng.integers(0, 4, len(codes)), np.unpackbits(alive, count=len(codes), bitorder="little")
    parts = [np.flatnonzero(owners == owner) for owner in (0, 1, 4, 2, 3)]
    starts = np.append(0, np.cumsum([len(part) for part in parts])).tolist()
    ranges = [
        CodeRange(codes[kept], start, np.packbits(living[kept], bitorder="little"), weights[kept], 10 * kept)
        for start, kept in zip(starts, parts, strict=False)
    ]
    return [ranges[i] for i in rng.permutation(len(ranges))], np.concatenate(parts)


@pytest.mark.parametrize(("n_bits", "n_pool"), [(33, 129), (100, 384), (700, 33_000)])
@pytest.mark.parametrize("name", ["compact", "fast", "signs"])
def test_ranges_are_searched_as_one_array_in_the_order_of_ids(rng, name, n_bits, n_pool):
    """The lower id comes first among many equal codes, not the lower row."""
    layout, codes, alive = search_case(rng, n_bits, min(n_pool, 1000) if name == "signs" else n_pool, 90, name)
    weights = (rng.random(90) * 2 - 0.5).astype(np.float32)
    (ranges, held), whole = cut_into_ranges(rng, codes, alive, weights), [CodeRange(codes, 0, alive, weights)]
    for (chosen, n_threads), n_queries in product(on_all_paths(), (1, 2, 70)):
        queries = np.rint(rng.standard_normal((n_queries, layout.n_pool)) * 2).astype(np.float32)
        bits, radii = chosen.pack_bits(queries), np.full(n_queries, layout.n_bits // 2, np.int32)
        for k in (4, 89):
            for (rows, values), expected in (
                (
                    chosen.rank_mismatches(layout, ranges, bits, k, n_threads=n_threads),
                    chosen.rank_mismatches(layout, whole, bits, k),
                ),
                (
                    chosen.rank_scores(layout, ranges, queries, k, n_threads=n_threads),
                    chosen.rank_scores(layout, whole, queries, k),
                ),
            ):
                assert_array_equal(np.where(rows < 0, -1, held[rows]), expected[0], chosen.name)
                assert_array_equal(values, expected[1], chosen.name)
        for (starts, rows, _), expected in (
            (
                chosen.within_mismatches(layout, ranges, bits, radii, n_threads=n_threads),
                chosen.within_mismatches(layout, whole, bits, radii),
            ),
            (
                chosen.within_scores(layout, ranges, queries, radii.astype(np.float32), n_threads=n_threads),
                chosen.within_scores(layout, whole, queries, radii.astype(np.float32)),
            ),
        ):
            assert_array_equal(starts, expected[0], chosen.name)
            for start, end in pairwise(starts):
                assert (np.diff(rows[start:end]) > 0).all()
                assert_array_equal(np.sort(held[rows[start:end]]), expected[1][start:end], chosen.name)


def searched(layout, codes, queries):
    """Return the rows that the selected kernels find on three threads."""
    active, ranges = kernels.active(), [CodeRange(codes)]
    counts = active.rank_mismatches(layout, ranges, active.pack_bits(queries), 5, n_threads=3)
    return counts, active.rank_scores(layout, ranges, queries, 5, n_threads=3)


def assert_same(found, expected):
    for actual, wanted in zip(found, expected, strict=True):
        for a, b in zip(actual, wanted, strict=True):
            assert_array_equal(a, b)


def test_searching_threads_share_the_pool(rng):
    layout, codes, _ = search_case(rng, 31, 400, 500, "fast")
    batches = [rng.standard_normal((n, 400)).astype(np.float32) for n in (1, 7, 70, 300) * 6]
    expected = [searched(layout, codes, queries) for queries in batches]
    with ThreadPoolExecutor(4) as pool:
        for found, wanted in zip(pool.map(partial(searched, layout, codes), batches), expected, strict=True):
            assert_same(found, wanted)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_threads_of_its_own(rng):
    layout, codes, _ = search_case(rng, 31, 400, 500, "compact")
    queries = rng.standard_normal((20, 400)).astype(np.float32)
    expected = searched(layout, codes, queries)  # the parent's threads exist now
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on: the parent has threads
        child = os.fork()
    if child == 0:
        try:
            assert_same(searched(layout, codes, queries), expected)
            os._exit(0)
        except BaseException:
            os._exit(1)
    deadline = time.monotonic() + 120
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if done == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert done == (child, 0)
    assert_same(searched(layout, codes, queries), expected)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="sanitizers are preloaded as on Linux")
def test_hostile_codes_stay_inside_their_arrays():
    """Short run of ``make test-sanitize``; the core is built with sanitizers once."""
    try:
        done = sanitize.run(cases=200, seed=1)
    except RuntimeError as error:
        pytest.skip(str(error))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "200 cases, none outside its arrays" in done.stdout
