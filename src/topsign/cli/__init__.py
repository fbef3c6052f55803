"""The command line: each command is a call of the library, imported when the command runs."""

from __future__ import annotations

from . import cameras, entries, maintenance, search, significance, studies  # noqa: F401  (each registers its commands)
from .app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command ``topsign``."""
    app()
