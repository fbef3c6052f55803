"""Evaluation on a user's own signals: what recall, bytes and p-values codes would give."""

from __future__ import annotations

from .measurement import Candidate, Evaluation, Recall, evaluate
from .page import render

__all__ = ["Candidate", "Evaluation", "Recall", "evaluate", "render"]
