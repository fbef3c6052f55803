"""View of trellis codes: levels, norms and scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ... import kernels
from ..._arrays import Bytes, Float32
from ...codes import Codes, as_projected
from ...kernels import RoundedQueries, TrellisTables
from ...kernels.trellis import unpack_norms

if TYPE_CHECKING:
    from .recipe import TrellisRecipe


class TrellisCodes(Codes):
    """Codes of a fixed number of bytes, from which signals are reconstructed.

    Made by :meth:`topsign.TrellisEncoder.encode`. Any bytes are a valid code.
    """

    recipe: TrellisRecipe

    @property
    def n_bytes(self) -> int:
        """Bytes of one code, without its norm."""
        return self.recipe.n_bytes

    @property
    def norms(self) -> Float32 | None:
        """Norms of the signals, within 0.14%; None if they are not kept."""
        return unpacked_norms(self.data) if self.recipe.norms else None

    @property
    def levels(self) -> npt.NDArray[np.int8]:
        """Levels of the coded coordinates, (n_codes, n_coded) int8, identical on every machine.

        Cells with fewer coded coordinates are padded with zeros.
        """
        levels = np.zeros((len(self), max(design.n_coded for design in self.recipe.designs)), np.int8)
        for cell, positions in self.recipe.cells.of_codes(self.data):
            levels[positions, : cell.design.n_coded] = kernels.active().trellis_decode(
                cell.tables, self.data[positions], n_threads=kernels.n_threads(None)
            )
        return levels

    def scores(self, projected: npt.ArrayLike, *, n_threads: int | None = None) -> Float32:
        """Return cosines of queries and reconstructions, (n_queries, n_codes).

        ``projected`` is what :meth:`topsign.TrellisEncoder.project` returned. Queries are rounded to 8 bits, or to
        14 if few axes hold nearly everything.
        """
        threads = kernels.n_threads(n_threads)
        projected = as_projected(projected, n_pool=self.recipe.n_pool, space=self.recipe.space)
        scores = np.empty((len(projected), len(self)), np.float32)
        rounded = self.recipe.cells.round(projected, n_threads=threads)
        for cell, positions in self.recipe.cells.of_codes(self.data):
            queries, codes = rounded[cell.number], self.data[positions]
            scores[:, positions] = cosines(cell.tables, codes, queries, n_threads=threads)
        return scores


def cosines(
    tables: TrellisTables, codes: Bytes, queries: RoundedQueries, *, n_threads: int, norms: Float32 | None = None
) -> Float32:
    """Return cosines of queries and reconstructions, or their products with the norms of the codes."""
    sums = kernels.active().trellis_sums(tables, codes, queries, n_threads=n_threads).astype(np.float32)
    weights = kernels.active().trellis_weights(tables, codes, n_threads=n_threads)
    weights = weights if norms is None else weights * norms
    return (sums * queries.scales[:, np.newaxis] + queries.constants[:, np.newaxis]) * weights


def unpacked_norms(codes: Bytes) -> Float32:
    """Return the norms at the end of codes that keep them."""
    return unpack_norms(codes[:, -2:]) if len(codes) else np.empty(0, np.float32)
