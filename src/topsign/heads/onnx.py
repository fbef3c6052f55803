"""Operators of heads in ONNX models, for ONNX Runtime; needs onnxruntime-extensions.

:func:`topsign.nn.export_onnx` writes the models; no PyTorch is needed to run them. The operators live in the domain of
onnxruntime-extensions, ``ai.onnx.contrib``.
"""

from __future__ import annotations

import json
from functools import cache, lru_cache
from typing import Any

import numpy as np

from .._arrays import Array, Bytes, Float32, Int64
from ..errors import install
from ..families import Recipe
from .scores import Scores

DOMAIN = "ai.onnx.contrib"
LINEAR, TOPK = "TopsignLinear", "TopsignTopK"


def session_options() -> Any:
    """Return options for ``onnxruntime.InferenceSession`` with topsign's operators registered."""
    try:
        import onnxruntime
        import onnxruntime_extensions
    except ImportError as missing:
        raise ImportError(
            f"heads in ONNX Runtime need onnxruntime and onnxruntime-extensions, but {missing}; {install('onnx')}"
        ) from None
    _declare()
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
    return options


@cache
def _declare() -> None:
    """Register the operators with onnxruntime-extensions, once per process."""
    from onnxruntime_extensions import PyCustomOpDef as Types
    from onnxruntime_extensions import onnx_op

    inputs = [Types.dt_float, Types.dt_uint8, Types.dt_float]
    onnx_op(op_type=LINEAR, inputs=inputs, outputs=[Types.dt_float], attrs={"recipe": Types.dt_string})(_linear)
    attributes = {"recipe": Types.dt_string, "k": Types.dt_int64}
    onnx_op(op_type=TOPK, inputs=inputs, outputs=[Types.dt_float, Types.dt_int64], attrs=attributes)(_topk)


def _linear(x: Float32, codes: Bytes, bias: Float32, *, recipe: str) -> Float32:
    """Compute ``topsign::linear``; an empty bias means none."""
    scores, rows = _read_operands(x, codes, bias, recipe)
    return scores.logits(rows, "inputs").reshape(*x.shape[:-1], len(codes))


def _topk(x: Float32, codes: Bytes, bias: Float32, *, recipe: str, k: int) -> tuple[Float32, Int64]:
    """Compute ``topsign::topk``."""
    scores, rows = _read_operands(x, codes, bias, recipe)
    values, classes = scores.topk(rows, k, "inputs")
    shape = (*x.shape[:-1], k)
    return values.reshape(shape), classes.reshape(shape)


def _read_operands(x: Array, codes: Bytes, bias: Float32, text: str) -> tuple[Scores, Array]:
    """Return the scores of the codes, and inputs as rows; a model is a file from outside, and kernels check nothing."""
    recipe = _read_recipe(text)
    scores = Scores.from_operands(recipe, codes, bias if bias.size else None)
    recipe.check(np.ascontiguousarray(codes[:, : recipe.code_bytes]), name="codes")
    return scores, x.reshape(-1, recipe.n_features)


@lru_cache(maxsize=64)
def _read_recipe(text: str) -> Recipe:
    return Recipe.from_json(json.loads(text), "the recipe of an ONNX model")
