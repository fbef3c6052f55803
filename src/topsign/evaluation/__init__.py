"""Evaluation of codes on a user's own signals: recall, bytes and false alarms."""

from __future__ import annotations

from .measurement import evaluate
from .page import STORED_WORDS, recall_words, render, stored_numbers
from .report import Candidate, Evaluation, Option, Recall
from .source import SignalSource
from .truth import METRICS

__all__ = [
    "METRICS",
    "STORED_WORDS",
    "Candidate",
    "Evaluation",
    "Option",
    "Recall",
    "SignalSource",
    "evaluate",
    "recall_words",
    "render",
    "stored_numbers",
]
