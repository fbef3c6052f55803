"""Browser page for the detection performance of codes and the contents of an index. Needs the extra ``explore``."""

from __future__ import annotations

from .server import make_app, serve

__all__ = ["make_app", "serve"]
