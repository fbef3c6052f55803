"""Conformance test for code families, built in or user-defined: :func:`topsign.testing.check_family`."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from . import kernels
from ._arrays import Float32
from ._checks import suggests_keywords
from .encoding import encode
from .export import from_arrow, to_arrow
from .families import Recipe, read_codes
from .heads import Head
from .index import Index, open_index
from .search.query_block import query_blocks

N_FEATURES, N_SIGNALS, N_QUERIES, K = 32, 400, 9, 7
TOLERANCE = 1e-3
"""Tolerance for the difference between a score and its definition in float64.

Queries are rounded to 15 bits, and the factor of a trellis code has an error of up to 2**-14.
"""


@suggests_keywords
def check_family(
    make: type[Recipe] | Callable[[Float32], Recipe], *, seed: int = 0, device: Any = None, client: Any = None
) -> None:
    """Assert that a family satisfies the contract of :class:`topsign.Recipe`.

    Codes must survive round trips through JSON, messages, pickles and, if pyarrow is installed, Arrow tables. Searches,
    range searches and pairs, in memory and in a folder, must return the results of the definition (inner products of
    unit queries with ``recipe.reference(codes)``), with filters, removed entries and several segments. Results
    must be bit-identical on all instruction sets of the machine. Heads must accept the codes.

    Parameters
    ----------
    make : Recipe type or callable
        A function of a sample that returns a recipe, or a type whose ``learn`` needs no further parameters.
    seed : int
        Seed of the signals.
    device : str, optional
        CUDA device, such as "cuda", that must give bit-identical results.
    client : dask.distributed.Client, optional
        Dask cluster that must give bit-identical results. Its workers must have registered the family.

    Examples
    --------
    >>> import topsign as ts
    >>> from topsign.families import SignRecipe
    >>> ts.testing.check_family(lambda sample: SignRecipe.learn(sample, n_features=sample.shape[1], random_state=7))
    """
    rng = np.random.default_rng(seed)
    signals = (rng.standard_normal((N_SIGNALS, N_FEATURES)) * np.linspace(2, 0.5, N_FEATURES)).astype(np.float32)
    queries = signals[:N_QUERIES] + 0.3 * rng.standard_normal((N_QUERIES, N_FEATURES)).astype(np.float32)
    learn: Any = make
    recipe: Recipe = learn.learn(signals, n_features=N_FEATURES) if isinstance(make, type) else learn(signals)
    _check_round_trips(recipe, signals)
    index = _filled(Index.from_recipe(recipe), signals)
    _check_searches(index, signals, queries)
    _check_pairs(index)
    for path in kernels.available():
        with kernels.use(path):
            _check_same(index, _filled(Index.from_recipe(recipe), signals), queries)
    _check_same(index, pickle.loads(pickle.dumps(index)), queries)
    if device is not None:
        _check_same(index, index.to(device), queries)
    with tempfile.TemporaryDirectory() as folder:
        _check_durable(index, Path(folder) / "family.topsign", signals, queries, client)
    if find_spec("pyarrow") is not None:
        _check_export(index)
    _check_head(recipe, signals, queries)


def _filled(index: Index, signals: Float32) -> Index:
    """Return an index with three segments and metadata, from which some entries were removed."""
    third = len(signals) // 3
    for start in range(0, len(signals), third):
        some = signals[start : start + third]
        index.add(some, metadata=[{"row": start + row} for row in range(len(some))])
    index.remove(np.arange(5, len(signals), 11))
    return index


def _check_round_trips(recipe: Recipe, signals: Float32) -> None:
    again = Recipe.from_json(recipe.to_json(), "record")
    assert again == recipe, "a recipe made from to_json() must be equal"
    made, remade = encode(recipe, signals), encode(again, signals)
    assert made.shape == (len(signals), recipe.code_bytes), "codes must have code_bytes bytes each"
    assert np.array_equal(made, remade), "equal recipes must make equal codes"
    codes = recipe.codes_type(made, recipe=recipe)
    assert read_codes(codes.to_bytes()) == codes, "codes must survive to_bytes()"
    decoded = codes.decode()
    assert decoded.shape == signals.shape, "decode must return one signal per code"
    assert np.isfinite(decoded).all(), "decoded signals must be finite"
    cosines = (decoded * signals).sum(axis=1) / np.linalg.norm(decoded, axis=1) / np.linalg.norm(signals, axis=1)
    assert np.mean(cosines) > 0.2, f"decoded signals must resemble the signals, their mean cosine is {cosines.mean()}"


def _definition(index: Index, queries: Float32) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and scores (n_queries, n_entries) according to the definition."""
    entries = index.get(index.ids)
    reference = index.recipe.reference(entries.codes.data).astype(np.float64)
    center = 0 if index.recipe.center is None else index.recipe.center
    centered = (queries - center).astype(np.float64)
    return entries.ids, centered / np.linalg.norm(centered, axis=1, keepdims=True) @ reference.T


def _check_searches(index: Index, signals: Float32, queries: Float32) -> None:
    ids, scores = _definition(index, queries)
    norms = np.linalg.norm(queries - (0 if index.recipe.center is None else index.recipe.center), axis=1)
    if index.metric == "inner_product":
        scores = scores * norms[:, np.newaxis]
    scale = max(1.0, float(np.abs(scores).max()))
    found = index.search(queries, k=K)
    by_id = {id: column for column, id in enumerate(ids.tolist())}
    columns = np.vectorize(by_id.__getitem__)(found.ids)
    exact = np.take_along_axis(scores, columns, axis=1)
    assert np.allclose(found.scores, exact, atol=TOLERANCE * scale), "scores must be those of the definition"
    best = -np.sort(-scores, axis=1)[:, :K]
    assert np.allclose(exact, best, atol=2 * TOLERANCE * scale), "search must find the k best entries"
    assert ((found.distances >= 0) & (found.distances <= 1)).all(), "distances must lie in [0, 1]"
    threshold = float(np.quantile(scores, 0.9))
    matched = index.within(queries, threshold=threshold)
    slack = 2 * TOLERANCE * scale
    for query in range(len(queries)):
        here = set(matched.ids[matched.starts[query] : matched.starts[query + 1]].tolist())
        assert set(ids[scores[query] >= threshold + slack].tolist()) <= here, "within must miss no entry"
        assert here <= set(ids[scores[query] >= threshold - slack].tolist()), "within must add no entry"
    chosen = index.search(queries, k=K, where="row < 50")
    assert (chosen.ids < 50).all(), "filters must hold"
    few = index.search(queries, k=K, among=[1, 2])
    assert set(few.ids[few.ids >= 0].tolist()) == {1, 2}, "searches among two entries must return them"
    for scoring in index.recipe.scorings:
        for _, scan in query_blocks(index.recipe, queries, scoring=scoring):
            assert scan.comparison.scoring == scoring


def _check_pairs(index: Index) -> None:
    nearest = index.pairs(k=1)
    assert len(nearest) >= len(index) // 2, "every entry has a nearest other entry"
    assert (nearest.first != nearest.second).all(), "no entry is paired with itself"
    assert (np.diff(nearest.scores) <= 0).all(), "pairs must come in falling order of their scores"
    threshold = float(np.median(nearest.scores))
    close = index.pairs(threshold=threshold)
    pairs = set(zip(close.first.tolist(), close.second.tolist(), strict=True))
    wanted = nearest.scores > threshold
    expected = zip(nearest.first[wanted].tolist(), nearest.second[wanted].tolist(), strict=True)
    assert set(expected) <= pairs, "pairs above a threshold must include the nearest ones above it"


def _check_same(index: Index, other: Any, queries: Float32) -> None:
    """Assert that another index with the same entries gives the same results."""
    threshold = float(np.nanmedian(index.search(queries, k=K).scores))
    for scoring in index.recipe.scorings:
        limit: dict[str, Any] = {"threshold": threshold} if scoring == "asymmetric" else {"radius": 0.45}
        for method, options in (
            ("search", {"k": K}),
            ("search", {"k": K, "where": "row < 50"}),
            ("search", {"k": K, "among": [1, 2]}),
            ("within", limit),
        ):
            ours, theirs = (getattr(one, method)(queries, scoring=scoring, **options) for one in (index, other))
            for name in ("ids", "scores", "p_values", "distances"):
                known, found = getattr(ours, name), getattr(theirs, name)
                assert np.array_equal(known, found, equal_nan=known.dtype.kind == "f"), f"{name} must be equal"


def _check_durable(index: Index, path: Path, signals: Float32, queries: Float32, client: Any) -> None:
    """Assert that a folder, locally and on a cluster, gives the same results as the index in memory."""
    with _filled(Index.from_recipe(index.recipe, path=path), signals):
        pass
    with open_index(path) as opened:
        _check_same(index, opened, queries)
        opened.verify()
        _check_same_pairs(index, opened)
    if client is not None:
        from .distributed import open as open_on_cluster  # needs Dask

        with open_on_cluster(str(path), client=client) as shared:
            _check_same(index, shared, queries)
            _check_same_pairs(index, shared)
            added = shared.add(signals[:3])
            assert len(shared) == len(index) + 3, "a cluster must add entries"
            shared.remove(added)
            _check_same(index, shared, queries)


def _check_same_pairs(index: Index, other: Index) -> None:
    """Assert that another index of the same entries has the same pairs."""
    ours, theirs = index.pairs(k=1), other.pairs(k=1)
    assert np.array_equal(ours.first, theirs.first), "pairs must be equal"
    assert np.array_equal(ours.scores, theirs.scores), "scores of pairs must be equal"


def _check_export(index: Index) -> None:
    """Assert that codes survive an Arrow table in each form that can be read back, and that vectors can be exported."""
    codes = index.get(index.ids).codes
    for form in codes.forms:
        table = to_arrow(index, form=form)
        assert table.num_rows == len(index), "a table must have one row per entry"
        if form != "dense":
            back = from_arrow(table).entries
            assert back.codes == codes, f"codes must survive a table of the form {form!r}"
            assert np.array_equal(back.ids, index.ids), "ids must survive a table"


def _check_head(recipe: Recipe, signals: Float32, queries: Float32) -> None:
    """Assert that class vectors can be encoded and that logits resemble the exact ones."""
    sizes = {recipe.size_name: getattr(recipe, recipe.size_name)} if type(recipe).weight_sizes(N_FEATURES) else {}
    coded = type(recipe).for_weights(signals[:50], **sizes)
    head = Head.of(coded, signals[:50], np.zeros(50), np.arange(50))
    exact = queries.astype(np.float64) @ signals[:50].astype(np.float64).T
    logits = head.logits(queries)
    assert logits.shape == exact.shape, "a head must give one logit per class"
    correlation = np.corrcoef(logits.ravel(), exact.ravel())[0, 1]
    assert correlation > 0.2, f"logits must resemble the exact ones, their correlation is {correlation}"
