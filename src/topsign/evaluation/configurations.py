"""Index configurations that an evaluation compares: constructors with their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._checks import check_count
from ..index import AdaptiveIndex, Index, SignIndex, TrellisIndex

SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4)
"""Default sizes of adaptive codes, as fractions of the number of features."""

TRELLIS_SHARES = (1 / 16, 1 / 8, 1 / 4)
"""Bytes of trellis codes as fractions of the number of features: half a bit, one bit and two bits per feature."""

N_LOCAL = 16
"""Number of cells of trellis codes with local axes."""

MAX_TRELLIS_FEATURES, MAX_LOCAL_FEATURES = 2048, 1024
"""Above these sizes, trellis codes and local axes are omitted, because building them takes longer than all the rest."""

FLAGS = {"n_bits": "--bits", "n_bytes": "--bytes", "n_local": "--local", "basis": "--projection", "metric": "--metric"}
SWITCHES = {"center": "--center", "norms": "--norms"}
"""Options of ``topsign build`` for the parameters of the constructors."""


@dataclass(frozen=True)
class Configuration:
    """Index constructor with the parameters that an evaluation varies."""

    index: type[Index]
    family: str
    name: str  # as tables show it
    parameters: dict[str, Any]
    has_null: bool  # whether p-values of isotropic signals are known

    def make(self, n_features: int, **options: Any) -> Index:
        """Return an empty index; ``options`` are shared by all configurations."""
        return self.index(n_features=n_features, **(self.parameters | options))  # type: ignore[call-arg]

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
        values = {"n_features": n_features} | self.parameters | options
        return f"ts.{self.index.__name__}({', '.join(f'{name}={value!r}' for name, value in values.items())})"


def configurations(
    n_bits: Sequence[int] | None, n_features: int, n_entries: int, *, metric: str, has_mean: bool
) -> tuple[list[Configuration], list[str]]:
    """Return the configurations to measure, and notes on those that are omitted.

    For the metric "cosine", adaptive and sign codes are measured with and without centring if the signals have a mean.
    """
    centred = {"cosine": (False, True) if has_mean else (False,), "centred cosine": (True,)}.get(metric, (False,))
    inner: dict[str, Any] = {"metric": "inner_product"} if metric == "inner_product" else {}
    found = []
    for center in centred:
        shared = ({"center": True} if center else {}) | inner
        words = ", centred" if center else ""
        found += [
            Configuration(AdaptiveIndex, "adaptive", f"adaptive, {size} bits{words}", {"n_bits": size} | shared, True)
            for size in _sizes(n_bits, n_features)
        ]
        found.append(Configuration(SignIndex, "sign", f"sign, {n_features} bits{words}", shared, True))
    enough = n_entries >= max(200, n_features // 8)  # to learn axes from
    if not (32 <= n_features <= MAX_TRELLIS_FEATURES and enough):
        return found, [
            f"trellis codes were omitted, because with {n_features:,} features and {n_entries:,} entries they have too "
            "few entries or take longer to build than all other codes"
        ]
    norms: dict[str, Any] = {"norms": True} if inner else {}
    sizes = [max(3, int(n_features * share)) for share in TRELLIS_SHARES]
    found += [_trellis(size, "learned axes", inner | norms) for size in sizes]
    notes = []
    if n_features <= MAX_LOCAL_FEATURES and n_entries >= least_local(n_features):
        # Local axes improve the smallest codes the most.
        found.append(_trellis(sizes[0], f"axes of {N_LOCAL} cells", {"n_local": N_LOCAL} | inner | norms))
    else:
        notes.append(
            f"local axes of trellis codes were omitted: {N_LOCAL} cells need at least {least_local(n_features):,} "
            f"entries and at most {MAX_LOCAL_FEATURES:,} features, got {n_entries:,} and {n_features:,}"
        )
    random = {"basis": "hadamard", "center": False} | inner | norms
    found.append(_trellis(sizes[1], "random axes", random, has_null=True))
    return found, notes


def least_local(n_features: int) -> int:
    """Return the minimum number of entries for learning local axes; with fewer the axes overfit.

    With 2,000 entries of 64 features, recall among held-out entries was up to 6 points lower than among these.
    """
    return N_LOCAL * 4 * n_features


def _sizes(n_bits: Sequence[int] | None, n_features: int) -> list[int]:
    if n_bits is None:
        return sorted({max(8, int(n_features * share) // 8 * 8) for share in SHARES if n_features * share >= 1})
    if not len(n_bits):
        raise ValueError("n_bits must name at least one size, got none")
    return sorted({check_count(one, "n_bits", maximum=n_features) for one in n_bits})


def _trellis(n_bytes: int, axes: str, parameters: dict[str, Any], *, has_null: bool = False) -> Configuration:
    name = f"trellis, {n_bytes} bytes, {axes}"
    return Configuration(TrellisIndex, "trellis", name, {"n_bytes": n_bytes} | parameters, has_null)
