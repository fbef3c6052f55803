"""The report of an identification: one self-contained HTML page that prints well, and the same as JSON."""

from __future__ import annotations

import base64
import json
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
from .._files import write_file
from .._page import document, table_rows
from .database import CameraDatabase
from .figures import score_figure, tippett_figure
from .identification import CameraMatch, Identification
from .images import thumbnail
from .residual import DARK, FLAT, MIN_USABLE, N_LEVELS, SATURATED, SIGMA, WAVELET, WINDOWS

LITERATURE = (
    "J. Lukas, J. Fridrich, M. Goljan: Digital camera identification from sensor pattern noise, IEEE TIFS 1 (2006).",
    "M. Chen, J. Fridrich, M. Goljan, J. Lukas: Determining image origin and integrity using sensor noise, IEEE TIFS 3 "
    "(2008).",
    "M. Goljan, J. Fridrich, T. Filler: Large scale test of sensor fingerprint camera identification, SPIE (2009).",
    "ENFSI guideline for evaluative reporting in forensic science (2015): the verbal scale of likelihood ratios.",
)


def report_record(database: CameraDatabase, found: Identification, *, command: str) -> dict[str, Any]:
    """Return all that a report states, as plain values."""
    return found.to_json() | {
        "database": {
            "path": database.path,
            "version": database.index.versions()[-1],
            "n_cameras": len(database),
            "recipe": database.index.recipe.summary,
        },
        "parameters": parameters(database),
        "software": software(),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
    }


def parameters(database: CameraDatabase) -> dict[str, Any]:
    """Return the parameters of the comparison."""
    return {
        "crop": f"{database.size} x {database.size} pixels at the centre",
        "denoising": f"{WAVELET}, {N_LEVELS} levels, windows {', '.join(map(str, WINDOWS))}, sigma {SIGMA:g}",
        "usable pixels": f"below {SATURATED:g}, not flat (variance {FLAT:g}) below {DARK:g}; at least {MIN_USABLE:.0%}",
        "features": database.size**2,
        "projections kept": database.n_bits,
    }


def software() -> dict[str, str]:
    """Return versions of the library and of what it runs on."""
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
    """Write the report of an identification: HTML, or JSON if the name ends in .json.

    ``command`` is the command line that reproduces it. The page shows a small copy of the photograph only with
    ``with_thumbnail``.
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
        *([f"EXIF {name}", escape(value)] for name, value in photograph.exif.items()),
    ]
    yield from table_rows("facts", ["", ""], facts)
    yield '<h2 id="cameras">Cameras</h2>'
    yield (
        f"<p>{found.n_cameras:,} cameras in the database, {found.n_comparable:,} of them with photographs of this "
        f"size. Orientations tried: {escape(', '.join(found.orientations))}. The best {len(found.candidates)}:</p>"
    )
    titles = ["Camera", "Score", "P-value", "E-value", "log10 LR [95%]", "PCE", "Orientation", "Enrolled"]
    yield from table_rows("numbers", titles, [_row(one) for one in found.candidates])
    yield (
        "<p class='muted'>Score: estimated correlation of the residual with the pattern that the camera would leave. "
        "P-value: chance that one impostor scores as high. E-value: impostors to expect that score as high in all "
        f"{found.n_comparisons:,} comparisons. LR: likelihood ratio, same camera against another. PCE: peak to "
        "correlation energy with the uncompressed fingerprint; 60 is a customary threshold.</p>"
    )
    yield f'<figure id="figure-scores">{score_figure(found)}<figcaption>The best score (vertical line) on the '
    yield "scores of known impostors and known matches. Dotted: the threshold of a match.</figcaption></figure>"
    yield '<h2 id="calibration">Calibration</h2>'
    yield f"<p>{escape(found.calibration.statement())}</p>"
    if found.calibration.evidence is None:
        yield (
            f"<p>Likelihood ratios are not stated: {len(found.calibration.matches)} scores of known matches are too "
            "few, or do not lie above those of impostors.</p>"
        )
    else:
        yield (
            f"<p>Likelihood ratios: logistic calibration of {len(found.calibration.matches):,} scores of known matches "
            f"(enrolled photographs with the fingerprint of the others) and {len(found.calibration.impostors):,} of "
            "impostors. A ratio is never larger than the number of impostors supports.</p>"
        )
        yield f'<figure id="figure-tippett">{tippett_figure(found.calibration)}<figcaption>Tippett plot: shares of '
        yield "known matches and known impostors whose log10 likelihood ratio is as large.</figcaption></figure>"
    yield '<h2 id="limits">Limits</h2><ul>'
    yield "<li>A match speaks of the sensor, not of who used the camera, when or where.</li>"
    yield "<li>P-values and likelihood ratios hold for photographs like those of the calibration.</li>"
    yield "<li>No match does not exclude a camera: editing, scaling, compression and darkness hide patterns.</li>"
    yield "</ul>"
    yield '<h2 id="reproduce">Reproduction</h2>'
    yield f"<pre>{escape(record['command'])}</pre>"
    rows = [*record["parameters"].items(), *record["database"].items(), *record["software"].items()]
    yield from table_rows("facts", ["", ""], [[escape(str(name)), escape(str(value))] for name, value in rows])
    yield "<ul>" + "".join(f"<li class='muted'>{escape(one)}</li>" for one in LITERATURE) + "</ul>"


def _row(one: CameraMatch) -> list[str]:
    ratio = "not stated"
    if one.log10_likelihood_ratio is not None and one.interval is not None:
        ends = f"[{one.interval[0]:.1f}, {one.interval[1]:.1f}]".replace("inf", "∞")
        ratio = f"{one.log10_likelihood_ratio:.2f}<span class='interval'>{ends}</span>"
    values = [f"{one.score:.4f}", f"{one.p_value:.2g}", f"{one.e_value:.2g}", ratio, f"{one.pce:.0f}"]
    return [escape(one.camera), *values, escape(one.orientation), str(one.n_photographs)]


def _commit() -> str:
    """Return the commit of the library in a clone, or that it is unknown."""
    folder = Path(__file__).parent
    try:
        call = ["git", "-C", str(folder), "rev-parse", "HEAD"]
        shown = subprocess.run(call, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown (installed from a package)"
    return shown.stdout.strip()
