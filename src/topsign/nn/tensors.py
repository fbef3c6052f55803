"""Kernels in PyTorch operations, for tensors on any device."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ..families import TrellisRecipe
from ..kernels import Layout, TrellisTables
from ..kernels.layout import BLOCK_ROWS
from ..kernels.trellis import N_SEQUENCES, norm_fractions, trellis_levels


def rotate(signals: Tensor, signs: Tensor) -> Tensor:
    """Return signals rotated by signs (n_rounds, n_features) of +-1, with the bits of the C++ kernels."""
    n = signals.shape[1]
    power = 1 << n.bit_length() - 1
    x = signals
    for number, flips in enumerate(signs):
        if power == n:
            x = _walsh_hadamard((x * (1 / math.sqrt(n)) if number else x) * flips)
            continue
        x = x * flips
        start = n - power if number % 2 else 0
        x[:, start : start + power] = _walsh_hadamard(x[:, start : start + power]) * (1 / math.sqrt(power))
        half = n // 2
        low, high = x[:, :half].clone(), x[:, n - half :].clone()
        x[:, :half] = (low + high) * math.sqrt(0.5)
        x[:, n - half :] = (low - high) * math.sqrt(0.5)
    return x if power == n else x * math.sqrt(n)


def unpack_bits(packed: Tensor, count: int) -> Tensor:
    """Return the first ``count`` bits of each row of bytes, as 0 or 1."""
    shifts = torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed.unsqueeze(2) >> shifts) & 1).flatten(1)[:, :count]


def unpack_codes(layout: Layout, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Return locations (int64) and signs (float32, +-1) of codes, both (n_codes, n_bits)."""
    if layout.name == "signs":
        every = torch.arange(layout.n_pool, device=codes.device).expand(len(codes), -1)
        return every, unpack_bits(codes, layout.n_pool).float() * 2 - 1
    order = torch.arange(layout.n_bits, device=codes.device)
    if layout.name == "fast":
        ends = codes[:, : layout.n_blocks].long().cumsum(1)
        tail = codes[:, layout.n_blocks :].long()
        blocks = torch.searchsorted(ends, order.expand(len(codes), -1).contiguous(), right=True)
        return blocks * BLOCK_ROWS + (tail & 15) * 8 + (tail >> 4 & 7), (tail >> 7).float() * 2 - 1
    low, high = layout.sign_bytes, layout.sign_bytes + layout.low_bytes
    signs, lows, highs = codes[:, :low], codes[:, low:high], codes[:, high:]
    # Cumulative counts locate the bits, because nonzero() would synchronize, which CUDA graphs do not allow.
    counts = unpack_bits(highs, layout.high_size).cumsum(1, dtype=torch.int32)
    locations = torch.searchsorted(counts, (order + 1).int().expand(len(codes), -1).contiguous())
    if layout.low_bits:
        digits = unpack_bits(lows, layout.n_bits * layout.low_bits).view(len(codes), layout.n_bits, layout.low_bits)
        powers = 2 ** torch.arange(layout.low_bits, device=codes.device)
        locations = (locations - order << layout.low_bits) + (digits * powers).sum(2)
    return locations, unpack_bits(signs, layout.n_bits).float() * 2 - 1


def score_sums(layout: Layout, codes: Tensor, projected: Tensor) -> Tensor:
    """Return the sums of projections with the signs of codes, up to the rounding of a float32 matrix product."""
    locations, signs = unpack_codes(layout, codes)
    dense = torch.zeros(len(codes), layout.n_pool, device=codes.device).scatter_(1, locations, signs)
    return projected @ dense.T


def _walsh_hadamard(x: Tensor) -> Tensor:
    """Return the transform of rows, by pairs at distance 1 first, then 2, 4, ..."""
    rows, n = x.shape
    step = 1
    while step < n:
        low, high = x.reshape(rows, n // (2 * step), 2, step).unbind(2)
        x = torch.stack([low + high, low - high], dim=2).reshape(rows, n)
        step *= 2
    return x


# Trellis codes of one cell


def round_queries(
    recipe: TrellisRecipe, rows: Tensor, project: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return rounded inputs for trellis codes: int8 values, scales and constants."""
    coded, values, mean = _rounding(recipe, rows.device)
    norms = rows.double().square().sum(1).sqrt()
    units = rows * torch.where(norms > 0, 1 / norms, 0.0).float().unsqueeze(1)
    projected = project(units)
    weighted = projected[:, coded].double() * values
    scales = weighted.abs().amax(1) / 127
    rounded = (weighted / torch.where(scales > 0, scales, 1.0).unsqueeze(1)).round().to(torch.int8)
    lengths = norms.float()
    constants = torch.zeros_like(lengths) if mean is None else (projected.double() @ mean).float()
    return rounded, scales.float() * lengths, constants * lengths


@lru_cache(maxsize=16)
def _rounding(recipe: TrellisRecipe, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the coded coordinates, their factors, and the projected mean if there is one."""
    (cell,) = recipe.cells
    root = np.sqrt(recipe.n_features)
    coded = torch.from_numpy(cell.design.coded.astype(np.int64)).to(device)
    values = torch.from_numpy(cell.design.values / root).to(device)
    if recipe.mean is None:
        return coded, values, None
    projected = recipe.projection.apply(recipe.mean[np.newaxis])[0].astype(np.float64)
    return coded, values, torch.from_numpy(projected / root).to(device)


def decode_levels(tables: TrellisTables, codes: Tensor) -> Tensor:
    """Return the levels of trellis codes, (n_codes, n_coded) int64."""
    shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=codes.device)
    bits = ((codes.unsqueeze(2) >> shifts) & 1).flatten(1)[:, : tables.n_bits].long()
    words = torch.zeros_like(bits)
    for offset in range(tables.window):
        words += bits.roll(-offset, 1) << 15 - offset
    turn = np.arange(tables.n_coded) % N_SEQUENCES
    multipliers, addends = (
        torch.from_numpy(values[turn].astype(np.int64)).to(codes.device) for values in tables.sequences
    )
    offsets = torch.from_numpy(tables.offsets.astype(np.int64)).to(codes.device)
    scrambled = words[:, offsets] * multipliers + addends & 0xFFFF
    return torch.from_numpy(trellis_levels()).to(codes.device).long()[scrambled >> 9]


def trellis_logits(tables: TrellisTables, codes: Tensor, rounded: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Return logits of trellis codes whose norms are scales, up to the rounding of a float32 matrix product."""
    values, scales, constants = rounded
    levels = decode_levels(tables, codes)
    quadratic, linear = (
        torch.from_numpy(one.astype(np.int64)).to(codes.device) for one in (tables.quadratic, tables.linear)
    )
    squares = (levels * (levels * quadratic + linear)).sum(1).float() * float(np.float32(tables.unit))
    squares = squares + float(np.float32(tables.constant))
    weights = torch.where(squares > 0, 1 / squares.sqrt(), 0.0)
    steps = codes[:, -2].long() | codes[:, -1].long() << 8
    fractions = torch.from_numpy(norm_fractions()).to(codes.device)[steps & 0x1FF]
    norms = torch.where(steps > 0, torch.ldexp(fractions, (steps >> 9) - 64), 0.0)
    sums = values.float() @ levels.float().T
    return (sums * scales.unsqueeze(1) + constants.unsqueeze(1)) * (weights * norms)
