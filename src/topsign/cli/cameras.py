"""Commands of ``topsign cameras``: enroll, identify, calibrate, list, verify and remove."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from .app import app, console, errors, exit_on_error, fail
from .output import bar

cameras = typer.Typer(name="cameras", help="Identify the camera of a photograph by its sensor pattern noise.")
app.add_typer(cameras)

NO_MATCH = 3
"""Exit code of ``identify`` if no camera matches."""

Database = Annotated[
    Path, typer.Argument(metavar="DATABASE", help="Folder of the camera database.", show_default=False)
]
Names = Annotated[bool, typer.Option("--names/--no-names", help="Store file names of photographs.")]
Photographs = Annotated[
    list[Path], typer.Argument(metavar="PHOTOGRAPHS", help="JPEG, PNG or TIFF files.", show_default=False)
]


@cameras.command()
def enroll(
    database: Database,
    photographs: Photographs,
    camera: Annotated[str, typer.Option(help="Name of the camera, new or known.")],
    size: Annotated[int | None, typer.Option(help="Side of the crop, for a new database. (default: 1024)")] = None,
    bits: Annotated[
        int | None, typer.Option(help="Projections kept, for a new database. (default: one per 64 pixels)")
    ] = None,
    keep_outliers: Annotated[bool, typer.Option("--keep-outliers", help="Enroll outliers, too.")] = False,
    names: Names = True,
    hashes: Annotated[
        bool, typer.Option("--hashes/--no-hashes", help="Store SHA-256 and scene signatures of photographs.")
    ] = True,
    exif: Annotated[bool, typer.Option("--exif/--no-exif", help="Store model and date of photographs.")] = True,
    sums: Annotated[
        bool, typer.Option("--sums/--no-sums", help="Store the sums that further photographs are added to.")
    ] = True,
) -> None:
    """Estimate the fingerprint of a camera from its photographs, or add photographs to it.

    Files that cannot be used are listed and left out: unreadable files, photographs already enrolled, photographs of
    another size, and outliers. The other photographs are enrolled, and the exit code is 1.

    [bold]Examples[/]

    topsign cameras enroll sensors.topsign --camera "Canon EOS 5D #1234" flat/*.jpg
    """
    package = _package()
    with exit_on_error(2):
        opened = package.CameraDatabase(database, size=size, n_bits=bits)
    with exit_on_error(1), bar("photographs") as progress:
        done = package.enroll(
            opened,
            camera,
            photographs,
            keep_outliers=keep_outliers,
            keep_names=names,
            keep_hashes=hashes,
            keep_exif=exif,
            keep_sums=sums,
            progress=progress,
        )
    for note in done.notes:
        errors.print(Text("note:", "bold yellow"), note, highlight=False, soft_wrap=True)
    words = "photograph" if done.n_enrolled == 1 else "photographs"
    _print(f"{database}: {camera}: {done.n_enrolled:,} {words} enrolled, {done.n_photographs:,} in total")
    _name_refused(done.refused)


@cameras.command()
def identify(
    database: Database,
    photograph: Annotated[Path, typer.Argument(metavar="PHOTOGRAPH", help="A JPEG, PNG or TIFF file.")],
    k: Annotated[int, typer.Option("-k", help="Greatest number of cameras to show.")] = 5,
    false_alarm: Annotated[
        float, typer.Option(help="Probability that a photograph of none of the cameras matches one.")
    ] = 1e-6,
    report: Annotated[Path | None, typer.Option(help="Write a report to this .html or .json file.")] = None,
    show_thumbnail: Annotated[
        bool, typer.Option("--thumbnail/--no-thumbnail", help="Show the photograph in the report.")
    ] = True,
    orientations: Annotated[
        bool, typer.Option("--orientations/--no-orientations", help="Try rotations and mirror images.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare a photograph with all cameras: score, p-value, E-value, likelihood ratio and PCE of the best.

    The exit code is 3 if no camera matches at the false-alarm rate over the whole database. Run topsign cameras
    calibrate first: an uncalibrated database gives no p-values.

    [bold]Examples[/]

    topsign cameras identify sensors.topsign evidence/IMG_0042.jpg --report IMG_0042.html
    """
    package, opened = _opened(database)
    if report is not None and report.suffix.lower() not in (".html", ".json"):
        raise fail(f"--report must end in .html or .json, got {report}", code=2)
    if report is not None and not report.parent.is_dir():
        raise fail(f"--report {report} cannot be written, because {report.parent} is not a folder", code=2)
    if not 0 < false_alarm < 1:
        raise fail(f"--false-alarm must lie in (0, 1), got {false_alarm}", code=2)
    tried = tuple(package.ORIENTATIONS) if orientations else ("as stored",)
    with exit_on_error(1):
        found = package.identify(opened, photograph, k=k, false_alarm=false_alarm, orientations=tried)
        command = shlex.join(["topsign", *sys.argv[1:]])
        if report is not None:
            package.write_report(report, opened, found, command=command, with_thumbnail=show_thumbnail)
    if as_json:
        print(json.dumps(package.report_record(opened, found, command=command), indent=1))
    else:
        _show(found)
    if not found.is_match:
        raise typer.Exit(NO_MATCH)


@cameras.command()
def calibrate(
    database: Database,
    impostors: Annotated[
        list[Path] | None,
        typer.Option("--impostors", help="Photographs that none of the cameras took; more may follow."),
    ] = None,
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[PHOTOGRAPHS]", help="Further impostors.", show_default=False)
    ] = None,
    names: Names = True,
    hashes: Annotated[bool, typer.Option("--hashes/--no-hashes", help="Store SHA-256 of photographs.")] = True,
) -> None:
    """Estimate the null distribution of scores and the likelihood ratios, and store them in the database.

    Without photographs, the scores of enrolled photographs with the other cameras are used. At least 30 scores are
    needed.

    [bold]Examples[/]

    topsign cameras calibrate sensors.topsign --impostors other/*.jpg
    """
    package, opened = _opened(database)
    with exit_on_error(1), bar("impostors") as progress:
        files = [*(impostors or []), *(more or [])]
        learned, refused = package.calibrate(opened, files, keep_names=names, keep_hashes=hashes, progress=progress)
    _print(f"{database}: calibrated. {learned.statement()}")
    if learned.evidence is None:
        _print(f"likelihood ratios are not available: there are {len(learned.matches)} usable scores of known matches")
    _name_refused(refused)


@cameras.command(name="list")
def list_cameras(
    database: Database, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Print the cameras with number of photographs, frame size and model.

    [bold]Examples[/]

    topsign cameras list sensors.topsign
    """
    _, opened = _opened(database)
    with exit_on_error(1):
        known = opened.cameras()
    if as_json:
        print(json.dumps([{"camera": one.name} | one.to_json() for one in known], indent=1))
        return
    table = Table(box=None, pad_edge=False)
    for name in ("camera", "photographs", "frame", "model"):
        table.add_column(name, justify="right" if name == "photographs" else "left")
    for one in known:
        models = dict.fromkeys(str(photograph["model"]) for photograph in one.photographs if "model" in photograph)
        frame = f"{one.frame[0]} x {one.frame[1]}"
        table.add_row(console.shown(one.name), str(len(one.photographs)), frame, console.shown(", ".join(models)))
    console.print(table, highlight=False)


@cameras.command()
def verify(database: Database) -> None:
    """Read the whole database and check all checksums, sums and the calibration.

    [bold]Examples[/]

    topsign cameras verify sensors.topsign
    """
    _, opened = _opened(database)
    with exit_on_error(1):
        unused = opened.verify()
    _print(f"{database}: sound: {len(opened):,} cameras")
    for name in unused:
        _print(f"{opened.sums_folder / name} belongs to no camera and can be deleted")


@cameras.command()
def remove(
    database: Database,
    camera: Annotated[str, typer.Argument(help="Name of the camera.", show_default=False)],
    erase: Annotated[bool, typer.Option("--erase", help="Delete every file that contains the camera.")] = False,
) -> None:
    """Remove a camera with its fingerprint, its sums and the records of its photographs.

    [bold]Examples[/]

    topsign cameras remove sensors.topsign "Canon EOS 5D #1234" --erase
    """
    _, opened = _opened(database)
    with exit_on_error(2):
        opened.remove(camera, erase=erase)
    _print(f"{database}: {camera} removed, {len(opened):,} cameras remain")


def _package() -> Any:
    with exit_on_error(2):
        from .. import cameras as package
    return package


def _opened(database: Path) -> tuple[Any, Any]:
    package = _package()
    if not database.is_dir():
        problem = "is not a camera database, because it is not a folder" if database.exists() else "does not exist"
        raise fail(f"{database} {problem}", code=2)
    with exit_on_error(2):
        return package, package.CameraDatabase(database)


def _name_refused(refused: list[Any]) -> None:
    """List the files that were left out, and exit with 1 if there are any."""
    for one in refused:
        errors.print(Text("left out:", "bold red"), str(one), highlight=False, soft_wrap=True)
    if refused:
        raise typer.Exit(1)


def _print(text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)


def _show(found: Any) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("camera", "score", "p-value", "E-value", "log10 LR", "PCE", "orientation"):
        is_text = name in ("camera", "orientation")
        table.add_column(name, justify="left" if is_text else "right", no_wrap=not is_text)
    for one in found.candidates:
        ratio = "not stated"
        if one.log10_likelihood_ratio is not None:
            ratio = f"{one.log10_likelihood_ratio:.1f} [{one.interval[0]:.1f}, {one.interval[1]:.1f}]"
        numbers = f"{one.score:.4f}", f"{one.p_value:.2g}", f"{one.e_value:.2g}", ratio, f"{round(one.pce):,}"
        table.add_row(console.shown(one.camera), *numbers, one.orientation)
    console.print(table, highlight=False)
    _print(f"\n{found.conclusion()}")
    _print(f"\n{found.calibration.statement()}")
