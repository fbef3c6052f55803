"""The cost model of ``plan_cluster`` for measured searches: the fit of its constants, and its predictions.

A search is a row with its wall-clock ``seconds``, ``batch`` (the number of queries), ``n_entries``, the fraction
``visited`` of them, ``n_regions``, and the number of ``workers`` with one thread each, 0 for a search in one process.
"""

import numpy as np
from scipy.optimize import nnls

from topsign.theory import SearchCosts


def predicted(costs, row):
    """Return the seconds that the model predicts for a search."""
    n_visited = row["visited"] * row["n_entries"]
    options = {"n_cores": max(1, row["workers"]), "is_remote": row["workers"] > 0}
    if row["batch"] == 1:
        return costs.latency(n_visited, row["n_regions"], **options)
    return row["batch"] / costs.throughput(n_visited, row["n_regions"], batch=row["batch"], **options)


def fit(choices, local, remote):
    """Return the constants that are measured, by name; all other constants of ``SearchCosts`` keep their defaults.

    Each step fits one query and batches separately:

    1. ``choices`` are times to choose among some and among all regions (``seconds``, ``batch``, ``n_regions``). The
       slope of the time per query is the time per region.
    2. ``local`` are searches in one process that visit different numbers of entries. A time per query and a time per
       visited entry are fitted to their time per query, less the time to choose regions.
    3. ``remote`` are searches on workers, of one query and of a batch. A time per search and a time per query are
       fitted to their time, less the prediction without the network.

    Steps 2 and 3 minimise the sum of squared relative errors over constants that are not negative.
    """
    found = {}
    for prefix, is_batch in (("", False), ("batch_", True)):
        some, every = sorted(_of_size(choices, is_batch), key=lambda row: row["n_regions"])
        slope = (every["seconds"] - some["seconds"]) / (every["n_regions"] - some["n_regions"]) / every["batch"]
        found[f"{prefix}seconds_per_region"] = per_region = max(0.0, slope)
        rows = _of_size(local, is_batch)
        each = np.array([row["seconds"] / row["batch"] for row in rows])
        left = each - [row["n_regions"] * per_region for row in rows]
        visited = [row["visited"] * row["n_entries"] for row in rows]
        found |= _least_squares(
            {f"{prefix}seconds_per_query": np.ones(len(rows)), f"{prefix}seconds_per_entry": visited}, left, each
        )
    costs = SearchCosts(**found, network_seconds=0, network_seconds_per_query=0)
    took = np.array([row["seconds"] for row in remote])
    left = took - [predicted(costs, row) for row in remote]
    batches = [row["batch"] for row in remote]
    return found | _least_squares(
        {"network_seconds": np.ones(len(remote)), "network_seconds_per_query": batches}, left, took
    )


def fitted_rows(rows):
    """Return the searches of ``cluster_recall.py`` to which network constants are fitted.

    They visit one region and run on the fewest workers.
    """
    fewest = min((row["workers"] for row in rows if row["workers"]), default=0)
    return [row for row in rows if row["workers"] == fewest > 0 and row["probes"] == 1]


def _of_size(rows, is_batch):
    return [row for row in rows if (row["batch"] > 1) == is_batch]


def _least_squares(columns, values, scales):
    """Return coefficients by name, from nonnegative least squares on errors divided by ``scales``."""
    matrix = np.stack([np.asarray(column, float) for column in columns.values()], axis=1)
    solution, _ = nnls(matrix / scales[:, np.newaxis], values / scales)
    return dict(zip(columns, map(float, solution), strict=True))
