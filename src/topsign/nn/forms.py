"""Logits by PyTorch operations on any device, with one form of prepared inputs per family."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..families import Encoded, WeightCoding
from ..families.sign_weights import AdaptiveWeights, SignWeights
from ..families.trellis.weights import TrellisWeights
from ..projections import Hadamard, Projection
from . import tensors


class TensorForm(ABC):
    """Inputs prepared for products with codes of weight vectors."""

    @abstractmethod
    def __init__(self, coding: Any, rows: Tensor) -> None: ...

    @abstractmethod
    def values(self, codes: Tensor, columns: Tensor) -> Tensor:
        """Return the products of all inputs with these codes, whose columns are (n_columns, n_codes)."""


class SignTensors(TensorForm):
    """Projected inputs, for adaptive and sign codes."""

    def __init__(self, coding: SignWeights, rows: Tensor) -> None:
        self._layout = coding.recipe.layout
        self._projected = project(coding.recipe.projection, rows)

    def values(self, codes: Tensor, columns: Tensor) -> Tensor:
        return tensors.score_sums(self._layout, codes, self._projected) * columns[0]


class TrellisTensors(TensorForm):
    """Rounded inputs, for trellis codes."""

    def __init__(self, coding: TrellisWeights, rows: Tensor) -> None:
        recipe = coding.recipe
        (cell,) = recipe.cells
        self._tables = cell.tables
        self._rounded = tensors.round_queries(recipe, rows, lambda units: project(recipe.projection, units))

    def values(self, codes: Tensor, columns: Tensor) -> Tensor:
        return tensors.trellis_logits(self._tables, codes, self._rounded)


class DecodedForm(TensorForm):
    """Inputs of other families: the CPU decodes weight vectors, and the device multiplies."""

    def __init__(self, coding: WeightCoding, rows: Tensor) -> None:
        self._coding, self._rows = coding, rows

    def values(self, codes: Tensor, columns: Tensor) -> Tensor:
        held = dict(zip(self._coding.column_names, columns.cpu().numpy(), strict=True))
        vectors = self._coding.decode(Encoded(codes.contiguous().cpu().numpy(), held))
        return self._rows @ torch.from_numpy(vectors).to(self._rows.device).T


FORMS: dict[type[WeightCoding], type[TensorForm]] = {
    AdaptiveWeights: SignTensors,
    SignWeights: SignTensors,
    TrellisWeights: TrellisTensors,
}
"""Forms by weight coding; others are decoded."""


def prepare(coding: WeightCoding, rows: Tensor) -> TensorForm:
    """Prepare float32 inputs for codes of this coding."""
    return FORMS.get(type(coding), DecodedForm)(coding, rows)


def project(projection: Projection, rows: Tensor) -> Tensor:
    """Return the projections of rows, (n_rows, n_pool); Hadamard projections have the bits of the CPU kernels."""
    operator, last = _operator(projection, rows.device)
    if last is None:
        return rows @ operator.T
    blocks = [tensors.rotate(rows, signs) for signs in operator]
    blocks[-1] = blocks[-1][:, last]
    return torch.cat(blocks, dim=1)


@lru_cache(maxsize=16)
def _operator(projection: Projection, device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return the signs of a Hadamard projection, (n_blocks, rounds, n_features), and the rows of its last block.

    Return the matrix of another projection, and None.
    """
    if not isinstance(projection, Hadamard):
        return torch.from_numpy(projection.rows(np.arange(projection.n_pool))).to(device), None
    bits = np.unpackbits(projection.signs, axis=2, count=projection.n_features, bitorder="little")
    signs = torch.from_numpy(bits.astype(np.float32) * 2 - 1)
    return signs.to(device), torch.from_numpy(projection.last_coordinates).to(device)
