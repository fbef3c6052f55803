"""Compressing layers of models, a block of weights at a time."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from .._arrays import Float32
from .._random import RandomState
from ..heads.queries import encode_weights
from ..heads.recipes import head_recipe, no_weights
from ..heads.shortlist import Shortlist
from ..projections import Projection
from .layer import AdaptiveLinear

BLOCK_VALUES = 2**24  # weights converted at a time


@torch.no_grad()
def compress(
    linear: torch.nn.Linear,
    *,
    codes: str = "adaptive",
    n_bits: int | str = "auto",
    n_pool: int | None = None,
    projection: str | Projection = "hadamard",
    layout: str = "compact",
    shortlist: int | None = None,
    shortlist_storage: str = "original",
    shortlist_memory: str = "device",
    random_state: RandomState = None,
) -> AdaptiveLinear:
    """An :class:`AdaptiveLinear` that estimates what a linear layer gives, on the device of the layer.

    Weights are read a block at a time, whatever their type and device: a head too large for a second copy can be
    compressed; ``codes="trellis"`` over principal axes, and ``n_bits="auto"``, look at all of them at once. Parameters
    are those of :class:`AdaptiveLinear`, with ``n_bits="auto"`` as in
    :class:`topsign.AdaptiveLinearClassifier` and ``shortlist_storage="original"`` for the type of the layer. A class
    whose weights are all zero scores its bias.
    """
    if not isinstance(linear, torch.nn.Linear):
        _raise_no_layer(linear)
    weight, bias = linear.weight, linear.bias
    learns = n_bits == "auto" or projection == "principal"
    recipe = head_recipe(
        codes,
        weight.to("cpu", torch.float32).numpy() if learns else no_weights(linear.in_features),
        n_bits=n_bits,
        n_pool=n_pool,
        projection=projection,
        layout=layout,
        random_state=random_state,
        shortlist=shortlist,
    )
    layer = AdaptiveLinear.of_recipe(
        recipe,
        linear.out_features,
        bias=bias is not None,
        shortlist=shortlist,
        shortlist_storage=str(weight.dtype).removeprefix("torch.")
        if shortlist_storage == "original"
        else shortlist_storage,
        shortlist_memory=shortlist_memory,
    )
    size = max(1, BLOCK_VALUES // linear.in_features)
    for start in range(0, linear.out_features, size):
        part = slice(start, start + size)
        values = weight[part].to("cpu", torch.float32).numpy()
        made, scales = encode_weights(layer.recipe, None, values)
        layer.codes[part] = torch.from_numpy(made)
        if scales is not None:
            layer.scales[part] = torch.from_numpy(scales)
        _keep_weights(layer, part, values)
    if bias is not None and layer.bias is not None:
        layer.bias.copy_(bias)
    return layer.to(weight.device)


def _keep_weights(layer: AdaptiveLinear, part: slice, values: Float32) -> None:
    """Takes a block of weights into the shortlist, where there is one."""
    if layer.shortlist is None or layer.shortlist_weights is None:
        return
    storage = "int8" if layer.shortlist_scales is not None else "original"
    held = Shortlist.of(layer.shortlist, values, storage)
    layer.shortlist_weights[part] = torch.from_numpy(held.weights).to(layer.shortlist_weights.dtype)
    if layer.shortlist_scales is not None and held.row_scales is not None:
        layer.shortlist_scales[part] = torch.from_numpy(held.row_scales)


def compress_module(model: torch.nn.Module, name: str, **parameters: Any) -> torch.nn.Module:
    """Replaces the linear layer of a model by this dotted name with its compressed form, and returns the model.

    A language model of Hugging Face may tie its head to the input embedding; the embedding stays as it is, and the
    model no longer ties them.

    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    >>> type(compress_module(model, "1", n_bits=16, random_state=7)[1]).__name__
    'AdaptiveLinear'
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
    """Tells a Hugging Face model that its head is no longer the input embedding, so that nothing ties them again."""
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
        f"a torch.nn.Linear can be compressed, found {what}{where}; model.named_modules() lists what there is"
    )
