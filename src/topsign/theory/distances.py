"""What a code costs."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from .._checks import check_pool


def storage_bits(*, n_bits: int, n_pool: int) -> float:
    """Bits one adaptive code costs: its signs and its set of locations.

    Exact: ``n_bits + log2(C(n_pool, n_bits))``, Section III-A of the paper.

    >>> round(storage_bits(n_bits=512, n_pool=8192), 1)
    3269.3
    """
    n_bits, n_pool = check_pool(n_bits, n_pool)
    log_choices = gammaln(n_pool + 1) - gammaln(n_bits + 1) - gammaln(n_pool - n_bits + 1)
    return float(n_bits + log_choices / np.log(2))
