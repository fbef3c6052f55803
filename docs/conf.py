"""Sphinx: ``make docs``."""

from pathlib import Path

import topsign

project = "topsign"
author = "the topsign developers"
copyright = "the topsign developers"
version = release = topsign.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["ref.python"]  # numbers named in types and shapes are no references
exclude_patterns = ["_build"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # parameters say their types and shapes themselves
napoleon_numpy_docstring = True
napoleon_google_docstring = False

html_theme = "furo"
html_title = "topsign"
html_static_path = ["_static"]
html_css_files = ["topsign.css"]
html_copy_source = False

MEASUREMENTS = ("benchmarks", "scale", "cameras")


def list_what_exists(app, page, source):
    """Pages of measurements are listed where they are there."""
    for name in MEASUREMENTS if page == "index" else ():
        if not (Path(app.srcdir) / f"{name}.md").exists():
            source[0] = source[0].replace(f"\n{name}\n", "\n")


def setup(app):
    app.connect("source-read", list_what_exists)
