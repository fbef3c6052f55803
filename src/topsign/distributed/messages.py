"""Messages to workers: pickled values without the recipe and its codebooks, which each worker holds once."""

from __future__ import annotations

import io
import pickle
from typing import Any

from ..families import Recipe


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, recipe: Recipe) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._names = {id(value): name for name, value in _held(recipe).items()}

    def persistent_id(self, value: object) -> str | None:
        return self._names.get(id(value))


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, recipe: Recipe) -> None:
        super().__init__(file)
        self._recipe = recipe

    def persistent_load(self, name: str) -> Any:
        held = _held(self._recipe)
        if name not in held:
            raise pickle.UnpicklingError(f"a message names {name!r}, which workers do not hold")
        return held[name]


def pack(value: Any, recipe: Recipe) -> bytes:
    """Return a pickled value; :func:`unpack` puts the receiver's recipe where this one was."""
    file = io.BytesIO()
    _Packer(file, recipe).dump(value)
    return file.getvalue()


def unpack(message: bytes, recipe: Recipe) -> Any:
    """Return the value of a message."""
    return _Unpacker(io.BytesIO(message), recipe).load()


def _held(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe and the object that scores its codes, of which the codebooks are a part."""
    return {"recipe": recipe} if recipe.scorer is None else {"recipe": recipe, "scorer": recipe.scorer}
