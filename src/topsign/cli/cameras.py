"""Commands of ``topsign cameras``: from photographs to reports of their cameras."""

from __future__ import annotations

import shlex
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .app import app, command, console, errors, fail
from .options import Json
from .output import as_json, bar, check_output, show_result, show_rows, show_table, write_lines, write_rows

if TYPE_CHECKING:
    from ..cameras import CameraDatabase, Identification, PhotographError

cameras = typer.Typer(name="cameras", help="Identify the camera of a photograph by its sensor pattern noise.")
app.add_typer(cameras)
on_photographs = partial(command, cameras, code=1)  # photographs that cannot be used are no wrong options

NO_MATCH = 3
"""Exit code of ``identify`` if no photograph matches a camera."""

HTML, TABLES = (".html", ".json"), (".csv", ".json")

Database = Annotated[
    Path, typer.Argument(metavar="DATABASE", help="Folder of the camera database.", show_default=False)
]
Photographs = Annotated[
    list[Path],
    typer.Argument(metavar="PHOTOGRAPHS", help="JPEG, PNG, TIFF, HEIC or DNG files, or folders.", show_default=False),
]
Candidates = Annotated[int, typer.Option("-k", help="Greatest number of cameras to show for each photograph.")]
Thumbnail = Annotated[
    bool, typer.Option("--with-thumbnail/--without-thumbnail", help="Show photographs in the report.")
]


@dataclass(frozen=True)
class RecordOptions:
    """Properties of photographs that the database records."""

    keep_names: Annotated[bool, typer.Option(help="Store file names of photographs.")] = True
    keep_hashes: Annotated[bool, typer.Option(help="Store SHA-256 and scene signatures of photographs.")] = True
    keep_exif: Annotated[bool, typer.Option(help="Store model and date of photographs.")] = True


@dataclass(frozen=True)
class ComparisonOptions:
    """Comparison of photographs with the cameras of a database."""

    false_alarm: Annotated[
        float, typer.Option(help="Probability that a photograph of none of the cameras matches one.", show_default=True)
    ] = 1e-6
    search: Annotated[
        str,
        typer.Option(
            help="crop, scale, or crop,scale: compare photographs that match no camera at all shifts and scales, with "
            "cameras that were enrolled with --keep-fingerprints.",
            show_default=False,
        ),
    ] = ""
    orientations: Annotated[
        bool, typer.Option("--orientations/--no-orientations", help="Try rotations and mirror images.")
    ] = True

    def identify(self, opened: CameraDatabase, files: list[str], k: int) -> list[Identification | PhotographError]:
        """Return the identification of each photograph, or its error; the error of a single one ends the command."""
        from ..cameras import ORIENTATIONS, SEARCHES, identify, identify_all

        if not 0 < self.false_alarm < 1:
            raise fail(f"--false-alarm must lie in (0, 1), got {self.false_alarm}", code=2)
        searched = [one.strip() for one in self.search.split(",") if one.strip()]
        if not set(searched) <= set(SEARCHES):
            raise fail(f"--search must be crop, scale or crop,scale, got {self.search}", code=2)
        tried = tuple(ORIENTATIONS) if self.orientations else ("as stored",)
        options: Any = {"k": k, "false_alarm": self.false_alarm, "orientations": tried, "search": searched}
        if len(files) > 1:
            with bar("photographs") as progress:
                return list(identify_all(opened, files, progress=progress, **options))
        with bar("cameras") if searched else nullcontext() as progress:
            return [identify(opened, files[0], progress=progress, **options)]


@on_photographs()
def enroll(
    database: Database,
    photographs: Photographs,
    records: RecordOptions,
    camera: Annotated[str, typer.Option(help="Name of the camera, new or known.")],
    size: Annotated[int | None, typer.Option(help="Side of the crop, for a new database. (default: 1024)")] = None,
    n_bits: Annotated[
        int | None, typer.Option(help="Projections kept, for a new database. (default: one per 64 pixels)")
    ] = None,
    keep_outliers: Annotated[bool, typer.Option("--keep-outliers", help="Enroll outliers, too.")] = False,
    keep_sums: Annotated[bool, typer.Option(help="Store the sums that further photographs are added to.")] = True,
    keep_fingerprints: Annotated[
        bool | None,
        typer.Option(
            help="Store the fingerprint of the whole frame, for identify --search. (default: as before, no at first)",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Estimate the fingerprint of a camera from its photographs, or add photographs to it.

    Files that cannot be used are listed and left out: unreadable files, photographs already enrolled, photographs of
    another size, and outliers. The other photographs are enrolled, and the exit code is 1.

    [bold]Examples[/]

    topsign cameras enroll sensors.topsign --camera "Canon EOS 5D #1234" flat/*.jpg
    """
    from .. import cameras as package

    opened = package.CameraDatabase(database, size=size, n_bits=n_bits)
    with bar("photographs") as progress:
        done = package.enroll(
            opened,
            camera,
            package.photographs_in(photographs),
            keep_outliers=keep_outliers,
            keep_sums=keep_sums,
            keep_fingerprints=keep_fingerprints,
            progress=progress,
            **vars(records),
        )
    for note in done.notes:
        errors.print(note, label="note:", color="yellow")
    words = "photograph" if done.n_enrolled == 1 else "photographs"
    record = {"camera": camera, "enrolled": done.n_enrolled, "photographs": done.n_photographs}
    text = f"{database}: {camera}: {done.n_enrolled:,} {words} enrolled, {done.n_photographs:,} in total"
    _finish(text, record, done.refused, json)


@on_photographs()
def identify(
    database: Database,
    photographs: Photographs,
    options: ComparisonOptions,
    k: Candidates = 5,
    report: Annotated[
        Path | None, typer.Option(help="Write a report of the only photograph to this .html or .json file.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write one row per photograph to this .csv or .json file.")
    ] = None,
    matrix: Annotated[
        Path | None, typer.Option(help="Draw the scores of all photographs with all cameras to this .svg file.")
    ] = None,
    with_thumbnail: Thumbnail = True,
    json: Json = False,
) -> None:
    """Compare photographs with all cameras: score, p-value, E-value, likelihood ratio and PCE of the best.

    The exit code is 3 if no camera matches at the false-alarm rate over the whole database, and 1 if a photograph
    cannot be judged. Run topsign cameras calibrate first: an uncalibrated database gives no p-values.

    [bold]Examples[/]

    topsign cameras identify sensors.topsign evidence/IMG_0042.jpg --report IMG_0042.html
    topsign cameras identify sensors.topsign evidence -o evidence.csv --matrix evidence.svg
    """
    from .. import cameras as package

    opened = _open(database)
    for name, path, kinds in (("report", report, HTML), ("output", output, TABLES), ("matrix", matrix, (".svg",))):
        check_output(path, f"--{name}", suffixes=kinds)
    files = package.photographs_in(photographs)
    if report is not None and len(files) > 1:
        raise fail("--report takes one photograph; topsign cameras report writes a case of many", code=2)
    results = options.identify(opened, files, k)
    judged = [one for one in results if isinstance(one, package.Identification)]
    rows = [package.result_row(one) for one in results]
    if report is not None:
        package.write_report(report, opened, judged[0], command=_command(), with_thumbnail=with_thumbnail)
    if output is not None:
        write_rows(rows, package.COLUMNS, output)
    if matrix is not None:
        package.write_matrix(matrix, results)
    if json:
        records = [package.report_record(opened, one, command=_command()) for one in judged]
        write_lines([as_json(records[0] if len(results) == 1 else records)])
    elif len(results) == 1:
        _show(judged[0])
    else:
        shown = [
            {"photograph": one.photograph.path, "result": one.result, "score": ""} | one.best.texts() for one in judged
        ]
        names = ("photograph", "result", "camera", "score", "E-value", "PCE")
        show_rows(shown, names, left=names[:3])
    _name_refused([one for one in results if isinstance(one, package.PhotographError)])
    if not any(one.is_match for one in judged):
        raise typer.Exit(NO_MATCH)


@on_photographs()
def report(
    database: Database,
    photographs: Photographs,
    options: ComparisonOptions,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .html or .json file to write.")],
    case_number: Annotated[str, typer.Option(help="Number of the case; blank by default.", show_default=False)] = "",
    examiner: Annotated[str, typer.Option(help="Name of the examiner; blank by default.", show_default=False)] = "",
    k: Candidates = 3,
    with_thumbnail: Thumbnail = True,
    json: Json = False,
) -> None:
    """Write the report of a case of many photographs, with a summary, a matrix of scores and fields for signatures.

    [bold]Examples[/]

    topsign cameras report sensors.topsign evidence -o case.html --case-number 2026-117 --examiner "A. Reyes"
    """
    from ..cameras import PhotographError, photographs_in, write_case

    opened = _open(database)
    check_output(output, suffixes=HTML)
    results = options.identify(opened, photographs_in(photographs), k)
    texts = {"case_number": case_number, "examiner": examiner}
    write_case(output, opened, results, command=_command(), with_thumbnail=with_thumbnail, **texts)
    record = {"output": str(output), "photographs": len(results)}
    refused = [one for one in results if isinstance(one, PhotographError)]
    _finish(f"{output}: {len(results):,} photographs", record, refused, json)


@on_photographs()
def calibrate(
    database: Database,
    records: RecordOptions,
    impostors: Annotated[
        list[Path] | None,
        typer.Option("--impostors", help="Photographs or folders that none of the cameras took; more may follow."),
    ] = None,
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[PHOTOGRAPHS]", help="Further impostors.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Estimate the null distribution of scores and the likelihood ratios, and store them in the database.

    Without photographs, the scores of enrolled photographs with the other cameras are used. At least 30 scores are
    needed.

    [bold]Examples[/]

    topsign cameras calibrate sensors.topsign --impostors other/*.jpg
    """
    from .. import cameras as package

    opened = _open(database)
    with bar("impostors") as progress:
        files = package.photographs_in([*(impostors or []), *(more or [])])
        learned, refused = package.calibrate(opened, files, progress=progress, **vars(records))
    text = f"{database}: calibrated. {learned.statement()}"
    if learned.ratios is None:
        text += f"\nno likelihood ratios, because there are {len(learned.matches)} usable scores of known matches"
    counts = {"impostors": len(learned.impostors), "matches": len(learned.matches)}
    _finish(text, counts | {"ratios": learned.ratios is not None}, refused, json)


@on_photographs()
def group(
    photographs: Photographs,
    size: Annotated[int, typer.Option(help="Side of the crop.")] = 1024,
    false_alarm: Annotated[float, typer.Option(help="Probability of any pair that is joined falsely.")] = 1e-6,
    json: Json = False,
) -> None:
    """Group photographs of unknown cameras: the photographs of a group were taken by one camera.

    [bold]Examples[/]

    topsign cameras group evidence
    """
    from ..cameras import group_photographs, photographs_in

    with bar("photographs") as progress:
        files = photographs_in(photographs)
        found = group_photographs(files, size=size, false_alarm=false_alarm, progress=progress)
    lines = []
    for number, files in enumerate(found.groups, 1):
        lines += [f"group {number}: {len(files):,} photographs", *(f"  {file}" for file in files)]
    lines += [f"photographs that match no other: {len(found.single):,}", *(f"  {file}" for file in found.single)]
    lines += [f"{one} and {other} show the same scene, so they were not compared" for one, other in found.same_scene]
    record = {"groups": found.groups, "single": found.single, "same_scene": found.same_scene}
    _finish("\n".join(lines), record, found.refused, json)


@on_photographs()
def export(
    database: Database,
    lir: Annotated[Path, typer.Option(help="Write labels and log-likelihood ratios to this .csv file.")],
    json: Json = False,
) -> None:
    """Export the calibration for the package lir of the Netherlands Forensic Institute.

    [bold]Examples[/]

    topsign cameras export sensors.topsign --lir ratios.csv
    """
    from ..cameras import write_lir

    opened = _open(database)
    check_output(lir, "--lir", suffixes=(".csv",))
    calibration = opened.calibration
    if calibration is None:
        raise ValueError(f"{database} is not calibrated; run topsign cameras calibrate first")
    write_lir(lir, calibration)
    n_matches, n_impostors = len(calibration.matches), len(calibration.impostors)
    record = {"output": str(lir), "matches": n_matches, "impostors": n_impostors}
    show_result(f"{lir}: {n_matches:,} matches and {n_impostors:,} impostors", record, json)


@command(cameras, "list")
def list_cameras(database: Database, json: Json = False) -> None:
    """Print the cameras with number of photographs, frame size and model.

    [bold]Examples[/]

    topsign cameras list sensors.topsign
    """
    known = _open(database).cameras()
    if json:
        write_lines([as_json([{"camera": one.name} | one.to_json() for one in known])])
        return
    cells = [
        [one.name, str(len(one.photographs)), f"{one.frame[0]} x {one.frame[1]}", ", ".join(sorted(one.models))]
        for one in known
    ]
    show_table(cells, ("camera", "photographs", "frame", "model"), left=("camera", "frame", "model"))


@command(cameras)
def verify(database: Database, json: Json = False) -> None:
    """Read the whole database and check all checksums, sums and the calibration.

    [bold]Examples[/]

    topsign cameras verify sensors.topsign
    """
    opened = _open(database)
    unused = [str(opened.sums_folder / name) for name in opened.verify()]
    lines = [f"{database}: sound: {len(opened):,} cameras"]
    lines += [f"{name} belongs to no camera and can be deleted" for name in unused]
    show_result("\n".join(lines), {"sound": True, "cameras": len(opened), "unused": unused}, json)


@command(cameras)
def remove(
    database: Database,
    camera: Annotated[str, typer.Argument(help="Name of the camera.", show_default=False)],
    erase: Annotated[bool, typer.Option("--erase", help="Delete every file that contains the camera.")] = False,
    json: Json = False,
) -> None:
    """Remove a camera with its fingerprint, its sums and the records of its photographs.

    [bold]Examples[/]

    topsign cameras remove sensors.topsign "Canon EOS 5D #1234" --erase
    """
    opened = _open(database)
    opened.remove(camera, erase=erase)
    text = f"{database}: {camera} removed, {len(opened):,} cameras remain"
    show_result(text, {"removed": camera, "cameras": len(opened)}, json)


def _open(database: Path) -> CameraDatabase:
    from ..cameras import CameraDatabase

    if not database.is_dir():
        problem = "is not a camera database, because it is not a folder" if database.exists() else "does not exist"
        raise fail(f"{database} {problem}", code=2)
    return CameraDatabase(database)


def _command() -> str:
    return shlex.join(["topsign", *sys.argv[1:]])


def _finish(text: str, record: dict[str, Any], refused: list[PhotographError], json: bool) -> None:
    """Print a result, and the files that were left out."""
    problems = [{"photograph": one.path, "problem": one.problem} for one in refused]
    show_result(text, record | {"refused": problems}, json)
    _name_refused(refused)


def _name_refused(refused: list[PhotographError]) -> None:
    """List the files that were left out, and exit with 1 if there are any."""
    for one in refused:
        errors.print(str(one), label="left out:", color="red")
    if refused:
        raise typer.Exit(1)


def _show(found: Identification) -> None:
    tables = [one.texts() for one in found.candidates], [one.texts() for one in found.aligned]
    for rows in filter(None, tables):
        show_rows(rows, list(rows[0]), left=("camera", "region", "orientation"))
    console.print(f"\n{found.conclusion()}")
    if found.scores:
        console.print(f"\n{found.calibration.statement(found.condition)}")
