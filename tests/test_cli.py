"""The command line, used as a user would."""

import json

import pytest
from typer.testing import CliRunner

from topsign.cli import app

pytestmark = pytest.mark.core

TARGET = ["--correlation", "0.3", "--detection", "0.9", "--false-alarm", "0.01", "--n-features", "512"]


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_plan_prints_json():
    result = run("plan", *TARGET, "--json")
    found = json.loads(result.stdout)
    assert found["adaptive"]["detection"] >= 0.9
    assert found["adaptive"]["n_features"] == 512
    assert list(found) == ["adaptive", "grouped", "trellis"]
    for family in ("grouped", "trellis"):
        only = json.loads(run("plan", *TARGET, "--json", "--family", family).stdout)
        assert only == {family: found[family]}
    gaussian = json.loads(run("plan", *TARGET, "--json", "--projection", "gaussian").stdout)
    assert list(gaussian) == ["adaptive", "grouped"]  # trellis codes have no other projections
    shown = " ".join(run("plan", *TARGET, "--family", "trellis").stdout.split())
    assert shown.startswith("plan n_bytes")


def test_plan_shows_trellis_codes_if_only_they_reach_the_target(tmp_path):
    """With 20 bytes adaptive codes of 512 features miss the target, and with 10 bytes both families do."""
    within = [*TARGET, "--max-bytes", "20"]
    shown = run("plan", *within)
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.stdout.split())
    assert "plan: only trellis codes reach it n_bytes" in text
    assert "adaptive codes: a detection of 0.9 at a false alarm of 0.01" in text
    found = json.loads(run("plan", *within, "--json").stdout)
    assert found["trellis"]["n_bytes"] <= 20
    assert found["trellis"]["detection"] >= 0.9
    assert "cannot be reached within 20 bytes" in found["adaptive"]["missed"]
    drawn = run("plan", *within, "--plot", str(tmp_path / "plan.png"))
    assert drawn.exit_code == 1
    assert "--plot supports only adaptive codes" in drawn.output
    for most, words in ((10, "cannot be reached"), (2, "fits max_bytes=2")):
        neither = run("plan", *TARGET, "--max-bytes", str(most))
        assert neither.exit_code == 1
        for family in ("adaptive codes: ", "trellis codes: "):
            assert words in neither.output.split(family)[1].split(" codes: ")[0].replace("\n", " ")


def test_inspect_names_the_kernels_and_why_not_others():
    shown = json.loads(run("inspect", "--json").stdout)
    assert shown["kernels"] in shown["available"]
    assert not set(shown["available"]) & set(shown["unavailable"])
    assert shown["n_threads"] >= 1
    table = run("inspect")
    assert table.exit_code == 0
    assert shown["kernels"] in table.stdout
    assert shown["processor"].split()[0] in table.stdout


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_plan_draws(tmp_path, suffix):
    pytest.importorskip("matplotlib")
    result = run("plan", *TARGET, "--plot", str(tmp_path / f"plan.{suffix}"))
    assert result.exit_code == 0
    assert (tmp_path / f"plan.{suffix}").stat().st_size > 10_000
