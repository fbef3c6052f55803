"""Planning: the smallest code that meets a detection target, and the machines that sustain a query rate.

Machines come from a cost model. Its default constants were measured on one machine; ``python benchmarks/cluster.py
--costs FILE`` measures those of another."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .._checks import MAX_POOL, check_choice, check_count, check_false_alarm, check_real, suggests_keywords
from ..errors import TargetError
from .detection import correlation_threshold, roc, trellis_detection
from .distances import check_correlation
from .order_statistics import GROUP_SIZE, Selection, grouped_selection
from .rates import compact_bytes, storage_bits
from .tails import ORTHONORMAL, PROJECTIONS, entry_level, operating_point

N_BITS_STEP = 8
FACTOR_BYTES = 2
"""Bytes at the end of each trellis code, which normalise its scores."""

SCORINGS = ("asymmetric", "hamming")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Parameters of a code for a detection target, and the assumptions behind them."""

    family: str = "adaptive"  #: code family: "grouped", "trellis", "sign" or "adaptive"
    n_bits: int | None = None  #: of adaptive codes
    n_pool: int | None = None  #: projections computed per signal, of adaptive and grouped codes
    n_bytes: int | None = None  #: of grouped and trellis codes, as their constructors take it
    scoring: str  #: how codes are compared: "asymmetric" with the real values of the query, "hamming" with its signs
    threshold: float | None  #: accept estimated correlations of at least this ("asymmetric"): within(threshold=)
    radius: float | None  #: accept at most this fraction of differing signs ("hamming"): within(radius=)
    bytes_per_entry: int  #: bytes per stored entry
    detection: float  #: probability that a match is found
    false_alarm: float  #: of one search over all entries
    false_alarm_per_entry: float  #: false-alarm rate of one comparison
    correlation: float  #: correlation of a match with its reference
    n_features: int  #: length of a signal
    n_entries: int  #: number of entries that one search compares with
    projection: str  #: kind of random projection, or a projection object
    information_bits: float | None = None  #: of an adaptive code
    sign_bytes_per_entry: int | None = None  #: of sign codes that reach the same target, for adaptive codes
    assumptions: tuple[str, ...]  #: assumptions of the plan

    def lines(self) -> list[tuple[str, str]]:
        """Return names and formatted values for a table."""
        if self.radius is not None:
            n_signs = self.n_bits or (self.n_pool or 0) // GROUP_SIZE
            rule = f"at most {self.radius * n_signs:.0f} of {n_signs} signs differ (radius {self.radius:.4g})"
        else:
            what = "estimated correlation" if self.n_pool else "cosine with the reconstruction"
            rule = f"{what} at least {self.threshold:.5f}"
        rows = [] if self.n_bits is None else [("n_bits", f"{self.n_bits:,}")]
        if self.n_bytes is not None:
            rows += [("n_bytes", f"{self.n_bytes:,}{'' if self.n_pool else ' (basis hadamard, center False)'}")]
        if self.n_pool is not None:
            rows += [("n_pool", f"{self.n_pool:,} ({self.projection})")]
        n_bytes = f"{self.bytes_per_entry:,}"
        if self.information_bits is not None:
            n_bytes += f" (information: {self.information_bits / 8:,.0f})"
        rows += [
            ("scoring", self.scoring),
            ("accept when", rule),
            ("detection", f"{self.detection:.6g}"),
            ("false alarm", f"{self.false_alarm:.3g} per search, {self.false_alarm_per_entry:.3g} per entry"),
            ("bytes per entry", n_bytes),
            ("bytes, all entries", f"{self.bytes_per_entry * self.n_entries:,}"),
        ]
        if self.n_bits is not None:
            signs = "no size reaches the target" if not self.sign_bytes_per_entry else f"{self.sign_bytes_per_entry:,}"
            rows += [("bytes, sign codes", f"{signs} per entry (plain signs, real-valued query, same target)")]
        return rows

    def __str__(self) -> str:
        table = "\n".join(f"{name:>18}  {value}" for name, value in self.lines())
        return table + "\n\nassuming\n" + "\n".join(f"  - {line}" for line in self.assumptions)


@suggests_keywords
def plan(
    *,
    correlation: float,
    false_alarm: float,
    n_features: int,
    detection: float | None = None,
    n_entries: int = 1,
    max_bytes: int | None = None,
    projection: str = "hadamard",
    scoring: str | None = None,
    family: str = "adaptive",
) -> Plan:
    """Find the smallest code that reaches a detection rate, or the best code within a byte budget.

    Parameters
    ----------
    correlation : float
        Population correlation of a match with its entry, in (0, 1).
    detection : float, optional
        Probability that a match is found. If None, the code with the highest detection rate within ``max_bytes`` is
        returned.
    false_alarm : float
        Probability that a search over ``n_entries`` accepts any impostor.
    n_features : int
        Length of a signal.
    max_bytes : int, optional
        Maximum number of bytes per entry.
    projection : str
        As in :func:`topsign.theory.roc`.
    scoring : "hamming", "asymmetric" or None
        None considers both for adaptive codes, and is "asymmetric" for the others, for which it always detects more.
    family : "adaptive", "grouped" or "trellis"
        Grouped codes of up to one bit per feature and trellis codes of up to four are considered. Trellis codes use a
        random basis, ``"hadamard"``, and their plan is an approximation (:func:`trellis_energy`, Fisher's
        approximation for matches).

    Raises
    ------
    TargetError
        If the target cannot be met. It is a ValueError, and its message gives the best detection rate possible.

    Examples
    --------
    >>> target = {"correlation": 0.1, "detection": 0.9, "false_alarm": 1e-3, "n_features": 8192}
    >>> p = plan(**target)
    >>> p.scoring, p.n_pool
    ('asymmetric', 8192)
    >>> [plan(**target, family=family).bytes_per_entry for family in PLANNED_FAMILIES]
    [310, 300, 232]
    """
    ladders_of = _LADDERS[check_choice(family, "family", PLANNED_FAMILIES)]
    if detection is None and max_bytes is None:
        raise ValueError("give detection (a target), max_bytes (a budget), or both; got neither")
    if detection is not None and not 0 < detection < 1:
        raise ValueError(f"detection must lie in (0, 1), got {detection}")
    if scoring is not None:
        check_choice(scoring, "scoring", SCORINGS)
    most = None if max_bytes is None else check_count(max_bytes, "max_bytes")
    target = _Target(correlation, false_alarm, n_features, n_entries, projection)
    ladders = ladders_of(target, scoring)
    within = [
        _Ladder(sizes, ladder.make)
        for ladder in ladders
        if (sizes := ladder.sizes if most is None else ladder.sizes[: _first(ladder, lambda one: one.n_bytes > most)])
    ]
    if not within:
        least = min(ladder.make(ladder.sizes[0]).n_bytes for ladder in ladders)
        raise TargetError(f"no {family} code fits max_bytes={most}: the smallest takes {least} bytes; allow more bytes")
    largest = [(ladder, target.judge(ladder.make(ladder.sizes[-1]))) for ladder in within]
    code, (limit, reached) = max(
        ((ladder.make(ladder.sizes[-1]), judged) for ladder, judged in largest),
        key=lambda found: (found[1][1], -found[0].n_bytes),
    )
    if detection is not None and reached < detection:
        raise TargetError(target.out_of_reach(detection, code, reached, most))
    if detection is not None:
        found = []
        for ladder, (_, best) in largest:
            if best >= detection:
                # Thresholds are integers, so the detection rate can decrease slightly from one size to the next.
                place = _first(ladder, lambda one: target.judge(one)[1] >= detection)
                smallest = ladder.make(ladder.sizes[min(place, len(ladder.sizes) - 1)])
                found.append((smallest, target.judge(smallest)))
        code, (limit, reached) = min(found, key=lambda one: (one[0].n_bytes, -one[1][1]))
    return target.finished(family, code, limit, reached, detection)


def detection_at(
    *,
    correlation: float,
    false_alarm: float,
    n_features: int,
    n_bits: int | None = None,
    n_pool: int | None = None,
    n_bytes: int | None = None,
    n_entries: int = 1,
    scoring: str = "asymmetric",
    projection: str = "hadamard",
) -> float:
    """Detection rate of one code at a rate ``false_alarm`` per search of ``n_entries``; :func:`plan` uses it.

    Adaptive codes have ``n_bits`` out of ``n_pool``, which are equal for plain sign codes, and grouped codes have
    ``n_bytes``. Standing, ``correlation``, ``n_features``, ``scoring`` and
    ``projection`` are those of :func:`topsign.theory.roc`; this function computes one point of that curve in a
    hundredth of the time.

    >>> round(detection_at(correlation=0.07, false_alarm=1e-3, n_features=8192, n_bits=512, n_pool=8192), 3)
    0.684
    >>> round(detection_at(correlation=0.0735, false_alarm=1e-3, n_features=8192, n_bytes=448), 3)
    0.799
    """
    target = _Target(correlation, false_alarm, n_features, n_entries, projection)
    kept, check = Selection.of(n_bits, n_pool, n_bytes), check_choice(scoring, "scoring", SCORINGS)
    return target.judge(_Code({}, check, 0, kept))[1]


def bytes_against_detection(plan: Plan, n_points: int = 24) -> dict[str, tuple[list[int], list[float]]]:
    """Bytes per entry and detection rates for codes smaller and larger than the plan's, and for other families."""
    assert plan.n_bits is not None
    assert plan.n_pool is not None
    n_pool = plan.n_pool
    target = _Target(plan.correlation, plan.false_alarm, plan.n_features, plan.n_entries, plan.projection)
    smallest, largest = max(N_BITS_STEP, plan.n_bits // 8), min(n_pool // 2, 5 * plan.n_bits)
    sizes = np.unique(np.geomspace(smallest, max(smallest, largest), n_points).astype(int)).tolist()
    widths = [compact_bytes(n_bits, n_pool) for n_bits in sizes]
    codes = {
        "adaptive, asymmetric": [_adaptive(n_bits, n_pool, "asymmetric") for n_bits in sizes],
        "adaptive, Hamming": [_adaptive(n_bits, n_pool, "hamming") for n_bits in sizes],
        "sign codes, real query": [_adaptive(8 * width, 8 * width, "asymmetric") for width in widths],
        "grouped codes, real query": [_grouped(width, "asymmetric") for width in widths],
    }
    return {name: (widths, [target.judge(code)[1] for code in found]) for name, found in codes.items()}


@dataclass(frozen=True)
class _Code:
    """Code of some size that a plan considers."""

    parameters: dict[str, int]  # as fields of a plan
    scoring: str
    n_bytes: int
    selection: Selection | None  # None for trellis codes


class _Ladder(NamedTuple):
    """Codes of ascending sizes that differ in nothing else."""

    sizes: range
    make: Callable[[int], _Code]


def _adaptive(n_bits: int, n_pool: int, scoring: str) -> _Code:
    shape = {"n_bits": n_bits, "n_pool": n_pool}
    return _Code(shape, scoring, compact_bytes(n_bits, n_pool), Selection(n_bits, n_pool))


def _grouped(n_bytes: int, scoring: str) -> _Code:
    kept = grouped_selection(n_bytes)
    return _Code({"n_bytes": n_bytes, "n_pool": kept.n_pool}, scoring, n_bytes, kept)


class _Target:
    """Detection target that codes are judged by."""

    def __init__(
        self, correlation: float, false_alarm: float, n_features: int, n_entries: int, projection: str
    ) -> None:
        (rho,) = check_correlation(correlation).reshape(-1)
        if not 0 < rho < 1:
            raise ValueError(f"correlation must lie in (0, 1), got {correlation}")
        self.correlation, self.false_alarm = float(rho), check_false_alarm(false_alarm)
        self.n_features = check_count(n_features, "n_features", minimum=16, maximum=MAX_POOL)
        self.n_entries = check_count(n_entries, "n_entries")
        self.projection = check_choice(projection, "projection", PROJECTIONS)
        self.per_entry = entry_level(self.false_alarm, self.n_entries)

    def adaptive_ladders(self, scoring: str | None) -> list[_Ladder]:
        shares = (1 / 4, 1 / 2, 1, 2) if self.projection in ORTHONORMAL else (1 / 2, 1, 2, 4)
        pools = [int(self.n_features * share) for share in shares if self.n_features * share <= MAX_POOL]
        return [
            _Ladder(range(N_BITS_STEP, n_pool + 1, N_BITS_STEP), partial(_adaptive, n_pool=n_pool, scoring=one))
            for n_pool in pools
            for one in (SCORINGS if scoring is None else (scoring,))
            if n_pool >= N_BITS_STEP
        ]

    def grouped_ladders(self, scoring: str | None) -> list[_Ladder]:
        return [_Ladder(range(1, self.n_features // 8 + 1), partial(_grouped, scoring=scoring or "asymmetric"))]

    def trellis_ladders(self, scoring: str | None) -> list[_Ladder]:
        check_choice(scoring or "asymmetric", "scoring of trellis codes", ("asymmetric",))
        check_choice(self.projection, "projection of trellis codes", ("hadamard",))

        def make(n_bytes: int) -> _Code:
            return _Code({"n_bytes": n_bytes}, "asymmetric", n_bytes + FACTOR_BYTES, None)

        return [_Ladder(range(1, self.n_features // 2 + 1), make)]

    def judge(self, code: _Code) -> tuple[float, float]:
        """Return threshold (of mismatches for Hamming) and detection rate of a code at the target's false alarms."""
        if code.selection is not None:
            shape = (code.selection, self.n_features, self.projection)
            return operating_point(self.per_entry, self.correlation, *shape, code.scoring)
        rate = trellis_detection(
            code.parameters["n_bytes"],
            correlation=self.correlation,
            false_alarm=self.per_entry,
            n_features=self.n_features,
        )
        return float(correlation_threshold(self.per_entry, self.n_features)), float(rate)

    def finished(self, family: str, code: _Code, limit: float, reached: float, detection: float | None) -> Plan:
        """Return the plan of a code, with the size of sign codes that reach the same target if it is adaptive."""
        kept = code.selection
        compared: dict[str, Any] = {}
        if "n_bits" in code.parameters:
            signs = _Ladder(
                range(N_BITS_STEP, min(8 * self.n_features, MAX_POOL) + 1, N_BITS_STEP),
                lambda n_bits: _adaptive(n_bits, n_bits, "asymmetric"),
            )
            place = _first(signs, lambda one: self.judge(one)[1] >= (detection or reached))
            compared = {
                "information_bits": storage_bits(**code.parameters),
                "sign_bytes_per_entry": signs.sizes[place] // 8 if place < len(signs.sizes) else None,
            }
        rows = "orthonormal" if self.projection in ORTHONORMAL else "independent"
        isotropic = "(centre and, if possible, whiten them)" if kept else "because the basis is random"
        standing = (
            f"the pool's rows are {rows} ({self.projection})"
            if kept
            else "detection is an approximation from measured captured energy and Fisher's approximation for matches"
        )
        return Plan(
            family=family,
            scoring=code.scoring,
            threshold=limit if code.scoring == "asymmetric" else None,
            radius=limit / kept.n_kept if kept is not None and code.scoring == "hamming" else None,
            bytes_per_entry=code.n_bytes,
            detection=reached,
            false_alarm=self.false_alarm,
            false_alarm_per_entry=self.per_entry,
            correlation=self.correlation,
            n_features=self.n_features,
            n_entries=self.n_entries,
            projection=self.projection,
            assumptions=(
                f"a match is its reference plus independent normal noise, with a correlation of {self.correlation:g}",
                f"impostors are independent of the reference; signals are isotropic {isotropic}",
                standing,
                f"entries per search: {self.n_entries:,}; the false-alarm rate is per search",
            ),
            **code.parameters,
            **compared,
        )

    def out_of_reach(self, detection: float, best: _Code, reached: float, max_bytes: int | None) -> str:
        curve = roc(correlation=self.correlation, n_features=self.n_features, scoring="uncompressed")
        within = "" if max_bytes is None else f" within {max_bytes} bytes"
        shape = "".join(f"{name}={value}, " for name, value in best.parameters.items())
        return (
            f"a detection of {detection:g} at a false alarm of {self.false_alarm:g} over {self.n_entries:,} entries "
            f"cannot be reached{within} at correlation {self.correlation:g} and n_features={self.n_features}; the best "
            f"code ({shape}{best.scoring}, {best.n_bytes} bytes) detects {reached:.4g}, and uncompressed signals "
            f"{float(curve.detection_at(self.per_entry)):.4g}"
        )


_LADDERS: dict[str, Callable[[_Target, str | None], list[_Ladder]]] = {
    "adaptive": _Target.adaptive_ladders,
    "grouped": _Target.grouped_ladders,
    "trellis": _Target.trellis_ladders,
}

PLANNED_FAMILIES = tuple(_LADDERS)
"""Families of codes that :func:`plan` sizes."""


def _first(ladder: _Ladder, reached: Callable[[_Code], bool]) -> int:
    """Return the index of the first size for which ``reached`` is true, assuming it is true for all larger ones."""
    return bisect_left(ladder.sizes, True, key=lambda size: reached(ladder.make(size)))


@dataclass(frozen=True)
class SearchCosts:
    """Constants of the cost model.

    Defaults were measured on 16 cores with AVX-512 before codes were searched by tables, and not with these codes yet.

    A query over n entries visits the fraction ``visited_at_million * (n / 10**6) ** -visited_slope`` of them. Constants
    must be finite and not negative; others raise ValueError or TypeError.
    """

    visited_at_million: float = 0.0093  #: fraction of 10^6 entries visited for a recall of .95
    visited_slope: float = 0.5  #: measured from 10^5 to 10^6 entries
    seconds_per_entry: float = 38e-9  #: per visited entry
    seconds_per_region: float = 32e-9  #: to score the region's mean and select regions
    seconds_per_query: float = 0.85e-3  #: overhead that does not depend on the number of entries
    batch_seconds_per_entry: float = 3.7e-9  #: the same, if another query of the batch visits the entry, too
    batch_seconds_per_region: float = 18e-9  #: the same, for each query of a batch
    batch_seconds_per_query: float = 2e-6  #: overhead of each query of a batch
    network_seconds: float = 24e-3  #: round trip of a Dask task to workers on the same machine
    network_seconds_per_query: float = 0.0  #: added to the round trip by each query; too small to measure

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            check_real(value, name, minimum=0)

    def latency(self, n_visited: float, n_regions: int, *, n_cores: int = 1, is_remote: bool = False) -> float:
        """Return the seconds of one query over ``n_visited`` entries, divided among ``n_cores`` cores.

        The client selects among ``n_regions`` regions in one thread. If ``is_remote``, the entries are on workers.
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
        """Return the queries per second of one client that sends one ``batch`` after another.

        ``n_visited``, ``n_regions``, ``n_cores`` and ``is_remote`` are as for :meth:`latency`.

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

    n_entries: int  #: number of entries that one search compares with
    recall: float  #: share of the true nearest entries that are found, for several k
    queries_per_second: float  #: queries per second
    n_regions: int  #: number of regions
    visited: float  #: fraction of the entries that a query visits
    seconds_per_query: float  #: core time
    latency_seconds: float  #: of one query whose regions are divided among the workers
    n_cores: int  #: number of processor cores
    n_workers: int  #: number of workers
    memory_bytes: int  #: codes, ids and regions, summed over the workers
    disk_bytes: int  #: including originals
    assumptions: tuple[str, ...]  #: assumptions of the plan


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
        Entries of the index.
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
