"""Capacity planning: memory, disk, cores and workers that an index of a size needs for a rate of queries.

A model, not a measurement: its constants are those of ``python benchmarks/regions.py sizes`` on one machine.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import TargetError


@dataclass(frozen=True)
class SearchCosts:
    """Constants of the cost model; defaults as ``benchmarks/results/regions/sizes.json`` has them.

    The share of the entries visited falls with their number as ``visited_at_million * (n / 10**6) ** -visited_slope``.
    """

    visited_at_million: float = 0.0052  # share of 10^6 entries visited for a recall of .95
    visited_slope: float = 0.6  # .59 from 10^4 to 10^5 entries, .73 from there to 10^6
    seconds_per_entry: float = 60e-9  # visited by one query
    seconds_per_region: float = 14e-9  # to score the mean of one region, and to choose among them
    seconds_per_query: float = 0.6e-3  # independent of the number of entries
    network_seconds: float = 42e-3  # round trip of an empty Dask task to workers on the same machine


@dataclass(frozen=True)
class ClusterPlan:
    """Resources that a target needs."""

    n_entries: int
    recall: float
    queries_per_second: float
    n_regions: int
    visited: float  # share of the entries that a query visits
    seconds_per_query: float  # of one core
    latency_seconds: float  # of one query, when workers share its regions
    n_cores: int
    n_workers: int
    memory_bytes: int  # codes, ids and regions of all workers
    disk_bytes: int  # with originals
    assumptions: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return all values by name."""
        return asdict(self)


def plan_cluster(
    n_entries: float,
    *,
    recall: float = 0.95,
    queries_per_second: float = 1.0,
    n_features: int = 384,
    n_bytes: int = 24,
    original_bytes: int = 2,
    worker_cores: int = 16,
    worker_memory: float = 64 * 2**30,
    costs: SearchCosts | None = None,
) -> ClusterPlan:
    """Return the cores, workers, memory and disk that searches for a recall need, by a model of their cost.

    Parameters
    ----------
    n_entries : float
    recall : float in (0, 1)
        The share visited is taken as proportional to ``(1 - recall) ** -0.75``, as measured between .90 and .98.
    queries_per_second : float
        Rate that all cores together must sustain, at 70% use.
    n_features, n_bytes : int
        Length of a signal, and bytes of its code.
    original_bytes : int
        Bytes of a feature of kept originals, 0 for none.
    worker_cores, worker_memory
        Cores and bytes of memory of one worker.
    costs : SearchCosts, optional
        Constants measured on the machine at hand.

    Examples
    --------
    >>> plan_cluster(1e9, recall=0.95, queries_per_second=1000).n_regions
    65536
    """
    if not 0 < recall < 1 or n_entries < 1 or queries_per_second <= 0:
        raise TargetError(
            "recall must lie in (0, 1), n_entries and queries_per_second must be positive, got "
            f"recall={recall}, n_entries={n_entries:g} and queries_per_second={queries_per_second:g}"
        )
    known = costs or SearchCosts()
    count = int(n_entries)
    n_regions = int(min(65_536, max(64, 2 ** round(math.log2(8 * math.sqrt(count))))))
    share = known.visited_at_million * (count / 1e6) ** -known.visited_slope * (0.05 / (1 - recall)) ** 0.75
    full = 8 * math.sqrt(count) / n_regions  # regions grow once their number is at the limit
    share = min(1.0, share * max(1.0, full) ** known.visited_slope)
    seconds = known.seconds_per_query + n_regions * known.seconds_per_region + share * count * known.seconds_per_entry
    n_cores = math.ceil(seconds * queries_per_second / 0.7)
    memory = count * (n_bytes + 8 + 2 + 4)
    n_workers = max(1, math.ceil(n_cores / worker_cores), math.ceil(memory / (0.7 * worker_memory)))
    apart = known.network_seconds if n_workers > 1 else 0.0
    latency = known.seconds_per_query + n_regions * known.seconds_per_region + apart
    latency += share * count * known.seconds_per_entry / (n_workers * worker_cores)
    return ClusterPlan(
        count,
        recall,
        queries_per_second,
        n_regions,
        share,
        seconds,
        latency,
        n_cores,
        n_workers,
        memory,
        count * (n_bytes + 8 + 2 + original_bytes * n_features),
        (
            "a model: constants were measured with 10^4 to 10^6 resampled sentences of 384 features, in one thread "
            "of a shared machine, and are extrapolated beyond",
            f"the share visited falls as n^-{known.visited_slope:g}, and grows as (1 - recall)^-0.75",
            "queries are like entries; weak matches, below a correlation of about 0.2, need exhaustive searches",
            "cores are used at 70%, regions of a query are spread evenly over workers, codes stay in memory",
            f"a question to workers and back takes {1e3 * known.network_seconds:g} ms, as Dask does on one machine",
        ),
    )
