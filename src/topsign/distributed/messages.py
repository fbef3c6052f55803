"""Messages to workers: pickled values without the recipe, which each worker holds once, with its tables."""

from __future__ import annotations

import io
import pickle
from typing import Any

from ..families import Recipe

RECIPE = "recipe"


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, recipe: Recipe) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._recipe = recipe

    def persistent_id(self, value: object) -> str | None:
        return RECIPE if value is self._recipe else None


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, recipe: Recipe) -> None:
        super().__init__(file)
        self._recipe = recipe

    def persistent_load(self, name: str) -> Recipe:
        if name != RECIPE:
            raise pickle.UnpicklingError(f"a message names {name!r}, which workers do not hold")
        return self._recipe


def pack(value: Any, recipe: Recipe) -> bytes:
    """Return a pickled value; :func:`unpack` puts the receiver's recipe where this one was."""
    file = io.BytesIO()
    _Packer(file, recipe).dump(value)
    return file.getvalue()


def unpack(message: bytes, recipe: Recipe) -> Any:
    """Return the value of a message."""
    return _Unpacker(io.BytesIO(message), recipe).load()
