"""Rounding of the inputs of trellis heads on a device, with the bits of the CPU."""

from __future__ import annotations

import numpy as np

from ..families import TrellisRecipe
from ..kernels import Layout
from ..projections import Hadamard
from .device import Array, Device
from .encoding import GpuEncoder


class InputRounder(GpuEncoder):
    """Projection and rounding of inputs in one kernel, for heads with a Hadamard basis."""

    _files = ("encode.cu", "inputs.cu")

    def __init__(self, recipe: TrellisRecipe, *, device: Device) -> None:
        super().__init__(recipe.projection, Layout("signs", recipe.n_pool, recipe.n_pool), device=device)
        (cell,) = recipe.cells
        assert isinstance(recipe.projection, Hadamard)  # others raised TypeError
        order = recipe.projection.last_coordinates
        self.n_coded = cell.design.n_coded
        self._places = device.put(order[cell.design.coded].astype(np.uint32))
        self._factors = device.put(cell.weights)
        self._mean = None
        if recipe.mean is not None:
            mean = np.zeros(recipe.n_features)
            mean[order] = recipe.projection.apply(recipe.mean[np.newaxis])[0] / np.sqrt(recipe.n_features)
            self._mean = device.put(mean)

    @staticmethod
    def supports(recipe: TrellisRecipe, device: Device) -> bool:
        """Return whether the kernel supports this recipe; inputs of others are rounded by PyTorch operations."""
        projection, n = recipe.projection, recipe.n_features
        fits = 4 * (n + n // 32 + 1) + 2048 <= device.shared_bytes
        return isinstance(projection, Hadamard) and projection.n_pool == n and fits

    def round(self, inputs: Array, values: Array, scales: Array, constants: Array) -> None:
        """Round inputs (n_inputs, n_features) to values (n_inputs, n_coded), with scales and constants of sums."""
        self._module.launch(
            "round_inputs",
            len(inputs),
            self._threads,
            inputs,
            self._signs,
            *self._scales,
            self._places,
            self._factors,
            np.uint32(self.n_coded),
            self._mean,
            values,
            scales,
            constants,
            shared=4 * self._row,
        )
