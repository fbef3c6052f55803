"""Sphinx configuration, used by ``make docs``."""

import json
import re
from pathlib import Path

import typer
from typer.cli import get_docs_for_click

import topsign
from topsign.cli import app

ROOT = Path(__file__).parents[1]

project = "topsign"
author = "the topsign developers"
copyright = "the topsign developers"
version = release = topsign.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc", "sphinx.ext.viewcode"]
extensions += ["sphinx_copybutton"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
templates_path = ["_templates"]

autodoc_default_options = {"members": True, "inherited-members": "tuple", "member-order": "bysource"}
autodoc_typehints = "none"  # descriptions of parameters state types and shapes
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "topsign"
html_static_path = ["_static"]
html_css_files = ["topsign.css"]
html_copy_source = False
smartquotes_action = "qe"  # dashes of options stay


def notebook_page(path):
    """Return a notebook in Markdown; the tests run it."""
    cells = [("".join(cell["source"]), cell["cell_type"]) for cell in json.loads(path.read_text())["cells"]]
    return "\n\n".join(f"```python\n{text}\n```" if kind == "code" else text for text, kind in cells)


def command_line_page():
    """Return the help of every command, with its examples as blocks.

    Typer renders it, because sphinx-click reads commands of click, and those of Typer are not.
    """
    command = typer.main.get_command(app)
    for group in (command, *command.commands.values()):
        for one in getattr(group, "commands", {}).values():
            one.short_help = one.get_short_help_str(limit=200)  # typer cuts sentences off at 45 characters
    text = get_docs_for_click(obj=command, ctx=typer.Context(command, info_name="topsign"), name="topsign")
    text = text.replace("# `topsign`", "# Command line", 1).replace("[bold]", "**").replace("[/]", "**")
    return re.sub(r"(\*\*Examples\*\*\n\n)((?:topsign .*\n\n)+)", as_console, text)


def as_console(found):
    """Return the paragraphs of examples as one block."""
    return found[1] + "```console\n" + re.sub(r"^(.+)\n\n", r"$ \1\n", found[2], flags=re.MULTILINE) + "```\n\n"


def write_generated(app):
    """Write the pages of the command line and of the notebooks."""
    tutorials = Path(app.srcdir) / "tutorials" / "notebooks"
    pages = {tutorials / f"{path.stem}.md": notebook_page(path) for path in (ROOT / "notebooks").glob("*.ipynb")}
    pages[Path(app.srcdir) / "reference" / "api" / "cli.md"] = command_line_page()
    for page, text in pages.items():
        page.parent.mkdir(exist_ok=True)
        if not page.exists() or page.read_text() != text:  # Sphinx does not rebuild pages that have not changed
            page.write_text(text)


def skip_foreign(app, what, name, value, skip, options):
    """Skip members of base classes outside the library."""
    home = getattr(getattr(value, "fget", value), "__module__", None) or "topsign"
    return None if home.startswith("topsign") else True


def setup(app):
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("builder-inited", write_generated, priority=100)  # before autosummary looks for pages
