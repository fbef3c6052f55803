"""Recipe of trellis codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from ... import kernels
from ..._arrays import Array, Bytes, Float32, Float64
from ..._checks import check_choice, check_count, check_flag, check_positive, check_real
from ..._files import Record
from ..._lazy import lazy
from ..._random import RandomState
from ...kernels.trellis import NORM_BITS, level_rms, pack_norms
from ...projections import Local, Principal, Projection
from ...projections.blocks import Block
from ...projections.learned import is_orthonormal
from ..base import Encoded, Recipe, check_metric, check_real_valued, unit
from ..comparison import Comparison, Pairing
from ..projected import (
    LEARNED,
    ProjectedRecipe,
    claim_fingerprint,
    digest,
    given_mean,
    inverse_norms,
    read_mean,
    read_projection,
    unit_rows,
)
from ..weight_coding import WeightCoding, size_steps
from .cells import MAX_CELLS, Cells, cell_bits
from .codes import TrellisCodes, unpacked_norms
from .design import TrellisDesign, check_trellis

BASES = ("hadamard", "principal")
ENCODED_BYTES = 2**24  # bytes of signals per encoded block: enough work for many threads and cells


@dataclass(frozen=True)
class TrellisParameters:
    """Parameters of an index of trellis codes, with their defaults."""

    n_features: int
    n_bytes: int
    basis: str | Projection = "principal"
    n_local: int = 1
    center: bool | npt.ArrayLike = True
    window: int = 10
    metric: str = "correlation"
    norms: bool = False
    random_state: RandomState = None


@dataclass(frozen=True, eq=False)
class TrellisRecipe(ProjectedRecipe):
    """Recipe of trellis codes: a basis, a mean and a design for each cell."""

    family: ClassVar[str] = "trellis"
    codes_type: ClassVar[type[TrellisCodes]] = TrellisCodes
    space_mark: ClassVar[bytes] = b"trellis"  # queries have norm one

    norms: bool = False
    designs: tuple[TrellisDesign, ...] = ()  # one per cell
    measured_cosine: float | None = None  # mean cosine of the sample's signals and their reconstructions

    @classmethod
    def make(
        cls,
        projection: Projection,
        designs: Sequence[TrellisDesign],
        *,
        mean: Float32 | None = None,
        norms: bool = False,
        metric: str = "correlation",
        measured_cosine: float | None = None,
    ) -> Self:
        """Return a recipe of given, validated parts; :meth:`learn` makes one from signals."""
        metric = check_metric(metric, check_flag(norms, "norms"))
        _check_designs(projection, designs, mean)
        if measured_cosine is not None and not 0 < check_real(measured_cosine, "measured_cosine", maximum=1) <= 1:
            raise ValueError(f"measured_cosine must be a mean cosine in (0, 1], got {measured_cosine}")
        return cls(projection, norms, metric, mean, tuple(designs), measured_cosine)

    @classmethod
    def learn(
        cls,
        sample: Array,
        *,
        part: slice | None = None,
        n_features: int | None = None,
        n_bytes: int | None = None,
        bits_per_feature: float | None = None,
        n_bits: int | None = None,
        **options: Any,
    ) -> Self:
        """Learn a recipe from rows: mean, axes and variances.

        Exactly one of ``n_bytes``, ``bits_per_feature`` and ``n_bits`` is given. A Hadamard basis without ``center``
        learns nothing: its recipe is the same for all signals.
        """
        from .learning import learn_recipe  # which makes recipes

        if n_bits is None:
            n_bits = 8 * n_bytes_of(n_bytes, bits_per_feature, sample.shape[1])
        return learn_recipe(cls, sample, part=part, n_bits=n_bits, **options)

    @classmethod
    def needs_sample(cls, **parameters: Any) -> bool:
        given = TrellisParameters(**parameters)
        n_bits, window = check_trellis(8 * check_count(given.n_bytes, "n_bytes"), given.window)
        check_trellis(
            n_bits - cell_bits(check_count(given.n_local, "n_local")), window
        )  # bits that are left for a ring
        given_mean(given.center, given.n_features)
        check_basis(given.basis, given.n_features, given.random_state)
        check_local(given.n_local, basis=given.basis, center=given.center)
        check_metric(given.metric, check_flag(given.norms, "norms"))
        return given.basis == "principal" or given.center is not False

    @classmethod
    def agree(cls, stored: Recipe, **parameters: Any) -> str | None:
        """Compare parameters with a stored recipe.

        ``random_state=None`` and ``center=True`` accept the stored values; all others must be equal.
        """
        problem, given = super().agree(stored, **parameters), TrellisParameters(**parameters)
        if problem is not None or not isinstance(stored, cls):
            return problem
        have = stored.parameters() | {"random_state": stored.seed}
        want: dict[str, Any] = vars(given) | {
            "center": given.center is not False,
            "metric": check_metric(given.metric, given.norms),
            "random_state": stored.seed if given.random_state is None else given.random_state,
        }
        if isinstance(given.basis, Projection):
            have["basis"], want["random_state"] = stored.projection, stored.seed
        names = [name for name in have if have[name] != want[name]]
        if names:
            shown = (", ".join(f"{name}={values[name]!r}" for name in names) for values in (have, want))
            return ", got ".join(shown)
        mean = given_mean(given.center, given.n_features)
        differs = mean is not None and (stored.mean is None or not np.array_equal(stored.mean, mean))
        return "another mean than center" if differs else None

    def parameters(self) -> dict[str, Any]:
        learned = isinstance(self.projection, (Local, Principal))
        return {
            "n_features": self.n_features,
            "n_bytes": self.n_bits // 8,
            "basis": "principal" if learned else self.projection.kind,
            "n_local": self.n_local,
            "center": self.mean is not None or self.n_local > 1,
            "window": self.designs[0].window,
            "metric": self.metric,
            "norms": self.norms,
        }

    @property
    def n_bits(self) -> int:
        """Bits per code, without its norm."""
        return self.designs[0].n_bits + cell_bits(len(self.designs))

    @property
    def n_bytes(self) -> int:
        """Bytes per code, without its norm."""
        return -(-self.n_bits // 8)

    @property
    def code_bytes(self) -> int:
        return -(-(self.n_bits + NORM_BITS * self.norms) // 8)

    @property
    def encoded_signals(self) -> int:
        return max(self.block_signals, ENCODED_BYTES // (4 * self.n_features))

    @property
    def n_local(self) -> int:
        """Number of cells with their own basis."""
        return len(self.designs)

    @property
    def shared_nbytes(self) -> int:
        if not self.is_learned:
            return 0
        axes = [getattr(self.projection, name, None) for name in ("axes", "means")]
        return super().shared_nbytes + sum(one.nbytes for one in (*axes, *self.designs) if one is not None)

    @property
    def is_learned(self) -> bool:
        """Whether anything was learned from signals."""
        return self.mean is not None or self.projection.kind in LEARNED

    @lazy
    def cells(self) -> Cells:
        """Cells; a single one unless bases are local."""
        return Cells(self.projection, self.mean, self.designs, self.code_bytes)

    @lazy
    def reconstruction_cosine(self) -> float:
        """Mean cosine of signals and their reconstructions; cosines divided by it estimate correlations.

        Measured on the learning sample, or that of white signals if nothing was learned.
        """
        if self.measured_cosine is not None:
            return self.measured_cosine
        from ...theory import trellis_energy  # SciPy takes long to import

        window = min((8, 10, 12), key=lambda one: abs(one - self.designs[0].window))
        return float(np.sqrt(trellis_energy(self.designs[0].n_bits / self.n_features, window=window)))

    def project_block(self, block: Block, out: Float32, n_threads: int) -> None:
        panels = self.projection.panels(None)
        if panels is None:
            self.projection.project_block(unit_rows(block), None, out, n_threads)
        else:
            products, factors = [kernels.Product(panels, out=out)], inverse_norms(block)
            kernels.active().multiply(block.values, products, factors=factors, n_threads=n_threads)

    def encode(self, block: Block, *, n_threads: int = 1, coder: Any = None) -> Encoded:
        """Return the codes of a block; a ``coder`` with a method ``trellis_encode`` replaces the kernels."""
        self.check_projection()
        signals = self.cells.coordinates(block, n_threads)
        codes: Bytes = (coder or kernels.active()).trellis_encode(signals, n_threads=n_threads)
        if self.norms:
            codes[:, -2:] = pack_norms(np.sqrt(block.square_norms))
        return Encoded(codes, {})

    def decode(self, codes: Bytes, columns: Mapping[str, Float32]) -> Float32:
        """Return mean plus reconstruction, scaled to the signal's norm if it is kept, otherwise to norm one."""
        signals = self.directions(codes)
        return signals * unpacked_norms(codes)[:, np.newaxis] if self.norms else signals

    def reference(self, codes: Bytes, columns: Mapping[str, Float32]) -> Float32:
        return self.decode(codes, columns) if self.metric == "inner_product" else self.directions(codes)

    def directions(self, codes: Bytes) -> Float32:
        """Return unit vectors along mean plus reconstruction, (n_codes, n_features)."""
        signals = np.empty((len(codes), self.n_features), np.float32)
        for cell, positions in self.cells.of_codes(codes):
            levels = kernels.active().trellis_decode(cell.tables, codes[positions], n_threads=kernels.n_threads(None))
            signals[positions] = cell.signals(levels)
        return unit(signals)

    def prepare(
        self,
        queries: Array,
        *,
        part: slice | None = None,
        scoring: str = "asymmetric",
        adaptive_bits: int | None = None,
        n_threads: int = 1,
    ) -> Comparison:
        from .comparison import TrellisComparison  # which needs SciPy

        check_real_valued(self, scoring, adaptive_bits)
        projected, norms = self.project(queries, part=part, n_threads=n_threads)
        return TrellisComparison(self, self.cells.round(projected, n_threads=n_threads), norms, self.metric)

    def pairing(self) -> Pairing:
        from .pairs import TrellisPairing

        return TrellisPairing.of(self)

    @classmethod
    def for_weights(cls, weights: Array, **options: Any) -> Self:
        from .weights import learn_weights

        return learn_weights(cls, weights, **options)

    @classmethod
    def needs_weights(cls, n_features: int, **options: Any) -> bool:
        learned = options.get("projection") == "principal"
        cls.for_weights(np.empty((0, n_features), np.float32), **options | ({"projection": None} if learned else {}))
        return learned

    @classmethod
    def weight_sizes(cls, n_features: int, **options: Any) -> list[int]:
        """Return sizes from two windows of the usual length, in whole bytes, to four bits per feature."""
        return size_steps(24, 4 * n_features) or [24]

    def weight_coding(self) -> WeightCoding:
        from .weights import TrellisWeights

        return TrellisWeights(self)

    def code_pvalues(self, codes: Bytes) -> Float64 | None:
        if self.is_learned:  # reconstructions of impostors are correlated
            return None
        from ...theory.log_tails import probabilities
        from ..laws import sample_log10_pvalues  # SciPy takes long to import

        signals = self.directions(codes).astype(np.float64)
        return probabilities(sample_log10_pvalues(signals @ signals.T, self.n_features))

    def energy_ratio(self, codes: Bytes) -> float | None:
        """Return the captured energy relative to that of the learning sample; about 1 if the basis fits."""
        levels, held, expected = TrellisCodes.unchecked(codes, self, {}).levels, 0.0, 0.0
        for cell, positions in self.cells.of_codes(codes):
            amplitudes = cell.design.amplitudes.astype(np.float64)
            values = levels[positions, : len(amplitudes)] * (amplitudes / level_rms())
            usual = np.minimum(amplitudes, cell.design.deviations)  # those of fine designs are widened
            held += float((values**2).sum())
            expected += len(positions) * float(usual @ usual)
        return held / expected if expected else float("nan")

    @property
    def summary(self) -> str:
        local = f", n_local={self.n_local}" if self.n_local > 1 else ""
        norms = ", norms=True" if self.norms else ""
        return f"n_features={self.n_features}, n_bytes={self.n_bytes}, basis={self.projection.kind}{local}{norms}"

    def to_json(self) -> Record:
        record = super().to_json() | {"n_bits": self.n_bits, "designs": [one.to_json() for one in self.designs]}
        return record if self.measured_cosine is None else record | {"measured_cosine": self.measured_cosine}

    def described(self) -> Record:
        record = super().described()
        return record | {"designs": digest(record["designs"])}

    @classmethod
    def parse(cls, record: Record) -> Self:
        projection, records = read_projection(record), record["designs"]
        if not isinstance(records, list) or not 1 <= len(records) <= MAX_CELLS:
            raise ValueError(f"designs must be a list of 1 to {MAX_CELLS} records")
        designs = [TrellisDesign.from_json(one, projection.n_features) for one in records]
        recipe = cls.make(
            projection,
            designs,
            mean=read_mean(record.get("mean"), projection.n_features),
            norms=record["norms"],
            metric=record["metric"],
            measured_cosine=record.get("measured_cosine"),
        )
        claim_fingerprint(recipe, record)
        return recipe


def n_bytes_of(n_bytes: int | None, bits_per_feature: float | None, n_features: int) -> int:
    """Return the bytes per code from n_bytes or bits_per_feature."""
    if (n_bytes is None) == (bits_per_feature is None):
        raise ValueError(
            "give exactly one of n_bytes and bits_per_feature, got "
            f"n_bytes={n_bytes!r} and bits_per_feature={bits_per_feature!r}"
        )
    if bits_per_feature is None:
        return check_count(n_bytes, "n_bytes")
    return int(np.ceil(check_positive(bits_per_feature, "bits_per_feature", maximum=16) * n_features / 8))


def check_basis(basis: str | Projection, n_features: int, random_state: RandomState) -> str | Projection:
    """Return the basis of a name, or check an orthonormal projection."""
    if not isinstance(basis, Projection):
        return check_choice(basis, "basis", BASES)
    if not is_orthonormal(basis) or basis.n_features != n_features:
        raise ValueError(
            f"basis must be an orthonormal projection (hadamard, circulant) of shape {(n_features, n_features)}, "
            f"got {basis!r}"
        )
    if random_state is not None:
        raise ValueError("an existing projection has its own seed; leave random_state=None")
    return basis


def check_local(n_local: int, *, basis: str | Projection, center: bool | npt.ArrayLike) -> int:
    """Check the number of local bases."""
    n_local = check_count(n_local, "n_local", maximum=MAX_CELLS)
    if n_local & (n_local - 1):
        raise ValueError(f"n_local must be a power of two, so that cell numbers use whole bits, got {n_local}")
    if n_local > 1 and (basis != "principal" or center is not True):
        raise ValueError(
            f'local bases are principal axes around means: n_local={n_local} needs basis="principal" and center=True'
        )
    return n_local


def _check_designs(projection: Projection, designs: Sequence[TrellisDesign], mean: Float32 | None) -> None:
    if not isinstance(projection, Local):
        if len(designs) != 1 or not is_orthonormal(projection) or designs[0].coded.max() >= projection.n_features:
            raise ValueError(f"trellis codes need an orthonormal basis of all coordinates, got {projection!r}")
        return
    n_coded = [design.n_coded for design in designs]
    if n_coded != projection.n_axes or any((one.coded != np.arange(one.n_coded)).any() for one in designs):
        raise ValueError(f"cells of {projection.n_axes} axes need designs that code all of them, got {n_coded}")
    if not 2 <= len(designs) <= MAX_CELLS or len(designs) & (len(designs) - 1):
        raise ValueError(f"cells must be a power of two, at most {MAX_CELLS}, got {len(designs)}")
    if len({(one.n_bits, one.window) for one in designs}) > 1 or (designs[0].n_bits + cell_bits(len(designs))) % 8:
        raise ValueError("codes of all cells must have the same bits, and whole bytes with the number of the cell")
    if mean is not None:
        raise ValueError("local bases have means of their own")
