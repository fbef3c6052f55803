"""Evaluation on a user's own signals: what recall, bytes and p-values codes would give."""

from __future__ import annotations

from .measurement import evaluate
from .page import render
from .report import Candidate, Evaluation, Recall

__all__ = ["Candidate", "Evaluation", "Recall", "evaluate", "render"]
