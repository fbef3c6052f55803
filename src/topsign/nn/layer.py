"""The layer: a linear layer of a PyTorch model, known by adaptive codes of its weight vectors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from .._checks import check_count
from .._files import Record
from .._random import RandomState
from ..codes import check_content
from ..encoding import encode
from ..errors import StorageError
from ..projections import Projection
from ..recipe import Recipe
from . import operators


class TopK(NamedTuple):
    """Highest logits of each input, falling, and their classes; of equal ones the lower class first."""

    values: Tensor
    indices: Tensor


class AdaptiveLinear(torch.nn.Module):
    """A linear layer known by adaptive codes of its weight vectors. For inference: always in eval mode, no gradients.

    Made by :func:`compress`. A layer made directly scores its bias, which is zero, until ``load_state_dict``; that
    restores codes, scales, biases and the projection, whose seed and fingerprint travel in the state.

    Logits are estimates without bias, computed in float32 and returned in the type of the input. On the CPU they come
    from the C++ kernels, where NaN and infinities raise; on other devices from PyTorch operations, the same within
    rounding. ``half()`` and the like leave scales and biases in float32.

    Parameters
    ----------
    in_features, out_features : int
    n_bits, n_pool : int
        Projections kept for each class, and computed; n_pool is in_features when not given.
    projection : kind or Projection
        "hadamard", "gaussian", "rademacher", "sparse", "circulant", or a projection already made.
    bias : bool
    layout : "compact" or "fast"
        Layout of the codes, see :class:`topsign.AdaptiveCodes`.
    random_state : int, Generator or None

    Attributes
    ----------
    codes, scales, bias : buffers
    recipe : Recipe
        What the codes are made with.
    """

    codes: Tensor
    scales: Tensor
    bias: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        n_bits: int = 64,
        n_pool: int | None = None,
        projection: str | Projection = "hadamard",
        bias: bool = True,
        layout: str = "compact",
        random_state: RandomState = None,
    ) -> None:
        super().__init__()
        self.in_features = check_count(in_features, "in_features")
        self.out_features = check_count(out_features, "out_features")
        self.recipe = Recipe.make(
            "adaptive",
            n_features=self.in_features,
            n_bits=n_bits,
            n_pool=n_pool,
            projection=projection,
            layout=layout,
            random_state=random_state,
        )
        zero = encode(self.recipe, np.zeros((1, self.in_features), np.float32), allow_zero=True)
        self.register_buffer("codes", torch.from_numpy(zero.codes).repeat(self.out_features, 1))
        self.register_buffer("scales", torch.zeros(self.out_features))
        self.register_buffer("bias", torch.zeros(self.out_features) if bias else None)
        self.train(False)

    @property
    def projection(self) -> Projection:
        """The projection of inputs and weights."""
        return self.recipe.projection

    @property
    def n_bits(self) -> int:
        """Projections kept for each class."""
        return self.recipe.n_bits

    @property
    def n_pool(self) -> int:
        """Projections computed for each input."""
        return self.recipe.n_pool

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and biases."""
        return sum(buffer.numel() * buffer.element_size() for buffer in self.buffers())

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Estimated logits, (..., out_features), of inputs (..., in_features)."""
        logits = operators.logits(self.recipe, self._rows(x), self.codes, self.scales, self.bias)
        return logits.to(x.dtype).reshape(*x.shape[:-1], self.out_features)

    @torch.no_grad()
    def topk(self, x: Tensor, k: int) -> TopK:
        """The k highest estimated logits of each input and their classes; logits of all are never held at once."""
        k = check_count(k, "k", maximum=self.out_features)
        values, indices = operators.topk(self.recipe, self._rows(x), self.codes, self.scales, self.bias, k)
        shape = (*x.shape[:-1], k)
        return TopK(values.to(x.dtype).reshape(shape), indices.reshape(shape))

    def train(self, mode: bool = True) -> Self:
        """Stays in eval mode: there is nothing to train here."""
        return super().train(False)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"n_bits={self.n_bits}, n_pool={self.n_pool}, projection={self.projection.kind!r}, "
            f"seed={self.projection.seed}"
        )

    def _rows(self, x: Tensor) -> Tensor:
        if not x.is_floating_point():
            raise TypeError(f"inputs must be floating-point (float32, bfloat16 or float16), got {x.dtype}")
        if x.ndim < 1 or x.shape[-1] != self.in_features:
            raise ValueError(
                f"inputs must have {self.in_features} features in the last axis, got shape {tuple(x.shape)}"
            )
        return x.detach().reshape(-1, self.in_features).float()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves buffers between devices, but keeps scales and biases in float32."""
        exact = {name: getattr(self, name) for name in ("scales", "bias")}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, before in exact.items():
            if before is not None:
                setattr(self, name, before.to(self.codes.device))
        return self

    # State

    def get_extra_state(self) -> Tensor:
        """The recipe, as bytes of JSON in a tensor, which every format of weights can hold."""
        return torch.frombuffer(bytearray(json.dumps(self.recipe.to_json()).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        self.recipe = self._read_recipe(state)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: Any, strict: bool, *rest: Any
    ) -> None:
        """Checks everything that comes from outside before any of it is taken; the error is load_state_dict's."""
        error_msgs: list[str] = rest[-1]
        try:
            extra = state_dict.get(prefix + "_extra_state")
            if extra is not None:
                self._read_recipe(extra)
            self._check_state({name: state_dict.get(prefix + name) for name in ("codes", "scales", "bias")})
        except (TypeError, ValueError, StorageError) as error:
            error_msgs.append(f"{prefix.rstrip('.') or 'the layer'}: {error}")
            return
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *rest)

    def _check_state(self, held: dict[str, Tensor | None]) -> None:
        """Codes that are codes of this layer's layout, scales and biases that are finite."""
        for name, tensor in held.items():
            mine = getattr(self, name)
            if tensor is None or mine is None or tensor.shape != mine.shape:
                continue  # load_state_dict names what is missing, unexpected or of another size
            if (tensor.dtype == torch.uint8) != (name == "codes"):
                raise ValueError(f"{name} of type {tensor.dtype} where {mine.dtype} is expected")
            if name == "codes":
                check_content(self.recipe.layout, tensor.detach().cpu().numpy(), name="codes")
            elif not torch.isfinite(tensor).all():
                raise ValueError(f"{name} holds NaN or infinity")

    def _read_recipe(self, state: Tensor) -> Recipe:
        try:
            record = json.loads(bytes(state.cpu().tolist()))
            recipe = Recipe.from_json(_from_first_states(record), "the state")
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"its extra state is not a recipe: {error!r}") from None
        held, mine = _shape(recipe), _shape(self.recipe)
        if held != mine:
            raise ValueError(
                f"this state is of a layer with {held}, this layer has {mine}; make it with the same numbers"
            )
        return recipe


def _shape(recipe: Recipe) -> Record:
    return {
        "in_features": recipe.n_features,
        "n_bits": recipe.n_bits,
        "n_pool": recipe.n_pool,
        "layout": recipe.layout.name,
    }


def _from_first_states(record: Record) -> Record:
    """The first states had the projection and the layout where there is a recipe now."""
    if not isinstance(record["projection"], dict):
        return record
    made = dict(record["projection"])
    kind, n_features, n_pool, seed = (made.pop(name) for name in ("kind", "n_features", "n_pool", "seed"))
    return {
        "kind": "adaptive",
        "n_features": n_features,
        "n_bits": record["n_bits"],
        "n_pool": n_pool,
        "layout": record["layout"],
        "metric": "correlation",
        "norms": True,
        "projection": kind,
        "seed": seed,
        "options": made,
        "fingerprint": record["fingerprint"],
    }
