"""Phrases that the style guide replaced stay replaced, and first lines of docstrings are imperatives or noun phrases.

SCOPE names the files that are checked. Text is taken from Markdown (without code), notebooks, TOML values, and from
comments, docstrings and messages of Python files.
"""

import ast
import io
import json
import re
import tokenize
import tomllib

from pages import ROOT

SCOPE = (
    "*.md",
    "docs/*.md",
    "docs/*/*.md",
    "docs/explanation/decisions/*.md",
    "docs/*.py",
    "examples/**/*.py",
    "benchmarks/**/*.py",
    "experiments/**/*.py",
    "tests/**/*.py",
    "notebooks/*.ipynb",
    "src/**/*.py",
    "*.toml",
    "*.cff",
    "tests/*.toml",
    ".pre-commit-config.yaml",
    "Makefile",
    ".github/workflows/*.yml",
    "native/**/*",
    "src/**/*.cu*",
    "tests/**/*.[chs]*",
    "examples/cluster/*",
    "conda/*.yaml",
)

UNITS = "bytes?|bits?|ns|us|ms|s|microseconds|milliseconds|nanoseconds|seconds|minutes|operations|multiplications|GB|MB"
OWNS = "keeps?|learns?|holds?|gives?|says?|costs?"
THINGS = "batch|camera|class|dimension|entry|feature|machine|pair|query|row|search|segment|signal|token|weight"

# Pattern -> what to write instead.
PHRASES = {
    r"(?<!let )\balone\b": "only",
    r"\b(?:tell|tells|told|telling) (?:\w+ )?apart\b|\bbe told from\b": "distinguish",
    r"\blodgers?\b|\brooms? of\b|\bfaces? of\b|'s face\b": "package, interface, or the standard term",
    r"(?:^|[.:;] )(?-i:What) (?!is|are|if|to)[^.?!]*\.": "make the noun the subject",
    r"\bwhat is lost\b|\bwhat (?:it|they|that) costs? is\b": "name the quantity",
    r"\breturned from survives\b": "once `add` returns, its entries survive",
    r"\breported, never answered\b|\bnever answers?\b": "raise an error; never produce results",
    r"\b(?:refused|raises?|said|raised),? in words\b": "raise an error that says ...",
    r"\b(?:the|a|its) card\b|\bcard's\b": "GPU, or GPU memory",
    r"\b(?:by|of) the clock\b|\b(?:seconds|ms) of processor\b(?! time)": "wall-clock time, processor time",
    r"\bhangs? on\b|\bhang upon\b": "depend on",
    rf"\b(?:{UNITS}) an? (?:{THINGS})\b": "per",
    r"\bas they like\b|\bthat anyone would\b|\bfor those who\b": "be specific",
    r"\bcosts? what\b|\bis worth what\b": "name the cost",
    r"\bunder \w+ times its energy\b": "buried in noise with ... times its energy",
    r"\bfirst day\b|\bwhere (?:it|they) (?:lie|lies|stand|stands)\b": "be literal",
    r"\bwhere (?:there is none|none is|nothing is|no \w+ is given|it is missing|they are missing)\b": "if",
    r"\bno (?:promise|promises) to\b|\bis a promise\b": "guarantee",
    r"\bfrom strangers? of\b|\bby itself alone\b": "be specific",
    r"\bplaces? of -1\b": "position -1",
    r"\bhere or on any\b|\bthis machine alone\b": "local or remote",
    r"(?-i:\bfaiss's\b)": "FAISS's",
    r"\bthe best that an? \w+ can be\b": "optimal among",
    r"\bin that of each\b|\bwhich they begin with\b": "name the noun",
    rf"(?:\band|\bor|:) what (?:an?|the|its|it|they) (?:\w+ )?(?:{OWNS})\b": "name the noun",
    r"\bcannot be its own\b": "say what to do: drop that row",
    r"\bat all\?": "state the usage",
    r"\blessened by\b|\bup to, but not at\b": "minus is subtracted; a half-open range [a, b)",
    r"\b(?:every|each|which) doors?\b|\bof their time\b": "every reader; of the same age",
}

VERBS = (
    "accept|add|answer|appl|ask|assert|assign|begin|build|call|check|choose|close|collect|compare|compute|convert|cop|count|"
    "create|decide|decode|delete|draw|encode|estimate|fill|find|fit|get|give|go|hold|ignore|interrupt|join|keep|kill|learn|"
    "leave|list|load|look|map|make|measure|merge|move|open|pack|pars|pass|predict|prepare|print|project|put|raise|read|"
    "refuse|register|reject|remove|replace|restore|return|run|save|say|select|send|set|show|simulate|skip|sort|split|"
    "start|store|take|tell|test|turn|unpack|update|use|validate|verif|wait|want|write|yield"
)
WORDS = "what|where|how|so that|if|when|it|this|they|there"
OPENINGS = re.compile(rf"(?:(?:{VERBS})(?:s|es|ies)(?! of\b| and\b|,)|{WORDS})\b", flags=re.IGNORECASE)


def files():
    paths = {path for pattern in SCOPE for path in ROOT.glob(pattern)}
    generated = {ROOT / "docs" / "reference" / "api", ROOT / "docs" / "tutorials" / "notebooks"}
    paths = (path for path in paths if path.is_file() and path.suffix in READERS and not generated & set(path.parents))
    return sorted(path for path in paths if name_of(path) != OWN)


def markdown(text):
    """Paragraphs without code, with their line numbers."""
    plain = re.sub(
        r"^( *)```.*?^\1```", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE
    )
    plain = re.sub(r"`[^`\n]*`|\]\([^)\s]*\)|https?://\S+", " code ", plain)
    line = 1
    for paragraph in re.split(r"(\n\s*\n|\n(?=\s*[-|] ))", plain):
        yield line, " ".join(paragraph.split())
        line += paragraph.count("\n")


def notebook(text):
    for number, cell in enumerate(json.loads(text)["cells"]):
        source = "".join(cell["source"])
        for line, one in markdown(source) if cell["cell_type"] == "markdown" else python(source):
            yield f"cell {number}, {line}", one


def toml(text):
    for section in tomllib.loads(text).values():
        for name, value in section.items() if isinstance(section, dict) else ():
            if isinstance(value, str) and " " in value:
                yield name, value


def python(text):
    """Comments (consecutive lines joined), docstrings and messages."""
    lines = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0]] = token.string.lstrip("# ")
    start = None
    for line in sorted(lines):
        start = line if line - 1 not in lines else start
        if line + 1 not in lines:
            yield start, " ".join(lines[one] for one in range(start, line + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(" ") > 1:
            yield from ((node.lineno, one) for _, one in markdown(node.value))


def hash_comments(text):
    """Comments of a Makefile or a workflow, consecutive lines joined."""
    for lines in re.finditer(r"(?:^ *#.*\n)+|(?<=\s)# .*", text, flags=re.MULTILINE):
        yield text.count("\n", 0, lines.start()) + 1, " ".join(re.findall(r"# *(.*)", lines[0]))


def c_comments(text):
    """Comments of C++ and CUDA, consecutive lines joined."""
    for comment in re.finditer(r"/\*(?:.|\n)*?\*/|(?:^ *//.*\n)+|//.*", text, flags=re.MULTILINE):
        yield text.count("\n", 0, comment.start()) + 1, " ".join(re.sub(r"/\*|\*/|//", " ", comment[0]).split())


OWN = "tests/test_english.py"  # contains the phrases
READERS = {".md": markdown, ".ipynb": notebook, ".toml": toml, ".py": python}
READERS |= dict.fromkeys((".h", ".c", ".cpp", ".cu", ".cuh"), c_comments)
READERS |= dict.fromkeys(("", ".txt", ".sh", ".yml", ".yaml", ".cff"), hash_comments)


def name_of(path):
    return str(path.relative_to(ROOT))


def test_replaced_phrases_stay_replaced():
    found = []
    for path in files():
        for line, text in READERS[path.suffix](path.read_text()):
            for pattern, better in PHRASES.items():
                match = re.search(pattern, text, flags=re.IGNORECASE)
                if match:
                    shown = text[max(match.start() - 30, 0) : match.end() + 30]
                    found.append(f"{name_of(path)}:{line}: ...{shown}...; write: {better}")
    assert not found, "\n".join(found)


def test_first_lines_of_docstrings_are_imperatives_or_noun_phrases():
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    for path in [path for path in files() if path.suffix == ".py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            lines = (ast.get_docstring(node) or "").splitlines() if isinstance(node, kinds) else ()
            where = f"{name_of(path)}:{getattr(node, 'lineno', 1)}"
            assert not lines or not OPENINGS.match(lines[0]), f"{where}: {lines[0]}"


def test_comments_of_c_and_make_are_read():
    assert list(c_comments("int i; /* one\n   two */\n// three\n// four\nint j; // five\n")) == [
        (1, "one two"),
        (3, "three four"),
        (5, "five"),
    ]
    assert list(hash_comments("a: b\n# one\n# two\n\trun  # three\n")) == [(2, "one two"), (4, "three")]
