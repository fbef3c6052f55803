"""Identification of the cameras of photographs, calibration of the database, and groups of photographs."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

import numpy as np
import scipy  # loads its modules on first use

from .._arrays import Float32, Float64
from .._checks import check_count, check_false_alarm
from ..index import Index
from ..significance import probabilities, probability_text
from ..significance.likelihood_ratios import verbal_equivalent
from ..theory.tails import entry_level
from .alignment import (
    CUSTOMARY,
    SEARCHES,
    Alignment,
    FrameSpectrum,
    centred_crop,
    n_trials,
    pce_log10_p_value,
    peak_to_correlation_energy,
    trial_scales,
)
from .calibration import MIN_IMPOSTORS, CameraCalibration, LikelihoodRatios, stored_scores
from .database import DEFAULT_SIZE, ENROLL_WHOLE, Camera, CameraDatabase, code_scores
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
    same_scene,
    scene_signature,
    turned,
)

FALSE_ALARM = 1e-6
"""Default probability that a photograph of none of the cameras matches one."""

SUPPORTED = math.log10(2)
"""Likelihood ratios up to 2 and from 1/2 support neither side (ENFSI guideline for evaluative reporting, 2015)."""


@dataclass(frozen=True)
class CameraMatch:
    """Comparison of a photograph with one camera."""

    camera: str  #: name of the camera
    score: float  #: estimated correlation of the residual with the pattern expected of this camera
    p_value: float  #: probability that one impostor scores as high; never 0
    log10_p_value: float  #: decimal logarithm of the p-value, also if the p-value is too small for a float
    e_value: float  #: expected number of impostors that score as high in all comparisons
    log10_e_value: float  #: decimal logarithm of the E-value, also if it is too small for a float
    log10_likelihood_ratio: float | None  #: None if no known score lies around this one, or if there are too few
    words: str | None  #: verbal scale of ENFSI
    ratio_note: str  #: why no likelihood ratio is stated, or that it is a bound
    pce: float  #: peak to correlation energy with the uncompressed fingerprint
    orientation: str  #: orientation in which the photograph scores highest
    n_photographs: int  #: enrolled photographs of the camera
    same_scene: dict[str, Any] | None = None  #: an enrolled photograph that shows the same scene

    def texts(self) -> dict[str, str]:
        """Return the row of a table."""
        ratio = self.log10_likelihood_ratio
        return {
            "camera": self.camera,
            "score": f"{self.score:.4f}",
            "p-value": probability_text(self.log10_p_value),
            "E-value": probability_text(self.log10_e_value),
            "log10 LR": "not stated" if ratio is None else f"{ratio:.1f}",
            "PCE": f"{round(self.pce):,}",
            "orientation": self.orientation,
            "enrolled": str(self.n_photographs),
        }


@dataclass(frozen=True)
class AlignedMatch:
    """Comparison of a photograph with the whole frame of one camera, at the best shift and scale."""

    camera: str  #: name of the camera
    frame: tuple[int, int]  #: width and height of the camera's photographs
    alignment: Alignment  #: position of the photograph in the frame of the camera
    p_value: float  #: probability that one shift and scale of an impostor has as high a PCE
    log10_p_value: float  #: decimal logarithm of the p-value, also if it is too small for a float
    e_value: float  #: expected number of impostors with as high a PCE in all shifts, scales, cameras and orientations
    log10_e_value: float  #: decimal logarithm of the E-value, also if it is too small for a float
    orientation: str  #: one of the orientations of topsign.cameras.ORIENTATIONS
    n_photographs: int  #: enrolled photographs of the camera

    @property
    def pce(self) -> float:
        """Peak to correlation energy."""
        return self.alignment.pce

    def texts(self) -> dict[str, str]:
        """Return the row of a table."""
        return {
            "camera": self.camera,
            "PCE": f"{round(self.pce):,}",
            "p-value": probability_text(self.log10_p_value),
            "E-value": probability_text(self.log10_e_value),
            "region": self.alignment.words(self.frame),
            "orientation": self.orientation,
            "enrolled": str(self.n_photographs),
        }


@dataclass(frozen=True, eq=False)
class Identification:
    """Best cameras of a photograph, with the calibration and the settings of the search."""

    photograph: Photograph  #: the questioned photograph
    candidates: list[CameraMatch]  #: best first; empty if no camera has photographs of this size
    excluded: list[CameraMatch]  #: cameras with an enrolled photograph of the same scene that score as high
    scores: dict[str, float]  #: best score with each camera of this size, in all orientations tried
    calibration: CameraCalibration  #: that of the database
    condition: str  #: "normal", "dark" or "overexposed"
    false_alarm: float  #: probability of a false match in the whole search
    n_cameras: int  #: cameras in the database
    n_comparable: int  #: cameras with the frame size of the photograph
    n_comparisons: int  #: cameras times orientations, among which the false-alarm rate is divided
    orientations: list[str]  #: orientations that were tried
    threshold: float  #: least score of a match
    search: tuple[str, ...]  #: "crop" and "scale", if they were asked for
    n_usable: int  #: pixels that are neither saturated nor dark and flat
    aligned: list[AlignedMatch] = field(default_factory=list)  #: results of the search for crops and scales, best first
    n_trials: int = 0  #: shifts, scales, cameras and orientations, among which the false-alarm rate is divided
    aligned_level: float = 0.0  #: greatest p-value of a match of the search for crops and scales
    warnings: list[str] = field(default_factory=list)  #: remarks on the calibration that concern this photograph
    seconds: float = 0.0  #: duration of the evaluation

    def _tests(self, one: CameraMatch | AlignedMatch) -> tuple[bool, bool]:
        """Return whether a camera is significant, and whether its PCE reaches the customary threshold."""
        if isinstance(one, AlignedMatch):
            return _aligned_tests(one, self.aligned_level)
        return one.score >= self.threshold, one.pce >= CUSTOMARY

    @property
    def aligned_matches(self) -> list[AlignedMatch]:
        """Cameras that match at a shift and scale: the PCE is significant and reaches its customary threshold."""
        return [one for one in self.aligned if all(self._tests(one))]

    @property
    def result(self) -> str:
        """Return "match", "no match" or "inconclusive", which means that the tests disagree.

        A match is significant, its likelihood ratio does not support another camera, and its PCE reaches the customary
        threshold. Without a match, no camera may pass one of these tests.
        """
        best = self._notable
        if best is None:
            return "no match"
        scored = self._unedited(best) if isinstance(best, AlignedMatch) else best
        is_opposed = scored is not None and (scored.log10_likelihood_ratio or 0.0) < -SUPPORTED
        return "match" if all(self._tests(best)) and not is_opposed else "inconclusive"

    @property
    def _notable(self) -> CameraMatch | AlignedMatch | None:
        """The camera that matches at a shift and scale, or else the first one that passes some test."""
        for aligned in self.aligned_matches:
            return aligned
        for one in self.candidates:
            if any(self._tests(one)) or (one.log10_likelihood_ratio or 0.0) > SUPPORTED:
                return one
        return next((one for one in self.aligned if any(self._tests(one))), None)

    def _unedited(self, found: AlignedMatch) -> CameraMatch | None:
        """Return the score of a camera that was found at a place where the photograph is neither cropped nor scaled."""
        is_whole = found.alignment.is_whole(found.frame)
        return next((one for one in self.candidates if is_whole and one.camera == found.camera), None)

    @property
    def _is_edited(self) -> bool:
        """Whether the conclusion is about a cropped or scaled copy, to which scores of whole frames do not apply."""
        return isinstance(self.best, AlignedMatch) and self._unedited(self.best) is None

    @property
    def is_match(self) -> bool:
        """Whether the result is a match."""
        return self.result == "match"

    @property
    def best(self) -> CameraMatch | AlignedMatch:
        """The camera that the conclusion is about: that of the match, or the one about which the tests disagree."""
        return self._notable or (self.candidates[0] if self.candidates else self.aligned[0])

    @property
    def reported(self) -> list[str]:
        """Names of the cameras in the report."""
        matches: list[CameraMatch | AlignedMatch] = [*self.candidates, *self.excluded, *self.aligned]
        return [*dict.fromkeys(one.camera for one in matches)]

    def conclusion(self) -> str:
        """Return the result and its limits in words."""
        level = f"at a false-alarm rate of {self.false_alarm:g} over {self._searched}"
        if self.result == "match":
            limit = [] if self._is_edited else [LIKE_THE_KNOWN]
            words = [self._match_words(level), *self._further_words(), OF_A_SENSOR, *limit]
        elif self.result == "inconclusive":
            others = [] if isinstance(self.best, AlignedMatch) else self._aligned_best_words()
            words = [self._inconclusive_words(level), *self._further_words(), *others, ANOTHER_COPY]
        else:
            words = [f"No match {level}.", *self._best_words(), NOT_EXCLUDED]
        law = [OTHER_SHIFTS] if self.aligned else []
        return " ".join([*words, *law, *map(_scene, self.excluded), *self.warnings])

    @property
    def _searched(self) -> str:
        tried = []
        if self.n_comparisons:
            n = self.n_comparisons // self.n_cameras
            tried.append(f"{self.n_cameras:,} cameras in {n} orientation{'s' if n > 1 else ''}")
        if self.n_trials:
            tried.append(f"{self.n_trials:,} combinations of camera, orientation, shift and scale")
        return " and ".join(tried)

    def _match_words(self, level: str) -> str:
        best = self.best
        if isinstance(best, AlignedMatch):
            return (
                f"The photograph matches {best.camera!r} ({best.orientation}) as {best.alignment.words(best.frame)}, "
                f"{level}: the peak to correlation energy is {round(best.pce):,}, and {_e_value(best)} impostors are "
                f"expected to reach it.{self._frame_words(best)}"
            )
        return (
            f"The photograph matches {best.camera!r} ({best.orientation}) {level}; {_e_value(best)} impostors are "
            f"expected to score as high. {_ratio_words(best)} The second test, peak to correlation energy, gives "
            f"{round(best.pce):,} and confirms the match (at least {CUSTOMARY:g})."
        )

    def _inconclusive_words(self, level: str) -> str:
        best = self.best
        is_significant, reaches = self._tests(best)
        if isinstance(best, AlignedMatch):
            compared = f"The match with {best.camera!r} as {best.alignment.words(best.frame)}"
        else:
            compared = f"The score of {best.camera!r}, {best.score:.4f},"
        words = (
            f"Inconclusive, because the tests disagree. {compared} is{'' if is_significant else ' not'} significant "
            f"{level} (E-value {_e_value(best)}). The peak to correlation energy is {round(best.pce):,} and "
            f"{'reaches' if reaches else 'does not reach'} its customary threshold of {CUSTOMARY:g}."
        )
        return words + (self._frame_words(best) if isinstance(best, AlignedMatch) else f" {_ratio_words(best)}")

    def _frame_words(self, found: AlignedMatch) -> str:
        """Return what the score of the whole frame means for a camera that the search found."""
        scored = self._unedited(found)
        if scored is not None:
            return (
                f" The score of the centre of the frame, by codes, is {scored.score:.4f} (E-value "
                f"{_e_value(scored)}). {_ratio_words(scored)}"
            )
        return (
            " No likelihood ratio is stated, because the known scores are those of photographs that were neither "
            "cropped nor scaled."
            + (" The scores of the whole frame do not apply to such a copy." if self.candidates else "")
        )

    def _further_words(self) -> list[str]:
        """Return warnings that tests support further cameras, too."""
        best, words, others = self.best, list[str](), dict[str, str]()
        shown: list[CameraMatch | AlignedMatch] = [*self.aligned, *self.candidates]
        for one in shown:
            passed = [name for name, is_passed in zip(("E-value", "PCE"), self._tests(one), strict=True) if is_passed]
            if passed and one.camera != best.camera:
                others.setdefault(one.camera, " and ".join(passed))
        if others:
            named = ", ".join(f"{camera!r} ({passed})" for camera, passed in others.items())
            words.append(
                f"Also significant: {named}. Cameras of one model can share a pattern, and one camera may be enrolled "
                "twice, so this result does not decide between these cameras."
            )
        supported = [
            f"{one.camera!r} (10^{one.log10_likelihood_ratio:.1f}: {one.words})"
            for one in ([] if self._is_edited else self.candidates)
            if (one.log10_likelihood_ratio or 0.0) > SUPPORTED and one.camera not in {best.camera, *others}
        ]
        if supported:
            words.append(f"The likelihood ratio also supports {', '.join(supported)} without a significant score.")
        return words

    def _best_words(self) -> list[str]:
        """Return the best cameras if none of them matches."""
        words = []
        for best in self.candidates[:1]:
            if math.isfinite(self.threshold):
                words.append(
                    f"The best camera, {best.camera!r}, scores {best.score:.4f} (E-value {_e_value(best)}, PCE "
                    f"{round(best.pce):,}); a match needs {self.threshold:.4f}."
                )
            else:
                words.append(
                    "The calibration supports no match at this level, because there are "
                    f"{self.calibration.null(self.condition).words} and no tail model. The best camera is "
                    f"{best.camera!r} (score {best.score:.4f})."
                )
        return words + self._aligned_best_words()

    def _aligned_best_words(self) -> list[str]:
        return [
            f"The best camera of the search for {' and '.join(self.search)} is {one.camera!r} (PCE "
            f"{round(one.pce):,}, E-value {_e_value(one)})."
            for one in self.aligned[:1]
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the result, the calibration and the settings as plain values."""
        photograph, null = self.photograph, self.calibration.null(self.condition)
        plain = [
            "false_alarm",
            "n_cameras",
            "n_comparable",
            "n_comparisons",
            "n_trials",
            "orientations",
            "scores",
            "search",
        ]
        shown = {"path": photograph.path} | photograph.record(names=False, exif=False) | {"exif": photograph.exif}
        return {
            "photograph": shown | {"usable_pixels": self.n_usable, "condition": self.condition},
            "result": self.result,
            "match": self.is_match,
            "conclusion": self.conclusion(),
            **{name: [asdict(one) for one in getattr(self, name)] for name in ("candidates", "excluded", "aligned")},
            "threshold": self.threshold if math.isfinite(self.threshold) else None,
            **{name: getattr(self, name) for name in plain},
            "warnings": self.warnings,
            "calibration": {
                "statement": self.calibration.statement(self.condition),
                "n_impostor_scores": len(null.impostors),
                "n_match_scores": len(self.calibration.matches),
                "normal_law_p_value": null.fit_p_value,
                "normal_law_used": null.tail_fits,
                "likelihood_ratio_bounds": None if self.calibration.ratios is None else self.calibration.ratios.bounds,
                "photographs": self.calibration.photographs,
            },
            "seconds": round(self.seconds, 3),
        }


OF_A_SENSOR = "The result concerns the sensor that took the photograph, not the person, time or place."
LIKE_THE_KNOWN = "It holds for photographs like those of the calibration."
OTHER_SHIFTS = (
    "P-values of the search do not rest on known impostors, but on a normal law of the correlations at other shifts."
)
NOT_EXCLUDED = (
    "This does not exclude the cameras, because the pattern may be hidden in dark, saturated, strongly compressed or "
    "edited photographs."
)
TOO_FEW = "No likelihood ratio is stated, because there are too few scores of known matches."
ANOTHER_COPY = "Compare further photographs of the same origin, or a less compressed copy of this one."


def identify(
    database: CameraDatabase,
    path: str | os.PathLike[str],
    *,
    k: int = 5,
    false_alarm: float = FALSE_ALARM,
    orientations: Sequence[str] = tuple(ORIENTATIONS),
    search: Sequence[str] = (),
    progress: Progress | None = None,
) -> Identification:
    """Compare the photograph ``path`` with all cameras of a ``database`` that have its frame size.

    The photograph is compared as it is stored. If no camera matches, rotations and mirror images are tried. The
    false-alarm rate is divided among all cameras and orientations that can be tried, whether or not they are needed.

    A camera with an enrolled photograph of the same scene is excluded, because residuals of one scene correlate
    whichever cameras took them. ValueError is raised if the database is not calibrated.

    Parameters
    ----------
    k : int
        Greatest number of cameras to report; significant cameras are always reported.
    false_alarm : float in (0, 1)
        Probability that a photograph of none of these cameras matches one.
    orientations : sequence of str
        Orientations to try, from :data:`topsign.cameras.ORIENTATIONS`.
    search : sequence of str
        "crop", "scale" or both: if no camera matches, compare the photograph at all shifts and at scales from 0.5 to 2
        with the fingerprints of whole frames, for cameras enrolled with ``keep_fingerprints``. Half of the false-alarm
        rate is then divided among all shifts, scales, cameras and orientations.
    progress : callable, optional
        Called with the number of cameras searched at all shifts, and the number of all.
    """
    return _Comparison(database, k, false_alarm, orientations, search).identify(path, progress)


def identify_all(
    database: CameraDatabase,
    paths: Sequence[str | os.PathLike[str]],
    *,
    k: int = 5,
    false_alarm: float = FALSE_ALARM,
    orientations: Sequence[str] = tuple(ORIENTATIONS),
    search: Sequence[str] = (),
    progress: Progress | None = None,
) -> Iterator[Identification | PhotographError]:
    """Yield the identification of each of the photographs ``paths`` as :func:`identify` does, or the error that names
    the file.

    ``database``, ``k``, ``orientations`` and ``search`` are as for :func:`identify`. The rate ``false_alarm`` holds for
    each photograph. ``progress`` is called with the number of photographs done and the number of all.
    """
    comparison = _Comparison(database, k, false_alarm, orientations, search)
    for done, path in enumerate(paths, 1):
        try:
            yield comparison.identify(path, None)
        except PhotographError as error:
            yield error
        if progress is not None:
            progress(done, len(paths))


class _Comparison:
    """Cameras, calibration and settings of a series of identifications."""

    def __init__(
        self,
        database: CameraDatabase,
        k: int,
        false_alarm: float,
        orientations: Sequence[str],
        search: Sequence[str],
    ) -> None:
        check_false_alarm(false_alarm)
        check_count(k, "k")
        if not set(search) <= set(SEARCHES):
            raise ValueError(f"search must name {' and '.join(SEARCHES)}, got {', '.join(search)}")
        calibration = database.calibration
        if calibration is None:
            raise ValueError(
                f"{database.path} is not calibrated, so no p-value can be stated; calibrate it with photographs of "
                "other cameras (topsign cameras calibrate)"
            )
        self.database, self.calibration, self.k, self.false_alarm = database, calibration, k, false_alarm
        self.n_tests = 2 if search else 1  # the search for crops and scales has half of the false-alarm rate
        self.orientations, self.search = tuple(orientations), tuple(one for one in SEARCHES if one in search)
        self.cameras = {one.name: one for one in database.cameras()}
        self.whole = [one for one in self.cameras.values() if one.whole is not None]
        if search and not self.whole:
            raise ValueError(
                f"{database.path} stores no fingerprints of whole frames, which the search for crops and scales needs; "
                f"remove each camera and {ENROLL_WHOLE}"
            )

    def identify(self, path: str | os.PathLike[str], progress: Progress | None) -> Identification:
        start = time.perf_counter()
        try:
            reading = read_residual(path, size=self.database.size)
        except PhotographError:
            reading = read_residual(path, size=None)
            if not self.search and min(reading.photograph.frame()) >= self.database.size:
                raise  # the crop has too few usable pixels
        possible = dict[str, list[str]]()
        for name in self.orientations if reading.photograph.size else ():
            frame = reading.photograph.frame(name)
            if cameras := [one.name for one in self.cameras.values() if one.frame == frame]:
                possible[name] = cameras
        n_comparisons = len(self.cameras) * len(possible)
        level = entry_level(self.false_alarm / self.n_tests, n_comparisons)
        threshold = self.calibration.null(reading.condition).threshold(level) if possible else math.inf
        best, tried = self._scores(reading, possible, threshold)
        candidates, excluded = list[CameraMatch](), list[CameraMatch]()

        def show(camera: str) -> None:
            one = self._candidate(self.cameras[camera], *best[camera], n_comparisons)
            (candidates if one.same_scene is None else excluded).append(one)

        for camera in sorted(best, key=lambda camera: -best[camera][0]):
            if len(candidates) >= self.k and best[camera][0] < threshold:
                break
            show(camera)
        found = Identification(
            reading.photograph,
            candidates,
            excluded,
            {camera: score for camera, (score, *_) in best.items()},
            self.calibration,
            reading.condition,
            self.false_alarm,
            len(self.cameras),
            len({camera for cameras in possible.values() for camera in cameras}),
            n_comparisons,
            tried,
            threshold,
            self.search,
            reading.residual.n_usable,
        )
        if self.search and not found.is_match:
            aligned, n, level = self._aligned(reading, progress)
            if aligned and aligned[0].camera in best.keys() - found.reported:
                show(aligned[0].camera)
            found = replace(found, aligned=aligned, n_trials=n, aligned_level=level)
        if not candidates and not found.n_trials:
            excluded_words = "cannot be judged. " + " ".join(map(_scene, excluded))
            raise PhotographError(path, excluded_words if excluded else self._other_sizes(reading.photograph))
        return replace(found, warnings=self._warnings(found), seconds=time.perf_counter() - start)

    def _scores(
        self, reading: Reading, possible: dict[str, list[str]], threshold: float
    ) -> tuple[dict[str, tuple[float, str, Reading]], list[str]]:
        """Return the best score, orientation and reading of each camera, and the orientations that were tried."""
        best, tried = dict[str, tuple[float, str, Reading]](), list[str]()
        for orientation, cameras in possible.items():
            shown = reading if orientation == "as stored" else reading_of(reading.photograph, orientation)
            scores = code_scores(self.database.index, shown.residual.query, cameras)
            tried.append(orientation)
            for camera, score in zip(cameras, scores.tolist(), strict=True):
                if camera not in best or score > best[camera][0]:
                    best[camera] = (score, orientation, shown)
            above = [cameras[at] for at in np.flatnonzero(scores >= threshold)]
            if any(self.cameras[camera].photograph_of_scene(shown.scene) is None for camera in above):
                break
        return best, tried

    def _candidate(
        self, camera: Camera, score: float, orientation: str, reading: Reading, n_comparisons: int
    ) -> CameraMatch:
        log10 = self.calibration.null(reading.condition).log10_p_value(score)
        log10_e = log10 + math.log10(self.n_tests * n_comparisons)
        ratios = self.calibration.ratios
        ratio = None if ratios is None else ratios.ratio(score)
        return CameraMatch(
            camera.name,
            score,
            float(probabilities(log10)),
            log10,
            float(probabilities(log10_e)),
            log10_e,
            ratio,
            None if ratio is None else verbal_equivalent(ratio),
            TOO_FEW if ratios is None else ratios.note(score),
            _pce(self.database, camera.name, reading.residual),
            orientation,
            len(camera.photographs),
            camera.photograph_of_scene(reading.scene),
        )

    def _aligned(self, reading: Reading, progress: Progress | None) -> tuple[list[AlignedMatch], int, float]:
        """Return the best alignments with whole frames, the number of trials and the level of one of them."""
        scenes = dict.fromkeys(self.orientations, reading.scene)
        if reading.photograph.size is not None:
            scenes = {name: scene_signature(reading.photograph.crop(name)) for name in self.orientations}
            reading = read_residual(reading.photograph.path, size=None)
        query = reading.residual.noise * reading.residual.intensity
        queries = {name: turned(query, name) for name in self.orientations}
        trials = {
            (name, one.name): n
            for name, shown in queries.items()
            for one in self.whole
            if one.photograph_of_scene(scenes[name]) is None
            and (n := n_trials(shown.shape, one.frame[::-1], self.search))
        }
        if not trials:
            return [], 0, 0.0
        n = sum(trials.values()) + len(trials)  # at the alignment of a match, all cameras are compared
        level = entry_level(self.false_alarm / self.n_tests, n)
        found, done = dict[str, AlignedMatch](), count(1)

        def compare(name: str, camera: Camera, scale: float | None = None) -> AlignedMatch:
            spectrum = FrameSpectrum(self.database.whole(camera).fingerprint())
            query = queries[name]
            place = spectrum.align(query, self.search) if scale is None else spectrum.best_shift(query, scale)
            log10 = pce_log10_p_value(place.pce, spectrum.n_shifts)
            log10_e = log10 + math.log10(self.n_tests * n)
            p_value, e_value = (float(probabilities(at)) for at in (log10, log10_e))
            values = place, p_value, log10, e_value, log10_e, name, len(camera.photographs)
            one = AlignedMatch(camera.name, camera.frame, *values)
            if camera.name not in found or place.pce > found[camera.name].pce:
                found[camera.name] = one
            if scale is None and progress is not None:
                progress(next(done), len(trials))
            return one

        for name in queries:
            order = self._shortlisted(queries[name], [one for one in self.whole if (name, one.name) in trials])
            searched = (compare(name, camera) for camera in order)
            match = next((one for one in searched if all(_aligned_tests(one, level))), None)
            if match is not None:
                for other in order:
                    if other.frame == match.frame and other.name != match.camera:
                        compare(name, other, match.alignment.scale)
                break
        if progress is not None:
            progress(len(trials), len(trials))
        ranked = sorted(found.values(), key=lambda one: -one.pce)
        n_matches = sum(all(_aligned_tests(one, level)) for one in ranked)
        return ranked[: max(self.k, n_matches)], n, level

    def _shortlisted(self, query: Float32, cameras: list[Camera]) -> list[Camera]:
        """Return cameras in the order of the code scores that they have if the photograph shows the frame's centre."""
        scores = dict.fromkeys((one.name for one in cameras), -math.inf)
        for frame in dict.fromkeys(one.frame for one in cameras):
            names = [one.name for one in cameras if one.frame == frame]
            for scale in trial_scales(query.shape, frame[::-1], self.search):
                crop = centred_crop(query, frame[::-1], float(scale), self.database.size)
                if crop.any():
                    found = code_scores(self.database.index, crop.ravel(), names)
                    scores |= {one: max(scores[one], score) for one, score in zip(names, found.tolist(), strict=True)}
        return sorted(cameras, key=lambda one: -scores[one.name])

    def _warnings(self, found: Identification) -> list[str]:
        """Return remarks on the calibration that concern a photograph and its best camera."""
        warnings = []
        known = len(self.calibration.by_condition.get(found.condition, ()))
        if found.candidates and found.condition != "normal" and known < MIN_IMPOSTORS:
            warnings.append(
                f"The photograph is {found.condition}, and the calibration has {known} impostor scores of such "
                f"photographs ({MIN_IMPOSTORS} are needed for a null distribution of their own), so the null "
                "distribution of all photographs is used."
            )
        if found.result != "no match":
            models = self.cameras[found.best.camera].models
            if not models:
                warnings.append(f"The model of {found.best.camera!r} is not known, so the calibration may lack it.")
            elif not models & set(self.calibration.models):
                warnings.append(
                    f"No impostor of the calibration is of the model of {found.best.camera!r} "
                    f"({', '.join(sorted(models))}); cameras of one model, phones above all, can share patterns."
                )
        return warnings

    def _other_sizes(self, photograph: Photograph) -> str:
        advice = "search for crops and scaled copies with --search crop,scale"
        advice = f"; or {advice}" if self.whole else f"; or remove each camera and {ENROLL_WHOLE}, and {advice}"
        is_searched = set(self.search) == set(SEARCHES)
        return _other_sizes(photograph, [*self.cameras.values()], "" if is_searched else advice)


def _aligned_tests(one: AlignedMatch, level: float) -> tuple[bool, bool]:
    """Return whether the PCE of an alignment is significant at a level, and whether it reaches its threshold."""
    return one.log10_p_value <= math.log10(level), one.pce >= CUSTOMARY


def _e_value(one: CameraMatch | AlignedMatch) -> str:
    return probability_text(one.log10_e_value)


def _ratio_words(one: CameraMatch) -> str:
    if one.log10_likelihood_ratio is None:
        return one.ratio_note
    bound = f"{one.ratio_note} " if one.ratio_note else ""
    return f"{bound}The likelihood ratio is 10^{one.log10_likelihood_ratio:.1f}: {one.words}."


def calibrate(
    database: CameraDatabase,
    impostors: Sequence[str | os.PathLike[str]] = (),
    *,
    keep_names: bool = True,
    keep_hashes: bool = True,
    keep_exif: bool = True,
    progress: Progress | None = None,
) -> tuple[CameraCalibration, list[PhotographError]]:
    """Estimate the null distribution of scores and the likelihood ratios, and store them with the ``database``.

    ``progress`` is called with the numbers of photographs done and of all.

    ``impostors`` are photographs that none of the cameras took, of the frame size of some. Without them, the scores of
    enrolled photographs with the other cameras are used, which enrolment has stored. Likelihood ratios also need match
    scores, which are those of enrolled photographs with the fingerprint of the others. At least 30 impostor scores and
    10 match scores are needed. Comparisons do not count if the camera has an enrolled photograph of the same scene, and
    of impostors that show one scene only the first one counts.

    ``keep_names``, ``keep_hashes`` and ``keep_exif`` store the file names, SHA-256 and EXIF model and date of the
    impostors, which reports list. Identification warns if no impostor is of the model of the best camera.

    Returns the calibration, and the files left out: unreadable, enrolled or repeated ones, those of other frame sizes,
    and those that a camera of the database seems to have taken (PCE of 60 or more).
    """
    cameras = database.cameras()
    matches = stored_scores(np.array([score for one in cameras for score in one.match_scores]))
    today = datetime.now(UTC).date().isoformat()
    refused, records = list[PhotographError](), list[dict[str, Any]]()
    by_condition: dict[str, list[float]] = {}
    if not impostors:
        for camera in cameras:
            for condition, kept in camera.impostor_scores.items():
                by_condition.setdefault(condition, []).extend(kept)
        n_photographs = sum(len(one.photographs) for one in cameras)
        source = "enrolled photographs with other cameras of the database"
        counts = Counter(model for one in cameras for model in one.models)
        models = {model for model, n in counts.items() if n > 1}  # of which another camera is an impostor
    else:
        enrolled = {one["sha256"]: camera.name for camera in cameras for one in camera.photographs if "sha256" in one}
        models, counted = set(), list[tuple[Photograph, bytes | None]]()
        for read in read_residuals(impostors, size=database.size, progress=progress):
            try:
                if isinstance(read, PhotographError):
                    raise read
                for other, scene in counted:
                    if other.sha256 == read.photograph.sha256 or same_scene(scene, read.scene):
                        raise PhotographError(
                            read.photograph.path, f"shows the same scene as {other.path}, which counts once"
                        )
                scores = _impostor(database, read, enrolled, cameras)
                counted.append((read.photograph, read.scene))
                by_condition.setdefault(read.condition, []).extend(scores.tolist())
                records.append(read.photograph.record(names=keep_names, hashes=keep_hashes, exif=keep_exif))
                models |= {record["model"] for record in records[-1:] if "model" in record}
            except PhotographError as error:
                refused.append(error)
        n_photographs, source = len(records), "photographs given as impostors"
    n_scores = sum(map(len, by_condition.values()))
    if n_scores < MIN_IMPOSTORS and refused:
        problems = "; ".join(map(str, refused[:3]))
        raise ValueError(
            f"calibration needs at least {MIN_IMPOSTORS} impostor scores, got {n_scores}; {len(refused)} files were "
            f"left out: {problems}"
        )
    known = {condition: stored_scores(np.array(kept)) for condition, kept in by_condition.items()}
    ratios = LikelihoodRatios.fit(matches, np.concatenate([np.empty(0), *known.values()]))
    learned = CameraCalibration(
        known, matches, ratios, source, n_photographs, len(cameras), today, sorted(models), records
    )
    with database.writing():
        database.keep_calibration(learned)
    return learned, refused


@dataclass(frozen=True)
class PhotographGroups:
    """Photographs of unknown cameras, in groups of one camera each."""

    groups: list[list[str]]  #: files, the largest group first; photographs that match no other are not listed
    single: list[str]  #: files that match no other
    same_scene: list[tuple[str, str]]  #: pairs that were not compared, because they show one scene
    refused: list[PhotographError]  #: files that cannot be used, with the reason


def group_photographs(
    paths: Sequence[str | os.PathLike[str]],
    *,
    size: int = DEFAULT_SIZE,
    false_alarm: float = FALSE_ALARM,
    progress: Progress | None = None,
) -> PhotographGroups:
    """Group the photographs ``paths`` of unknown cameras by the sign codes of their residuals, 1 bit per pixel of the
    centre, ``size`` x ``size``.

    Photographs of one frame size are compared with each other as they are stored. Pairs whose estimated correlation is
    significant are joined, except pairs that show the same scene. The p-values assume residuals that are independent
    between cameras, and processing that cameras share makes them too small, so ``false_alarm`` should be small.
    ``progress`` is called with the number of photographs done and the number of all.

    Parameters
    ----------
    false_alarm : float in (0, 1)
        Probability of any false pair among the photographs of one frame size.
    """
    check_false_alarm(false_alarm)  # before photographs are read
    names, scenes, refused = list[str](), list[bytes | None](), list[PhotographError]()
    indexes: dict[tuple[int, int], Index] = {}
    for read in read_residuals(paths, size=size, progress=progress):
        if isinstance(read, PhotographError):
            refused.append(read)
            continue
        frame = read.photograph.frame()
        if frame not in indexes:
            indexes[frame] = Index(size**2, family="sign", n_bytes=size**2 // 8)
        indexes[frame].add(read.residual.noise.reshape(1, -1), ids=[len(names)])
        names.append(read.photograph.path)
        scenes.append(read.scene)
    joined, same = list[tuple[int, int]](), list[tuple[int, int]]()
    for index in indexes.values():
        pairs = index.pairs(false_alarm=false_alarm)
        for first, second in zip(pairs.first.tolist(), pairs.second.tolist(), strict=True):
            (same if same_scene(scenes[first], scenes[second]) else joined).append((first, second))
    edges = np.array(joined, np.int64).reshape(-1, 2).T
    graph = scipy.sparse.coo_array((np.ones(len(joined)), tuple(edges)), (len(names),) * 2)
    _, labels = scipy.sparse.csgraph.connected_components(graph, directed=False)
    groups = [[names[row] for row in np.flatnonzero(labels == label)] for label in dict.fromkeys(labels.tolist())]
    return PhotographGroups(
        sorted((one for one in groups if len(one) > 1), key=lambda one: -len(one)),
        [one[0] for one in groups if len(one) == 1],
        [(names[first], names[second]) for first, second in same],
        refused,
    )


def _impostor(database: CameraDatabase, reading: Reading, enrolled: dict[str, str], cameras: list[Camera]) -> Float64:
    """Return an impostor's scores with all cameras of its frame size; PhotographError if it may not be one."""
    path = reading.photograph.path
    if reading.photograph.sha256 in enrolled:
        raise PhotographError(
            path, f"is enrolled for {enrolled[reading.photograph.sha256]!r}, so it is not an impostor"
        )
    comparable = [one for one in cameras if one.frame == reading.photograph.frame()]
    if not comparable:
        raise PhotographError(path, _other_sizes(reading.photograph, cameras))
    names = [one.name for one in comparable if one.photograph_of_scene(reading.scene) is None]
    if not names:
        raise PhotographError(path, "shows a scene that is enrolled for every camera of its size")
    scores = code_scores(database.index, reading.residual.query, names)
    nearest = names[int(scores.argmax())]
    pce = _pce(database, nearest, reading.residual)
    if pce >= CUSTOMARY:
        raise PhotographError(
            path, f"seems to have been taken by {nearest!r} (PCE {pce:.0f}), so it is not an impostor"
        )
    return scores


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


def _other_sizes(photograph: Photograph, cameras: list[Camera], advice: str = "") -> str:
    known = ", ".join(f"{width} x {height}" for width, height in dict.fromkeys(one.frame for one in cameras)) or "none"
    return (
        f"has {photograph.width} x {photograph.height} pixels, and no camera of the database has photographs of this "
        f"size (sizes enrolled: {known}); use the photograph as the camera stored it, neither scaled nor cropped, or "
        f"enroll other photographs of this size as a camera{advice}"
    )
