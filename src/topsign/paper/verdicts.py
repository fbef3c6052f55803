"""Claims of the paper and the verdict on each from the results of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from typing import Any

import numpy as np

from .experiments import N_BITS as CURVE_BITS
from .experiments import N_POOL, Curve, Distortion, ThreeParty
from .heads import Published, Table, TableCell
from .printed import DEMONSTRATION, Erratum
from .roc import AUTHORS_STORAGE, N_BITS, STORAGE, Roc

SURE = 4.0
"""Number of standard errors that a difference must exceed to decide a claim."""

REPRODUCED, DIFFERS, OPEN = "reproduced", "differs", "open"
CORRECTED, INCONSISTENT = "corrected", "inconsistent"
EXPERIMENTS, FORMULAS = (REPRODUCED, DIFFERS, OPEN), (CORRECTED, INCONSISTENT)
OUTCOMES = (*EXPERIMENTS, *FORMULAS)
RULE = (
    "A claim about an experiment is “reproduced” if every difference that it states exceeds four standard errors and "
    "every printed value agrees with ours within four standard errors or half a point of accuracy. It “differs” if a "
    "difference has the opposite sign by more than four standard errors, or if a printed value disagrees. It is “open” "
    "if a difference is within four standard errors, or if the paper does not print the values that a comparison "
    "needs. A formula or a number that is printed wrong is “corrected”; statements of the paper and of the "
    "authors’ demonstration that do not fit together are “inconsistent”."
)
"""Rule for the verdicts, as shown on the page."""

LITTLE = 0.5
"""Percentage points of accuracy that count as a small loss."""


@dataclass(frozen=True)
class Claim:
    """One claim with its verdict, our result and the paper's."""

    claim: str
    brief: str  # the claim in a few words, for the summary
    where: str
    outcome: str  # one of OUTCOMES, by RULE
    ours: str
    theirs: str


def judge_curve(found: Curve) -> Iterator[Claim]:
    """Judge Figure 1 and Theorem 2."""
    adaptive, signs = found.adaptive, found.signs
    above = adaptive.x > 0
    gain = (signs.measured - adaptive.measured) / np.hypot(adaptive.standard_error, signs.standard_error)
    at = int(np.flatnonzero(adaptive.x == 0.3)[0])
    yield Claim(
        "Codes of signals correlated with the reference are closer to its code than with sign projections",
        "smaller distances to a correlated reference",
        "Figure 1",
        _surely(gain[above].min()),
        f"{_pm(adaptive.measured[at], adaptive.standard_error[at])} against "
        f"{_pm(signs.measured[at], signs.standard_error[at])} at inner product 0.3",
        "a curve without published values; only the order is compared",
    )
    below = adaptive.x < 0
    worst = int(np.flatnonzero(below)[np.argmin(gain[below])])
    yield Claim(
        "Distances to the reference are always smaller than with sign projections",
        "“always” smaller, because distances at negative inner products are larger",
        "text",
        _surely(gain.min()),
        f"{_pm(adaptive.measured[worst], adaptive.standard_error[worst])} against "
        f"{_pm(signs.measured[worst], signs.standard_error[worst])} at inner product −{-adaptive.x[worst]:.1f}: true "
        "for positive inner products, and the opposite for negative ones",
        "always",
    )
    violated = found.exact - found.printed > 1e-12
    low = int(np.flatnonzero(np.isclose(found.correlation, -0.3))[0])
    positive = found.correlation > 0
    part = "all" if not violated[positive].any() else f"{1 - violated[positive].mean():.0%} of the"
    yield Claim(
        "Theorem 2 bounds the expected distance from above",
        "the bound",
        "Theorem 2",
        CORRECTED if violated.any() else REPRODUCED,
        f"holds at {part} positive inner products for {CURVE_BITS} of {N_POOL:,}; at inner product −0.3 the distance "
        f"is {found.exact[low]:.3f}",
        f"at most {found.printed[low]:.3f}",
    )


def judge_three_party(found: ThreeParty) -> Iterator[Claim]:
    """Judge Figure 2 and Theorem 3."""
    points, as_printed, gaps = [], [], []
    for pair in found.pairs:
        value = np.interp(pair.points.x, pair.inner_product, pair.printed)
        points.append(pair.points)
        as_printed.append(value)
        gaps.append((pair.points.measured - value) / pair.points.standard_error)
    far = np.abs(gaps).max()
    deviation = max(float(np.abs(one.deviations).max()) for one in points)
    one, value = points[0], as_printed[0]
    yield Claim(
        "Theorem 3 gives the distance between two other signals, drawn in Figure 2",
        "the flip probability",
        "Theorem 3",
        REPRODUCED if far <= SURE else CORRECTED,
        f"{_pm(one.measured[2], one.standard_error[2])} at inner product {one.x[2]:.1f} with a reference orthogonal to "
        f"both; the corrected formula holds within {deviation:.1f} standard errors at all points",
        f"{value[2]:.3f}",
    )


def judge_roc(found: Roc) -> Iterator[Claim]:
    """Judge Figure 3."""
    adaptive, whole = found.of("adaptive, entries adapt"), found.of("uncompressed")
    storage, computation = (
        [found.of(f"{method}, {n_bits} ({what})") for method in ("sign", "universal")]
        for n_bits, what in ((STORAGE, "equal storage"), (N_BITS, "equal computation"))
    )

    for other, what in ((computation[0], "equal computation"), (storage[0], f"equal storage ({STORAGE} bits)")):
        yield Claim(
            f"Adaptive codes detect more matches than sign projections at {what}",
            f"detection at {what.partition(' (')[0]}",
            "Figure 3",
            _surely((adaptive.auc - other.auc) / np.hypot(adaptive.auc_error, other.auc_error)),
            f"AUC {_pm(adaptive.auc, adaptive.auc_error)} against {_pm(other.auc, other.auc_error)}",
            "a curve without published values; only the order is compared",
        )
    ordered = [whole, adaptive, storage[0], storage[1], computation[0], computation[1]]
    areas = np.array([one.auc for one in ordered])
    yield Claim(
        "Order of the curves: uncompressed, adaptive, sign and universal at equal storage, then at equal computation",
        "the order of all curves",
        "Figure 3",
        _all(
            _surely((one.auc - other.auc) / np.hypot(one.auc_error, other.auc_error))
            for one, other in pairwise(ordered)
        ),
        "AUC " + ", ".join(f"{area:.3f}" for area in areas),
        "curves without published values, drawn in this order",
    )
    query = found.of("adaptive, queries adapt")
    same = abs(adaptive.auc - query.auc) < SURE * np.hypot(adaptive.auc_error, query.auc_error)
    yield Claim(
        "Adapting to entries (text) or to queries (caption) takes the same storage",
        "the adapted side",
        "Figure 3",
        REPRODUCED if same and query.stored_bits == adaptive.stored_bits else INCONSISTENT,
        f"AUC {adaptive.auc:.3f} and {query.auc:.3f}, with {adaptive.stored_bits} and {query.stored_bits} bits stored",
        f"one curve; “equal storage” is {AUTHORS_STORAGE} bits in the demonstration",
    )


def load_long_run() -> dict[str, Any]:
    """Load the differences at equal storage over many seeds, measured by ``benchmarks/equal_storage.py``."""
    record = files(__package__).joinpath("data", "equal_storage.json").read_text()
    measured: dict[str, Any] = json.loads(record)["measured"]
    return measured


def judge_table(found: Table, long_run: Mapping[str, Any] | None = None) -> Iterator[Claim]:
    """Judge Table I by drops in accuracy, because the networks differ.

    Differences at equal storage are hundredths of a point, so a longer run decides them if one is given.
    """
    adaptive = found.of("adaptive").cells
    yield Claim(
        f"A compressed head loses less than {LITTLE:g} points of accuracy at 32 of {found.n_pool}",
        f"less than {LITTLE:g} points lost by the adaptive head",
        "Table I",
        _surely((LITTLE - adaptive[0].lost) / adaptive[0].standard_error),
        f"{_drops(adaptive)} points lost from {found.accuracy:.2f}% at {_format_list(found.kept)}",
        f"{_published_drops(adaptive)} points lost from {found.published_accuracy:.2f}%",
    )
    for method in ("sign", "universal"):
        cells = found.of(f"{method}, equal computation").cells
        yield _equal_computation(method, found, adaptive, cells)
    for method in ("sign", "universal"):
        cells = found.of(f"{method}, equal storage").cells
        yield _equal_storage(method, found, adaptive, cells, long_run)


def _equal_computation(method: str, found: Table, adaptive: list[TableCell], cells: list[TableCell]) -> Claim:
    """Judge whether a method loses more than adaptive codes, and as much as the paper prints."""
    more = [_more(mine, other) for mine, other in zip(adaptive, cells, strict=True)]
    ordered = _all(_surely(mean / error) for mean, error in more)
    missed = [
        kept
        for kept, cell in zip(found.kept, cells, strict=True)
        if abs(cell.lost - _published(cell).lost) > max(LITTLE, SURE * cell.standard_error)
    ]
    agreement = (
        f"different from the paper at {_format_list(missed)}"
        if missed
        else "equal to the paper within half a point or four standard errors"
    )
    return Claim(
        f"At equal computation the {method} embedding loses more than the adaptive head, as much as printed",
        f"points lost by the {method} embedding at equal computation"
        + (f", with {_format_list(missed)} bits" if missed else ""),
        "Table I",
        DIFFERS if missed else ordered,
        f"{_drops(cells)} points lost at {_format_list(found.kept)}, {agreement}; "
        f"{', '.join(_pm(*one, digits=2) for one in more)} points more than the adaptive head",
        f"{_published_drops(cells)} points lost",
    )


def _equal_storage(
    method: str, found: Table, adaptive: list[TableCell], cells: list[TableCell], long_run: Mapping[str, Any] | None
) -> Claim:
    """Judge the sign of each of the paper's differences at equal storage by our difference at the same size."""
    pairs = list(zip(adaptive, cells, strict=True))
    theirs = [round(_published(other).lost - _published(mine).lost, 2) for mine, other in pairs]
    ours, runs = [_more(mine, other) for mine, other in pairs], f"{found.n_seeds} seeds"
    if long_run is not None and long_run["n_seeds"] > found.n_seeds:
        ours = [(row["lost_more"], row["standard_error"]) for row in long_run["rows"] if row["method"] == method]
        runs = f"{long_run['n_seeds']:,} seeds of an earlier run (benchmarks/equal_storage.py)"
    judged = {
        kept: _surely(np.sign(published) * mean / error)
        for kept, published, (mean, error) in zip(found.kept, theirs, ours, strict=True)
        if published
    }
    better = [kept for kept, more in zip(found.kept, theirs, strict=True) if more > 0]
    rest = [
        f"{'the same' if more == 0 else f'{-more:.2f} points more'} at {kept}"
        for kept, more in zip(found.kept, theirs, strict=True)
        if more <= 0
    ]
    sure = [kept for kept, outcome in judged.items() if outcome == REPRODUCED]
    return Claim(
        f"At equal storage the adaptive head loses less than the {method} embedding at {_format_list(better)} of "
        f"{found.n_pool}, and {' and '.join(rest)}",
        f"the {method} embedding at equal storage",
        "Table I",
        _all(judged.values()),
        f"the {method} embedding loses {', '.join(_pm(*one, digits=3) for one in ours)} points more; with {runs}, "
        + (f"the sign is as printed at {_format_list(sure)} of the pool" if sure else "no size is decided"),
        f"{', '.join(f'{more:.2f}' for more in theirs)} points more",
    )


def judge_distortion(found: Distortion) -> Iterator[Claim]:
    """Judge the remark on many signals."""
    expected = found.failure * found.n_draws
    excess = found.n_failures - expected
    yield Claim(
        "m = O(δ⁻² log N) bits keep all distances among N signals within δ of their expectation",
        "bits for many signals",
        "text",
        OPEN if excess <= SURE * np.sqrt(expected * (1 - found.failure)) else DIFFERS,
        f"{found.n_bits} bits suffice for {found.n_signals} signals, δ = {found.distortion:g} and a failure "
        f"probability of {found.failure:g}; {found.n_failures} of {found.n_draws} draws failed, and the largest "
        f"deviation was {found.largest:.3f}",
        "no constants",
    )


def judge_errata(found: list[Erratum]) -> Iterator[Claim]:
    """Judge the formulas that are not part of a figure."""
    by_place = {one.where: one for one in found}
    bound = by_place["Theorem 1, concentration"]
    yield Claim(
        "Theorem 1 bounds the deviation of the distance",
        "the bound",
        "Theorem 1",
        REPRODUCED if bound.printed_value < 1 else CORRECTED,
        f"corrected, the probability of a 10% deviation is at most {_number(bound.correct_value)}",
        f"at most {_number(bound.printed_value)}, which is no restriction",
    )
    for where, claim, brief, otherwise in (
        ("Table I, storage", "256 of 1024 take 1065 bits", "the bits of 256 of 1024", CORRECTED),
        (DEMONSTRATION, "512 of 8192 take 2969 bits", "the bits of the demonstration", INCONSISTENT),
    ):
        one = by_place[where]
        same = bool(np.isclose(one.printed_value, one.correct_value, atol=1))
        ours, theirs = (f"{_number(value)} bits" for value in (one.correct_value, one.printed_value))
        yield Claim(claim, brief, where.split(",")[0], REPRODUCED if same else otherwise, ours, theirs)


def _surely(deviation: float) -> str:
    """Return the outcome of a difference, in standard errors, that should be positive."""
    if not abs(deviation) > SURE:
        return OPEN
    return REPRODUCED if deviation > 0 else DIFFERS


def _all(outcomes: Iterable[str]) -> str:
    """Return the outcome of a claim about several differences."""
    found = set(outcomes)
    return next(one for one in (DIFFERS, OPEN, REPRODUCED) if one in found)


def summarize(claims: Iterable[Claim]) -> str:
    """Return which claims hold, differ and are open, and which formulas needed a correction, each in a line."""
    claims = list(claims)
    n_tested = sum(one.outcome in EXPERIMENTS for one in claims)
    n_held = sum(one.outcome == REPRODUCED for one in claims)
    titles = f"{n_held} of {n_tested} claims hold", "Different", "Open", "Corrected", "Inconsistent"
    sentences = []
    for title, outcome in zip(titles, OUTCOMES, strict=True):
        named = "; ".join(f"{one.brief} ({one.where})" for one in claims if one.outcome == outcome)
        if named:
            sentences.append(f"{title}: {named}.")
        elif outcome == REPRODUCED and n_tested:
            sentences.append(f"{title}.")
    return "\n".join(sentences)


def _more(mine: TableCell, other: TableCell) -> tuple[float, float]:
    """Return the additional points that the other loses, with the standard error over the shared seeds."""
    gaps = other.by_seed - mine.by_seed
    return float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps)))


def _published(cell: TableCell) -> Published:
    assert cell.published is not None  # the paper prints every row that is judged
    return cell.published


def _drops(cells: list[TableCell]) -> str:
    return ", ".join(_pm(cell.lost, cell.standard_error, digits=2) for cell in cells)


def _published_drops(cells: list[TableCell]) -> str:
    return ", ".join(f"{_published(cell).lost:.2f}" for cell in cells)


def _format_list(sizes: list[int]) -> str:
    """Return sizes as text, such as "32, 64 and 128"."""
    named = [str(size) for size in sizes]
    return " and ".join([", ".join(named[:-1]), named[-1]]) if len(named) > 1 else named[0]


def _pm(value: float, error: float, *, digits: int = 3) -> str:
    return f"{round(value, digits) + 0.0:.{digits}f} ± {error:.{digits}f}"


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 100 else f"{value:.1f}".removesuffix(".0")
