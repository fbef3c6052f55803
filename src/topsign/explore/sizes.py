"""Detection performance of codes of given sizes, as numbers and curves for the page, from ``topsign.theory``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import norm

from .. import theory
from .._arrays import Float64
from .._checks import check_choice, check_count, check_false_alarm, check_pool, check_real
from ..theory.rates import compact_bytes
from ..theory.tails import entry_level

Curves = list[dict[str, Any]]

FALSE_ALARMS = np.geomspace(1e-9, 0.5, 28)
CORRELATIONS = np.linspace(0, 1, 41)
N_SIZES = 15  # points of the curve of detection rate against bytes
MOST_D_PRIME = 50.0
"""Indices above this are None: areas under the curve that differ from 1 by less than a float holds give infinity."""


@dataclass(frozen=True)
class CodeSizes:
    """Code size and detection target, as set by the sliders."""

    n_features: int = 8192
    n_pool: int = 8192
    n_bits: int = 512
    correlation: float = 0.07
    n_entries: int = 1
    false_alarm: float = 1e-3
    detection: float = 0.9
    family: Literal["adaptive", "grouped", "trellis"] = "adaptive"  # of the plan; the charts show all families

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> CodeSizes:
        """Parse the query string of a request; raise ValueError that names the invalid value."""
        unknown = sorted(set(given) - set(cls.__dataclass_fields__))
        if unknown:
            raise ValueError(f"unknown values {', '.join(unknown)}; there are {', '.join(cls.__dataclass_fields__)}")
        values: dict[str, Any] = {}
        for name, text in given.items():
            kind: Any = type(getattr(cls, name))
            try:
                values[name] = kind(text)
            except ValueError:
                raise ValueError(f"{name} must be a number, got {text!r}") from None
        return cls(**values)

    def __post_init__(self) -> None:
        check_count(self.n_features, "n_features", minimum=16, maximum=2**20)
        check_pool(self.n_bits, self.n_pool)
        check_count(self.n_pool, "n_pool", maximum=2**20)
        check_count(self.n_entries, "n_entries", maximum=2**53)
        check_false_alarm(self.false_alarm)
        check_choice(self.family, "family", theory.PLANNED_FAMILIES)
        if not check_real(self.correlation, "correlation", minimum=0, maximum=0.99) > 0:
            raise ValueError("correlation must be above 0")
        if not 0 < check_real(self.detection, "detection", minimum=0, maximum=1) < 1:
            raise ValueError("detection must lie strictly between 0 and 1")

    @property
    def code_bytes(self) -> int:
        return compact_bytes(self.n_bits, self.n_pool)

    @property
    def per_entry(self) -> float:
        """False-alarm rate per comparison that gives the requested rate per search."""
        return entry_level(self.false_alarm, self.n_entries)


@lru_cache(maxsize=64)
def describe(choice: CodeSizes) -> dict[str, Any]:
    """Return numbers and curves for these sizes as JSON values."""
    shape: dict[str, Any] = {"n_bits": choice.n_bits, "n_pool": choice.n_pool}
    curve = partial(theory.roc, correlation=choice.correlation, n_features=choice.n_features)
    adaptive, hamming = (curve(**shape, scoring=scoring) for scoring in ("asymmetric", "hamming"))
    signs = curve(n_bits=8 * choice.code_bytes, n_pool=8 * choice.code_bytes, scoring="asymmetric")
    grouped = curve(n_bytes=choice.code_bytes, scoring="asymmetric")
    whole = curve(scoring="uncompressed")
    limit = _limit(choice, whole.d_prime, choice.code_bytes, FALSE_ALARMS)
    threshold = float(-ndtri(choice.per_entry))
    shift = min(adaptive.d_prime, MOST_D_PRIME)
    scores = np.linspace(-4, max(threshold, shift) + 4, 81)  # standardised, and assumed to be normal
    curves = [_line("impostors", scores, norm.pdf(scores)), _line("matches", scores, norm.pdf(scores, shift))]
    detectors = {"d_prime": adaptive, "d_prime_signs": signs, "d_prime_grouped": grouped, "d_prime_uncompressed": whole}
    return {
        "numbers": {
            "code_bytes": choice.code_bytes,
            "information_bytes": float(theory.storage_bits(**shape)) / 8,
            "total_bytes": choice.code_bytes * choice.n_entries,
            "expected_hamming": float(theory.expected_hamming(choice.correlation, **shape)),
            **{name: one.d_prime if one.d_prime < MOST_D_PRIME else None for name, one in detectors.items()},
            "detection": _detection(choice, **shape),
            "detection_signs": _detection(choice, n_bits=8 * choice.code_bytes, n_pool=8 * choice.code_bytes),
            "detection_grouped": _detection(choice, n_bytes=choice.code_bytes),
            "detection_trellis": float(_trellis(choice, choice.code_bytes, choice.per_entry)),
            "false_alarm_per_entry": choice.per_entry,
        },
        "roc": [
            _roc_line("adaptive, real query", adaptive),
            _roc_line("adaptive, Hamming", hamming),
            _roc_line("sign codes", signs),
            _roc_line("grouped codes", grouped),
            _line("trellis codes", FALSE_ALARMS, _trellis(choice, choice.code_bytes, FALSE_ALARMS)),
            _line("Shannon limit", FALSE_ALARMS, limit),
            _roc_line("uncompressed", whole),
        ],
        "bytes": _byte_curves(choice, whole.d_prime),
        "scores": {"threshold": threshold, "curves": curves},
        "distance": [
            _line("adaptive", CORRELATIONS, theory.expected_hamming(CORRELATIONS, **shape)),
            _line("sign codes", CORRELATIONS, theory.sign_expected_hamming(CORRELATIONS)),
            _line("grouped codes", CORRELATIONS, theory.expected_hamming(CORRELATIONS, n_bytes=choice.code_bytes)),
        ],
    }


@lru_cache(maxsize=64)
def make_plan(choice: CodeSizes) -> dict[str, Any]:
    """Return the smallest code that reaches the requested detection rate, with its commands, or the reason for none."""
    try:
        plan = theory.plan(
            correlation=choice.correlation,
            detection=choice.detection,
            false_alarm=choice.false_alarm,
            n_features=choice.n_features,
            n_entries=choice.n_entries,
            family=choice.family,
        )
    except theory.TargetError as error:
        return {"reached": False, "message": str(error), "lines": [], "commands": []}
    search = f"topsign search index.topsign queries.npy --false-alarm {choice.false_alarm:g}"
    if plan.n_bits is not None:
        size = f"--n-bits {plan.n_bits} --n-pool {plan.n_pool}"
    else:
        size = f"--n-bytes {plan.n_bytes}{'' if plan.n_pool else ' --basis hadamard --no-center'}"
    search += f" --scoring {plan.scoring}"
    build = f"topsign build signals.npy -o index.topsign --family {plan.family} {size}"
    return {"reached": True, "message": "", "lines": plan.lines(), "commands": [build, search]}


def _detection(choice: CodeSizes, **size: Any) -> float:
    """Return the detection rate of adaptive codes of n_bits out of n_pool, or of grouped codes of n_bytes."""
    return theory.detection_at(
        correlation=choice.correlation,
        false_alarm=choice.false_alarm,
        n_features=choice.n_features,
        n_entries=choice.n_entries,
        **size,
    )


def _byte_curves(choice: CodeSizes, d_prime: float) -> Curves:
    """Return detection rates at the requested false-alarm rate for smaller and larger codes."""
    low, high = min(max(8, choice.n_bits // 8), choice.n_pool), min(choice.n_pool // 2, 4 * choice.n_bits)
    sizes = np.unique(np.geomspace(low, max(low, high), N_SIZES).astype(int)).tolist()
    widths = [compact_bytes(n_bits, choice.n_pool) for n_bits in sizes]
    limits = [_limit(choice, d_prime, width, np.array([choice.per_entry]))[0] for width in widths]
    return [
        _line(
            "adaptive, real query",
            widths,
            [_detection(choice, n_bits=n_bits, n_pool=choice.n_pool) for n_bits in sizes],
        ),
        _line("sign codes", widths, [_detection(choice, n_bits=8 * width, n_pool=8 * width) for width in widths]),
        _line("grouped codes", widths, [_detection(choice, n_bytes=width) for width in widths]),
        _line("trellis codes", widths, _trellis(choice, widths, choice.per_entry)),
        _line("Shannon limit", widths, limits),
    ]


def _trellis(choice: CodeSizes, n_bytes: Any, false_alarms: Any) -> Float64:
    """Return the detection rate of trellis codes at false-alarm rates per comparison."""
    return theory.trellis_detection(
        n_bytes, correlation=choice.correlation, false_alarm=false_alarms, n_features=choice.n_features
    )


def _limit(choice: CodeSizes, d_prime: float, n_bytes: int, false_alarms: Float64) -> Float64:
    """Return the detection rate of an ideal code of n_bytes by rate-distortion theory, assuming normal scores."""
    share = float(theory.rate_distortion_limit(8 * n_bytes / choice.n_features))
    return np.asarray(ndtr(ndtri(false_alarms) + d_prime * np.sqrt(share)))


def _roc_line(name: str, curve: theory.RocCurve) -> dict[str, Any]:
    """Return the displayed part of a ROC curve, thinned to screen resolution."""
    shown = np.flatnonzero((curve.pfa >= FALSE_ALARMS[0]) & (curve.pfa <= FALSE_ALARMS[-1]))
    thinned = shown[:: max(1, len(shown) // 80)]
    return _line(name, curve.pfa[thinned], curve.pd[thinned])


def _line(name: str, x: Any, y: Any) -> dict[str, Any]:
    return {"name": name, "x": [float(value) for value in x], "y": [float(value) for value in y]}
