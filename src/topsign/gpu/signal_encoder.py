"""An encoder of signals on a CUDA device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from .._checks import as_signals
from ..codes import AdaptiveCodes, TrellisCodes
from ..encoding import encode
from ..recipe import Recipe
from .coder import GpuCoder
from .device import Device, on_host


class SignalEncoder:
    """Makes the codes of a recipe on a CUDA device: the bytes of the processor.

    Made by :meth:`topsign.AdaptiveEncoder.to` and :meth:`topsign.TrellisEncoder.to`. Of adaptive codes all is computed
    there, for Hadamard projections. Signals of trellis codes are projected by the processor, whatever the basis, and
    the device finds their codes.

    Parameters
    ----------
    recipe : Recipe
    device : str
        "cuda", or "cuda:1" for the second card.
    feature_names : sequence of str, optional
        Names that the columns of a table must have, in their order.
    """

    def __init__(
        self, recipe: Recipe, *, device: str | Device = "cuda", feature_names: Sequence[str] | None = None
    ) -> None:
        self.recipe, self.feature_names = recipe, feature_names
        self._coder = GpuCoder(recipe, device)

    @property
    def device(self) -> str:
        """Name of the device."""
        return self._coder.device.name

    def encode(self, signals: npt.ArrayLike, *, n_threads: int | None = None) -> AdaptiveCodes | TrellisCodes:
        """One code per signal, as the encoder on the processor makes them; signals may be CUDA tensors."""
        values = as_signals(on_host(signals), n_features=self.recipe.n_features, feature_names=self.feature_names)
        made = encode(self.recipe, values, n_threads=n_threads, coder=self._coder)
        if self.recipe.family == "trellis":
            return TrellisCodes(made.codes, recipe=self.recipe)
        layout, space = self.recipe.layout, self.recipe.space
        return AdaptiveCodes.unchecked(layout, made.codes, made.norms, made.scales, space=space)

    def __repr__(self) -> str:
        return f"SignalEncoder({self.recipe.family} codes of {self.recipe.n_features} features on {self.device})"
