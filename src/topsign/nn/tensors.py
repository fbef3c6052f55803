"""Kernels as PyTorch operations, for tensors of any device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..kernels import Layout
from ..kernels.layout import BLOCK_ROWS


def rotate(signals: Tensor, signs: Tensor) -> Tensor:
    """As in :class:`topsign.kernels.interface.Kernels`, with signs (n_rounds, n_features) of +-1: the same bits."""
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
    """The first ``count`` bits of each row of bytes, as 0 or 1."""
    shifts = torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed.unsqueeze(2) >> shifts) & 1).flatten(1)[:, :count]


def unpack_codes(layout: Layout, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Locations (int64) and signs (float32, +-1) of codes, both (n_codes, n_bits)."""
    order = torch.arange(layout.n_bits, device=codes.device)
    if layout.name == "fast":
        ends = codes[:, : layout.n_blocks].long().cumsum(1)
        tail = codes[:, layout.n_blocks :].long()
        blocks = torch.searchsorted(ends, order.expand(len(codes), -1).contiguous(), right=True)
        return blocks * BLOCK_ROWS + (tail & 15) * 8 + (tail >> 4 & 7), (tail >> 7).float() * 2 - 1
    low, high = layout.sign_bytes, layout.sign_bytes + layout.low_bytes
    signs, lows, highs = codes[:, :low], codes[:, low:high], codes[:, high:]
    # Where the bits are, by their counts: nonzero() would wait for the device, which a CUDA graph cannot.
    counts = unpack_bits(highs, layout.high_size).cumsum(1, dtype=torch.int32)
    places = torch.searchsorted(counts, (order + 1).int().expand(len(codes), -1).contiguous())
    if layout.low_bits:
        digits = unpack_bits(lows, layout.n_bits * layout.low_bits).view(len(codes), layout.n_bits, layout.low_bits)
        powers = 2 ** torch.arange(layout.low_bits, device=codes.device)
        places = (places - order << layout.low_bits) + (digits * powers).sum(2)
    return places, unpack_bits(signs, layout.n_bits).float() * 2 - 1


def score_sums(layout: Layout, codes: Tensor, projected: Tensor) -> Tensor:
    """As in :class:`topsign.kernels.interface.Kernels`, within the rounding of a float32 matrix product."""
    locations, signs = unpack_codes(layout, codes)
    dense = torch.zeros(len(codes), layout.n_pool, device=codes.device).scatter_(1, locations, signs)
    return projected @ dense.T


def _walsh_hadamard(x: Tensor) -> Tensor:
    """Pairs at distance 1 first, then 2, 4, ..."""
    rows, n = x.shape
    step = 1
    while step < n:
        low, high = x.reshape(rows, n // (2 * step), 2, step).unbind(2)
        x = torch.stack([low + high, low - high], dim=2).reshape(rows, n)
        step *= 2
    return x
