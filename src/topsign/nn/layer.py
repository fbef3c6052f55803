"""Compressed linear layer for PyTorch, and the compression of layers block by block."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn, Self

import numpy as np
import torch
from torch import Tensor

from .._checks import check_choice, check_count, suggests_keywords
from .._files import Record
from .._random import RandomState
from ..errors import StorageError
from ..families import Recipe
from ..heads import Head, Shortlist, TopK
from ..heads.size_selection import RecipeOptions
from ..projections import Projection
from ..projections.blocks import MAX_NORM
from . import operators

STORAGES = {name: getattr(torch, name) for name in ("float64", "float32", "float16", "bfloat16", "int8")}
CHECKED = ("codes", "bias", "shortlist_weights", "shortlist_scales")  # buffers of a state dict
BLOCK_VALUES = 2**24  # weights compressed, or of shortlists multiplied, per block


class HeadLayer(torch.nn.Module):
    """Linear layer that estimates logits, with exact ones for a shortlist; for inference only, always in eval mode."""

    out_features: int
    bias: Tensor | None
    shortlist: int | None
    shortlist_weights: Tensor | None
    shortlist_scales: Tensor | None

    @abstractmethod
    def _logits(self, x: Tensor) -> Tensor:
        """Return estimated logits of all classes in the dtype of the input."""

    @abstractmethod
    def _best(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k highest estimated logits of each input, descending, and their classes."""

    def forward(self, x: Tensor) -> Tensor:
        """Return estimated logits, (..., out_features), of inputs ``x`` (..., in_features).

        With a shortlist, the logits of its classes are exact, and all others are -inf. With few classes this is slower
        than a dense layer, and in batches slower than int8; :meth:`topk` is faster.
        """
        if self.shortlist is None:
            return self._logits(x.detach())
        values, classes = self._shortlisted(x.detach())
        shape = (*values.shape[:-1], self.out_features)
        nothing = torch.full(shape, -torch.inf, dtype=values.dtype, device=values.device)
        return nothing.scatter(-1, classes, values)

    def topk(self, x: Tensor, k: int) -> TopK[Tensor, Tensor]:
        """Return the ``k`` highest logits of each input ``x`` and their classes, without storing all logits.

        With a shortlist, logits are exact, and k is at most its size.
        """
        k = check_count(k, "k", maximum=self.shortlist or self.out_features)
        if self.shortlist is None:
            return TopK(*self._best(x.detach(), k))
        values, classes = self._shortlisted(x.detach())
        return TopK(values[..., :k], classes[..., :k])

    def _shortlisted(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return exact logits of the shortlist in descending order, and their classes; ties by ascending class."""
        _, best = self._best(x, self.shortlist or 1)
        classes, _ = best.sort()
        values, order = self._exact(x.float(), classes).sort(dim=-1, descending=True, stable=True)
        return values.to(x.dtype), classes.gather(-1, order)

    def _exact(self, x: Tensor, classes: Tensor) -> Tensor:
        """Return the exact logits of some classes of each input, block by block except in graphs."""
        if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return self._products(x, classes)
        rows, chosen = x.reshape(-1, x.shape[-1]), classes.reshape(-1, classes.shape[-1])
        step = max(1, BLOCK_VALUES // (chosen.shape[1] * rows.shape[1]))
        parts = [slice(start, start + step) for start in range(0, max(1, len(rows)), step)]
        return torch.cat([self._products(rows[part], chosen[part]) for part in parts]).reshape(classes.shape)

    def _products(self, x: Tensor, classes: Tensor) -> Tensor:
        assert self.shortlist_weights is not None
        weights = torch.nn.functional.embedding(classes, self.shortlist_weights).float()
        logits = (weights @ x.unsqueeze(-1)).squeeze(-1)
        logits = logits if self.shortlist_scales is None else logits * self.shortlist_scales[classes]
        return logits if self.bias is None else logits + self.bias[classes]

    def train(self, mode: bool = True) -> Self:
        """Stay in eval mode, whatever ``mode`` is; there is nothing to train."""
        return super().train(False)


@suggests_keywords
class CompressedLinear(HeadLayer):
    """Linear layer whose weight vectors are stored as codes; for inference only, always in eval mode.

    Made by :func:`compress`. A layer that is constructed directly returns zeros until ``load_state_dict`` restores the
    codes, biases and recipe; the state includes the seed and the fingerprint of the projection.

    Logits are unbiased estimates, computed in float32 and returned in the dtype of the input. On the CPU, the C++
    kernels compute them, and inputs that are not finite raise an error. On CUDA, the kernels of :mod:`topsign.gpu`
    compute them if CuPy is installed; with a Hadamard projection, ``topk`` returns the bits of the CPU. On other
    devices, and for families without such kernels, PyTorch multiplies with decoded weights, which are held in one byte
    each. ``half()`` and similar casts leave biases in float32.

    Parameters
    ----------
    in_features, out_features : int
        Number of features of an input, and of classes.
    family : "grouped", "trellis", "sign", "adaptive", another registered family, or a Recipe
        A recipe replaces n_bytes, n_bits, n_pool, basis and random_state. Families that learn from weights need one.
    n_bytes : int
        Bytes of a code without the two of its scale.
    n_bits, n_pool, basis
        As in :class:`topsign.CompressedLinearClassifier`.
    bias : bool
    shortlist : int, optional
        Also store the weights, and return exact logits of the classes with the highest estimates, this number of them,
        and -inf for all others.
    shortlist_storage : "float64", "float32", "float16", "bfloat16" or "int8"
        Dtype of the stored weights.
    random_state : int, Generator or None
        Seed of the projection.

    Attributes
    ----------
    codes, bias : Tensor
        Buffers: codes, (out_features, n_bytes), whose rows end with a scale of two bytes; biases.
    shortlist_weights, shortlist_scales : Tensor or None
        Buffers: weights of a shortlist, and their scales if they are int8.
    recipe : Recipe
        Recipe of the codes.
    """

    codes: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        family: str | Recipe = "grouped",
        n_bytes: int | None = None,
        n_bits: int | None = None,
        n_pool: int | None = None,
        basis: str | Projection | None = None,
        bias: bool = True,
        shortlist: int | None = None,
        shortlist_storage: str = "float32",
        random_state: RandomState = None,
    ) -> None:
        super().__init__()
        self.in_features = check_count(in_features, "in_features")
        self.out_features = check_count(out_features, "out_features")
        options = {"n_bytes": n_bytes, "n_bits": n_bits, "n_pool": n_pool, "basis": basis, "random_state": random_state}
        given = {name: value for name, value in options.items() if value is not None}
        recipe = _make_recipe(family, self.in_features, given)
        self._set_recipe(recipe)
        zero = recipe.weight_encoder().encode(np.zeros((1, self.in_features), np.float32))
        self.register_buffer("codes", torch.from_numpy(zero).repeat(self.out_features, 1))
        self.register_buffer("bias", torch.zeros(self.out_features) if bias else None)
        self.shortlist = None if shortlist is None else check_count(shortlist, "shortlist", maximum=self.out_features)
        kind = STORAGES[check_choice(shortlist_storage, "shortlist_storage", tuple(STORAGES))]
        size, kept = (self.out_features, self.in_features), self.shortlist is not None
        self.register_buffer("shortlist_weights", torch.zeros(size, dtype=kind) if kept else None)
        scaled = kept and kind == torch.int8
        self.register_buffer("shortlist_scales", torch.zeros(self.out_features) if scaled else None)
        self.train(False)

    @classmethod
    def from_head(cls, head: Head) -> Self:
        """Convert a ``head`` to a layer, without compressing again; labels and link are not part of the layer."""
        if head.scoring != "asymmetric" or head.one_vector:
            raise ValueError(f"a layer needs estimated logits and one weight vector per class, got {head!r}")
        short = head.shortlist
        options: dict[str, Any] = {}
        if short is not None:
            kinds = {"f8": "float64", "f4": "float32", "f2": "float16", "i1": "int8"}
            options = {"shortlist": short.size, "shortlist_storage": kinds[short.weights.dtype.str[1:]]}
        bias = bool(head.biases.any())
        layer = cls(head.n_features, len(head.classes), family=head.recipe, bias=bias, **options)
        layer.codes.copy_(torch.from_numpy(np.array(head.codes)))
        if layer.bias is not None:
            layer.bias.copy_(torch.from_numpy(np.array(head.biases)))
        if short is not None and layer.shortlist_weights is not None:
            held = short.weights if short.row_scales is not None else short.rows(np.arange(len(short.weights)))
            layer.shortlist_weights.copy_(torch.from_numpy(np.array(held)))
            if layer.shortlist_scales is not None:
                layer.shortlist_scales.copy_(torch.from_numpy(np.array(short.row_scales)))
        return layer

    def to_head(self, *, classes: Any = None, link: str | None = "softmax") -> Head:
        """Convert the layer to a head, which does not need PyTorch, without compressing again.

        ``classes`` are its labels, 0, 1, ... by default; ``link`` makes probabilities of logits.
        Shortlist weights in bfloat16 become float32.
        """
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
        return Head(self.recipe, self.codes.cpu().numpy().copy(), biases, labels, link=link, shortlist=short)

    def _set_recipe(self, recipe: Recipe) -> None:
        self.recipe, self._recipe_text = recipe, json.dumps(recipe.to_json())

    @property
    def nbytes(self) -> int:
        """Size in bytes of codes, biases, learned tables and shortlist weights."""
        return sum(buffer.numel() * buffer.element_size() for buffer in self.buffers()) + self.recipe.shared_nbytes

    def _logits(self, x: Tensor) -> Tensor:
        logits: Tensor = operators.linear(x, self.codes, self.bias, self._recipe_text)
        return logits

    def _best(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = operators.topk(x, self.codes, self.bias, self._recipe_text, k)
        return found

    def extra_repr(self) -> str:
        held = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        record, names = self.recipe.to_json(), ("family", "n_bits", "n_bytes", "n_pool", "projection", "seed")
        made = ", ".join(f"{name}={record[name]!r}" for name in names if name in record)
        return f"{held}, {made}" + ("" if self.shortlist is None else f", shortlist={self.shortlist}")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move buffers between devices, but keep their dtypes."""
        names = ("bias", "shortlist_weights", "shortlist_scales")
        held = {name: self._buffers[name] for name in names}
        self._buffers.update(dict.fromkeys(names))
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in held.items():
            self._buffers[name] = None if buffer is None else buffer.to(self.codes.device)
        return self

    # State

    def get_extra_state(self) -> Tensor:
        """Return the recipe as JSON in a uint8 tensor, which every weight format can store."""
        return torch.frombuffer(bytearray(self._recipe_text.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the recipe from the ``state`` that :meth:`get_extra_state` returned."""
        self._set_recipe(self._read_recipe(state))

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: Any, strict: bool, *rest: Any
    ) -> None:
        """Validate the whole state before loading any of it; load_state_dict raises the collected errors."""
        error_msgs: list[str] = rest[-1]
        try:
            extra = state_dict.get(prefix + "_extra_state")
            recipe = self.recipe if extra is None else self._read_recipe(extra)
            self._check_state(recipe, {name: state_dict.get(prefix + name) for name in CHECKED})
        except (TypeError, ValueError, StorageError) as error:
            error_msgs.append(f"{prefix.rstrip('.') or 'the layer'}: {error}")
            return
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *rest)

    def _check_state(self, recipe: Recipe, held: dict[str, Tensor | None]) -> None:
        """Raise ValueError unless codes are valid for this recipe, and other values are finite."""
        for name, tensor in held.items():
            mine = getattr(self, name)
            if tensor is None or mine is None or tensor.shape != mine.shape:
                continue  # load_state_dict reports missing and unexpected keys and other shapes
            if tensor.is_floating_point() != mine.is_floating_point() or (
                not mine.is_floating_point() and tensor.dtype != mine.dtype
            ):
                raise ValueError(f"{name} must be of type {mine.dtype}, got {tensor.dtype}")
            if name == "codes":
                codes = tensor.detach().cpu()[:, : recipe.code_bytes].contiguous()
                recipe.check(codes.numpy(), name="codes")
            elif not (tensor.abs() <= MAX_NORM).all():
                raise ValueError(
                    f"{name} holds NaN, infinity, or values above {MAX_NORM:g}, with which logits overflow"
                )

    def _read_recipe(self, state: Tensor) -> Recipe:
        """Return the recipe of a state; raise ValueError unless it matches the shape of this layer."""
        try:
            record = json.loads(bytes(state.cpu().tolist()))
        except (AttributeError, TypeError) as error:
            raise ValueError(f"its extra state is not a recipe: {error!r}") from None
        recipe = Recipe.from_json(record, "the extra state")
        held, mine = _shape(recipe), _shape(self.recipe)
        if held != mine:
            raise ValueError(
                f"this state belongs to a layer with {held}, but this layer has {mine}; make it with the same ones"
            )
        recipe.weight_encoder()  # raises if heads cannot use it
        return recipe


def _make_recipe(family: str | Recipe, n_features: int, given: dict[str, Any]) -> Recipe:
    """Return the recipe of a layer that has no weights yet."""
    if isinstance(family, Recipe):
        if given or family.n_features != n_features:
            raise ValueError(
                f"family is a recipe for {family.n_features} features, which takes no further options, got "
                f"in_features={n_features} and {given}"
            )
        return family
    options = RecipeOptions(family, **given)
    if options.needs_weights(n_features):
        raise ValueError(
            f"family={family!r} with these options learns from weights; give a size, use topsign.nn.compress, or give "
            "family= a recipe that was learned"
        )
    return options.make(np.empty((0, n_features), np.float32))


def _shape(recipe: Recipe) -> Record:
    """Return the parameters that a state dict and its layer must share."""
    record = recipe.to_json()
    names = ("family", "n_features", "n_bits", "n_bytes", "n_pool")
    return {name: record[name] for name in names if name in record}


# Compressing


@suggests_keywords
@torch.no_grad()
def compress(
    linear: torch.nn.Linear,
    *,
    family: str = "grouped",
    n_bytes: int | str = "auto",
    n_bits: int | str | None = None,
    n_pool: int | None = None,
    basis: str | Projection | None = None,
    shortlist: int | None = None,
    shortlist_storage: str = "original",
    random_state: RandomState = None,
) -> CompressedLinear:
    """Compress a ``linear`` layer; return a :class:`CompressedLinear` on the same device.

    Weights of any dtype and device are converted block by block, so a layer can be compressed if memory does not
    suffice for a second copy. Families that learn from weights, such as ``family="trellis"`` over principal axes, and
    ``n_bytes="auto"`` convert all weights at once. The logit of a class with all-zero weights is its bias.

    Parameters
    ----------
    linear : torch.nn.Linear
    n_bytes : int or "auto"
        As in :class:`topsign.CompressedLinearClassifier`; "auto" predicts the agreement from the weights.
    shortlist_storage : str
        "original" (default) is the dtype of the layer; others as in :class:`CompressedLinear`.
    family, n_bits, n_pool, basis, shortlist, random_state
        As in :class:`CompressedLinear`.

    Examples
    --------
    >>> small = compress(torch.nn.Linear(256, 100), family="trellis", n_bytes=14, random_state=7)
    >>> small.codes.shape
    torch.Size([100, 16])
    """
    if not isinstance(linear, torch.nn.Linear):
        _raise_no_layer(linear)
    weight, bias = linear.weight, linear.bias
    options = RecipeOptions(
        family, n_bytes=n_bytes, n_bits=n_bits, n_pool=n_pool, basis=basis, random_state=random_state
    )
    learned = np.empty((0, linear.in_features), np.float32)
    if options.needs_weights(linear.in_features):
        learned = weight.to("cpu", torch.float32).numpy()
    recipe, _ = options.choose(learned, shortlist=shortlist)
    own = str(weight.dtype).removeprefix("torch.")
    layer = CompressedLinear(
        linear.in_features,
        linear.out_features,
        family=recipe,
        bias=bias is not None,
        shortlist=shortlist,
        shortlist_storage=own if shortlist_storage == "original" else shortlist_storage,
    )
    encoder, size = recipe.weight_encoder(), max(1, BLOCK_VALUES // linear.in_features)
    for start in range(0, linear.out_features, size):
        part = slice(start, start + size)
        values = weight[part].to("cpu", torch.float32).numpy()
        layer.codes[part] = torch.from_numpy(encoder.encode(values))
        if layer.shortlist_weights is not None:
            scales = layer.shortlist_scales
            held = Shortlist.of(1, values, "original" if scales is None else "int8")
            layer.shortlist_weights[part] = torch.from_numpy(held.weights).to(layer.shortlist_weights.dtype)
            if scales is not None:
                scales[part] = torch.from_numpy(held.row_scales)
    if bias is not None and layer.bias is not None:
        layer.bias.copy_(bias)
    return layer.to(weight.device)


def compress_module(model: torch.nn.Module, name: str, **parameters: Any) -> torch.nn.Module:
    """Replace a linear layer, given by its dotted ``name``, by its compressed form, in place; return the ``model``.

    If the head of a Hugging Face language model is tied to the input embedding, the embedding remains and the tie is
    removed. ``parameters`` are those of :func:`compress`.

    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    >>> type(compress_module(model, "1", n_bytes=16, random_state=7)[1]).__name__
    'CompressedLinear'
    """
    parent, _, child = name.rpartition(".")
    try:
        linear = model.get_submodule(name)
    except AttributeError:
        _raise_no_layer(None, name=name)
    if not name or not isinstance(linear, torch.nn.Linear):
        _raise_no_layer(linear, name=name)
    setattr(model.get_submodule(parent), child, compress(linear, **parameters))
    _untie(model, name)
    return model


def _untie(model: Any, name: str) -> None:
    """Remove the tie of a Hugging Face model's head to its input embedding."""
    tied = [getattr(model, kept, None) for kept in ("_tied_weights_keys", "all_tied_weights_keys")]
    key = f"{name}.weight"
    if not any(isinstance(keys, (dict, list)) and key in keys for keys in tied):
        return
    for kept, keys in zip(("_tied_weights_keys", "all_tied_weights_keys"), tied, strict=True):
        if isinstance(keys, dict):
            setattr(model, kept, {one: other for one, other in keys.items() if one != key})
        elif isinstance(keys, list):
            setattr(model, kept, [one for one in keys if one != key])
    if getattr(getattr(model, "config", None), "tie_word_embeddings", False):
        model.config.tie_word_embeddings = False


def _raise_no_layer(found: object, *, name: str | None = None) -> NoReturn:
    where = "" if name is None else f" at {name!r}"
    what = "nothing" if found is None else type(found).__name__
    raise TypeError(
        f"a torch.nn.Linear can be compressed, found {what}{where}; model.named_modules() lists the layers of a model"
    )
