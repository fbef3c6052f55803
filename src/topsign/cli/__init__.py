"""The command line: thin, every command a call of the library."""

from __future__ import annotations

from . import changing, clustering, exporting, inspecting, plan, reproduce, searching
from .app import app

__all__ = ["app", "changing", "clustering", "exporting", "inspecting", "main", "plan", "reproduce", "searching"]


def main() -> None:
    """The entry point of ``topsign``."""
    app()
