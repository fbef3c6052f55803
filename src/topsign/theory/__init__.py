"""Distributions of codes and distances, detection, significance and planning; numbers in, numbers out."""

from __future__ import annotations

from ..errors import TargetError
from .detection import RocCurve, roc, trellis_detection
from .distances import (
    SCORINGS,
    bits_for_distortion,
    chernoff_lower,
    chernoff_upper,
    correlation_from_hamming,
    correlation_interval,
    expected_hamming,
    expected_hamming_bound,
    expected_pair_hamming,
    flip_probability,
    hamming_pmf,
    hamming_variance,
    hoeffding,
    pair_flip_probability,
    poisson_binomial_pmf,
    poisson_binomial_tail,
    sign_expected_hamming,
    universal_expected_hamming,
    universal_undithered_hamming,
)
from .grouped import (
    grouped_d_prime,
    grouped_energy,
    grouped_expected_agreement,
    grouped_score_moments,
)
from .order_statistics import harter_approximation, mean_kept_magnitude, order_statistic_mean
from .planning import PLANNED_FAMILIES, ClusterPlan, Plan, SearchCosts, detection_at, plan, plan_cluster
from .rates import captured_energy, rate_distortion_limit, storage_bits, trellis_energy, water_filling
from .tails import PROJECTIONS

__all__ = [
    "PLANNED_FAMILIES",
    "PROJECTIONS",
    "SCORINGS",
    "ClusterPlan",
    "Plan",
    "RocCurve",
    "SearchCosts",
    "TargetError",
    "bits_for_distortion",
    "captured_energy",
    "chernoff_lower",
    "chernoff_upper",
    "correlation_from_hamming",
    "correlation_interval",
    "detection_at",
    "expected_hamming",
    "expected_hamming_bound",
    "expected_pair_hamming",
    "flip_probability",
    "grouped_d_prime",
    "grouped_energy",
    "grouped_expected_agreement",
    "grouped_score_moments",
    "hamming_pmf",
    "hamming_variance",
    "harter_approximation",
    "hoeffding",
    "mean_kept_magnitude",
    "order_statistic_mean",
    "pair_flip_probability",
    "plan",
    "plan_cluster",
    "poisson_binomial_pmf",
    "poisson_binomial_tail",
    "rate_distortion_limit",
    "roc",
    "sign_expected_hamming",
    "storage_bits",
    "trellis_detection",
    "trellis_energy",
    "universal_expected_hamming",
    "universal_undithered_hamming",
    "water_filling",
]
