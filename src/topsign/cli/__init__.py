"""The command line: thin, every command a call of the library."""

from __future__ import annotations

from . import changing, clustering, exporting, inspecting, planning, reproducing, searching
from .app import app

__all__ = ["app", "changing", "clustering", "exporting", "inspecting", "main", "planning", "reproducing", "searching"]


def main() -> None:
    """The entry point of ``topsign``."""
    app()
