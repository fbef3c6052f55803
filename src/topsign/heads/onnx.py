"""Heads inside ONNX models: the operators that topsign.nn exports, for ONNX Runtime; needs onnxruntime-extensions.

No PyTorch is needed to run a model. The operators live in the domain of onnxruntime-extensions, ``ai.onnx.contrib``.
"""

from __future__ import annotations

import json
from functools import cache, lru_cache
from typing import Any

import numpy as np

from .._arrays import Array, Bytes, Float32, Int64
from ..codes import check_content
from ..encoding import project
from ..errors import install
from ..recipe import Recipe
from .queries import rounded_inputs
from .recipes import CODES
from .scores import EstimatedLogits, LogitScores, TrellisScores

DOMAIN = "ai.onnx.contrib"
LINEAR, TOPK = "TopsignLinear", "TopsignTopK"


def session_options() -> Any:
    """Options for ``onnxruntime.InferenceSession`` with topsign's operators registered."""
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
    """Tells onnxruntime-extensions of the operators, once per process."""
    from onnxruntime_extensions import PyCustomOpDef as Types
    from onnxruntime_extensions import onnx_op

    inputs = [Types.dt_float, Types.dt_uint8, Types.dt_float, Types.dt_float]
    onnx_op(op_type=LINEAR, inputs=inputs, outputs=[Types.dt_float], attrs={"recipe": Types.dt_string})(_linear)
    attributes = {"recipe": Types.dt_string, "k": Types.dt_int64}
    onnx_op(op_type=TOPK, inputs=inputs, outputs=[Types.dt_float, Types.dt_int64], attrs=attributes)(_topk)


def _linear(x: Float32, codes: Bytes, scales: Float32, bias: Float32, *, recipe: str) -> Float32:
    """As ``topsign::linear``; an empty bias stands for none."""
    scores, projected = _prepared(x, codes, scales, bias, recipe)
    return scores.values(projected).astype(np.float32).reshape(*x.shape[:-1], len(codes))


def _topk(x: Float32, codes: Bytes, scales: Float32, bias: Float32, *, recipe: str, k: int) -> tuple[Float32, Int64]:
    """As ``topsign::topk``."""
    scores, projected = _prepared(x, codes, scales, bias, recipe)
    classes, values = scores.best(projected, k)
    shape = (*x.shape[:-1], k)
    return values.astype(np.float32).reshape(shape), classes.reshape(shape)


def _prepared(x: Array, codes: Bytes, scales: Float32, bias: Float32, recipe: str) -> tuple[EstimatedLogits, Any]:
    """The scores of the codes, and inputs as they take them."""
    made = _read_recipe(recipe)
    check_content(made.layout, codes, name="codes")  # a model is a file from outside, and kernels check nothing
    if scales.shape != (codes.shape[:1] if made.beside else (0,)) or bias.shape not in (codes.shape[:1], (0,)):
        raise ValueError(f"scales {scales.shape} and bias {bias.shape} do not fit codes {codes.shape}")
    biases = bias.astype(np.float64) if bias.any() else None
    codes, rows = np.ascontiguousarray(codes), x.reshape(-1, made.n_features)
    if made.family == "trellis":
        return TrellisScores(made.cells[0].tables, codes, biases), rounded_inputs(made, rows, "inputs")
    return LogitScores(made.layout, codes, np.ascontiguousarray(scales), biases), project(made, rows, name="inputs")[0]


@lru_cache(maxsize=64)
def _read_recipe(text: str) -> Recipe:
    recipe = Recipe.from_json(json.loads(text), "the recipe of an ONNX model")
    if recipe.family not in CODES or recipe.n_local > 1 or not recipe.norms:
        raise ValueError(
            f"this operator takes adaptive codes, or trellis codes of one basis, with scales, not {recipe.family} codes"
        )
    return recipe
