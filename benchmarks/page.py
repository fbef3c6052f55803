"""Write the measured parts of the pages and of the README from the results.

    python benchmarks/page.py [--check] [--charts] [--results FOLDER] [--out FOLDER]

Each JSON file in ``results`` holds its tables. In README.md and docs/**/*.md, the text between ``<!-- begin NAME -->``
and ``<!-- end NAME -->`` becomes the tables of ``NAME.json``, or says that there are none yet. ``headline`` collects
the rows that scripts propose for the README. --check writes nothing and fails if a page differs from its results;
--charts also draws the charts that tables ask for into docs/images.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from shared.results import text

ROOT = Path(__file__).parents[1]
HEADLINE = ("detection", "text_embeddings", "regions", "evidence", "heads", "cameras")
MARKED = re.compile(r"(<!-- begin ([\w-]+) -->\n).*?(<!-- end \2 -->)", flags=re.DOTALL)
NOT_YET = "Not measured with these codes yet.\n"


def load(folder):
    """Return the reports that hold tables, by name."""
    reports = {path.stem: json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))}
    return {name: report for name, report in reports.items() if "tables" in report}


def markdown(columns, rows):
    lines = [columns, ["---"] * len(columns), *([text(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def shown_rows(one):
    """Return the rows of a table whose cells are among those that its ``shown`` lists, column by column."""
    wanted = {one["columns"].index(column): cells for column, cells in one.get("shown", {}).items()}
    return [row for row in one["rows"] if all(row[at] in cells for at, cells in wanted.items())]


def section(name, report, up):
    """Return the tables of a report, with notes and charts, and how they were measured."""
    parts = []
    for one in report["tables"]:
        parts.append(f"**{one['title']}**")
        if "chart" in one:
            parts.append(f"![{one['title']}]({up}docs/images/{one['chart']['file']}.png)".replace("../docs/", ""))
        rows = shown_rows(one)
        left_out = f"`benchmarks/results/{name}.json` has all {len(one['rows'])} rows." if "shown" in one else ""
        note = f"{one['note']} {left_out}".strip()
        parts += [markdown(one["columns"], rows), *([note] if note else [])]
    machine = report["machine"]
    about = f"{machine['processor']}, {machine['cores']} cores, {machine['kernels']} kernels, load {machine['load']}"
    parts.append(f"`{report['command']}`; {about}, commit `{report['commit']}`, {report['date']}.")
    return "\n\n".join(parts) + "\n"


def headline(results):
    """Return the table of the README: tasks, with links to the files of the numbers, and what was measured."""
    names = [name for name in HEADLINE if name in results]
    rows = [
        [f"[{task}](benchmarks/results/{name}.json)", found]
        for name in names
        for task, found in results[name]["headline"]
    ]
    return markdown(["task", "measured result"], rows) + "\n" if rows else NOT_YET


def fill(page, results, root):
    """Return the text of a page with the tables of the results between its markers."""
    up = "../" * (len(page.relative_to(root).parts) - 1)

    def block(found):
        name = found[2]
        shown = headline(results) if name == "headline" else NOT_YET
        if name in results:
            shown = section(name, results[name], up)
        return f"{found[1]}\n{shown}\n{found[3]}"

    return MARKED.sub(block, page.read_text())


def pages(results, root):
    """Return path -> text of all pages with markers."""
    every = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return {page: fill(page, results, root) for page in every if MARKED.search(page.read_text())}


def draw(results, folder):
    """Draw the charts that tables ask for: lines of y over x, one per value of the column ``by``."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    for one in (one for report in results.values() for one in report["tables"] if "chart" in one):
        chart = one["chart"]
        x, y, by = (one["columns"].index(chart[name]) for name in ("x", "y", "by"))
        figure, axes = plt.subplots(figsize=(5.6, 3.8), layout="constrained")
        for number, name in enumerate(dict.fromkeys(row[by] for row in one["rows"])):
            points = [(row[x], value(row[y])) for row in one["rows"] if row[by] == name and row[y] is not None]
            style = {"color": "black", "linestyle": ":"} if name == "limit" else {"marker": "osD^v<>Ph*"[number % 10]}
            axes.plot(*zip(*sorted(points), strict=True), label=name, **style)
        ticks = sorted({row[x] for row in one["rows"]})
        for axis in chart.get("log", ""):
            getattr(axes, f"set_{axis}scale")("log")
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], minor=False)
        axes.minorticks_off()
        axes.set(xlabel=chart["x"], ylabel=chart["y"])
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
        figure.savefig(folder / f"{chart['file']}.png", dpi=130)
        plt.close(figure)


def value(cell):
    """Return the number that a cell of a chart stands for."""
    return cell.get("median", cell.get("ratio")) if isinstance(cell, dict) else float(cell)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if a page differs from its results")
    parser.add_argument("--charts", action="store_true", help="draw the charts as well")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks/results")
    parser.add_argument("--out", type=Path, default=ROOT, help="folder that holds README.md and docs")
    options = parser.parse_args()
    results = load(options.results)
    if options.charts and not options.check:
        draw(results, options.out / "docs/images")
    stale = []
    for path, shown in pages(results, options.out).items():
        if path.read_text() != shown:
            stale.append(str(path.relative_to(options.out)))
            if not options.check:
                path.write_text(shown)
    if options.check and stale:
        sys.exit(f"{', '.join(stale)}: not what benchmarks/results says; run python benchmarks/page.py")
    print("written: " + ", ".join(stale) if stale else "pages and results agree")


if __name__ == "__main__":
    main()
