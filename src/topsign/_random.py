"""From ``random_state`` to one recorded integer seed, and from the seed to named streams of raw bits.

Only raw Philox words are used, never the distribution methods of NumPy, whose streams may change between
releases. Word j of stream (seed, name, index) is output j of Philox4x64-10 with key (seed, hash of name)
and counter (0, index, 0, 0): it depends on those alone, so a row of a matrix can be made again by itself.
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
    """One integer that stands for ``random_state``: itself, a draw from a Generator, or fresh entropy."""
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
    """The 64-bit number of a named stream: the first 8 bytes of SHA-256 of its name, little-endian."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def word_rows(seed: int, name: str, indices: npt.ArrayLike, count: int) -> npt.NDArray[np.uint64]:
    """The first ``count`` raw 64-bit words of several streams, one row each."""
    rows = np.asarray(indices, dtype=np.uint64)
    source = np.random.Philox(key=np.array([seed, stream_key(name)], dtype=np.uint64))
    start = source.state
    out = np.empty((len(rows), count), np.uint64)
    for row, index in zip(out, rows, strict=True):
        start["state"]["counter"] = np.array([0, index, 0, 0], dtype=np.uint64)
        source.state = start  # far cheaper than a new generator
        row[:] = source.random_raw(count)
    return out


def words(seed: int, name: str, index: int, count: int) -> npt.NDArray[np.uint64]:
    """The first ``count`` raw 64-bit words of a stream."""
    (row,) = word_rows(seed, name, [index], count)
    return row  # type: ignore[no-any-return]


def bits_from_words(raw: npt.NDArray[np.uint64], count: int) -> npt.NDArray[np.uint8]:
    """The first ``count`` bits of each row of words, packed little-endian; unused bits of the last byte are zero."""
    packed = raw.astype("<u8").view(np.uint8)[..., : -(-count // 8)].copy()
    if count % 8:
        packed[..., -1] &= (1 << count % 8) - 1
    return packed


def uniforms_from_words(raw: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Uniform values in (0, 1), never 0 or 1: the middles of 2**52 equal cells."""
    return ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def normals_from_words(raw: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Standard normal values, by the inverse of the normal CDF."""
    from scipy.special import ndtri  # takes longer to import than the rest of a head

    return ndtri(uniforms_from_words(raw))  # type: ignore[no-any-return]


def random_bits(seed: int, name: str, index: int, count: int) -> npt.NDArray[np.uint8]:
    """``count`` fair bits of a stream, packed."""
    return bits_from_words(words(seed, name, index, -(-count // 64)), count)


def uniforms(seed: int, name: str, index: int, count: int) -> npt.NDArray[np.float64]:
    """``count`` uniform values of a stream."""
    return uniforms_from_words(words(seed, name, index, count))


def normals(seed: int, name: str, index: int, count: int) -> npt.NDArray[np.float64]:
    """``count`` standard normal values of a stream."""
    return normals_from_words(words(seed, name, index, count))


def subset(seed: int, name: str, index: int, *, size: int, of: int) -> npt.NDArray[np.int64]:
    """A random subset of range(of), ascending: the places of the ``size`` smallest words of a stream."""
    order = np.argsort(words(seed, name, index, of), kind="stable")
    return np.sort(order[:size]).astype(np.int64)
