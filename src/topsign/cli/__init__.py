"""The command line: one module per command, each a call of the library."""

from __future__ import annotations

from . import (
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
    verify,
)
from .app import app

__all__ = [
    "add",
    "app",
    "build",
    "calibrate",
    "cameras",
    "cluster",
    "compact",
    "dedupe",
    "evaluate",
    "explore",
    "export",
    "get",
    "info",
    "inspect",
    "list",
    "main",
    "plan",
    "regions",
    "remove",
    "reproduce",
    "search",
    "verify",
]


def main() -> None:
    """Run the command ``topsign``."""
    app()
