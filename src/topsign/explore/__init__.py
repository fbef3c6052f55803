"""A page in the browser: what codes of these sizes can detect, and what an index holds; needs the extra explore."""

from __future__ import annotations

from .server import make_app, serve

__all__ = ["make_app", "serve"]
