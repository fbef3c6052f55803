"""Evaluation of codes on a user's own signals: recall, bytes and false alarms."""

from __future__ import annotations

from .measurement import evaluate
from .report import (
    STORED_TITLES,
    STORED_WORDS,
    Candidate,
    Evaluation,
    Option,
    Recall,
    SignalSource,
    recall_words,
    render,
    stored_numbers,
)
from .sample import METRICS

__all__ = [
    "METRICS",
    "STORED_TITLES",
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
