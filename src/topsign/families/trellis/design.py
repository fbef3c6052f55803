"""Design of a trellis code: bit allocation, windows and reconstruction levels of the coordinates."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..._arrays import Array, Float32, Float64
from ..._checks import check_count, check_flag
from ..._files import Record
from ...kernels.trellis import MAX_LEVEL, N_LEVELS, TrellisTables, level_rms, quantiles

MAX_SHARING = 128  # maximum number of coordinates per window
MAX_SPREAD = 2.0**29  # maximum difference of path costs, which are compared modulo 2**32
MIN_WINDOW, MAX_WINDOW = 4, 12
MAX_BITS = 2**24
OUTLIER = 8.0  # standard deviations at which the encoder clips a coordinate
FEW = 8  # designs are fine if at most this many coordinates hold half of the variance
MAX_FINE, MAX_FINE_BITS = 2**16, 6  # maximum coordinates of a fine design, and maximum bits of the second digit
WELL_CODED = 3.0  # bits from which the levels of a coordinate are widened in a fine design
COARSEST = 4.0  # maximum factor by which rounding units of squared-norm coefficients grow for the mean's coefficients
WIDTHS = 2.0 ** (np.arange(21) / 8)  # candidate factors of amplitudes


@dataclass(frozen=True, eq=False)
class TrellisDesign:
    """Allocation of a ring of bits to coordinates by their variances.

    ``coded`` lists the coordinates that get bits, in the order of their windows. ``amplitudes`` are the standard
    deviations of their reconstructions, ``gains`` their factors in scores, and ``emphases`` the weights of their errors
    in the encoder. All of them are stored, so that decoding does not depend on floating-point functions.

    ``fine`` designs are for signals with nearly all variance in few coordinates. Their levels extend into the
    tails (see :meth:`widened`), squared norms are rounded more finely, and queries have two digits.
    """

    n_bits: int
    window: int
    coded: Array  # (n_coded,) int32
    offsets: Array  # (n_coded,) int32, ascending
    amplitudes: Float32
    gains: Float32
    emphases: Float32
    deviations: Float32  # standard deviations of the coordinates themselves
    fine: bool = False

    @property
    def n_coded(self) -> int:
        """Number of coded coordinates."""
        return len(self.coded)

    @property
    def values(self) -> Float64:
        """Value of a level of one in each coded coordinate, including gains."""
        return self.amplitudes.astype(np.float64) * self.gains / level_rms()

    @property
    def fine_bits(self) -> int:
        """Bits of the second digit of queries such that sums fit 32 bits, or 0 for one digit."""
        room = (2**31 - 1) // (MAX_LEVEL**2 * self.n_coded)
        return min(MAX_FINE_BITS, room.bit_length() - 1) if self.fine else 0

    @property
    def is_steep(self) -> bool:
        """Return whether few coordinates hold most of the variance and have many bits."""
        spread = np.sort(self.deviations.astype(np.float64) ** 2)[::-1]
        few = 2 * spread[:FEW].sum() >= spread.sum() and self.n_coded <= MAX_FINE
        return bool(few and self._rates().max() >= WELL_CODED)

    def widened(self, coordinates: Float32) -> TrellisDesign:
        """Return a fine design, with amplitudes optimised on a sample of coordinates, (n_signals, n_coded).

        The largest level is 2.65 amplitudes. If a coordinate has many bits, clipping beyond this level causes most of
        its error. A coordinate of r >= 3 bits is modelled as rounded to 2**r quantiles, and gets the amplitude with the
        least error on the sample.
        """
        amplitudes, rates = self.amplitudes.copy(), self._rates()
        for i in np.flatnonzero(rates >= WELL_CODED):
            levels = quantiles(min(N_LEVELS, round(2.0 ** rates[i]))) * amplitudes[i]
            amplitudes[i] *= _best_width(levels, coordinates[:, i].astype(np.float64))
        return replace(self, amplitudes=amplitudes, fine=True)

    def _rates(self) -> Float64:
        """Bits of each coded coordinate, at most 8, for amplitudes that are not widened."""
        lost = 1 - (self.amplitudes.astype(np.float64) / self.deviations) ** 2
        return np.asarray(-np.log2(np.clip(lost, 2.0**-16, 1)) / 2)

    def tables(self, middle: Float64, constant: float, code_bytes: int) -> TrellisTables:
        """Return the kernel tables for a mean with these coded coordinates and this squared norm."""
        shifts, scales, squares, square_shifts = _integer_costs(self)
        values = self.values
        norm, rest = (_fine_norm if self.fine else _integer_norm)(values**2, 2 * values * middle)
        return TrellisTables(
            n_bits=self.n_bits,
            window=self.window,
            code_bytes=code_bytes,
            offsets=np.ascontiguousarray(self.offsets, np.int32),
            scales=scales,
            squares=squares,
            square_shifts=square_shifts,
            shifts=shifts,
            limit=2**15 - 1,
            **norm,
            constant=constant + rest,
            fine_bits=self.fine_bits,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all stored arrays."""
        return sum(int(getattr(self, name).nbytes) for name in _ARRAYS)

    def to_json(self) -> Record:
        """Return a record of plain values, from which :meth:`from_json` makes an equal design."""
        sizes = {"n_bits": self.n_bits, "window": self.window, "n_coded": self.n_coded, "fine": self.fine}
        return sizes | {name: pack_array(getattr(self, name)) for name in _ARRAYS}

    @classmethod
    def from_json(cls, record: Record, n_features: int) -> TrellisDesign:
        """Return the design of a JSON record; raise ValueError, KeyError or TypeError if it is invalid."""
        n_bits, window = check_trellis(record["n_bits"], record["window"])
        n_coded = check_count(record["n_coded"], "n_coded", maximum=min(n_features, MAX_SHARING * n_bits))
        arrays = {name: unpack_array(record[name], dtype, n_coded) for name, dtype in _ARRAYS.items()}
        coded, offsets = arrays["coded"], arrays["offsets"]
        if len(np.unique(coded)) < n_coded or coded.min() < 0 or coded.max() >= n_features:
            raise ValueError(f"coded must be different coordinates below {n_features}")
        if offsets[0] < 0 or (np.diff(offsets) < 0).any() or offsets[-1] >= n_bits:
            raise ValueError(f"offsets must ascend below {n_bits}")
        if np.unique(offsets, return_counts=True)[1].max() > 2 * MAX_SHARING:
            raise ValueError(f"at most {2 * MAX_SHARING} coordinates may read one window")
        for name in ("amplitudes", "gains", "emphases", "deviations"):
            if not (np.isfinite(arrays[name]) & (arrays[name] > 0) & (arrays[name] < 1e6)).all():
                raise ValueError(f"{name} must be positive and finite")
        fine = check_flag(record["fine"], "fine")
        if fine and n_coded > MAX_FINE:
            raise ValueError(f"fine designs have at most {MAX_FINE} coordinates, got n_coded={n_coded}")
        return cls(n_bits=n_bits, window=window, fine=fine, **arrays)


_ARRAYS = {
    "coded": "i4",
    "offsets": "i4",
    "amplitudes": "f4",
    "gains": "f4",
    "emphases": "f4",
    "deviations": "f4",
}


def check_trellis(n_bits: object, window: object) -> tuple[int, int]:
    """Check the bits of a ring and of a window; a ring holds at least two windows."""
    window = check_count(window, "window", minimum=MIN_WINDOW, maximum=MAX_WINDOW)
    n_bits = check_count(n_bits, "n_bits", maximum=MAX_BITS)
    if n_bits < 2 * window:
        raise ValueError(
            f"a trellis code needs two windows of bits, 2 * {window}, got n_bits={n_bits}; "
            "raise n_bytes, or take a smaller window"
        )
    return n_bits, window


def design_trellis(
    variances: Float64, *, n_bits: int, window: int, emphasis: float = 0.25, sharpening: float = 0.35
) -> TrellisDesign:
    """Allocate ``n_bits`` bits to coordinates by reverse water-filling of their variances.

    Errors are weighted by ``(variance / largest) ** emphasis``. In scores, coordinates are multiplied by
    ``(amplitude**2 / variance) ** -sharpening``, because coarse quantisation shrinks coordinates too much for ranking.
    Both increase the measured recall; for equal variances neither has an effect.
    """
    largest = float(variances.max())
    weights = (np.maximum(variances, 0) / largest) ** emphasis
    from ...theory.water_filling import water_filling  # SciPy, which the theory needs, takes long to import

    _, rates = water_filling(variances * weights, n_bits)
    first = np.argsort(-rates, kind="stable")[: min(np.count_nonzero(rates), MAX_SHARING * n_bits)]
    coded = _shuffled(np.sort(first))
    level, chosen = water_filling((variances * weights)[coded], n_bits)
    ends = np.cumsum(chosen)
    offsets = np.floor((ends - chosen) * (n_bits / ends[-1])).astype(np.int32) % n_bits
    if chosen.min() == chosen.max():
        offsets = (np.arange(len(coded), dtype=np.int64) * n_bits // len(coded)).astype(np.int32)
    spread = variances[coded]
    # Rounded to grids, so that the last digit of a logarithm cannot change bytes or fingerprints.
    share = np.round(np.maximum(1 - level / (spread * weights[coded]), 2.0**-12) * 2**16) / 2**16
    return TrellisDesign(
        n_bits=n_bits,
        window=window,
        coded=coded.astype(np.int32),
        offsets=offsets,
        amplitudes=np.sqrt(spread * share).astype(np.float32),
        gains=(np.round(np.maximum(share, 0.05) ** -sharpening * 2**12) / 2**12).astype(np.float32),
        emphases=weights[coded].astype(np.float32),
        deviations=np.sqrt(spread).astype(np.float32),
    )


def _best_width(levels: Float64, values: Float64) -> float:
    """Return the scale of the levels that minimises the error of rounding these values to the nearest level."""
    borders = (levels[1:] + levels[:-1]) / 2
    errors = [((values - width * levels[np.searchsorted(width * borders, values)]) ** 2).sum() for width in WIDTHS]
    return float(WIDTHS[np.argmin(errors)])


def _shuffled(coordinates: Array) -> Array:
    """Return a fixed permutation with distant neighbours, by fractional parts of multiples of the golden ratio."""
    keys = np.arange(1, len(coordinates) + 1, dtype=np.uint64) * np.uint64(2654435769) % 2**32
    return coordinates[np.argsort(keys, kind="stable")]


def _integer_costs(design: TrellisDesign) -> tuple[Array, Float32, Array, Array]:
    """Return integer costs as fine as 32 bits permit: shifts, target scales, squares and their shifts."""
    values = design.amplitudes.astype(np.float64) / level_rms()
    weights = design.emphases.astype(np.float64)
    slopes, curves = 2 * weights * values, weights * values**2
    reach = slopes * np.maximum(OUTLIER * design.deviations, MAX_LEVEL * values)  # of a target, before it is scaled
    ranges = 2 * reach * MAX_LEVEL + curves * MAX_LEVEL**2
    starts = np.flatnonzero(np.diff(design.offsets, prepend=-1))
    by_event = np.add.reduceat(ranges, starts)
    # Path costs differ by at most the cost of the events of one window and one more.
    offsets = design.offsets[starts].astype(np.int64)
    around = np.append(offsets, offsets + design.n_bits)
    totals = np.append(0, np.cumsum(np.append(by_event, by_event)))
    last = np.searchsorted(around, offsets + design.window + 1)
    worst = (totals[np.minimum(last + 1, len(around))] - totals[: len(offsets)]).max()
    unit = 2.0 ** np.floor(np.log2(MAX_SPREAD / worst))
    largest = np.maximum.reduceat(reach, starts) * unit
    shifts = np.maximum(0, np.frexp(largest / (2**15 - 1))[1])
    event = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(values))))
    square_shifts = np.clip(16 - np.frexp(curves * unit)[1], 0, 24)
    return (
        shifts[event].astype(np.int32),
        (slopes * unit * 2.0 ** -shifts[event]).astype(np.float32),
        np.round(curves * unit * 2.0**square_shifts).astype(np.int32),
        square_shifts.astype(np.int32),
    )


def _integer_norm(quadratic: Float64, linear: Float64) -> tuple[dict[str, Any], float]:
    """Return coefficients of the squared norm in 16 bits with 32-bit sums, their unit, and a zero remainder."""
    worst = float((MAX_LEVEL**2 * quadratic + MAX_LEVEL * np.abs(linear)).sum())
    unit = max(worst / 2**30, float(quadratic.max()) / 2**14, float(np.abs(linear).max()) / 2**14)
    rounded = np.maximum(np.rint(quadratic / unit), quadratic >= unit / 8).astype(np.int16)
    # Equal coefficients have equal rounding errors.
    kept = float(rounded.sum(dtype=np.int64) * unit / quadratic.sum())
    if MAX_LEVEL**2 * quadratic.sum() > 8 * 2**30 * quadratic.max():
        raise ValueError(
            f"trellis codes take at most {8 * 2**30 // MAX_LEVEL**2:,} coordinates of equal variance, because norms "
            f"are summed in 32 bits, got {len(quadratic):,}; use adaptive codes (AdaptiveIndex), or reduce the number "
            "of features first"
        )
    if kept == 0 or (kept > COARSEST and linear.any()):
        raise ValueError(
            "the signals' mean is too large compared with their deviations from it for codes relative to the mean; "
            'subtract the mean from signals and queries first, or use basis="principal"'
        )
    return {"quadratic": rounded, "linear": np.rint(linear / unit * kept).astype(np.int32), "unit": unit / kept}, 0.0


def _fine_norm(quadratic: Float64, linear: Float64) -> tuple[dict[str, Any], float]:
    """Return coefficients with linear terms of up to 22 bits, and the mean rounding error as the remainder."""
    worst = float((MAX_LEVEL**2 * quadratic + 2 * MAX_LEVEL * np.abs(linear)).sum())
    most = float(quadratic.max()) / (2**15 - 1), float(np.abs(linear).max()) / 2**22
    unit = max(worst / (2**31 - 2**14 * len(linear)), *most)  # rounded up, all of them too fit
    rounded = np.rint(quadratic / unit)
    rest = float((quadratic - rounded * unit).sum()) * level_rms() ** 2
    coefficients = {"quadratic": rounded.astype(np.int16), "linear": np.rint(linear / unit).astype(np.int32)}
    return coefficients | {"unit": unit}, rest


def pack_array(values: Array) -> str:
    """Encode an array as base64 of its little-endian bytes, uncompressed because fingerprints cover it."""
    return base64.b64encode(values.astype(values.dtype.newbyteorder("<")).tobytes()).decode()


def unpack_array(text: object, dtype: str, length: int) -> Array:
    """Decode an array from base64; raise ValueError if it is invalid."""
    if not isinstance(text, str):
        raise ValueError(f"a packed array must be text, got {type(text).__name__}")
    size = length * np.dtype(dtype).itemsize
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"a packed array cannot be read: {error}") from None
    if len(raw) != size:
        raise ValueError(f"a packed array must have {length} values of {dtype}, got {len(raw)} bytes")
    return np.frombuffer(raw, np.dtype(dtype).newbyteorder("<")).astype(dtype)
