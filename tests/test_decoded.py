"""The default comparison by decoding, which is the definition for the fast comparisons of all families."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from test_trellis import steep

import topsign as ts
from topsign.families import AdaptiveRecipe, GroupedRecipe, Recipe, SignRecipe, TrellisRecipe
from topsign.families.comparison import DecodedComparison, DecodedPairing, unit, unit_queries
from topsign.index import Index
from topsign.search.engine import living_ranges

# The signals here are strongly anisotropic, and a random basis warns about it.
pytestmark = pytest.mark.filterwarnings("ignore::topsign.errors.CalibrationWarning")

N_FEATURES = 32


INNER = {"metric": "inner_product"}
CASES = [
    (AdaptiveRecipe, {"n_bits": 7}),
    (AdaptiveRecipe, {"n_bits": 9, "n_pool": 50, "basis": "gaussian"}),
    (AdaptiveRecipe, {"n_bits": 7} | INNER),
    (AdaptiveRecipe, {"n_bits": 7, "center": True}),
    (SignRecipe, {}),
    (SignRecipe, {"n_bytes": 8}),
    (SignRecipe, INNER),
    (SignRecipe, {"center": True}),
    (GroupedRecipe, {}),
    (GroupedRecipe, {"n_bytes": 5, "basis": "gaussian"}),
    (GroupedRecipe, {"n_bytes": 3} | INNER),
    (GroupedRecipe, {"center": True}),
    (TrellisRecipe, {"n_bytes": 5, "basis": "hadamard", "center": False}),
    (TrellisRecipe, {"n_bytes": 5, "basis": "hadamard"}),
    (TrellisRecipe, {"n_bytes": 5}),
    (TrellisRecipe, {"n_bytes": 5} | INNER),
]


def made(family, options, sample):
    """Return a recipe of a built-in family."""
    return family.learn(sample, n_features=N_FEATURES, random_state=1, **options)


def filled(recipe, rng):
    """An index of several segments with removed entries."""
    index, signals = Index.from_recipe(recipe), steep(rng, 90) * rng.uniform(0.5, 2, (90, 1)).astype(np.float32)
    ids = rng.permutation(500)[:90]
    for part in np.split(np.arange(90), [62, 84]):
        index.add(signals[part], ids=ids[part])
    index.remove(ids[::7])
    assert index.info["segments"] > 1
    return index


def definition(recipe, index, queries):
    """Return inner products of unit queries with the reference vectors of all entries by ascending id, in float64."""
    codes = index.get(index.ids).codes
    vectors = recipe.reference(codes.data).astype(np.float64)
    given = queries.astype(np.float64) - (0 if recipe.center is None else recipe.center)
    norms = np.linalg.norm(given, axis=1, keepdims=True)
    return given / norms @ vectors.T, norms


@pytest.mark.parametrize(("family", "options"), CASES)
def test_the_default_comparison_is_the_definition(rng, family, options):
    recipe = made(family, options, steep(rng, 700))
    index, queries = filled(recipe, rng), np.vstack([steep(rng, 5), np.zeros((1, N_FEATURES))])
    if recipe.center is not None:
        queries[-1] = recipe.center
    comparison = DecodedComparison(recipe, *unit_queries(recipe, queries))
    expected, _ = definition(recipe, index, queries[:5])
    ranges, snapshot, n_entries = living_ranges(index._store.snapshot), index._store.snapshot, len(index)
    rows, values = comparison.rank(ranges, n_entries + 3)
    assert_array_equal(rows[:, n_entries:], -1)
    assert np.isnan(values[:, n_entries:]).all()
    ids = snapshot.gather("ids", rows[:, :n_entries].ravel()).reshape(6, -1)
    by_id = np.take_along_axis(values, np.argsort(ids, axis=1), axis=1)
    assert_allclose(by_id[:5], expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())  # float32
    assert_array_equal(by_id[5], 0)  # a zero query scores zero with all entries
    for row, value in zip(ids, by_id, strict=True):
        assert_array_equal(row, index.ids[np.lexsort((index.ids, -value))])  # ties by ascending id
    bounds = np.sort(by_id, axis=1)[:, -20].astype(np.float32)
    starts, hits, _ = comparison.within(ranges, bounds)
    for row in range(6):
        here = snapshot.gather("ids", hits[starts[row] : starts[row + 1]])
        assert_array_equal(np.sort(here), index.ids[by_id[row] >= bounds[row]])


class PlainRecipe(TrellisRecipe):
    """Trellis codes, searched as those of a family that only encodes and decodes."""

    prepare, pairing, reference = Recipe.prepare, Recipe.pairing, Recipe.reference


class WeightedRecipe(PlainRecipe):
    """Codes whose reference vectors are not of norm one."""

    def reference(self, codes):
        return 3 * super().reference(codes)


@pytest.mark.parametrize("kind", [PlainRecipe, WeightedRecipe])
def test_a_family_that_only_encodes_and_decodes_can_be_searched(rng, kind):
    recipe = kind.learn(steep(rng, 700), n_bytes=5, random_state=1)
    index, queries = filled(recipe, rng), steep(rng, 9)
    expected, _ = definition(recipe, index, queries)
    found = index.search(queries, k=8)
    for row in range(9):
        assert_array_equal(found.ids[row], index.ids[np.lexsort((index.ids, -expected[row].astype(np.float32)))][:8])
    assert_allclose(found.scores, np.take_along_axis(expected, np.searchsorted(index.ids, found.ids), 1), rtol=1e-5)
    angles = np.arccos(np.clip(found.scores.astype(np.float64), -1, 1)) / np.pi
    assert_allclose(found.distances, angles, atol=1e-6)
    assert np.isnan(found.p_values).all()
    matches = index.within(queries, threshold=float(found.scores[0, 3]))
    assert matches.starts[1] == 4
    for call in (
        lambda: index.search(queries, scoring="hamming"),
        lambda: index.search(queries, adaptive_bits=3),
        lambda: index.within(queries, false_alarm=0.1),
    ):
        with pytest.raises(ValueError, match=r"no signs to compare|goes with a sign index|needs p-values"):
            call()
    decoded = index.get(index.ids).codes.decode().astype(np.float64)
    cosines = decoded @ decoded.T
    first, second = np.triu_indices(len(index), 1)
    limit = float(np.sort(cosines[first, second])[-30:-28].mean())
    pairs = index.pairs(threshold=limit)
    chosen = cosines[first, second] >= limit
    assert set(zip(pairs.first, pairs.second, strict=True)) == set(
        zip(index.ids[first[chosen]], index.ids[second[chosen]], strict=True)
    )
    at = np.searchsorted(index.ids, pairs.first), np.searchsorted(index.ids, pairs.second)
    assert_allclose(pairs.scores, cosines[at], rtol=1e-6)
    assert np.isnan(pairs.p_values).all()
    np.fill_diagonal(cosines, -np.inf)
    nearest = cosines.argmax(axis=1)
    wanted = {tuple(sorted((int(index.ids[i]), int(index.ids[j])))) for i, j in enumerate(nearest)}
    best = index.pairs(k=1)
    assert set(zip(best.first.tolist(), best.second.tolist(), strict=True)) == wanted
    assert isinstance(recipe.pairing(), DecodedPairing)


def test_reference_vectors_of_trellis_codes_are_those_of_norm_one(rng):
    codes = ts.Encoder(n_bytes=5, random_state=1).fit(steep(rng, 700)).encode(steep(rng, 20))
    recipe = codes.recipe
    assert_allclose(recipe.reference(codes.data), unit(codes.decode()), atol=1e-6)
