"""Compressing layers of models, a block of weights at a time."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from .._random import RandomState
from ..encoding import encode
from ..projections import Projection
from .layer import AdaptiveLinear

BLOCK_VALUES = 2**24  # weights converted at a time


@torch.no_grad()
def compress(
    linear: torch.nn.Linear,
    *,
    n_bits: int = 64,
    n_pool: int | None = None,
    projection: str | Projection = "hadamard",
    layout: str = "compact",
    random_state: RandomState = None,
) -> AdaptiveLinear:
    """An :class:`AdaptiveLinear` that estimates what a linear layer gives, on the device of the layer.

    Weights are read a block at a time, whatever their type and device: a head too large for a second copy can be
    compressed. Parameters are those of :class:`AdaptiveLinear`. A class whose weights are all zero scores its bias.
    """
    if not isinstance(linear, torch.nn.Linear):
        _raise_no_layer(linear)
    weight, bias = linear.weight, linear.bias
    layer = AdaptiveLinear(
        linear.in_features,
        linear.out_features,
        n_bits=n_bits,
        n_pool=n_pool,
        projection=projection,
        bias=bias is not None,
        layout=layout,
        random_state=random_state,
    )
    size = max(1, BLOCK_VALUES // linear.in_features)
    for start in range(0, linear.out_features, size):
        part = slice(start, start + size)
        values = weight[part].to("cpu", torch.float32).numpy()
        made = encode(layer.recipe, values, allow_zero=True, name="weights")
        assert made.scales is not None
        layer.codes[part], layer.scales[part] = torch.from_numpy(made.codes), torch.from_numpy(made.scales)
    if bias is not None and layer.bias is not None:
        layer.bias.copy_(bias)
    return layer.to(weight.device)


def compress_module(model: torch.nn.Module, name: str, **parameters: Any) -> torch.nn.Module:
    """Replaces the linear layer of a model by this dotted name with its compressed form, and returns the model.

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
    return model


def _raise_no_layer(found: object, *, name: str | None = None) -> NoReturn:
    where = "" if name is None else f" at {name!r}"
    what = "nothing" if found is None else type(found).__name__
    raise TypeError(
        f"a torch.nn.Linear can be compressed, found {what}{where}; model.named_modules() lists what there is"
    )
