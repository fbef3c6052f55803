"""Pickled indexes: the entries of an index in memory, the path of a durable one."""

from __future__ import annotations

from typing import Any

from ..families import Recipe
from ..store import MemoryStore, Store, make_segments, merge_segments, open_store


def state_of(recipe: Recipe, store: Store) -> dict[str, Any]:
    """Return what :func:`restored` needs, in plain values and arrays."""
    if store.path is not None:
        return {"path": store.path, "readonly": store.readonly, "version": store.pinned}
    columns = [merge_segments([segment]).columns for segment in store.snapshot.segments]
    segments = [
        {
            "ids": one.ids,
            "codes": one.codes.rows(),
            "texts": one.metadata and one.metadata.texts(range(len(one))),
            "text_ids": one.text_ids and one.text_ids.texts(range(len(one))),
            "extras": {name: one.extra(name) for name in one.extra_names},
        }
        for one in columns
    ]
    kept = {"sources": dict(store.sources), "originals": store.originals}
    kept["tables"] = {name: dict(table) for name, table in store.tables.items()}
    return {"recipe": recipe.to_json(), "segments": segments, "next_id": store.next_id} | kept


def restored(state: dict[str, Any]) -> tuple[Recipe, Store]:
    """Return the recipe and the store of a pickled index."""
    if "path" in state:
        opened = open_store(state["path"], readonly=state["readonly"], timeout=None, version=state["version"])
        assert opened.recipe is not None
        return opened.recipe, opened
    store = MemoryStore(state["originals"])
    with store.change() as change:
        for segment in state["segments"]:
            change.add(make_segments(**segment))
        change.next_id = state["next_id"]
        for name, record in state["sources"].items():
            change.keep_source(name, record)
        change.tables.update(state["tables"])
    return Recipe.from_json(state["recipe"], "pickled index"), store
