"""Enrolment: estimate the fingerprint of a camera from its photographs, or update it with further ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._arrays import Float64
from ..index import Index
from .calibration import rounded
from .database import Camera, CameraDatabase, code_scores
from .fingerprint import FingerprintSums, Residual
from .photographs import PhotographError, Progress, Reading, read_residual, read_residuals, same_scene

MIN_FOR_OUTLIERS = 4
"""Least number of photographs of a camera for detecting outliers among them."""

OUTLIER_SHARE, OUTLIER_DEVIATIONS = 0.25, 6.0
"""An outlier's correlation is below this share of the median and below this many deviations of isotropic noise."""

MAX_NAMED = 3
"""Greatest number of files that the message names if none of them can be enrolled."""

MAX_OTHERS = 50
"""Greatest number of other cameras that enrolled photographs are compared with, for impostor scores."""


@dataclass(frozen=True)
class Enrolment:
    """Result of an enrolment."""

    camera: str  #: name of the camera
    n_enrolled: int  #: photographs added now
    n_photographs: int  #: photographs of the camera in total
    refused: list[PhotographError]  #: files left out, with the reason
    notes: list[str]  #: remarks on the quality of the fingerprint


def enroll(
    database: CameraDatabase,
    camera: str,
    paths: Sequence[str | os.PathLike[str]],
    *,
    keep_outliers: bool = False,
    keep_names: bool = True,
    keep_hashes: bool = True,
    keep_exif: bool = True,
    keep_sums: bool = True,
    keep_fingerprints: bool | None = None,
    progress: Progress | None = None,
) -> Enrolment:
    """Enrol the photographs ``paths`` of one camera of a ``database``, new or known, in one transaction.

    Files that cannot be used are left out and listed in the result: unreadable images, photographs already enrolled for
    this or another camera, photographs of another frame size, and outliers, which do not correlate with the fingerprint
    of the other photographs. If no photograph is left, ValueError is raised and nothing is stored. ``progress`` is
    called with the number of photographs done and the number of all.

    Parameters
    ----------
    camera : str
        Name of the camera, which is the id of its entry.
    keep_outliers : bool
        Enrol outliers, too.
    keep_names : bool
        Store the name of each file, without its folder.
    keep_hashes : bool
        Store the SHA-256 and the scene signature of each photograph. Without them, neither a photograph enrolled twice
        nor a questioned photograph of an enrolled scene is detected.
    keep_exif : bool
        Store the model and date from the EXIF fields of each photograph.
    keep_sums : bool
        Store the sums from which further photographs update the fingerprint.
    keep_fingerprints : bool, optional
        Store the fingerprint of the whole frame in float16, 4 bytes per pixel with its weights, for the search for
        crops and scales. By default it is stored if it is stored already, and not for a new camera.
    """
    if not isinstance(camera, str) or not camera.strip():
        raise ValueError(f"camera must be a non-empty name, got {camera!r}")
    if not paths:
        raise ValueError("paths must name at least one photograph")
    refused, readings = list[PhotographError](), list[Reading]()
    for read in read_residuals(paths, size=database.size, progress=progress):
        (refused if isinstance(read, PhotographError) else readings).append(read)  # type: ignore[arg-type]
    _check_any(readings, refused)  # before anything is created
    with database.writing():
        known = database.camera(camera) if camera in database else None
        readings = _distinct(database, readings, refused)
        frames = [one.photograph.frame() for one in readings]
        frame = max(dict.fromkeys(frames), key=frames.count, default=(0, 0)) if known is None else known.frame
        readings = _of_one_frame(readings, frame, refused)
        _check_any(readings, refused)
        before = Camera(camera, frame, [], None, None, [], {}) if known is None else known
        if keep_fingerprints and known is not None and known.whole is None:
            database.whole(known)  # raises
        whole = before.whole is not None if keep_fingerprints is None else keep_fingerprints
        sums = FingerprintSums.of(one.residual for one in readings)
        sums = sums if known is None else database.sums(known) + sums
        correlations, scores = leave_one_out(database, sums, readings)
        if sums.n_photographs >= MIN_FOR_OUTLIERS and not keep_outliers:
            outlying = find_outliers(correlations, size=database.size)
            for at in outlying:
                problem = (
                    "does not fit the other photographs of the camera: its correlation with their fingerprint is "
                    f"{correlations[at]:.4f}, the median is {np.median(correlations):.4f}; check whether another "
                    "camera took it, or whether it was edited"
                )
                refused.append(PhotographError(readings[at].photograph.path, problem))
                sums = sums.without(readings[at].residual)
            readings = [one for at, one in enumerate(readings) if at not in outlying]
            _check_any(readings, refused)
            if outlying:
                correlations, scores = leave_one_out(database, sums, readings)
        distinct = _of_distinct_scenes(before, readings)
        records = [one.photograph.record(names=keep_names, hashes=keep_hashes, exif=keep_exif) for one in readings]
        for one, record in zip(readings, records, strict=True):
            if keep_hashes and one.scene is not None:
                record["scene"] = one.scene.hex()
        changed = replace(
            before,
            photographs=before.photographs + records,
            match_scores=before.match_scores + rounded(scores[distinct] if len(scores) else scores),
            impostor_scores=_impostor_scores(database, before, [readings[at] for at in np.flatnonzero(distinct)]),
        )
        frame_sums = _whole(database, known, readings, progress) if whole else None
        database.put(changed, sums.fingerprint(), sums if keep_sums else None, frame_sums)
    notes = _notes(database, sums, correlations, int(np.count_nonzero(~distinct)))
    return Enrolment(camera, len(readings), len(changed.photographs), refused, notes)


def leave_one_out(database: CameraDatabase, sums: FingerprintSums, readings: list[Reading]) -> tuple[Float64, Float64]:
    """Return each photograph's correlation with the fingerprint of all others, and its score with their code.

    Both are empty if there are no others.
    """
    if sums.n_photographs < 2:
        return np.empty(0), np.empty(0)
    correlations, scores = [], []
    for one in readings:
        fingerprint, query = sums.without(one.residual).fingerprint().ravel(), one.residual.query
        norm = float(np.linalg.norm(query)) * float(np.linalg.norm(fingerprint))
        correlations.append(float(query @ fingerprint) / norm if norm else 0.0)
        index = Index(database.size**2, family="adaptive", n_bits=database.n_bits, random_state=0)
        index.add(fingerprint[np.newaxis])
        scores.append(code_scores(index, query, [0])[0])
    return np.array(correlations), np.array(scores)


def find_outliers(correlations: Float64, *, size: int) -> list[int]:
    """Return positions of photographs whose correlation with the others is far below the median and within noise."""
    limit = min(OUTLIER_SHARE * float(np.median(correlations)), OUTLIER_DEVIATIONS / size)
    return np.flatnonzero(correlations < limit).tolist()


def _notes(database: CameraDatabase, sums: FingerprintSums, correlations: Float64, n_repeated: int) -> list[str]:
    """Return remarks on the quality of a fingerprint."""
    notes = []
    if len(correlations) and np.median(correlations) < OUTLIER_DEVIATIONS / database.size:
        notes.append(
            f"the photographs hardly share a pattern: their median correlation with the fingerprint of the others is "
            f"{np.median(correlations):.4f}; enroll more photographs, preferably of bright and even scenes"
        )
    if sums.n_photographs < MIN_FOR_OUTLIERS:
        notes.append(f"outliers are detected among {MIN_FOR_OUTLIERS} or more photographs, not among fewer")
    if n_repeated:
        notes.append(
            f"{n_repeated} of the photographs show the scene of another one of this camera, so their scores do not "
            "count as known matches; enroll photographs of different scenes"
        )
    return notes


def _distinct(database: CameraDatabase, readings: list[Reading], refused: list[PhotographError]) -> list[Reading]:
    """Return the photographs that are neither enrolled nor given twice; add errors for the others."""
    seen = {
        photograph["sha256"]: f"is enrolled already, as a photograph of {camera.name!r}"
        for camera in database.cameras()
        for photograph in camera.photographs
        if "sha256" in photograph
    }
    kept = []
    for one in readings:
        problem = seen.setdefault(one.photograph.sha256, "")
        if problem:
            refused.append(PhotographError(one.photograph.path, problem))
        else:
            kept.append(one)
            seen[one.photograph.sha256] = f"is the same photograph as {one.photograph.path}"
    return kept


def _of_one_frame(readings: list[Reading], frame: tuple[int, int], refused: list[PhotographError]) -> list[Reading]:
    """Return the photographs of the camera's frame size; add errors for the others."""
    for one in readings:
        width, height = one.photograph.frame()
        if (width, height) != frame:
            problem = (
                f"has {width} x {height} pixels, but the photographs of this camera have {frame[0]} x {frame[1]}; use "
                "photographs as the camera stored them, or enroll other sizes as another camera"
            )
            refused.append(PhotographError(one.photograph.path, problem))
    return [one for one in readings if one.photograph.frame() == frame]


def _check_any(readings: list[Reading], refused: list[PhotographError]) -> None:
    if not readings:
        named, n_more = "; ".join(map(str, refused[:MAX_NAMED])), len(refused) - MAX_NAMED
        raise ValueError(f"no photograph can be enrolled: {named}" + (f"; and {n_more:,} more" if n_more > 0 else ""))


def _of_distinct_scenes(camera: Camera, readings: list[Reading]) -> Any:
    """Return a mask of the photographs that show no scene of an enrolled or another given photograph."""
    mask = np.ones(len(readings), bool)
    for at, one in enumerate(readings):
        others = (other.scene for place, other in enumerate(readings) if place != at)
        enrolled = camera.photograph_of_scene(one.scene) is not None
        mask[at] = not (enrolled or any(same_scene(one.scene, scene) for scene in others))
    return mask


def _impostor_scores(database: CameraDatabase, camera: Camera, readings: list[Reading]) -> dict[str, list[float]]:
    """Return all impostor scores of a camera: those known, and those of further photographs with other cameras.

    Comparisons with cameras that have a photograph of the same scene do not count.
    """
    others = [one for one in database.cameras() if one.name != camera.name and one.frame == camera.frame]
    found = {condition: [*scores] for condition, scores in camera.impostor_scores.items()}
    for one in readings:
        names = [other.name for other in others[:MAX_OTHERS] if other.photograph_of_scene(one.scene) is None]
        if names:
            scores = code_scores(database.index, one.residual.query, names)
            found.setdefault(one.condition, []).extend(rounded(scores))
    return found


def _whole(
    database: CameraDatabase, known: Camera | None, readings: list[Reading], progress: Progress | None
) -> FingerprintSums:
    """Return the sums over the whole frame of all photographs of a camera; the new ones are read again, one by one."""

    def residuals() -> Iterator[Residual]:
        for done, one in enumerate(readings, 1):
            yield read_residual(one.photograph.path, size=None).residual
            if progress is not None:
                progress(done, len(readings))

    sums = FingerprintSums.of(residuals())
    return sums if known is None else database.whole(known) + sums
