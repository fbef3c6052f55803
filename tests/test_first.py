"""First additions: one recipe per file, no lost entries, and no effect of refused additions."""

import copy
import pickle
import threading
import time
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import NotFittedError
from test_trellis import steep

import topsign as ts
from topsign.families import Recipe
from topsign.index import deferred_of

# The signals here are strongly anisotropic, and a random basis warns about it.
pytestmark = [pytest.mark.core, pytest.mark.filterwarnings("ignore::topsign.errors.CalibrationWarning")]

KINDS = {
    "principal": {"n_bytes": 5},
    "hadamard": {"n_bytes": 5, "basis": "hadamard"},
    "adaptive": {"family": "adaptive", "n_bits": 8, "center": True},
    "grouped": {"family": "grouped", "n_bytes": 4, "center": True},
    "sign": {"family": "sign", "n_bytes": 4, "center": True},
}


@pytest.fixture(params=KINDS)
def make(request):
    """Return an index that learns from its first addition."""
    options = KINDS[request.param]
    return lambda **others: ts.Index(**{"n_features": 32} | options | others)


def codes_of(index, ids):
    return index.get(ids).codes.data


def patch_learning(monkeypatch, family, learn):
    """Replace the learning function of a kind of index by one that receives the original and its arguments."""
    recipe_type = Recipe.families[family]
    known = recipe_type.learn
    monkeypatch.setattr(recipe_type, "learn", lambda *args, **options: learn(lambda: known(*args, **options)))


# A file that another process creates in the meantime; another index in this process simulates it.


def test_a_file_made_while_learning_is_joined(rng, make, tmp_path, monkeypatch):
    signals, others, path = steep(rng, 700), steep(rng, 700) + 0.5, tmp_path / "i.topsign"
    late, early = make(path=path), make(path=path)
    turns = iter([lambda: early.add(signals)])

    def learn_slowly(learn):
        next(turns, lambda: None)()
        return learn()

    patch_learning(monkeypatch, late.family, learn_slowly)
    late.add(others)
    assert late.recipe == early.recipe
    assert len(late) == 1400
    alone = ts.Index.from_recipe(early.recipe)
    assert_array_equal(codes_of(late, np.arange(700, 1400)), codes_of(alone, alone.add(others)))


def test_refresh_finds_a_file_made_meanwhile(rng, make, tmp_path):
    signals = steep(rng, 700)
    late, early = make(path=tmp_path / "i.topsign"), make(path=tmp_path / "i.topsign")
    assert not late.refresh()
    early.add(signals)
    assert late.refresh()
    assert_array_equal(late.search(signals[:5], k=3).ids, early.search(signals[:5], k=3).ids)


def test_fit_says_that_the_file_has_its_basis(rng, tmp_path, monkeypatch):
    signals, path = steep(rng, 700), tmp_path / "i.topsign"
    options = {"n_features": 32, "n_bytes": 5, "path": path}
    late, slow, early = (ts.Index(**options) for _ in range(3))
    turns = iter([lambda: early.fit(signals)])

    def learn_slowly(learn):
        next(turns, lambda: None)()
        return learn()

    patch_learning(monkeypatch, "trellis", learn_slowly)
    for index in (slow, late):
        with pytest.raises(ValueError, match=r"i\.topsign was made meanwhile, and has its recipe already; add signals"):
            index.fit(signals + 1)
        index.add(signals[:5])
        assert index.recipe == early.recipe
    assert len(late) == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_features": 33}, "n_features=32, got n_features=33"),
        ({"n_bytes": 6}, "n_bytes=5, got n_bytes=6"),
        ({"basis": "hadamard"}, "basis='principal', got basis='hadamard'"),
        ({"center": False}, "center=True, got center=False"),
        ({"metric": "inner_product"}, "metric='correlation', got metric='inner_product'"),
        ({"random_state": 8}, "random_state=7, got random_state=8"),
        ({"center": np.full(32, 0.1)}, "center=True, got center='another mean'"),
        (
            {"basis": ts.make_projection("hadamard", n_features=32, random_state=7), "random_state": 0},
            "basis='principal', got basis=Hadamard",
        ),
    ],
    ids=str,
)
def test_parameters_must_be_those_of_the_file(rng, tmp_path, options, message):
    """Whether the file is older than the index with other parameters or not."""
    signals, path = steep(rng, 700), tmp_path / "i.topsign"
    asked = {"n_features": 32, "n_bytes": 5, "random_state": 7, "path": path}
    more, late = np.ones((10, options.get("n_features", 32))), ts.Index(**asked | options)
    ts.Index(**asked).add(signals)
    for add in (late.add, lambda more: ts.Index(**asked | options).add(more)):
        with pytest.raises(ValueError, match=message) as caught:
            add(more)
        assert "topsign.open_index takes" in str(caught.value)
    assert len(ts.open_index(path)) == 700


def test_omitted_parameters_are_taken_from_the_file(rng, tmp_path):
    signals = steep(rng, 700)
    for number, options in enumerate(({}, {"basis": "hadamard"}, {"center": False}, {"metric": "inner_product"})):
        asked = {"n_features": 32, "n_bytes": 5, "random_state": 7, "path": tmp_path / str(number)} | options
        ts.Index(**asked).add(signals)
        assert len(ts.Index(**asked | {"center": None, "random_state": None})) == len(ts.Index(**asked)) == 700
    projection = ts.make_projection("circulant", n_features=32, random_state=3)
    asked = {"n_features": 32, "n_bytes": 5, "basis": projection, "path": tmp_path / "circulant"}
    ts.Index(**asked).add(signals)
    assert len(ts.Index(**asked)) == 700


# Threads


def test_two_threads_that_add_first_lose_nothing(rng, make, monkeypatch):
    index, signals = make(), steep(rng, 3000)
    learned = []

    def learn_slowly(learn):
        learned.append(threading.current_thread())
        time.sleep(0.05)  # the other thread also arrives here, unless it waits
        return learn()

    patch_learning(monkeypatch, index.family, learn_slowly)
    threads = [threading.Thread(target=index.add, args=[signals[part::4]]) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(learned) == 1
    assert len(index) == 3000
    found = index.search(signals[::10], k=1).ids[:, 0]
    assert len(np.unique(found)) > 200  # all entries have the same basis


# Refused additions


def not_finite(signals):
    signals[300, 5] = np.nan
    return signals


REFUSED = {
    "nan": ({"change": not_finite}, "row 300, column 5"),
    "features": ({"change": lambda signals: signals[:, :31]}, "must have 32 features"),
    "none": ({"change": lambda _: None}, "got None"),
    "ids twice": ({"ids": [7, 7, *range(10, 708)]}, "ids must differ, but 7 is given more than once"),
    "texts twice": ({"ids": ["a", "a", *map(str, range(698))]}, "ids must differ, but a is given more than once"),
    "few ids": ({"ids": [1, 2]}, "got 2 ids for 700 signals"),
    "kind of ids": ({"ids": np.linspace(0, 1, 700)}, "ids must be a one-dimensional sequence of integers"),
    "negative ids": ({"ids": np.arange(700) - 1}, r"ids must lie in \[0, 2\*\*63\)"),
    "few notes": ({"metadata": [{}]}, "got 1 for 700 signals"),
    "notes": ({"metadata": [{"a": {1}}] * 700}, "metadata at row 0 is not JSON"),
    "source": ({"source": ("name", {"a": {1}})}, "source must be a name and a JSON-serialisable dict"),
    "infinite source": ({"source": ("name", {"a": np.inf})}, "source must be a name and a JSON-serialisable dict"),
}


@pytest.mark.parametrize(("refused", "kind"), [*zip(REFUSED, 6 * ["principal", "adaptive"], strict=False)])
def test_a_first_addition_that_is_refused_leaves_nothing(rng, kind, refused, tmp_path):
    make = partial(ts.Index, n_features=32, **KINDS[kind])
    options, message = REFUSED[refused]
    options, path, signals = dict(options), tmp_path / "i.topsign", steep(rng, 700)
    change = options.pop("change", lambda signals: signals)
    for index in (make(random_state=1), make(random_state=1, path=path)):
        with pytest.raises((ValueError, TypeError), match=message):
            index.add(change(steep(rng, 700) + 1), **options)
        assert deferred_of(index) is not None
        assert not path.exists()
        index.add(signals)  # learns only from these
        alone = make(random_state=1)
        alone.add(signals)
        assert index.recipe == alone.recipe
        assert_array_equal(codes_of(index, index.ids), codes_of(alone, alone.ids))


def zero(signals):
    signals[300] = 0
    return signals


@pytest.mark.parametrize("held", [2**25, 100])
@pytest.mark.parametrize("kind", ["principal", "hadamard"])
def test_a_zero_signal_leaves_nothing(rng, kind, held, tmp_path, monkeypatch):
    monkeypatch.setattr("topsign.index.addition.HELD_BYTES", held)
    options = KINDS[kind]
    signals, path = steep(rng, 700), tmp_path / "i.topsign"
    index = ts.Index(n_features=32, path=path, **options)
    with pytest.raises(ValueError, match=r"signals\[300\] is all zeros and cannot be encoded; drop that row"):
        index.add(zero(signals))
    assert deferred_of(index) is not None
    assert not path.exists()


def test_large_first_additions_are_checked_before_the_file_is_made(rng, make, tmp_path, monkeypatch):
    monkeypatch.setattr("topsign.index.addition.HELD_BYTES", 100)
    monkeypatch.setattr("topsign.store.folder_store.SEGMENT_BYTES", 500)
    path, signals = tmp_path / "i.topsign", steep(rng, 700)
    index = make(path=path, random_state=1)
    with pytest.raises(ValueError, match="row 300"):
        index.add(not_finite(signals.copy()))
    assert not path.exists()
    ids = index.add(signals)
    alone = make(random_state=1)
    alone.add(signals)
    assert_array_equal(codes_of(index, ids), codes_of(alone, ids))


@pytest.mark.parametrize("kind", ["principal", "adaptive"])
def test_only_the_rows_added_are_learned_from(rng, kind):
    options = KINDS[kind]
    signals = steep(rng, 900)
    signals[850] = np.nan
    some, alone = (ts.Index(n_features=32, random_state=1, **options) for _ in range(2))
    some.add(signals, rows=slice(100, 800))
    alone.add(signals[100:800])
    assert some.recipe == alone.recipe
    signals[120] = np.inf
    with pytest.raises(ValueError, match="row 120, column 0"):
        ts.Index(n_features=32, **options).add(signals, rows=slice(100, 800))


def test_adding_nothing_learns_nothing(rng, make, tmp_path):
    index = make(path=tmp_path / "i.topsign")
    assert index.add(np.empty((0, 32))).shape == (0,)
    assert deferred_of(index) is not None
    with pytest.raises(ValueError, match="a source without signals"):
        index.add(np.empty((0, 32)), source=("file", {"taken": 0}))
    assert not (tmp_path / "i.topsign").exists()


@pytest.mark.parametrize("verb", ["upsert", "add_table"])
def test_other_methods_also_learn(rng, make, verb):
    signals, index = steep(rng, 700), make()
    if verb == "upsert":
        index.upsert(signals, ids=np.arange(700))
    else:
        pyarrow = pytest.importorskip("pyarrow")
        index.add_table(pyarrow.table({"vector": signals.tolist()}))
    assert (index.search(signals[:50], k=1).ids[:, 0] == np.arange(50)).mean() > 0.5


def test_what_is_known_before_learning_is_said_and_the_rest_is_named(rng, make, tmp_path):
    index = make(metric="inner_product", path=tmp_path / "i.topsign")
    assert (index.n_features, index.metric) == (32, "inner_product")
    assert index.path == str(tmp_path / "i.topsign")
    for call in (
        lambda: index.save(tmp_path / "copy"),
        lambda: pickle.dumps(index),
        lambda: copy.deepcopy(index),
        lambda: index.project(np.ones(32)),
    ):
        with pytest.raises(NotFittedError, match=r"has not learned its recipe yet; .*add signals to learn from"):
            call()
    assert list(tmp_path.iterdir()) == []
    if index.family == "trellis":
        for name in ("recipe", "info"):
            with pytest.raises(NotFittedError, match="has not learned its recipe yet"):
                getattr(index, name)
        index.fit(steep(rng, 700))
        assert (index.recipe.n_bytes, index.recipe.code_bytes) == (5, 7)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        index.nothing  # noqa: B018


def test_a_file_that_was_opened_does_not_learn_again(rng, tmp_path):
    signals = steep(rng, 700)
    ts.Index(32, n_bytes=5, path=tmp_path / "i.topsign").fit(signals).close()
    with pytest.raises(ValueError, match="this index has its recipe already"):
        ts.open_index(tmp_path / "i.topsign").fit(signals)


def test_rows_are_consecutive(rng):
    index = ts.Index(32, family="sign", n_bytes=4, random_state=1)
    signals = steep(rng, 10)
    for rows in (slice(0, 10, 2), slice(9, 0, -1), range(5), [1, 2]):
        with pytest.raises(TypeError, match="rows must be a slice without a step"):
            index.add(signals, rows=rows)
    assert index.add(signals, rows=slice(4, 2)).shape == (0,)
    assert_array_equal(index.add(signals, rows=slice(-3, None)), [0, 1, 2])
    alone = ts.Index.from_recipe(index.recipe)
    alone.add(signals[7:])
    assert index.get([0, 1, 2]).codes == alone.get([0, 1, 2]).codes


@pytest.mark.parametrize("kind", ["principal", "hadamard"])
def test_equal_signals_cannot_be_learned_from(rng, kind):
    options = KINDS[kind]
    for signals in (
        np.ones((700, 32)),
        np.ones((700, 32)) + 0.01 * rng.standard_normal((700, 32)),
        np.zeros((700, 32)),
    ):
        index = ts.Index(n_features=32, **options)
        with pytest.raises(
            ValueError, match=r"all point nearly the same way, or are zero: .*subtract their mean first"
        ):
            index.fit(signals)
        assert deferred_of(index) is not None


@pytest.mark.parametrize("basis", ["principal", "hadamard"])
def test_a_mean_may_be_fifty_times_as_large_as_the_deviations(rng, basis):
    signals = np.ones((700, 32)) + 0.02 * rng.standard_normal((700, 32))
    index = ts.Index(32, n_bytes=5, basis=basis, random_state=1)
    index.add(signals)
    assert (index.search(signals[:50], k=1).ids[:, 0] == np.arange(50)).mean() > 0.9
