"""Linear classifiers whose weight vectors are kept as codes, each its own reference."""

from __future__ import annotations

from .classifiers import AdaptiveLinearClassifier, SignLinearClassifier, UniversalLinearClassifier
from .report import CompressionReport

__all__ = ["AdaptiveLinearClassifier", "CompressionReport", "SignLinearClassifier", "UniversalLinearClassifier"]
