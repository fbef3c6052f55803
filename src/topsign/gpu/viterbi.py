"""Encoding of trellis codes on a device: coordinates in, the bytes of the processor out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .._arrays import Bytes, Float32
from ..kernels import TrellisSignals, TrellisTables
from ..kernels.trellis import DEPTH, N_SEQUENCES, Events, trellis_levels
from .device import Array, Device
from .rings import LEVELS, shared_module

UInt32 = npt.NDArray[np.uint32]

NONE = 0xFFFFFFFF
STATES_PER_THREAD = 8
MAX_THREADS = 256
CHUNK_BYTES = 2**28  # of coordinates that are on the device at a time, and of choices; less where little is free


class Viterbi:
    """The encoder of :class:`topsign.kernels.Kernels` on a device, with the same bytes.

    A block of threads encodes a signal: costs of states are in shared memory, choices in the card's.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._module = shared_module(device, "viterbi.cu")
        self._levels = device.put(trellis_levels().view(np.uint8))
        self._trellises: dict[TrellisTables, _Trellis] = {}

    def trellis_encode(self, cells: Sequence[TrellisSignals], *, n_threads: int = 1) -> Bytes:
        """Return the codes of the signals of all cells; ``n_threads`` is the processor's and not used."""
        codes = np.empty((sum(len(cell.values) for cell in cells), cells[0].tables.code_bytes), np.uint8)
        for cell in cells:
            made = self._encode_cell(cell.tables, cell.values)
            if cell.mark:
                made[:, cell.tables.n_bits // 8] |= np.uint8(cell.mark)
            codes[slice(None) if cell.rows is None else cell.rows] = made
        return codes

    def _encode_cell(self, tables: TrellisTables, values: Float32) -> Bytes:
        codes = np.empty((len(values), tables.code_bytes), np.uint8)
        room = min(CHUNK_BYTES, self.device.free_bytes() // 4)
        size = max(1, room // (4 * tables.n_coded))
        for start in range(0, len(values), size):
            rows = slice(start, start + size)
            codes[rows] = self._encode(tables, values[rows], room)
        return codes

    def _encode(self, tables: TrellisTables, values: Float32, room: int) -> Bytes:
        device, n_states = self.device, 2**tables.window
        with device.stream_of(self._levels):
            trellis = self._trellis(tables)
            threads, shared = min(MAX_THREADS, max(32, n_states // STATES_PER_THREAD)), 6 * n_states + LEVELS
            resident = self._module.resident_blocks("viterbi", threads, shared) * device.n_processors
            coordinates = device.put(values)
            blocks = min(len(values), resident, max(1, room // (4 * trellis.work_words)))
            work = device.empty((blocks * trellis.work_words,), np.uint32)
            codes = device.empty((len(values), tables.code_bytes), np.uint8)
            self._module.launch(
                "viterbi",
                blocks,
                threads,
                trellis.events,
                trellis.coordinates,
                trellis.sources,
                self._levels,
                np.uint32(trellis.n_events),
                np.uint32(tables.window),
                np.uint32(tables.n_coded),
                np.uint32(tables.code_bytes),
                np.uint32(DEPTH * tables.window),
                np.float32(tables.limit),
                coordinates,
                np.uint32(len(values)),
                work,
                np.uint64(trellis.work_words),
                codes,
                shared=shared,
            )
            return device.get(codes)

    def _trellis(self, tables: TrellisTables) -> _Trellis:
        if tables not in self._trellises:
            self._trellises[tables] = _Trellis.put(self.device, tables)
        return self._trellises[tables]


@dataclass(frozen=True, eq=False)
class _Trellis:
    """Tables of a trellis on a device, as ``cuda/viterbi.cu`` describes them."""

    events: Array
    coordinates: Array
    sources: Array
    n_events: int
    work_words: int  # of the choices and the path of one signal

    @classmethod
    def put(cls, device: Device, tables: TrellisTables) -> _Trellis:
        events, choice_words = event_table(tables)
        return cls(
            device.put(events),
            device.put(cost_table(tables)),
            device.put(source_table(tables)),
            len(events),
            choice_words + len(events),
        )


def event_table(tables: TrellisTables) -> tuple[UInt32, int]:
    """First and last coordinates of events, their advances and places of choices, (n_events, 4); words of choices."""
    starts, ends, _, advances = Events.of(tables)
    words = advances * (np.maximum(2**tables.window >> advances, 32) // 32)
    return np.stack([starts, ends, advances, np.cumsum(words) - words], axis=1).astype(np.uint32), int(words.sum())


def cost_table(tables: TrellisTables) -> UInt32:
    """How coordinates scramble windows, their squares, shifts and scales, (n_coded, 4)."""
    turn = np.arange(tables.n_coded) % N_SEQUENCES
    multipliers, addends = (values[turn].astype(np.uint32) for values in tables.sequences)
    shifts = tables.square_shifts | tables.shifts << 8
    columns = addends << np.uint32(16) | multipliers, tables.squares, shifts, tables.scales.view(np.uint32)
    return np.stack([column.astype(np.uint32) for column in columns], axis=1)


def source_table(tables: TrellisTables) -> UInt32:
    """For each bit of a code 16 times an event that reads it plus its place in the state there; NONE for none."""
    sources = np.full(8 * tables.code_bytes, NONE, np.uint32)
    offsets = Events.of(tables).offsets
    for place in range(tables.window):
        # Where several events read a bit, they agree about it.
        sources[(offsets + place) % tables.n_bits] = 16 * np.arange(len(offsets)) + tables.window - 1 - place
    return sources
