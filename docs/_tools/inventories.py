"""Sphinx inventories of the names in ``links.toml``, for links to other projects without a network."""

from __future__ import annotations

import tomllib
import zlib
from pathlib import Path

LINKS = Path(__file__).parent / "links.toml"


def write_inventories(folder: Path) -> dict[str, tuple[str, str]]:
    """Write one inventory per project and return ``intersphinx_mapping`` for Sphinx."""
    folder.mkdir(parents=True, exist_ok=True)
    mapping = {}
    for project, entries in tomllib.loads(LINKS.read_text()).items():
        file = folder / f"{project}.inv"
        file.write_bytes(inventory(project, {name: page for name, page in entries.items() if name != "address"}))
        mapping[project] = (entries["address"], str(file))
    return mapping


def inventory(project: str, entries: dict[str, str]) -> bytes:
    """Return an inventory in version 2 of the format; entries map "domain:role name" to a page."""
    lines = "".join(f"{key.split()[1]} {key.split()[0]} 1 {page} -\n" for key, page in entries.items())
    head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
    head += "# The remainder of this file is compressed using zlib.\n"
    return head.encode() + zlib.compress(lines.encode())
