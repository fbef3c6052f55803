"""Export to ONNX: compressed layers become topsign's operators or standard operators."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from .._checks import check_choice
from ..errors import install
from ..heads.onnx import DOMAIN, LINEAR, TOPK
from .layer import CompressedLinear, HeadLayer
from .operators import DecodedHead, decoded_logits

OPERATORS = ("topsign", "standard")


def export_onnx(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    path: str | os.PathLike[str],
    *,
    operators: str = "topsign",
    dynamic_shapes: Any = "batch",
    **options: Any,
) -> Any:
    """Export a model with compressed layers to ONNX, for any batch size.

    Parameters
    ----------
    model, args, path
        Model, example inputs, and output file.
    operators : "topsign" or "standard"
        "topsign" stores the codes, in custom operators that ONNX Runtime executes with
        :func:`topsign.heads.onnx.session_options`; estimated logits have the bits of the layer. "standard" needs only
        ONNX Runtime: weight vectors are decoded and stored in one byte per weight and four per class, so the file is
        larger than the codes, and weights are rounded by up to 1 / 254 of the largest weight of their class.
    dynamic_shapes
        As in ``torch.onnx.export``. "batch" makes the first dimension of all inputs with two or more dimensions
        dynamic, with one common size; None fixes the shapes of the examples.
    **options
        Further options of ``torch.onnx.export``.
    """
    table = translations()
    check_choice(operators, "operators", OPERATORS)
    if isinstance(dynamic_shapes, str):
        check_choice(dynamic_shapes, "dynamic_shapes", ("batch",))
        args, named, dynamic_shapes = _open_batch(model, args, options.pop("kwargs", None) or {})
        options["kwargs"] = named
    with decoded_layers(model) if operators == "standard" else nullcontext(model) as exported:
        return torch.onnx.export(
            exported,
            args,
            os.fspath(path),
            dynamo=True,
            custom_translation_table=table,
            dynamic_shapes=dynamic_shapes,
            **options,
        )


def _open_batch(
    model: torch.nn.Module, args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Return examples and shapes with a dynamic batch dimension; a size of one, which exporters fix, becomes two."""
    batch = torch.export.Dim("batch")

    def has_rows(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.ndim > 1

    def rows(value: Any) -> Any:
        return value.expand(2, *value.shape[1:]).clone() if has_rows(value) and len(value) == 1 else value

    args, named = tree_map(rows, args), tree_map(rows, named)
    inputs = inspect.signature(model.forward).bind(*args, **named).arguments
    return args, named, tree_map(lambda value: {0: batch} if has_rows(value) else None, dict(inputs))


def translations() -> dict[Any, Callable[..., Any]]:
    """Return the translations of topsign's operators, for ``torch.onnx.export(custom_translation_table=...)``."""
    try:
        import onnx  # noqa: F401
        import onnxscript
        from onnxscript import opset18 as standard
    except ImportError as missing:
        raise ImportError(f"export to ONNX needs onnxscript, but {missing}; {install('onnx')}") from None
    _register_schemas()
    opset18: Any = standard
    ours = onnxscript.values.Opset(DOMAIN, 1)

    def operands(x: Any, codes: Any, bias: Any) -> tuple[Any, ...]:
        shape: Any = opset18.Constant(value_ints=[0])
        none = opset18.ConstantOfShape(shape) if bias is None else bias
        return opset18.Cast(x, to=1), codes, none  # 1 is float32

    def linear(x: Any, codes: Any, bias: Any, recipe: str) -> Any:
        return opset18.CastLike(getattr(ours, LINEAR)(*operands(x, codes, bias), recipe=recipe), x)

    def topk(x: Any, codes: Any, bias: Any, recipe: str, k: int) -> Any:
        values, indices = getattr(ours, TOPK)(*operands(x, codes, bias), recipe=recipe, k=k)
        return opset18.CastLike(values, x), indices

    def stable_sort(x: Any, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
        size = opset18.Gather(opset18.Shape(x), opset18.Constant(value_ints=[dim]))
        return opset18.TopK(x, size, axis=dim, largest=int(descending))  # of equal values the first comes first

    return {
        torch.ops.topsign.linear.default: linear,
        torch.ops.topsign.topk.default: topk,
        torch.ops.aten.sort.stable: stable_sort,
    }


@cache
def _register_schemas() -> None:
    """Register the schemas of the operators with onnx, once per process."""
    from onnx import defs

    def formal(**types: str) -> list[Any]:
        return [defs.OpSchema.FormalParameter(name, f"tensor({kind})") for name, kind in types.items()]

    operands = formal(x="float", codes="uint8", bias="float")
    for name, results, attributes in (
        (LINEAR, {"logits": "float"}, {"recipe": "STRING"}),
        (TOPK, {"values": "float", "indices": "int64"}, {"recipe": "STRING", "k": "INT"}),
    ):
        needed = [
            defs.OpSchema.Attribute(attribute, getattr(defs.OpSchema.AttrType, kind), required=True)
            for attribute, kind in attributes.items()
        ]
        defs.register_schema(
            defs.OpSchema(name, DOMAIN, 1, inputs=operands, outputs=formal(**results), attributes=needed)
        )


# Standard operators


class DecodedLinear(HeadLayer):
    """Compressed layer with decoded weight vectors, see :class:`topsign.nn.operators.DecodedHead`."""

    weights: Tensor  # (out_features, in_features) int8
    scales: Tensor

    def __init__(self, layer: CompressedLinear) -> None:
        super().__init__()
        self.out_features, self.shortlist = layer.out_features, layer.shortlist
        head = DecodedHead(layer.recipe, layer.codes, layer.bias)
        self.register_buffer("weights", head.weights)
        self.register_buffer("scales", head.scales)
        for name in ("bias", "shortlist_weights", "shortlist_scales"):
            self.register_buffer(name, getattr(layer, name))
        self.train(False)

    def _logits(self, x: Tensor) -> Tensor:
        return decoded_logits(x, self.weights, self.scales, self.bias).to(x.dtype)

    def _best(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        values, classes = decoded_logits(x, self.weights, self.scales, self.bias).topk(k)
        return values.to(x.dtype), classes


@contextmanager
def decoded_layers(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Replace the compressed layers of a model by decoded ones within a ``with`` block."""
    if isinstance(model, CompressedLinear):
        yield DecodedLinear(model)
        return
    every = model.named_modules(remove_duplicate=False)
    layers = {name: layer for name, layer in every if isinstance(layer, CompressedLinear)}
    made = {id(layer): DecodedLinear(layer) for layer in set(layers.values())}
    try:
        for name, layer in layers.items():
            _replace(model, name, made[id(layer)])
        yield model
    finally:
        for name, layer in layers.items():
            _replace(model, name, layer)


def _replace(model: torch.nn.Module, name: str, layer: torch.nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, layer)
