"""The layer: a linear layer of a PyTorch model, known by adaptive codes of its weight vectors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from .._checks import check_choice, check_count
from .._files import Record
from .._random import RandomState
from ..codes import check_content
from ..errors import StorageError
from ..heads import Head
from ..heads.queries import encode_weights
from ..heads.recipes import CODES, no_weights, trellis_recipe
from ..heads.shortlist import Shortlist
from ..projections import Projection
from ..projections.blocks import MAX_NORM
from ..recipe import Recipe
from . import operators

STORAGES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int8": torch.int8,
}
CHECKED = ("codes", "scales", "bias", "shortlist_weights", "shortlist_scales")  # buffers of a state


class TopK(NamedTuple):
    """Highest logits of each input, falling, and their classes; of equal ones the lower class first."""

    values: Tensor
    indices: Tensor


class AdaptiveLinear(torch.nn.Module):
    """A linear layer known by adaptive codes of its weight vectors. For inference: always in eval mode, no gradients.

    Made by :func:`compress`. A layer made directly scores its bias, which is zero, until ``load_state_dict``; that
    restores codes, scales, biases and the projection, whose seed and fingerprint travel in the state.

    Logits are estimates without bias, computed in float32 and returned in the type of the input. On the CPU they come
    from the C++ kernels, where NaN and infinities raise; on CUDA from those of :mod:`topsign.gpu` where CuPy is
    installed, with the same ``topk`` for Hadamard projections; elsewhere from PyTorch operations, the same within
    rounding. ``half()`` and the like leave scales and biases in float32.

    Parameters
    ----------
    in_features, out_features : int
        Length of an input, and number of classes.
    codes : "adaptive" or "trellis"
        How weight vectors are coded. Of trellis codes n_bits is the size of one in bits; they have their scales
        inside.
    n_bits, n_pool : int
        Projections kept for each class, and computed; n_pool is in_features when not given.
    projection : kind or Projection
        "hadamard", "gaussian", "rademacher", "sparse", "circulant", or a projection already made.
    bias : bool
    layout : "compact" or "fast"
        Layout of the codes, see :class:`topsign.AdaptiveCodes`.
    shortlist : int, optional
        Keep the weights too: logits are exact for so many classes of the highest estimates, and -inf for all others.
    shortlist_storage : "float64", "float32", "float16", "bfloat16" or "int8"
        How these weights are held.
    shortlist_memory : "device" or "pinned"
        Where they lie when the layer is on CUDA: on the card, or in pinned memory of the host, from where the card
        reads the rows it needs.
    random_state : int, Generator or None

    Attributes
    ----------
    codes, scales, bias : Tensor
        Buffers: the packed codes, their scales and the biases.
    shortlist_weights, shortlist_scales : Tensor or None
        Buffers: weights of a shortlist, and their scales where they are held in 8 bits.
    recipe : Recipe
        What the codes are made with.
    """

    codes: Tensor
    scales: Tensor
    bias: Tensor | None
    shortlist_weights: Tensor | None
    shortlist_scales: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        codes: str = "adaptive",
        n_bits: int = 64,
        n_pool: int | None = None,
        projection: str | Projection = "hadamard",
        bias: bool = True,
        layout: str = "compact",
        shortlist: int | None = None,
        shortlist_storage: str = "float32",
        shortlist_memory: str = "device",
        random_state: RandomState = None,
    ) -> None:
        super().__init__()
        self.in_features = check_count(in_features, "in_features")
        self.out_features = check_count(out_features, "out_features")
        options: Any = {"n_bits": n_bits, "n_pool": n_pool, "projection": projection, "layout": layout}
        if check_choice(codes, "codes", CODES) == "trellis":
            recipe = trellis_recipe(no_weights(self.in_features), **options, random_state=random_state)
        else:
            recipe = Recipe.make("adaptive", n_features=self.in_features, **options, random_state=random_state)
        self._set_recipe(recipe)
        zero, _ = encode_weights(self.recipe, None, np.zeros((1, self.in_features), np.float32))
        self.register_buffer("codes", torch.from_numpy(zero).repeat(self.out_features, 1))
        self.register_buffer("scales", torch.zeros(self.out_features if recipe.beside else 0))
        self.register_buffer("bias", torch.zeros(self.out_features) if bias else None)
        self.shortlist = None if shortlist is None else check_count(shortlist, "shortlist", maximum=self.out_features)
        self.shortlist_memory = check_choice(shortlist_memory, "shortlist_memory", ("device", "pinned"))
        kind = STORAGES[check_choice(shortlist_storage, "shortlist_storage", tuple(STORAGES))]
        shape, kept = (self.out_features, self.in_features), self.shortlist is not None
        self.register_buffer("shortlist_weights", torch.zeros(shape, dtype=kind) if kept else None)
        scaled = kept and kind == torch.int8
        self.register_buffer("shortlist_scales", torch.zeros(self.out_features) if scaled else None)
        self.train(False)

    @classmethod
    def of_recipe(cls, recipe: Recipe, out_features: int, **options: Any) -> Self:
        """A layer of this recipe whose weights are all zero; options are those of the constructor."""
        layer = cls(
            recipe.n_features,
            out_features,
            codes=recipe.family,
            n_bits=recipe.n_bits,
            n_pool=recipe.n_pool,
            projection="hadamard" if recipe.projection.kind == "principal" else recipe.projection,
            layout=recipe.layout.name,
            **options,
        )
        layer._set_recipe(recipe)
        return layer

    @classmethod
    def from_head(cls, head: Head) -> Self:
        """A layer that is another face of a head; nothing is compressed again. Labels and the link are left behind."""
        if head.recipe.family not in CODES or head.scoring != "asymmetric" or head.one_vector:
            raise ValueError(
                f"a layer needs adaptive or trellis codes, estimated logits and one vector per class, got {head!r}"
            )
        short = head.shortlist
        options: dict[str, Any] = {}
        if short is not None:
            kinds = {"f8": "float64", "f4": "float32", "f2": "float16", "i1": "int8"}
            storage = "bfloat16" if short.source and short.source.kind == "BF16" else kinds[short.weights.dtype.str[1:]]
            options = {"shortlist": short.size, "shortlist_storage": storage}
        layer = cls.of_recipe(head.recipe, len(head.classes), bias=bool(head.biases.any()), **options)
        layer.codes.copy_(torch.from_numpy(np.array(head.codes)))
        if head.scales is not None:
            layer.scales.copy_(torch.from_numpy(np.array(head.scales)))
        if layer.bias is not None:
            layer.bias.copy_(torch.from_numpy(np.array(head.biases)))
        if short is not None and layer.shortlist_weights is not None:
            held = short.weights if short.row_scales is not None else short.rows(np.arange(len(short.weights)))
            layer.shortlist_weights.copy_(torch.from_numpy(np.array(held)))
            if layer.shortlist_scales is not None:
                layer.shortlist_scales.copy_(torch.from_numpy(np.array(short.row_scales)))
        return layer

    def to_head(self, *, classes: Any = None, link: str | None = "softmax") -> Head:
        """The head of this layer, which needs no PyTorch; nothing is compressed again.

        ``classes`` are its labels, 0, 1, ... when not given. Weights of a shortlist in bfloat16 become float32.
        """
        codes, scales = self.codes.cpu().numpy().copy(), self.scales.cpu().numpy().copy()
        biases = np.zeros(self.out_features) if self.bias is None else self.bias.double().cpu().numpy()
        labels = np.arange(self.out_features) if classes is None else np.asarray(classes)
        if labels.shape != (self.out_features,):
            raise ValueError(f"classes must be {self.out_features} labels, got shape {labels.shape}")
        short = None
        if self.shortlist is not None and self.shortlist_weights is not None:
            weights = self.shortlist_weights.cpu()
            weights = weights.float() if weights.dtype == torch.bfloat16 else weights
            row_scales = None if self.shortlist_scales is None else self.shortlist_scales.cpu().numpy().copy()
            short = Shortlist(self.shortlist, weights.numpy().copy(), row_scales)
        kept = scales if self.recipe.beside else None
        return Head(self.recipe, codes, kept, biases, labels, "asymmetric", link, short)

    def _set_recipe(self, recipe: Recipe) -> None:
        self.recipe, self._recipe_text = recipe, json.dumps(recipe.to_json())

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
        """Bytes that the layer needs: codes, scales, biases, and the weights of a shortlist."""
        return sum(buffer.numel() * buffer.element_size() for buffer in self.buffers())

    def forward(self, x: Tensor) -> Tensor:
        """Estimated logits, (..., out_features), of inputs (..., in_features).

        With a shortlist, exact logits of its classes, and -inf for all others.
        """
        if self.shortlist is None:
            logits: Tensor = operators.linear(x.detach(), self.codes, self.scales, self.bias, self._recipe_text)
            return logits
        values, indices = self._shortlisted(x)
        nothing = torch.full((*x.shape[:-1], self.out_features), -torch.inf, dtype=values.dtype, device=values.device)
        return nothing.scatter(-1, indices, values)

    def topk(self, x: Tensor, k: int) -> TopK:
        """The k highest logits of each input and their classes; logits of all are never held at once.

        Estimates, or exact logits of a shortlist, which k cannot exceed.
        """
        k = check_count(k, "k", maximum=self.shortlist or self.out_features)
        if self.shortlist is not None:
            values, indices = self._shortlisted(x)
            return TopK(values[..., :k], indices[..., :k])
        return TopK(*operators.topk(x.detach(), self.codes, self.scales, self.bias, self._recipe_text, k))

    def _shortlisted(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Exact logits of the shortlist's classes, falling, and the classes."""
        found: tuple[Tensor, Tensor] = operators.shortlist(
            x.detach(),
            self.codes,
            self.scales,
            self.bias,
            self._recipe_text,
            self.shortlist_weights,
            self.shortlist_scales,
            self.shortlist,
        )
        return found

    def train(self, mode: bool = True) -> Self:
        """Stays in eval mode: there is nothing to train here."""
        return super().train(False)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"n_bits={self.n_bits}, n_pool={self.n_pool}, projection={self.projection.kind!r}, "
            f"seed={self.projection.seed}" + ("" if self.shortlist is None else f", shortlist={self.shortlist}")
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves buffers between devices, but keeps their types, and a shortlist in pinned memory beside a card."""
        names = ("scales", "bias", "shortlist_weights", "shortlist_scales")
        held = {name: self._buffers[name] for name in names}
        self._buffers.update(dict.fromkeys(names))
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in held.items():
            if buffer is None:
                continue
            stays = name == "shortlist_weights" and self.shortlist_memory == "pinned" and self.codes.is_cuda
            self._buffers[name] = buffer.cpu().pin_memory() if stays else buffer.to(self.codes.device)
        return self

    # State

    def get_extra_state(self) -> Tensor:
        """The recipe, as bytes of JSON in a tensor, which every format of weights can hold."""
        return torch.frombuffer(bytearray(self._recipe_text.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        self._set_recipe(self._read_recipe(state))

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: Any, strict: bool, *rest: Any
    ) -> None:
        """Checks everything that comes from outside before any of it is taken; the error is load_state_dict's."""
        error_msgs: list[str] = rest[-1]
        try:
            extra = state_dict.get(prefix + "_extra_state")
            if extra is not None:
                self._read_recipe(extra)
            self._check_state({name: state_dict.get(prefix + name) for name in CHECKED})
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
            if tensor.is_floating_point() != mine.is_floating_point() or (
                not mine.is_floating_point() and tensor.dtype != mine.dtype
            ):
                raise ValueError(f"{name} of type {tensor.dtype} where {mine.dtype} is expected")
            if name == "codes":
                check_content(self.recipe.layout, tensor.detach().cpu().numpy(), name="codes")
            elif not (tensor.abs() <= MAX_NORM).all():
                raise ValueError(
                    f"{name} holds NaN, infinity, or values above {MAX_NORM:g}, with which logits overflow"
                )

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
