"""Identification of the camera of a photograph, and calibration of the database."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from .._arrays import Float64
from ..significance import probabilities
from .alignment import CUSTOMARY, peak_to_correlation_energy
from .calibration import MIN_IMPOSTORS, CameraCalibration
from .database import Camera, CameraDatabase
from .fingerprint import Residual
from .photographs import (
    ORIENTATIONS,
    Photograph,
    PhotographError,
    Progress,
    Reading,
    read_residual,
    read_residuals,
    reading_of,
)

FALSE_ALARM = 1e-6
"""Default probability that a photograph of none of the cameras matches one."""


@dataclass(frozen=True)
class CameraMatch:
    """Comparison of a photograph with one camera."""

    camera: str
    score: float  # estimated correlation of the residual with the pattern expected of this camera
    p_value: float  # probability that one impostor scores as high; never 0
    log10_p_value: float  # decimal logarithm of the p-value, also if the p-value is too small for a float
    e_value: float  # expected number of impostors that score as high in all comparisons
    log10_likelihood_ratio: float | None  # None if there are too few match scores
    interval: tuple[float, float] | None  # 95% interval of the likelihood ratio; ends may be infinite
    words: str | None  # verbal scale of ENFSI
    pce: float  # peak to correlation energy with the uncompressed fingerprint
    orientation: str  # orientation in which the photograph scores highest
    n_photographs: int  # enrolled photographs of the camera
    same_scene: dict[str, Any] | None = None  # an enrolled photograph that shows the same scene

    def to_json(self) -> dict[str, Any]:
        """Return plain values; infinite ends of the interval are None."""
        ends = None if self.interval is None else [end if math.isfinite(end) else None for end in self.interval]
        return asdict(self) | {"interval": ends}


@dataclass(frozen=True, eq=False)
class Identification:
    """Best cameras of a photograph, with the calibration and the settings of the search."""

    photograph: Photograph
    candidates: list[CameraMatch]  # best first
    excluded: list[CameraMatch]  # cameras with an enrolled photograph of the same scene that score as high
    calibration: CameraCalibration
    false_alarm: float  # probability of a false match in the whole search
    n_cameras: int  # cameras in the database
    n_comparable: int  # cameras with the frame size of the photograph
    n_comparisons: int  # cameras times orientations, among which the false-alarm rate is divided
    orientations: list[str]  # orientations that were tried
    threshold: float  # least score of a match
    n_usable: int  # pixels that are neither saturated nor dark and flat
    seconds: float

    @property
    def is_match(self) -> bool:
        """Whether the best camera matches at the false-alarm rate of the whole search."""
        return bool(self.candidates) and self.candidates[0].score >= self.threshold

    def conclusion(self) -> str:
        """Return the result and its limits in words."""
        return " ".join([self._match_words() if self.is_match else self._no_match_words(), *map(_scene, self.excluded)])

    @property
    def _searched(self) -> str:
        return f"{self.n_cameras:,} cameras in {self.n_comparisons // self.n_cameras} orientations"

    def _no_match_words(self) -> str:
        best = self.candidates[0]
        why = (
            f"The best camera, {best.camera!r}, scores {best.score:.4f} (E-value {best.e_value:.2g}, PCE "
            f"{round(best.pce):,}); a match needs {self.threshold:.4f}."
            if math.isfinite(self.threshold)
            else "The calibration supports no match at this level, because there are "
            f"{len(self.calibration.impostors):,} impostor scores and no tail model. The best camera is "
            f"{best.camera!r} (score {best.score:.4f})."
        )
        return (
            f"No match at a false-alarm rate of {self.false_alarm:g} over {self._searched}. {why} This does not "
            "exclude the camera, because the pattern may be hidden in dark, saturated, strongly compressed or edited "
            "photographs."
        )

    def _match_words(self) -> str:
        best = self.candidates[0]
        second = (
            "which confirms the match"
            if best.pce >= CUSTOMARY
            else f"which is below its customary threshold of {CUSTOMARY:g} and does not confirm the match"
        )
        ratio = (
            f"The likelihood ratio is 10^{best.log10_likelihood_ratio:.1f}: {best.words}."
            if best.log10_likelihood_ratio is not None
            else "No likelihood ratio is stated, because there are too few scores of known matches."
        )
        return (
            f"The photograph matches {best.camera!r} ({best.orientation}) at a false-alarm rate of "
            f"{self.false_alarm:g} over {self._searched}; {best.e_value:.2g} impostors are expected to score as high. "
            f"{ratio} The second test, peak to correlation energy, gives {round(best.pce):,}, {second}. The result "
            "concerns the sensor that took the photograph, not the person, time or place, and it holds for photographs "
            "like those of the calibration."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the result, the calibration and the settings as plain values."""
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
            "excluded": [one.to_json() for one in self.excluded],
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
                "photographs": self.calibration.photographs,
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
) -> Identification:
    """Compare a photograph with all cameras of a database that have its frame size.

    The photograph is compared as it is stored. If no camera matches, rotations and mirror images are tried. The
    false-alarm rate is divided among all cameras and orientations that can be tried, whether or not they are needed.

    A camera with an enrolled photograph of the same scene is excluded, because residuals of one scene correlate
    whichever cameras took them. ValueError is raised if the database is not calibrated.

    Parameters
    ----------
    k : int
        Greatest number of cameras to report.
    false_alarm : float in (0, 1)
        Probability that a photograph of none of these cameras matches one.
    orientations : sequence of str
        Orientations to try, from :data:`topsign.cameras.ORIENTATIONS`.
    """
    start = time.perf_counter()
    if not 0 < false_alarm < 1:
        raise ValueError(f"false_alarm must lie in (0, 1), got {false_alarm}")
    calibration = database.calibration
    if calibration is None:
        raise ValueError(
            f"{database.path} is not calibrated, so no p-value can be stated; calibrate it with photographs of other "
            "cameras (topsign cameras calibrate)"
        )
    reading = read_residual(path, size=database.size)
    known = {one.name: one for one in database.cameras()}
    possible = {
        name: [one.name for one in known.values() if one.frame == reading.photograph.frame(name)]
        for name in orientations
    }
    possible = {name: cameras for name, cameras in possible.items() if cameras}
    if not possible:
        raise PhotographError(path, _other_sizes(reading.photograph, [one.frame for one in known.values()]))
    n_comparisons = len(known) * len(possible)
    threshold = calibration.threshold(-math.expm1(math.log1p(-false_alarm) / n_comparisons))
    best: dict[str, tuple[float, str, Reading]] = {}
    tried = []
    for orientation, cameras in possible.items():
        shown = reading if orientation == "as stored" else reading_of(reading.photograph, orientation)
        scores = database.scores(shown.residual.query[np.newaxis], cameras)[0]
        tried.append(orientation)
        for camera, score in zip(cameras, scores.tolist(), strict=True):
            if camera not in best or score > best[camera][0]:
                best[camera] = (score, orientation, shown)
        above = [cameras[at] for at in np.flatnonzero(scores >= threshold)]
        if any(known[camera].photograph_of_scene(shown.scene) is None for camera in above):
            break
    candidates, excluded = list[CameraMatch](), list[CameraMatch]()
    for camera in sorted(best, key=lambda camera: -best[camera][0]):
        found = _candidate(database, known[camera], *best[camera], calibration, n_comparisons)
        (candidates if found.same_scene is None else excluded).append(found)
        if len(candidates) == k:
            break
    if not candidates:
        raise PhotographError(path, "cannot be judged. " + " ".join(map(_scene, excluded)))
    return Identification(
        reading.photograph,
        candidates,
        excluded,
        calibration,
        false_alarm,
        len(known),
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
    keep_names: bool = True,
    keep_hashes: bool = True,
    progress: Progress | None = None,
) -> tuple[CameraCalibration, list[PhotographError]]:
    """Estimate the null distribution of scores and the likelihood ratios, and store them with the database.

    ``impostors`` are photographs that none of the cameras took, of the frame size of some. Without them, the scores of
    enrolled photographs with the other cameras are used, which enrolment has stored. Likelihood ratios also need match
    scores, which are those of enrolled photographs with the fingerprint of the others. At least 30 impostor scores and
    10 match scores are needed. Comparisons do not count if the camera has an enrolled photograph of the same scene.

    ``keep_names`` and ``keep_hashes`` store the file names and SHA-256 of the impostors, which reports list.

    Returns the calibration, and the files left out: unreadable ones, enrolled ones, those of other frame sizes, and
    those that a camera of the database seems to have taken (PCE of 60 or more).
    """
    cameras = database.cameras()
    matches = np.array([score for one in cameras for score in one.match_scores])
    today = datetime.now(UTC).date().isoformat()
    refused, records = list[PhotographError](), list[dict[str, Any]]()
    if not impostors:
        scores = np.array([score for one in cameras for score in one.impostor_scores])
        n_photographs = sum(len(one.photographs) for one in cameras)
        source = "enrolled photographs with other cameras of the database"
    else:
        enrolled = {one["sha256"]: camera.name for camera in cameras for one in camera.photographs if "sha256" in one}
        parts = [np.empty(0)]
        for read in read_residuals(impostors, size=database.size, progress=progress):
            try:
                if isinstance(read, PhotographError):
                    raise read
                parts.append(_impostor(database, read, enrolled, cameras))
                records.append(read.photograph.record(names=keep_names, hashes=keep_hashes, exif=False))
            except PhotographError as error:
                refused.append(error)
        scores = np.concatenate(parts)
        n_photographs, source = len(records), "photographs given as impostors"
    if len(scores) < MIN_IMPOSTORS and refused:
        problems = "; ".join(map(str, refused[:3]))
        raise ValueError(
            f"calibration needs at least {MIN_IMPOSTORS} impostor scores, got {len(scores)}; {len(refused)} files were "
            f"left out: {problems}"
        )
    learned = CameraCalibration(scores, matches, source, n_photographs, len(cameras), today, records)
    with database.writing():
        database.keep_calibration(learned)
    return learned, refused


def _impostor(database: CameraDatabase, reading: Reading, enrolled: dict[str, str], cameras: list[Camera]) -> Float64:
    """Return an impostor's scores with all cameras of its frame size; PhotographError if it may not be one."""
    path = reading.photograph.path
    if reading.photograph.sha256 in enrolled:
        raise PhotographError(
            path, f"is enrolled for {enrolled[reading.photograph.sha256]!r}, so it is not an impostor"
        )
    comparable = [one for one in cameras if one.frame == reading.photograph.frame()]
    if not comparable:
        raise PhotographError(path, _other_sizes(reading.photograph, [one.frame for one in cameras]))
    names = [one.name for one in comparable if one.photograph_of_scene(reading.scene) is None]
    if not names:
        raise PhotographError(path, "shows a scene that is enrolled for every camera of its size")
    scores: Float64 = database.scores(reading.residual.query[np.newaxis], names)[0]
    nearest = names[int(scores.argmax())]
    pce = _pce(database, nearest, reading.residual)
    if pce >= CUSTOMARY:
        raise PhotographError(
            path, f"seems to have been taken by {nearest!r} (PCE {pce:.0f}), so it is not an impostor"
        )
    return scores


def _candidate(
    database: CameraDatabase,
    camera: Camera,
    score: float,
    orientation: str,
    reading: Reading,
    calibration: CameraCalibration,
    n_comparisons: int,
) -> CameraMatch:
    log10 = float(calibration.log10_p_values(np.array(score)))
    p_value = float(probabilities(log10))
    ratio = None if calibration.evidence is None else calibration.evidence.ratio([score])
    return CameraMatch(
        camera.name,
        score,
        p_value,
        log10,
        p_value * n_comparisons,
        None if ratio is None else float(ratio.log10[0]),
        None if ratio is None else (float(ratio.low[0]), float(ratio.high[0])),
        None if ratio is None else ratio.words[0],
        _pce(database, camera.name, reading.residual),
        orientation,
        len(camera.photographs),
        camera.photograph_of_scene(reading.scene),
    )


def _pce(database: CameraDatabase, camera: str, residual: Residual) -> float:
    usable = residual.intensity > 0
    return peak_to_correlation_energy(residual.noise * usable, residual.intensity * database.fingerprint(camera))


def _scene(one: CameraMatch) -> str:
    """Return why a camera is excluded."""
    assert one.same_scene is not None
    named = one.same_scene.get("file") or one.same_scene.get("sha256", "")
    return (
        f"{one.camera!r} is excluded, because the photograph shows the same scene as {named}, which is enrolled for "
        f"this camera, and the score of {one.score:.4f} may come from the scene and not from the sensor. To include "
        "the camera, enroll it without photographs of this scene."
    )


def _other_sizes(photograph: Photograph, frames: list[tuple[int, int]]) -> str:
    known = ", ".join(f"{width} x {height}" for width, height in dict.fromkeys(frames)) or "none"
    return (
        f"has {photograph.width} x {photograph.height} pixels, and no camera of the database has photographs of this "
        f"size (sizes enrolled: {known}); use the photograph as the camera stored it, neither scaled nor cropped, or "
        "enroll photographs of this size"
    )
