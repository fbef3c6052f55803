"""The cost model of ``plan_cluster`` for measured searches: the fit of its constants, and its predictions.

A search is a row with its wall-clock ``seconds``, ``batch`` (the number of queries), ``n_entries``, the fraction
``visited`` of them, ``n_regions``, and the number of ``workers`` with one thread each, 0 for a search in one process.
"""

from dataclasses import replace

import numpy as np
from scipy.optimize import nnls

from topsign.theory import SearchCosts


def predicted(costs, row):
    """Return the seconds that the model predicts for a search."""
    n_visited = row["visited"] * row["n_entries"]
    options = {"n_cores": max(1, row["workers"]), "is_remote": row["workers"] > 0}
    if row["batch"] == 1:
        return costs.latency(n_visited, row["n_regions"], **options)
    options |= {"n_entries": row["n_entries"], "batch": row["batch"]}
    return row["batch"] / costs.throughput(n_visited, row["n_regions"], **options)


def fit(choices, local, pairs):
    """Return the constants that are measured, by name; all other constants of ``SearchCosts`` keep their defaults.

    1. ``choices`` are times to choose among some and among all regions (``seconds``, ``batch``, ``n_regions``), for one
       query and for a batch. The slope of the time per query is the time per region.
    2. ``local`` are searches in one process that visit different numbers of entries, with one query and with a batch.
       A time per query and a time per visited entry are fitted to their time, less the time to choose regions.
    3. ``pairs`` are the same searches in one process and on workers, with one query and with a batch. A time per search
       and a time per query are fitted to the differences.

    Steps 2 and 3 minimise the sum of squared relative errors over constants that are not negative.
    """
    found = {}
    for prefix, is_batch in (("", False), ("batch_", True)):
        some, every = sorted(_of_size(choices, is_batch), key=lambda row: row["n_regions"])
        slope = (every["seconds"] - some["seconds"]) / (every["n_regions"] - some["n_regions"]) / every["batch"]
        found[f"{prefix}seconds_per_region"] = max(0.0, slope)
        found |= _fit_to(_of_size(local, is_batch), [f"{prefix}seconds_per_query", f"{prefix}seconds_per_entry"], found)
    names = ["network_seconds", "network_seconds_per_query"]
    remote = [row for row in pairs if row["workers"]]
    alone = {row["batch"]: row["seconds"] for row in pairs if not row["workers"]}
    matrix = [[1, row["batch"]] for row in remote]
    differences = [row["seconds"] - alone[row["batch"]] for row in remote]
    return found | dict(
        zip(names, _least_squares(matrix, differences, [row["seconds"] for row in remote]), strict=True)
    )


def _fit_to(rows, names, known):
    """Return the named constants that fit the rows best, given other constants; predictions are linear in them."""
    base = SearchCosts(**known | dict.fromkeys(names, 0.0))
    least = [predicted(base, row) for row in rows]
    matrix = [
        [predicted(replace(base, **{name: 1.0}), row) - few for name in names]
        for row, few in zip(rows, least, strict=True)
    ]
    took = [row["seconds"] for row in rows]
    return dict(zip(names, _least_squares(matrix, np.subtract(took, least), took), strict=True))


def _of_size(rows, is_batch):
    return [row for row in rows if (row["batch"] > 1) == is_batch]


def _least_squares(matrix, values, scales):
    """Return coefficients from nonnegative least squares on errors divided by ``scales``."""
    scales = np.array(scales)
    solution, _ = nnls(np.array(matrix, float) / scales[:, np.newaxis], values / scales)
    return [float(value) for value in solution]
