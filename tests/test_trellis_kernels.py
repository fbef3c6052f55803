"""Trellis kernels are bit-identical to the reference on every path, with any number of threads."""

from dataclasses import replace

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose, assert_array_equal
from numpy_kernels import PATHS, use_path

from topsign import kernels
from topsign.families.trellis.design import design_trellis
from topsign.kernels import (
    CellColumns,
    CellPositions,
    CellTables,
    Panels,
    Product,
    QueriedCells,
    RoundedCells,
    RoundedQueries,
    TrellisRange,
    TrellisSignals,
)
from topsign.kernels.trellis import trellis_levels, trellis_sequences
from topsign.theory.water_filling import water_filling

pytestmark = pytest.mark.core

# n_features, n_bits, window: rates below and above one, rings of whole bytes and not, one event, two events.
SHAPES = [(40, 24, 4), (60, 23, 5), (7, 40, 4), (3, 24, 6), (130, 20, 4), (16, 16, 8), (1, 16, 4), (300, 64, 4)]


def on_all_paths():
    for name in PATHS:
        with use_path(name) as chosen:
            for n_threads in (1, 3):
                yield chosen, n_threads


def make(n_features, n_bits, window, *, uneven=True, mean=1, extra=0, fine=False):
    variances = np.geomspace(1, 0.05, n_features) if uneven else np.ones(n_features)
    design = replace(design_trellis(variances, n_bits=n_bits, window=window), fine=fine)
    middle = np.linspace(-0.3, 0.5, n_features) * mean
    return design, design.tables(middle[design.coded], float(middle @ middle), -(-n_bits // 8) + extra)


def coordinates(rng, n, design):
    return rng.standard_normal((n, len(design.coded))).astype(np.float32) * design.deviations


def random_queries(rng, n_queries, n_coded, fine_bits=0):
    values = rng.integers(-127, 128, (n_queries, n_coded)).astype(np.int8)
    half = 2**fine_bits // 2
    fine = rng.integers(-half, half, (n_queries, n_coded)).astype(np.int8) if fine_bits else None
    scales, constants = rng.random(n_queries, np.float32) / 100, rng.standard_normal(n_queries, np.float32)
    return RoundedQueries(values, scales, constants, fine, fine_bits)


def digits_of(queries):
    """Yield values, second digits and their bits for each query."""
    fine = np.zeros_like(queries.values) if queries.fine is None else queries.fine
    return [(values, digits, queries.fine_bits) for values, digits in zip(queries.values, fine, strict=True)]


@pytest.mark.parametrize(("sizes", "fine_bits"), [([1], [0]), ([37], [6]), ([40, 3, 17], [0, 6, 0])])
@pytest.mark.parametrize("n_queries", [1, 40])
def test_rounded_queries_equal_the_reference(rng, sizes, fine_bits, n_queries):
    numbers, weights = rng.permutation(70)[: sum(sizes)], rng.standard_normal(sum(sizes))
    columns = CellColumns(numbers, weights, np.array(sizes), np.array(fine_bits))
    projected = rng.standard_normal((n_queries, 70), np.float32)
    projected[0, numbers] = 0
    if n_queries > 1:  # ties: the weights are 1, and the values are multiples of half of the step
        columns = replace(columns, weights=np.ones(sum(sizes)))
        projected[1] = rng.integers(-254, 255, 70) / 2
        projected[1, numbers] = np.where(np.arange(sum(sizes)) % 5 == 0, 127, projected[1, numbers])
    constants = rng.standard_normal((len(sizes), n_queries), np.float32)
    ends = np.cumsum(sizes)
    for chosen, n_threads in on_all_paths():
        found = chosen.trellis_round(projected, columns, constants, n_threads=n_threads)
        for cell, (queries, bits) in enumerate(zip(found, fine_bits, strict=True)):
            part = slice(ends[cell] - sizes[cell], ends[cell])
            assert queries.fine_bits == bits
            assert_array_equal(queries.constants, constants[cell])
            for q, row in enumerate(projected):
                scale, high, fine = reference.trellis_round(row, numbers[part], columns.weights[part], bits)
                assert queries.scales[q] == scale
                assert_array_equal(queries.values[q], high)
                if bits:
                    assert_array_equal(queries.fine[q], fine)
                else:
                    assert queries.fine is None


@pytest.mark.parametrize(("n_features", "n_bits", "window"), SHAPES)
@pytest.mark.parametrize("uneven", [False, True])
def test_encoding_equals_the_reference(rng, n_features, n_bits, window, uneven):
    design, tables = make(n_features, n_bits, window, uneven=uneven)
    values = coordinates(rng, 3, design)
    values[2] *= 100  # far outside the range of targets
    arrays = (*trellis_sequences(window), trellis_levels())
    expected = np.array([reference.trellis_encode(row, tables, *arrays) for row in values])
    for chosen, n_threads in on_all_paths():
        actual = chosen.trellis_encode([TrellisSignals(tables, values)], n_threads=n_threads)
        assert_array_equal(actual, expected, chosen.name)


@pytest.mark.parametrize(("n_features", "n_bits", "window"), [(40, 32, 10), (500, 96, 10), (64, 256, 12)])
def test_all_paths_encode_alike_at_real_windows(rng, n_features, n_bits, window):
    design, tables = make(n_features, n_bits, window)
    values = coordinates(rng, 19, design)
    signals = {n: [TrellisSignals(tables, values[:n])] for n in (3, 19)}
    codes = [chosen.trellis_encode(signals[n], n_threads=t) for n in (3, 19) for chosen, t in on_all_paths()
             if n == 3 or chosen.name != "numpy"]  # fmt: skip
    for one in codes:
        assert_array_equal(one, codes[-1][: len(one)])


def test_cells_are_encoded_together(rng):
    """Codes of several cells encoded together equal those of the cells encoded one by one."""
    designs = [make(40, 29, 4, extra=0), make(25, 29, 4, uneven=False), make(40, 29, 4, mean=0)]
    rows, cells = rng.permutation(70), []
    for number, ((design, tables), place) in enumerate(zip(designs, np.split(rows, [5, 5]), strict=True)):
        values = coordinates(rng, len(place), design)
        cells.append(TrellisSignals(tables, values, place.astype(np.int64), number))
    for chosen, n_threads in on_all_paths():
        made = chosen.trellis_encode(cells, n_threads=n_threads)
        assert made.shape == (70, 4)
        for cell in cells:
            alone = chosen.trellis_encode([TrellisSignals(cell.tables, cell.values)])
            alone[:, 3] |= cell.mark
            assert_array_equal(made[cell.rows], alone, chosen.name)


@pytest.mark.parametrize(("n_features", "n_columns"), [(1, 1), (3, 31), (40, 32), (33, 300), (384, 65)])
def test_products_equal_the_reference(rng, n_features, n_columns):
    signals = rng.standard_normal((29, n_features)).astype(np.float32)
    columns = rng.standard_normal((n_columns, n_features)).astype(np.float32)
    others = rng.standard_normal((7, n_features)).astype(np.float32)
    factors, minus = rng.random(29, np.float32), rng.random(n_features, np.float32)
    rows = np.array([28, 3, 3, 0])
    products = [Product(Panels.of(columns)), Product(Panels.of(others), minus, rows)]
    plain, scaled = (reference.products(signals, columns, factor) for factor in (None, factors))
    lessened = reference.products(signals[rows], others, factors[rows], minus)
    for chosen, n_threads in on_all_paths():
        for n in (0, 1, 2, 3, 5, 6, 11, 12, 13, 29):
            (found,) = chosen.multiply(signals[:n], products[:1], n_threads=n_threads)
            assert_array_equal(found, plain[:n], chosen.name)
        found = chosen.multiply(signals, products, factors=factors, n_threads=n_threads)
        assert_array_equal(found[0], scaled, chosen.name)
        assert_array_equal(found[1], lessened, chosen.name)


def test_no_code_of_a_tiny_ring_is_cheaper_by_much(rng):
    """The cheapest of all 2**16 codes costs hardly less than the one found; the ring's first state is a heuristic."""
    design, tables = make(12, 16, 4, uneven=False)
    arrays = (*trellis_sequences(4), trellis_levels())
    every = np.arange(2**16, dtype=">u2").view(np.uint8).reshape(-1, 2)
    levels = kernels.active().trellis_decode(tables, every).astype(np.int64)
    found, best = [], []
    for values in rng.standard_normal((20, 12)).astype(np.float32):
        targets = np.rint(values[design.coded] * tables.scales).astype(np.int64)
        squares = (tables.squares * levels**2 + (1 << tables.square_shifts >> 1)) >> tables.square_shifts
        best.append((squares - (targets * levels << tables.shifts)).sum(axis=1).min())
        code = kernels.active().trellis_encode([TrellisSignals(tables, values[np.newaxis, design.coded])])[0]
        found.append(reference.trellis_cost(code, values[design.coded], tables, *arrays))
    assert (np.array(found) >= best).all()
    print(np.mean(np.array(found) == best), np.sum(found) / np.sum(best))
    assert np.sum(found) < 0.98 * np.sum(best)  # both are negative


@pytest.mark.parametrize(("n_features", "n_bits", "window"), SHAPES)
def test_any_bytes_decode_as_the_reference_does(rng, n_features, n_bits, window):
    _, tables = make(n_features, n_bits, window, extra=n_features % 2)  # the ring need not fill the code
    codes = rng.integers(0, 256, (70, tables.code_bytes)).astype(np.uint8)
    arrays = (*trellis_sequences(window), trellis_levels())
    expected = [reference.trellis_decode(code, n_bits, window, tables.offsets, *arrays) for code in codes]
    for chosen, n_threads in on_all_paths():
        assert_array_equal(chosen.trellis_decode(tables, codes, n_threads=n_threads), expected, chosen.name)


@pytest.mark.parametrize(("n_features", "n_bits", "window"), SHAPES)
@pytest.mark.parametrize(("norms", "fine"), [(False, False), (True, False), (False, True)])
def test_scans_equal_the_reference(rng, n_features, n_bits, window, norms, fine):
    _, tables = make(n_features, n_bits, window, mean=50 if fine else 1, extra=2 * norms, fine=fine)
    assert (tables.fine_bits > 0) == fine
    codes = rng.integers(0, 256, (150, tables.code_bytes)).astype(np.uint8)
    codes[40:60] = codes[7]  # ties
    alive = np.packbits(rng.random(150) < 0.7, bitorder="little")
    living = np.flatnonzero(np.unpackbits(alive, count=150, bitorder="little"))
    queries = random_queries(rng, 5, tables.n_coded, tables.fine_bits)
    arrays = (*trellis_sequences(window), trellis_levels())
    levels = np.array(
        [reference.trellis_decode(code, n_bits, window, tables.offsets, *arrays) for code in codes], np.int64
    )
    sums = np.array([[reference.trellis_sum(row, *query) for row in levels] for query in digits_of(queries)])
    weights = np.array([reference.trellis_weight(row, tables) for row in levels], np.float32)
    lengths = np.array([reference.trellis_norm(*code[-2:]) for code in codes], np.float32)
    used = weights * lengths if norms else weights
    scores = (sums.astype(np.float32) * queries.scales[:, None] + queries.constants[:, None]) * used
    order = np.array([living[np.argsort(-row[living], kind="stable")] for row in scores])
    for chosen, n_threads in on_all_paths():
        assert_array_equal(chosen.trellis_sums(tables, codes, queries, n_threads=n_threads), sums)
        assert_array_equal(chosen.trellis_weights(tables, codes, n_threads=n_threads), weights)
        cells, whole = QueriedCells.one(tables, queries, norms=norms), TrellisRange(codes, 1000, alive)
        rows, found = chosen.rank_trellis(cells, [whole], 12, n_threads=n_threads)
        assert_array_equal(rows, 1000 + order[:, :12], chosen.name)
        assert_array_equal(found, np.take_along_axis(scores, order[:, :12], axis=1))
        places = np.array([2, 40, 41])
        some = replace(whole, alive=None, cells=CellPositions(places, np.array([0, 3])))
        rows, found = chosen.rank_trellis(cells, [some], 5, n_threads=n_threads)
        best = np.array([places[np.argsort(-row[places], kind="stable")] for row in scores])
        assert_array_equal(rows[:, :3], 1000 + best, chosen.name)
        assert (rows[:, 3:] == -1).all()
        assert np.isnan(found[:, 3:]).all()
        thresholds = np.array([np.partition(row, -9)[-9] for row in scores], np.float32)
        starts, rows, found = chosen.within_trellis(cells, [whole], thresholds, n_threads=n_threads)
        for q, row in enumerate(scores):
            expected = living[row[living] >= thresholds[q]]
            assert_array_equal(rows[starts[q] : starts[q + 1]], 1000 + expected, chosen.name)
            assert_array_equal(found[starts[q] : starts[q + 1]], row[expected])


def queried(cells, *, norms=False):
    """Return cells, pairs of tables and queries, as kernels take them."""
    tables, queries = zip(*cells, strict=True)
    return QueriedCells(CellTables(tables), RoundedCells.of(queries), norms)


def positions_of(owners, n_cells):
    """Return the positions of each cell's codes."""
    parts = [np.flatnonzero(owners == cell) for cell in range(n_cells)]
    return CellPositions(np.concatenate(parts), np.cumsum([0, *map(len, parts)]))


def cells_of_codes(rng, n_cells, n_queries):
    """Return cells with different coordinates and codes of equal size; some have queries with two digits."""
    for number in range(n_cells):
        n_features, window = int(rng.integers(3, 60)), int(rng.integers(4, 7))
        _, tables = make(n_features, 24 - number, window, mean=50 * (number % 2), extra=2, fine=number % 2 == 1)
        yield tables, random_queries(rng, n_queries, tables.n_coded, tables.fine_bits)


def plain_scores(tables, queries, codes, norms):
    """Return scores by their definition, (n_queries, n_codes)."""
    arrays = (*trellis_sequences(tables.window), trellis_levels())
    scores = np.empty((len(queries), len(codes)), np.float32)
    for i, code in enumerate(codes):
        levels = reference.trellis_decode(code, tables.n_bits, tables.window, tables.offsets, *arrays)
        levels = np.array(levels, np.int64)
        weight = np.float32(reference.trellis_weight(levels, tables))
        weight *= np.float32(reference.trellis_norm(*code[-2:])) if norms else np.float32(1)
        for q, query in enumerate(digits_of(queries)):
            total = np.float32(reference.trellis_sum(levels, *query))
            scores[q, i] = (total * queries.scales[q] + queries.constants[q]) * weight
    return scores


@pytest.mark.usefixtures("small_grains")
@pytest.mark.parametrize(("n_cells", "seed"), [(1, 1), (3, 2), (3, 3), (5, 4)])
def test_ranges_of_all_cells_and_segments_are_searched_together(n_cells, seed):
    """Ids are interleaved between segments, ranges come in any order, codes are removed, and scores tie."""
    rng = np.random.default_rng(seed)
    n_queries, norms = 3, bool(seed % 2)
    cells = list(cells_of_codes(rng, n_cells, n_queries))
    ids = rng.permutation(200)
    ranges, rows, scores = [], [], []
    first_row = 0
    for mine in map(np.sort, np.split(ids, [90, 91, 91, 150])):
        codes = rng.integers(0, 256, (len(mine), cells[0][0].code_bytes)).astype(np.uint8)
        codes[:, -2:], codes[::3] = (0, 0x80), 7  # norms of one; equal codes
        living, owners = rng.random(len(mine)) < 0.8, rng.integers(0, n_cells, len(mine))
        alive = np.packbits(living, bitorder="little")
        ranges.append(TrellisRange(codes, first_row, alive, positions_of(owners, n_cells), mine))
        if n_cells == 1 and first_row:
            ranges[-1] = replace(ranges[-1], cells=None)
        for cell, (tables, queries) in enumerate(cells):
            positions = np.flatnonzero(owners == cell)
            taking = positions[living[positions]]
            rows += zip(mine[taking].tolist(), (first_row + taking).tolist(), strict=True)
            scores.append(plain_scores(tables, queries, codes[taking], norms))
        first_row += len(mine)
    scores = np.concatenate(scores, axis=1)
    ranges, asked = [ranges[i] for i in rng.permutation(len(ranges))], queried(cells, norms=norms)
    for chosen, n_threads in on_all_paths():
        for k in (1, 7, 250):
            found_rows, found = chosen.rank_trellis(asked, ranges, k, n_threads=n_threads)
            for q in range(n_queries):
                best = sorted((-float(scores[q, i]), *row, float(scores[q, i])) for i, row in enumerate(rows))[:k]
                fill = k - len(best)
                assert found_rows[q].tolist() == [row for _, _, row, _ in best] + fill * [-1], chosen.name
                assert_array_equal(found[q], np.float32([score for *_, score in best] + fill * [np.nan]))
        thresholds = np.sort(scores, axis=1)[:, -20].copy()
        starts, found_rows, found = chosen.within_trellis(asked, ranges, thresholds, n_threads=n_threads)
        for q in range(n_queries):
            near = sorted(
                (row, float(scores[q, i])) for i, (_, row) in enumerate(rows) if scores[q, i] >= thresholds[q]
            )
            assert found_rows[starts[q] : starts[q + 1]].tolist() == [row for row, _ in near], chosen.name
            assert_array_equal(found[starts[q] : starts[q + 1]], np.float32([score for _, score in near]))


def test_long_arrays_of_several_cells_are_searched_in_parts():
    """Two codes, and two cells with the same tables: equal scores of parts and cells are ordered by id."""
    rng = np.random.default_rng(6)
    cells = list(cells_of_codes(rng, 2, 2))
    cells.append((replace(cells[0][0]), cells[0][1][:]))
    distinct = rng.integers(0, 256, (2, cells[0][0].code_bytes)).astype(np.uint8)
    of_cells = np.stack([plain_scores(tables, queries, distinct, False) for tables, queries in cells])
    numbers, owners = rng.integers(0, 2, 50_000), rng.integers(0, 3, 50_000)
    codes, ids = distinct[numbers], np.sort(rng.choice(10**6, 50_000, replace=False))
    ranges, asked = [TrellisRange(codes, 5, cells=positions_of(owners, 3), ids=ids)], queried(cells)
    scores = of_cells[owners, :, numbers].T
    order = np.argsort(-scores, axis=1, kind="stable")
    thresholds = np.take_along_axis(scores, order[:, 3000:3001], axis=1)[:, 0].copy()
    ks = [int((row >= least).sum()) - 1000 for row, least in zip(scores, thresholds, strict=True)]
    for chosen, n_threads in on_all_paths():
        for k in (*ks, 50_000):
            rows, found = chosen.rank_trellis(asked, ranges, k, n_threads=n_threads)
            assert_array_equal(rows, 5 + order[:, :k], chosen.name)
            assert_array_equal(found, np.take_along_axis(scores, order[:, :k], axis=1))
        starts, rows, _ = chosen.within_trellis(asked, ranges, thresholds, n_threads=n_threads)
        for q in range(2):
            expected = 5 + np.flatnonzero(scores[q] >= thresholds[q])
            assert_array_equal(rows[starts[q] : starts[q + 1]], expected, chosen.name)


def test_levels_are_antisymmetric_odd_and_known():
    levels = trellis_levels().astype(int)
    assert_array_equal(levels, -levels[::-1])
    assert (levels % 2 == 1).all()
    assert (levels.min(), levels.max(), levels[64], len(levels)) == (-127, 127, 1, 128)
    assert (np.diff(levels) >= 0).all()
    multipliers, addends = trellis_sequences(10)
    assert (multipliers[:3].tolist(), addends[:3].tolist()) == ([407, 393, 377], [37312, 9152, 46464])


def test_water_filling_spends_its_bits_at_one_level():
    variances = np.array([4.0, 1.0, 0.5, 0.01, 0.0])
    for n_bits in (0.5, 2, 10):
        level, rates = water_filling(variances, n_bits)
        assert rates.sum() == pytest.approx(n_bits)
        assert np.minimum(variances, level)[rates > 0] == pytest.approx(level)
        assert (variances[rates == 0] <= level * (1 + 1e-12)).all()


def test_sums_and_norms_of_fine_designs_fit_32_bits(rng):
    """Sums fit for the largest levels, the largest values, and linear coefficients of more than 16 bits."""
    variances = np.append(np.ones(8), np.full(1016, 1e-3))
    design = replace(design_trellis(variances, n_bits=4096, window=10), fine=True)
    middle = np.where(np.arange(design.n_coded) % 2, 30.0, -30.0)
    tables = design.tables(middle, 1e6, 512)
    assert tables.fine_bits == 6
    assert np.abs(tables.linear).max() > 2**15
    for sign in (-1, 1):
        levels = np.full(design.n_coded, 127 * sign, np.int64)
        values = levels * 2**tables.fine_bits
        assert abs(int((values * levels).sum())) < 2**31
        worst = int((levels**2 * tables.quadratic).sum() + 2 * np.abs(levels * tables.linear).sum())
        assert worst < 2**31
    codes = rng.integers(0, 256, (40, 512)).astype(np.uint8)
    levels = kernels.active().trellis_decode(tables, codes).astype(np.int64)
    weights = np.array([reference.trellis_weight(row, tables) for row in levels], np.float32)
    norms = np.sqrt(((levels * design.values + middle) ** 2).sum(axis=1) + 1e6 - middle @ middle)
    for chosen, n_threads in on_all_paths():
        found = chosen.trellis_weights(tables, codes, n_threads=n_threads)
        assert_array_equal(found, weights, chosen.name)
        assert_allclose(found, 1 / norms, rtol=1e-4)
