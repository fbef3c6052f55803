"""Reports of identifications: one self-contained HTML page, or the same content as JSON."""

from __future__ import annotations

import base64
import json
import math
import os
import platform
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from .._arrays import Float64
from .._files import write_file
from .._page import document, table_rows
from .alignment import CUSTOMARY, NEIGHBORHOOD
from .calibration import CameraCalibration
from .database import CameraDatabase
from .fingerprint import DARK, FLAT, MIN_USABLE, N_LEVELS, SATURATED, SIGMA, WAVELET, WINDOWS
from .identification import CameraMatch, Identification
from .photographs import MAX_DIFFERENT, SCENE_BITS, thumbnail

LITERATURE = (
    "J. Lukas, J. Fridrich, M. Goljan: Digital camera identification from sensor pattern noise, IEEE TIFS 1 (2006).",
    "M. Chen, J. Fridrich, M. Goljan, J. Lukas: Determining image origin and integrity using sensor noise, IEEE TIFS 3 "
    "(2008).",
    "M. Goljan, J. Fridrich, T. Filler: Large scale test of sensor fingerprint camera identification, SPIE (2009).",
    "ENFSI guideline for evaluative reporting in forensic science (2015): the verbal scale of likelihood ratios.",
)


WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 300, 56, 46, 26
N_BINS = 60

LONG = 12
"""Tables of files with more rows than this are folded on the page; printing unfolds them."""

DATABASE_WORDS = {"path": "database", "version": "version of the database", "n_cameras": "cameras"}
NOT_APPLIED = {"orientation": " (not applied, because the pattern belongs to the pixels of the sensor)"}

STYLE = (
    "<style>@page{size:A4;margin:15mm}.files{font-size:.78rem}.files code{white-space:nowrap}summary{cursor:pointer}"
    "@media print{details::details-content{content-visibility:visible;display:block}"
    "summary{list-style:none;break-after:avoid}.files{font-size:.55rem}.files code{font-size:.5rem}.files "
    "td{padding:.2rem .3rem}}</style>"
)


def report_record(database: CameraDatabase, found: Identification, *, command: str) -> dict[str, Any]:
    """Return the content of a report as plain values."""
    reported = [one.camera for one in (*found.candidates, *found.excluded)]
    return found.to_json() | {
        "enrolled": {camera: database.camera(camera).photographs for camera in reported},
        "database": {
            "path": database.path,
            "version": database.index.versions()[-1],
            "n_cameras": len(database),
            "recipe": database.index.recipe.summary,
        },
        "parameters": parameters(database, found),
        "software": software(),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
    }


def parameters(database: CameraDatabase, found: Identification) -> dict[str, Any]:
    """Return the parameters of the comparison."""
    return {
        "crop": f"{database.size} x {database.size} pixels at the centre; EXIF orientation not applied",
        "denoising": f"{WAVELET}, {N_LEVELS} levels, windows {', '.join(map(str, WINDOWS))}, sigma {SIGMA:g}",
        "usable pixels": f"below {SATURATED:g}, not flat (variance {FLAT:g}) below {DARK:g}; at least {MIN_USABLE:.0%}",
        "features": database.size**2,
        "projections kept": database.n_bits,
        "false-alarm rate": found.false_alarm,
        "comparisons": found.n_comparisons,
        "threshold of the score": f"{found.threshold:.5f}",
        "same scene": f"at most {MAX_DIFFERENT} of {SCENE_BITS} bits of the signatures differ",
        "PCE": f"at shift zero, neighbourhood {2 * NEIGHBORHOOD + 1} x {2 * NEIGHBORHOOD + 1}, threshold {CUSTOMARY:g}",
    }


def software() -> dict[str, str]:
    """Return versions of the library and its dependencies."""
    import PIL
    import pywt

    return {
        "topsign": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pillow": PIL.__version__,
        "pywavelets": pywt.__version__,
    }


def write_report(
    path: str | os.PathLike[str],
    database: CameraDatabase,
    found: Identification,
    *,
    command: str,
    with_thumbnail: bool = True,
) -> None:
    """Write the report of an identification as HTML, or as JSON if the name ends in .json.

    ``command`` is the command line that reproduces the report. With ``with_thumbnail``, the page shows a small copy of
    the photograph.
    """
    record = report_record(database, found, command=command)
    if Path(path).suffix.lower() == ".json":
        content = json.dumps(record, indent=1)
    else:
        image = thumbnail(found.photograph.path) if with_thumbnail else None
        content = document(f"Camera identification: {Path(found.photograph.path).name}", _body(found, record, image))
    write_file(path, lambda file: file.write(content.encode()))


def _body(found: Identification, record: dict[str, Any], image: bytes | None) -> Iterator[str]:
    photograph = found.photograph
    yield STYLE
    yield f"<h1>Camera identification: {escape(Path(photograph.path).name)}</h1>"
    yield f'<p class="muted">Written {escape(record["written"])} by topsign {escape(__version__)}.</p>'
    mark, words = ("yes", "Match") if found.is_match else ("no", "No match")
    yield '<h2 id="conclusion">Conclusion</h2>'
    yield f'<p><span class="{mark}">{words}.</span> {escape(found.conclusion())}</p>'
    yield '<h2 id="photograph">Photograph</h2>'
    if image is not None:
        yield (
            f'<figure><img alt="small copy of the photograph" style="display:block;max-width:20rem;margin:0 auto" '
            f'src="data:image/jpeg;base64,{base64.b64encode(image).decode()}"></figure>'
        )
    facts = [
        ["File", f"<code>{escape(photograph.path)}</code>"],
        ["SHA-256", f"<code>{photograph.sha256}</code>"],
        ["Size", f"{photograph.width} x {photograph.height} pixels, {photograph.n_bytes:,} bytes"],
        ["Usable pixels", f"{found.n_usable:,} of {photograph.size**2:,} in the crop"],
        *([f"EXIF {name}", escape(value) + NOT_APPLIED.get(name, "")] for name, value in photograph.exif.items()),
    ]
    yield from table_rows("facts", ["", ""], facts)
    yield from _comparisons(found)
    yield from _calibration(found)
    yield '<h2 id="limits">Limits</h2><ul>'
    yield "<li>A match concerns the sensor, not the person who used the camera, the time or the place.</li>"
    yield "<li>P-values and likelihood ratios hold for photographs like those of the calibration.</li>"
    yield "<li>No match does not exclude a camera, because editing, scaling and compression hide patterns.</li>"
    yield "</ul>"
    yield '<h2 id="reproduce">Reproduction</h2>'
    yield f"<pre>{escape(record['command'])}</pre>"
    rows = [
        *record["parameters"].items(),
        *((DATABASE_WORDS.get(name, name), value) for name, value in record["database"].items()),
        *record["software"].items(),
    ]
    yield from table_rows("facts", ["", ""], [[escape(str(name)), escape(str(value))] for name, value in rows])
    yield "<ul>" + "".join(f"<li class='muted'>{escape(one)}</li>" for one in LITERATURE) + "</ul>"
    yield from _files(found, record["enrolled"])


def _comparisons(found: Identification) -> Iterator[str]:
    yield '<h2 id="cameras">Cameras</h2>'
    yield (
        f"<p>The database has {found.n_cameras:,} cameras, {found.n_comparable:,} of them with photographs of this "
        f"size. Orientations tried: {escape(', '.join(found.orientations))}. The best {len(found.candidates)}:</p>"
    )
    titles = ["Camera", "Score", "P-value", "E-value", "log10 LR [95%]", "PCE", "Orientation", "Enrolled"]
    yield from table_rows("numbers", titles, [_row(one) for one in found.candidates])
    yield (
        "<p class='muted'>Score: estimated correlation of the residual with the pattern expected of the camera. "
        "P-value: probability that one impostor scores as high. E-value: expected number of impostors that score as "
        f"high in all {found.n_comparisons:,} comparisons. LR: likelihood ratio of the same camera against another. "
        f"PCE: peak to correlation energy with the uncompressed fingerprint, with a customary threshold of "
        f"{CUSTOMARY:g}.</p>"
    )
    if found.excluded:
        yield "<p>Excluded, because a photograph of the same scene is enrolled:</p>"
        yield from table_rows("numbers", titles, [_row(one) for one in found.excluded])
    yield f'<figure id="figure-scores">{score_figure(found)}<figcaption>The best score (vertical line) among the '
    yield "scores of known impostors and known matches. Dotted: the threshold of a match.</figcaption></figure>"


def _calibration(found: Identification) -> Iterator[str]:
    calibration = found.calibration
    yield '<h2 id="calibration">Calibration</h2>'
    yield f"<p>{escape(calibration.statement())}</p>"
    if calibration.evidence is None:
        yield (
            f"<p>Likelihood ratios are not stated: there are {len(calibration.matches)} scores of known matches, and "
            "at least 10 that are above those of impostors are needed.</p>"
        )
        return
    yield (
        f"<p>Likelihood ratios are calibrated by logistic regression from {len(calibration.matches):,} scores of known "
        f"matches (enrolled photographs with the fingerprint of the others) and {len(calibration.impostors):,} scores "
        "of known impostors. They never exceed the value that the number of impostors supports.</p>"
    )
    yield f'<figure id="figure-tippett">{tippett_figure(calibration)}<figcaption>Tippett plot: fraction of known '
    yield "matches and of known impostors with at least this log10 likelihood ratio.</figcaption></figure>"


def _files(found: Identification, enrolled: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Yield the appendix: files of the reported cameras and of the calibration."""
    yield '<h2 id="files">Appendix: files</h2>'
    for camera, photographs in enrolled.items():
        yield from _file_table(f"Enrolled for {camera}", photographs)
    given = found.calibration.photographs
    if given:
        yield from _file_table("Impostors of the calibration", given)
    else:
        yield f"<p>Calibration: {escape(found.calibration.source)}; these files are not listed separately.</p>"


def _file_table(title: str, photographs: list[dict[str, Any]]) -> Iterator[str]:
    opened = "" if len(photographs) > LONG else " open"
    yield f"<details{opened}><summary>{escape(title)} ({len(photographs):,} photographs)</summary>"
    rows = [
        [
            escape(str(one.get("file", "not stored"))),
            f"<code>{escape(str(one.get('sha256', 'not stored')))}</code>",
            f"{one.get('width')} x {one.get('height')}, {one.get('bytes', 0):,} bytes",
            escape(" ".join(str(one[name]) for name in ("model", "date") if name in one)),
        ]
        for one in photographs
    ]
    yield from table_rows("files", ["File", "SHA-256", "Size", "EXIF model and date"], rows)
    yield "</details>"


def _row(one: CameraMatch) -> list[str]:
    ratio = "not stated"
    if one.log10_likelihood_ratio is not None and one.interval is not None:
        ends = f"[{one.interval[0]:.1f}, {one.interval[1]:.1f}]".replace("inf", "∞")
        ratio = f"{one.log10_likelihood_ratio:.1f}<span class='interval'>{ends}</span>"
    values = [f"{one.score:.4f}", f"{one.p_value:.2g}", f"{one.e_value:.2g}", ratio, f"{round(one.pce):,}"]
    return [escape(one.camera), *values, escape(one.orientation), str(one.n_photographs)]


def _commit() -> str:
    """Return the commit of a clone of the library, or a note that it is unknown."""
    folder = Path(__file__).parent
    try:
        call = ["git", "-C", str(folder), "rev-parse", "HEAD"]
        shown = subprocess.run(call, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown (installed from a package)"
    return shown.stdout.strip()


class _Axes:
    """Linear axes with lines and labels."""

    def __init__(self, low: float, high: float, top: float, label: str, title: str) -> None:
        self.low, self.high, self.top = low, high if high > low else low + 1, top if top > 0 else 1.0
        self.parts = [f'<svg role="img" aria-label="{title}" viewBox="0 0 {WIDTH} {HEIGHT}" font-size="12">']
        for value in _ticks(self.low, self.high):
            x = self.x(value)
            self.parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="var(--faint)"/>'
            )
            self.text(x, HEIGHT - BOTTOM + 16, f"{value:.3g}")
        self.text(WIDTH / 2, HEIGHT - 6, label)

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - 2 * LEFT) * (value - self.low) / (self.high - self.low)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / self.top

    def text(self, x: float, y: float, words: str, color: str = "ink") -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="var(--{color})">{words}</text>')

    def steps(self, edges: Float64, heights: Float64, color: str, dashes: str) -> None:
        points = [(edges[0], 0.0)]
        for left, right, height in zip(edges[:-1], edges[1:], heights, strict=True):
            points += [(left, height), (right, height)]
        self.line([*points, (edges[-1], 0.0)], color, dashes)

    def line(self, points: list[tuple[float, float]], color: str, dashes: str = "none") -> None:
        shown = " ".join(f"{self.x(float(x)):.1f},{self.y(float(y)):.1f}" for x, y in points)
        self.parts.append(
            f'<polyline points="{shown}" fill="none" stroke="var(--{color})" stroke-width="2" '
            f'stroke-dasharray="{dashes}"/>'
        )

    def svg(self) -> str:
        return "".join(self.parts) + "</svg>"


def score_figure(found: Identification) -> str:
    """Return histograms of the scores of impostors and matches, with the best score and the threshold."""
    impostors, matches = found.calibration.impostors, found.calibration.matches
    best = found.candidates[0].score
    shown = [*impostors, *matches, best, *([found.threshold] if math.isfinite(found.threshold) else [])]
    margin = 0.04 * (max(shown) - min(shown))
    edges = np.linspace(min(shown) - margin, max(shown) + margin, N_BINS + 1)
    shares = [np.histogram(one, edges)[0] / max(1, len(one)) for one in (impostors, matches)]
    top = 1.1 * max(float(one.max()) for one in shares)
    axes = _Axes(float(edges[0]), float(edges[-1]), top, "score", "scores of impostors and matches, and the best score")
    axes.steps(edges, shares[0], "orange", "none")
    if len(matches):
        axes.steps(edges, shares[1], "blue", "6 3")
    if math.isfinite(found.threshold):
        axes.line([(found.threshold, 0), (found.threshold, top)], "grey", "2 4")
    axes.line([(best, 0), (best, top)], "ink")
    axes.text(WIDTH / 2 - 90, 16, f"impostors ({len(impostors):,})", "orange")
    axes.text(WIDTH / 2 + 90, 16, f"matches ({len(matches):,}), dashed", "blue")
    return axes.svg()


def tippett_figure(calibration: CameraCalibration) -> str:
    """Return the Tippett plot of the calibration's own scores: fraction of ratios at least as large."""
    assert calibration.evidence is not None
    ratios = [np.sort(calibration.evidence.ratio(one).log10) for one in (calibration.matches, calibration.impostors)]
    low, high = (float(end) for end in (min(one[0] for one in ratios), max(one[-1] for one in ratios)))
    margin = 0.05 * (high - low)
    axes = _Axes(low - margin, high + margin, 1.05, "log10 likelihood ratio", "Tippett plot")
    for values, color, dashes in zip(ratios, ("blue", "orange"), ("6 3", "none"), strict=True):
        axes.line([*_at_least(values, low - margin)], color, dashes)
    for share in (0.5, 1.0):
        axes.text(LEFT - 18, axes.y(share) + 4, f"{share:.0%}")
    axes.text(WIDTH / 2 - 90, 16, "matches, dashed", "blue")
    axes.text(WIDTH / 2 + 90, 16, "impostors", "orange")
    return axes.svg()


def _at_least(values: Float64, left: float) -> Iterator[tuple[float, float]]:
    """Yield the corners of the step function that gives the fraction of values at least as large."""
    thinned = values if len(values) <= 400 else values[np.linspace(0, len(values) - 1, 400).astype(int)]
    yield left, 1.0
    for at, value in enumerate(thinned.tolist()):
        yield value, 1 - at / len(thinned)
        yield value, 1 - (at + 1) / len(thinned)


def _ticks(low: float, high: float) -> Iterator[float]:
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (factor * step) <= 8)
    at = math.ceil(low / step)
    while at * step <= high:
        yield at * step
        at += 1
