"""The command line: thin, every command a call of the library."""

from __future__ import annotations

from . import changing, clustering, inspecting, planning, searching
from .app import app

__all__ = ["app", "changing", "clustering", "inspecting", "main", "planning", "searching"]


def main() -> None:
    """The entry point of ``topsign``."""
    app()
