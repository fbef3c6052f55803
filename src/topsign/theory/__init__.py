"""Distributions of codes and distances, detection, significance and planning; numbers in, numbers out."""

from __future__ import annotations

from ..errors import TargetError
from .capacity import ClusterPlan, SearchCosts, plan_cluster
from .concentration import (
    bits_for_distortion,
    chernoff_lower,
    chernoff_upper,
    hoeffding,
    poisson_binomial_pmf,
    poisson_binomial_tail,
)
from .design import PLANNED_FAMILIES, Plan, detection_at, plan
from .detection import RocCurve, roc
from .distances import (
    expected_hamming,
    expected_hamming_bound,
    expected_hamming_given,
    expected_pair_hamming,
    flip_probability,
    hamming_cdf,
    hamming_pmf,
    hamming_sf,
    hamming_variance,
    pair_flip_probability,
    sign_expected_hamming,
    universal_expected_hamming,
    universal_undithered_hamming,
)
from .evidence import LikelihoodRatio, LikelihoodRatioModel
from .inference import (
    SCORINGS,
    EmpiricalNull,
    correct_pvalues,
    correlation_from_hamming,
    correlation_interval,
    match_log10_pvalue,
    match_pvalue,
)
from .log_tails import probability_text
from .nulls import SearchNull, searches_needed
from .order_statistics import harter_approximation, mean_kept_magnitude, order_statistic_mean
from .pools import PROJECTIONS
from .rates import captured_energy, rate_distortion_limit
from .sizes import storage_bits
from .trellis import TrellisPlan, trellis_detection, trellis_energy
from .water_filling import water_filling

__all__ = [
    "PLANNED_FAMILIES",
    "PROJECTIONS",
    "SCORINGS",
    "ClusterPlan",
    "EmpiricalNull",
    "LikelihoodRatio",
    "LikelihoodRatioModel",
    "Plan",
    "RocCurve",
    "SearchCosts",
    "SearchNull",
    "TargetError",
    "TrellisPlan",
    "bits_for_distortion",
    "captured_energy",
    "chernoff_lower",
    "chernoff_upper",
    "correct_pvalues",
    "correlation_from_hamming",
    "correlation_interval",
    "detection_at",
    "expected_hamming",
    "expected_hamming_bound",
    "expected_hamming_given",
    "expected_pair_hamming",
    "flip_probability",
    "hamming_cdf",
    "hamming_pmf",
    "hamming_sf",
    "hamming_variance",
    "harter_approximation",
    "hoeffding",
    "match_log10_pvalue",
    "match_pvalue",
    "mean_kept_magnitude",
    "order_statistic_mean",
    "pair_flip_probability",
    "plan",
    "plan_cluster",
    "poisson_binomial_pmf",
    "poisson_binomial_tail",
    "probability_text",
    "rate_distortion_limit",
    "roc",
    "searches_needed",
    "sign_expected_hamming",
    "storage_bits",
    "trellis_detection",
    "trellis_energy",
    "universal_expected_hamming",
    "universal_undithered_hamming",
    "water_filling",
]
