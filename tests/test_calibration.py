"""Centring, learned nulls, E-values, and the doubt that is spoken where p-values do not fit."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import topsign as ts
from topsign.paper.heads import load_cifar10_head
from topsign.theory import LearnedNull

REAL = Path(__file__).parent / "data" / "real" / "signals.npz"


def anisotropic(rng, n_signals, n_features=128):
    """Signals with a common mean and a decaying spectrum, as embeddings of a network have."""
    spectrum = 1 / np.sqrt(1 + np.arange(n_features) / 8)
    return (1 + rng.standard_normal((n_signals, n_features)) * spectrum).astype(np.float32)


def real_signals(name):
    if name == "images":
        return load_cifar10_head().features[::5]
    with np.load(REAL) as file:
        return file[name].astype(np.float32)


# Learned nulls


@pytest.mark.parametrize(
    "law", [stats.norm(), stats.t(5), stats.gumbel_r(), stats.expon()], ids=lambda law: law.dist.name
)
def test_a_learned_null_holds_on_fresh_scores(law):
    """Shares of 200,000 fresh scores below each level: four standard errors of both samples, and 10% for the fit."""
    rng = np.random.default_rng(1)
    null = LearnedNull.learn(law.rvs(100_000, random_state=rng))
    fresh = null.pvalue(law.rvs(200_000, random_state=rng))
    for level in (0.5, 0.05, 0.01, 1e-3):
        share = np.mean(fresh <= level)
        error = np.sqrt(level * (1 / 100_000 + 1 / 200_000))
        assert abs(share - level) < 4 * error + 0.1 * level, level
    # Beyond the sample the uncertainty of the fit is part of the p-value, and the sample's support its end.
    assert 0.1 < null.pvalue(law.isf(1e-5)) / 1e-5 < 10
    assert null.pvalue(law.isf(1e-30)) >= null.floor == 1 / (10 * 100_000)


def test_few_scores_give_cautious_tails():
    scores = np.random.default_rng(2).standard_normal(100_000)
    few, many = LearnedNull.learn(scores[:1000]), LearnedNull.learn(scores)
    assert few.pvalue(4.5) > many.pvalue(4.5) > 0
    assert few.floor == pytest.approx(100 * many.floor)


def test_counts_have_the_null_of_their_law():
    counts = np.random.default_rng(3).binomial(64, 0.5, 100_000)
    null = LearnedNull.learn(-counts, step=1)
    wanted = np.arange(18, 40)
    assert_allclose(null.pvalue(-wanted), stats.binom.cdf(wanted, 64, 0.5), rtol=0.25)


def test_matches_among_the_pairs_are_trimmed():
    rng = np.random.default_rng(4)
    scores = np.concatenate([0.1 * rng.standard_normal(50_000), rng.uniform(0.8, 1.0, 200)])
    trimmed, whole = LearnedNull.learn(scores, trim=True), LearnedNull.learn(scores)
    assert 49_990 < trimmed.n_scores <= 50_000
    assert trimmed.pvalue(0.45) < 1e-4 < whole.pvalue(0.45)


def test_scores_of_one_query_count_for_less():
    rng = np.random.default_rng(5)
    alike = np.repeat(rng.standard_normal(100), 100)
    scores = alike + rng.standard_normal(10_000)
    null = LearnedNull.learn(scores, groups=np.repeat(np.arange(100), 100))
    assert null.n_effective < 0.2 * null.n_scores
    assert LearnedNull.learn(scores).n_effective == null.n_scores


def test_thresholds_invert_p_values():
    null = LearnedNull.learn(np.random.default_rng(6).standard_normal(20_000))
    for level in (0.5, 0.05, 1e-3, 1e-5):
        assert_allclose(null.pvalue(null.threshold(level)), level, rtol=1e-6)
    assert null.threshold(null.floor / 2) == np.inf


def test_a_null_survives_json_and_hostile_records_do_not():
    null = LearnedNull.learn(np.random.default_rng(7).standard_normal(2000))
    record = json.loads(json.dumps(null.to_json()))
    again = LearnedNull.from_json(record)
    assert_array_equal(again.pvalue(np.linspace(-3, 6, 50)), null.pvalue(np.linspace(-3, 6, 50)))
    bad = [{}, record | {"knots": [1, 1]}, record | {"scale": -1}, record | {"shape": 7}, record | {"survival": "x"}]
    bad += [
        record | {"knots": record["knots"][::-1]},
        record | {"n_effective": float("nan")},
        record | {"tail_share": 2},
    ]
    for one in bad:
        with pytest.raises(ValueError, match="not a learned null"):
            LearnedNull.from_json(one)


def test_too_few_scores():
    with pytest.raises(ValueError, match="at least 1000 finite scores"):
        LearnedNull.learn(np.zeros(10))


# Centring


@pytest.mark.parametrize("kind", [ts.AdaptiveIndex, ts.SignIndex])
def test_a_centred_index_is_an_index_of_centred_signals(rng, kind):
    signals, queries = anisotropic(rng, 300), anisotropic(rng, 20)
    mean = signals.astype(np.float64).mean(axis=0).astype(np.float32)
    options = {"n_features": 128, "random_state": 3} | ({"n_bits": 40} if kind is ts.AdaptiveIndex else {})
    plain, learned, given = kind(**options), kind(center=True, **options), kind(center=mean, **options)
    plain.add(signals - mean)
    for index in (learned, given):
        index.add(signals[:300])
        assert_array_equal(index.recipe.mean, mean)
        for rescore in (None, signals):
            found = index.search(queries, k=5, rescore=rescore)
            wanted = plain.search(queries - mean, k=5, rescore=None if rescore is None else signals - mean)
            assert_array_equal(found.ids, wanted.ids)
            assert_allclose(found.scores, wanted.scores, rtol=1e-5)


def test_the_mean_is_kept_in_the_file(rng, tmp_path):
    signals = anisotropic(rng, 300)
    path = tmp_path / "centred.topsign"
    index = ts.AdaptiveIndex(n_features=128, n_bits=40, center=True, random_state=3, path=path)
    assert index.path == str(path)
    assert not path.exists()  # its header holds the mean
    index.add(signals[:200])
    index.add(signals[200:])
    with ts.open_index(path) as again:
        assert_array_equal(again.recipe.mean, signals[:200].astype(np.float64).mean(axis=0).astype(np.float32))
        assert_array_equal(again.search(signals[:5], k=3).ids, index.search(signals[:5], k=3).ids)
    same = ts.AdaptiveIndex(n_features=128, n_bits=40, center=True, path=path)
    assert len(same) == 300
    with pytest.raises(ValueError, match="was written with"):
        ts.AdaptiveIndex(n_features=128, n_bits=40, path=path)


def test_a_bad_mean_raises():
    for center in (np.zeros(5), "mean", [np.nan] * 16):
        with pytest.raises(ValueError, match="center must be True, False or a mean of 16 finite values"):
            ts.AdaptiveIndex(n_features=16, n_bits=4, center=center)


# Calibration


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("name", ["sentences", "images", "residuals"])
def test_calibrated_p_values_hold_on_real_signals(name, center):
    """Half of the signals are entries and half impostors, of which half are learned from and half judged.

    Shares below 0.05, 0.01 and 1e-3 are within a factor of 1.5 of nominal.
    """
    signals = real_signals(name)
    signals = signals[np.random.default_rng(0).permutation(len(signals))]
    n = len(signals) // 4
    index = ts.AdaptiveIndex(n_features=signals.shape[1], n_bits=signals.shape[1] // 4, center=center, random_state=1)
    index.add(signals[: 2 * n])
    index.calibrate(signals[2 * n : 3 * n])
    judged = index.search(signals[3 * n :], k=len(index)).p_values.ravel()
    for level in (0.05, 0.01, 1e-3):
        assert 1 / 1.5 < np.mean(judged <= level) / level < 1.5, level


def test_own_entries_calibrate_too(rng):
    """Each entry has a near duplicate, which the null must not learn."""
    signals = anisotropic(rng, 2000)
    index = ts.AdaptiveIndex(n_features=128, n_bits=32, center=True, random_state=1)
    index.add(np.concatenate([signals, signals + 0.05 * anisotropic(rng, 2000)]))
    index.calibrate()
    found = index.search(anisotropic(rng, 300), k=4000)
    for level in (0.05, 0.01, 1e-3):
        assert 1 / 1.5 < np.mean(found.p_values <= level) / level < 1.5, level
    assert index.search(signals[:50], k=1).p_values.max() < 1e-4


def test_calibration_is_stored_and_used_everywhere(rng, tmp_path):
    signals, impostors = anisotropic(rng, 1500), anisotropic(rng, 400)
    path = tmp_path / "index.topsign"
    index = ts.AdaptiveIndex(n_features=128, n_bits=32, random_state=1, path=path)
    index.add(signals)
    learned = index.calibrate(impostors, n_pairs=300_000)
    index.add(impostors[:3])  # the null stays
    assert index.sources == {}
    with ts.open_index(path, readonly=True) as again:
        assert again.calibration.to_json() == learned.to_json()
        queries = anisotropic(rng, 30)
        neighbors = again.search(queries, k=20)
        assert_array_equal(neighbors.p_values, index.search(queries, k=20).p_values)
        rho = again.search(queries, k=20).scores.astype(np.float64)
        assert_allclose(neighbors.p_values, learned.nulls["asymmetric"].pvalue(rho))
        exact = again.search(queries, k=5, rescore=np.concatenate([signals, impostors[:3]]))
        assert (exact.p_values >= learned.floor).all()
        for scoring in ("asymmetric", "hamming"):
            level = 1 - (1 - 0.5) ** (1 / len(again))
            whole = again.search(queries, k=len(again), scoring=scoring)
            matches = again.within(queries, false_alarm=0.5, scoring=scoring)
            assert len(matches.ids) == np.count_nonzero(whole.p_values <= level)
        with pytest.raises(ValueError, match="the null was learned from too few pairs"):
            again.within(queries, false_alarm=1e-6)


def test_an_opened_index_has_no_signals_to_learn_from(rng, tmp_path):
    with ts.AdaptiveIndex(n_features=128, n_bits=32, path=tmp_path / "index.topsign") as index:
        index.add(anisotropic(rng, 300))
    with ts.open_index(tmp_path / "index.topsign") as again, pytest.raises(ValueError, match="give impostors="):
        again.calibrate()


def test_signals_of_entries_calibrate_an_opened_index(rng, tmp_path):
    """With their ids: as the object that added them would have, none compared with itself."""
    signals = anisotropic(rng, 2000)
    names = [f"entry {i}" for i in range(2000)]
    with ts.AdaptiveIndex(n_features=128, n_bits=32, path=tmp_path / "index.topsign", random_state=1) as index:
        index.add(signals, ids=names)
    again = ts.open_index(tmp_path / "index.topsign")
    learned = again.calibrate(signals[:500], ids=names[:500])
    p_values = again.search(anisotropic(rng, 100), k=2000).p_values
    for level in (0.05, 0.01):
        assert level / 1.5 < np.mean(p_values <= level) < 1.5 * level  # as in the test of real signals
    impostors = again.calibrate(signals[:500])  # half of the entries were drawn: 250 signals would meet themselves
    assert impostors.nulls["asymmetric"].n_scores - learned.nulls["asymmetric"].n_scores > 200
    with pytest.raises(ValueError, match="ids must be one per signal, got 3 for 500 signals"):
        again.calibrate(signals[:500], ids=names[:3])
    with pytest.raises(ValueError, match="give these signals too"):
        again.calibrate(ids=names)
    with pytest.raises(ValueError, match="ids must be in the index, but other is not"):
        again.calibrate(signals[:1], ids=["other"])


def test_a_damaged_calibration_is_reported(rng, tmp_path):
    index = ts.AdaptiveIndex(n_features=128, n_bits=32, path=tmp_path / "index.topsign")
    index.add(anisotropic(rng, 300))
    index.calibrate()
    with index.store.change() as change:
        record = change.sources["topsign:calibration"]
        nulls = record["nulls"] | {"asymmetric": record["nulls"]["asymmetric"] | {"scale": "none"}}
        change.sources["topsign:calibration"] = record | {"nulls": nulls}
    with pytest.raises(ts.StorageError, match="calibration: cannot be read"):
        index.search(anisotropic(rng, 2))


def test_the_sample_of_signals_is_uniform_and_bounded(rng):
    index = ts.AdaptiveIndex(n_features=64, n_bits=8, random_state=1)
    for start in range(0, 6000, 1500):
        index.add(rng.standard_normal((1500, 64)), ids=np.arange(start, start + 1500))
    kept = index._sample.ids
    assert len(kept) == 1000 == len(set(kept))
    assert stats.chisquare(np.bincount(kept // 1500)).pvalue > 1e-3


# E-values


def test_e_values_count_the_entries_searched(rng):
    index = ts.AdaptiveIndex(n_features=64, n_bits=16, random_state=1)
    index.add(rng.standard_normal((500, 64)))
    queries = rng.standard_normal((40, 64))
    found = index.search(queries, k=3)
    assert found.n_entries == 500
    assert_array_equal(found.e_values, 500 * found.p_values)
    assert index.search(queries, k=3, among=[1, 2, 3]).n_entries == 3
    matches = index.within(queries, threshold=0.2)
    assert_array_equal(matches.e_values, 500 * matches.p_values)
    # An impostor that good turns up once per query at an E-value of one: four standard errors of a Poisson count.
    whole = index.search(queries, k=500)
    assert abs(np.count_nonzero(whole.e_values <= 1) - 40) < 4 * np.sqrt(40)


# Doubt


def test_doubt_is_spoken_once(rng):
    signals, queries = anisotropic(rng, 1000), anisotropic(rng, 40)
    index = ts.AdaptiveIndex(n_features=128, n_bits=32, random_state=1)
    index.add(signals)
    with pytest.warns(ts.CalibrationWarning, match=r"have p-values below 0\.001, where 0\.10% is nominal.*center=True"):
        index.search(queries)
    index.search(queries)
    with pytest.raises(ValueError, match=r"entries would be returned per query: .* force=True"):
        index.within(queries, false_alarm=0.01)
    assert len(index.within(queries, false_alarm=0.01, force=True).ids) > 0.01 * 1000 * 40
    index.calibrate()
    index.search(queries)
    index.within(queries, false_alarm=0.5)
    assert index.check_null(queries).trusted


def test_the_null_is_checked_again_when_the_index_has_doubled(rng):
    """Entries of another nature come: the learned null no longer holds, and the check after doubling notices."""
    index = ts.AdaptiveIndex(n_features=128, n_bits=32, random_state=1)
    index.add(rng.standard_normal((600, 128)))
    index.calibrate()
    index.search(rng.standard_normal((40, 128)))
    index.add(anisotropic(rng, 500))
    queries = anisotropic(rng, 40)
    index.search(queries)  # not doubled yet
    index.add(anisotropic(rng, 2000))
    with pytest.warns(ts.CalibrationWarning, match=r"learned with 600 entries, there are 3,100"):
        index.search(queries)
    index.search(queries)  # said once


def test_isotropic_signals_raise_no_doubt(rng):
    for kind in (ts.AdaptiveIndex, ts.SignIndex):
        index = (
            kind(n_features=256, random_state=1)
            if kind is ts.SignIndex
            else kind(n_features=256, n_bits=32, random_state=1)
        )
        index.add(rng.standard_normal((3000, 256)))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            index.search(rng.standard_normal((40, 256)))
        assert index.check_null().trusted
        assert index.check_null(rng.standard_normal((100, 256))).trusted


@pytest.mark.parametrize("family", ["adaptive", "sign"])
def test_codes_alone_tell_whether_signals_are_isotropic(rng, tmp_path, family):
    shares = []
    for signals in (rng.standard_normal((1000, 256)), anisotropic(rng, 1000, 256)):
        path = tmp_path / f"{len(shares)}.topsign"
        options = {"n_features": 256, "random_state": 1, "path": path}
        index = ts.SignIndex(**options) if family == "sign" else ts.AdaptiveIndex(n_bits=32, **options)
        index.add(signals)
        index.close()
        with ts.open_index(path, readonly=True) as again:
            found = again.check_null()
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

    run("build signals.npy -o own.topsign --bits 32 --calibrate")
    with ts.open_index("own.topsign") as own:
        assert own.check_null(np.load("queries.npy")).trusted
    run("build signals.npy -o plain.topsign --bits 32")
    shown = run("search plain.topsign queries.npy -k 1")
    assert "e_value" in shown.stdout
    assert "warning: " in shown.stderr
    assert "make the index with center=True" in shown.stderr
    assert "would be returned per query" in run("search plain.topsign queries.npy --false-alarm 0.01", code=1).stderr
    assert "p-values do not fit these signals" in run("verify plain.topsign").stderr
    run("build signals.npy -o centred.topsign --bits 32 --center")
    stored = ts.open_index("centred.topsign").recipe.mean
    assert_allclose(stored, np.load("signals.npy").mean(axis=0), rtol=1e-5)
    assert "null learned from" in run("calibrate centred.topsign impostors.npy").stdout
    assert run("search centred.topsign queries.npy --false-alarm 0.01").stderr == ""
    assert "calibrated  True" in run("inspect centred.topsign").stdout
