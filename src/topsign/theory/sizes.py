"""Sizes of adaptive codes: information content, and bytes in the compact layout."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from .._checks import check_pool


def storage_bits(*, n_bits: int, n_pool: int) -> float:
    """Information content of one adaptive code in bits: its signs and its set of locations.

    Exact: ``n_bits + log2(C(n_pool, n_bits))``, Section III-A of the paper.

    >>> round(storage_bits(n_bits=512, n_pool=8192), 1)
    3269.3
    """
    n_bits, n_pool = check_pool(n_bits, n_pool)
    log_choices = gammaln(n_pool + 1) - gammaln(n_bits + 1) - gammaln(n_pool - n_bits + 1)
    return float(n_bits + log_choices / np.log(2))


def compact_bytes(n_bits: int, n_pool: int) -> int:
    """Bytes of one code in the compact layout, without its norm and scale.

    Exact: the signs, the low bits of each location, and the high bits in unary (Elias-Fano) or as a bitmap of the
    pool. Each part is padded to whole bytes, and the number of low bits minimises the total.

    >>> compact_bytes(512, 8192)
    448
    """
    return min(_bytes_with(low_bits, n_bits, n_pool) for low_bits in range(n_pool.bit_length()))


def _bytes_with(low_bits: int, n_bits: int, n_pool: int) -> int:
    high_bits = n_pool if low_bits == 0 else n_bits + ((n_pool - 1) >> low_bits)
    return -(-n_bits // 8) - (-n_bits * low_bits // 8) - (-high_bits // 8)
