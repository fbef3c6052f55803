"""Capacity planning: the memory, disk space, cores and workers that an index needs to sustain a query rate.

The results come from a cost model. Its default constants were measured on one machine; ``python benchmarks/cluster.py
--costs FILE`` measures those of another.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from numbers import Real
from typing import Any

from ..errors import TargetError


@dataclass(frozen=True)
class SearchCosts:
    """Constants of the cost model.

    Defaults were measured on 16 cores with AVX-512 before codes were searched by tables, and not with these codes yet.

    A query over n entries visits the fraction ``visited_at_million * (n / 10**6) ** -visited_slope`` of them. Constants
    must be finite and not negative; others raise ValueError or TypeError.
    """

    visited_at_million: float = 0.0093  # fraction of 10^6 entries visited for a recall of .95
    visited_slope: float = 0.5  # measured from 10^5 to 10^6 entries
    seconds_per_entry: float = 38e-9  # per visited entry
    seconds_per_region: float = 32e-9  # to score the region's mean and select regions
    seconds_per_query: float = 0.85e-3  # overhead that does not depend on the number of entries
    batch_seconds_per_entry: float = 3.7e-9  # the same, if another query of the batch visits the entry, too
    batch_seconds_per_region: float = 18e-9  # the same, for each query of a batch
    batch_seconds_per_query: float = 2e-6  # overhead of each query of a batch
    network_seconds: float = 24e-3  # round trip of a Dask task to workers on the same machine
    network_seconds_per_query: float = 0.0  # added to the round trip by each query; too small to measure

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, Real):
                raise TypeError(f"{name} must be a number, got {type(value).__name__}")
            try:
                is_valid = 0 <= float(value) < math.inf
            except OverflowError:  # an integer beyond the largest float
                is_valid = False
            if not is_valid:
                raise ValueError(f"{name} must be finite and not negative, got {value!r:.40}")

    def latency(self, n_visited: float, n_regions: int, *, n_cores: int = 1, is_remote: bool = False) -> float:
        """Return the seconds of one query over ``n_visited`` entries, divided among ``n_cores`` cores.

        The client selects regions in one thread. If ``is_remote``, the entries are on workers.
        """
        selecting = self.seconds_per_query + n_regions * self.seconds_per_region
        network = self.network_seconds + self.network_seconds_per_query if is_remote else 0.0
        return selecting + n_visited * self.seconds_per_entry / n_cores + network

    def throughput(
        self,
        n_visited: float,
        n_regions: int,
        *,
        n_entries: float = math.inf,
        n_cores: int = 1,
        is_remote: bool = False,
        batch: int = 256,
    ) -> float:
        """Return the queries per second of one client that sends one batch after another; see :meth:`latency`.

        Queries are assumed to visit independent parts of the ``n_entries`` entries. In a batch, the first query that
        visits an entry takes ``seconds_per_entry``, each further query ``batch_seconds_per_entry``. If ``n_entries`` is
        infinite, no entry is visited twice.
        """
        first = n_visited  # entries per query that no earlier query of the batch visits
        if n_entries < math.inf:
            first = n_entries * (1 - (1 - min(1.0, n_visited / n_entries)) ** batch) / batch
        visiting = first * self.seconds_per_entry + (n_visited - first) * self.batch_seconds_per_entry
        each = self.batch_seconds_per_query + n_regions * self.batch_seconds_per_region + visiting / n_cores
        each += self.network_seconds_per_query + self.network_seconds / batch if is_remote else 0.0
        return 1 / each if each else math.inf


@dataclass(frozen=True)
class ClusterPlan:
    """Resources needed for a recall and a query rate, returned by :func:`plan_cluster`."""

    n_entries: int
    recall: float
    queries_per_second: float
    n_regions: int
    visited: float  # fraction of the entries that a query visits
    seconds_per_query: float  # core time
    latency_seconds: float  # of one query whose regions are divided among the workers
    n_cores: int
    n_workers: int
    memory_bytes: int  # codes, ids and regions, summed over the workers
    disk_bytes: int  # including originals
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
    """Estimate the cores, workers, memory and disk space that searches with a target recall need.

    Parameters
    ----------
    n_entries : float
    recall : float in (0, 1)
        The visited fraction is assumed proportional to ``(1 - recall) ** -0.75``, as measured between .90 and .98.
    queries_per_second : float
        Rate that all cores together must sustain at 70% utilisation.
    n_features, n_bytes : int
        Length of a signal, and bytes per code.
    original_bytes : int
        Bytes per feature of the stored originals; 0 if none are stored.
    worker_cores, worker_memory
        Cores and bytes of memory per worker.
    costs : SearchCosts, optional
        Constants of your machine, such as those that ``benchmarks/cluster.py --costs`` writes.

    Examples
    --------
    >>> plan_cluster(1e9, recall=0.95, queries_per_second=1000).n_regions
    65536
    """
    if not 0 < recall < 1 or not 1 <= n_entries < math.inf or not 0 < queries_per_second < math.inf:
        raise TargetError(
            "recall must lie in (0, 1), n_entries and queries_per_second must be positive and finite, got "
            f"recall={recall}, n_entries={n_entries:g} and queries_per_second={queries_per_second:g}"
        )
    known = costs or SearchCosts()
    count = int(n_entries)
    try:
        n_regions = int(min(65_536, max(64, 2 ** round(math.log2(8 * math.sqrt(count))))))
        share = known.visited_at_million * (count / 1e6) ** -known.visited_slope * (0.05 / (1 - recall)) ** 0.75
        full = 8 * math.sqrt(count) / n_regions  # beyond the maximum number of regions, regions become larger
        share = min(1.0, share * max(1.0, full) ** known.visited_slope)
        seconds = known.latency(share * count, n_regions)
        n_cores = max(1, math.ceil(seconds * queries_per_second / 0.7))
        memory = count * (n_bytes + 8 + 2 + 4)
        n_workers = max(1, math.ceil(n_cores / worker_cores), math.ceil(memory / (0.7 * worker_memory)))
        latency = known.latency(share * count, n_regions, n_cores=n_workers * worker_cores, is_remote=n_workers > 1)
        if latency == math.inf:
            raise OverflowError
    except OverflowError:
        raise TargetError(
            "the plan exceeds the range of floating-point numbers; lower n_entries, queries_per_second or the "
            "constants in costs"
        ) from None
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
            f"a cost model: {_origin(known)}; other sizes are extrapolated",
            f"the visited fraction falls as n^-{known.visited_slope:g} and grows as (1 - recall)^-0.75",
            "queries resemble entries; matches with a correlation below about 0.2 need exhaustive searches",
            "cores are used at 70%, a query's regions are spread evenly over the workers, and codes stay in memory",
            f"a round trip to the workers takes {1e3 * known.network_seconds:g} ms, whatever their number",
        ),
    )


def _origin(costs: SearchCosts) -> str:
    """Return where the constants come from."""
    default = (
        "default constants, measured with 10^6 and 10^7 trellis codes of resampled sentences on a machine with 16 "
        "cores, in one thread"
    )
    changed = [field.name for field in fields(costs) if getattr(costs, field.name) != field.default]
    if not changed:
        return default
    given = f"constants given in costs: {', '.join(changed)}"
    return given if len(changed) == len(fields(costs)) else f"{given}; all others are {default}"
