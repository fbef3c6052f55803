"""Centring, calibration by searches for impostors, E-values, and warnings about invalid p-values."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy
from numpy.testing import assert_allclose, assert_array_equal

import topsign as ts
from topsign.index import significance
from topsign.index.significance import best_statistics, own_scores, random_scores
from topsign.paper.heads import load_cifar10_head
from topsign.search.query_block import query_blocks

pytestmark = pytest.mark.slow

REAL = Path(__file__).parent / "data" / "real" / "signals.npz"


def anisotropic(rng, n_signals, n_features=128):
    """Return signals with a common mean and a decaying spectrum, like embeddings of a network."""
    spectrum = 1 / np.sqrt(1 + np.arange(n_features) / 8)
    return (1 + rng.standard_normal((n_signals, n_features)) * spectrum).astype(np.float32)


def real_signals(name):
    if name == "images":
        return load_cifar10_head().features[::5]
    with np.load(REAL) as file:
        return file[name].astype(np.float32)


# Centring


@pytest.mark.parametrize("kind", ["adaptive", "grouped", "sign"])
def test_a_centred_index_is_an_index_of_centred_signals(rng, kind):
    signals, queries = anisotropic(rng, 300), anisotropic(rng, 20)
    mean = signals.astype(np.float64).mean(axis=0).astype(np.float32)
    options = {"n_features": 128, "random_state": 3} | ({"n_bits": 40} if kind == "adaptive" else {"n_bytes": 16})
    plain, learned, given = (
        ts.Index(family=kind, **options),
        ts.Index(family=kind, center=True, **options),
        ts.Index(family=kind, center=mean, **options),
    )
    plain.add(signals - mean)
    for index in (learned, given):
        index.add(signals[:300])
        assert_array_equal(index.recipe.mean, mean)
        for rescore in (None, signals):
            found = index.search(queries, k=5, rescore=rescore)
            wanted = plain.search(queries - mean, k=5, rescore=None if rescore is None else signals - mean)
            assert_array_equal(found.ids, wanted.ids)
            assert_allclose(found.scores, wanted.scores, rtol=1e-5)


# Calibration


def fired(index, queries, false_alarm):
    """Return the fraction of the queries that have a match."""
    return np.mean(np.diff(index.within(queries, false_alarm=false_alarm, force=True).starts) > 0)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("name", ["sentences", "images", "residuals"])
def test_calibrated_levels_hold_on_real_signals(name, center):
    """Half of the signals are entries, a quarter are impostors for calibration, and a quarter for testing.

    Over calibrations from m impostors the rate has a beta distribution; the tolerance is four standard errors of it and
    of the count.
    """
    signals = real_signals(name)
    signals = signals[np.random.default_rng(0).permutation(len(signals))]
    n = len(signals) // 4
    index = ts.Index(signals.shape[1], family="adaptive", n_bits=signals.shape[1] // 4, center=center, random_state=1)
    index.add(signals[: 2 * n])
    index.calibrate(signals[2 * n : 3 * n], false_alarm=0.05)
    for level in (0.2, 0.05):
        error = np.sqrt(2 * level * (1 - level) / n)
        assert abs(fired(index, signals[3 * n :], level) - level) < 4 * error + 1.5 / n, level


def test_own_signals_with_many_near_duplicates_are_refused(rng):
    """Each entry has a near duplicate, so that no impostor score is left to calibrate with."""
    signals = anisotropic(rng, 2000)
    index = ts.Index(128, family="adaptive", n_bits=32, center=True, originals="float32", random_state=1)
    index.add(np.concatenate([signals, signals + 0.01 * rng.standard_normal((2000, 128))]))
    with pytest.raises(ValueError, match=r"too many near-duplicates.* give impostors"):
        index.calibrate()
    assert index.calibration is None
    index.calibrate(anisotropic(rng, 1000))
    assert fired(index, anisotropic(rng, 1000), 0.05) < 1.5 * 0.05
    assert index.search(signals[:50], k=1).e_values.max() < 0.01


def test_few_near_duplicates_raise_thresholds_only(rng):
    signals = anisotropic(rng, 4000)
    options = {"n_features": 128, "n_bits": 32, "center": True, "originals": "float32", "random_state": 1}
    clean, mixed = ts.Index(family="adaptive", **options), ts.Index(family="adaptive", **options)
    clean.add(signals)
    mixed.add(np.concatenate([signals, signals[:10] + 0.01 * rng.standard_normal((10, 128))]))
    thresholds = []
    for index in (clean, mixed):
        thresholds.append(index.calibrate().threshold(0.01))
        copies = signals[:200] + 0.1 * np.linalg.norm(signals[0]) / np.sqrt(128) * rng.standard_normal((200, 128))
        assert fired(index, copies, 0.01) >= 0.95
    assert thresholds[1] >= thresholds[0] - 0.01


def test_one_impostor_is_not_thousands_of_pairs(rng):
    index = ts.Index(128, family="adaptive", n_bits=24, random_state=1)
    index.add(anisotropic(rng, 3000))
    for n_impostors in (1, 30, 152):
        with pytest.raises(ValueError, match=rf"at least 153 impostors to calibrate with, got {n_impostors};"):
            index.calibrate(anisotropic(rng, n_impostors))
    assert index.calibrate(anisotropic(rng, 153)).level <= 0.01
    assert index.calibrate(anisotropic(rng, 30), false_alarm=0.05).level <= 0.051


@pytest.mark.parametrize("kind", ["adaptive", "grouped", "sign", "trellis"])
def test_impostors_that_are_entries_are_refused(rng, kind):
    signals = anisotropic(rng, 1000)
    if kind == "trellis":
        index = ts.Index(family=kind, n_features=128, random_state=1, n_bytes=16, basis="hadamard")
    else:
        index = ts.Index(
            family=kind, n_features=128, random_state=1, center=True, **({} if kind == "adaptive" else {"n_bytes": 16})
        )
    index.add(signals)
    impostors = anisotropic(rng, 300)
    impostors[7:] = signals[:293]
    with pytest.raises(ValueError, match=r"293 of 300 impostors, the first impostors\[7\], are entries.* as ids="):
        index.calibrate(impostors)
    assert index.calibration is None


def test_false_alarm_rates_hold_after_growth(rng):
    """With ten times as many entries of the same kind, the threshold rises, and no further than necessary."""
    index = ts.Index(128, family="adaptive", n_bits=32, center=True, random_state=1)
    index.add(anisotropic(rng, 1000))
    learned = index.calibrate(anisotropic(rng, 1000))
    assert learned.is_straight
    first = index.search(anisotropic(rng, 300), k=1)
    index.add(anisotropic(rng, 9000))
    n = 2000
    for level in (0.05, 0.01):
        rate = fired(index, anisotropic(rng, n), level)
        assert level / 5 < rate < 1.3 * level + 4 * np.sqrt(level * (1 / n + 1 / 1000)), level
    assert fired(index, anisotropic(rng, n), 0.05) < np.mean(
        index.search(anisotropic(rng, n), k=1).scores >= learned.threshold(0.05)
    )  # a threshold that does not grow
    grown = index.search(anisotropic(rng, 300), k=1)
    assert abs(np.log(np.median(grown.e_values) / np.median(first.e_values))) < 0.5
    with pytest.raises(ValueError, match=r"false_alarm=9e-05 is below 0\.0001, the least that 1,000 queries support"):
        index.within(anisotropic(rng, 2), false_alarm=9e-5)


def clustered(rng, n_signals):
    centres = np.random.default_rng(99).standard_normal((30, 128))
    return (0.4 * centres[rng.integers(0, 30, n_signals)] + anisotropic(rng, n_signals)).astype(np.float32)


@pytest.mark.parametrize("law", [anisotropic, clustered])
@pytest.mark.parametrize(
    ("options", "complete"), [({"family": "trellis", "n_bytes": 48}, 0.9), ({"family": "grouped", "n_bytes": 32}, 0.5)]
)
def test_groups_hold_their_family_wise_rate(rng, law, options, complete):
    """Of 20 indexes with 300 unrelated entries, no more have a false pair than chance allows at a rate of 0.1.

    Ten entries have two copies each with noise of a twentieth of their norm. Nine in ten such groups of trellis codes
    are complete; agreements of grouped codes are coarse, so that some calibrations leave no threshold below 1.
    """
    n_false = n_complete = 0
    recipe = ts.Index(128, center=True, random_state=1, **options).fit(law(rng, 3000)).recipe
    for _ in range(20):
        index = ts.Index.from_recipe(recipe)
        entries = law(rng, 300)
        noise = rng.standard_normal((20, 128)) * np.linalg.norm(entries[:10].repeat(2, axis=0), axis=1, keepdims=True)
        index.add(np.concatenate([entries, entries[:10].repeat(2, axis=0) + 0.05 * noise / np.sqrt(128)]))
        index.calibrate(law(rng, 600))
        groups = index.groups(false_alarm=0.1)
        true = [{row, 300 + 2 * row, 301 + 2 * row} for row in range(10)]
        n_false += any(not any(set(group) <= one for one in true) for group in groups)
        n_complete += sum(set(group) in true for group in groups)
    assert n_false <= scipy.stats.binom.isf(1e-3, 20, 0.1)
    assert n_complete >= complete * 200
    with pytest.raises(ValueError, match="the least that 600 queries support"):
        index.groups(false_alarm=4e-4)
    assert (index.pairs(false_alarm=0.1).log10_p_values < np.log10(0.1 / 320)).all()


def test_calibration_is_stored_and_used_everywhere(rng, tmp_path):
    signals, impostors = anisotropic(rng, 1500), anisotropic(rng, 400)
    path = tmp_path / "index.topsign"
    index = ts.Index(128, family="adaptive", n_bits=32, center=True, random_state=1, path=path)
    index.add(signals)
    learned = index.calibrate(impostors)
    index.add(impostors[:3])  # the null stays
    assert index.sources == {}
    with ts.open_index(path, readonly=True) as again:
        assert again.calibration.to_json() == learned.to_json()
        queries = anisotropic(rng, 30)
        neighbors = again.search(queries, k=20)
        assert_array_equal(neighbors.p_values, index.search(queries, k=20).p_values)
        best = neighbors.scores[neighbors.e_values < 0.6]  # above the median; thresholds grow in steps of 5%
        expected = learned.e_value(best, 1575) / 1575 * 1503
        assert_allclose(neighbors.e_values[neighbors.e_values < 0.6], expected, rtol=1e-9)
        assert len(best) > 9
        assert_allclose(10**neighbors.log10_p_values, neighbors.p_values)
        exact = again.search(queries, k=5, rescore=np.concatenate([signals, impostors[:3]]))
        assert (exact.p_values >= learned.floor / 1500).all()
        for scoring in ("asymmetric", "hamming"):
            null = again._nulls()[scoring]
            whole = again.search(queries, k=len(again), scoring=scoring)
            values = whole.scores.astype(np.float64) if scoring == "asymmetric" else -np.round(whole.distances * 32)
            matches = again.within(queries, false_alarm=0.5, scoring=scoring, force=True)
            assert len(matches.ids) == np.count_nonzero(values >= null.search_threshold(0.5, len(again)))
            assert len(matches.ids) > 0
        with pytest.raises(ValueError, match=r"the least that 400 queries support; calibrate with [0-9,]+, or"):
            again.within(queries, false_alarm=1e-6)


def test_an_index_with_originals_calibrates_itself(rng, tmp_path):
    """Whether it is in memory, opened or copied; without originals it asks for impostors."""
    path, options = tmp_path / "index.topsign", {"n_features": 128, "n_bits": 32, "center": True, "random_state": 1}
    signals = anisotropic(rng, 3000)
    durable, memory = (ts.Index(family="adaptive", originals="float32", path=one, **options) for one in (path, None))
    for part in (slice(0, 900), slice(900, 901), slice(901, 3000)):
        for index in (durable, memory):
            index.add(signals[part])
    expected = memory.calibrate().to_json()
    with ts.open_index(path) as again:
        assert again.calibrate().to_json() == expected
    assert pickle.loads(pickle.dumps(memory)).calibrate().to_json() == expected
    with pytest.raises(ValueError, match="keeps no originals to calibrate with; give impostors"):
        ts.Index.from_recipe(memory.recipe).calibrate()
    few = ts.Index(128, family="grouped", n_bytes=8, originals="float32", random_state=1)
    few.add(rng.standard_normal((30, 128)))
    assert few.calibrate(false_alarm=0.3).n_queries == 30, "fewer entries than the searches of a calibration return"


def test_an_index_stores_nothing_of_its_signals_unless_asked(rng, tmp_path):
    index = ts.Index(64, family="adaptive", n_bits=16, random_state=1, path=tmp_path / "index.topsign")
    signals = rng.standard_normal((200, 64)).astype(np.float32)
    index.add(signals)
    files = [file for file in index.path and (tmp_path / "index.topsign").rglob("*") if file.is_file()]
    content = b"".join(file.read_bytes() for file in files)
    assert not any(signal.tobytes() in content for signal in signals)
    assert index.nbytes <= sum(file.stat().st_size for file in files) <= index.nbytes + 4096


def test_signals_of_entries_calibrate_an_opened_index(rng, tmp_path):
    """With ids the result equals that of the process that added the signals; none is compared with itself."""
    signals = anisotropic(rng, 2000)
    names = [f"entry {i}" for i in range(2000)]
    options = {"n_features": 128, "n_bits": 32, "center": True, "random_state": 1}
    with ts.Index(family="adaptive", path=tmp_path / "index.topsign", **options) as index:
        index.add(signals, ids=names)
    again = ts.open_index(tmp_path / "index.topsign")
    learned = again.calibrate(signals[:500], ids=names[:500])
    p_values = again.search(anisotropic(rng, 100), k=2000).p_values
    for level in (0.05, 0.01):
        assert level / 1.5 < np.mean(p_values <= level) < 1.5 * level  # 500 signals with 512 random entries
    assert learned.own
    with pytest.raises(ValueError, match=r"500 of 500 impostors, the first impostors\[0\], are entries"):
        again.calibrate(signals[:500])
    with pytest.raises(ValueError, match="ids must be one per signal, got 3 for 500 signals"):
        again.calibrate(signals[:500], ids=names[:3])
    with pytest.raises(ValueError, match="give these signals too"):
        again.calibrate(ids=names)
    with pytest.raises(ValueError, match="ids must be in the index, but other is not"):
        again.calibrate(signals[:1], ids=["other"])


def test_a_damaged_calibration_is_reported(rng, tmp_path):
    index = ts.Index(128, family="adaptive", n_bits=32, center=True, path=tmp_path / "index.topsign")
    index.add(anisotropic(rng, 300))
    index.calibrate(anisotropic(rng, 300))
    with index._store.change() as change:
        record = change.sources["topsign:calibration"]
        nulls = record["nulls"] | {"asymmetric": record["nulls"]["asymmetric"] | {"knots": "none"}}
        change.sources["topsign:calibration"] = record | {"nulls": nulls}
    with pytest.raises(ts.StorageError, match="calibration: cannot be read"):
        index.search(anisotropic(rng, 2))


# E-values


def test_e_values_count_the_entries_searched(rng):
    index = ts.Index(64, family="adaptive", n_bits=16, random_state=1)
    index.add(rng.standard_normal((500, 64)))
    queries = rng.standard_normal((40, 64))
    found = index.search(queries, k=3)
    assert found.n_entries == 500
    assert_array_equal(found.e_values, 500 * found.p_values)
    assert index.search(queries, k=3, among=[1, 2, 3]).n_entries == 3
    matches = index.within(queries, threshold=0.2)
    assert_array_equal(matches.e_values, 500 * matches.p_values)
    # At an E-value of 1, one impostor per query is expected; the tolerance is four standard errors of a Poisson count.
    whole = index.search(queries, k=500)
    assert abs(np.count_nonzero(whole.e_values <= 1) - 40) < 4 * np.sqrt(40)


# Warnings


def test_the_calibration_warning_is_given_once(rng):
    signals, queries = anisotropic(rng, 1000), anisotropic(rng, 40)
    index = ts.Index(128, family="adaptive", n_bits=32, random_state=1)
    index.add(signals)
    index.search(queries[:1])  # has too few pairs to decide
    with pytest.warns(ts.CalibrationWarning, match=r"have p-values below 0\.001, where 0\.10% is nominal.*center=True"):
        index.search(queries)
    index.search(queries)
    with pytest.raises(ValueError, match=r"entries would be returned per query: .* force=True"):
        index.within(queries, false_alarm=0.01)
    assert len(index.within(queries, false_alarm=0.01, force=True).ids) > 0.01 * 1000 * 40
    with pytest.raises(ValueError, match="keeps no originals to calibrate with; give impostors"):
        index.calibrate()
    index.calibrate(anisotropic(rng, 400))
    index.search(queries)
    index.within(queries, false_alarm=0.5)
    assert index.check(queries, recall=None).null.trusted


@pytest.mark.parametrize(("n_entries", "n_checks"), [(500, 0), (3000, 1)])
def test_the_null_is_checked_once_for_a_level_and_only_with_enough_pairs(rng, monkeypatch, n_entries, n_checks):
    index, checked = ts.Index(64, family="grouped", n_bytes=8), []
    index.add(rng.standard_normal((n_entries, 64)))
    check = significance.check_pairs
    monkeypatch.setattr(
        significance, "check_pairs", lambda *args, **options: checked.append(1) or check(*args, **options)
    )
    for query in rng.standard_normal((3, 64)):
        index.within(query, false_alarm=0.01)
    assert len(checked) == n_checks


@pytest.mark.parametrize("scoring", ["asymmetric", "hamming"])
def test_a_calibration_does_not_apply_to_queries_of_fewer_bits(rng, scoring):
    index, queries = ts.Index(64, family="sign", n_bytes=8), rng.standard_normal((50, 64))
    index.add(rng.standard_normal((1000, 64)))
    before = index.search(queries, scoring=scoring, adaptive_bits=16).p_values
    index.calibrate(rng.standard_normal((400, 64)))
    assert_array_equal(index.search(queries, scoring=scoring, adaptive_bits=16).p_values, before)
    assert len(index.within(queries, false_alarm=0.05, scoring=scoring, adaptive_bits=16).ids) < 20


def test_drift_of_queries_and_entries_is_noticed_again_if_the_index_doubles(rng):
    """False alarms multiply after a change of the distribution of entries and queries; 64 queries detect it."""

    def signals(n_signals, shift=0.0):
        return anisotropic(rng, n_signals) - 0.7 + shift * np.eye(128, dtype=np.float32)[3]

    index = ts.Index(128, family="adaptive", n_bits=24, random_state=1)
    index.add(signals(3000))
    index.calibrate(signals(600))
    for _ in range(20):
        index.search(signals(50), k=1)  # no warning, which would be an error here
    index.add(signals(1200, shift=4))
    with pytest.warns(ts.CalibrationWarning, match=r"have drifted.* calibrated with 3,000 entries, there are 4,200"):
        matches = index.within(signals(64, shift=4), false_alarm=0.01)
    assert np.mean(np.diff(matches.starts) > 0) > 0.1
    index.search(signals(500, shift=4))  # warned once
    index.add(signals(4200, shift=12))
    with pytest.warns(ts.CalibrationWarning, match=r"have drifted.* there are 8,400"):
        index.search(signals(64, shift=12))
    index.calibrate(signals(600, shift=4))
    for _ in range(63):
        index.search(rng.standard_normal(128), k=1)  # one by one
    with pytest.warns(ts.CalibrationWarning, match="have drifted"):
        index.search(rng.standard_normal(128), k=1)


@pytest.mark.parametrize("family", ["adaptive", "grouped", "sign"])
def test_codes_without_signals_show_whether_signals_are_isotropic(rng, tmp_path, family):
    shares = []
    for signals in (rng.standard_normal((1000, 256)), anisotropic(rng, 1000, 256)):
        path = tmp_path / f"{len(shares)}.topsign"
        options = {"n_features": 256, "random_state": 1, "path": path}
        options |= {"n_bits": 32} if family == "adaptive" else {"n_bytes": 32}
        index = ts.Index(family=family, **options)
        index.add(signals)
        with index._store.change() as change:
            change.tables = {}  # an index without a sample of its signals
        index.close()
        with ts.open_index(path, readonly=True) as again:
            found = again.check(recall=None).null
        assert found.by_codes
        shares.append(found.share)
    assert shares[0] < 3e-3  # 8,128 pairs of 128 entries: within four standard errors of pairs that share entries
    assert shares[1] > 0.1


def test_the_command_line_centres_and_calibrates(rng, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from topsign.cli import app

    monkeypatch.chdir(tmp_path)
    np.save("signals.npy", anisotropic(rng, 1500))
    np.save("impostors.npy", anisotropic(rng, 400))
    np.save("queries.npy", anisotropic(rng, 40))

    def run(line, code=0):
        result = CliRunner().invoke(app, line.split(), env={"COLUMNS": "200"})
        assert result.exit_code == code, result.output
        return result

    run("build signals.npy -o own.topsign --family adaptive --n-bits 32 --center --originals int8")
    run("calibrate own.topsign")
    with ts.open_index("own.topsign") as own:
        assert own.check(np.load("queries.npy"), recall=None).null.trusted
    run("build signals.npy -o plain.topsign --family adaptive --n-bits 32")
    shown = run("search plain.topsign queries.npy -k 1")
    assert "e_value" in shown.stdout
    assert "warning: " in shown.stderr
    assert "would be returned per query" in run("search plain.topsign queries.npy --false-alarm 0.01", code=2).stderr
    assert "p-values do not fit these signals" in run("verify plain.topsign").stderr
    run("build signals.npy -o centred.topsign --family adaptive --n-bits 32 --center")
    stored = ts.open_index("centred.topsign").recipe.mean
    assert_allclose(stored, np.load("signals.npy").mean(axis=0), rtol=1e-5)
    assert "calibrated by 400 searches for impostors" in run("calibrate centred.topsign impostors.npy").stdout
    assert run("search centred.topsign queries.npy --false-alarm 0.01").stderr == ""
    assert "calibration  searches 400, from impostors, entries " in run("inspect centred.topsign").stdout


@pytest.mark.parametrize("scoring", ["hamming", "asymmetric"])
def test_no_signal_is_compared_with_its_own_entry(rng, scoring):
    """Neither in the scores of random pairs nor in the best scores, from which drift and thresholds are computed."""
    signals = anisotropic(rng, 60)
    index = ts.Index(128, family="adaptive", n_bits=40, random_state=3)
    own = rng.permutation(1000)[:60]
    index.add(signals, ids=own)
    ((_, scan),) = query_blocks(index.recipe, signals, scoring=scoring)
    scan, snapshot = scan.correlated(), index._store.snapshot
    everything, others = (random_scores(scan, snapshot, ids) for ids in (None, own))
    assert np.isfinite(everything).all()
    assert (np.isnan(others).sum(axis=1) == 1).all()
    assert_array_equal(
        np.nanmax(others, axis=1), everything[:, 1]
    )  # the largest score would be that of the signal itself
    hits = scan.nearest(snapshot, 2)
    assert_array_equal(best_statistics(scan, hits, own, 1)[:, 0], everything[:, 1])
    assert_array_equal(best_statistics(scan, hits, None, 2), everything[:, :2])


@pytest.mark.parametrize("kind", ["adaptive", "grouped", "sign", "trellis"])
@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_scores_of_own_codes_do_not_depend_on_norms(rng, kind, factor):
    """Own scores are correlations, with which thresholds are compared, whatever scores the metric has."""
    signals = rng.standard_normal((300, 64)).astype(np.float32)
    sizes = {"n_bits": 16} if kind == "adaptive" else {"n_bytes": 8}
    sizes |= {"basis": "hadamard", "center": False} if kind == "trellis" else {}
    plain, scaled = (
        ts.Index(family=kind, n_features=64, metric=metric, random_state=1, **sizes)
        for metric in ("correlation", "inner_product")
    )
    expected = own_scores(plain.recipe, signals)
    found = own_scores(scaled.recipe, signals * np.float32(factor))
    assert_allclose(found, expected, rtol=2e-3)
    assert 0.5 < expected.mean() < 1.1
    scaled.add(signals * np.float32(factor))
    assert scaled.calibrate(signals[:200] * np.float32(factor), ids=np.arange(200), false_alarm=0.05).level <= 0.051


@pytest.mark.parametrize("family", ["adaptive", "trellis"])
def test_repeated_impostors_count_once(rng, family):
    """A promise for 153 searches is not made by ten signals, however often they are given."""
    options = {"n_bits": 24} if family == "adaptive" else {"n_bytes": 12, "basis": "hadamard"}
    index = ts.Index(128, family=family, random_state=1, **options)
    index.add(rng.standard_normal((5000, 128)))
    with pytest.raises(ValueError, match="takes at least 153 impostors to calibrate with, got 10; each counts once"):
        index.calibrate(np.repeat(rng.standard_normal((10, 128)), 60, axis=0))
    assert index.calibration is None


@pytest.mark.parametrize("calibrated", [False, True])
def test_the_null_is_checked_once_and_not_at_every_search(rng, monkeypatch, calibrated):
    checked, plain = [], significance.check_pairs
    monkeypatch.setattr(
        significance, "check_pairs", lambda *args, **options: checked.append(1) or plain(*args, **options)
    )
    index = ts.Index(64, family="sign", n_bytes=8)
    index.add(rng.standard_normal((1000, 64)))
    if calibrated:
        index.calibrate(rng.standard_normal((400, 64)))
    queries = rng.standard_normal((5, 64))
    for _ in range(3):
        index.within(queries, false_alarm=0.1)
    index.within(queries, false_alarm=0.05)
    assert len(checked) == 1
    index.within(queries, false_alarm=0.2)  # more matches might be a flood
    index.add(rng.standard_normal((1000, 64)))
    index.within(queries, false_alarm=0.1)
    assert len(checked) == 3
    for _ in range(3):
        index.search(queries)
    assert len(checked) == 3 + (not calibrated)
