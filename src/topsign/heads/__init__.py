"""Compressed linear heads: the head itself, its files and certificate, and a scikit-learn classifier of it.

The classifier lives in :mod:`topsign.heads.classifier`, so that a head is loaded and used without scikit-learn.
"""

from __future__ import annotations

from .advice import SizeChoice, SizeWarning
from .head import Head, TopK

__all__ = ["Head", "SizeChoice", "SizeWarning", "TopK"]
