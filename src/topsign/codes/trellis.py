"""Trellis codes: a ring of bits per signal, of which every coordinate reads a window."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Bytes, Float32
from ..cells import Cell
from ..errors import StorageError
from ..kernels.tables import unpack_norms
from ..recipe import Recipe
from .bits import as_projected
from .content import check_content

MAGIC = b"TSTC"
FORMAT = 1
HEADER = struct.Struct("<4sB3xIQ")  # magic, format, bytes of the recipe, number of codes


class TrellisCodes:
    """Codes of a fixed number of bytes, from which signals can be made again up to their norm.

    Made by :meth:`topsign.TrellisEncoder.encode`. Any bytes are a valid code.

    Parameters
    ----------
    data : uint8 array of shape (n_codes, n_bytes)
    recipe : Recipe
        What they are made with, of the family "trellis".
    """

    def __init__(self, data: npt.ArrayLike, *, recipe: Recipe) -> None:
        if recipe.family != "trellis":
            raise ValueError(f'trellis codes need a recipe of the family "trellis", got {recipe.family!r}')
        self.recipe = recipe
        self.data: Bytes = np.ascontiguousarray(data)
        check_content(recipe.layout, self.data)

    @classmethod
    def concatenate(cls, parts: Iterable[TrellisCodes]) -> TrellisCodes:
        """The codes of all parts, in order; they must have equal recipes."""
        parts = list(parts)
        if not parts:
            raise ValueError("concatenate needs at least one part, got none")
        if len({part.recipe for part in parts}) > 1:
            raise ValueError("codes to concatenate must be made with equal recipes")
        return cls(np.concatenate([part.data for part in parts]), recipe=parts[0].recipe)

    @property
    def n_bytes(self) -> int:
        """Bytes of one code, without its norm."""
        return -(-self.recipe.n_bits // 8)

    @property
    def nbytes(self) -> int:
        """Bytes held: codes, and two more each where norms are kept."""
        return self.data.nbytes

    @property
    def norms(self) -> Float32 | None:
        """Norms of the signals, within 0.14%; None where they are not kept."""
        return unpack_norms(self.data[:, -2:]) if self.recipe.norms else None

    @property
    def levels(self) -> npt.NDArray[np.int8]:
        """Levels of the coded coordinates, (n_codes, n_coded) int8: the same on every machine.

        Cells that code fewer coordinates than others have zeros after theirs.
        """
        levels = np.zeros((len(self), max(design.n_coded for design in self.recipe.designs)), np.int8)
        for cell, places in self.recipe.cells.of_codes(self.data):
            levels[places, : cell.design.n_coded] = _levels(cell, self.data[places])
        return levels

    def decode(self) -> Float32:
        """Signals made again, (n_codes, n_features): of their own norms where these are kept, else of norm 1."""
        signals, norms = reconstruct(self.recipe, self.data), self.norms
        return signals if norms is None else signals * norms[:, np.newaxis]

    def scores(self, projected: npt.ArrayLike, *, n_threads: int | None = None) -> Float32:
        """Cosines of queries and reconstructions, (n_queries, n_codes).

        ``projected`` is what :meth:`topsign.TrellisEncoder.project` returned. Queries are rounded to 8 bits, or to
        14 where few axes hold nearly everything.
        """
        threads, chosen = kernels.n_threads(n_threads), kernels.active()
        projected = as_projected(projected, n_pool=self.recipe.n_pool, space=self.recipe.space)
        scores = np.empty((len(projected), len(self)), np.float32)
        for cell, places in self.recipe.cells.of_codes(self.data):
            queries, codes = cell.round(projected), self.data[places]
            sums = chosen.trellis_sums(cell.tables, codes, queries, n_threads=threads).astype(np.float32)
            weights = chosen.trellis_weights(cell.tables, codes, n_threads=threads)
            scores[:, places] = (sums * queries.scales[:, np.newaxis] + queries.constants[:, np.newaxis]) * weights
        return scores

    def to_bytes(self) -> bytes:
        """All codes and their recipe in one message, with a checksum."""
        recipe = json.dumps(self.recipe.to_json()).encode()
        body = HEADER.pack(MAGIC, FORMAT, len(recipe), len(self)) + recipe + self.data.tobytes()
        return body + struct.pack("<I", zlib.crc32(body))

    @classmethod
    def from_bytes(cls, message: bytes) -> TrellisCodes:
        """The codes that :meth:`to_bytes` wrote; anything else raises StorageError."""
        if len(message) < HEADER.size + 4 or message[:4] != MAGIC:
            raise StorageError("message", "codes", f"not trellis codes: expected {MAGIC!r}, got {bytes(message[:4])!r}")
        _, version, recipe_bytes, n_codes = HEADER.unpack_from(message)
        if version != FORMAT:
            raise StorageError("message", "codes", f"format {version}; this version reads format {FORMAT}")
        stored, computed = struct.unpack("<I", message[-4:])[0], zlib.crc32(message[:-4])
        if stored != computed:
            raise StorageError.bad_checksum("message", "codes", stored=stored, computed=computed)
        start = HEADER.size + recipe_bytes
        try:
            record = json.loads(message[HEADER.size : start])
        except (ValueError, RecursionError) as error:
            raise StorageError("message", "recipe", f"damaged: {error}") from None
        recipe = Recipe.from_json(record if isinstance(record, dict) else {}, "message")
        if recipe.family != "trellis":
            raise StorageError("message", "recipe", f"of the family {recipe.family!r}, not of trellis codes")
        n_bytes = n_codes * recipe.layout.code_bytes
        if start + n_bytes + 4 != len(message):
            raise StorageError("message", "codes", f"damaged: {n_codes} codes do not fill {len(message)} bytes")
        data = np.frombuffer(message, np.uint8, n_bytes, start).reshape(n_codes, recipe.layout.code_bytes)
        return cls(data, recipe=recipe)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> TrellisCodes:
        """The chosen codes, always as TrellisCodes: an integer gives a collection of one."""
        index = [index] if isinstance(index, (int, np.integer)) else index
        return TrellisCodes(self.data[index], recipe=self.recipe)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TrellisCodes):
            return NotImplemented
        return np.array_equal(self.data, other.data) and self.recipe == other.recipe

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        norms = ", norms=True" if self.recipe.norms else ""
        return f"TrellisCodes({len(self)} codes, n_bytes={self.n_bytes}, n_features={self.recipe.n_features}{norms})"


def reconstruct(recipe: Recipe, codes: Bytes) -> Float32:
    """Unit signals that codes stand for: mean plus reconstruction, normalised; (n_codes, n_features)."""
    signals = np.empty((len(codes), recipe.n_features), np.float32)
    for cell, places in recipe.cells.of_codes(codes):
        signals[places] = cell.signals(_levels(cell, codes[places]))
    norms = np.sqrt(kernels.active().square_norms(signals))
    return (signals / np.where(norms > 0, norms, 1)[:, np.newaxis]).astype(np.float32)


def _levels(cell: Cell, codes: Bytes) -> npt.NDArray[np.int8]:
    return kernels.active().trellis_decode(cell.tables, codes, n_threads=kernels.n_threads(None))
