"""Encoding of trellis codes on a device: coordinates in, the bytes of the processor out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .._arrays import Bytes, Float32
from ..kernels import TrellisSignals, TrellisTables
from ..kernels.trellis import DEPTH, N_SEQUENCES, Events, trellis_levels
from .device import Array, Device, Module

UInt32 = npt.NDArray[np.uint32]

NONE = 0xFFFFFFFF
HELD_BITS = 5  # of a state, that say which register of a thread holds its cost
STEP_COORDINATES = 4  # at most
THREADS = 128
SIGNALS = 2  # that a thread works on
WORK_BYTES = 2**30  # of what signals need on the device while they are encoded; less where little is free


class Viterbi:
    """The encoder of :class:`topsign.kernels.Kernels` on a device, with the same bytes.

    Costs of states are in registers, the choices of the cheapest in GPU memory. The device encodes a batch of signals
    while the next one is copied.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
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
        device = self.device
        with device.stream_of(self._levels):
            trellis = self._trellis(tables)
            size = min(trellis.batch(min(WORK_BYTES, device.free_bytes() // 4)), max(1, len(values)))
            buffers = [device.empty((size, tables.n_coded), np.float32) for _ in range(2 if size < len(values) else 1)]
            device.wait()  # memory that other work left may still be in use
            encoded: tuple[slice, Array] | None = None
            for number, start in enumerate(range(0, len(values), size)):
                rows = slice(start, min(start + size, len(values)))
                here = buffers[number % 2][: rows.stop - start]
                with device.background():  # while the batch before is encoded
                    device.copy(values[rows], here)
                    device.wait()
                if encoded is not None:
                    codes[encoded[0]] = device.get(encoded[1])
                encoded = rows, trellis.encode(here)
            if encoded is not None:
                codes[encoded[0]] = device.get(encoded[1])
        return codes

    def _trellis(self, tables: TrellisTables) -> _Trellis:
        if tables not in self._trellises:
            self._trellises[tables] = _Trellis(self.device, tables, self._levels)
        return self._trellises[tables]


class _Trellis:
    """A trellis on a device: tables as ``cuda/viterbi.cu`` describes them, and the launches of its kernels."""

    def __init__(self, device: Device, tables: TrellisTables, levels: Array) -> None:
        self._device, self._tables, self._plan = device, tables, ViterbiSteps.of(tables)
        n_states = 2**tables.window
        self._sharers = max(1, n_states >> HELD_BITS)  # threads that share a signal
        self._block_signals = SIGNALS * THREADS // self._sharers
        self._shared = 16 * n_states + 4 * THREADS // self._sharers * (n_states + n_states // 32)
        constants = {"TRELLIS": 1, "DIGITS": 1, "RING_BITS": 1, "WINDOW": tables.window}
        constants |= {"BLOCK": THREADS, "SIGNALS": SIGNALS}
        self._module: Module = device.module(("viterbi.cu",), constants)
        self._steps, self._pairs = device.put(self._plan.steps), device.put(self._plan.pairs)
        self._events, self._sources = device.put(self._plan.events), device.put(source_table(tables))
        self._coordinates = device.put(coordinate_costs(tables))
        self._costs = device.empty((len(self._plan.steps), n_states // 2, 4), np.uint32)
        self._module.launch(
            "cost_tables", len(self._plan.steps), THREADS, self._steps, self._coordinates, levels, self._costs
        )

    def batch(self, room: int) -> int:
        """Return the number of signals that are encoded together in so many bytes, in whole waves of blocks."""
        each = len(self._plan.events) * (4 * self._sharers + 2) + 4 * len(self._plan.pairs) + 4 * self._tables.n_coded
        fitting = max(1, int(room // each))
        resident = self._module.resident_blocks("forwards", THREADS, self._shared) * self._device.n_processors
        wave = resident * self._block_signals
        return fitting // wave * wave or fitting

    def encode(self, values: Array) -> Array:
        """Return the codes of signals on the device, (n_signals, n_coded) float32; it may still work on them."""
        device, module, tables, plan = self._device, self._module, self._tables, self._plan
        n, n_events = len(values), len(plan.events)
        targets = device.empty((n, len(plan.pairs)), np.uint32)
        module.launch(
            "round_targets",
            -(-n * len(plan.pairs) // THREADS),
            THREADS,
            values,
            self._coordinates,
            self._pairs,
            np.uint32(tables.n_coded),
            np.uint32(len(plan.pairs)),
            np.float32(tables.limit),
            np.uint32(n),
            targets,
        )
        choices = device.empty((n_events, n, self._sharers), np.uint32)
        path, states = device.empty((n_events, n), np.uint16), device.empty((n,), np.uint16)
        around = min(n_events, 2 * DEPTH * tables.window)
        closing = 0 if n_events == 1 else int(plan.events[0] & 255)
        for begin, count, until, first in (
            (n_events - around // 2, around, around // 2, None),
            (0, n_events, 0, states),
        ):
            begin_step, n_steps = plan.steps_of(begin % n_events, count)
            module.launch(
                "forwards",
                -(-n // self._block_signals),
                THREADS,
                self._steps,
                self._costs,
                np.uint32(len(plan.steps)),
                np.uint32(begin_step),
                np.uint32(n_steps),
                targets,
                np.uint32(len(plan.pairs)),
                np.uint32(n),
                first,
                np.uint32(0 if first is None else 2 ** (tables.window - closing) - 1),
                np.uint32(closing),
                choices,
                states,
                shared=self._shared,
            )
            module.launch(
                "backwards",
                -(-n // 64),
                64,
                self._events,
                np.uint32(n_events),
                np.uint32(begin),
                np.uint32(count),
                np.uint32(until),
                np.uint32(n),
                choices,
                states,
                path,
                states,
            )
        codes = device.empty((n, tables.code_bytes), np.uint8)
        blocks, sizes = -(-n * tables.code_bytes // THREADS), (np.uint32(n), np.uint32(tables.code_bytes))
        module.launch("write_codes", blocks, THREADS, self._sources, path, *sizes, codes)
        return codes


@dataclass(frozen=True, eq=False)
class ViterbiSteps:
    """Steps of a trellis: its events, of which those with many coordinates take several steps."""

    steps: UInt32  # (n_steps, 4)
    events: UInt32  # advance, and bits turned after the event << 8
    pairs: UInt32  # first coordinate, and 2**31 if there is a second one
    first_steps: npt.NDArray[np.int64]  # of each event, and the number of steps

    @classmethod
    def of(cls, tables: TrellisTables) -> ViterbiSteps:
        steps: list[tuple[int, int, int, int]] = []
        events, pairs, first_steps = list[int](), list[int](), [0]
        turned = 0
        held = min(HELD_BITS, tables.window)
        starts, ends, _, advances = Events.of(tables)
        every = zip(starts.tolist(), ends.tolist(), advances.tolist(), strict=True)
        for number, (start, end, advance) in enumerate(every):
            exchanges = number == 0 or turned + advance > held
            turned = 0 if advance > held else advance if exchanges else turned + advance
            events.append(advance | turned << 8)
            for first in range(start, end, STEP_COORDINATES):
                count = min(STEP_COORDINATES, end - first)
                joins = advance | exchanges << 8 if first == start else 0
                packed = joins | turned << 4 | count << 12 | int(tables.shifts[first]) << 16
                steps.append((first, number, len(pairs), packed))
                pairs += [at | (at + 1 < end) << 31 for at in range(first, first + count, 2)]
            first_steps.append(len(steps))
        packed_steps = np.array(steps, np.uint32)
        return cls(packed_steps, np.array(events, np.uint32), np.array(pairs, np.uint32), np.array(first_steps))

    def steps_of(self, begin: int, count: int) -> tuple[int, int]:
        """Return the first step of ``count`` events around the ring, and the number of their steps."""
        end = begin + count
        n_steps = self.first_steps[min(end, len(self.events))] - self.first_steps[begin]
        if end > len(self.events):
            n_steps += self.first_steps[end - len(self.events)]
        return int(self.first_steps[begin]), int(n_steps)


def coordinate_costs(tables: TrellisTables) -> UInt32:
    """Return scrambling constants, squares, shifts and scales of the coordinates, (n_coded, 4)."""
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
