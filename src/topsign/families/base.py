"""Recipe, the contract of a code family, and the registry of families."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from .._arrays import Array, Bytes, Float32, Float64
from .._checks import check_choice, check_keywords
from .._files import Record
from .._lazy import lazy
from ..codes import Codes
from ..errors import StorageError
from ..projections import Projection
from ..projections.blocks import Block
from .comparison import Comparison, DecodedComparison, DecodedPairing, Pairing, unit, unit_queries

if TYPE_CHECKING:
    from ..kernels import Scoring
    from .weight_encoder import WeightEncoder

METRICS = ("correlation", "inner_product")
SCORINGS = ("hamming", "asymmetric")
MAX_FEATURES = 2**28
DEFAULTS = {"metric": "correlation", "random_state": 0}
"""Defaults of constructors; families without these parameters ignore them."""

ENTRY_POINTS = "topsign.families"
"""Group of entry points, by which installed packages define families: their names, and modules or recipe classes."""


class Recipe(ABC):
    """Complete description of how codes are made; codes of equal recipes are comparable.

    Each family has a recipe class, which learns, encodes, decodes and prepares queries. Code outside
    :mod:`topsign.families` never tests the family. Indexes, heads and exported tables store the recipe as JSON.
    """

    family: ClassVar[str]
    codes_type: ClassVar[type[Codes]] = Codes
    families: ClassVar[dict[str, type[Recipe]]] = {}
    size_name: ClassVar[str] = "n_bytes"  #: parameter that sets the size of a code

    metric: str = "correlation"  #: what scores estimate
    center: Float32 | None = None  #: subtracted from signals and queries before they reach the recipe

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "family" in cls.__dict__:
            Recipe.families[cls.family] = cls

    # Sizes

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Length of a signal."""

    @property
    @abstractmethod
    def code_bytes(self) -> int:
        """Bytes of one code, with the factor of its scores if it has one."""

    @property
    def shared_nbytes(self) -> int:
        """Bytes of the learned parameters, which every search and prediction needs."""
        return 0

    @property
    def block_signals(self) -> int:
        """Number of signals projected per block."""
        return max(1, 2**20 // self.n_features)

    @property
    def encoded_signals(self) -> int:
        """Number of signals that an index encodes per block."""
        return self.block_signals

    @property
    def query_nbytes(self) -> int:
        """Bytes of one prepared query."""
        return 4 * self.n_features

    # Making

    @classmethod
    @abstractmethod
    def learn(cls, sample: Array, *, part: slice | None = None, n_features: int, **parameters: Any) -> Self:
        """Learn a recipe from a ``part`` of the rows of a ``sample``.

        ``n_features`` is the length of a signal; ``parameters`` are those of a constructor.
        """

    @classmethod
    def needs_sample(cls, **parameters: Any) -> bool:
        """Return whether :meth:`learn` depends on the signals; raise if one of the ``parameters`` is wrong."""
        return True

    @classmethod
    def parameter_names(cls) -> tuple[str, ...]:
        """Return the names of the parameters of :meth:`learn` that users give, except n_features."""
        kinds = inspect.signature(cls.learn).parameters.values()
        return tuple(
            one.name for one in kinds if one.kind is one.KEYWORD_ONLY and one.name not in ("part", "n_features")
        )

    @classmethod
    def size_warning(cls, *, n_features: int, **parameters: Any) -> str | None:
        """Return a warning about the size that these ``parameters`` give to codes of ``n_features``, or None."""
        return None

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of a constructor, for :meth:`disagreement`."""
        return {"n_features": self.n_features}

    def disagreement(self, family: str | None = None, **parameters: Any) -> str | None:
        """Describe how this recipe differs from a ``family`` and ``parameters`` of a constructor; None if they agree.

        Omitted parameters agree with any recipe.
        """
        if family not in (None, self.family):
            return f"family={self.family!r}, got family={family!r}"
        if parameters.get("n_features", self.n_features) != self.n_features:
            return f"n_features={self.n_features}, got n_features={parameters['n_features']}"
        return None

    # Coding

    @abstractmethod
    def encode(self, block: Block) -> Bytes:
        """Return the codes of a ``block`` of finite signals, (n_signals, code_bytes); a zero signal gets any code."""

    @abstractmethod
    def decode(self, codes: Bytes) -> Float32:
        """Return reconstructions of the signals of ``codes``, (n_codes, n_features)."""

    def reference(self, codes: Bytes) -> Float32:
        """Return the vectors for ``codes`` whose inner products with unit queries define the scores.

        By default these are the normalised reconstructions, so that scores are cosines.
        """
        return unit(self.decode(codes))

    def features(self, codes: Bytes, norms: Float32) -> Any:
        """Return features of the signals of ``codes``, with these ``norms``: by default their reconstructions."""
        return unit(self.weight_vectors(codes)) * norms[:, np.newaxis]

    def norms(self, codes: Bytes) -> Float32 | None:
        """Return the norms of the signals; None if ``codes`` do not keep them."""
        return None

    def check(self, codes: Bytes, *, name: str = "data") -> None:
        """Raise ValueError with ``name`` and the first invalid row unless all rows are ``codes`` of this recipe."""
        if codes.dtype != np.uint8 or codes.ndim != 2 or codes.shape[1] != self.code_bytes:
            raise ValueError(
                f"{self.family} codes of this recipe must be uint8 of shape (n_codes, {self.code_bytes}), got dtype "
                f"{codes.dtype} and shape {codes.shape}"
            )

    def pack(self, codes: Bytes) -> bytes:
        """Serialise ``codes`` for a message; families with a denser form override this and :meth:`unpack`."""
        return codes.tobytes()

    def unpack(self, packed: bytes, n_codes: int) -> Bytes:
        """Parse the ``packed`` bytes of ``n_codes`` codes, as :meth:`pack` wrote them, or raise ValueError."""
        if len(packed) != n_codes * self.code_bytes:
            raise ValueError(f"{n_codes} codes take {n_codes * self.code_bytes} bytes, got {len(packed)}")
        codes = np.frombuffer(packed, np.uint8).reshape(n_codes, self.code_bytes)
        self.check(codes)
        return codes

    # Comparing

    @property
    def scorer(self) -> Scoring | None:
        """Description of the codes with which kernels compare them; None if codes are compared by decoding."""
        return None

    def prepare(
        self,
        queries: Array,
        *,
        part: slice | None = None,
        scoring: str = "asymmetric",
        adaptive_bits: int | None = None,
    ) -> Comparison:
        """Return the comparison of these ``queries``, or a ``part`` of them, with any codes of this recipe.

        ``scoring`` is one of SCORINGS. With ``adaptive_bits``, sign codes compare only this number of largest
        projections of each query.
        """
        check_real_valued(self, scoring, adaptive_bits)
        return DecodedComparison(self, *unit_queries(self, queries, part=part))

    def project(self, queries: Array, *, part: slice | None = None, name: str = "queries") -> tuple[Float32, Float64]:
        """Return the projections of ``queries``, or a ``part`` of them, and their norms; errors give ``name``."""
        raise TypeError(f"{self.family} codes are not compared with projections; search an index of them instead")

    def pairing(self) -> Pairing:
        """Return the comparison of codes with each other."""
        return DecodedPairing(self)

    @property
    def scorings(self) -> tuple[str, ...]:
        """Supported values of ``scoring``."""
        return ("asymmetric",)

    def code_pvalues(self, codes: Bytes) -> Float64 | None:
        """Return p-values of all pairs of ``codes`` under isotropic signals, (n, n); None if no law is known."""
        return None

    def expected_match(self, correlation: float) -> dict[str, Any] | None:
        """Return mean and deviation of the distance at a ``correlation``, and the interval of its estimate.

        The keys are "distance", "deviation" and "interval". None if no law is known.
        """
        return None

    def energy_ratio(self, codes: Bytes) -> float | None:
        """Return the energy that ``codes`` capture relative to the learning sample, or None if nothing is learned."""
        return None

    # Heads

    @classmethod
    def for_weights(cls, weights: Array, **options: Any) -> Self:
        """Return a recipe for the weight vectors of a head.

        ``weights`` are rows. ``options`` are any of n_bits (adaptive codes), n_bytes (without the scale), n_pool, basis
        and random_state.
        """
        return cls.learn(weights, n_features=weights.shape[1], **options)

    @classmethod
    def needs_weights(cls, n_features: int, **options: Any) -> bool:
        """Return whether :meth:`for_weights` depends on the weights of ``n_features``; raise for wrong ``options``."""
        return True

    @classmethod
    def weight_sizes(cls, n_features: int, **options: Any) -> list[int]:
        """Return the sizes, by :attr:`size_name`, that an automatic choice for weights of ``n_features`` tries.

        There are none if ``options`` have a size.
        """
        return []

    def encode_weights(self, block: Block) -> tuple[Bytes, Float64]:
        """Return codes of a ``block`` of weight vectors w, and scales ``|w|**2 / <w, v>``, v as below; 0 for w = 0."""
        codes = self.encode(block)
        return codes, unbiased_scales(block, self.weight_vectors(codes))

    def weight_vectors(self, codes: Bytes) -> Float32:
        """Return the vectors of ``codes`` that estimate the weight vectors once they are multiplied by their scales."""
        return self.decode(codes)

    def weight_encoder(self) -> WeightEncoder:
        """Return the encoder of weight vectors for heads."""
        from .weight_encoder import WeightEncoder

        return WeightEncoder(self)

    # Describing

    @property
    def summary(self) -> str:
        """Sizes and options for the ``repr`` of an index."""
        return f"n_features={self.n_features}"

    @abstractmethod
    def to_json(self) -> Record:
        """Return a JSON record with the key "family", from which :meth:`from_json` makes an equal recipe."""

    @classmethod
    @abstractmethod
    def parse(cls, record: Record) -> Self:
        """Return the recipe of a JSON ``record``; raise KeyError, TypeError or ValueError if it is invalid."""

    @staticmethod
    def from_json(record: Record, path: str | os.PathLike[str]) -> Recipe:
        """Return the recipe of a ``record`` read from ``path``; raise StorageError if values are missing or invalid."""
        try:
            n_features = record["n_features"]
            if type(n_features) is not int or not 0 < n_features <= MAX_FEATURES:
                raise ValueError(f"n_features must be an integer in [1, {MAX_FEATURES}], got {n_features!r}")
            return family_type(record["family"]).parse(record)
        except StorageError as error:
            raise StorageError(path, error.section, error.problem) from None
        except (KeyError, TypeError, ValueError, MemoryError) as error:
            what = f"has no {error.args[0]!r}" if isinstance(error, KeyError) else str(error)
            raise StorageError(path, "recipe", f"cannot be read: {what}") from None

    @lazy
    def fingerprint(self) -> str:
        """Digest of the recipe, 32 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:32]

    @property
    def space(self) -> str:
        """Digest that codes and projected queries must share to be comparable."""
        return self.fingerprint

    def difference(self, other: Recipe) -> tuple[str, str]:
        """Return the differing values of this recipe and of the ``other``; two empty strings if they are equal."""
        ours, theirs = self.described(), other.described()
        names = [name for name in ours if ours[name] != theirs.get(name)]
        names = [name for name in names if name != "fingerprint"] or names  # it follows from the others
        shown = [", ".join(f"{name}={values.get(name)!r}" for name in names) for values in (ours, theirs)]
        return shown[0], shown[1]

    def described(self) -> Record:
        """Return a readable record in which long arrays are replaced by digests."""
        return self.to_json()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


def family_type(family: object) -> type[Recipe]:
    """Return the recipe class of a ``family``, from an installed package if need be; ValueError if there is none."""
    if isinstance(family, str) and family not in Recipe.families:
        from importlib.metadata import entry_points  # slow to import

        for one in entry_points(group=ENTRY_POINTS):
            if one.name == family:
                one.load()
    if isinstance(family, str) and family in Recipe.families:
        return Recipe.families[family]
    known = ", ".join(repr(name) for name in sorted(Recipe.families))
    raise ValueError(
        f"family must be one of {known}, got {family!r}; import the module that defines another family first, or "
        f"install a package that names it as an entry point of the group {ENTRY_POINTS}"
    )


def check_parameters(
    owner: str, family: str, parameters: Mapping[str, Any], others: Mapping[str, Any]
) -> tuple[type[Recipe], dict[str, Any]]:
    """Return the recipe class of a ``family``, and the given parameters that set up its recipe.

    ``parameters`` are those that ``owner`` names, None if not given, and ``others`` its further keywords: a parameter
    of a family of your own, or a mistake. Raises TypeError for parameters that the family does not have or that miss.
    """
    kind = family_type(family)
    names = kind.parameter_names()
    check_keywords(others, (*parameters, *names), owner)
    given = {name: value for name, value in {**parameters, **others}.items() if value is not None}
    for name in DEFAULTS.keys() - set(names):
        if name in given and given[name] == DEFAULTS[name]:
            del given[name]
    if isinstance(given.get("basis"), Projection) and given.get("random_state") == DEFAULTS["random_state"]:
        del given["random_state"]  # the projection has its own seed
    wrong = [f"{name}={given[name]!r}" for name in given if name not in names]
    if wrong:
        raise TypeError(f"{owner}: family={family!r} takes {', '.join(names)}; got {', '.join(wrong)}")
    learn = inspect.signature(kind.learn).parameters
    missing = [name for name in names if name in learn and learn[name].default is inspect.Parameter.empty]
    missing = [name for name in missing if name not in given]
    if missing:
        raise TypeError(f"{owner}: family={family!r} needs {', '.join(missing)}")
    return kind, given


def check_real_valued(recipe: Recipe, scoring: str, adaptive_bits: object) -> None:
    """Raise ValueError for scorings that need signs."""
    check_choice(scoring, "scoring", SCORINGS)
    if scoring not in recipe.scorings:
        raise ValueError(
            f'{recipe.family} codes have no signs to compare: scoring must be "asymmetric", got {scoring!r}'
        )
    if adaptive_bits is not None:
        raise ValueError("adaptive_bits goes with a sign index; each entry of this one chose its own projections")


def unbiased_scales(block: Block, reconstructions: Float32) -> Float64:
    """Return the scales ``|w|**2 / <w, r>`` of the reconstructions r of weight vectors w, zero for w = 0."""
    inner = (reconstructions * block.values).sum(axis=1, dtype=np.float64)
    return np.asarray(np.divide(block.square_norms, inner, out=np.zeros(len(inner)), where=inner > 0))
