"""The reference of the command line, generated from the commands."""

from __future__ import annotations

import re
from collections.abc import Iterator

import typer
from typer.main import get_command

from topsign.cli.app import app


def commands() -> Iterator[tuple[str, typer.core.TyperCommand]]:
    """Yield the full name and the command of every command, groups first."""
    import topsign.cli  # noqa: F401  (registers the commands)

    yield from below("topsign", get_command(app))


def below(name: str, command) -> Iterator[tuple[str, typer.core.TyperCommand]]:
    yield name, command
    for part, one in getattr(command, "commands", {}).items():
        yield from below(f"{name} {part}", one)


def page() -> str:
    """Return the page in MyST Markdown."""
    text = (
        "# Command line\n\nUse `python -m topsign` if the script `topsign` is not on the path. Every command "
        "has `--help`. Exit codes: 0 for success, 1 for damage and failures, 2 for invalid input, and 3 if "
        "`topsign cameras identify` finds no match.\n\n"
    )
    return text + "\n".join(section(name, command) for name, command in commands())


def section(name: str, command) -> str:
    text = f"## `{name}`\n\n{prose(command.help or '')}\n"
    context = command.context_class(command, info_name=name)
    records = [one.get_help_record(context) for one in command.params]
    rows = [f"| `{cell(flags)}` | {cell(meaning)} |" for flags, meaning in filter(None, records)]
    return text + ("\n| argument or option | meaning |\n| --- | --- |\n" + "\n".join(rows) + "\n" if rows else "")


def cell(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "").replace("|", "\\|")


def prose(text: str) -> str:
    """Convert the help of a command to Markdown, with command lines as blocks."""
    text = re.sub(r"\[bold\](.*?)\[/\w*\]", r"**\1**", text.replace("\f", ""))
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        paragraph = re.sub(r"\s*\n\s*", " ", paragraph)
        is_command = paragraph.startswith("topsign ")
        if is_command and paragraphs and paragraphs[-1].endswith("```"):
            paragraphs[-1] = paragraphs[-1].removesuffix("```") + f"$ {paragraph}\n```"
        else:
            paragraphs.append(f"```console\n$ {paragraph}\n```" if is_command else paragraph)
    return "\n\n".join(paragraphs) + "\n"
