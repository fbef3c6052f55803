"""Every kernel is bit-identical to the reference on every path, with any number of threads."""

import ctypes
import os
import re
import signal
import sys
import time
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
import reference
from faults import sanitize
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from topsign import kernels
from topsign.kernels import (
    CodeBlocks,
    CodeRange,
    Layout,
    Means,
    OriginalRows,
    PackedMatrix,
    Preparation,
    Product,
    RegionCodes,
    RegionModel,
    RegionRule,
    RoundedQueries,
    Scoring,
    Visits,
    native,
)
from topsign.theory import storage_bits

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("small_grains")]

EDGES = [1, 2, 3, 5, 8, 63, 64, 65, 100, 127, 128, 129, 384, 1000]
POOLS = [(1, 1), (1, 64), (5, 63), (63, 63), (64, 64), (65, 65), (8, 127), (128, 128), (17, 129), (129, 129)]
POOLS += [(1, 1000), (100, 384), (250, 1000), (512, 8192), (2000, 8191), (8192, 8192), (3, 2**24), (40, 100_000)]


def on_all_paths():
    """Every path with one thread and with three."""
    for name in kernels.available():
        with kernels.use(name) as chosen:
            for n_threads in (1, 3):
                with kernels.threads(n_threads):
                    yield chosen


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


def test_structures_and_functions_are_those_of_the_header():
    """Names and types of members and arguments, and their order, but not targets of addresses."""
    header = (Path(__file__).parent.parent / "native" / "topsign.h").read_text()
    header = re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL))
    structures = {}
    for body, name in re.findall(r"typedef struct \{(.*?)\} ts_(\w+);", header):
        members = []
        for line in body.split(";")[:-1]:
            kind, _, names = line.removeprefix(" const").strip().replace(", ", ",").rpartition(" ")
            kind = kind.removesuffix("_t").removeprefix("ts_")
            shown = "" if kind == "int64" else f":{kind}"
            members += [f"*{one}" if kind.endswith("*") else one + shown for one in names.split(",")]
        structures[name] = " ".join(members)
    table = {name: re.sub(r"(\*\w+):\w+", r"\1", one) for name, one in native.STRUCTURES.items()}
    assert table == {name: structures[name] for name in structures.keys() - {"region_range", "original_rows"}}
    functions = {}
    for name, arguments in re.findall(r"int32_t ts_(\w+)\(const ts_run\* run, (.*?)\);", header):
        kinds = [one.removeprefix("const ").rpartition(" ")[0].removeprefix("ts_") for one in arguments.split(", ")]
        known = {"int64_t": "n"} | {f"{one}*": one for one in structures}
        functions[name] = " ".join(known.get(kind, "*") for kind in kinds)
    assert functions == native.FUNCTIONS


@pytest.mark.parametrize("n", [*EDGES, 2048, 8191])
def test_rotation_equals_the_reference(rng, n):
    signals = spiky(rng, n)[: 5 if n <= 1000 else 2]
    rounds = 3 if n & (n - 1) == 0 else 6
    signs = rng.random((rounds, n)) < 0.5
    packed = np.packbits(signs, axis=1, bitorder="little")
    expected = np.array([reference.rotate(x, np.where(signs, 1, -1)) for x in signals])
    for chosen in on_all_paths():
        actual = chosen.rotate(signals, packed)
        assert_array_equal(actual.view(np.uint32), expected.view(np.uint32), chosen.name)


@pytest.mark.parametrize("n", [2, 3, 64, 100, 384, 1000])
def test_transposed_rotation_undoes_the_rotation(path, rng, n):
    signals = rng.standard_normal((4, n)).astype(np.float32)
    signs = np.packbits(rng.random((6, n)) < 0.5, axis=1, bitorder="little")
    back = path.rotate(path.rotate(signals, signs), signs, transpose=True) / n
    # Errors of twelve rounds of float32 additions grow with the square root of the number of additions.
    assert np.abs(back - signals).max() < 2**-24 * 8 * np.sqrt(12 * np.log2(2 * n)) * np.abs(signals).max()


@pytest.mark.parametrize("n", EDGES)
def test_sums_and_signs_equal_the_reference(rng, n):
    rows, vector = spiky(rng, n), rng.standard_normal(n)
    sums = [reference.magnitude_sum(row) for row in rows]
    for chosen in on_all_paths():
        assert_array_equal(chosen.square_norms(rows), [reference.square_norm(row) for row in rows], chosen.name)
        expected = [reference.inner_product(row, vector) for row in rows]
        assert_array_equal(chosen.inner_products(rows, vector), expected, chosen.name)
        assert_array_equal(chosen.magnitude_sums(rows), sums, chosen.name)
        assert_array_equal(chosen.select(rows, n)[2], sums, chosen.name)
        assert_array_equal(chosen.pack_bits(rows), [reference.pack(row >= 0) for row in rows], chosen.name)


def assert_selection(projected, n_bits):
    expected = [reference.select_locations(row, n_bits) for row in projected]
    kept = np.take_along_axis(projected, np.array(expected), axis=1)
    for chosen in on_all_paths():
        locations, signs, totals = chosen.select(projected, n_bits)
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


@pytest.mark.parametrize(("n_bits", "n_pool"), POOLS)
def test_adaptive_codes_equal_the_reference(rng, n_bits, n_pool):
    n_codes = 4
    locations, bits = random_codes(rng, n_codes, n_bits, n_pool)
    signs = np.packbits(bits, axis=1, bitorder="little")
    layout = Layout(n_bits, n_pool)
    expected = None  # the reference would need 2**24 Python integers; the round trip below is still tested
    if n_pool < 2**24:
        expected = [reference.pack_compact(*code, n_pool) for code in zip(locations.tolist(), bits, strict=True)]
    for chosen in on_all_paths():
        codes = chosen.pack_codes(layout, locations, signs)
        assert codes.shape == (n_codes, layout.code_bytes)
        if expected is not None:
            assert_array_equal(codes, expected, chosen.name)
        again = chosen.unpack_codes(layout, codes)
        assert_array_equal(again[0], locations, chosen.name)
        assert_array_equal(again[1], signs, chosen.name)
        assert chosen.valid_codes(layout, codes).all()


@given(st.integers(1, 300), st.integers(0, 2**32), st.data())
def test_arbitrary_bytes_unpack_to_locations_of_the_pool(n_pool, seed, data):
    layout = Layout(data.draw(st.integers(1, n_pool)), n_pool)
    garbage = np.random.default_rng(seed).integers(0, 256, (3, layout.code_bytes), dtype=np.uint8)
    locations, _ = kernels.active().unpack_codes(layout, garbage)
    assert locations.min() >= 0
    assert locations.max() < n_pool


def is_code(data, n_bits, n_pool):
    """Return whether the reference packs any ascending locations and signs to these bytes, by trying all."""
    sets, signs = combinations(range(n_pool), n_bits), list(product([0, 1], repeat=n_bits))
    return any(reference.pack_compact(rows, bits, n_pool) == data for rows in sets for bits in signs)


@pytest.mark.parametrize(("n_bits", "n_pool"), [(1, 1), (2, 3), (1, 9), (2, 5), (3, 6)])
def test_valid_codes_are_those_the_reference_packs(rng, n_bits, n_pool):
    layout = Layout(n_bits, n_pool)
    locations, bits = random_codes(rng, 30, n_bits, n_pool)
    codes = kernels.active().pack_codes(layout, locations, np.packbits(bits, axis=1, bitorder="little"))
    codes[10:] ^= (1 << rng.integers(0, 8, codes[10:].shape) & 255).astype(np.uint8) * (
        rng.random(codes[10:].shape) < 0.3
    )
    expected = [is_code(code.tolist(), n_bits, n_pool) for code in codes]
    assert {True, False} <= set(expected)
    assert_array_equal(kernels.active().valid_codes(layout, codes), expected)


@pytest.mark.parametrize(("n_bits", "n_pool"), [(1, 1), (1, 2), (1, 1000), (999, 1000), (64, 1024), (512, 8192)])
def test_set_coder_equals_the_reference_and_the_bound(rng, n_bits, n_pool):
    sets, _ = random_codes(rng, 3, n_bits, n_pool)
    sets[0], sets[1] = np.arange(n_bits), np.arange(n_pool - n_bits, n_pool)  # the first and the last of all sets
    expected = [reference.encode_set(row, n_pool) for row in sets.tolist()]
    bound = (storage_bits(n_bits=n_bits, n_pool=n_pool) - n_bits) / 8
    assert max(map(len, expected)) <= bound + 2
    capacity = int(bound) + 16
    for chosen in on_all_paths():
        coded, lengths = chosen.encode_sets(sets, n_pool, capacity)
        assert [row[:length].tobytes() for row, length in zip(coded, lengths, strict=True)] == expected
        trimmed = np.ascontiguousarray(coded[:, : lengths.max()])
        for stored in (coded, trimmed):
            assert_array_equal(chosen.decode_sets(stored, n_bits, n_pool), sets)


@pytest.mark.parametrize(("n_features", "n_columns"), [(1, 1), (5, 33), (40, 7), (64, 96), (129, 130)])
def test_products_equal_the_reference(rng, n_features, n_columns):
    signals = rng.standard_normal((14, n_features)).astype(np.float32)
    columns = rng.standard_normal((n_columns, n_features)).astype(np.float32)
    factors, minus = rng.random(14).astype(np.float32), rng.standard_normal(n_features).astype(np.float32)
    rows = np.array([3, 0, 11])
    products = [Product(PackedMatrix.of(columns)), Product(PackedMatrix.of(columns), minus, rows)]
    whole = reference.products(signals, columns, factors)
    some = reference.products(signals[rows], columns, factors[rows], minus)
    for chosen in on_all_paths():
        found = chosen.multiply(signals, products, factors=factors)
        assert_array_equal(found[0], whole, chosen.name)
        assert_array_equal(found[1], some, chosen.name)


@pytest.mark.parametrize("limit", [1, 100, 32385])
def test_rounded_queries_equal_the_reference(rng, limit):
    values = spiky(rng, 45)
    expected = [reference.rounded(row, limit) for row in values]
    for chosen in on_all_paths():
        found, steps = chosen.round(values, limit)
        assert_array_equal(found, [row for row, _ in expected], chosen.name)
        assert_array_equal(steps, np.array([step for _, step in expected], np.float32), chosen.name)


@pytest.mark.parametrize("n_bytes", [1, 3, 16, 100])
def test_groups_equal_the_reference(rng, n_bytes):
    projected = spiky(rng, 16 * n_bytes)
    nibbles = np.array([reference.group_nibbles(row) for row in projected], np.uint8)
    largest = np.abs(projected.reshape(5, -1, 8)).max(axis=2)
    totals = [reference.magnitude_sum(row) for row in largest]
    for chosen in on_all_paths():
        codes, found = chosen.encode_groups(projected)
        assert_array_equal(codes, nibbles[:, ::2] | nibbles[:, 1::2] << 4, chosen.name)
        assert_array_equal(found, totals, chosen.name)


@pytest.mark.parametrize("n_bytes", [1, 2, 9, 24])
def test_rings_equal_the_reference(rng, n_bytes):
    ring = sanitize.make_ring(rng, n_bytes)
    coordinates = rng.standard_normal((6, ring.n_coded)).astype(np.float32)
    coordinates[1] = 0  # ties
    expected = [reference.ring_encode(ring, row) for row in coordinates]
    norms = [reference.ring_norm(ring, code) for code in expected]
    for chosen in on_all_paths():
        codes = chosen.ring_encode(ring, coordinates)
        assert_array_equal(codes, expected, chosen.name)
        assert_array_equal(chosen.ring_norms(ring, codes), norms, chosen.name)


def test_no_code_of_a_small_ring_is_cheaper_by_much(rng):
    """The closed path that the encoder finds, against all codes of two bytes."""
    ring = sanitize.make_ring(rng, 2)
    codes = np.arange(2**16, dtype=">u2")[:, np.newaxis].view(np.uint8)
    nibbles = np.stack([codes[:, 0] >> 4, codes[:, 0] & 15, codes[:, 1] >> 4, codes[:, 1] & 15], axis=1)
    windows = 16 * np.roll(nibbles, 1, axis=1) + nibbles
    levels = np.hstack([reference.ring_book(ring, step)[windows[:, step]] for step in range(4)]).astype(float)
    worse = []
    for coordinates in rng.standard_normal((50, ring.n_coded)).astype(np.float32) * 50:
        costs = (ring.weights * (levels**2 - 2 * levels * (coordinates * ring.scales))).sum(axis=1)
        first, second = kernels.active().ring_encode(ring, coordinates[np.newaxis])[0, :2]
        worse.append((costs[256 * int(first) + int(second)] - costs.min()) / np.ptp(costs))
    assert np.mean(worse) < 0.05
    assert np.mean(np.array(worse) == 0) > 0.2


class Case:
    """Random codes of one kind with queries, and their scores by the reference."""

    def __init__(self, rng, scoring, n_codes=77, n_queries=5):
        self.scoring, self.n_codes = scoring, n_codes
        self.rows = rng.integers(0, 256, (n_codes, scoring.code_bytes), dtype=np.uint8)
        if scoring.kind == "kept":
            locations, bits = random_codes(rng, n_codes, scoring.layout.n_bits, scoring.width)
            signs = np.packbits(bits, axis=1, bitorder="little")
            self.rows[:, : scoring.layout.code_bytes] = kernels.active().pack_codes(scoring.layout, locations, signs)
        if scoring.factor is not None:
            numbers = rng.integers(8000, 20000, n_codes) if scoring.factor == "cosine" else rng.integers(3e4, 3.5e4, 77)
            numbers[:3] = 0, 1, 65535
            self.rows[:, -2:] = numbers[:n_codes].astype("<u2")[:, np.newaxis].view(np.uint8)
        self.rows[5] = self.rows[4]  # ties
        values = rng.standard_normal((n_queries, scoring.width)).astype(np.float32)
        values[-1] = np.sign(values[-1])  # as Hamming distances have
        rounded = [reference.rounded(row, scoring.limit) for row in values]
        scales = np.array([step for _, step in rounded], np.float32) / np.float32(100)
        constants = (rng.standard_normal(n_queries) / 10).astype(np.float32)
        self.queries = RoundedQueries(np.array([row for row, _ in rounded], np.int16), scales, constants)
        self.levels = np.array([levels_of(scoring, row) for row in self.rows])
        sums = (self.queries.values.astype(np.int64) @ self.levels.T).astype(np.float32)
        factors = np.array([reference.factor(row, scoring.factor) for row in self.rows], np.float32)
        self.scores = (sums * scales[:, np.newaxis] + constants[:, np.newaxis]) * factors

    def best(self, query, k, among, ids):
        """Return rows of the k best codes among some."""
        positions = np.flatnonzero(among)
        return positions[np.lexsort((ids[positions], -self.scores[query, positions]))][:k]


def levels_of(scoring, row):
    """Levels of a code by the reference."""
    if scoring.kind == "ring":
        return reference.ring_levels(scoring.ring, row)
    if scoring.kind == "kept":
        unpacked = kernels.active().unpack_codes(scoring.layout, row[np.newaxis, : scoring.layout.code_bytes].copy())
        signs = np.unpackbits(unpacked[1][0], count=scoring.layout.n_bits, bitorder="little")
        levels = np.zeros(scoring.width, int)
        levels[unpacked[0][0]] = 2 * signs.astype(int) - 1
        return levels
    if scoring.kind == "signs":
        return [1 if int(row[i // 8]) >> i % 8 & 1 else -1 for i in range(scoring.width)]
    levels = np.zeros(scoring.width, int)
    for group in range(scoring.width // 8):
        nibble = int(row[group // 2]) >> group % 2 * 4 & 15
        levels[8 * group + nibble % 8] = 1 if nibble >= 8 else -1
    return levels


def region_codes(ranges, regions, n_regions):
    """Return codes in the order of the given regions of each range."""
    places = [
        (region, segment, begin, end)
        for segment, some in enumerate(regions)
        for region, begin, end in zip(
            range(n_regions),
            *(np.searchsorted(some, range(n_regions), side=one) for one in ("left", "right")),
            strict=True,
        )
        if end > begin
    ]
    places = np.array(sorted(places), np.int32).reshape(-1, 4)
    starts = np.searchsorted(places[:, 0], np.arange(n_regions + 1)).astype(np.int32)
    return RegionCodes(ranges, starts, np.ascontiguousarray(places[:, 1:]))


def scorings(rng):
    """Return codes of all kinds and factors, of few and many bytes."""
    for n_bytes in (1, 3, 24, 150):
        for factor in (None, "log"):
            n_factor = 0 if factor is None else 2
            yield Scoring("signs", n_bytes + n_factor, 8 * n_bytes, factor)
            yield Scoring("groups", n_bytes + n_factor, 16 * n_bytes, factor)
        for factor in ("cosine", "log"):
            ring = sanitize.make_ring(rng, 2 * n_bytes)
            yield Scoring("ring", 2 * n_bytes + 2, ring.n_coded, factor, ring=ring)
    for n_bits, n_pool in ((1, 1), (3, 40), (64, 1000), (512, 8192)):
        layout = Layout(n_bits, n_pool)
        yield Scoring("kept", layout.code_bytes, n_pool, layout=layout)
        yield Scoring("kept", layout.code_bytes + 2, n_pool, "log", layout=layout)


@pytest.mark.parametrize("n_queries", [1, 5, 64, 257])
def test_searches_equal_the_reference(rng, n_queries):
    """All scores, the k best, all above a bound, and visits of regions, with removed codes, in two ranges."""
    for scoring in [*scorings(rng)][:: 1 if n_queries < 9 else 5]:  # all kinds
        case = Case(rng, scoring, n_queries=n_queries)
        n, cut, k = case.n_codes, 40, 7
        ids = rng.permutation(500)[:n]
        living = rng.random(n) < 0.6
        parts = [slice(0, cut), slice(cut, n)]
        regions = np.concatenate([np.sort(rng.integers(0, 6, part.stop - part.start)) for part in parts])
        visited = [np.sort(rng.permutation(6)[: rng.integers(4)]) for _ in range(n_queries)]
        for some in (np.ones(n, bool), living):
            ids = np.sort(ids) if some.all() else rng.permutation(ids)
            alive = [None if some.all() else np.packbits(some[part], bitorder="little") for part in parts]
            ranges = [
                CodeRange(CodeBlocks.of(case.rows[part]), part.start, bits, ids[part].copy(), bool(some.all()))
                for part, bits in zip(parts, alive, strict=True)
            ]
            placed = region_codes(ranges, [regions[part] for part in parts], 6)
            counts = np.append(0, np.cumsum([len(one) for one in visited])).astype(np.int64)
            visits = Visits(counts, np.concatenate(visited).astype(np.int32))
            bounds = np.quantile(case.scores, 0.8, axis=1).astype(np.float32)
            for chosen in on_all_paths():
                where = f"{chosen.name}, {scoring.kind}, {scoring.code_bytes} bytes, {kernels.n_threads()} threads"
                assert_array_equal(chosen.decode(scoring, case.rows), case.levels, where)
                found = chosen.scores(scoring, CodeBlocks.of(case.rows), case.queries)
                assert_array_equal(found, case.scores, where)
                rows, values = chosen.rank(scoring, ranges, case.queries, k)
                near, near_values = chosen.visit(scoring, placed, visits, case.queries, k)
                begin, within, reached = chosen.within(scoring, ranges, case.queries, bounds)
                for q in range(n_queries):
                    best = case.best(q, k, some, ids)
                    assert_array_equal(rows[q, : len(best)], best, where)
                    assert_array_equal(values[q, : len(best)], case.scores[q, best], where)
                    best = case.best(q, k, some & np.isin(regions, visited[q]), ids)
                    assert_array_equal(near[q], np.append(best, np.full(k - len(best), -1)), where)
                    assert_array_equal(near_values[q, : len(best)], case.scores[q, best], where)
                    reaching = np.flatnonzero(some & (case.scores[q] >= bounds[q]))
                    assert_array_equal(within[begin[q] : begin[q + 1]], reaching, where)
                    assert_array_equal(reached[begin[q] : begin[q + 1]], case.scores[q, reaching], where)


def random_model(rng, n_regions, n_features, n_coarse):
    """Return regions with few distinct means, so that scores tie, and the exact scores of unit queries."""
    values = np.full((n_regions + n_coarse, -(-n_features // 64) * 64), 64, np.uint8)
    values[:, :n_features] = rng.integers(61, 68, (len(values), n_features))
    values[1:n_regions:3] = values[0:n_regions:3][: len(values[1:n_regions:3])]
    scales = np.full(len(values), 0.03, np.float32)
    half_norms = ((values[:, :n_features].astype(np.float32) - 64) ** 2).sum(axis=1) * np.float32(0.03**2 / 2)
    sizes = np.bincount(rng.integers(0, n_coarse, n_regions - n_coarse), minlength=n_coarse) + 1
    groups, numbers = -(-sizes // 16), []
    for first, size, n_groups in zip(np.cumsum(sizes) - sizes, sizes, groups, strict=True):
        numbers.append(np.append(np.arange(first, first + size), np.full(16 * n_groups - size, -1)))
    numbers = np.concatenate(numbers).astype(np.int32)
    coarse = np.append(np.arange(n_coarse), np.full(-n_coarse % 16, -1)).astype(np.int32)
    arrays = values, scales, half_norms
    model = RegionModel(
        Means.of(*(one[n_regions:] for one in arrays), coarse),
        Means.of(*(one[:n_regions] for one in arrays), numbers),
        n_coarse,
        np.append(0, np.cumsum(groups)).astype(np.int32),
        numbers,
    )

    def scores(unit):
        exact = reference.mean_scores(unit.tolist(), values.tolist(), scales.tolist(), half_norms.tolist())
        return exact[:n_regions], exact[n_regions:]

    return model, np.repeat(np.arange(n_coarse), sizes), scores


RULES = [
    ([1, 5, 30, 2], [0, 100, 20, 0], [3, 3, 5, 2], -np.inf),
    ([2, 0, 90, 0], [10**6, 3, 1, 0], [2, 1, 4, 1], -np.inf),
    ([1, 2, 3, 0], [4, 5, 6, 0], [2, 2, 2, 1], 0.2),
]


@pytest.mark.parametrize(("n_queries", "n_regions", "n_coarse"), [(1, 2, 1), (40, 90, 7), (3, 700, 20)])
def test_regions_are_chosen_as_the_reference_chooses_them(rng, n_queries, n_regions, n_coarse):
    model, parents, scores_of = random_model(rng, n_regions, 70, n_coarse)
    units = rng.standard_normal((n_queries, 70)).astype(np.float32) / np.float32(70**0.5)
    units[0] = 0
    counts = rng.integers(0, 9, n_regions)
    expected = [scores_of(unit) for unit in units]
    for n_chosen, n_entries, n_wide, least in RULES:
        rule = RegionRule(np.array([0.05, 0.15]), *map(np.array, (n_chosen, n_entries, n_wide, n_chosen)), 2, least)
        for chosen in on_all_paths():
            found = chosen.choose_regions(model, counts, rule, units)
            for query, (fine, coarse) in enumerate(expected):
                stratum, best, contrast, wanted = reference.choose_regions(
                    fine, coarse, parents.tolist(), counts.tolist(), rule
                )
                assert (found.strata[query], found.best[query]) == (stratum, np.float32(best))
                assert found.contrasts[query] == np.float32(contrast)
                some = found.visits.regions[found.visits.starts[query] : found.visits.starts[query + 1]].tolist()
                assert some == wanted


@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
def test_searches_of_regions_equal_the_reference(rng, kind):
    """One call chooses regions, compares codes, and orders the best by originals."""
    n_features, n_queries, n_regions, k = 70, 6, 40, 5
    model, parents, scores_of = random_model(rng, n_regions, n_features, 5)
    units = rng.standard_normal((n_queries, n_features)).astype(np.float32) / np.float32(70**0.5)
    signals = (units * 3).astype(np.float32)
    for scoring in [*scorings(rng)][::5]:  # all kinds
        case = Case(rng, scoring, n_queries=n_queries)
        n, cut = case.n_codes, 40
        living, ids = rng.random(n) < 0.8, rng.permutation(500)[:n]
        parts = [slice(0, cut), slice(cut, n)]
        regions = np.concatenate([np.sort(rng.integers(0, n_regions, part.stop - part.start)) for part in parts])
        ranges = [
            CodeRange(CodeBlocks.of(case.rows[part]), part.start, bits, ids[part].copy(), False)
            for part in parts
            for bits in [np.packbits(living[part], bitorder="little")]
        ]
        codes = region_codes(ranges, [regions[part] for part in parts], n_regions)
        counts = np.bincount(regions[living], minlength=n_regions)
        values = (rng.standard_normal((n, n_features)) * 40).astype(kind)
        scales = (1 + np.arange(n) % 3 / 2).astype(np.float32)
        stored = values.astype(np.float32) * (np.float32(1) if kind == "float32" else scales[:, np.newaxis])
        minus = None if kind == "int8" else rng.standard_normal(n_features).astype(np.float32)
        halves = [(values[part], scales[part]) for part in parts]
        originals = OriginalRows(halves, kind == "float16", minus)
        exact = [[reference.exact_scores(one, other, minus) for other in stored] for one in signals]
        rule = RegionRule(np.array([0.1]), *map(np.array, ([4, 0, 1], [9, 0, 0], [5, 1, 2], [12, 8, k])), 3, -np.inf)
        for chosen in on_all_paths():
            for kept in (None, originals):
                options = {} if kept is None else {"originals": kept, "signals": signals}
                found = chosen.search_regions(scoring, codes, model, counts, rule, units, case.queries, k, **options)
                for q, unit in enumerate(units):
                    stratum, _, _, some = reference.choose_regions(
                        *scores_of(unit), parents.tolist(), counts.tolist(), rule
                    )
                    visited = living & (np.isin(regions, some) | (rule.n_regions[stratum] == 0))
                    wanted = case.best(q, k if kept is None else rule.n_candidates[stratum], visited, ids)
                    if kept is not None:
                        number = 0 if kept.is_inner else 1
                        order = [(-np.float32(exact[q][row][number]), ids[row], row) for row in wanted]
                        wanted = np.array([row for *_, row in sorted(order)][:k], int)
                        assert_array_equal(found.inner[q, : len(wanted)], [exact[q][row][0] for row in wanted])
                        assert_array_equal(found.correlations[q, : len(wanted)], [exact[q][row][1] for row in wanted])
                    assert (found.strata[q], found.visited[q]) == (stratum, visited.sum())
                    assert_array_equal(found.rows[q], np.append(wanted, np.full(k - len(wanted), -1)))
                    assert_array_equal(found.ids[q, : len(wanted)], ids[wanted])
                    assert_array_equal(found.values[q, : len(wanted)], case.scores[q, wanted])
            starts = np.array([0, *[n] * n_queries])
            inner, correlations = chosen.compare_originals(ranges, originals, signals, starts, np.arange(n))
            assert_array_equal(np.stack([inner, correlations], axis=1), exact[0])


def test_a_structure_owns_its_addresses(rng):
    """Another thread may make the kept structure at the same time, and replace it."""
    originals = OriginalRows([(np.zeros((2, 3), np.float32), np.ones(2, np.float32))], is_inner=False)
    made = native.c_originals(originals, np.zeros((1, 3), np.float32))
    addresses = weakref.ref(vars(originals).pop("structure")[1])
    native.c_originals(originals, np.zeros((1, 3), np.float32))
    assert addresses() is not None
    assert made.segments == ctypes.addressof(addresses())


def test_queries_of_trellis_codes_are_prepared_as_by_single_steps(rng):
    matrix, mean = rng.standard_normal((70, 70)).astype(np.float32), rng.standard_normal(70)
    coded, weights = rng.permutation(70)[:40].astype(np.int32), rng.random(40).astype(np.float32)
    signals = (rng.standard_normal((7, 70)) * 9).astype(np.float32)
    signals[2] = 0
    for chosen in on_all_paths():
        preparation = Preparation(PackedMatrix.of(matrix), coded, weights, 1000, mean)
        norms, units, rounded = chosen.prepare(preparation, signals)
        for row, values in enumerate(signals):
            norm = np.sqrt(reference.square_norm(values))
            factor = np.float32(1 / norm if norm else 0)
            projected = np.array(reference.products(values[np.newaxis], matrix, factors=[factor]), np.float32)[0]
            whole, step = reference.rounded(projected[coded] * weights, 1000)
            assert norms[row] == norm
            assert_array_equal(units[row], values * factor)
            assert_array_equal(rounded.values[row], whole)
            assert rounded.scales[row] == np.float32(step)
            assert rounded.constants[row] == np.float32(reference.inner_product(projected, mean) / 70)


@pytest.mark.parametrize("scale", [0.0, 1e-38, 1e30, 3e38])
def test_extreme_scales_keep_the_order(rng, scale):
    """Scores of zero, subnormal, huge and infinite size; codes of -inf are no hits."""
    ring = sanitize.make_ring(rng, 6)
    for scoring in (Scoring("groups", 8, 128), Scoring("ring", 8, ring.n_coded, "cosine", ring=ring)):
        case = Case(rng, scoring)
        queries = RoundedQueries(case.queries.values, np.full(5, scale, np.float32), case.queries.constants)
        with np.errstate(over="ignore", invalid="ignore"):
            sums = (queries.values.astype(np.int64) @ case.levels.T).astype(np.float32)
            factors = np.array([reference.factor(row, scoring.factor) for row in case.rows], np.float32)
            scores = (sums * queries.scales[:, np.newaxis] + queries.constants[:, np.newaxis]) * factors
        for chosen in on_all_paths():
            rows, values = chosen.rank(scoring, [CodeRange(CodeBlocks.of(case.rows))], queries, 9)
            for q in range(5):
                usable = np.flatnonzero(scores[q] > -np.inf)
                best = usable[np.lexsort((usable, -scores[q, usable]))][:9]
                assert_array_equal(rows[q, : len(best)], best, chosen.name)
                assert_array_equal(values[q, : len(best)], scores[q, best], chosen.name)


def test_blocks_keep_rows(rng):
    rows = rng.integers(0, 256, (70, 5), dtype=np.uint8)
    for n in (0, 1, 31, 32, 33, 70):
        blocks = CodeBlocks.of(rows[:n])
        assert len(blocks) == n
        assert_array_equal(blocks.rows(), rows[:n])
        assert not blocks.planes.transpose(0, 2, 1).reshape(-1, 5)[n:].any()
    assert_array_equal(blocks.rows(np.array([69, 0, 33])), rows[[69, 0, 33]])
    for part in (slice(3, 40), slice(32, 64), slice(50, 20), slice(0, 70, 7)):
        assert_array_equal(blocks.rows(part), rows[part])


def searched(case, queries):
    ranges = [CodeRange(CodeBlocks.of(case.rows))]
    return kernels.active().rank(case.scoring, ranges, queries, 5)


def assert_same(found, expected):
    for actual, wanted in zip(found, expected, strict=True):
        assert_array_equal(actual, wanted)


def test_searching_threads_share_the_pool(rng):
    case = Case(rng, Scoring("groups", 25, 400), n_queries=70)
    batches = [case.queries[:n] for n in (1, 7, 70) * 8]
    expected = [searched(case, queries) for queries in batches]
    with ThreadPoolExecutor(4) as pool:
        for found, wanted in zip(pool.map(partial(searched, case), batches), expected, strict=True):
            assert_same(found, wanted)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_threads_of_its_own(rng):
    case = Case(rng, Scoring("groups", 25, 400), n_queries=20)
    expected = searched(case, case.queries)  # the parent's threads exist now
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on: the parent has threads
        child = os.fork()
    if child == 0:
        try:
            assert_same(searched(case, case.queries), expected)
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
    assert_same(searched(case, case.queries), expected)


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
