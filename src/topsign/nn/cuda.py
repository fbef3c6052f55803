"""Logits and best classes on CUDA devices, computed by the kernels of ``topsign.gpu``."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from .._warning import warn
from ..families import Recipe
from ..families.weight_coding import CodedWeights
from ..gpu import GpuError, HeadScanner, cuda_device
from ..gpu.codes import DeviceQueries
from ..gpu.heads import InputRounder
from ..gpu.scan import MAX_K
from ..projections import Hadamard


class CudaHead:
    """Codes searched by the kernels of ``topsign.gpu``.

    With a Hadamard projection, results have the bits of the CPU; PyTorch computes other projections as matrix products.
    """

    def __init__(self, recipe: Recipe, codes: Tensor, bias: Tensor | None) -> None:
        coding, device = recipe.weight_coding(), cuda_device(codes.device.index or 0)
        assert isinstance(coding, CodedWeights)  # see executes
        scoring = coding.recipe.scoring_of("log", code_bytes=coding.nbytes)
        biases = None if bias is None else bias.contiguous()
        with device.stream_of(codes):
            self._scanner = HeadScanner(scoring, codes.contiguous(), biases, device=device)
            self._rounder = InputRounder(coding.recipe, device=device)
        self._matrix: Tensor | None = None
        projection = coding.recipe.projection
        if not isinstance(projection, Hadamard):
            self._matrix = torch.from_numpy(projection.rows(np.arange(projection.n_pool))).to(codes.device)
        self._stream = 0  # of the last call

    def logits(self, rows: Tensor) -> Tensor:
        """Return the logits of float32 rows, (n_rows, n_classes)."""
        found: Tensor = self._scanner.logits(self._inputs(rows))
        return found

    def topk(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k highest logits of each row and their classes; ties by ascending class."""
        if k > MAX_K:  # more than a thread block sorts
            values, classes = self.logits(rows).sort(dim=1, descending=True, stable=True)
            return values[:, :k], classes[:, :k]
        values, classes = self._scanner.topk(self._inputs(rows), k)
        return values, classes

    def _inputs(self, rows: Tensor) -> DeviceQueries:
        """Project and round float32 rows."""
        self._follow(rows.device)
        if self._matrix is None:
            return self._rounder.round(rows.contiguous())
        norms = None
        if self._rounder.normalises:
            norms = rows.double().square().sum(1).sqrt()
            rows = rows * torch.where(norms > 0, 1 / norms, 0.0).float().unsqueeze(1)
        return self._rounder.round_projected(rows @ self._matrix.T, norms)

    def _follow(self, device: torch.device) -> None:
        """Synchronize if the last call was on another stream, because calls share buffers."""
        if torch.cuda.is_current_stream_capturing():
            return
        stream = torch.cuda.current_stream(device).cuda_stream
        if stream != self._stream:
            torch.cuda.synchronize(device)
            self._stream = stream


def executes(recipe: Recipe) -> bool:
    """Return whether there are kernels for heads of this recipe."""
    return isinstance(recipe.weight_coding(), CodedWeights)


@lru_cache(maxsize=1)
def usable() -> bool:
    """Return whether the kernels can be used; if not, warn once with the reason."""
    try:
        cuda_device(torch.cuda.current_device())
    except GpuError as error:
        warn(f"layers on CUDA multiply with decoded weights, which is slow: {error}", RuntimeWarning)
        return False
    return True
