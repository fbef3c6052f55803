"""Blocks of signals to codes on a device, for the one loop of :mod:`topsign.encoding`."""

from __future__ import annotations

from .._arrays import Bytes, Float32, Float64
from ..kernels import TrellisTables
from ..recipe import Recipe
from .device import Device, find_device
from .encoding import GpuEncoder
from .viterbi import Viterbi


class GpuCoder:
    """Makes the codes of a recipe on a device: see :class:`topsign.encoding.Coder`.

    None stands for trellis codes whose recipe is still to be learned.
    """

    def __init__(self, recipe: Recipe | None, device: str | Device) -> None:
        self.device = find_device(device)
        self._viterbi: Viterbi | None = None
        self._adaptive: GpuEncoder | None = None
        if recipe is None or recipe.family == "trellis":
            self._viterbi = Viterbi(self.device)
        elif recipe.family == "adaptive":
            self._adaptive = GpuEncoder(recipe.projection, recipe.layout, device=self.device)
        else:
            raise TypeError(
                f"a GPU makes adaptive codes and trellis codes, got a recipe of {recipe.family} codes; encode on the "
                "processor, without a device"
            )

    def adaptive_encode(self, values: Float32) -> tuple[Bytes, Float64]:
        assert self._adaptive is not None
        signals = self.device.put(values)
        with self.device.stream_of(signals):
            codes, totals = self._adaptive.pack(signals)
            return self.device.get(codes), self.device.get(totals)

    def trellis_encode(self, tables: TrellisTables, values: Float32, *, n_threads: int = 1) -> Bytes:
        assert self._viterbi is not None
        return self._viterbi.trellis_encode(tables, values, n_threads=n_threads)
