"""Pages of documentation, run as a reader would run them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def blocks(page, language):
    """Code blocks of one language, those inside lists too."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [re.sub(rf"^{indent}", "", code, flags=re.MULTILINE) for indent, code in found]


def run_blocks(page, capsys):
    """Blocks of one page run in order in one namespace; a line ending in "# -> x" must print x."""
    namespace = {}
    for block in blocks(page, "python"):
        for code, expected in split_at_expectations(block):
            exec(compile(code, str(page), "exec"), namespace)
            shown = capsys.readouterr().out.strip()
            if expected is not None:
                assert shown == expected, f"{page.name} says {expected!r}, it is {shown!r}:\n{code}"


def split_at_expectations(block):
    """(code, expected output or None): code up to each line that ends in "# -> ..."."""
    lines = []
    for line in block.splitlines():
        lines.append(line)
        if "# -> " in line:
            yield "\n".join(lines), line.split("# -> ")[1].strip()
            lines = []
    yield "\n".join(lines), None
