"""Optional extensions, which are loaded by name when they are first asked for.

The only place that imports upwards: extensions need packages that the library itself does not, and register what they
add with the layers below. ``tests/test_layers.py`` knows this table and sees every other import.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

EXTENSIONS = {"gpu": "topsign.gpu"}


def load_extension(name: str) -> ModuleType:
    """Return the module of an extension; ImportError says what to install."""
    return import_module(EXTENSIONS[name])
