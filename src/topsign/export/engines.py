"""Adaptive codes in engines that already run: entries and queries to give, answers turned back into mismatches.

Two identities carry every engine, both exact:

- one-hot codes (:meth:`topsign.AdaptiveCodes.to_bits`) lie at a plain Hamming distance of
  ``n_pool - n_bits + 2 * mismatches`` from a query's bits;
- rows of +-1 (:meth:`topsign.AdaptiveCodes.to_sparse`) have the dot product ``n_bits - 2 * mismatches`` with a
  query's signs.

No engine's package is imported here. The answers are exact where the engine compares every entry; a graph index
(HNSW and the like) finds most of the nearest entries, not all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from .._arrays import Bytes, Float32, Float64, Int64
from .._checks import check_count, check_pool, import_pyarrow
from ..codes import AdaptiveCodes, as_projected, query_bits

if TYPE_CHECKING:
    import scipy.sparse

SparseVector = dict[str, list[int] | list[float]]

MAX_SPARSEVEC = 16_000
"""Values other than zero that pgvector takes in one sparsevec; a query has ``n_pool``."""


class Sized(Protocol):
    """Codes, an index, or anything else that knows both numbers."""

    @property
    def n_bits(self) -> int: ...
    @property
    def n_pool(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Engine(ABC):
    """How one engine holds codes of ``n_bits`` out of ``n_pool``, and what its answers mean."""

    n_bits: int
    n_pool: int
    space: str | None = field(default=None, compare=False, repr=False)
    """That of the codes, where it is known: entries and queries must then be of the same."""

    def __post_init__(self) -> None:
        check_pool(self.n_bits, self.n_pool)

    @classmethod
    def of(cls, codes: Sized) -> Self:
        """For these codes, or the codes of this index."""
        made_with = codes if isinstance(codes, AdaptiveCodes) else getattr(codes, "recipe", None)
        return cls(n_bits=codes.n_bits, n_pool=codes.n_pool, space=getattr(made_with, "space", None))

    def entries(self, codes: AdaptiveCodes) -> Any:
        """What the engine stores, one element or row for each code."""
        if (codes.n_bits, codes.n_pool) != (self.n_bits, self.n_pool):
            raise ValueError(
                f"codes of n_bits={codes.n_bits}, n_pool={codes.n_pool} do not fit an engine made for "
                f"n_bits={self.n_bits}, n_pool={self.n_pool}; make it with of(codes)"
            )
        if None not in (codes.space, self.space) and codes.space != self.space:
            raise ValueError(
                "these codes were made with another projection (another seed, kind or mean) than those the engine was "
                "made for, so that no query fits both; make it with of(codes)"
            )
        return self._entries(codes)

    def queries(self, projected: npt.ArrayLike) -> Any:
        """What the engine is asked, one element or row for each row of projections (of ``project``).

        An engine made ``of`` codes or an index takes only projections of the same encoder or index.
        """
        return self._queries(as_projected(projected, n_pool=self.n_pool, space=self.space))

    def mismatches(self, answer: npt.ArrayLike) -> Int64:
        """Signs that differ, from what the engine answered, in any shape; anything that cannot be one raises."""
        mismatches = self._halves(np.asarray(answer, np.float64))
        wrong = ~((mismatches >= 0) & (mismatches <= self.n_bits) & (mismatches == np.rint(mismatches)))
        if wrong.any():
            raise ValueError(
                f"an answer stands for {mismatches[wrong].flat[0]:g} mismatches out of {self.n_bits}, which cannot be; "
                "were entries and queries made by the same adapter, compared by the measure it names, and no more "
                "asked for than there are?"
            )
        return mismatches.astype(np.int64)

    @abstractmethod
    def _entries(self, codes: AdaptiveCodes) -> Any: ...

    @abstractmethod
    def _queries(self, projected: Float32) -> Any: ...

    @abstractmethod
    def _halves(self, answer: Float64) -> Float64:
        """Mismatches, unless the answer is of something else."""


class _OneHot(Engine):
    """Engines of plain Hamming distance."""

    def _halves(self, answer: Float64) -> Float64:
        return (answer - (self.n_pool - self.n_bits)) / 2


class _PackedOneHot(_OneHot):
    """Bits in bytes, (n, ceil(2 * n_pool / 8)) uint8; bits that fill the last byte are zero on both sides."""

    @property
    def n_bytes(self) -> int:
        """Bytes of an entry."""
        return -(-2 * self.n_pool // 8)

    @property
    def dimension(self) -> int:
        """Bits of an entry, as the engine counts them."""
        return 8 * self.n_bytes

    def _entries(self, codes: AdaptiveCodes) -> Any:
        return codes.to_bits()

    def _queries(self, projected: Float32) -> Bytes:
        return query_bits(projected)


class FaissBinary(_PackedOneHot):
    """``faiss.IndexBinaryFlat(engine.dimension)``; its distances are the answer."""


class USearchBits(_PackedOneHot):
    """``usearch.index.Index(ndim=engine.dimension, metric="hamming", dtype="b1")``, searched with ``exact=True``."""


class LanceBinary(_PackedOneHot):
    """LanceDB: a column of fixed-size lists of uint8, ``distance_type("hamming")``; ``_distance`` is the answer.

    Needs pyarrow, as LanceDB does.
    """

    def _entries(self, codes: AdaptiveCodes) -> Any:
        arrow = import_pyarrow("entries of LanceDB are Arrow arrays")
        return arrow.FixedSizeListArray.from_arrays(arrow.array(codes.to_bits().ravel()), self.n_bytes)


class _BitText(_OneHot):
    """Bits as text of ``2 * n_pool`` zeros and ones."""

    def _entries(self, codes: AdaptiveCodes) -> list[str]:
        return bit_texts(codes.to_bits(), 2 * self.n_pool)

    def _queries(self, projected: Float32) -> list[str]:
        return bit_texts(query_bits(projected), 2 * self.n_pool)


class PgvectorBits(_BitText):
    """PostgreSQL with pgvector: a column of ``engine.column``, ordered by ``code <~> query``, which is the answer."""

    @property
    def column(self) -> str:
        """The column's type."""
        return f"bit({2 * self.n_pool})"


class DuckDBBits(_BitText):
    """DuckDB: a column of BIT, ordered by ``bit_count(xor(code, query::BIT))``, which is the answer."""


class _Signs(Engine):
    """Engines of sparse dot products."""

    def _halves(self, answer: Float64) -> Float64:
        return (self.n_bits - answer) / 2


class ScipySparse(_Signs):
    """``entries @ queries.T``, a CSR matrix of +-1 times a dense one, is the answer: (n_codes, n_queries)."""

    def _entries(self, codes: AdaptiveCodes) -> scipy.sparse.csr_array:
        return codes.to_sparse()

    def _queries(self, projected: Float32) -> Float32:
        return _signs(projected)


class QdrantSparse(_Signs):
    """Qdrant: ``SparseVector(**vector)`` for each entry and query; the score, a dot product, is the answer.

    Entries with exactly half of their signs differing, a product of zero, are not among Qdrant's answers.
    """

    def _entries(self, codes: AdaptiveCodes) -> list[SparseVector]:
        values = codes.signs.astype(np.float32)
        return [_vector(*row) for row in zip(codes.locations, values, strict=True)]

    def _queries(self, projected: Float32) -> list[SparseVector]:
        rows = np.arange(self.n_pool)
        return [_vector(rows, signs) for signs in _signs(projected)]


class PgvectorSparse(_Signs):
    """PostgreSQL with pgvector: a column of ``engine.column``, ordered by ``code <#> query``, which is the answer.

    pgvector takes pools of up to 16,000 so, since a query has a value for every row; :class:`PgvectorBits` takes any.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.n_pool, "n_pool of a sparsevec query", maximum=MAX_SPARSEVEC)

    @property
    def column(self) -> str:
        """The column's type."""
        return f"sparsevec({self.n_pool})"

    def _entries(self, codes: AdaptiveCodes) -> list[str]:
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
    """The k nearest of an engine's answer, closest first and ties by ascending id, as an index of topsign orders them.

    Engines break ties as they like, so ask them for more than k. Where entries that the engine left out may tie with
    the k-th, ValueError says so: ask for more.

    Parameters
    ----------
    ids, mismatches : arrays of shape (..., n_asked)
        What the engine found, in any order.
    k : int
    n_entries : int
        Entries the engine holds.

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
    """Rows of packed bits as zeros and ones."""
    return [(np.unpackbits(row, count=n_bits, bitorder="little") + ord("0")).tobytes().decode() for row in packed]


def _signs(projected: Float32) -> Float32:
    return np.where(projected >= 0, np.float32(1), np.float32(-1))


def _vector(rows: npt.NDArray[Any], values: npt.NDArray[Any]) -> SparseVector:
    return {"indices": rows.tolist(), "values": values.tolist()}
