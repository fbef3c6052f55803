"""The recipe: everything that codes are made with."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays import Float32
from ._checks import check_choice, check_count, check_flag, check_pool, check_real
from ._files import Record
from ._lazy import lazy
from ._random import RandomState
from .cells import MAX_CELLS, Cells, cell_bits
from .errors import StorageError
from .kernels import LAYOUTS, Layout
from .kernels.tables import NORM_BITS
from .projections import Local, Principal, Projection, make_projection, resolve_projection
from .projections.learned import is_orthonormal
from .trellis import TrellisDesign

FAMILIES = ("adaptive", "sign", "trellis")
METRICS = ("correlation", "inner_product")
MAX_FEATURES, MAX_BLOCKS = 2**28, 2**16
"""Of a recipe; the second is n_pool / n_features."""
LEARNED: dict[str, type[Projection]] = {cls.kind: cls for cls in (Principal, Local)}


@dataclass(frozen=True, eq=False)
class Recipe:
    """What codes are made with; codes can be compared with each other and with queries where recipes are equal.

    Indexes, shards, heads, exported tables and torch states all carry one, as JSON.
    """

    family: str  # "adaptive": own locations and signs; "sign": the signs of the whole pool; "trellis": a ring of bits
    projection: Projection
    layout: Layout
    norms: bool = True  # keep norms and scales
    metric: str = "correlation"  # what scores estimate
    mean: Float32 | None = None  # removed from signals and queries alike; trellis codes: of unit signals, put back
    designs: tuple[TrellisDesign, ...] = ()  # of trellis codes, one per cell
    kept: float | None = None  # of trellis codes: mean cosine of signals and reconstructions, where it was measured

    @classmethod
    def make(
        cls,
        family: str,
        *,
        n_features: int,
        n_bits: int | str | None = None,
        n_bytes: int | None = None,
        n_pool: int | None = None,
        projection: str | Projection = "hadamard",
        layout: str = "compact",
        norms: bool = True,
        metric: str = "correlation",
        mean: Float32 | None = None,
        random_state: RandomState = None,
    ) -> Recipe:
        """A recipe from what a constructor was given.

        ``n_pool`` is ``n_features`` when not given; ``n_bits`` is the whole pool of signs, and of adaptive codes
        "auto" or None is an eighth of the pool, at least 16, or what fits into ``n_bytes``.
        """
        check_choice(family, "family", FAMILIES[:2])
        n_pool = n_features if n_pool is None else n_pool
        if family == "adaptive":
            n_bits = resolve_bits(n_bits, n_bytes, n_pool, layout)
        n_bits, n_pool = check_pool(1 if n_bits is None else n_bits, n_pool)
        if family == "sign":
            shape = Layout("signs", n_pool, n_pool)
        else:
            shape = Layout(check_choice(layout, "layout", LAYOUTS), n_bits, n_pool)
        metric = check_metric(metric, norms)
        made = resolve_projection(projection, n_features=n_features, n_pool=n_pool, random_state=random_state)
        _check_sizes(made.n_features, made.n_pool)
        return cls(family, made, shape, check_flag(norms, "norms"), metric, mean)

    @classmethod
    def make_trellis(
        cls,
        projection: Projection,
        designs: Sequence[TrellisDesign],
        *,
        mean: Float32 | None = None,
        norms: bool = False,
        metric: str = "correlation",
        kept: float | None = None,
    ) -> Recipe:
        """A recipe of trellis codes; :func:`topsign.learning.learn_recipe` makes one from signals."""
        metric = check_metric(metric, norms)
        _check_designs(projection, designs, mean)
        n_bits = designs[0].n_bits + cell_bits(len(designs))
        layout = Layout("trellis", n_bits + NORM_BITS * check_flag(norms, "norms"), projection.n_pool)
        if kept is not None and not 0 < check_real(kept, "kept", minimum=0, maximum=1) <= 1:
            raise ValueError(f"kept must be a mean cosine in (0, 1], got {kept}")
        return cls("trellis", projection, layout, norms, metric, mean, tuple(designs), kept)

    @lazy
    def cells(self) -> Cells:
        """How trellis codes of each cell are made and read; one cell unless bases are local."""
        return Cells(self.projection, self.mean, self.designs, self.layout.code_bytes)

    @lazy
    def kept_cosine(self) -> float:
        """Mean cosine of signals and their reconstructions by trellis codes: cosines over it estimate correlations.

        Measured on the sample where one was learned from; otherwise that of white signals.
        """
        if self.kept is not None:
            return self.kept
        from .theory import trellis_energy  # SciPy takes long to import

        window = min((8, 10, 12), key=lambda one: abs(one - self.designs[0].window))
        return float(np.sqrt(trellis_energy(self.designs[0].n_bits / self.n_features, window=window)))

    @property
    def n_local(self) -> int:
        """Cells with a basis of their own."""
        return max(1, len(self.designs))

    @property
    def n_features(self) -> int:
        """Length of a signal."""
        return self.projection.n_features

    @property
    def n_pool(self) -> int:
        """Projections computed for each signal."""
        return self.projection.n_pool

    @property
    def n_bits(self) -> int:
        """Projections kept for each signal; of trellis codes, bits without those of the norm."""
        return self.layout.n_bits - NORM_BITS * (self.norms and self.family == "trellis")

    @property
    def beside(self) -> bool:
        """Whether norms and scales are kept in columns beside the codes; trellis codes have their norms inside."""
        return self.norms and self.family != "trellis"

    @property
    def seed(self) -> int:
        """Seed of the projection."""
        return self.projection.seed

    def to_json(self) -> Record:
        """A record of plain values, from which :meth:`from_json` makes an equal recipe."""
        record = {
            "kind": self.family,
            "n_features": self.n_features,
            "n_bits": self.n_bits,
            "n_pool": self.n_pool,
            "layout": self.layout.name,
            "metric": self.metric,
            "norms": self.norms,
            "projection": self.projection.kind,
            "seed": self.projection.seed,
            "options": self.projection.options,
            "fingerprint": self._projection_fingerprint,
        }
        if self.mean is not None:
            record["mean"] = base64.b64encode(self.mean.astype("<f4").tobytes()).decode()
        if self.designs:
            records = [design.to_json() for design in self.designs]
            record["trellis"] = records if isinstance(self.projection, Local) else records[0]
        if self.kept is not None:
            record["kept"] = self.kept
        return record

    @classmethod
    def from_json(cls, record: Record, path: str | os.PathLike[str]) -> Recipe:
        """The recipe of a record that was read from ``path``.

        Raises StorageError where values are missing or wrong, or where the projection made from them here is not the
        one that the record was written with.
        """
        try:
            _check_sizes(record["n_features"], record["n_pool"])
            kind = record["projection"]
            made = (LEARNED[kind] if kind in LEARNED else partial(make_projection, kind))(
                n_features=record["n_features"],
                n_pool=record["n_pool"],
                random_state=record["seed"],
                **record["options"],
            )
            recipe = cls._from_record(record, made)
            stored = str(record["fingerprint"])
            recipe._projection_fingerprint  # noqa: B018  (computed once, and kept)
        except (KeyError, TypeError, ValueError, MemoryError) as error:
            what = f"has no {error.args[0]!r}" if isinstance(error, KeyError) else str(error)
            raise StorageError(path, "recipe", f"cannot be read: {what}") from None
        if stored != recipe._projection_fingerprint:
            raise StorageError(
                path,
                "recipe",
                f"the projection it was written with has the fingerprint {stored}, the one made from its parameters "
                f"here has {recipe._projection_fingerprint}; use the version of the library that wrote it",
            )
        return recipe

    @classmethod
    def _from_record(cls, record: Record, projection: Projection) -> Recipe:
        mean = _read_mean(record.get("mean"), record["n_features"])
        kept = {"norms": record["norms"], "metric": record["metric"], "mean": mean}
        if record["kind"] == "trellis":
            records = record["trellis"] if isinstance(projection, Local) else [record["trellis"]]
            designs = [TrellisDesign.from_json(one, projection.n_features) for one in records]
            return cls.make_trellis(projection, designs, **kept, kept=record.get("kept"))
        return cls.make(
            record["kind"],
            n_features=record["n_features"],
            n_bits=record["n_bits"],
            n_pool=record["n_pool"],
            projection=projection,
            layout=record["layout"] if record["kind"] != "sign" else "compact",
            **kept,
        )

    @lazy
    def fingerprint(self) -> str:
        """32 hexadecimal digits, the same for equal recipes alone."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:32]

    @lazy
    def space(self) -> str:
        """What codes and queries must share to be compared: 32 hexadecimal digits of the projection and the mean."""
        rest = b"" if self.mean is None else self.mean.astype("<f4").tobytes()
        rest += b"trellis" if self.family == "trellis" else b""  # whose queries have length one
        return hashlib.sha256(self._projection_fingerprint.encode() + rest).hexdigest()[:32]

    def difference(self, other: Recipe) -> tuple[str, str]:
        """What differs, as this recipe and the other have it: two empty texts for equal ones."""
        ours, theirs = _named(self), _named(other)
        names = [name for name in ours if ours[name] != theirs.get(name)]
        names = [name for name in names if name != "fingerprint"] or names  # it differs where anything else does
        show: Callable[[Record], str] = lambda values: ", ".join(f"{name}={values.get(name)!r}" for name in names)  # noqa: E731
        return show(ours), show(theirs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @lazy
    def _projection_fingerprint(self) -> str:
        return self.projection.fingerprint()


def resolve_bits(n_bits: int | str | None, n_bytes: int | None, n_pool: int, layout: str) -> int:
    """Projections to keep: the number given, what fits into ``n_bytes``, or an eighth of the pool."""
    if n_bits is not None and n_bits != "auto":
        if n_bytes is not None:
            raise ValueError(f"give n_bits or n_bytes, not both, got n_bits={n_bits!r} and n_bytes={n_bytes!r}")
        if isinstance(n_bits, str):
            raise ValueError(f'n_bits must be a number or "auto", got {n_bits!r}')
        return n_bits
    n_pool = check_pool(1, n_pool)[1]
    if n_bytes is None:
        return min(n_pool, max(16, n_pool // 8))
    check_choice(layout, "layout", LAYOUTS)
    most, n_bytes = n_pool, check_count(n_bytes, "n_bytes")
    fewest = Layout(layout, 1, n_pool).code_bytes
    if n_bytes < fewest:
        raise ValueError(
            f"n_bytes must be at least {fewest}, the bytes of one bit of a pool of {n_pool}, got {n_bytes}"
        )
    least = 1
    while least < most:  # the bytes of a code grow with its bits
        middle = (least + most + 1) // 2
        least, most = (middle, most) if Layout(layout, middle, n_pool).code_bytes <= n_bytes else (least, middle - 1)
    return least


def check_metric(metric: str, norms: bool) -> str:
    """What scores estimate; inner products need norms."""
    metric = "correlation" if metric == "cosine" else metric  # another name of the same
    check_choice(metric, "metric", METRICS)
    if metric == "inner_product" and not check_flag(norms, "norms"):
        raise ValueError(
            'metric="inner_product" needs the norms of the entries, got norms=False; keep them, or ask for '
            'metric="correlation"'
        )
    return metric


def check_mean(center: npt.ArrayLike, n_features: int) -> Float32:
    """A mean that is removed from signals and queries: n_features finite values."""
    mean = np.asarray(center)
    if mean.dtype.kind not in "fiu" or mean.shape != (n_features,) or not np.isfinite(mean).all():
        raise ValueError(
            f"center must be True, False or a mean of {n_features} finite values, got shape {mean.shape} and dtype "
            f"{mean.dtype}"
        )
    return mean.astype(np.float32)


def _named(recipe: Recipe) -> Record:
    """The record in the words of a constructor; long arrays by their presence and digest."""
    record = recipe.to_json()
    for name in ("mean", "trellis"):
        if name in record:
            record[name] = _digest(record[name])
    if record["projection"] in LEARNED:
        record["options"] = {"axes": _digest(record["options"])}
    return record


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


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


def _check_sizes(n_features: object, n_pool: object) -> None:
    """Refuses sizes whose projection would take all memory or hours: a file may claim any."""
    if not (isinstance(n_features, int) and isinstance(n_pool, int)):
        raise TypeError(f"n_features and n_pool must be integers, got {n_features!r} and {n_pool!r}")
    if not (0 < n_features <= MAX_FEATURES and 0 < n_pool <= MAX_BLOCKS * n_features):
        raise ValueError(
            f"n_features={n_features} and n_pool={n_pool} cannot be kept: take at most {MAX_FEATURES} features, and "
            f"{MAX_BLOCKS} times as many projections"
        )


def _read_mean(text: Any, n_features: int) -> Float32 | None:
    if text is None:
        return None
    mean = np.frombuffer(base64.b64decode(text, validate=True), "<f4").astype(np.float32)
    if mean.shape != (n_features,) or not np.isfinite(mean).all():
        raise ValueError(f"the mean must be {n_features} finite values, got shape {mean.shape}")
    return mean
