"""Viterbi encoding of trellis codes on a device, with the bytes of the CPU."""

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
HELD_BITS = 5  # bits of a state that select the register of its cost
STEP_COORDINATES = 4  # maximum per step
THREADS = 128
SIGNALS = 2  # per thread
WORK_BYTES = 2**30  # GPU memory for encoding; less if little is free


class Viterbi:
    """Encoder on a device, with the interface and the bytes of :class:`topsign.kernels.Kernels`.

    Costs of states are in registers, decisions in GPU memory. The next batch of signals is copied while one is encoded.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._levels = device.put(trellis_levels().view(np.uint8))
        self._trellises: dict[TrellisTables, _Trellis] = {}

    def trellis_encode(self, cells: Sequence[TrellisSignals], *, n_threads: int = 1) -> Bytes:
        """Return the codes of the signals of all cells; ``n_threads`` is not used."""
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
            device.wait()  # memory freed by earlier work may still be in use
            encoded: tuple[slice, Array] | None = None
            for number, start in enumerate(range(0, len(values), size)):
                rows = slice(start, min(start + size, len(values)))
                here = buffers[number % 2][: rows.stop - start]
                with device.background():  # while the previous batch is encoded
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
    """A trellis on a device: the tables that ``cuda/viterbi.cu`` describes, and the launches of its kernels."""

    def __init__(self, device: Device, tables: TrellisTables, levels: Array) -> None:
        self._device, self._tables, self._plan = device, tables, ViterbiSteps.of(tables)
        n_states = 2**tables.window
        self._sharers = max(1, n_states >> HELD_BITS)  # threads per signal
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
        """Return the signals per batch that fit in a number of bytes, in whole waves of blocks."""
        each = len(self._plan.events) * (4 * self._sharers + 2) + 4 * len(self._plan.pairs) + 4 * self._tables.n_coded
        fitting = max(1, int(room // each))
        resident = self._module.resident_blocks("forwards", THREADS, self._shared) * self._device.n_processors
        wave = resident * self._block_signals
        return fitting // wave * wave or fitting

    def encode(self, values: Array) -> Array:
        """Return the codes of signals (n_signals, n_coded) on the device; asynchronous."""
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
    """Steps of a trellis: events with many coordinates are divided into several steps."""

    steps: UInt32  # (n_steps, 4)
    events: UInt32  # advance | bits rotated after the event << 8
    pairs: UInt32  # first coordinate | 2**31 if there is a second one
    first_steps: npt.NDArray[np.int64]  # first step of each event, and the number of steps

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
    """Return 16 * event + bit of the state for each bit of a code, for an event that reads it; NONE if none does."""
    sources = np.full(8 * tables.code_bytes, NONE, np.uint32)
    offsets = Events.of(tables).offsets
    for place in range(tables.window):
        # If several events read a bit, their states agree.
        sources[(offsets + place) % tables.n_bits] = 16 * np.arange(len(offsets)) + tables.window - 1 - place
    return sources
