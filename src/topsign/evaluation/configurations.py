"""Index configurations that an evaluation compares: constructors with their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._checks import check_count
from ..index import Index

SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4)
"""Default sizes of adaptive codes, as fractions of the number of features."""

GROUPED_SHARES = (1 / 32, 1 / 16)
"""Bytes of grouped codes as fractions of the number of features: a quarter and half a bit per feature."""

TRELLIS_SHARES = (1 / 16, 1 / 8, 1 / 4)
"""Bytes of trellis codes as fractions of the number of features: half a bit, one bit and two bits per feature."""

MAX_TRELLIS_FEATURES = 2048
"""Above this size, trellis codes are omitted, because building them takes longer than all the rest."""

FLAGS = {"n_bits": "--bits", "n_bytes": "--bytes", "basis": "--projection", "metric": "--metric"}
SWITCHES = {"center": "--center"}
"""Options of ``topsign build`` for the parameters of the constructors."""


@dataclass(frozen=True)
class Configuration:
    """Index constructor with the parameters that an evaluation varies."""

    family: str
    name: str  # as tables show it
    parameters: dict[str, Any]
    has_null: bool  # whether p-values of isotropic signals are known

    def make(self, n_features: int, **options: Any) -> Index:
        """Return an empty index; ``options`` are shared by all configurations."""
        return Index(n_features, family=self.family, **(self.parameters | options))

    def options(self) -> str:
        """Return the options of ``topsign build`` for this configuration."""
        words = [f"--family {self.family}"]
        for name, value in self.parameters.items():
            if name in SWITCHES:
                words.append(SWITCHES[name] if value else SWITCHES[name].replace("--", "--no-"))
            else:
                words.append(f"{FLAGS[name]} {value}")
        return " ".join(words)

    def constructor(self, n_features: int, **options: Any) -> str:
        """Return the Python expression that creates the index."""
        values = {"family": self.family} | self.parameters | options
        return f"ts.Index({n_features}, {', '.join(f'{name}={value!r}' for name, value in values.items())})"


def configurations(
    n_bits: Sequence[int] | None, n_features: int, n_entries: int, *, metric: str, has_mean: bool
) -> tuple[list[Configuration], list[str]]:
    """Return the configurations to measure, and notes on those that are omitted.

    For the metric "cosine", all codes except trellis codes are measured with and without centring if the signals have
    a mean.
    """
    centred = {"cosine": (False, True) if has_mean else (False,), "centred cosine": (True,)}.get(metric, (False,))
    inner: dict[str, Any] = {"metric": "inner_product"} if metric == "inner_product" else {}
    found = []
    for center in centred:
        shared = ({"center": True} if center else {}) | inner
        words = ", centred" if center else ""
        found += [
            Configuration("adaptive", f"adaptive, {size} bits{words}", {"n_bits": size} | shared, True)
            for size in _sizes(n_bits, n_features)
        ]
        grouped = sorted({max(1, int(n_features * share)) for share in GROUPED_SHARES})
        found += [
            Configuration("grouped", f"grouped, {size} bytes{words}", {"n_bytes": size} | shared, True)
            for size in grouped
        ]
        size = -(-n_features // 8)
        found.append(Configuration("sign", f"sign, {size} bytes{words}", {"n_bytes": size} | shared, True))
    enough = n_entries >= max(200, n_features // 8)  # to learn axes from
    if not (32 <= n_features <= MAX_TRELLIS_FEATURES and enough):
        return found, [
            f"trellis codes were omitted, because with {n_features:,} features and {n_entries:,} entries they have too "
            "few entries or take longer to build than all other codes"
        ]
    sizes = [max(3, int(n_features * share)) for share in TRELLIS_SHARES]
    found += [_trellis(size, "learned axes", inner) for size in sizes]
    random = {"basis": "hadamard", "center": False} | inner
    found.append(_trellis(sizes[1], "random axes", random, has_null=True))
    return found, []


def _sizes(n_bits: Sequence[int] | None, n_features: int) -> list[int]:
    if n_bits is None:
        return sorted({max(8, int(n_features * share) // 8 * 8) for share in SHARES if n_features * share >= 1})
    if not len(n_bits):
        raise ValueError("n_bits must name at least one size, got none")
    return sorted({check_count(one, "n_bits", maximum=n_features) for one in n_bits})


def _trellis(n_bytes: int, axes: str, parameters: dict[str, Any], *, has_null: bool = False) -> Configuration:
    name = f"trellis, {n_bytes} bytes, {axes}"
    return Configuration("trellis", name, {"n_bytes": n_bytes} | parameters, has_null)
