"""The page about engines, and the SQL of the page about tables."""

import numpy as np
import pytest
from pages import ROOT, blocks, run_blocks

import topsign as ts


def test_the_page_about_engines_runs(tmp_path, monkeypatch, capsys, postgres_settings):
    monkeypatch.chdir(tmp_path)
    for name, value in postgres_settings.items():
        monkeypatch.setenv(name, value)
    run_blocks(ROOT / "docs" / "how-to" / "engines.md", capsys)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the peers
def test_the_page_about_real_hits_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_blocks(ROOT / "docs" / "how-to" / "real-hits.md", capsys)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the peers
def test_the_same_task_in_another_library(tmp_path, monkeypatch, capsys):
    """On the page about migration, the code of both libraries runs twice."""
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        run_blocks(ROOT / "docs" / "how-to" / "migrate.md", capsys)


def test_sql_on_parquet(problem, tmp_path, monkeypatch):
    import duckdb

    monkeypatch.chdir(tmp_path)
    (sql,) = blocks(ROOT / "docs" / "how-to" / "interchange.md", "sql")
    ts.export.write_parquet("codes.parquet", problem.index, form="bits")
    for row, query in enumerate(ts.query_bits(problem.projected)):
        found = duckdb.execute(sql, [query.tobytes()]).fetchnumpy()
        np.testing.assert_array_equal(found["id"], problem.expected_ids[row, :10])
        mismatches = (found["distance"] - (problem.codes.n_pool - problem.codes.n_kept)) / 2
        np.testing.assert_array_equal(mismatches, problem.expected[row, :10])


def test_polars_reads_the_parquet(problem, tmp_path):
    import polars

    file = tmp_path / "codes.parquet"
    ts.export.write_parquet(file, problem.index, form="sparse")
    frame = polars.read_parquet(file)
    assert frame.columns == ["id", "locations", "signs", "metadata"]
    codes = problem.index.get(frame["id"].to_numpy()).codes
    np.testing.assert_array_equal(np.stack(frame["locations"].to_list()), codes.locations)
    np.testing.assert_array_equal(np.stack(frame["signs"].to_list()), codes.signs)
