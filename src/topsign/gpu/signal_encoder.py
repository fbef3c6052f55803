"""Encoder of signals on a CUDA device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from .._checks import as_signals
from ..codes import Codes
from ..encoding import encode
from ..families import Recipe
from .coder import make_coder
from .device import Device, find_device, on_host


class SignalEncoder:
    """Encoder of a recipe on a CUDA device, with the same bytes as the CPU.

    Made by :meth:`topsign.AdaptiveEncoder.to` and :meth:`topsign.TrellisEncoder.to`. Adaptive and sign codes need a
    Hadamard projection and are computed entirely on the device. Trellis codes can have any basis: the CPU projects the
    signals, and the device runs the Viterbi algorithm.

    Parameters
    ----------
    recipe : Recipe
    device : str
        "cuda", or "cuda:1" for the second GPU.
    feature_names : sequence of str, optional
        Required column names of tables, in order.
    """

    def __init__(
        self, recipe: Recipe, *, device: str | Device = "cuda", feature_names: Sequence[str] | None = None
    ) -> None:
        self.recipe, self.feature_names = recipe, feature_names
        self._device = find_device(device)
        self._coder = make_coder(recipe, self._device)

    @property
    def device(self) -> str:
        """Name of the device."""
        return self._device.name

    def encode(self, signals: npt.ArrayLike, *, n_threads: int | None = None) -> Codes:
        """Return one code per signal, with the bytes of the CPU encoder; signals may be CUDA tensors."""
        values = as_signals(on_host(signals), n_features=self.recipe.n_features, feature_names=self.feature_names)
        made = encode(self.recipe, values, n_threads=n_threads, coder=self._coder)
        return self.recipe.codes_type.unchecked(made.codes, self.recipe, made.columns)

    def __repr__(self) -> str:
        return f"SignalEncoder({self.recipe.family} codes of {self.recipe.n_features} features on {self.device})"
