"""The command line: one module per command, each a call of the library."""

from __future__ import annotations

from . import (  # noqa: F401  (each registers its command)
    add,
    build,
    calibrate,
    cameras,
    cluster,
    compact,
    dedupe,
    evaluate,
    explore,
    export,
    get,
    info,
    inspect,
    list,
    plan,
    regions,
    remove,
    reproduce,
    search,
    significance,
    verify,
)
from .app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command ``topsign``."""
    app()
