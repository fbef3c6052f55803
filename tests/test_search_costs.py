"""Constants of the cost model: fitted to synthetic times, and shown beside measurements."""

import importlib
from dataclasses import asdict
from pathlib import Path

import pytest

from topsign.theory import SearchCosts

TRUE = {
    "seconds_per_region": 2e-8,
    "seconds_per_query": 7e-4,
    "seconds_per_entry": 5e-8,
    "batch_seconds_per_region": 1e-8,
    "batch_seconds_per_query": 4e-5,
    "batch_seconds_per_entry": 3e-8,
    "network_seconds": 0.02,
    "network_seconds_per_query": 1e-5,
}


@pytest.fixture
def load(monkeypatch):
    """Import a module of the benchmarks."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return importlib.import_module


def took(true, batch, n_regions, n_visited, workers=0, n_entries=10**6):
    """Return the seconds of a search by plain arithmetic."""
    prefix = "batch_" if batch > 1 else ""
    each = true[f"{prefix}seconds_per_query"] + n_regions * true[f"{prefix}seconds_per_region"]
    first = n_entries * (1 - (1 - n_visited / n_entries) ** batch)  # entries that at least one query visits
    visiting = first * true["seconds_per_entry"] + (batch * n_visited - first) * true["batch_seconds_per_entry"]
    network = true["network_seconds"] + batch * true["network_seconds_per_query"] if workers else 0
    return batch * each + visiting / max(1, workers) + network


def search(true, batch, n_visited, workers=0, **more):
    row = {"batch": batch, "n_entries": 10**6, "n_regions": 8192, "visited": n_visited / 10**6, "workers": workers}
    return row | {"seconds": took(true, batch, 8192, n_visited, workers)} | more


def synthetic(true, n_batch=256):
    """Return the rows of a run whose times follow the model exactly."""
    call = {1: 1e-4, n_batch: 3e-3}  # seconds that do not depend on the number of regions
    names = {1: "seconds_per_region", n_batch: "batch_seconds_per_region"}
    choices = [
        {"n_regions": n, "batch": batch, "seconds": call[batch] + batch * n * true[names[batch]]}
        for n in (8192, 1024)
        for batch in (1, n_batch)
    ]
    local = [search(true, batch, n) for batch in (1, n_batch) for n in (122, 2000, 8000, 31_000)]
    return choices, local, [search(true, batch, 122, workers) for batch in (1, n_batch) for workers in (0, 1)]


@pytest.mark.parametrize("n_batch", [2, 256])
def test_the_fit_recovers_known_constants(load, n_batch):
    found = load("shared.search_costs").fit(*synthetic(TRUE, n_batch))
    assert found == pytest.approx(TRUE, rel=1e-6)
    SearchCosts(**found)


@pytest.mark.parametrize("name", ["seconds_per_query", "batch_seconds_per_entry", "network_seconds_per_query"])
def test_constants_of_zero_are_recovered(load, name):
    found = load("shared.search_costs").fit(*synthetic(TRUE | {name: 0.0}))
    assert found == pytest.approx(TRUE | {name: 0.0}, rel=1e-6, abs=1e-12)


def test_constants_are_never_negative(load):
    choices, local, pairs = synthetic(TRUE)
    for row in choices:
        row["seconds"] = 1 / row["n_regions"]  # faster with more regions
    for row in pairs:
        row["seconds"] /= 1 + 100 * row["workers"]  # faster than one process
    found = load("shared.search_costs").fit(choices, local, pairs)
    assert min(found.values()) == 0
    assert found["seconds_per_region"] == found["network_seconds"] == found["network_seconds_per_query"] == 0


@pytest.mark.parametrize("workers", [0, 1, 4])
@pytest.mark.parametrize("batch", [1, 64])
def test_predictions_follow_the_model(load, batch, workers):
    row = search(TRUE, batch, 5000, workers)
    assert load("shared.search_costs").predicted(SearchCosts(**TRUE), row) == pytest.approx(row["seconds"])


def report(rows, n_cores, load_average, costs):
    machine = {"processor": "x", "cores": n_cores, "load": load_average, "kernels": "avx2"}
    options = {"index": "folder/a.topsign", "copies": 10}
    measured = {"search": rows} | ({"costs": costs} if costs else {})
    return {"script": "cluster_recall.py", "options": options, "machine": machine, "commit": "0", "date": "today"} | {
        "measured": measured
    }


def rows_of_a_run():
    """Return rows that take twice the time of the model, except those to which constants are fitted."""
    more = {"bytes_moved": 512, "exhaustive": 0.0}
    rows = []
    for workers in (0, 1, 2):
        for asked, probes in ((0.95, None), (None, 1), (None, None)):
            row = search(TRUE, 1, 5000, workers, asked=asked, probes=probes, **more)
            factor = 1 if workers < 2 and probes else 2
            row["least_seconds"] = row["seconds"] = factor * row["seconds"]
            rows.append(row | {"queries_per_second": 1 / row["seconds"]})
    return rows


def shown(load, *given):
    """Return the generated text and the cells of its first table."""
    text = load("shared.scale_page").cluster_recall({"cluster_recall": report(rows_of_a_run(), *given)})
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return text, {tuple(line[:2]): line for line in lines}


def test_the_page_compares_rows_with_the_model_and_marks_fitted_ones(load):
    text, cells = shown(load, 16, 1.5, TRUE)
    assert cells["2 workers", "recall 0.95"][-2:] == [f"{1e3 * took(TRUE, 1, 8192, 5000, 2):.1f}", "2.00"]
    assert cells["1 worker", "one region"][-1] == "1.00 (fitted)"
    fitted = [name for name, line in cells.items() if "(fitted)" in line[-1]]
    assert fitted == [("one process", "one region"), ("1 worker", "one region")]
    assert len(cells["one process", "exhaustive"]) == 8  # without the empty cells of the model
    assert "`seconds_per_query` | 700 | 850 |" in text
    assert "`python benchmarks/cluster_recall.py INDEX --copies 10`" in text


def test_the_page_says_whether_the_machine_was_busy(load):
    assert "load exceeded the number of cores" in shown(load, 2, 19.1, TRUE)[0]
    assert "load exceeded" not in shown(load, 16, 1.5, TRUE)[0]


def test_runs_without_a_fit_are_compared_with_the_defaults(load):
    text, cells = shown(load, 2, 1.0, None)
    expected = took(asdict(SearchCosts()), 1, 8192, 5000, 2)
    assert cells["2 workers", "recall 0.95"][-2] == f"{1e3 * expected:.1f}"
    assert "(fitted)" not in text
    assert "uses the default constants" in text


def test_plans_use_the_constants_of_the_run(load):
    plans = load("shared.scale_page").plans
    given = plans({"cluster_recall": report([], 2, 1.0, TRUE | {"seconds_per_entry": 6e-6})})["plans"]
    defaults, own = (line.split(" | ") for line in given.splitlines()[4:6])
    assert (defaults[1], own[1]) == ("default", "2 cores, avx2")
    assert float(own[6].replace(",", "")) > 50 * float(defaults[6])
    assert "cores" not in plans({})["plans"].partition("\n")[2]
