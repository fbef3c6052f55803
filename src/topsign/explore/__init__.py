"""A page in the browser: detection by codes of any size, and contents of an index. Needs the extra explore."""

from __future__ import annotations

from .server import make_app, serve

__all__ = ["make_app", "serve"]
