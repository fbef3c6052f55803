"""Pages of the notebooks in Markdown."""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "notebooks"
ORDER = ("near_duplicates", "weak_match", "smaller_head", "cameras", "your_own_data")


def pages() -> dict[str, str]:
    """Return the text of every page by the name of its notebook."""
    return {name: page(name) for name in ORDER}


def page(name: str) -> str:
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text())["cells"]
    parts = [("".join(cell["source"]), cell["cell_type"]) for cell in cells]
    text = "\n\n".join(f"```python\n{source}\n```" if kind == "code" else source for source, kind in parts)
    return f"{text}\n\nThe notebook is `notebooks/{name}.ipynb`; the tests run it.\n"
