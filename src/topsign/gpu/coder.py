"""Coders: encode blocks of signals on a device, called by the loop of :mod:`topsign.encoding`."""

from __future__ import annotations

from collections.abc import Callable

from ..encoding import Coder
from ..families import AdaptiveRecipe, Encoded, Recipe, SignRecipe, TrellisRecipe
from ..families.adaptive import SignsRecipe
from ..projections.blocks import Block
from .device import Device, find_device
from .encoding import GpuEncoder
from .viterbi import Viterbi


class SignsCoder:
    """Coder of adaptive and sign codes: the device projects signals and packs codes."""

    def __init__(self, recipe: SignsRecipe, device: Device) -> None:
        self._recipe, self._device = recipe, device
        self._encoder = GpuEncoder(recipe.projection, recipe.layout, device=device)

    def encode(self, block: Block, *, n_threads: int = 1) -> Encoded:
        signals = self._device.put(block.values)
        with self._device.stream_of(signals):
            codes, totals = self._encoder.pack(signals)
            return self._recipe.with_columns(block, self._device.get(codes), self._device.get(totals))


class TrellisCoder:
    """Coder of trellis codes: the CPU projects signals, the device runs the Viterbi algorithm."""

    def __init__(self, recipe: TrellisRecipe, device: Device) -> None:
        self._recipe, self._viterbi = recipe, Viterbi(device)

    def encode(self, block: Block, *, n_threads: int = 1) -> Encoded:
        return self._recipe.encode(block, n_threads=n_threads, coder=self._viterbi)


CODERS: dict[type[Recipe], Callable[..., Coder]] = {
    AdaptiveRecipe: SignsCoder,
    SignRecipe: SignsCoder,
    TrellisRecipe: TrellisCoder,
}
"""Coders by type of recipe."""


def make_coder(recipe: Recipe, device: str | Device) -> Coder:
    """Return a coder for this recipe; raise TypeError if there is none."""
    return _coder_type(type(recipe))(recipe, find_device(device))


def check_coder(recipe: Recipe | type[Recipe], device: str | Device) -> None:
    """Raise unless the device exists and encodes this recipe, or recipes of this type before one is learned."""
    if isinstance(recipe, type):
        find_device(device)
        _coder_type(recipe)
    else:
        make_coder(recipe, device)


def _coder_type(recipe_type: type[Recipe]) -> Callable[..., Coder]:
    found = CODERS.get(recipe_type)
    if found is None:
        supported = ", ".join(known.family for known in CODERS)
        raise TypeError(
            f"a GPU makes codes of the families {supported}, got {recipe_type.__name__}, a recipe of "
            f"{recipe_type.family} codes; encode on the CPU, without a device"
        )
    return found
