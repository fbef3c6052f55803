"""Evaluation of codes on a user's own signals: recall, bytes and false alarms."""

from __future__ import annotations

from .measurement import evaluate
from .report import Candidate, Evaluation, Option, Recall, SignalSource, render, tables
from .sample import METRICS

__all__ = ["METRICS", "Candidate", "Evaluation", "Option", "Recall", "SignalSource", "evaluate", "render", "tables"]
