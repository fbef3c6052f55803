"""Constants of the cost model: fitted to synthetic times."""

import importlib
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


def test_constants_are_never_negative(load):
    choices, local, pairs = synthetic(TRUE)
    for row in choices:
        row["seconds"] = 1 / row["n_regions"]  # faster with more regions
    for row in pairs:
        row["seconds"] /= 1 + 100 * row["workers"]  # faster than one process
    found = load("shared.search_costs").fit(choices, local, pairs)
    assert min(found.values()) == 0
    assert found["seconds_per_region"] == found["network_seconds"] == found["network_seconds_per_query"] == 0
