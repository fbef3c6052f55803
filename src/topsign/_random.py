"""Seeds, and named random streams derived from a seed.

Streams use raw Philox words, not NumPy's distribution methods, whose output may change between releases. Word j of
stream (seed, name, index) is output j of Philox4x64-10 with key (seed, hash of name) and counter (0, index, 0, 0). It
depends on nothing else, so single rows of a matrix can be generated again.
"""

from __future__ import annotations

import hashlib
import secrets

import numpy as np
import numpy.typing as npt

from ._checks import check_count

RandomState = int | np.random.Generator | None

MAX_SEED = 2**64 - 1


def make_seed(random_state: RandomState) -> int:
    """Convert ``random_state`` to an integer seed: the integer itself, a draw from a Generator, or fresh entropy."""
    if random_state is None:
        return secrets.randbits(63)
    if isinstance(random_state, np.random.Generator):
        high, low = (int(word) & 0x7FFFFFFF for word in random_state.bit_generator.random_raw(2))
        return high << 31 | low
    if isinstance(random_state, np.random.RandomState):
        raise TypeError(
            "random_state must be None, an integer or a numpy.random.Generator, got a RandomState; "
            "use numpy.random.default_rng(seed) or the integer seed itself"
        )
    return check_count(random_state, "random_state", minimum=0, maximum=MAX_SEED)


def stream_key(name: str) -> int:
    """Return the 64-bit key of a named stream: the first 8 bytes of SHA-256 of its name, little-endian."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def word_rows(seed: int, name: str, indices: npt.ArrayLike, count: int) -> npt.NDArray[np.uint64]:
    """Return the first ``count`` raw 64-bit words of several streams, one row per stream."""
    rows = np.asarray(indices, dtype=np.uint64)
    source = np.random.Philox(key=np.array([seed, stream_key(name)], dtype=np.uint64))
    start = source.state
    out = np.empty((len(rows), count), np.uint64)
    for row, index in zip(out, rows, strict=True):
        start["state"]["counter"] = np.array([0, index, 0, 0], dtype=np.uint64)
        source.state = start  # much faster than a new generator
        row[:] = source.random_raw(count)
    return out


def words(seed: int, name: str, index: int, count: int) -> npt.NDArray[np.uint64]:
    """Return the first ``count`` raw 64-bit words of a stream."""
    (row,) = word_rows(seed, name, [index], count)
    return row  # type: ignore[no-any-return]


def bits_from_words(raw: npt.NDArray[np.uint64], count: int) -> npt.NDArray[np.uint8]:
    """Return the first ``count`` bits of each row of words, packed little-endian and padded with zeros."""
    packed = raw.astype("<u8").view(np.uint8)[..., : -(-count // 8)].copy()
    if count % 8:
        packed[..., -1] &= (1 << count % 8) - 1
    return packed


def uniforms_from_words(raw: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return uniform values in the open interval (0, 1): the midpoints of 2**52 equal cells."""
    return ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def normals_from_words(raw: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return standard normal values by the inverse of the normal CDF."""
    from scipy.special import ndtri  # slow to import

    return ndtri(uniforms_from_words(raw))  # type: ignore[no-any-return]


def random_bits(seed: int, name: str, index: int, count: int) -> npt.NDArray[np.uint8]:
    """Return ``count`` fair bits of a stream, packed."""
    return bits_from_words(words(seed, name, index, -(-count // 64)), count)


def uniforms(seed: int, name: str, index: int, count: int) -> npt.NDArray[np.float64]:
    """Return ``count`` uniform values of a stream."""
    return uniforms_from_words(words(seed, name, index, count))


def normals(seed: int, name: str, index: int, count: int) -> npt.NDArray[np.float64]:
    """Return ``count`` standard normal values of a stream."""
    return normals_from_words(words(seed, name, index, count))


def subset(seed: int, name: str, index: int, *, size: int, of: int) -> npt.NDArray[np.int64]:
    """Return a random subset of range(of), ascending: the indices of the ``size`` smallest words of a stream."""
    order = np.argsort(words(seed, name, index, of), kind="stable")
    return np.sort(order[:size]).astype(np.int64)
