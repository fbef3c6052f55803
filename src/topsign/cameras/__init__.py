"""Camera identification from sensor pattern noise (needs Pillow and PyWavelets)."""

from __future__ import annotations

from .alignment import peak_to_correlation_energy
from .calibration import CameraCalibration
from .database import Camera, CameraDatabase
from .enrolment import Enrolment, enroll
from .fingerprint import FingerprintSums, Residual, denoise, extract_residual
from .identification import FALSE_ALARM, CameraMatch, Identification, calibrate, identify
from .photographs import ORIENTATIONS, Photograph, PhotographError, read_photograph, same_scene, scene_signature
from .report import report_record, write_report

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
