"""Adapters for other search engines: convert codes and queries, and convert the engine's results to mismatches.

They rest on two exact identities:

- one-hot codes (``to_bits`` of grouped and adaptive codes) have the Hamming distance
  ``n_pool - n_kept + 2 * mismatches`` from a query's bits. Codes that keep the whole pool, such as sign codes, need no
  one-hot encoding, because the Hamming distance of their signs is already ``mismatches``;
- rows of +-1 (``to_sparse`` of grouped and adaptive codes) have the dot product ``n_kept - 2 * mismatches`` with a
  query's signs.

This module imports no engine's package. Results are exact if the engine compares every entry; an approximate index
such as HNSW finds most of the nearest entries, but not all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from .._arrays import Bytes, Float32, Float64, Int64
from .._checks import check_count, import_pyarrow
from ..codes import Codes, as_projected, query_bits
from ..families import Recipe
from ..index import Index

if TYPE_CHECKING:
    import scipy.sparse

SparseVector = dict[str, list[int] | list[float]]

MAX_SPARSEVEC = 16_000
"""Maximum number of nonzero values in pgvector's sparsevec; a query has ``n_pool``."""


@dataclass(frozen=True, kw_only=True)
class Adapter(ABC):
    """Adapter between codes that keep ``n_kept`` of ``n_pool`` projections and the data types of one engine."""

    form: ClassVar[str]
    """Form of the codes that the engine compares, one of :attr:`topsign.Codes.forms`."""

    n_kept: int
    n_pool: int
    space: str | None = field(default=None, compare=False, repr=False)
    """Space of the codes if known; entries and queries must then share it."""

    def __post_init__(self) -> None:
        check_count(self.n_kept, "n_kept", maximum=check_count(self.n_pool, "n_pool"))

    @classmethod
    def of(cls, source: Codes | Index) -> Self:
        """Return the adapter for these codes or this index; raise ValueError if the family lacks the required form."""
        recipe: Any = source.recipe
        cls._check_form(recipe)
        return cls(n_kept=recipe.n_kept, n_pool=recipe.n_pool, space=recipe.space)

    @classmethod
    def _check_form(cls, recipe: Recipe) -> None:
        forms = recipe.codes_type.forms
        if cls.form not in forms:
            raise ValueError(
                f"{cls.__name__} takes codes that have form={cls.form!r}; {recipe.family} codes have "
                f"{', '.join(map(repr, forms))}"
            )

    def entries(self, codes: Codes) -> Any:
        """Convert codes to the engine's data type, one element or row per code."""
        recipe: Any = codes.recipe
        self._check_form(recipe)
        if (recipe.n_kept, recipe.n_pool) != (self.n_kept, self.n_pool):
            raise ValueError(
                f"codes of n_kept={recipe.n_kept}, n_pool={recipe.n_pool} do not fit an engine made for "
                f"n_kept={self.n_kept}, n_pool={self.n_pool}; make it with of(codes)"
            )
        if self.space is not None and recipe.space != self.space:
            raise ValueError(
                "these codes were made with another projection (another seed, kind or mean) than those the engine was "
                "made for, so that no query fits both; make it with of(codes)"
            )
        return self._entries(codes)

    def queries(self, projected: npt.ArrayLike) -> Any:
        """Convert projected queries (from ``project``) to the engine's data type, one element or row per query.

        An adapter made by ``of`` accepts only projections of the same encoder or index.
        """
        return self._queries(as_projected(projected, n_pool=self.n_pool, space=self.space))

    def mismatches(self, answer: npt.ArrayLike) -> Int64:
        """Convert the engine's distances or scores, of any shape, to mismatches; raise ValueError if impossible."""
        mismatches = self._halves(np.asarray(answer, np.float64))
        wrong = ~((mismatches >= 0) & (mismatches <= self.n_kept) & (mismatches == np.rint(mismatches)))
        if wrong.any():
            raise ValueError(
                f"an answer stands for {mismatches[wrong].flat[0]:g} mismatches out of {self.n_kept}, which cannot be; "
                "were entries and queries made by the same adapter, compared by the measure it names, and no more "
                "asked for than there are?"
            )
        return mismatches.astype(np.int64)

    @abstractmethod
    def _entries(self, codes: Any) -> Any: ...

    @abstractmethod
    def _queries(self, projected: Float32) -> Any: ...

    @abstractmethod
    def _halves(self, answer: Float64) -> Float64:
        """Convert distances or scores to mismatches without validation."""


class _Hamming(Adapter):
    """Adapter for engines with the plain Hamming distance."""

    form = "bits"

    @property
    def is_one_hot(self) -> bool:
        """Whether each location has two bits, one per sign; not needed if all locations are kept."""
        return self.n_kept < self.n_pool

    @property
    def n_engine_bits(self) -> int:
        """Number of compared bits per entry."""
        return 2 * self.n_pool if self.is_one_hot else self.n_pool

    def _halves(self, answer: Float64) -> Float64:
        return (answer - (self.n_pool - self.n_kept)) / 2 if self.is_one_hot else answer

    def _entry_bits(self, codes: Any) -> Bytes:
        return codes.to_bits() if self.is_one_hot else np.packbits(codes.signs > 0, axis=1, bitorder="little")

    def _query_bits(self, projected: Float32) -> Bytes:
        return query_bits(projected) if self.is_one_hot else np.packbits(projected >= 0, axis=1, bitorder="little")


class _PackedBits(_Hamming):
    """Bits packed in uint8; padding bits of the last byte are zero in entries and queries."""

    @property
    def n_bytes(self) -> int:
        """Bytes per entry."""
        return -(-self.n_engine_bits // 8)

    @property
    def dimension(self) -> int:
        """Number of bits per entry, including padding."""
        return 8 * self.n_bytes

    def _entries(self, codes: Any) -> Any:
        return self._entry_bits(codes)

    def _queries(self, projected: Float32) -> Bytes:
        return self._query_bits(projected)


class FaissBinary(_PackedBits):
    """FAISS: ``faiss.IndexBinaryFlat(engine.dimension)``; pass its distances to ``mismatches``."""


class USearchBits(_PackedBits):
    """USearch: ``Index(ndim=engine.dimension, metric="hamming", dtype="b1")``, searched with ``exact=True``."""


class LanceBinary(_PackedBits):
    """LanceDB: a column of fixed-size lists of uint8 with ``distance_type("hamming")``; results are in ``_distance``.

    Needs pyarrow, as LanceDB does.
    """

    def _entries(self, codes: Any) -> Any:
        arrow = import_pyarrow("entries of LanceDB are Arrow arrays")
        return arrow.FixedSizeListArray.from_arrays(arrow.array(self._entry_bits(codes).ravel()), self.n_bytes)


class _BitText(_Hamming):
    """Bits as a string of zeros and ones."""

    def _entries(self, codes: Any) -> list[str]:
        return bit_texts(self._entry_bits(codes), self.n_engine_bits)

    def _queries(self, projected: Float32) -> list[str]:
        return bit_texts(self._query_bits(projected), self.n_engine_bits)


class PgvectorBits(_BitText):
    """PostgreSQL with pgvector: a column of type ``engine.column``; the distance is ``code <~> query``."""

    @property
    def column(self) -> str:
        """Type of the column."""
        return f"bit({self.n_engine_bits})"


class DuckDBBits(_BitText):
    """DuckDB: a column of type BIT; the distance is ``bit_count(xor(code, query::BIT))``."""


class _Signs(Adapter):
    """Adapter for engines with sparse dot products."""

    form = "sparse"

    def _halves(self, answer: Float64) -> Float64:
        return (self.n_kept - answer) / 2


class ScipySparse(_Signs):
    """SciPy: ``entries @ queries.T``, a CSR matrix of +-1 times a dense one, gives scores (n_codes, n_queries)."""

    def _entries(self, codes: Any) -> scipy.sparse.csr_array:
        return codes.to_sparse()

    def _queries(self, projected: Float32) -> Float32:
        return _signs(projected)


class QdrantSparse(_Signs):
    """Qdrant: ``SparseVector(**vector)`` for each entry and query; the score is the dot product.

    Qdrant omits entries with a dot product of zero, that is, with exactly half of their signs differing.
    """

    def _entries(self, codes: Any) -> list[SparseVector]:
        values = codes.signs.astype(np.float32)
        return [_vector(*row) for row in zip(codes.locations, values, strict=True)]

    def _queries(self, projected: Float32) -> list[SparseVector]:
        rows = np.arange(self.n_pool)
        return [_vector(rows, signs) for signs in _signs(projected)]


class PgvectorSparse(_Signs):
    """PostgreSQL with pgvector: a column of type ``engine.column``; the score is ``code <#> query``.

    This supports pools of up to 16,000, because a query has a value for every row; :class:`PgvectorBits` has no limit.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.n_pool, "n_pool of a sparsevec query", maximum=MAX_SPARSEVEC)

    @property
    def column(self) -> str:
        """Type of the column."""
        return f"sparsevec({self.n_pool})"

    def _entries(self, codes: Any) -> list[str]:
        return [self._text(*row) for row in zip(codes.locations, codes.signs, strict=True)]

    def _queries(self, projected: Float32) -> list[str]:
        rows = np.arange(self.n_pool)
        return [self._text(rows, signs) for signs in _signs(projected).astype(np.int8)]

    def _text(self, rows: npt.NDArray[Any], signs: npt.NDArray[Any]) -> str:
        values = ",".join(f"{row + 1}:{sign}" for row, sign in zip(rows.tolist(), signs.tolist(), strict=True))
        return f"{{{values}}}/{self.n_pool}"

    def _halves(self, answer: Float64) -> Float64:
        return super()._halves(-answer)  # <#> is the negative of the dot product


def nearest(
    ids: npt.ArrayLike, mismatches: npt.ArrayLike, *, k: int, n_entries: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the k nearest of an engine's results, closest first and ties by ascending id, as an index orders them.

    Engines break ties arbitrarily, so request more than k results. Raises ValueError if an entry that the engine
    omitted may tie with the k-th.

    Parameters
    ----------
    ids, mismatches : arrays of shape (..., n_requested)
        The engine's results, in any order.
    k : int
    n_entries : int
        Number of entries in the engine.

    Examples
    --------
    >>> nearest([7, 4, 9], [2, 2, 5], k=2, n_entries=1000)
    (array([4, 7]), array([2, 2]))
    """
    k, n_entries = check_count(k, "k"), check_count(n_entries, "n_entries", minimum=0)
    found, counts = np.asarray(ids), np.asarray(mismatches)
    order = np.lexsort((found, counts))[..., :k]
    best = np.take_along_axis(counts, order, axis=-1)
    if 0 < found.shape[-1] < n_entries and (best[..., -1] == counts.max(axis=-1)).any():
        raise ValueError(
            f"of {n_entries} entries the {found.shape[-1]} nearest were asked for, and the {k}-th ties with the last "
            "of them: others may tie with it, too; ask the engine for more"
        )
    return np.take_along_axis(found, order, axis=-1), best


def bit_texts(packed: Bytes, n_bits: int) -> list[str]:
    """Return rows of packed bits as strings of zeros and ones."""
    return [(np.unpackbits(row, count=n_bits, bitorder="little") + ord("0")).tobytes().decode() for row in packed]


def _signs(projected: Float32) -> Float32:
    return np.where(projected >= 0, np.float32(1), np.float32(-1))


def _vector(rows: npt.NDArray[Any], values: npt.NDArray[Any]) -> SparseVector:
    return {"indices": rows.tolist(), "values": values.tolist()}
