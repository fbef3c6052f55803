"""Additions, validated before anything is written, and the deferred creation of an index by the first of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Bytes
from .._checks import (
    as_signals,
    check_choice,
    check_count,
    check_feature_names,
    check_metadata,
    check_part,
    check_source,
    names_of_columns,
)
from .._files import Record
from .._lazy import load_extension
from .._random import make_seed
from ..encoding import BlockEncoder, check_signals, encode
from ..errors import StorageError
from ..families import METRICS, Recipe, check_parameters
from ..projections.blocks import float_blocks
from ..store import segments
from ..store.folder_store import Path, Store, check_place, exists, open_store, resolve, store_for_recipe
from ..store.memory import Change, MemoryStore, Table
from ..store.segments import ORIGINAL_TYPES, Note, make_segments, pack_originals
from .entries import Ids, as_texts, check_new_ids, ids_for

RESERVED_PREFIX = "topsign:"
"""Prefix of the names of records that are not sources of signals."""

FEATURES = "topsign:features"
"""Name under which a store keeps the names of the features among its sources."""


def keep_feature_names(change: Change, names: Sequence[str]) -> None:
    """Keep the names of the columns of the first table; others that came meanwhile must agree with them."""
    kept = change.sources.setdefault(FEATURES, {"names": list(names)})
    check_feature_names(names, kept["names"], "signals")


BLOCK_BYTES = 2**24  # bytes of signals per block

CODES_BYTES = 2**27  # bytes of new codes that are held as rows before they become blocks

EncoderOf = Callable[[Recipe], BlockEncoder]


class Addition:
    """Validated arguments of ``add`` or ``upsert``: signals, and their ids and metadata."""

    def __init__(
        self,
        signals: npt.ArrayLike,
        *,
        n_features: int,
        feature_names: tuple[str, ...] | None,
        ids: npt.ArrayLike | None,
        metadata: Iterable[Note] | None,
        replacing: bool,
        encoder: EncoderOf | None = None,
        rows: slice | None = None,
        source: tuple[str, Record] | None = None,
    ) -> None:
        self.signals = as_signals(signals, n_features=n_features, feature_names=feature_names)
        self.part = check_part(rows, len(self.signals))
        self.texts, self.ids = check_metadata(metadata, len(self)), check_new_ids(ids, len(self))
        if source is not None:
            check_source(source)
        self.feature_names = names_of_columns(signals)
        self.encoder, self.replacing, self.source = encoder, replacing, source

    def __len__(self) -> int:
        return int(self.part.stop - self.part.start)

    def encode(self, recipe: Recipe, part: slice) -> Bytes:
        """Encode rows."""
        return encode(recipe, self.signals, part=part, encoder=None if self.encoder is None else self.encoder(recipe))

    def write(
        self,
        change: Change,
        recipe: Recipe,
        made: Bytes | None,
        *,
        originals: str | None,
        regions: Callable[[Mapping[str, Table], Bytes], dict[str, Array]],
    ) -> Ids:
        """Add the entries to a change and return their ids.

        ``made`` are the codes if they exist already, ``originals`` is the type of the kept signals, and ``regions``
        returns the region column of codes.
        """
        text_ids = self.ids if isinstance(self.ids, list) else None
        new, replaced = ids_for(change, self.ids, len(self), replacing=self.replacing)
        if self.feature_names is not None:
            keep_feature_names(change, self.feature_names)
        if replaced.size:
            change.remove(np.sort(replaced))
        if len(self) > change.part_entries and made is None:  # parts are written one by one: validate all of them first
            check_signals(recipe, self.signals, part=self.part)
        n_rows = min(change.part_entries, max(segments.MERGED_ENTRIES, CODES_BYTES // recipe.code_bytes))
        for start in range(0, len(self), n_rows):
            part = slice(start, min(start + n_rows, len(self)))
            here = slice(self.part.start + part.start, self.part.start + part.stop)
            codes = self.encode(recipe, here) if made is None else made[part]
            noted, given = self.texts and self.texts[part], text_ids and text_ids[part]
            extras = regions(change.tables, codes)
            if originals is not None:
                extras |= keep_originals(self.signals, here, originals)
            change.add(make_segments(new[part].copy(), codes, noted, given, extras))
        change.next_id = max(change.next_id, int(new.max(initial=-1)) + 1)
        if self.source is not None:
            change.keep_source(*self.source)
        if text_ids is None and (len(self) or not change.snapshot.has_text_ids):
            return new
        texts: Ids = as_texts(text.decode() for text in text_ids or ())
        return texts


def encoder_for(device: str, recipe: Recipe | type[Recipe]) -> EncoderOf:
    """Return the factory of encoders for a device.

    Raises before anything is learned if the device does not support the recipe, or its class if it is not learned yet.
    """
    gpu = load_extension("gpu")
    gpu.check_encoder(recipe, device)
    made: EncoderOf = lru_cache(maxsize=1)(lambda known: gpu.block_encoder(known, device))
    return made


def keep_originals(signals: Array, part: slice, kind: str) -> dict[str, Array]:
    """Return some of the signals as an index keeps them."""
    n_rows = max(1, BLOCK_BYTES // (4 * signals.shape[1]))
    blocks = [pack_originals(block.raw, kind) for block in float_blocks(signals, n_rows, part=part)]
    empty = pack_originals(np.empty((0, signals.shape[1]), np.float32), kind)
    return {name: np.concatenate([empty[name], *(block[name] for block in blocks)]) for name in empty}


HELD_BYTES = 2**25  # bytes of codes of a first addition kept in memory, so that it is read only once


class DeferredIndex:
    """Validated parameters of a constructor. The folder is created only after everything has been validated.

    If another process creates an index at the same path in the meantime, that index is used, because a folder has one
    recipe.
    """

    def __init__(
        self,
        family: str,
        n_features: int,
        parameters: Mapping[str, Any],
        options: Mapping[str, Any],
        *,
        path: Path | None,
        timeout: float | None,
        originals: str | None,
    ) -> None:
        self.n_features = check_count(n_features, "n_features", minimum=2)
        self.recipe_type, given = check_parameters("Index", family, parameters, options)
        if originals is not None:
            check_choice(originals, "originals", ORIGINAL_TYPES)
        check_place(path, timeout)
        if "random_state" in given:
            given["random_state"] = make_seed(given["random_state"])  # drawn once
        self.parameters: dict[str, Any] = {"n_features": self.n_features, **given}
        self.path, self.timeout, self.originals = None if path is None else resolve(path), timeout, originals

    @property
    def recipe(self) -> NoReturn:
        """Raise NotFittedError because there is no recipe yet."""
        try:
            from sklearn.exceptions import NotFittedError  # takes long to import
        except ImportError:
            from builtins import ValueError as NotFittedError  # its base class: only estimators need scikit-learn

        raise NotFittedError(
            "this index has not learned its recipe yet; call fit(sample), or add signals to learn from"
        )

    calibration = feature_names = None  # there are none before the first signals

    @property
    def store(self) -> Store:
        """A store without entries."""
        return MemoryStore()

    @property
    def family(self) -> str:
        """Family of the codes."""
        return self.recipe_type.family

    @property
    def metric(self) -> str:
        """Quantity that scores will estimate."""
        return check_choice(self.parameters.get("metric", self.recipe_type.metric), "metric", METRICS)

    def open(self) -> tuple[Recipe, Store] | None:
        """Open the store at the path, or create one if nothing has to be learned; otherwise return None."""
        if self.exists():
            return self.open_existing()
        if self.recipe_type.needs_sample(**self.parameters):
            return None
        recipe = self.recipe_type.learn(np.empty((0, self.n_features), np.float32), **self.parameters)
        store = self.create(recipe)
        return self.open_existing() if store is None else (recipe, store)

    def exists(self) -> bool:
        """Return whether the path exists."""
        return self.path is not None and exists(self.path)

    def fit(self, sample: Array, feature_names: tuple[str, ...] | None) -> tuple[Recipe, Store]:
        """Learn from a sample and create the store; raise ValueError if another process has created it."""
        recipe = None if self.exists() else self.recipe_type.learn(sample, **self.parameters)
        store = None if recipe is None else self.create(recipe)
        if recipe is None or store is None:
            raise ValueError(
                f"{self.path} was made meanwhile, and has its recipe already; add signals to it without fit, or choose "
                "another path"
            )
        if feature_names is not None:
            store.apply(lambda change: keep_feature_names(change, feature_names))
        return recipe, store

    def learn_first(self, addition: Addition) -> tuple[Recipe, Store, Bytes | None]:
        """Learn from the first addition, and create the store after validating all of it.

        The third value holds the codes if they were computed; it is None if another process created the index, or if
        the codes exceed the memory limit.
        """
        if self.exists():
            return *self.open_existing(), None
        recipe, made = self.recipe_type.learn(addition.signals, part=addition.part, **self.parameters), None
        if self.path is None or len(addition) * recipe.code_bytes <= HELD_BYTES:
            made = addition.encode(recipe, addition.part)
        else:
            check_signals(recipe, addition.signals, part=addition.part)
        store = self.create(recipe)
        return (*self.open_existing(), None) if store is None else (recipe, store, made)

    def create(self, recipe: Recipe) -> Store | None:
        """Create a store for codes of this recipe; return None if another process created one with another recipe."""
        store = store_for_recipe(recipe, path=self.path, timeout=self.timeout, originals=self.originals)
        if store.recipe is None or store.recipe == recipe:
            return store
        store.close()
        return None

    def open_existing(self, path: str | None = None) -> tuple[Recipe, Store]:
        """Open the store at the path, or at another one; raise ValueError unless it has these parameters."""
        path = path or self.path
        assert path is not None
        if not exists(path):
            raise StorageError(path, "index", "was deleted while signals were added; add them again")
        store = open_store(path, timeout=self.timeout)
        try:
            problem = store.recipe.disagreement(self.family, **self.parameters)
            if problem is None and self.originals not in (None, store.originals):
                problem = f"originals={store.originals!r}, got originals={self.originals!r}"
            if problem is not None:
                raise ValueError(f"{store.path} was written with {problem}; topsign.open_index takes what it has")
        except BaseException:
            store.close()
            raise
        return store.recipe, store
