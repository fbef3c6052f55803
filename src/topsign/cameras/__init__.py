"""Camera identification from sensor pattern noise (needs Pillow and PyWavelets)."""

from __future__ import annotations

from .calibration import CameraCalibration
from .database import Camera, CameraDatabase
from .enrolment import Enrolment, enroll
from .fingerprint import FingerprintSums
from .identification import FALSE_ALARM, CameraMatch, Identification, calibrate, identify
from .images import ORIENTATIONS, Photograph, PhotographError, read_photograph
from .pce import peak_to_correlation_energy
from .report import report_record, write_report
from .residual import Residual, denoise, extract_residual
from .scene import same_scene, scene_signature

__all__ = [
    "FALSE_ALARM",
    "ORIENTATIONS",
    "Camera",
    "CameraCalibration",
    "CameraDatabase",
    "CameraMatch",
    "Enrolment",
    "FingerprintSums",
    "Identification",
    "Photograph",
    "PhotographError",
    "Residual",
    "calibrate",
    "denoise",
    "enroll",
    "extract_residual",
    "identify",
    "peak_to_correlation_energy",
    "read_photograph",
    "report_record",
    "same_scene",
    "scene_signature",
    "write_report",
]
