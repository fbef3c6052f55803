"""Compressed linear heads: one head, its files and certificate, and scikit-learn's classifiers as faces of it.

The classifiers live in :mod:`topsign.heads.classifiers`, so that a head is loaded and used without scikit-learn.
"""

from __future__ import annotations

from .head import Head, TopK

__all__ = ["Head", "TopK"]
