"""Signals, ids and metadata of one ``add`` or ``upsert``, validated before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Bytes, Int64
from .._checks import as_signals, check_metadata, check_part, check_source, names_of_columns
from .._extensions import load_extension
from .._files import Record
from ..encoding import Coder, check_signals, encode
from ..families import Recipe
from ..projections.blocks import float_blocks
from ..search import SampleDraw, first_excluded
from ..store import Change, Note, make_segments, pack_originals, segments
from .ids import Ids, as_texts, check_added_kind, check_new_ids, ids_for
from .sources import keep_feature_names

BLOCK_BYTES = 2**24  # bytes of signals per block

CODES_BYTES = 2**27  # bytes of new codes that are held as rows before they become blocks

CoderOf = Callable[[Recipe], Coder]


@dataclass(eq=False)
class Addition:
    """Signals to add, or to replace entries with, and their ids and metadata."""

    signals: Array
    part: slice  # rows of the signals that are added
    ids: Int64 | list[bytes] | None
    texts: list[bytes] | None  # metadata as JSON
    replacing: bool
    source: tuple[str, Record] | None
    feature_names: tuple[str, ...] | None
    n_threads: int
    coder: CoderOf | None
    drawn: SampleDraw | None = None  # signals for the calibration sample

    @classmethod
    def checked(
        cls,
        signals: npt.ArrayLike,
        *,
        n_features: int,
        feature_names: tuple[str, ...] | None,
        ids: npt.ArrayLike | None,
        metadata: Iterable[Note] | None,
        n_threads: int | None,
        coder: CoderOf | None,
        replacing: bool,
        rows: slice | None = None,
        source: tuple[str, Record] | None = None,
    ) -> Addition:
        """Validate the arguments of ``add`` or ``upsert``."""
        values = as_signals(signals, n_features=n_features, feature_names=feature_names)
        part = check_part(rows, len(values))
        count = part.stop - part.start
        texts, given = check_metadata(metadata, count), check_new_ids(ids, count)
        check_source(source)
        names, threads = names_of_columns(signals), kernels.n_threads(n_threads)
        return cls(values, part, given, texts, replacing, source, names, threads, coder)

    def __len__(self) -> int:
        return int(self.part.stop - self.part.start)

    def encode(self, recipe: Recipe, part: slice) -> Bytes:
        """Encode rows and draw the calibration sample in the same pass."""
        coder: Coder | None = None if self.coder is None else self.coder(recipe)
        observe = None if self.drawn is None else self.drawn.observe
        return encode(recipe, self.signals, part=part, n_threads=self.n_threads, coder=coder, observe=observe)

    def encode_first(self, recipe: Recipe) -> Bytes:
        """Encode all rows before the store exists, with the ids of a new index."""
        ids = np.arange(len(self)) if self.ids is None or isinstance(self.ids, list) else self.ids
        self.drawn = SampleDraw(ids, self.signals.shape[1], first=self.part.start)
        return self.encode(recipe, self.part)

    def check_signals(self, recipe: Recipe) -> None:
        """Raise the errors of :meth:`encode` without encoding."""
        check_signals(recipe, self.signals, part=self.part, n_threads=self.n_threads)

    def write(
        self,
        change: Change,
        recipe: Recipe,
        made: Bytes | None,
        *,
        originals: str | None,
        assigned: Callable[[Bytes], dict[str, Array]],
    ) -> Ids:
        """Add the entries to a change and return their ids.

        ``made`` are the codes if they exist already, ``originals`` is the type of the kept signals, and ``assigned``
        returns the region column of codes.
        """
        text_ids = self.ids if isinstance(self.ids, list) else None
        if len(self):
            check_added_kind(change.snapshot.has_text_ids, given=self.ids is not None, texts=text_ids is not None)
        keep_feature_names(change, self.feature_names)
        new, taken = ids_for(change, self.ids, len(self), replacing=self.replacing)
        if taken.size:
            change.replace(taken)
        if originals is not None:
            self.drawn = None  # calibration reads those
        elif made is None:
            below = first_excluded(change.tables, recipe.n_features)
            self.drawn = SampleDraw(new, recipe.n_features, first=self.part.start, below=below)
        parts = list(change.parts(len(self)))
        if len(parts) > 1 and made is None:  # parts are written one by one, so validate all of them first
            self.check_signals(recipe)
        for part in _pieces(parts, max(segments.MERGED_ENTRIES, CODES_BYTES // recipe.code_bytes)):
            here = slice(self.part.start + part.start, self.part.start + part.stop)
            codes = self.encode(recipe, here) if made is None else made[part]
            noted, given = self.texts and self.texts[part], text_ids and text_ids[part]
            extras = assigned(codes)
            if originals is not None:
                extras |= keep_originals(self.signals, here, originals, n_threads=self.n_threads)
            change.add(make_segments(new[part].copy(), codes, noted, given, extras))
        change.next_id = max(change.next_id, int(new.max(initial=-1)) + 1)
        if self.source is not None:
            change.keep_source(*self.source)
        if self.drawn is not None:
            self.drawn.keep(change, new)
        if text_ids is None and (len(self) or not change.snapshot.has_text_ids):
            return new
        texts: Ids = as_texts(text.decode() for text in text_ids or ())
        return texts


def _pieces(parts: list[slice], n_rows: int) -> Iterator[slice]:
    """Yield the parts in pieces of at most ``n_rows`` rows."""
    for part in parts:
        for start in range(part.start, part.stop, n_rows):
            yield slice(start, min(start + n_rows, part.stop))


def coder_for(device: str | None, recipe: Recipe | type[Recipe]) -> CoderOf | None:
    """Return the factory of coders for a device, or None for the CPU.

    Raises before anything is learned if the device does not support the recipe, or its class if it is not learned yet.
    """
    if device is None:
        return None
    gpu = load_extension("gpu")
    gpu.check_coder(recipe, device)
    made: CoderOf = lru_cache(maxsize=1)(lambda known: gpu.make_coder(known, device))
    return made


def keep_originals(signals: Array, part: slice, kind: str, *, n_threads: int) -> dict[str, Array]:
    """Return some of the signals as an index keeps them."""
    n_rows = max(1, BLOCK_BYTES // (4 * signals.shape[1]))
    blocks = [
        pack_originals(block.raw, kind) for block in float_blocks(signals, n_rows, part=part, n_threads=n_threads)
    ]
    empty = pack_originals(np.empty((0, signals.shape[1]), np.float32), kind)
    return {name: np.concatenate([empty[name], *(block[name] for block in blocks)]) for name in empty}
