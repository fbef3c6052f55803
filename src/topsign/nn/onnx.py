"""Export to ONNX: compressed layers become single nodes, which :func:`topsign.heads.onnx.session_options` runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from ..errors import install
from ..heads.onnx import DOMAIN, LINEAR, TOPK


def export_onnx(model: torch.nn.Module, args: tuple[Any, ...], path: str | os.PathLike[str], **options: Any) -> Any:
    """Writes a model with compressed layers as ONNX; the same as ``torch.onnx.export`` in all else.

    Parameters
    ----------
    model, args, path
        The model, examples of its inputs, and the file.
    **options
        Those of ``torch.onnx.export``, such as dynamic_shapes.
    """
    table = translations()
    return torch.onnx.export(model, args, os.fspath(path), dynamo=True, custom_translation_table=table, **options)


def translations() -> dict[Any, Callable[..., Any]]:
    """What ``torch.onnx.export(custom_translation_table=...)`` makes of topsign's operators."""
    try:
        import onnx  # noqa: F401
        import onnxscript
        from onnxscript import opset18 as standard
    except ImportError as missing:
        raise ImportError(f"export to ONNX needs onnxscript, but {missing}; {install('onnx')}") from None
    _register_schemas()
    opset18: Any = standard
    ours = onnxscript.values.Opset(DOMAIN, 1)

    def operands(x: Any, codes: Any, scales: Any, bias: Any) -> tuple[Any, ...]:
        shape: Any = opset18.Constant(value_ints=[0])
        none = opset18.ConstantOfShape(shape) if bias is None else bias
        return opset18.Cast(x, to=1), codes, scales, none  # 1 is float32

    def linear(x: Any, codes: Any, scales: Any, bias: Any, recipe: str) -> Any:
        return opset18.CastLike(getattr(ours, LINEAR)(*operands(x, codes, scales, bias), recipe=recipe), x)

    def topk(x: Any, codes: Any, scales: Any, bias: Any, recipe: str, k: int) -> Any:
        values, indices = getattr(ours, TOPK)(*operands(x, codes, scales, bias), recipe=recipe, k=k)
        return opset18.CastLike(values, x), indices

    def shortlist(
        x: Any, codes: Any, scales: Any, bias: Any, recipe: str, weights: Any, weight_scales: Any, size: int
    ) -> Any:
        _, best = getattr(ours, TOPK)(*operands(x, codes, scales, bias), recipe=recipe, k=size)
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
    """Tells onnx of the operators' operands and attributes, once per process."""
    from onnx import defs

    def formal(**types: str) -> list[Any]:
        return [defs.OpSchema.FormalParameter(name, f"tensor({kind})") for name, kind in types.items()]

    operands = formal(x="float", codes="uint8", scales="float", bias="float")
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
