"""Write docs/reference/benchmarks.md and the measured parts of other pages from the results.

    python benchmarks/page.py [--check] [--results FOLDER] [--out FOLDER] [--charts]

Sections without results are left out. In the README and in the pages of PARTS, the text between the markers
``<!-- begin NAME -->`` and ``<!-- end NAME -->`` is replaced. --check writes nothing and fails if a page differs from
its results. --charts draws the charts as well.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from shared import database_page, regions_page, scale_page, speed_page, storage_page, trellis_page
from shared.headline import headline
from shared.lm_page import lm_section
from shared.markdown import NOTICE, join
from shared.quality_page import (
    detection_section,
    heads_section,
    paper_section,
    real_cameras,
)
from shared.simulation_page import camera_speed, simulated_cameras
from shared.summary import summary
from shared.text_page import text_section

ROOT = Path(__file__).parents[1]


def load(folder):
    """Load reports by name; those in a subfolder are named ``folder/name``."""
    paths = sorted(Path(folder).rglob("*.json"))
    return {str(path.relative_to(folder).with_suffix("")): json.loads(path.read_text()) for path in paths}


def benchmarks_page(results):
    return join(
        f"# Benchmarks\n\n{NOTICE}",
        summary(results),
        text_section(results),
        detection_section(results),
        paper_section(results),
        heads_section(results),
        lm_section(results),
        speed_page.targets(results),
        speed_page.limits(results),
        speed_page.encoding(results),
        speed_page.searching(results),
        regions_page.regions(results),
        speed_page.durable(results),
        storage_page.storage(results),
        database_page.database(results),
        database_page.evaluation(results),
        speed_page.large_heads(results),
        speed_page.memory(results),
        speed_page.theory(results),
    )


def fill(path, blocks):
    """Return the page with these blocks between their markers; blocks without results are not changed."""
    text = path.read_text()
    for name, block in blocks.items():
        if block:
            marked = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", flags=re.DOTALL)
            if not marked.search(text):
                raise ValueError(f"{path.name} has no markers <!-- begin {name} --> and <!-- end {name} -->")
            text = marked.sub(lambda found, block=block: f"{found[1]}{block.strip()}\n{found[2]}", text)
    return text


def camera_blocks(results):
    """Measured parts of the guide to cameras."""
    return {
        "simulated cameras": simulated_cameras(results),
        "camera speed": camera_speed(results),
        "real cameras": real_cameras(results),
    }


PAGE = "docs/reference/benchmarks.md"
PARTS = {
    "docs/how-to/cameras.md": camera_blocks,
    "docs/how-to/scale.md": scale_page.plans,
    "docs/reference/scaling.md": scale_page.blocks,
    "docs/reference/trellis-measurements.md": trellis_page.blocks,
    "README.md": lambda results: {"headline": headline(results)},
}


def pages(results, root):
    """Path -> text."""
    written = {PAGE: benchmarks_page(results)} | {
        name: fill(root / name, make(results)) for name, make in PARTS.items()
    }
    return {root / name: text for name, text in written.items() if text}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if a page differs from its results")
    parser.add_argument("--charts", action="store_true", help="draw the charts as well")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks/results")
    parser.add_argument("--out", type=Path, default=ROOT, help="folder that holds README.md and docs")
    options = parser.parse_args()
    results = load(options.results)
    if options.charts:
        from shared import charts

        charts.draw(results, options.out / "docs/images")
    stale = []
    for path, text in pages(results, options.out).items():
        if not path.exists() or path.read_text() != text:
            stale.append(str(path.relative_to(options.out)))
            if not options.check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    if options.check and stale:
        sys.exit(f"{', '.join(stale)}: not what benchmarks/results says; run python benchmarks/page.py")
    print("written: " + ", ".join(stale) if stale else "pages and results agree")


if __name__ == "__main__":
    main()
