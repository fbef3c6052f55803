"""Sphinx configuration, used by ``make docs``."""

import sys
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_tools"))

import command_line  # noqa: E402
import notebook_pages  # noqa: E402
import reference_pages  # noqa: E402
from inventories import write_inventories  # noqa: E402

import topsign  # noqa: E402

project = "topsign"
author = "the topsign developers"
copyright = "the topsign developers"
version = release = topsign.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_tools"]

autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # descriptions of parameters state types and shapes
napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_use_ivar = True
intersphinx_mapping = write_inventories(HERE.parent / "build" / "inventories")
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "topsign"
html_static_path = ["_static"]
html_css_files = ["topsign.css"]
html_copy_source = False


def write_generated(app):
    """Write the pages of the API reference, of the command line and of the notebooks."""
    pages = {f"{name}.rst": text for name, text in reference_pages.pages().items()} | {"cli.md": command_line.page()}
    write_pages(Path(app.srcdir) / "reference" / "api", pages)
    notebooks = {f"{name}.md": text for name, text in notebook_pages.pages().items()}
    write_pages(Path(app.srcdir) / "tutorials" / "notebooks", notebooks)


def write_pages(folder, pages):
    """Write pages that have changed, so that Sphinx does not rebuild the others."""
    folder.mkdir(exist_ok=True)
    for old in set(folder.iterdir()) - {folder / name for name in pages}:
        old.unlink()
    for name, text in pages.items():
        page = folder / name
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def complete_docstring(app, what, name, value, options, lines):
    """Describe every parameter in the reference."""
    if what in ("class", "function", "method") and not isinstance(value, property):
        lines[:] = reference_pages.complete(name, value, list(lines))


BUILTINS = {"bool", "bytes", "dict", "float", "int", "list", "slice", "str", "tuple"}
ELSEWHERE = {"array": "numpy.ndarray", "Generator": "numpy.random.Generator"}


def link_types(app, doctree):
    """Link types of parameters to classes, and leave other words, such as a shape, without a link."""
    for node in [*doctree.findall(pending_xref)]:
        if node.get("refdomain") == "py" and node.get("reftype") == "class" and node.get("refspecific"):
            target = node["reftarget"]
            node["reftarget"] = ELSEWHERE.get(target, target)
            if target not in BUILTINS | ELSEWHERE.keys() and not target[:1].isupper():
                node.replace_self(nodes.inline("", "", *node.children))


def setup(app):
    app.connect("builder-inited", write_generated)
    app.connect("doctree-read", link_types)
    app.connect("autodoc-process-docstring", complete_docstring, priority=400)  # before napoleon
