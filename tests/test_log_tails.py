"""Logarithms of p-values far in the tail, compared with high-precision sums and continued fractions."""

import json
from decimal import Decimal, localcontext
from math import comb

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.interpolate import PchipInterpolator
from typer.testing import CliRunner

import topsign as ts
from topsign import significance
from topsign.cli import app
from topsign.significance.null_distributions import (
    FARTHEST,
    IsotropicNull,
    MismatchNull,
    MonotoneCubic,
    NormalNull,
    SampleNull,
)
from topsign.theory import tails
from topsign.theory.order_statistics import Selection

DIGITS = 1700


def log10(value):
    return float(value.log10())


def coordinate_tail(x, a):
    """Return P(first coordinate of a random unit vector in 2 a + 1 dimensions >= x), a finite sum for integer a."""
    with localcontext() as context:
        context.prec = DIGITS
        x = Decimal(x)
        z, term, total = 1 - x * x, Decimal(1), Decimal(0)
        for j in range(a):
            total += term
            term *= z * (2 * j + 1) / (2 * j + 2)
        return (1 - x * total) / 2


def normal_tail(x):
    """P(normal >= x), by Laplace's continued fraction."""
    with localcontext() as context:
        context.prec = 60
        x, fraction = Decimal(x), Decimal(x)
        for k in range(400, 0, -1):
            fraction = x + k / fraction
        root = (2 * Decimal("3.14159265358979323846264338327950288419716939937510582097494459")).sqrt()
        return (-x * x / 2).exp() / root / fraction


@pytest.mark.parametrize("x", ["0.3", "0.5", "0.9"])
@pytest.mark.parametrize("a", [5, 300, 2000])
def test_coordinates_of_unit_vectors(x, a):
    expected = log10(coordinate_tail(x, a))
    found = tails.log_coordinate_tail(np.array([float(x)]), 2 * a + 1) / np.log(10)
    assert_allclose(found, expected, rtol=1e-11)
    assert_allclose(SampleNull(2 * a + 1).log10_p_values(np.array([float(x)])), expected, rtol=1e-10)


def test_signals_that_are_equal_have_a_floor():
    found = SampleNull(512).log10_p_values(np.array([1.0, np.nextafter(1.0, 0)]))
    assert found[0] == found[1]
    assert -4100 < found[0] < -4000  # (1 - r**2)**255.5 at the largest r below 1


@pytest.mark.parametrize("x", [5, 43, 200])
def test_normal_deviates(x):
    assert_allclose(NormalNull().log10_p_values(np.array([float(x)])), log10(normal_tail(x)), rtol=1e-12)


@pytest.mark.parametrize(("n_bits", "mismatches"), [(64, 10), (1500, 40), (2048, 0), (4096, 900)])
def test_mismatches(n_bits, mismatches):
    total = sum(comb(n_bits, k) for k in range(mismatches + 1))
    expected = float(Decimal(total).log10()) - n_bits * np.log10(2)
    shape = {"n_bits": n_bits, "n_pool": n_bits, "n_features": n_bits}
    assert_allclose(significance.match_log10_pvalue(mismatches, **shape), expected, rtol=1e-11)
    law = IsotropicNull(Selection(n_bits, n_bits), n_bits, "hadamard")
    table = MismatchNull(law.mismatch_log10_pvalues)
    assert_allclose(table.log10_p_values(np.array([-float(mismatches)])), expected, rtol=1e-11)
    assert significance.match_pvalue(mismatches, **shape) == pytest.approx(max(10.0**expected, 5e-324), rel=1e-9)


@pytest.mark.parametrize(("pool", "farthest"), [("hadamard", 0.82), ("gaussian", 0.98)])
def test_the_table_of_scores_follows_the_law_far_in_the_tail(pool, farthest):
    shape = {"n_features": 8192, "projection": pool, "scoring": "asymmetric"}
    scores = farthest * np.array([0.3, 0.6, 0.9, 1])
    expected = significance.match_log10_pvalue(scores, n_bits=512, n_pool=8192, **shape)
    assert expected[3] < -400
    law = IsotropicNull(Selection(512, 8192), 8192, pool)
    assert_allclose(law.score_log10_pvalues(scores), expected, rtol=1e-6)
    expected = significance.match_log10_pvalue(scores, n_bytes=448, **shape)
    law = IsotropicNull(Selection(1, 8, 896), 8192, pool)
    assert_allclose(law.score_log10_pvalues(scores), expected, rtol=1e-6)


def test_logarithms_join_where_tails_underflow():
    scores = np.linspace(0.55, 0.8, 400)  # from 1e-184 to 1e-444
    logs = significance.match_log10_pvalue(scores, scoring="asymmetric", n_bits=512, n_pool=8192, n_features=8192)
    steps = np.diff(logs, 2)
    assert np.abs(steps).max() < 0.01  # no discontinuity in value or slope at 1e-280


def test_the_floor_of_tables():
    law = IsotropicNull(Selection(2048, 8192), 8192, "hadamard")
    found = law.score_log10_pvalues(np.array([0.5, 1.0, 1.2, -1.0]))
    assert_allclose(found[1:3], FARTHEST)
    assert FARTHEST < found[0] < 0 == found[3]


def test_student_tails_of_known_impostors():
    null = significance.ScoreCalibration.fit(np.random.default_rng(0).standard_normal(401), n_entries=1, tail="normal")
    deviate = (1e4 - null.best.mean()) / (null.best.std(ddof=1) * np.sqrt(1 + 1 / 401))
    x = Decimal(deviate) / (400 + Decimal(deviate) ** 2).sqrt()
    assert_allclose(null.log10_p_value(1e4), log10(coordinate_tail(x, 200)), rtol=1e-9)  # 1e-1004
    assert null.p_value([1e4, 1e5]).tolist() == [5e-324, 5e-324]
    assert significance.ScoreCalibration.fit(np.arange(99), n_entries=1).log10_p_value(1e9) == -2


def test_searches_report_logarithms(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    signals = rng.standard_normal((20, 2048)).astype(np.float32)
    index = ts.Index(2048, family="sign", path=tmp_path / "x.topsign", random_state=1)
    index.add(signals)
    found = index.search(signals[:2], k=2, scoring="hamming")
    assert_allclose(found.log10_p_values[:, 0], -2048 * np.log10(2), rtol=1e-12)
    assert found.p_values[:, 0].tolist() == [5e-324, 5e-324]
    assert_allclose(found.p_values[:, 1], 10 ** found.log10_p_values[:, 1])
    assert found[0][0].log10_p_value == found.log10_p_values[0, 0]
    assert found.to_dict()["log10_p_value"] == found.log10_p_values.ravel().tolist()
    assert "3.1e-617" in repr(found)
    index.close()
    monkeypatch.chdir(tmp_path)
    np.save("queries.npy", signals[:1])
    asked = CliRunner().invoke(app, ["search", "x.topsign", "queries.npy", "-k", "1", "--scoring", "hamming", "--json"])
    (row,) = json.loads(asked.stdout)
    assert row["log10_p_value"] == pytest.approx(-616.509, abs=1e-3)
    assert row["p_value"] > 0


@pytest.mark.parametrize("seed", range(3))
def test_monotone_interpolation_is_scipys_but_for_the_slopes_at_the_ends(seed):
    rng = np.random.default_rng(seed)
    nodes = np.cumsum(rng.exponential(size=30))
    values = np.cumsum(rng.exponential(size=30) * rng.choice([0, 1], 30))
    places = np.sort(rng.uniform(nodes[0], nodes[-1], 5000))
    found, expected = MonotoneCubic(nodes, values)(places), PchipInterpolator(nodes, values)(places)
    inside = (places > nodes[1]) & (places < nodes[-2])
    assert_allclose(found[inside], expected[inside], rtol=1e-12, atol=1e-12)
    assert (np.diff(found) >= -1e-12).all()
    assert_allclose(MonotoneCubic(nodes, values)(nodes), values, atol=1e-12)
