"""Significance of matches: null distributions, p-values, calibration with known impostors, and likelihood ratios."""

from __future__ import annotations

from .likelihood_ratios import LikelihoodRatio, LikelihoodRatioModel
from .p_values import (
    agreement_log10_pvalue,
    correct_pvalues,
    match_log10_pvalue,
    match_pvalue,
    probabilities,
    probability_text,
)
from .score_calibration import MAX_REPEATED, ScoreCalibration, searches_needed

__all__ = [
    "MAX_REPEATED",
    "LikelihoodRatio",
    "LikelihoodRatioModel",
    "ScoreCalibration",
    "agreement_log10_pvalue",
    "correct_pvalues",
    "match_log10_pvalue",
    "match_pvalue",
    "probabilities",
    "probability_text",
    "searches_needed",
]
