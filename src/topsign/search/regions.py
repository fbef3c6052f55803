"""Regions: clusters of decoded codes, so that a search can visit a part of the entries.

Learned from decoded codes by k-means in two levels: coarse means, then the means of regions among the members of each.
Seeded; two machines learn the same regions up to the rounding of their matrix products. Segments hold their entries in
the order of their regions, so that a region is a range of each segment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from .. import kernels
from .._arrays import Array, Booleans, Bytes, Float32, Int32, Int64
from .._lazy import lazy
from ..errors import StorageError
from ..families import Recipe
from ..families.comparison import unit
from ..kernels import (
    GROUP,
    CodeBlocks,
    CodeRange,
    Means,
    RegionChoice,
    RegionCodes,
    RegionModel,
    RegionRule,
    Visits,
)
from ..store.segments import Columns, Snapshot


@dataclass(frozen=True)
class RegionOrder:
    """Generation and number of regions, which suffice to visit regions; sent to the workers of a cluster."""

    generation: int
    n_regions: int

    def starts(self, columns: Columns) -> Int32 | None:
        """Return where each region begins in a segment, and the end; None if the segment has no regions."""
        known = columns.derived.get("region_starts")
        if known is None or known[0] != self:
            if "regions" not in columns.extra_names:
                return None
            regions = columns.extra("regions")
            if (regions[1:] < regions[:-1]).any() or (len(regions) and regions[-1] >= self.n_regions):
                problem = f"damaged: entries must be in the order of their {self.n_regions} regions"
                raise StorageError("index", "regions", f"{problem}; learn the regions again")
            starts = np.searchsorted(regions, np.arange(self.n_regions + 1)).astype(np.int32)
            known = columns.derived["region_starts"] = self, starts
        found: Int32 = known[1]
        return found

    def codes(self, snapshot: Snapshot) -> tuple[RegionCodes, Int64] | None:
        """Return the codes of all segments by region, and the number of living entries in each region.

        None if a segment has no regions.
        """
        known = snapshot.derived.get("region_codes")
        if known is None or known[0] != self:
            known = snapshot.derived["region_codes"] = self, self._codes(snapshot, None)
        found: tuple[RegionCodes, Int64] | None = known[1]
        return found

    def passing(self, snapshot: Snapshot, kept: Booleans) -> tuple[RegionCodes, Int64] | None:
        """Return the same of only these entries, by row."""
        return self._codes(snapshot, kept)

    def _codes(self, snapshot: Snapshot, kept: Booleans | None) -> tuple[RegionCodes, Int64] | None:
        segments, places, counts = list[CodeRange](), [np.empty((4, 0), np.int64)], np.zeros(self.n_regions, np.int64)
        for first_row, segment in zip(snapshot.starts.tolist(), snapshot.segments, strict=False):
            if not segment.n_alive:
                continue
            starts, alive = self.starts(segment.columns), segment.alive
            if starts is None:
                return None
            if kept is None and alive is None:
                counts += np.diff(starts)
            else:
                living = segment.living if kept is None else kept[first_row : first_row + len(segment)]
                alive = np.packbits(living, bitorder="little") if kept is not None else alive
                regions = np.searchsorted(starts, np.flatnonzero(living), side="right") - 1
                counts += np.bincount(regions, minlength=self.n_regions)
            held = np.flatnonzero(np.diff(starts))
            places.append(np.stack([held, np.full(len(held), len(segments)), starts[held], starts[held + 1]]))
            segments.append(CodeRange(segment.codes, first_row, alive, segment.ids, False))
        found = np.concatenate(places, axis=1)
        found = found[:, np.argsort(found[0], kind="stable")]
        starts = np.searchsorted(found[0], np.arange(self.n_regions + 1)).astype(np.int32)
        return RegionCodes(segments, starts, np.ascontiguousarray(found[1:].T, np.int32)), counts


@dataclass(frozen=True, eq=False)
class RegionVisits:
    """Regions that each query visits, without repetition."""

    order: RegionOrder
    visits: Visits


MIN_ENTRIES = 20_000
"""Number of entries below which no regions are learned by default: they save at most 0.05 ms per query."""

MIN_REGIONS, MAX_REGIONS = 64, 65_536
PER_REGION, MAX_SAMPLE = 40, 400_000  # decoded codes in the training sample
COARSE_STEPS, FINE_STEPS, COARSE_SAMPLE = 10, 8, 256
NEAREST = 4  # nearest coarse means whose regions are compared when an entry is assigned
BLOCK_BYTES = 2**26  # bytes of decoded codes in memory at a time
MIDDLE = 64  # offset of the bytes of means, which lie in [1, 127]

Progress = Callable[[int, int], None]


def automatic_regions(n_entries: int) -> int:
    """Return the default number of regions: 8 sqrt(n_entries) rounded to a power of two, from 64 to 65,536.

    >>> automatic_regions(1_000_000)
    8192
    """
    return int(np.clip(2 ** round(np.log2(8 * np.sqrt(max(1, n_entries)))), MIN_REGIONS, MAX_REGIONS))


@dataclass(frozen=True, eq=False)
class ByteRows:
    """Vectors rounded to bytes: values plus 64, times a scale for each."""

    values: Bytes  # (n_rows, width); the width is n_features rounded up to a multiple of 64
    scales: Float32
    n_features: int

    @classmethod
    def of(cls, vectors: Float32) -> ByteRows:
        """Round vectors to bytes."""
        n_features, peaks = vectors.shape[1], np.abs(vectors).max(axis=1)
        scales = np.where(peaks > 0, peaks / (MIDDLE - 1), 1).astype(np.float32)
        values = np.full((len(vectors), padded(n_features)), MIDDLE, np.uint8)
        values[:, :n_features] = np.rint(vectors / scales[:, np.newaxis]) + MIDDLE
        return cls(values, scales, n_features)

    @lazy
    def half_norms(self) -> Float32:
        """Half of the square norm of each vector."""
        numbers = self.values.astype(np.int32) - MIDDLE
        squares = np.einsum("if,if->i", numbers, numbers) * self.scales.astype(np.float64) ** 2
        return np.asarray(squares / 2, np.float32)

    def scores(self, units: Float32) -> Float32:
        """Return the score of each vector for each unit query, (n_queries, n_rows); nearer ones score higher."""
        peaks = np.abs(units).max(axis=1, initial=0)
        steps = np.where(peaks > 0, peaks / np.float32(127), np.float32(1)).astype(np.float32)
        rounded = np.zeros((len(units), self.values.shape[1]), np.int8)
        rounded[:, : units.shape[1]] = np.rint(units / steps[:, np.newaxis])
        sums = kernels.active().byte_products(rounded, self.values)
        sums -= MIDDLE * rounded.sum(axis=1, dtype=np.int32)[:, np.newaxis]
        scores = sums.astype(np.float32)
        scores *= self.scales * steps[:, np.newaxis]
        scores -= self.half_norms
        return scores

    def means(self, numbers: Int32) -> Means:
        """Return these vectors as kernels compare them; a number of -1 stands for none."""
        return Means.of(self.values, self.scales, self.half_norms, numbers)


@dataclass(frozen=True, eq=False)
class Regions:
    """Region means of one generation."""

    fine: ByteRows
    coarse: Float32  # (n_coarse, n_features)
    starts: Int64  # (n_coarse + 1,) regions of each coarse mean
    generation: int
    n_learned: int  # number of entries when the regions were learned

    def __len__(self) -> int:
        return len(self.fine.values)

    def to_table(self) -> dict[str, Array]:
        """Return the regions as arrays, which :meth:`from_table` reads."""
        numbers = np.array([self.generation, self.n_learned], np.int64)
        arrays: dict[str, Array] = {"means": self.fine.values, "scales": self.fine.scales, "coarse": self.coarse}
        return arrays | {"starts": self.starts, "numbers": numbers}

    @classmethod
    def from_table(cls, table: Mapping[str, Array], n_features: int) -> Regions:
        """Return the regions stored in a table; raise ValueError if its arrays are inconsistent."""
        try:
            means, scales, coarse, starts, numbers = (
                table[name] for name in ("means", "scales", "coarse", "starts", "numbers")
            )
        except KeyError as error:
            raise ValueError(f"regions have no {error.args[0]}") from None
        n_regions, n_starts = scales.size, starts.size
        shapes = (means.shape, scales.shape, coarse.shape, starts.shape, numbers.shape)
        wanted = ((n_regions, padded(n_features)), (n_regions,), (n_starts - 1, n_features), (n_starts,), (2,))
        if shapes != wanted or means.dtype != np.uint8 or not 0 < n_regions <= MAX_REGIONS:
            raise ValueError(f"arrays of regions have shapes {shapes}, {wanted} expected")
        if starts[0] != 0 or starts[-1] != n_regions or (np.diff(starts) <= 0).any() or (means > 127).any():
            raise ValueError("regions must belong to coarse means in order, and their means must be at most 127")
        if not (np.isfinite(scales).all() and np.isfinite(coarse).all()):
            raise ValueError("means must be finite")
        generation, n_learned = map(int, numbers)
        return cls(ByteRows(means, scales, n_features), coarse, np.asarray(starts, np.int64), generation, n_learned)

    @lazy
    def coarse_rows(self) -> ByteRows:
        """Coarse means rounded to bytes, as queries are compared with them."""
        return ByteRows.of(self.coarse)

    @lazy
    def parents(self) -> Int64:
        """Coarse mean of each region."""
        return np.repeat(np.arange(len(self.coarse)), np.diff(self.starts))

    @lazy
    def model(self) -> RegionModel:
        """Means as kernels compare them."""
        sizes = np.diff(self.starts)
        n_groups = -(-sizes // GROUP)
        first = np.append(0, np.cumsum(n_groups)).astype(np.int32)
        numbers = np.full(GROUP * first[-1], -1, np.int32)
        slots = np.arange(len(self)) + np.repeat(GROUP * first[:-1].astype(np.int64) - self.starts[:-1], sizes)
        numbers[slots] = np.arange(len(self))
        coarse = np.full(-(-len(self.coarse) // GROUP) * GROUP, -1, np.int32)
        coarse[: len(self.coarse)] = np.arange(len(self.coarse))
        return RegionModel(self.coarse_rows.means(coarse), self.fine.means(numbers), len(self.coarse), first, numbers)

    def choose(self, units: Float32, n_coarse: int = NEAREST) -> RegionChoice:
        """Return the region nearest to each unit vector among those of its ``n_coarse`` nearest coarse means."""
        one = np.ones(2, np.int64)
        rule = RegionRule(np.empty(0), one, 0 * one, n_coarse * one, 0 * one, n_coarse, -np.inf)
        return kernels.active().choose_regions(self.model, np.ones(len(self), np.int64), rule, units)

    def assign(self, vectors: Float32) -> Array:
        """Return the region of each vector, uint16."""
        return self.choose(np.ascontiguousarray(vectors)).visits.regions.astype(np.uint16)

    def assign_codes(self, recipe: Recipe, codes: Bytes | CodeBlocks) -> Array:
        """Return the region of each code, uint16."""
        n_rows = block_rows(recipe)
        parts = [np.empty(0, np.uint16)]
        for start in range(0, len(codes), n_rows):
            part = slice(start, start + n_rows)
            some = codes.rows(part) if isinstance(codes, CodeBlocks) else codes[part]
            parts.append(self.assign(decoded(recipe, some)))
        return np.concatenate(parts)

    @property
    def order(self) -> RegionOrder:
        """Return the order of entries by region, for searches."""
        return RegionOrder(self.generation, len(self))


def padded(n_features: int) -> int:
    """Return the width of a row of means."""
    return -(-n_features // 64) * 64


def block_rows(recipe: Recipe) -> int:
    """Return the number of codes to decode at a time."""
    return max(1, BLOCK_BYTES // (4 * recipe.n_features))


def decoded(recipe: Recipe, codes: Bytes) -> Float32:
    """Return decoded codes scaled to norm one."""
    return unit(recipe.reference(np.ascontiguousarray(codes)))


def decoded_rows(recipe: Recipe, snapshot: Snapshot, rows: Int64) -> Float32:
    """Return the decoded codes of some entries."""
    return decoded(recipe, snapshot.gather("codes", rows))


def learn_regions(
    recipe: Recipe,
    snapshot: Snapshot,
    n_regions: int,
    *,
    left_out: Int64,
    generation: int,
    seed: int,
    progress: Progress | None = None,
) -> Regions:
    """Learn regions from a sample of the entries, without those in the rows ``left_out``."""
    rng = np.random.default_rng([seed, n_regions])
    living = np.flatnonzero(np.concatenate([segment.living for segment in snapshot.segments]))
    usable = np.setdiff1d(living, left_out)
    n_sample = min(len(usable), MAX_SAMPLE, PER_REGION * n_regions)
    rows = np.sort(rng.choice(usable, n_sample, replace=False))
    n_coarse = max(1, round(np.sqrt(n_regions)))
    first = np.sort(rng.choice(n_sample, min(n_sample, COARSE_SAMPLE * n_coarse), replace=False))
    coarse = k_means(decoded_rows(recipe, snapshot, rows[first]), n_coarse, COARSE_STEPS, rng)
    size, owners = block_rows(recipe), np.empty(n_sample, np.int64)
    for start in range(0, n_sample, size):
        part = slice(start, start + size)
        owners[part] = nearest_mean(decoded_rows(recipe, snapshot, rows[part]), coarse)
    members = np.bincount(owners, minlength=len(coarse))
    coarse, members = coarse[members > 0], members[members > 0]
    owners = np.unique(owners, return_inverse=True)[1]
    parts = []
    for number, wanted in enumerate(shared_out(members, n_regions)):
        mine = rows[owners == number]
        parts.append(k_means(decoded_rows(recipe, snapshot, mine), int(wanted), FINE_STEPS, rng))
        if progress is not None:
            progress(number + 1, len(coarse))
    starts = np.append(0, np.cumsum([len(part) for part in parts])).astype(np.int64)
    coarse = np.ascontiguousarray(coarse, np.float32)
    return Regions(ByteRows.of(np.concatenate(parts)), coarse, starts, generation, len(living))


def shared_out(members: Int64, total: int) -> Int64:
    """Divide regions among coarse means in proportion to their members: at least one, at most one per member."""
    total = min(total, int(members.sum()))
    shares = np.maximum(1, np.floor(members / members.sum() * total)).astype(np.int64)
    shares = np.minimum(shares, members)
    while (left := total - int(shares.sum())) > 0:  # add one where there are fewest per member
        order = np.argsort(shares / members, kind="stable")
        shares[order[shares[order] < members[order]][:left]] += 1
    return np.asarray(shares, np.int64)


def nearest_mean(vectors: Float32, means: Float32) -> Int64:
    """Return the number of the nearest mean of each vector."""
    return np.asarray((vectors @ means.T - (means**2).sum(axis=1) / 2).argmax(axis=1), np.int64)


def k_means(vectors: Float32, n_means: int, n_steps: int, rng: np.random.Generator) -> Float32:
    """Return means of clusters of the vectors, by Lloyd's algorithm; empty clusters start again at random vectors."""
    n_means = min(n_means, len(vectors))
    means = vectors[np.sort(rng.choice(len(vectors), n_means, replace=False))].copy()
    if n_means == len(vectors):
        return means
    for _ in range(n_steps):
        owners = nearest_mean(vectors, means)
        counts = np.bincount(owners, minlength=n_means)
        order = np.argsort(owners, kind="stable")
        filled = np.flatnonzero(counts)
        firsts = np.append(0, np.cumsum(counts[filled]))[:-1]
        sums = np.add.reduceat(vectors[order], firsts, axis=0)
        means[filled] = sums / counts[filled, np.newaxis].astype(np.float32)
        empty = np.flatnonzero(counts == 0)
        means[empty] = vectors[rng.choice(len(vectors), len(empty), replace=False)]
    return means
