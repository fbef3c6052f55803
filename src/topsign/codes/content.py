"""The content check of packed codes: every loader of bytes from outside calls it."""

from __future__ import annotations

import numpy as np

from .. import kernels
from .._arrays import Bytes
from ..kernels import Layout


def check_content(layout: Layout, codes: Bytes, *, name: str = "data") -> None:
    """Raises ValueError, naming the first row, unless all rows are codes of this layout, packed as we pack them."""
    width = layout.code_bytes
    if codes.dtype != np.uint8 or codes.ndim != 2 or codes.shape[1] != width:
        raise ValueError(
            f"{layout.name} codes with n_bits={layout.n_bits}, n_pool={layout.n_pool} must be uint8 of shape "
            f"(n_codes, {width}), got dtype {codes.dtype} and shape {codes.shape}"
        )
    if layout.name == "trellis":
        return  # any bits are a code
    valid = kernels.active().valid_codes(layout, np.ascontiguousarray(codes), n_threads=kernels.n_threads(None))
    bad = np.flatnonzero(~valid)
    if bad.size:
        raise ValueError(
            f"{name} is not a packed code at row {bad[0]} ({bad.size} such rows): its bytes are not "
            f"{layout.n_bits} ascending locations in the {layout.name} layout"
        )
