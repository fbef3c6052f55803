"""Visits of regions find what a search among the entries of the same regions finds, on every path."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy_kernels import NumpyKernels

from topsign import kernels
from topsign.kernels import CodeRange, Layout, RegionArrays, RegionCodes, VisitedCodes

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("small_grains")]

TWIN = NumpyKernels()
N_REGIONS = 12  # of which 3 has no entries


def codes_of(rng, layout, n_codes):
    """Return codes, each of them twice, so that values tie."""
    if layout.name == "signs":
        codes = np.packbits(rng.random((n_codes, layout.n_pool)) < 0.5, axis=1, bitorder="little")
    else:
        rows = [np.sort(rng.choice(layout.n_pool, layout.n_bits, replace=False)) for _ in range(n_codes)]
        signs = np.packbits(rng.random((n_codes, layout.n_bits)) < 0.5, axis=1, bitorder="little")
        codes = TWIN.pack_codes(layout, np.array(rows, np.int32), signs)
    codes[rng.permutation(n_codes)[: n_codes // 2]] = codes[: n_codes // 2]
    return codes


class Case:
    """Entries by ascending id, in several segments and regions; some of them do not take part."""

    def __init__(self, rng, layout, n_codes, n_segments=3):
        self.layout, self.codes = layout, codes_of(rng, layout, n_codes)
        self.weights = (rng.random(n_codes) * 2 - 0.5).astype(np.float32)
        self.alive = rng.random(n_codes) < 0.8
        self.regions = rng.choice(np.delete(np.arange(N_REGIONS), 3), n_codes)
        owners = rng.integers(0, n_segments, n_codes)
        parts = [np.flatnonzero(owners == owner) for owner in range(n_segments + 1)]  # the last segment is empty
        self.entries = np.concatenate(parts)  # by row
        self.parts = [(int(np.sum(owners < number)), part) for number, part in enumerate(parts)]

    def visited(self, chosen, *, weighted=False, with_ids=True):
        """Return the visits of queries, each to the regions ``chosen`` for it."""
        segments = []
        for first_row, part in self.parts:
            order = np.argsort(self.regions[part], kind="stable").astype(np.int32)
            starts = np.searchsorted(self.regions[part][order], np.arange(N_REGIONS + 1)).astype(np.int32)
            alive = np.packbits(self.alive[part], bitorder="little")
            ids, weights = 10 * part if with_ids else None, self.weights[part] if weighted else None
            segments.append(RegionCodes(self.codes[part], order, starts, first_row, alive, weights, ids))
        starts = np.append(0, np.cumsum([len(one) for one in chosen])).astype(np.int64)
        return VisitedCodes(RegionArrays(segments), starts, np.concatenate(chosen).astype(np.int32))

    def assert_found(self, chosen, queries, k, path, n_threads, *, masks=None):
        """Compare visits with a search of NumPy kernels, query by query, in which the visited entries take part."""
        layout, bits = self.layout, TWIN.pack_bits(queries)
        with kernels.use(path) as native:
            counts = native.visit_mismatches(layout, self.visited(chosen), bits, k, masks=masks, n_threads=n_threads)
            weighted = self.visited(chosen, weighted=True)
            scores = native.visit_scores(layout, weighted, queries, k, n_threads=n_threads)
        for q, regions in enumerate(chosen):
            alive = np.packbits(self.alive & np.isin(self.regions, regions), bitorder="little")
            one = slice(q, q + 1)
            mask = None if masks is None else masks[one]
            whole = CodeRange(self.codes, 0, alive, self.weights)
            self.assert_same(counts, q, TWIN.rank_mismatches(layout, [whole], bits[one], k, masks=mask))
            self.assert_same(scores, q, TWIN.rank_scores(layout, [whole], queries[one], k))

    def assert_same(self, found, q, expected):
        rows = np.append(self.entries, -1)[found[0][q]]
        assert_array_equal(rows, expected[0][0])
        assert_array_equal(found[1][q], expected[1][0])


def chosen_of(rng, n_queries):
    """Return regions that each query visits: none, all, an empty one, equal ones, and others."""
    chosen = [rng.permutation(N_REGIONS)[: rng.integers(1, 7)] for _ in range(n_queries)]
    special = [np.empty(0, int), np.arange(N_REGIONS), np.array([3]), np.array([5, 1, 2]), np.array([2, 5, 1])]
    chosen[: len(special)] = special[:n_queries]
    return chosen


def queries_of(rng, n_queries, layout):
    queries = rng.standard_normal((n_queries, layout.n_pool)).astype(np.float32)
    queries[::3] = np.rint(queries[::3])  # few distinct values, so scores also tie
    return queries


LAYOUTS = [
    Layout("fast", 33, 129),
    Layout("fast", 100, 384),
    Layout("fast", 512, 8192),
    Layout("compact", 72, 384),
    Layout("compact", 40, 1000),
    Layout("compact", 2, 4000),
    Layout("compact", 64, 65),
    Layout("signs", 300, 300),
]
# Large pools: rows of 32 bits, long codes that are read by tiles, and a bitmap.
LARGE = [Layout("compact", 3, 40_000), Layout("fast", 600, 33_000), Layout("compact", 600, 33_000)]
LARGE += [Layout("fast", 8300, 33_000), Layout("compact", 8300, 70_000), Layout("compact", 8300, 33_000)]


def named(layout):
    return f"{layout.name}-{layout.n_bits}-{layout.n_pool}"


@pytest.mark.parametrize("path", kernels.available())
@pytest.mark.parametrize("layout", LAYOUTS, ids=named)
def test_visits_find_what_a_search_of_the_same_entries_finds(rng, layout, path):
    case = Case(rng, layout, 200)
    for (n_queries, k), n_threads in product([(1, 5), (2, 3), (9, 12)], (1, 3)):
        queries = queries_of(rng, n_queries, layout)
        chosen = chosen_of(rng, n_queries)[::-1]
        case.assert_found(chosen, queries, k, path, n_threads)


@pytest.mark.parametrize("path", kernels.available())
@pytest.mark.parametrize("layout", LARGE, ids=named)
def test_visits_of_large_pools(rng, layout, path):
    case = Case(rng, layout, 40)
    case.assert_found(chosen_of(rng, 7), queries_of(rng, 7, layout), 4, path, 3)


@pytest.mark.parametrize("path", kernels.available())
@pytest.mark.parametrize("layout", [LAYOUTS[1], LAYOUTS[3], LAYOUTS[-1]], ids=named)
def test_more_queries_visit_a_region_than_kernels_compare_together(rng, layout, path):
    case = Case(rng, layout, 60)
    for chosen in (chosen_of(rng, 150), [np.arange(N_REGIONS)] * 130):
        case.assert_found(chosen, queries_of(rng, len(chosen), layout), 2, path, 2)


@pytest.mark.parametrize("path", kernels.available())
@pytest.mark.parametrize("layout", [LAYOUTS[0], LAYOUTS[3], LAYOUTS[-1]], ids=named)
def test_regions_of_more_codes_than_are_copied_at_a_time(rng, layout, path):
    case = Case(rng, layout, 9000)
    case.regions[:8500] = 4
    chosen = [np.array([4]), np.array([4]), np.array([4, 6]), np.arange(N_REGIONS)]
    case.assert_found(chosen, queries_of(rng, 4, layout), 30, path, 1)


@pytest.mark.parametrize("path", kernels.available())
def test_each_query_has_its_own_mask(rng, path):
    layout = LAYOUTS[-1]
    case, queries = Case(rng, layout, 200), queries_of(rng, 9, layout)
    masks = TWIN.pack_bits(np.abs(queries_of(rng, 9, layout)) - 1)
    for n_threads in (1, 3):
        case.assert_found(chosen_of(rng, 9), queries, 6, path, n_threads, masks=masks)


@pytest.mark.parametrize("path", kernels.available())
def test_rows_settle_ties_of_entries_without_ids(rng, path):
    case = Case(rng, LAYOUTS[3], 200)
    chosen, queries = chosen_of(rng, 9), np.sign(queries_of(rng, 9, LAYOUTS[3]))
    with kernels.use(path) as native:
        rows, scores = native.visit_scores(LAYOUTS[3], case.visited(chosen, with_ids=False), queries, 200, n_threads=2)
    for own_rows, own in zip(rows, scores, strict=True):
        known = own_rows >= 0
        assert_array_equal(np.lexsort((own_rows[known], -own[known])), np.arange(known.sum()))
    assert len(np.unique(scores[1][rows[1] >= 0])) < (rows[1] >= 0).sum()


@pytest.mark.parametrize("path", kernels.available())
@pytest.mark.parametrize("layout", [*LAYOUTS[:-1], *LARGE[:3]], ids=named)
def test_damaged_codes_have_the_values_that_a_search_finds(rng, layout, path):
    case = Case(rng, layout, 60)
    case.codes = rng.integers(0, 256, case.codes.shape).astype(np.uint8)
    whole = CodeRange(case.codes, 0, np.packbits(case.alive, bitorder="little"))
    queries, chosen = queries_of(rng, 3, layout), [np.arange(N_REGIONS)] * 3
    with kernels.use(path) as native:
        bits = native.pack_bits(queries)
        found = native.visit_mismatches(layout, case.visited(chosen), bits, 8, n_threads=2)
        for q in range(3):
            case.assert_same(found, q, native.rank_mismatches(layout, [whole], bits[q : q + 1], 8))
        found = native.visit_scores(layout, case.visited(chosen), queries, 8, n_threads=2)
        for q in range(3):
            case.assert_same(found, q, native.rank_scores(layout, [whole], queries[q : q + 1], 8))


@pytest.mark.parametrize("layout", [Layout("compact", 3, 2**20), Layout("signs", 2**20, 2**20)], ids=named)
def test_tables_of_large_batches_are_prepared_in_parts(rng, layout):
    """A pool of 2^20 allows the tables of eight queries at a time."""
    case, queries = Case(rng, layout, 20), queries_of(rng, 11, layout)
    masks = TWIN.pack_bits(-np.roll(queries, 1, axis=0)) if layout.name == "signs" else None
    case.assert_found(chosen_of(rng, 11), queries, 4, kernels.available()[0], 3, masks=masks)
