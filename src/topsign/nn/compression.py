"""Compression of linear layers, block by block."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from .._arrays import Float32
from .._random import RandomState
from ..heads.recipes import RecipeOptions, empty_weights
from ..heads.shortlist import Shortlist
from ..projections import Projection
from .layer import CompressedLinear

BLOCK_VALUES = 2**24  # weights per block


@torch.no_grad()
def compress(
    linear: torch.nn.Linear,
    *,
    family: str = "adaptive",
    n_bits: int | str | None = "auto",
    n_bytes: int | None = None,
    bits_per_weight: float | None = None,
    n_pool: int | None = None,
    basis: str | Projection | None = None,
    shortlist: int | None = None,
    shortlist_storage: str = "original",
    random_state: RandomState = None,
) -> CompressedLinear:
    """Compress a linear layer; return a :class:`CompressedLinear` on the same device.

    Weights of any dtype and device are converted block by block, so a layer can be compressed if memory does not
    suffice for a second copy. Families that learn from weights, such as ``family="trellis"`` over principal axes, and
    ``n_bits="auto"`` convert all weights at once. The logit of a class with all-zero weights is its bias.

    Parameters
    ----------
    linear : torch.nn.Linear
    n_bits : int, "auto" or None
        As in :class:`topsign.CompressedLinearClassifier`; "auto" predicts the agreement from the weights.
    bits_per_weight : float, optional
        Bits of codes and scales per weight, in place of n_bits or n_bytes.
    shortlist_storage : str
        "original" (default) is the dtype of the layer; others as in :class:`CompressedLinear`.
    family, n_bytes, n_pool, basis, shortlist, random_state
        As in :class:`CompressedLinear`.

    Examples
    --------
    >>> small = compress(torch.nn.Linear(256, 100), family="trellis", bits_per_weight=0.5, random_state=7)
    >>> small.codes.nbytes * 8 / (256 * 100)
    0.5
    """
    if not isinstance(linear, torch.nn.Linear):
        _raise_no_layer(linear)
    weight, bias = linear.weight, linear.bias
    sizes: dict[str, Any] = {"n_bits": n_bits, "n_bytes": n_bytes, "bits_per_weight": bits_per_weight}
    options = RecipeOptions(family, **sizes, n_pool=n_pool, basis=basis, random_state=random_state)
    needed = options.needs_weights(linear.in_features)
    learned = weight.to("cpu", torch.float32).numpy() if needed else empty_weights(linear.in_features)
    recipe, _ = options.recipe(learned, shortlist=shortlist)
    own = str(weight.dtype).removeprefix("torch.")
    layer = CompressedLinear(
        linear.in_features,
        linear.out_features,
        family=recipe,
        bias=bias is not None,
        shortlist=shortlist,
        shortlist_storage=own if shortlist_storage == "original" else shortlist_storage,
    )
    coding, size = recipe.weight_coding(), max(1, BLOCK_VALUES // linear.in_features)
    for start in range(0, linear.out_features, size):
        part = slice(start, start + size)
        values = weight[part].to("cpu", torch.float32).numpy()
        layer.codes[part] = torch.from_numpy(coding.encode(values))
        _keep_weights(layer, part, values)
    if bias is not None and layer.bias is not None:
        layer.bias.copy_(bias)
    return layer.to(weight.device)


def _keep_weights(layer: CompressedLinear, part: slice, values: Float32) -> None:
    """Copy a block of weights into the shortlist, if there is one."""
    if layer.shortlist is None or layer.shortlist_weights is None:
        return
    storage = "int8" if layer.shortlist_scales is not None else "original"
    held = Shortlist.of(layer.shortlist, values, storage)
    layer.shortlist_weights[part] = torch.from_numpy(held.weights).to(layer.shortlist_weights.dtype)
    if layer.shortlist_scales is not None and held.row_scales is not None:
        layer.shortlist_scales[part] = torch.from_numpy(held.row_scales)


def compress_module(model: torch.nn.Module, name: str, **parameters: Any) -> torch.nn.Module:
    """Replace a linear layer, given by its dotted name, by its compressed form, in place; return the model.

    If the head of a Hugging Face language model is tied to the input embedding, the embedding remains and the tie is
    removed. Parameters are those of :func:`compress`.

    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    >>> type(compress_module(model, "1", n_bits=16, random_state=7)[1]).__name__
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
