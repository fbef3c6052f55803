"""Compressed linear heads, and a scikit-learn classifier of a head.

The classifier lives in :mod:`topsign.heads.classifier`, so that a head is loaded and used without scikit-learn.
"""

from __future__ import annotations

from .head import Head, Shortlist, TopK
from .size_selection import SizeChoice, SizeWarning

__all__ = ["Head", "Shortlist", "SizeChoice", "SizeWarning", "TopK"]
