"""Compressed linear heads: one head, its files and certificate, and scikit-learn's classifiers as faces of it.

The classifiers live in :mod:`topsign.heads.classifiers`, so that a head is loaded and used without scikit-learn.
"""

from __future__ import annotations

from .advice import Choice, SizeWarning
from .head import Head, TopK

__all__ = ["Choice", "Head", "SizeWarning", "TopK"]
