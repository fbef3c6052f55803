"""Table of optional extensions, imported by name at their first use.

This is the only module that imports from higher layers. Extensions need optional packages, and register their engines
and encoders with the lower layers. ``tests/test_layers.py`` reads this table and checks all other imports.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

EXTENSIONS = {"gpu": "topsign.gpu"}


def load_extension(name: str) -> ModuleType:
    """Import an extension; raise ImportError that names the package to install."""
    return import_module(EXTENSIONS[name])
