"""Commands ``significance fit`` and ``significance apply``: CSV files in, a model and valid JSON out."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from typer.testing import CliRunner

from topsign.cli import app
from topsign.significance import ScoreCalibration


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lists = -np.sort(-np.random.default_rng(0).standard_normal((300, 1000)))[:, :10]
    np.savetxt("scores.csv", lists, delimiter=",", fmt="%.5f")
    rows = [
        f"q{row},{'even' if row % 2 == 0 else 'odd'},{row / 300},{scores[0]:.5f},{scores[1]:.5f}"
        for row, scores in enumerate(lists)
    ]
    (tmp_path / "named.csv").write_text("\n".join(["question,kind,similarity,first,second", *rows]))
    (tmp_path / "answers.csv").write_text("question,first,second\nq1,6.1,5.2\nq2,3.1,\nq3,,\n")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe1,2")

    def call(line, code=0):
        shown = CliRunner().invoke(app, ["significance", *line.split()])
        assert shown.exit_code == code, shown.output
        return shown.output

    return call


def test_a_model_is_fitted_and_applied(run, tmp_path):
    lists = np.loadtxt("scores.csv", delimiter=",")
    expected = ScoreCalibration.fit(lists, n_entries=1000)
    shown = run("fit scores.csv -o model.json --n-entries 1000 --related scores.csv --plot model.png")
    assert shown.strip() == expected.report(related=lists)
    assert ScoreCalibration.load("model.json").to_json() == expected.to_json()
    assert (tmp_path / "model.png").read_bytes().startswith(b"\x89PNG")
    answers = json.loads(run("apply model.json answers.csv --skip question --n-entries 5000 --json"))
    assert [one["n_matches"] for one in answers] == [2, 0, 0]
    assert answers.pop() == {"query": 2, "score": None, "p_value": None, "e_value": None, "n_matches": 0}
    assert_allclose([one["p_value"] for one in answers], expected.p_value([6.1, 3.1], 5000))
    assert_allclose([one["e_value"] for one in answers], expected.e_value([6.1, 3.1], 5000))
    assert run("apply model.json answers.csv --skip question -o out.csv").strip() == "out.csv: 3 rows"
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == "query,score,p_value,e_value,n_matches"
    record = json.loads(run("fit scores.csv -o model.json --n-entries 1000 --json"))
    assert record["threshold"] == expected.threshold(0.01)


def test_groups_and_covariates_are_columns(run):
    options = "--group-column kind --covariate-column similarity --skip question --false-alarm 0.05"
    run(f"fit named.csv -o model.json --n-entries 1000 {options}")
    assert set(ScoreCalibration.load("model.json").groups) == {"even", "odd"}
    answers = json.loads(run(f"apply model.json named.csv --json {options}"))
    assert np.mean([one["n_matches"] > 0 for one in answers]) <= 0.05
    shown = " ".join(run("apply model.json answers.csv --skip question", code=2).split())
    assert "model.json was fitted with --group-column; give it too" in shown
    shown = run(f"fit named.csv -o model.json --n-entries 1000 --related named.csv {options}")
    assert "group odd (150 queries), threshold at a false-alarm rate of 0.05" in " ".join(shown.split())
    assert "of 300 related queries, " in shown


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("fit none.csv -o m.json --n-entries 9", 2, "none.csv does not exist"),
        (
            "fit answers.csv -o m.json --n-entries 9",
            2,
            "'q1' is not a number; separate scores by commas, and name columns that are no scores with --skip",
        ),
        ("fit binary.csv -o m.json --n-entries 9", 2, "binary.csv is not a CSV file: 'utf-8' codec can't decode"),
        ("fit named.csv -o m.json --n-entries 9 --skip x", 2, "has no column x; its columns are question, kind"),
        ("fit scores.csv -o none/m.json --n-entries 1000", 2, "none does not exist; create it first"),
        ("fit scores.csv -o m.bin --n-entries 1000", 2, "--output must be one of .json, got m.bin"),
        ("fit scores.csv -o m.json --n-entries 1000 --plot m.csv", 2, "--plot must be one of .png, .svg, .pdf"),
        ("fit scores.csv -o m.json --n-entries 1000 --closer smaller", 2, "give closer='larger' if larger scores are"),
        ("fit scores.csv -o m.json --n-entries 0", 2, "must be at least 1, got 0"),
        ("fit scores.csv -o m.json --n-entries 99 --closer near", 2, "closer must be one of"),
        ("fit scores.csv -o m.json --n-entries 1000 --false-alarm 0.001", 2, "the least that 300 queries support"),
        ("apply scores.csv answers.csv", 1, "scores.csv, calibration: cannot be read"),
    ],
)
def test_errors_name_files_and_options(run, tmp_path, line, code, words):
    assert words in " ".join(run(line, code=code).split())
    assert not (tmp_path / "m.json").exists()
