"""Enrolment: photographs of one camera become its fingerprint, or photographs are added to it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .._arrays import Float32, Float64
from ..index import AdaptiveIndex
from .database import Camera, CameraDatabase, code_scores
from .fingerprint import FingerprintSums
from .images import PhotographError
from .reading import Progress, Reading, read_residuals

MIN_FOR_OUTLIERS = 4
"""Photographs of a camera from which on one that does not fit the others is recognised."""

OUTLIER_SHARE, OUTLIER_DEVIATIONS = 0.25, 6.0
"""Outliers correlate less than this share of the median, and less than this many deviations of isotropic noise."""

MAX_OTHERS = 50
"""Other cameras that enrolled photographs are compared with, for impostor scores."""


@dataclass(frozen=True)
class Enrolment:
    """What an enrolment did."""

    camera: str
    n_enrolled: int  # photographs added now
    n_photographs: int  # photographs of the camera in all
    refused: list[PhotographError]  # files that were left out, with the reason
    notes: list[str]  # remarks on the quality of the fingerprint


def enroll(
    database: CameraDatabase,
    camera: str,
    paths: Sequence[str | os.PathLike[str]],
    *,
    keep_outliers: bool = False,
    keep_hashes: bool = True,
    keep_exif: bool = True,
    keep_sums: bool = True,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> Enrolment:
    """Enrol photographs of one camera, new or known; all that can be used, in one transaction.

    Files that cannot be used are left out and named in the result: unreadable images, photographs that are enrolled
    already (of this or another camera), of another frame size, and outliers, whose correlation with the fingerprint of
    the other photographs is lost in noise. ValueError if none is left; then nothing is stored.

    Parameters
    ----------
    camera : str
        Name of the camera: the id of its entry.
    keep_outliers : bool
        Enrol outliers, too.
    keep_hashes, keep_exif : bool
        Keep the SHA-256 of each file, and the model and date of its EXIF fields. Without hashes a photograph that is
        enrolled twice is not noticed.
    keep_sums : bool
        Keep the sums from which later photographs update the fingerprint.
    """
    if not isinstance(camera, str) or not camera.strip():
        raise ValueError(f"camera must be a name, got {camera!r}")
    if not paths:
        raise ValueError("paths must name at least one photograph")
    read = [*read_residuals(paths, size=database.size, n_threads=n_threads, progress=progress)]
    refused = [one for one in read if isinstance(one, PhotographError)]
    readings = [one for one in read if isinstance(one, Reading)]
    with database.writing():
        known = database.camera(camera) if camera in database else None
        readings = _distinct(database, readings, refused)
        frame = known.frame if known is not None else _commonest([one.photograph.frame() for one in readings])
        readings = _of_one_frame(readings, frame, refused)
        _check_any(readings, refused)
        assert frame is not None
        sums = FingerprintSums.of((one.residual for one in readings), size=database.size)
        sums = sums if known is None else database.sums(known) + sums
        notes, correlations, scores = list[str](), np.empty(0), np.empty(0)
        if sums.n_photographs > 1:
            correlations, scores = leave_one_out(database, sums, readings, n_threads=n_threads)
        if sums.n_photographs >= MIN_FOR_OUTLIERS and not keep_outliers:
            outlying = find_outliers(correlations, size=database.size)
            for one, correlation in zip(readings, correlations.tolist(), strict=True):
                if one in [readings[at] for at in outlying]:
                    refused.append(PhotographError(one.photograph.path, _outlier_words(correlation, correlations)))
                    sums = sums.without(one.residual)
            kept = [at for at in range(len(readings)) if at not in outlying]
            readings = [readings[at] for at in kept]
            _check_any(readings, refused)
            if len(outlying):
                correlations, scores = leave_one_out(database, sums, readings, n_threads=n_threads)
        if len(correlations) and np.median(correlations) < OUTLIER_DEVIATIONS / database.size:
            notes.append(
                f"the photographs hardly share a pattern: their median correlation with the fingerprint of the others "
                f"is {np.median(correlations):.4f}; give more photographs, best of bright and even scenes"
            )
        if sums.n_photographs < MIN_FOR_OUTLIERS:
            notes.append(f"fewer than {MIN_FOR_OUTLIERS} photographs: a wrong file among them is not recognised")
        others = [one.name for one in database.cameras() if one.name != camera and one.frame == frame][:MAX_OTHERS]
        impostors = _impostor_scores(database, readings, others, n_threads=n_threads)
        records = [one.photograph.record(hashes=keep_hashes, exif=keep_exif) for one in readings]
        before = Camera(camera, frame, [], None, [], []) if known is None else known
        changed = replace(
            before,
            photographs=before.photographs + records,
            match_scores=before.match_scores + _rounded(scores),
            impostor_scores=before.impostor_scores + _rounded(impostors),
        )
        database.put(changed, sums.fingerprint(), sums if keep_sums else None)
    return Enrolment(camera, len(readings), len(changed.photographs), refused, notes)


def leave_one_out(
    database: CameraDatabase, sums: FingerprintSums, readings: list[Reading], *, n_threads: int | None = None
) -> tuple[Float64, Float64]:
    """Return exact correlations of photographs with the fingerprint of all others, and scores of its codes."""
    correlations, scores = [], []
    for one in readings:
        fingerprint = sums.without(one.residual).fingerprint().ravel()
        query = one.residual.query
        correlations.append(_correlation(query, fingerprint))
        index = AdaptiveIndex(n_features=database.size**2, n_bits=database.n_bits, random_state=0)
        index.add(fingerprint[np.newaxis], n_threads=n_threads)
        scores.append(code_scores(index, query[np.newaxis], [0], n_threads=n_threads)[0, 0])
    return np.array(correlations), np.array(scores)


def find_outliers(correlations: Float64, *, size: int) -> list[int]:
    """Return positions of photographs whose correlation with the others is far below the median and lost in noise."""
    limit = min(OUTLIER_SHARE * float(np.median(correlations)), OUTLIER_DEVIATIONS / size)
    return np.flatnonzero(correlations < limit).tolist()


def _correlation(first: Float32, second: Float32) -> float:
    norm = float(np.linalg.norm(first)) * float(np.linalg.norm(second))
    return float(first @ second) / norm if norm else 0.0


def _outlier_words(correlation: float, all_of_them: Float64) -> str:
    return (
        f"does not fit the other photographs of the camera: its correlation with their fingerprint is "
        f"{correlation:.4f}, the median is {np.median(all_of_them):.4f}; is it of another camera, or edited?"
    )


def _distinct(database: CameraDatabase, readings: list[Reading], refused: list[PhotographError]) -> list[Reading]:
    """Return photographs that are neither enrolled nor given twice; name the others."""
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


def _of_one_frame(
    readings: list[Reading], frame: tuple[int, int] | None, refused: list[PhotographError]
) -> list[Reading]:
    """Return photographs of the frame size of the camera; name the others."""
    kept = []
    for one in readings:
        if one.photograph.frame() == frame:
            kept.append(one)
            continue
        (width, height), wanted = one.photograph.frame(), f"{frame[0]} x {frame[1]}" if frame else ""
        refused.append(
            PhotographError(
                one.photograph.path,
                f"has {width} x {height} pixels, the photographs of this camera {wanted}; give photographs as the "
                "camera stored them, or enroll other sizes as another camera",
            )
        )
    return kept


def _commonest(frames: list[tuple[int, int]]) -> tuple[int, int] | None:
    return max(dict.fromkeys(frames), key=frames.count) if frames else None


def _check_any(readings: list[Reading], refused: list[PhotographError]) -> None:
    if not readings:
        raise ValueError("no photograph can be enrolled: " + "; ".join(map(str, refused)))


def _impostor_scores(
    database: CameraDatabase, readings: list[Reading], others: list[str], *, n_threads: int | None
) -> Float64:
    parts = (
        [database.scores(one.residual.query[np.newaxis], others, n_threads=n_threads) for one in readings]
        if others
        else []
    )
    return np.concatenate(parts).ravel() if parts else np.empty(0)


def _rounded(scores: Float64) -> list[float]:
    return [float(f"{one:.7g}") for one in scores.tolist()]
