"""Helpers that run the code and commands of documentation pages as a reader would."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Pages with one level of folders; tutorials/notebooks and reference/api are generated when the site is built.
FOLDERS = ("", "tutorials", "how-to", "explanation", "explanation/decisions", "reference")
PAGES = [ROOT / "README.md", *(page for name in FOLDERS for page in sorted((ROOT / "docs" / name).glob("*.md")))]

# Pages that need third-party engines; make test-engines runs them.
ENGINE_PAGES = [ROOT / "docs" / "how-to" / f"{name}.md" for name in ("engines", "migrate", "real-hits")]


def blocks(page, language):
    """Return the code blocks of one language, including those in lists."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [re.sub(rf"^{indent}", "", code, flags=re.MULTILINE) for indent, code in found]


def run_blocks(page, capsys):
    """Run the blocks of one page in order in one namespace; a line ending in "# -> x" must print x."""
    namespace = {}
    for block in blocks(page, "python"):
        for code, expected in split_at_expectations(block):
            exec(compile(code, str(page), "exec"), namespace)
            shown = capsys.readouterr().out.strip()
            if expected is not None:
                assert shown == expected, f"{page.name} says {expected!r}, it is {shown!r}:\n{code}"


def split_at_expectations(block):
    """Return (code, expected output or None) pairs, split after each line that ends in "# -> ..."."""
    lines = []
    for line in block.splitlines():
        lines.append(line)
        if "# -> " in line:
            yield "\n".join(lines), line.split("# -> ")[1].strip()
            lines = []
    yield "\n".join(lines), None


def commands(page):
    """Return (command, output shown on the page) for every line "$ topsign ...", "$ python ..." and "$ rm ..."."""
    pattern = r"^\$ ((?:topsign|python|rm) .*)\n((?:[^$].*\n|\n)*)"
    for block in blocks(page, "console"):
        for command, expected in re.findall(pattern, block, flags=re.MULTILINE):
            yield shlex.split(command, comments=True), expected


def run_commands(wanted, folder):
    """Run commands one after another in one process and one folder; return their output."""
    settings = os.environ | {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
    program = [sys.executable, str(ROOT / "tests" / "commands.py")]
    done = subprocess.run(program, input=json.dumps(wanted), capture_output=True, text=True, cwd=folder, env=settings)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
