"""Camera identification from sensor pattern noise (needs Pillow and PyWavelets)."""

from __future__ import annotations

from .alignment import SEARCHES, Alignment, peak_to_correlation_energy
from .calibration import CameraCalibration, LikelihoodRatios
from .database import Camera, CameraDatabase
from .enrolment import Enrolment, enroll
from .fingerprint import FingerprintSums, Residual, denoise, extract_residual
from .identification import (
    FALSE_ALARM,
    AlignedMatch,
    CameraMatch,
    Identification,
    PhotographGroups,
    calibrate,
    group_photographs,
    identify,
    identify_all,
)
from .photographs import (
    ORIENTATIONS,
    Photograph,
    PhotographError,
    photographs_in,
    read_photograph,
    same_scene,
    scene_signature,
)
from .report import COLUMNS, report_record, result_row, write_case, write_lir, write_matrix, write_report

__all__ = [
    "COLUMNS",
    "FALSE_ALARM",
    "ORIENTATIONS",
    "SEARCHES",
    "AlignedMatch",
    "Alignment",
    "Camera",
    "CameraCalibration",
    "CameraDatabase",
    "CameraMatch",
    "Enrolment",
    "FingerprintSums",
    "Identification",
    "LikelihoodRatios",
    "Photograph",
    "PhotographError",
    "PhotographGroups",
    "Residual",
    "calibrate",
    "denoise",
    "enroll",
    "extract_residual",
    "group_photographs",
    "identify",
    "identify_all",
    "peak_to_correlation_energy",
    "photographs_in",
    "read_photograph",
    "report_record",
    "result_row",
    "same_scene",
    "scene_signature",
    "write_case",
    "write_lir",
    "write_matrix",
    "write_report",
]
