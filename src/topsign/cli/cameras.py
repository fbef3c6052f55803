"""Commands of ``topsign cameras``: from photographs to reports of their cameras."""

from __future__ import annotations

import csv
import io
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .._files import write_file
from .app import app, console, errors, exit_on_error, fail
from .output import bar, show_table

cameras = typer.Typer(name="cameras", help="Identify the camera of a photograph by its sensor pattern noise.")
app.add_typer(cameras)

NO_MATCH = 3
"""Exit code of ``identify`` if no photograph matches a camera."""

HTML, TABLES = (".html", ".json"), (".csv", ".json")

Database = Annotated[
    Path, typer.Argument(metavar="DATABASE", help="Folder of the camera database.", show_default=False)
]
Names = Annotated[bool, typer.Option("--names/--no-names", help="Store file names of photographs.")]
Photographs = Annotated[
    list[Path],
    typer.Argument(metavar="PHOTOGRAPHS", help="JPEG, PNG, TIFF, HEIC or DNG files, or folders.", show_default=False),
]
Candidates = Annotated[int, typer.Option("-k", help="Greatest number of cameras to show for each photograph.")]
FalseAlarm = Annotated[
    float, typer.Option(help="Probability that a photograph of none of the cameras matches one.", show_default=True)
]
Thumbnail = Annotated[bool, typer.Option("--thumbnail/--no-thumbnail", help="Show photographs in the report.")]
Orientations = Annotated[
    bool, typer.Option("--orientations/--no-orientations", help="Try rotations and mirror images.")
]
Search = Annotated[
    str,
    typer.Option(
        help="crop, scale, or crop,scale: compare photographs that match no camera at all shifts and scales, with "
        "cameras that were enrolled with --fingerprints.",
        show_default=False,
    ),
]


@cameras.command()
def enroll(
    database: Database,
    photographs: Photographs,
    camera: Annotated[str, typer.Option(help="Name of the camera, new or known.")],
    size: Annotated[int | None, typer.Option(help="Side of the crop, for a new database. (default: 1024)")] = None,
    n_bits: Annotated[
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
    fingerprints: Annotated[
        bool | None,
        typer.Option(
            "--fingerprints/--no-fingerprints",
            help="Store the fingerprint of the whole frame, for identify --search. (default: as before, no at first)",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Estimate the fingerprint of a camera from its photographs, or add photographs to it.

    Files that cannot be used are listed and left out: unreadable files, photographs already enrolled, photographs of
    another size, and outliers. The other photographs are enrolled, and the exit code is 1.

    [bold]Examples[/]

    topsign cameras enroll sensors.topsign --camera "Canon EOS 5D #1234" flat/*.jpg
    """
    package = _package()
    with exit_on_error(2):
        opened = package.CameraDatabase(database, size=size, n_bits=n_bits)
    with exit_on_error(1), bar("photographs") as progress:
        done = package.enroll(
            opened,
            camera,
            package.photographs_in(photographs),
            keep_outliers=keep_outliers,
            keep_names=names,
            keep_hashes=hashes,
            keep_exif=exif,
            keep_sums=sums,
            keep_fingerprints=fingerprints,
            progress=progress,
        )
    for note in done.notes:
        errors.print(note, label="note:", color="yellow")
    words = "photograph" if done.n_enrolled == 1 else "photographs"
    _print(f"{database}: {camera}: {done.n_enrolled:,} {words} enrolled, {done.n_photographs:,} in total")
    _name_refused(done.refused)


@cameras.command()
def identify(
    database: Database,
    photographs: Photographs,
    k: Candidates = 5,
    false_alarm: FalseAlarm = 1e-6,
    search: Search = "",
    report: Annotated[
        Path | None, typer.Option(help="Write a report of the only photograph to this .html or .json file.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write one row per photograph to this .csv or .json file.")
    ] = None,
    matrix: Annotated[
        Path | None, typer.Option(help="Draw the scores of all photographs with all cameras to this .svg file.")
    ] = None,
    show_thumbnail: Thumbnail = True,
    orientations: Orientations = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare photographs with all cameras: score, p-value, E-value, likelihood ratio and PCE of the best.

    The exit code is 3 if no camera matches at the false-alarm rate over the whole database, and 1 if a photograph
    cannot be judged. Run topsign cameras calibrate first: an uncalibrated database gives no p-values.

    [bold]Examples[/]

    topsign cameras identify sensors.topsign evidence/IMG_0042.jpg --report IMG_0042.html

    topsign cameras identify sensors.topsign evidence -o evidence.csv --matrix evidence.svg
    """
    package, opened = _opened(database)
    for name, path, kinds in (("report", report, HTML), ("output", output, TABLES), ("matrix", matrix, (".svg",))):
        _check_output(name, path, kinds)
    files, options = _settings(package, photographs, k, false_alarm, search, orientations)
    if report is not None and len(files) > 1:
        raise fail("--report takes one photograph; topsign cameras report writes a case of many", code=2)
    results = _identified(package, opened, files, options)
    with exit_on_error(1):
        command = shlex.join(["topsign", *sys.argv[1:]])
        if report is not None:
            package.write_report(report, opened, results[0], command=command, with_thumbnail=show_thumbnail)
        if output is not None:
            _write_rows(output, [package.result_row(one) for one in results], package.COLUMNS)
        if matrix is not None:
            package.write_matrix(matrix, results)
    judged = [one for one in results if isinstance(one, package.Identification)]
    if as_json:
        records = [package.report_record(opened, one, command=command) for one in judged]
        print(json.dumps(records[0] if len(files) == 1 else records, indent=1, allow_nan=False))
    elif len(files) == 1:
        _show(judged[0])
    else:
        _show_rows([package.result_row(one) for one in judged])
    _name_refused([one for one in results if isinstance(one, package.PhotographError)])
    if not any(one.is_match for one in judged):
        raise typer.Exit(NO_MATCH)


@cameras.command()
def report(
    database: Database,
    photographs: Photographs,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .html or .json file to write.")],
    case_number: Annotated[str, typer.Option(help="Number of the case; blank by default.", show_default=False)] = "",
    examiner: Annotated[str, typer.Option(help="Name of the examiner; blank by default.", show_default=False)] = "",
    k: Candidates = 3,
    false_alarm: FalseAlarm = 1e-6,
    search: Search = "",
    show_thumbnail: Thumbnail = True,
    orientations: Orientations = True,
) -> None:
    """Write the report of a case of many photographs, with a summary, a matrix of scores and fields for signatures.

    [bold]Examples[/]

    topsign cameras report sensors.topsign evidence -o case.html --case-number 2026-117 --examiner "A. Reyes"
    """
    package, opened = _opened(database)
    _check_output("output", output, HTML)
    files, options = _settings(package, photographs, k, false_alarm, search, orientations)
    results = _identified(package, opened, files, options)
    with exit_on_error(1):
        command = shlex.join(["topsign", *sys.argv[1:]])
        texts = {"case_number": case_number, "examiner": examiner}
        package.write_case(output, opened, results, command=command, with_thumbnail=show_thumbnail, **texts)
    _print(f"{output}: {len(results):,} photographs")
    _name_refused([one for one in results if isinstance(one, package.PhotographError)])


@cameras.command()
def calibrate(
    database: Database,
    impostors: Annotated[
        list[Path] | None,
        typer.Option("--impostors", help="Photographs or folders that none of the cameras took; more may follow."),
    ] = None,
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[PHOTOGRAPHS]", help="Further impostors.", show_default=False)
    ] = None,
    names: Names = True,
    hashes: Annotated[bool, typer.Option("--hashes/--no-hashes", help="Store SHA-256 of photographs.")] = True,
    exif: Annotated[bool, typer.Option("--exif/--no-exif", help="Store model and date of photographs.")] = True,
) -> None:
    """Estimate the null distribution of scores and the likelihood ratios, and store them in the database.

    Without photographs, the scores of enrolled photographs with the other cameras are used. At least 30 scores are
    needed.

    [bold]Examples[/]

    topsign cameras calibrate sensors.topsign --impostors other/*.jpg
    """
    package, opened = _opened(database)
    with exit_on_error(1), bar("impostors") as progress:
        files = package.photographs_in([*(impostors or []), *(more or [])])
        kept = {"keep_names": names, "keep_hashes": hashes, "keep_exif": exif}
        learned, refused = package.calibrate(opened, files, **kept, progress=progress)
    _print(f"{database}: calibrated. {learned.statement()}")
    if learned.ratios is None:
        _print(f"likelihood ratios are not available: there are {len(learned.matches)} usable scores of known matches")
    _name_refused(refused)


@cameras.command()
def group(
    photographs: Photographs,
    size: Annotated[int, typer.Option(help="Side of the crop.")] = 1024,
    false_alarm: Annotated[float, typer.Option(help="Probability of any pair that is joined falsely.")] = 1e-6,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Group photographs of unknown cameras: the photographs of a group were taken by one camera.

    [bold]Examples[/]

    topsign cameras group evidence
    """
    package = _package()
    with exit_on_error(1), bar("photographs") as progress:
        files = package.photographs_in(photographs)
        found = package.group_photographs(files, size=size, false_alarm=false_alarm, progress=progress)
    if as_json:
        refused = [{"photograph": one.path, "problem": one.problem} for one in found.refused]
        shown = {"groups": found.groups, "single": found.single, "same_scene": found.same_scene, "refused": refused}
        print(json.dumps(shown, indent=1))
    else:
        for number, files in enumerate(found.groups, 1):
            _print(f"group {number}: {len(files):,} photographs")
            for file in files:
                _print(f"  {file}")
        _print(f"{len(found.single):,} photographs match no other")
        for first, second in found.same_scene:
            _print(f"{first} and {second} show the same scene, so they were not compared")
    _name_refused(found.refused)


@cameras.command()
def export(
    database: Database,
    lir: Annotated[Path, typer.Option(help="Write labels and log-likelihood ratios to this .csv file.")],
) -> None:
    """Export the calibration for the package lir of the Netherlands Forensic Institute.

    [bold]Examples[/]

    topsign cameras export sensors.topsign --lir ratios.csv
    """
    package, opened = _opened(database)
    _check_output("lir", lir, (".csv",))
    with exit_on_error(1):
        calibration = opened.calibration
        if calibration is None:
            raise ValueError(f"{database} is not calibrated; run topsign cameras calibrate first")
        package.write_lir(lir, calibration)
    _print(f"{lir}: {len(calibration.matches):,} matches and {len(calibration.impostors):,} impostors")


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
    cells = []
    for one in known:
        models = dict.fromkeys(str(photograph["model"]) for photograph in one.photographs if "model" in photograph)
        cells.append([one.name, str(len(one.photographs)), f"{one.frame[0]} x {one.frame[1]}", ", ".join(models)])
    show_table(cells, ("camera", "photographs", "frame", "model"), left=("camera", "frame", "model"))


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
        errors.print(str(one), label="left out:", color="red")
    if refused:
        raise typer.Exit(1)


def _print(text: str) -> None:
    console.print(text)


def _check_output(name: str, path: Path | None, kinds: tuple[str, ...]) -> None:
    """Exit unless a file of one of these kinds can be written."""
    if path is not None and path.suffix.lower() not in kinds:
        raise fail(f"--{name} must end in {' or '.join(kinds)}, got {path}", code=2)
    if path is not None and not path.parent.is_dir():
        raise fail(f"--{name} {path} cannot be written, because {path.parent} is not a folder", code=2)


def _settings(
    package: Any, photographs: list[Path], k: int, false_alarm: float, search: str, orientations: bool
) -> tuple[list[str], dict[str, Any]]:
    """Return the files to identify, and the options of the comparison."""
    if not 0 < false_alarm < 1:
        raise fail(f"--false-alarm must lie in (0, 1), got {false_alarm}", code=2)
    searched = [one.strip() for one in search.split(",") if one.strip()]
    if not set(searched) <= set(package.SEARCHES):
        raise fail(f"--search must be crop, scale or crop,scale, got {search}", code=2)
    with exit_on_error(1):
        files = package.photographs_in(photographs)
    tried = tuple(package.ORIENTATIONS) if orientations else ("as stored",)
    return files, {"k": k, "false_alarm": false_alarm, "orientations": tried, "search": searched}


def _identified(package: Any, opened: Any, files: list[str], options: dict[str, Any]) -> list[Any]:
    """Return the identification of each file, or its error; the error of a single file ends the command."""
    with exit_on_error(1), bar("cameras" if len(files) == 1 else "photographs") as progress:
        if len(files) == 1:
            return [package.identify(opened, files[0], progress=progress, **options)]
        return [*package.identify_all(opened, files, progress=progress, **options)]


def _write_rows(path: Path, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    if path.suffix.lower() == ".json":
        content = json.dumps(rows, indent=1, allow_nan=False) + "\n"
    else:
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        content = text.getvalue()
    write_file(path, lambda file: file.write(content.encode()))


def _show_rows(rows: list[dict[str, Any]]) -> None:
    names = {"photograph": "", "result": "", "camera": "", "score": ".4f", "e_value": ".2g", "pce": ",.0f"}
    cells = [["" if row[name] is None else format(row[name], form) for name, form in names.items()] for row in rows]
    show_table(cells, tuple(names), left=("photograph", "result", "camera"))


def _show(found: Any) -> None:
    from ..significance import probability_text  # SciPy takes long to import

    cells: list[list[str]] = []
    for one in found.candidates:
        ratio = "not stated" if one.log10_likelihood_ratio is None else f"{one.log10_likelihood_ratio:.1f}"
        numbers = (
            f"{one.score:.4f}",
            probability_text(one.log10_p_value),
            probability_text(one.log10_e_value),
            ratio,
            f"{round(one.pce):,}",
        )
        cells.append([one.camera, *numbers, one.orientation])
    if cells:
        titles = ("camera", "score", "p-value", "E-value", "log10 LR", "PCE", "orientation")
        show_table(cells, titles, left=("camera", "orientation"))
    if found.aligned:
        rows = [
            [
                one.camera,
                f"{round(one.alignment.pce):,}",
                probability_text(one.log10_e_value),
                one.alignment.words(one.frame),
            ]
            for one in found.aligned
        ]
        cells = [[*row, one.orientation] for row, one in zip(rows, found.aligned, strict=True)]
        show_table(
            cells, ("camera", "PCE", "E-value", "region", "orientation"), left=("camera", "region", "orientation")
        )
    _print(f"\n{found.conclusion()}")
    _print(f"\n{found.calibration.statement(found.condition)}")
