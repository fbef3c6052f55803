"""Export to ONNX: compressed layers become topsign's operators or standard operators."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_map

from .._checks import check_choice
from ..errors import install
from ..heads.onnx import DOMAIN, LINEAR, TOPK
from .dequantised import dequantised

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
        :func:`topsign.heads.onnx.session_options`; logits have the bits of the layer. "standard" needs only ONNX
        Runtime: weight vectors are decoded and stored in one byte per weight and four per class, so the file is larger
        than the codes, and weights are rounded by up to 1 / 254 of the largest weight of their class.
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
    with dequantised(model) if operators == "standard" else nullcontext(model) as exported:
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

    def operands(x: Any, codes: Any, columns: Any, bias: Any) -> tuple[Any, ...]:
        shape: Any = opset18.Constant(value_ints=[0])
        none = opset18.ConstantOfShape(shape) if bias is None else bias
        return opset18.Cast(x, to=1), codes, columns, none  # 1 is float32

    def linear(x: Any, codes: Any, columns: Any, bias: Any, recipe: str) -> Any:
        return opset18.CastLike(getattr(ours, LINEAR)(*operands(x, codes, columns, bias), recipe=recipe), x)

    def topk(x: Any, codes: Any, columns: Any, bias: Any, recipe: str, k: int) -> Any:
        values, indices = getattr(ours, TOPK)(*operands(x, codes, columns, bias), recipe=recipe, k=k)
        return opset18.CastLike(values, x), indices

    def shortlist(
        x: Any, codes: Any, columns: Any, bias: Any, recipe: str, weights: Any, weight_scales: Any, size: int
    ) -> Any:
        _, best = getattr(ours, TOPK)(*operands(x, codes, columns, bias), recipe=recipe, k=size)
        few = opset18.Constant(value_ints=[size])
        classes, _ = opset18.TopK(best, few, largest=0)  # ascending: of equal logits the lower class comes first
        rows = opset18.Cast(opset18.Gather(weights, classes), to=1)
        column, last = opset18.Unsqueeze(opset18.Cast(x, to=1), [-1]), opset18.Constant(value_ints=[-1])
        logits = opset18.Squeeze(opset18.MatMul(rows, column), last)
        if weight_scales is not None:
            logits = opset18.Mul(logits, opset18.Gather(weight_scales, classes))
        if bias is not None:
            logits = opset18.Add(logits, opset18.Gather(bias, classes))
        values, order = opset18.TopK(logits, few)
        return opset18.CastLike(values, x), opset18.GatherElements(classes, order, axis=-1)

    operators = torch.ops.topsign
    return {
        operators.linear.default: linear,
        operators.topk.default: topk,
        operators.shortlist.default: shortlist,
    }


@cache
def _register_schemas() -> None:
    """Register the schemas of the operators with onnx, once per process."""
    from onnx import defs

    def formal(**types: str) -> list[Any]:
        return [defs.OpSchema.FormalParameter(name, f"tensor({kind})") for name, kind in types.items()]

    operands = formal(x="float", codes="uint8", columns="float", bias="float")
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
