"""The content check of packed codes: every loader of bytes from outside calls it."""

from __future__ import annotations

import numpy as np

from .. import kernels
from .._arrays import Booleans, Bytes
from ..kernels import Layout

CHECKED_CODES = 2**14  # at a time, so that little besides the codes is held


def check_content(layout: Layout, codes: Bytes, *, name: str = "data") -> None:
    """Raises ValueError, naming the first row, unless all rows are codes of this layout, packed as we pack them."""
    width = layout.code_bytes
    if codes.dtype != np.uint8 or codes.ndim != 2 or codes.shape[1] != width:
        raise ValueError(
            f"{layout.name} codes with n_bits={layout.n_bits}, n_pool={layout.n_pool} must be uint8 of shape "
            f"(n_codes, {width}), got dtype {codes.dtype} and shape {codes.shape}"
        )
    for start in range(0, len(codes), CHECKED_CODES):
        bad = np.flatnonzero(~_valid(layout, np.ascontiguousarray(codes[start : start + CHECKED_CODES])))
        if bad.size:
            raise ValueError(
                f"{name} is not a packed code at row {start + bad[0]} ({bad.size} such rows): its bytes are not "
                f"{layout.n_bits} ascending locations in the {layout.name} layout"
            )


def _valid(layout: Layout, codes: Bytes) -> Booleans:
    """Whether each row unpacks to ascending locations that pack to the same bytes."""
    if layout.name == "signs":
        unused = 8 * layout.sign_bytes - layout.n_bits
        valid: Booleans = codes[:, -1] >> (8 - unused) == 0 if unused else np.ones(len(codes), bool)
        return valid
    unpacked = kernels.active().unpack_codes(layout, codes)
    ascending = (np.diff(unpacked[0]) > 0).all(axis=1)
    same = (kernels.active().pack_codes(layout, *unpacked) == codes).all(axis=1)
    return np.asarray(ascending & same)
