"""Reports of identifications and cases: self-contained HTML pages, the same content as JSON, and figures."""

from __future__ import annotations

import base64
import json
import math
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from .._files import write_file
from .._page import PALETTE, document, table_rows
from .alignment import BLOCK, CUSTOMARY, NEIGHBORHOOD
from .calibration import CameraCalibration
from .database import CameraDatabase
from .fingerprint import DARK, FLAT, MIN_USABLE, N_LEVELS, SATURATED, SIGMA, WAVELET, WINDOWS
from .identification import AlignedMatch, CameraMatch, Identification
from .photographs import MAX_DIFFERENT, SCENE_BITS, PhotographError, thumbnail

LITERATURE = (
    "J. Lukas, J. Fridrich, M. Goljan: Digital camera identification from sensor pattern noise, IEEE TIFS 1 (2006).",
    "M. Chen, J. Fridrich, M. Goljan, J. Lukas: Determining image origin and integrity using sensor noise, IEEE TIFS 3 "
    "(2008).",
    "M. Goljan, J. Fridrich, T. Filler: Large scale test of sensor fingerprint camera identification, SPIE (2009).",
    "P. Vergeer, A. van Es, A. de Jongh, I. Alberink, R. D. Stoel: Numerical likelihood ratios outputted by LR systems "
    "are often based on extrapolation: when to stop extrapolating? Science & Justice 56 (2016).",
    "M. Goljan, J. Fridrich: Camera identification from cropped and scaled images, SPIE (2008).",
    "ENFSI guideline for evaluative reporting in forensic science (2015): the verbal scale of likelihood ratios.",
)


WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 300, 56, 46, 26
N_BINS = 60
MATRIX_ROWS = 6  # a figure cannot be divided between pages, so tall ones would leave a third of a page empty

OUTLINED = 'font-size="17" fill="var(--ink)" stroke="var(--page)" stroke-width="3" paint-order="stroke"'
LONG = 12
"""Tables of files with more rows than this are folded on the page; printing unfolds them."""

DATABASE_WORDS = {"path": "database", "version": "version of the database", "n_cameras": "cameras"}
NOT_APPLIED = {"orientation": " (not applied, because the pattern belongs to the pixels of the sensor)"}

STYLE = (
    "<style>@page{size:A4;margin:15mm}.files{font-size:.78rem}.files code{white-space:nowrap}summary{cursor:pointer}"
    ".unsure{color:var(--gold);font-weight:650}.photograph{display:flex;gap:1rem;align-items:flex-start}"
    ".photograph img{max-width:11rem;max-height:11rem}.photograph>div{flex:1;min-width:0}"
    ".numbers td:first-child{min-width:7rem}.numbers td[data-label=Region]{white-space:normal}"
    ".signatures{display:grid;grid-template-columns:1fr 1fr;gap:2rem;margin-top:2.5rem;break-inside:avoid}"
    ".signatures div{border-top:1px solid var(--ink);padding-top:.2rem}"
    ".summary td:nth-child(n+5){white-space:nowrap}.facts td:last-child{overflow-wrap:anywhere}"
    "@media (max-width:40rem){.photograph{display:block}.numbers td{text-align:left!important}"
    ".cards td:empty{display:none}}"
    "@media print{details::details-content{content-visibility:visible;display:block}h1{font-size:1.4rem}"
    "p:has(+.scroll){break-after:avoid}h2{font-size:1.1rem;margin-top:1.2rem}"
    "h3{font-size:1rem;margin:.8rem 0 .2rem;break-after:avoid}"
    "body{font-size:10pt;line-height:1.4}h2~p{break-after:auto}h2+p{break-after:avoid}"
    "p,figcaption,li{max-width:none}figure svg{max-width:27rem}"
    "summary{list-style:none;break-after:avoid}.files{font-size:.55rem}.files code{font-size:.5rem}.files "
    "td{padding:.2rem .3rem}th,td{padding:.22rem .4rem}.photograph img{max-width:8rem;max-height:8rem}}</style>"
)

SIGNATURES = '<div class="signatures"><div>Examiner: signature, date</div><div>Reviewer: signature, date</div></div>'

COLUMNS = (
    *("photograph", "result", "camera", "score", "p_value", "log10_p_value", "e_value", "log10_e_value"),
    *("log10_likelihood_ratio", "words", "pce", "orientation", "scale", "left", "top", "width", "height"),
    *("condition", "sha256", "problem"),
)
"""Columns of the table of a batch; values that do not apply are None."""

LIMITS = (
    "A match concerns the sensor, not the person who used the camera, the time or the place.",
    "P-values and likelihood ratios hold for photographs like those of the calibration.",
    "No match does not exclude a camera, because editing, scaling and compression hide patterns.",
    "Computational photography (frames merged by the camera, portrait and night modes), editors and neural processing "
    "weaken or move the pattern; reductions of the PCE by 40% and more are reported. Cameras of one model, phones "
    "above all, can share artefacts that look like a pattern (Iuliani, Fontani and Piva 2021).",
)


def report_record(database: CameraDatabase, found: Identification, *, command: str) -> dict[str, Any]:
    """Return the report of ``found``, an identification in ``database`` by ``command``, as plain values."""
    record = found.to_json() | _context(database, [found], command)
    if found.n_comparisons:
        threshold = f"{found.threshold:.5f}" if math.isfinite(found.threshold) else "none at this false-alarm rate"
        record["parameters"] |= {"comparisons": found.n_comparisons, "threshold of the score": threshold}
    if found.n_trials:
        record["parameters"]["shifts and scales"] = found.n_trials
    return record


def _context(database: CameraDatabase, judged: list[Identification], command: str) -> dict[str, Any]:
    """Return what the reports of one and of many photographs have in common."""
    import PIL
    import pywt

    reported = [camera for found in judged for camera in found.reported]
    neighborhood = 2 * NEIGHBORHOOD + 1
    searched = f"; in the search at the best shift, among shifts of equal remainder modulo {BLOCK}"
    return {
        "enrolled": {camera: database.camera(camera).photographs for camera in dict.fromkeys(reported)},
        "database": {
            "path": database.path,
            "version": database.index.versions()[-1],
            "n_cameras": len(database),
            "recipe": database.index.recipe.summary,
        },
        "parameters": {
            "crop": f"{database.size} x {database.size} pixels at the centre; EXIF orientation not applied",
            "denoising": f"{WAVELET}, {N_LEVELS} levels, windows {', '.join(map(str, WINDOWS))}, sigma {SIGMA:g}",
            "usable pixels": f"below {SATURATED:g}, not flat (variance {FLAT:g}) below {DARK:g}; "
            f"at least {MIN_USABLE:.0%}",
            "features": database.size**2,
            "projections kept": database.n_bits,
            "false-alarm rate": judged[0].false_alarm,
            "search": ", ".join(judged[0].search) or "none",
            "same scene": f"at most {MAX_DIFFERENT} of {SCENE_BITS} bits of the signatures differ",
            "PCE": f"at shift zero, neighbourhood {neighborhood} x {neighborhood}"
            f"{searched if judged[0].search else ''}; threshold {CUSTOMARY:g}",
        },
        "software": {
            "topsign": __version__,
            "commit": _commit(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "pillow": PIL.__version__,
            "pywavelets": pywt.__version__,
        },
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
    }


def write_report(
    path: str | os.PathLike[str],
    database: CameraDatabase,
    found: Identification,
    *,
    command: str,
    with_thumbnail: bool = True,
) -> None:
    """Write the report of an identification to ``path`` as HTML, or as JSON if the name ends in .json.

    ``found`` is the result of :func:`identify` in ``database``. ``command`` is the command line that reproduces the
    report. With ``with_thumbnail``, the page shows a small copy of the photograph.
    """
    record = report_record(database, found, command=command)
    title = f"Camera identification: {Path(found.photograph.path).name}"
    _write(path, record, title, _body(found, record, title, with_thumbnail))


def write_case(
    path: str | os.PathLike[str],
    database: CameraDatabase,
    results: Sequence[Identification | PhotographError],
    *,
    command: str,
    case_number: str = "",
    examiner: str = "",
    with_thumbnail: bool = True,
) -> None:
    """Write the report of a case of many photographs to ``path`` as HTML, or as JSON if the name ends in .json.

    ``results`` are those of :func:`identify_all` in ``database``. ``command``, ``with_thumbnail``: see
    :func:`write_report`. The page has fields for the ``case_number``, the ``examiner`` and signatures; those that are
    not given are left blank.
    """
    judged = [one for one in results if isinstance(one, Identification)]
    if not judged:
        raise ValueError(f"no photograph can be judged: {'; '.join(map(str, results[:3])) or 'none is given'}")
    record = {
        "case_number": case_number,
        "examiner": examiner,
        "photographs": [
            found.to_json()
            if isinstance(found, Identification)
            else {"photograph": {"path": found.path}, "result": None, "problem": found.problem}
            for found in results
        ],
        **_context(database, judged, command),
    }
    title = f"Camera identification: case {case_number}" if case_number else "Camera identification of photographs"
    _write(path, record, title, _case_body(results, judged, record, title, with_thumbnail))


def result_row(found: Identification | PhotographError) -> dict[str, Any]:
    """Return the row of a photograph, as ``found``, in the table of a batch, with the ``COLUMNS``."""
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    if isinstance(found, PhotographError):
        return row | {"photograph": found.path, "problem": found.problem}
    row |= {"photograph": found.photograph.path, "result": found.result, "condition": found.condition}
    row["sha256"] = found.photograph.sha256
    best = found.best
    values = asdict(best)
    if isinstance(best, AlignedMatch):
        values |= asdict(best.alignment)
    return row | {name: value for name, value in values.items() if name in COLUMNS}


def write_matrix(path: str | os.PathLike[str], results: Sequence[Identification | PhotographError]) -> None:
    """Write a picture of all scores of photographs, ``results`` of :func:`identify_all`, to ``path`` as SVG."""
    scored = {number: one for number, one in enumerate(results, 1) if isinstance(one, Identification) and one.scores}
    if not scored:
        raise ValueError("no photograph has scores to draw")
    colors = "".join(f"--{name}:{pair[0]};" for name, pair in PALETTE.items())
    head = f'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" style="{colors}--page:#fff;'
    figure = matrix_figure(scored).replace('style="', head, 1)
    write_file(path, lambda file: file.write(f"{figure}\n".encode()))


def write_lir(path: str | os.PathLike[str], calibration: CameraCalibration) -> None:
    """Write the likelihood ratios of all known scores to ``path`` as CSV for lir.

    lir is a package of the Netherlands Forensic Institute.

    The columns are ``label`` (1 for known matches, 0 for impostors), ``llr`` (the decimal logarithm of the bounded
    likelihood ratio) and ``score``. The ratios are fitted to these scores, so only scores of further photographs test
    them. ValueError is raised if the ``calibration`` has no likelihood ratios.
    """
    if calibration.ratios is None:
        raise ValueError("the calibration has no likelihood ratios, because there are too few scores of known matches")
    rows = [
        f"{label},{calibration.ratios.ratio(score)},{score}\n"
        for label, scores in ((1, calibration.matches), (0, calibration.impostors))
        for score in scores.tolist()
    ]
    write_file(path, lambda file: file.write(f"label,llr,score\n{''.join(rows)}".encode()))


def _write(path: str | os.PathLike[str], record: dict[str, Any], title: str, body: Iterator[str]) -> None:
    is_json = Path(path).suffix.lower() == ".json"
    content = json.dumps(record, indent=1, allow_nan=False) + "\n" if is_json else document(title, body)
    write_file(path, lambda file: file.write(content.encode()))


def _body(found: Identification, record: dict[str, Any], title: str, with_thumbnail: bool) -> Iterator[str]:
    yield STYLE
    yield f"<h1>{escape(title)}</h1>"
    yield f'<p class="muted">Written {escape(record["written"])} by topsign {escape(__version__)}.</p>'
    yield '<h2 id="conclusion">Conclusion</h2>'
    yield _conclusion(found)
    yield '<h2 id="photograph">Photograph</h2>'
    yield from _photograph(found, with_thumbnail)
    yield '<h2 id="cameras">Cameras</h2>'
    tried = f" Orientations tried: {escape(', '.join(found.orientations))}." if found.orientations else ""
    yield (
        f"<p>The database has {found.n_cameras:,} cameras, {found.n_comparable:,} of them with photographs of this "
        f"size.{tried}</p>"
    )
    yield from _tables(found)
    yield _explained([found])
    yield from _calibration([found])
    yield from _end(found.calibration, record)


def _case_body(
    results: Sequence[Identification | PhotographError],
    judged: list[Identification],
    record: dict[str, Any],
    title: str,
    with_thumbnail: bool,
) -> Iterator[str]:
    counts = Counter(one.result for one in judged)
    refused = [one for one in results if isinstance(one, PhotographError)]
    yield STYLE
    yield f"<h1>{escape(title)}</h1>"
    facts = [
        ["Case number", escape(record["case_number"]) or "&nbsp;"],
        ["Examiner", escape(record["examiner"]) or "&nbsp;"],
        ["Written", f"{escape(record['written'])} by topsign {escape(__version__)}"],
        ["Database", f"{escape(record['database']['path'])}, {judged[0].n_cameras:,} cameras"],
        [
            "Photographs",
            f"{len(results):,}: {counts['match']:,} match, {counts['no match']:,} match no camera, "
            f"{counts['inconclusive']:,} inconclusive, {len(refused):,} cannot be judged",
        ],
        ["False-alarm rate", f"{judged[0].false_alarm:g} for each photograph"],
    ]
    yield from table_rows("facts", ["", ""], facts)
    yield '<h2 id="summary">Summary</h2>'
    titles = ["", "Photograph", "Result", "Best camera", "Score", "E-value", "log10 LR", "PCE"]
    yield from table_rows("summary cards", titles, [_summary_row(number, one) for number, one in enumerate(judged, 1)])
    if refused:
        yield "<p>These files cannot be judged:</p><ul>"
        yield from (f"<li>{escape(str(one))}</li>" for one in refused)
        yield "</ul>"
    scored = [(number, one) for number, one in enumerate(judged, 1) if one.scores]
    if scored:
        yield '<h2 id="matrix">Scores with all cameras</h2>'
        n_rows = math.ceil(len(scored) / math.ceil(len(scored) / MATRIX_ROWS))
        for start in range(0, len(scored), n_rows):
            yield f"<figure>{matrix_figure(dict(scored[start : start + n_rows]))}</figure>"
        yield (
            "<p class='muted'>The darker a cell, the smaller the p-value of its comparison; cells with a dot are "
            "significant at the false-alarm rate of the photograph. Cells with a cross belong to cameras that are "
            "excluded, because a photograph of the same scene is enrolled.</p>"
        )
    for number, found in enumerate(judged, 1):
        yield f'<h2 id="photograph-{number}">{number}. {escape(Path(found.photograph.path).name)}</h2>'
        yield _conclusion(found)
        yield from _photograph(found, with_thumbnail)
        yield from _tables(found)
    yield _explained(judged)
    yield from _calibration(judged)
    yield from _end(judged[0].calibration, record, SIGNATURES)


def _mark(found: Identification) -> str:
    kind = {"match": "yes", "no match": "no", "inconclusive": "unsure"}[found.result]
    return f'<span class="{kind}">{found.result.capitalize()}</span>'


def _conclusion(found: Identification) -> str:
    """Return the conclusion with the result marked at its beginning."""
    words = found.conclusion()
    rest = f". {words}" if found.result == "match" else words.removeprefix(found.result.capitalize())
    return f"<p>{_mark(found)}{escape(rest)}</p>"


def _photograph(found: Identification, with_thumbnail: bool) -> Iterator[str]:
    photograph = found.photograph
    yield '<div class="photograph">'
    if with_thumbnail:
        shown = base64.b64encode(thumbnail(photograph.path)).decode()
        yield f'<img alt="small copy of the photograph" src="data:image/jpeg;base64,{shown}">'
    n_pixels = photograph.width * photograph.height if photograph.size is None else photograph.size**2
    facts = [
        ["File", f"<code>{escape(photograph.path)}</code>"],
        ["SHA-256", f"<code>{photograph.sha256}</code>"],
        ["Size", f"{photograph.width} x {photograph.height} pixels, {photograph.n_bytes:,} bytes"],
        ["Usable pixels", f"{found.n_usable:,} of {n_pixels:,} compared; condition: {found.condition}"],
        *([f"EXIF {name}", escape(value) + NOT_APPLIED.get(name, "")] for name, value in photograph.exif.items()),
    ]
    yield "<div>"
    yield from table_rows("facts", ["", ""], facts)
    yield "</div></div>"


def _tables(found: Identification) -> Iterator[str]:
    searched = f"Search for {' and '.join(found.search)}, {found.n_trials:,} shifts and scales in total:"
    yield from _camera_table(found.candidates)
    yield from _camera_table(found.excluded, "Excluded, because a photograph of the same scene is enrolled:")
    yield from _camera_table(found.aligned, searched)


def _camera_table(matches: Sequence[CameraMatch | AlignedMatch], words: str = "") -> Iterator[str]:
    rows = [one.texts() for one in matches]
    if rows:
        yield f"<p>{words}</p>" if words else ""
        titles = [name[0].upper() + name[1:] for name in rows[0]]
        yield from table_rows("numbers cards", titles, [[escape(text) for text in row.values()] for row in rows])


def _explained(shown: list[Identification]) -> str:
    """Return a paragraph that explains the columns of the tables."""
    words = {
        "Score": "estimated correlation of the residual with the pattern expected of the camera",
        "P-value": "probability that one impostor scores as high, or has as high a PCE at one shift and scale",
        "E-value": "expected number of impostors that do so in all comparisons of a photograph",
        "LR": "likelihood ratio of the same camera against another, within its bounds",
        "PCE": f"peak to correlation energy with the uncompressed fingerprint, customarily at least {CUSTOMARY:g}",
    }
    if not any(one.candidates for one in shown):
        del words["Score"], words["LR"]
    return "<p class='muted'>" + " ".join(f"{name}: {text}." for name, text in words.items()) + "</p>"


def _calibration(shown: list[Identification]) -> Iterator[str]:
    """Yield the null distributions of these photographs, and the likelihood ratios."""
    calibration = shown[0].calibration
    yield '<h2 id="calibration">Calibration</h2>'
    nulls = {calibration.null(one.condition).condition: one for one in shown if one.scores}
    if not nulls:
        yield "<p>No photograph was compared as a whole frame, so the known scores do not apply.</p>"
        return
    for condition, one in sorted(nulls.items()):
        yield f"<p>{escape(calibration.statement(condition))}</p><figure>"
        is_single = len(shown) == 1 and one.candidates
        best = one.candidates[0].score if is_single else None
        yield score_figure(calibration, condition, best, one.threshold if is_single else math.inf)
        words = "Scores of known impostors and known matches."
        if is_single:
            words += " The best score is the vertical line, and the threshold of a match is dotted."
        yield f"<figcaption>{words}</figcaption></figure>"
    if calibration.ratios is None:
        yield (
            f"<p>Likelihood ratios are not stated: there are {len(calibration.matches)} scores of known matches, and "
            "at least 10 that are above those of impostors are needed.</p>"
        )
        return
    low, high = calibration.ratios.bounds
    yield (
        f"<p>Likelihood ratios are those of monotone calibration (pool-adjacent-violators) from "
        f"{len(calibration.matches):,} scores of known matches (enrolled photographs with the fingerprint of the "
        f"others) and {len(calibration.impostors):,} scores of known impostors. They lie between 10^{low:.1f} and "
        f"10^{high:.1f}, the empirical lower and upper bounds (ELUB) that these scores support."
    )
    if calibration.ratios.gap is not None:
        ends = calibration.ratios.gap
        yield f" None is stated between {ends[0]:.4f} and {ends[1]:.4f}, where no known match or impostor scored."
    yield "</p>"
    yield f"<figure>{tippett_figure(calibration)}<figcaption>Tippett plot: "
    yield "fraction of known matches and of known impostors with at least this log10 likelihood ratio.</figcaption>"
    yield "</figure>"


def _end(calibration: CameraCalibration, record: dict[str, Any], signatures: str = "") -> Iterator[str]:
    yield '<h2 id="limits">Limits</h2><ul>'
    yield from (f"<li>{escape(one)}</li>" for one in LIMITS)
    yield f'</ul>{signatures}<h2 id="reproduce">Reproduction</h2>'
    yield f"<pre>{escape(record['command'])}</pre>"
    rows = [
        *record["parameters"].items(),
        *((DATABASE_WORDS.get(name, name), value) for name, value in record["database"].items()),
        *record["software"].items(),
    ]
    yield from table_rows("facts", ["", ""], [[escape(str(name)), escape(str(value))] for name, value in rows])
    yield "<ul>" + "".join(f"<li class='muted'>{escape(one)}</li>" for one in LITERATURE) + "</ul>"
    yield from _files(calibration, record["enrolled"])


def _summary_row(number: int, found: Identification) -> list[str]:
    texts = found.best.texts()
    shown = [texts.get(name, "") for name in ("camera", "score", "E-value", "log10 LR", "PCE")]
    return [str(number), escape(Path(found.photograph.path).name), _mark(found), *map(escape, shown)]


def _files(calibration: CameraCalibration, enrolled: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Yield the appendix: files of the reported cameras and of the calibration."""
    yield '<h2 id="files">Appendix: files</h2>'
    for camera, photographs in enrolled.items():
        yield from _file_table(f"Enrolled for {camera}", photographs)
    given = calibration.photographs
    if given:
        yield from _file_table("Impostors of the calibration", given)
    else:
        yield f"<p>Calibration: {escape(calibration.source)}; these files are not listed separately.</p>"


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
        step = 10 ** math.floor(math.log10((self.high - self.low) / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if (self.high - self.low) / (factor * step) <= 8)
        for value in step * np.arange(math.ceil(self.low / step), self.high / step):
            self.line([(value, 0), (value, self.top)], "faint", width=1)
            self.text(self.x(value), HEIGHT - BOTTOM + 16, f"{value:.3g}")
        self.text(WIDTH / 2, HEIGHT - 6, label)

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - 2 * LEFT) * (value - self.low) / (self.high - self.low)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / self.top

    def text(self, x: float, y: float, words: str, color: str = "ink") -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="var(--{color})">{words}</text>')

    def legend(self, *entries: tuple[str, str]) -> None:
        for at, (words, color) in zip((-90, 90), entries, strict=True):
            self.text(WIDTH / 2 + at, 16, words, color)

    def line(self, points: Iterable[tuple[float, float]], color: str, dashes: str = "none", width: int = 2) -> None:
        shown = " ".join(f"{self.x(float(x)):.1f},{self.y(float(y)):.1f}" for x, y in points)
        self.parts.append(
            f'<polyline points="{shown}" fill="none" stroke="var(--{color})" stroke-width="{width}" '
            f'stroke-dasharray="{dashes}"/>'
        )

    def svg(self) -> str:
        return "".join(self.parts) + "</svg>"


def score_figure(calibration: CameraCalibration, condition: str, best: float | None, threshold: float) -> str:
    """Return histograms of the scores of impostors and matches, with a finite threshold and the best score."""
    impostors, matches = calibration.null(condition).impostors, calibration.matches
    shown = [*impostors, *matches, *(one for one in (threshold, best) if one is not None and math.isfinite(one))]
    margin = 0.04 * (max(shown) - min(shown))
    edges = np.linspace(min(shown) - margin, max(shown) + margin, N_BINS + 1)
    shares = [np.histogram(one, edges)[0] / max(1, len(one)) for one in (impostors, matches)]
    top = 1.1 * max(float(one.max()) for one in shares)
    axes = _Axes(float(edges[0]), float(edges[-1]), top, "score", "scores of impostors and matches, and the best score")
    for heights, color, dashes in zip(shares, ("orange", "blue"), ("none", "6 3"), strict=True):
        axes.line(zip(np.repeat(edges, 2), [0, *np.repeat(heights, 2), 0], strict=True), color, dashes)
    if math.isfinite(threshold):
        axes.line([(threshold, 0), (threshold, top)], "grey", "2 4")
    if best is not None:
        axes.line([(best, 0), (best, top)], "ink")
    axes.legend((f"impostors ({len(impostors):,})", "orange"), (f"matches ({len(matches):,}), dashed", "blue"))
    return axes.svg()


def tippett_figure(calibration: CameraCalibration) -> str:
    """Return the Tippett plot of the calibration's own scores: fraction of ratios at least as large."""
    assert calibration.ratios is not None
    low, high = calibration.ratios.bounds
    margin = 0.05 * (high - low)
    axes = _Axes(low - margin, high + margin, 1.05, "log10 likelihood ratio", "Tippett plot")
    for scores, color, dashes in ((calibration.matches, "blue", "6 3"), (calibration.impostors, "orange", "none")):
        known = (calibration.ratios.ratio(one) for one in scores.tolist())
        ratios = np.unique([one for one in known if one is not None], return_counts=True)
        shares = 1 - np.cumsum([0, *ratios[1]]) / ratios[1].sum()
        axes.line(zip([low - margin, *np.repeat(ratios[0], 2)], np.repeat(shares, 2), strict=False), color, dashes)
    for share in (0.5, 1.0):
        axes.text(LEFT - 18, axes.y(share) + 4, f"{share:.0%}")
    axes.legend(("matches, dashed", "blue"), ("impostors", "orange"))
    return axes.svg()


def matrix_figure(numbered: Mapping[int, Identification]) -> str:
    """Return a matrix of numbered photographs by cameras, shaded by the p-values of the comparisons."""
    results = [*numbered.values()]
    cameras = [*dict.fromkeys(camera for found in results for camera in sorted(found.scores))]
    labels = [f"{number}. {Path(found.photograph.path).name}" for number, found in numbered.items()]
    left, cell = 12 + 6.4 * max(map(len, labels)), max(14.0, min(36.0, 560 / len(cameras)))
    top = 14 + 4.8 * max(map(len, cameras))
    width, height = left + cell * len(cameras) + 4.8 * len(cameras[-1]) + 10, top + 18 * len(results) + 6
    parts = [
        f'<svg role="img" aria-label="scores of photographs with cameras" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'style="width:{width:.0f}px;max-width:100%" font-size="11">'
    ]
    for column, camera in enumerate(cameras):
        x = left + cell * (column + 0.5)
        parts.append(
            f'<text fill="var(--ink)" transform="translate({x:.1f} {top - 6:.1f}) rotate(-45)">{escape(camera)}</text>'
        )
    for row, (label, found) in enumerate(zip(labels, results, strict=True)):
        y, null = top + 18 * row, found.calibration.null(found.condition)
        parts.append(
            f'<text x="{left - 6:.1f}" y="{y + 13:.1f}" text-anchor="end" fill="var(--ink)">{escape(label)}</text>'
        )
        needed, excluded = math.log10(found.false_alarm / found.n_comparisons), {one.camera for one in found.excluded}
        for column, camera in enumerate(cameras):
            x, score = left + cell * column, found.scores.get(camera)
            shade = 0.0 if score is None else min(1.0, null.log10_p_value(score) / needed)
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{cell - 1:.1f}" height="17" fill="var(--blue)" '
                f'fill-opacity="{shade:.3f}" stroke="var(--faint)"/>'
            )
            middle = x + cell / 2 - 0.5
            if camera in excluded:
                parts.append(f'<text x="{middle:.1f}" y="{y + 14.5:.1f}" text-anchor="middle" {OUTLINED}>×</text>')
            elif score is not None and score >= found.threshold:
                parts.append(f'<circle cx="{middle:.1f}" cy="{y + 8.5:.1f}" r="3.5" fill="var(--page)"/>')
    return "".join(parts) + "</svg>"
