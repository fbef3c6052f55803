"""Identification: a photograph compared with the cameras of a database, and the calibration that makes it evidence."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ..theory.log_tails import probabilities
from .calibration import MIN_IMPOSTORS, CameraCalibration
from .database import CameraDatabase
from .images import ORIENTATIONS, Photograph, PhotographError
from .pce import CUSTOMARY, peak_to_correlation_energy
from .reading import Progress, Reading, read_residual, read_residuals, residual_of
from .residual import Residual

FALSE_ALARM = 1e-6
"""Chance that a photograph of no camera of the database is said to match one, by default."""


@dataclass(frozen=True)
class CameraMatch:
    """A camera that a photograph was compared with."""

    camera: str
    score: float  # estimated correlation of the residual with the pattern that the camera would leave
    p_value: float  # chance that one impostor scores as high; never 0
    log10_p_value: float  # its decimal logarithm, also if the p-value is too small for a float
    e_value: float  # impostors to expect that score as high in all comparisons
    log10_likelihood_ratio: float | None  # None if too few matches are known
    interval: tuple[float, float] | None  # of the former; ends may be infinite
    words: str | None  # verbal scale of ENFSI
    pce: float  # peak to correlation energy with the uncompressed fingerprint
    orientation: str  # in which the photograph scores highest
    n_photographs: int  # enrolled photographs of the camera

    def to_json(self) -> dict[str, Any]:
        """Return plain values; infinite ends of the interval are None."""
        ends = None if self.interval is None else [end if math.isfinite(end) else None for end in self.interval]
        return asdict(self) | {"interval": ends}


@dataclass(frozen=True, eq=False)
class Identification:
    """Cameras most like a photograph, best first, and all that the statement rests on."""

    photograph: Photograph
    candidates: list[CameraMatch]
    calibration: CameraCalibration
    false_alarm: float  # of the whole search
    n_cameras: int  # in the database
    n_comparable: int  # of the frame size of the photograph
    n_comparisons: int  # cameras times orientations, which the false alarm is shared among
    orientations: list[str]  # that were tried
    threshold: float  # score from which on a camera matches
    n_usable: int  # pixels that are neither saturated nor dark and flat
    seconds: float

    @property
    def is_match(self) -> bool:
        """Whether the best camera matches at the false alarm of the whole search."""
        return bool(self.candidates) and self.candidates[0].score >= self.threshold

    def conclusion(self) -> str:
        """Return the result in words, with its limits."""
        best = self.candidates[0]
        searched = f"{self.n_cameras:,} cameras in {self.n_comparisons // self.n_cameras} orientations"
        if not self.is_match:
            why = (
                f"The best camera, {best.camera!r}, scores {best.score:.4f} (E-value {best.e_value:.2g}, PCE "
                f"{best.pce:.0f}); a match needs {self.threshold:.4f}."
                if math.isfinite(self.threshold)
                else f"The calibration supports no match at this level: {len(self.calibration.impostors):,} impostor "
                f"scores without a model of the tail. The best camera is {best.camera!r} (score {best.score:.4f})."
            )
            return (
                f"No match at a false alarm of {self.false_alarm:g} over {searched}. {why} This does not exclude the "
                "camera: dark, saturated, strongly compressed or edited photographs may hide a pattern."
            )
        second = "agrees" if best.pce >= CUSTOMARY else "does not reach its customary threshold of 60, so take care"
        ratio = (
            f" Likelihood ratio 10^{best.log10_likelihood_ratio:.1f}: {best.words}."
            if best.log10_likelihood_ratio is not None
            else " A likelihood ratio is not stated: too few scores of known matches."
        )
        return (
            f"The photograph matches {best.camera!r} ({best.orientation}) at a false alarm of {self.false_alarm:g} "
            f"over {searched}: {best.e_value:.2g} impostors are expected to score as high.{ratio} The second test, "
            f"peak to correlation energy, is {best.pce:.0f}: it {second}. This speaks of the sensor that took the "
            "photograph, not of the person, time or place, and only as far as the calibration fits photographs of this "
            "kind."
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values: the result, and all that it rests on."""
        photograph = self.photograph
        return {
            "photograph": {
                "path": photograph.path,
                "sha256": photograph.sha256,
                "bytes": photograph.n_bytes,
                "width": photograph.width,
                "height": photograph.height,
                "exif": photograph.exif,
                "usable_pixels": self.n_usable,
            },
            "match": self.is_match,
            "conclusion": self.conclusion(),
            "candidates": [one.to_json() for one in self.candidates],
            "false_alarm": self.false_alarm,
            "threshold": self.threshold if math.isfinite(self.threshold) else None,
            "n_cameras": self.n_cameras,
            "n_comparable": self.n_comparable,
            "n_comparisons": self.n_comparisons,
            "orientations": self.orientations,
            "calibration": {
                "statement": self.calibration.statement(),
                "n_impostor_scores": len(self.calibration.impostors),
                "n_match_scores": len(self.calibration.matches),
                "normal_law_p_value": self.calibration.fit_p_value,
                "normal_law_used": self.calibration.tail_fits,
            },
            "seconds": round(self.seconds, 3),
        }


def identify(
    database: CameraDatabase,
    path: str | os.PathLike[str],
    *,
    k: int = 5,
    false_alarm: float = FALSE_ALARM,
    orientations: Sequence[str] = tuple(ORIENTATIONS),
    n_threads: int | None = None,
) -> Identification:
    """Compare a photograph with all cameras of a database that have its frame size.

    The photograph is compared as it is stored; if no camera matches, rotations and mirror images are tried. The false
    alarm is shared among all cameras and all orientations that could be tried, whether or not they were needed.
    ValueError if the database is not calibrated, because nothing can be stated then.

    Parameters
    ----------
    k : int
        Cameras that are reported.
    false_alarm : float in (0, 1)
        Chance that a photograph of none of these cameras is said to match one.
    orientations : sequence of str
        Orientations to try, of :data:`topsign.cameras.ORIENTATIONS`.
    """
    start = time.perf_counter()
    if not 0 < false_alarm < 1:
        raise ValueError(f"false_alarm must lie in (0, 1), got {false_alarm}")
    calibration = database.calibration
    if calibration is None:
        raise ValueError(
            f"{database.path} is not calibrated, so no p-value can be stated: calibrate it with photographs of other "
            "cameras (topsign cameras calibrate)"
        )
    reading = read_residual(path, size=database.size)
    frames = {one.name: one.frame for one in database.cameras()}
    possible = {name: [one for one in frames if frames[one] == reading.photograph.frame(name)] for name in orientations}
    possible = {name: cameras for name, cameras in possible.items() if cameras}
    if not possible:
        raise PhotographError(path, _other_sizes(reading.photograph, list(frames.values())))
    n_comparisons = len(frames) * len(possible)
    threshold = calibration.threshold(-math.expm1(math.log1p(-false_alarm) / n_comparisons))
    best: dict[str, tuple[float, str, Residual]] = {}
    tried = []
    for orientation, cameras in possible.items():
        residual = reading.residual if orientation == "as stored" else residual_of(reading.photograph, orientation)
        scores = database.scores(residual.query[np.newaxis], cameras, n_threads=n_threads)[0]
        tried.append(orientation)
        for camera, score in zip(cameras, scores.tolist(), strict=True):
            if camera not in best or score > best[camera][0]:
                best[camera] = (score, orientation, residual)
        if scores.max() >= threshold:
            break
    ranked = sorted(best, key=lambda camera: -best[camera][0])[:k]
    candidates = [_candidate(database, camera, *best[camera], calibration, n_comparisons) for camera in ranked]
    return Identification(
        reading.photograph,
        candidates,
        calibration,
        false_alarm,
        len(frames),
        len({camera for cameras in possible.values() for camera in cameras}),
        n_comparisons,
        tried,
        threshold,
        reading.residual.n_usable,
        time.perf_counter() - start,
    )


def calibrate(
    database: CameraDatabase,
    impostors: Sequence[str | os.PathLike[str]] = (),
    *,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[CameraCalibration, list[PhotographError]]:
    """Learn the null distribution of scores, and likelihood ratios, and store them with the database.

    ``impostors`` are photographs taken by none of its cameras, of the frame size of some. Without them, scores are used
    that enrolled photographs had with the other cameras at their enrolment. Likelihood ratios need scores of matches
    too: those of enrolled photographs with the fingerprint of the others. It takes 30 impostors and 10 matches.

    Returns the calibration, and the files that were left out: unreadable ones, enrolled ones, those of other frame
    sizes, and those that a camera of the database seems to have taken (PCE above 60).
    """
    cameras = database.cameras()
    matches = np.array([score for one in cameras for score in one.match_scores])
    today = datetime.now(UTC).date().isoformat()
    refused = list[PhotographError]()
    if not impostors:
        scores = np.array([score for one in cameras for score in one.impostor_scores])
        n_photographs = sum(len(one.photographs) for one in cameras)
        source = "enrolled photographs with other cameras of the database"
    else:
        enrolled = {one["sha256"]: camera.name for camera in cameras for one in camera.photographs if "sha256" in one}
        parts = []
        for read in read_residuals(impostors, size=database.size, n_threads=n_threads, progress=progress):
            try:
                if isinstance(read, PhotographError):
                    raise read
                names = [one.name for one in cameras if one.frame == read.photograph.frame()]
                parts.append(_impostor(database, read, names, enrolled, cameras))
            except PhotographError as error:
                refused.append(error)
        scores = np.concatenate([np.empty(0), *parts])
        n_photographs, source = len(parts), "photographs given as impostors"
    if len(scores) < MIN_IMPOSTORS and refused:
        problems = "; ".join(map(str, refused[:3]))
        raise ValueError(
            f"calibration needs at least {MIN_IMPOSTORS} impostor scores, got {len(scores)}; {len(refused)} files were "
            f"left out: {problems}"
        )
    learned = CameraCalibration(scores, matches, source, n_photographs, len(cameras), today)
    with database.writing():
        database.keep_calibration(learned)
    return learned, refused


def _impostor(
    database: CameraDatabase, reading: Reading, names: list[str], enrolled: dict[str, str], cameras: Any
) -> Any:
    """Return the scores of an impostor with all cameras of its frame size; PhotographError if it may be none."""
    path = reading.photograph.path
    if reading.photograph.sha256 in enrolled:
        raise PhotographError(path, f"is enrolled as {enrolled[reading.photograph.sha256]!r}, so it is no impostor")
    if not names:
        raise PhotographError(path, _other_sizes(reading.photograph, [one.frame for one in cameras]))
    scores = database.scores(reading.residual.query[np.newaxis], names)[0]
    nearest = names[int(scores.argmax())]
    pce = _pce(database, nearest, reading.residual)
    if pce >= CUSTOMARY:
        raise PhotographError(path, f"seems to be taken by {nearest!r} (PCE {pce:.0f}), so it is no impostor")
    return scores


def _candidate(
    database: CameraDatabase,
    camera: str,
    score: float,
    orientation: str,
    residual: Residual,
    calibration: CameraCalibration,
    n_comparisons: int,
) -> CameraMatch:
    log10 = float(calibration.log10_p_values(np.array(score)))
    p_value = float(probabilities(log10))
    ratio = None if calibration.evidence is None else calibration.evidence.ratio([score])
    return CameraMatch(
        camera,
        score,
        p_value,
        log10,
        p_value * n_comparisons,
        None if ratio is None else float(ratio.log10[0]),
        None if ratio is None else (float(ratio.low[0]), float(ratio.high[0])),
        None if ratio is None else ratio.words[0],
        _pce(database, camera, residual),
        orientation,
        len(database.camera(camera).photographs),
    )


def _pce(database: CameraDatabase, camera: str, residual: Residual) -> float:
    usable = residual.intensity > 0
    return peak_to_correlation_energy(residual.noise * usable, residual.intensity * database.fingerprint(camera))


def _other_sizes(photograph: Photograph, frames: list[tuple[int, int]]) -> str:
    known = ", ".join(f"{width} x {height}" for width, height in dict.fromkeys(frames)) or "none"
    return (
        f"has {photograph.width} x {photograph.height} pixels, and no camera of the database has photographs of this "
        f"size (sizes enrolled: {known}); give the photograph as the camera stored it, neither scaled nor cropped, or "
        "enroll photographs of this size"
    )
