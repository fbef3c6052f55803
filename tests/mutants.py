"""Mutation testing: small changes of the source, each of which the tests of its module should detect.

``python tests/mutants.py`` copies the source tree once per process, applies one mutant at a time to a copy, and runs
the test files of the mutated module until a test fails that passes without the mutant. A mutant is *killed* if there is
such a test, or if the tests do not end, *survived* if all pass, and *equivalent* if a reason is given why no test can
detect it. All hand-written mutants and a sample of the generated ones are run; mutants.toml has the former, the
reasons, and the test files of each module. ``--resume`` continues from the file to which outcomes are written.

A mutant is identified by its line, so that reasons and outcomes survive changes elsewhere in a file. cosmic-ray
identifies mutants by position and has one test command per session, mutmut changes only functions and runs all tests
once in one process, and neither takes mutants by hand.
"""

import argparse
import ast
import hashlib
import json
import os
import queue
import resource
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "topsign"

MEMORY_BYTES = 24 * 2**30
"""Address space of the tests of a mutant: some mutants ask for all there is."""

SECONDS = 1800
"""Time of the tests of a mutant: some mutants never end."""

MARKS = "not engines and not statistics and not gpu"

DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
TESTS, CHOSEN = DATA["tests"], DATA["chosen"]
EQUIVALENT = {(one["file"], one["text"], one["old"], one["new"]): one["reason"] for one in DATA["equivalent"]}

OPERATORS = {
    getattr(ast, name): (sign, other)
    for name, sign, other in (
        *(("Lt", "<", "<="), ("LtE", "<=", "<"), ("Gt", ">", ">="), ("GtE", ">=", ">"), ("Eq", "==", "!=")),
        *(("NotEq", "!=", "=="), ("Add", "+", "-"), ("Sub", "-", "+"), ("Mult", "*", "/"), ("Div", "/", "*")),
        *(("FloorDiv", "//", "*"), ("Mod", "%", "//"), ("And", "and", "or"), ("Or", "or", "and")),
        *(("In", "in", "not in"), ("NotIn", "not in", "in"), ("Is", "is", "is not"), ("IsNot", "is not", "is")),
    )
}
"""Sign of an operator, and the one that replaces it."""

PACKAGES = ("search/", "store/", "families/", "significance/", "theory/", "index/filters", "index/significance")


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: str
    start: int  # in characters
    old: str
    new: str
    line: int
    text: str  # the whole line
    number: int = 0  # among equal changes of equal lines

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} {_short(self.old)!r} -> {self.new!r}"

    @cached_property
    def key(self) -> str:
        """Identity of a mutant that does not depend on the lines before it."""
        return f"{self.file} | {self.text} | {_short(self.old)} -> {self.new} | {self.number}"

    @property
    def reason(self) -> str | None:
        """Reason why no test can detect it, if there is one."""
        return EQUIVALENT.get((self.file, self.text, _short(self.old), self.new))

    @property
    def tests(self) -> tuple[str, ...]:
        fitting = [name for name in TESTS if self.file.startswith(name)]
        files = [f"tests/{name}.py" for name in TESTS[max(fitting, key=len)]]
        has_examples = ">>> " in (SOURCE / self.file).read_text()
        return (f"src/topsign/{self.file}", *files) if has_examples else tuple(files)

    def applied(self, text: str) -> str:
        assert text[self.start : self.start + len(self.old)] == self.old
        return text[: self.start] + self.new + text[self.start + len(self.old) :]


def _short(text):
    words = " ".join(text.split())
    return words if len(words) <= 60 else f"{words[:57]}..."


def chosen_mutants():
    for file, old, new in map(dict.values, CHOSEN):
        text = (SOURCE / file).read_text()
        assert text.count(old) == 1, f"{file}: {old!r} occurs {text.count(old)} times"
        start = text.index(old)
        line = text[:start].count("\n")
        yield Mutant(file, start, old, new, line + 1, text.splitlines()[line].strip())


def ruled_mutants():
    """Change an operator, a constant, a condition, a returned value or a statement of the code that decides answers."""
    for path in sorted(SOURCE.rglob("*.py")):
        file = path.relative_to(SOURCE).as_posix()
        if file.startswith(PACKAGES) and not file.endswith("__init__.py"):
            seen = Counter()
            for one in sorted(set(_of_file(file, path.read_text())), key=lambda one: (one.start, one.new)):
                yield replace(one, number=seen[one.key])
                seen[one.key] += 1


def _of_file(file, text):
    lines = text.splitlines()
    begins = [0]
    for line in text.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))

    def at(line, column):  # columns of the tree are bytes
        return begins[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def span(node):
        return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)

    def mutant(start, stop, new):
        line = text[:start].count("\n")
        return Mutant(file, start, text[start:stop], new, line + 1, lines[line].strip())

    tree = ast.parse(text)
    skipped = {id(inner) for node in ast.walk(tree) for outer in _left_out(node) for inner in ast.walk(outer)}
    for node in ast.walk(tree):
        if id(node) in skipped or not hasattr(node, "lineno"):
            continue
        for old, new in _replacements(node):
            yield mutant(*span(old), new)
        for left, right, operator in _operators(node):
            first, last = span(left)[1], span(right)[0]
            between, (sign, other) = text[first:last], OPERATORS.get(type(operator), ("", ""))
            if sign and between.strip(" ()") == sign:
                start = first + between.index(sign)
                yield mutant(start, start + len(sign), other)


def _replacements(node):
    """Yield the parts of a node that rules replace, with their replacements."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield node, str(not node.value)
        elif isinstance(node.value, int):
            yield node, str(node.value + 1)
        elif isinstance(node.value, float):
            yield node, f"({node.value!r} * 1.5 + 0.1)" if node.value < 1e300 else "0.0"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield node, "(" + ast.unparse(node.operand) + ")"
    elif isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield node, "return None"
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        yield node.test, "False"
        if not isinstance(node, ast.While):
            yield node.test, "True"
    elif isinstance(node, (ast.AugAssign, ast.Raise)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield node, "pass"


def _operators(node):
    """Yield the operands and the operator of a comparison, of arithmetic, and of a condition."""
    if isinstance(node, ast.Compare):
        yield from zip([node.left, *node.comparators], node.comparators, node.ops, strict=False)
    elif isinstance(node, ast.BinOp):
        yield node.left, node.right, node.op
    elif isinstance(node, ast.BoolOp):
        yield node.values[0], node.values[1], node.op


def _left_out(node):
    """Yield parts of a node that rules leave unchanged, because a change would not affect results."""
    for part in ("annotation", "returns", "decorator_list"):
        found = getattr(node, part, None)
        yield from found if isinstance(found, list) else [found] if found is not None else []
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        yield node
    if isinstance(node, (ast.Raise, ast.JoinedStr)):  # texts of messages; the raise itself is removed by a rule
        yield from ast.iter_child_nodes(node)
    if isinstance(node, ast.FunctionDef) and node.name in {"__repr__", "__str__"}:
        yield node
    if isinstance(node, ast.Assign) and any(_is_upper(target) for target in node.targets) and _is_bytes(node):
        yield node  # block sizes affect only memory
    if isinstance(node, ast.keyword) and node.arg in {"stacklevel", "strict"}:
        yield node
    if isinstance(node, ast.Assert):
        yield node


def _is_upper(target):
    return isinstance(target, ast.Name) and target.id.isupper()


def _is_bytes(node):
    return any(isinstance(target, ast.Name) and target.id.endswith("_BYTES") for target in node.targets)


def choose(mutants, n_chosen, seed):
    """Return a sample that stays nearly the same if the source changes a little."""

    def draw(one):
        return hashlib.sha256(f"{seed} {one.key}".encode()).digest()

    return sorted(mutants, key=draw)[:n_chosen]


class Trees:
    """Copies of the source tree, each with an interpreter that imports the package from it."""

    def __init__(self, folder, n_trees):
        self._free, self._failing = queue.SimpleQueue(), {}
        for number in range(n_trees):
            self._free.put(_make_tree(Path(folder) / f"tree-{number}"))

    def judge(self, mutant):
        """Return the outcome of a mutant and the test that detected it, which passes without the mutant."""
        tree = self._free.get()
        path = tree / "src" / "topsign" / mutant.file
        content = path.read_text()
        try:
            while True:
                left_out = [f"--deselect={test}" for test, fails in self._failing.items() if fails]
                path.write_text(mutant.applied(content))
                code, found = _run_tests(tree, ["-x", *left_out, *mutant.tests])
                path.write_text(content)
                if code == 0 or not found:
                    return (
                        ("survived", "") if code == 0 else ("killed", "no end" if code == -1 else f"exit code {code}")
                    )
                if found[0] not in self._failing:
                    self._failing[found[0]] = _run_tests(tree, [found[0]])[0] != 0
                if not self._failing[found[0]]:
                    return "killed", found[0]
        finally:
            path.write_text(content)
            self._free.put(tree)


def _make_tree(tree):
    tree.mkdir(parents=True)
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.name not in {"src", "tests", "build", "dist"} and not path.name.startswith("."):
            (tree / path.name).symlink_to(path)
    compiled = subprocess.run(
        [sys.executable, "-c", "from topsign.kernels.native import library_file; print(library_file())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    inside = tree / "src" / "topsign" / "kernels" / Path(compiled).name
    if not inside.exists():
        shutil.copy(compiled, inside)
    # A new environment, because an editable installation imports the package from its original location.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tree / "environment"], check=True)
    (packages,) = (tree / "environment").glob("lib/python*/site-packages")
    places = [str(tree / "src"), *(place for place in sys.path[1:] if Path(place).is_dir())]
    (packages / "places.pth").write_text("\n".join(places) + "\n")
    return tree


def _run_tests(tree, arguments):
    """Return the exit code of tests, -1 if they do not end in time, and the names of those that fail."""
    failed = tree / "cache" / "v" / "cache" / "lastfailed"
    failed.unlink(missing_ok=True)
    command = [tree / "environment" / "bin" / "python", "-m", "pytest", "-q", "-o", f"cache_dir={tree / 'cache'}"]
    command += ["-p", "no:xdist", "-m", MARKS, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONPATH", None)
    with subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES)),
    ) as process:
        try:
            process.wait(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return -1, []
    names = json.loads(failed.read_text()) if failed.exists() else {}
    return process.returncode, [name for name in names if "::" in name]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=200, help="mutants made by rules, besides the chosen ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="run only mutants whose name contains this")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "mutants.json")
    parser.add_argument(
        "--resume", action="store_true", help="keep the killed mutants of the results whose test still exists"
    )
    parser.add_argument("--list", action="store_true", help="list the mutants and run none")
    options = parser.parse_args()
    chosen, ruled = list(chosen_mutants()), list(ruled_mutants())
    mutants = [one for one in (*chosen, *choose(ruled, options.sample, options.seed)) if options.only in one.name]
    if options.list:
        print(*(one.name for one in mutants), sep="\n")
        print(f"{len(mutants)} mutants of {len(chosen) + len(ruled)}")
        return 0
    found = {}
    if options.resume and options.results.exists():
        earlier = json.loads(options.results.read_text())["mutants"]
        keys = {one.key for one in (*chosen, *ruled)}
        found = {
            key: one for key, one in earlier.items() if key in keys and one["outcome"] == "killed" and _exists(one)
        }
    for one in mutants:
        if one.reason is not None:
            found[one.key] = {"mutant": one.name, "outcome": "equivalent", "by": one.reason}
    waiting = [one for one in mutants if one.key not in found]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(options.processes) as pool:
        Path(folder).chmod(0o755)  # tests run programs as other users
        trees = Trees(folder, options.processes)
        jobs = {pool.submit(trees.judge, one): one for one in waiting}
        for job in as_completed(jobs):
            one, (outcome, by) = jobs[job], job.result()
            found[one.key] = {"mutant": one.name, "outcome": outcome, "by": by}
            print(f"{outcome:10} {one.name}  {by}", flush=True)
            _write(options.results, found)
    _write(options.results, found)
    outcomes = Counter(found[one.key]["outcome"] for one in mutants)
    print(f"{len(mutants)} mutants:", ", ".join(f"{count} {what}" for what, count in outcomes.most_common()))
    return int(outcomes["killed"] + outcomes["equivalent"] != len(mutants))


def _exists(record):
    """Return whether the test that detected a mutant still exists."""
    file, _, name = record["by"].partition("::")
    name = name.partition("[")[0].rpartition(".")[2]  # examples have dotted names
    return name and (ROOT / file).exists() and f" {name}" in (ROOT / file).read_text()


def _write(path, found):
    counts = Counter(record["outcome"] for record in found.values())
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"counts": dict(sorted(counts.items())), "mutants": dict(sorted(found.items()))}
    path.with_suffix(".tmp").write_text(json.dumps(content, indent=1) + "\n")
    path.with_suffix(".tmp").replace(path)


if __name__ == "__main__":
    sys.exit(main())
