"""Mutants of the source: small changes, each of which the tests of its module should notice.

``python tests/mutants.py`` applies one mutant at a time to src/, runs the test files of its module until the first
failure, restores the file, and lists the mutants that survived. ``--list`` shows all mutants, ``--sample`` runs some of
those made by rules, ``--only`` those whose name contains a text, ``--seconds`` begins none after that time.
"""

import argparse
import ast
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "topsign"

TESTS = {
    "search/calibration": ["test_calibration", "test_nulls"],
    "search/pairs": ["test_pairs", "test_trellis_pairs"],
    "search/equal_codes": ["test_pairs"],
    "search/rescoring": ["test_ties", "test_originals"],
    "search/recall": ["test_regions"],
    "search/regions": ["test_regions"],
    "search/visiting": ["test_regions"],
    "search/sample": ["test_calibration"],
    "search": ["test_boundaries", "test_ties", "test_index"],
    "store/bucket": ["test_bucket", "test_families"],
    "store/memory": ["test_index", "test_entries"],
    "store": ["test_entries", "test_durable", "test_hostile_folders"],
    "families/trellis/pairs": ["test_trellis_pairs"],
    "families/trellis": ["test_boundaries", "test_trellis", "test_trellis_kernels", "test_trellis_index"],
    "families/agreement": ["test_pairs"],
    "families/decoded": ["test_decoded", "test_families"],
    "families/weight_coding": ["test_head", "test_heads"],
    "families/sign_weights": ["test_head", "test_heads"],
    "families": ["test_boundaries", "test_ties", "test_index", "test_law", "test_families"],
    "theory/nulls": ["test_nulls", "test_calibration"],
    "theory/inference": ["test_inference"],
    "theory/evidence": ["test_evidence"],
    "theory/detection": ["test_detection"],
    "theory/distances": ["test_theory"],
    "theory/order_statistics": ["test_theory"],
    "theory/concentration": ["test_theory", "test_distortion"],
    "index": ["test_boundaries", "test_calibration"],
}
"""Test files of modules and packages; the longest name that fits decides."""

CHOSEN = [
    ("families/sign_comparison.py", "SLACK = 1e-5", "SLACK = 0.0"),
    ("families/trellis/comparison.py", "threshold - NULL_SLACK", "threshold + NULL_SLACK"),
    ("families/trellis/comparison.py", "needed - SLACK", "needed + SLACK"),
    ("families/trellis/design.py", "MAX_SPREAD = 2.0**29", "MAX_SPREAD = 2.0**31"),
    ("families/trellis/design.py", "MAX_SPREAD = 2.0**29", "MAX_SPREAD = 2.0**24"),
    ("search/hits.py", 'np.argsort(snapshot.gather("ids", others))', "np.arange(len(others))"),
    ("search/hits.py", "np.lexsort((self.ids, -self.scores, self.queries))", "np.arange(len(self))"),
    ("search/rescoring.py", "np.lexsort((ids, -scores))", "np.lexsort((ids, -exact))"),
    ("index/null_check.py", "LEVEL, TOO_MANY = 1e-3, 10", "LEVEL, TOO_MANY = 1e-3, 20"),
    ("index/null_check.py", "LEVEL, TOO_MANY = 1e-3, 10", "LEVEL, TOO_MANY = 1e-3, 5"),
]
"""Changes that once went unnoticed: file, old text, new text."""

SWAPS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.FloorDiv: "*",
    ast.And: "or",
    ast.Or: "and",
}
SIGNS = {"<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE, "==": ast.Eq, "!=": ast.NotEq}
SIGNS |= {"+": ast.Add, "-": ast.Sub, "*": ast.Mult, "//": ast.FloorDiv, "and": ast.And, "or": ast.Or}
PACKAGES = ("search", "store", "families", "theory/nulls", "theory/inference", "theory/evidence", "theory/detection")


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: str
    start: int  # in characters
    old: str
    new: str
    line: int

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} {self.old!r} -> {self.new!r}"

    @property
    def tests(self) -> list[str]:
        fitting = [name for name in TESTS if self.file.startswith(name)]
        return [f"tests/{name}.py" for name in TESTS[max(fitting, key=len)]]

    def applied(self, text: str) -> str:
        assert text[self.start : self.start + len(self.old)] == self.old
        return text[: self.start] + self.new + text[self.start + len(self.old) :]


def chosen_mutants():
    for file, old, new in CHOSEN:
        text = (SOURCE / file).read_text()
        assert text.count(old) == 1, f"{file}: {old!r} occurs {text.count(old)} times"
        start = text.index(old)
        yield Mutant(file, start, old, new, text[:start].count("\n") + 1)


def ruled_mutants():
    """Swap an operator, or change a whole number, in the code of the packages that decide answers."""
    for path in sorted(SOURCE.rglob("*.py")):
        file = path.relative_to(SOURCE).as_posix()
        if file.startswith(PACKAGES) and not file.endswith("__init__.py"):
            yield from _of_file(file, path.read_text())


def _of_file(file, text):
    begins = [0]
    for line in text.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    is_plain = text.isascii()  # columns of the tree are bytes

    def at(line, column):
        return begins[line - 1] + (column if is_plain else len(text.splitlines()[line - 1].encode()[:column].decode()))

    tree = ast.parse(text)
    skipped = {id(inner) for node in ast.walk(tree) for inner in _annotations(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value not in (-1, 0):
            start = at(node.lineno, node.col_offset)
            old = text[start : at(node.end_lineno, node.end_col_offset)]
            yield Mutant(file, start, old, str(node.value + 1), node.lineno)
        pairs = []
        if isinstance(node, ast.Compare):
            pairs = list(zip([node.left, *node.comparators], node.comparators, node.ops, strict=False))
        elif isinstance(node, ast.BinOp):
            pairs = [(node.left, node.right, node.op)]
        elif isinstance(node, ast.BoolOp):
            pairs = [(node.values[0], node.values[1], node.op)]
        for left, right, operator in pairs:
            if type(operator) not in SWAPS:
                continue
            first, last = at(left.end_lineno, left.end_col_offset), at(right.lineno, right.col_offset)
            between = text[first:last]
            (sign,) = [one for one, kind in SIGNS.items() if kind is type(operator)]
            if between.count(sign) == 1 and "#" not in between and "\n" not in between:
                yield Mutant(file, first + between.index(sign), sign, SWAPS[type(operator)], left.end_lineno)


def _annotations(node):
    found = [getattr(node, "annotation", None), getattr(node, "returns", None)]
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        found.append(node)
    for one in found:
        if one is not None:
            yield from ast.walk(one)


def run_tests(files, seconds):
    """Return "passed", "failed" or "timed out" for these test files, which stop at the first failure."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", *files]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return "timed out"
    return "passed" if done.returncode == 0 else "failed"


def judge(mutant, seconds, before_change):
    """Return what becomes of a mutant: "noticed", "survived", "timed out", or "not judged" if tests fail without it."""
    tests = tuple(mutant.tests)
    if tests not in before_change:
        before_change[tests] = run_tests(tests, seconds)
    if before_change[tests] != "passed":
        return "not judged"
    path = SOURCE / mutant.file
    content = path.read_text()
    try:
        path.write_text(mutant.applied(content))
        found = run_tests(tests, seconds)
    finally:
        path.write_text(content)
    return {"passed": "survived", "failed": "noticed"}.get(found, found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=200, help="mutants made by rules to run, beside the chosen ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="run only mutants whose name contains this")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no mutant after this time")
    parser.add_argument("--timeout", type=float, default=900, help="seconds of the tests of one mutant")
    parser.add_argument("--list", action="store_true", help="list the mutants and run none")
    options = parser.parse_args()
    ruled = list(ruled_mutants())
    some = random.Random(options.seed).sample(ruled, min(options.sample, len(ruled)))
    mutants = [one for one in (*chosen_mutants(), *some) if options.only in one.name]
    if options.list:
        print(*(one.name for one in mutants), sep="\n")
        print(f"{len(mutants)} mutants of {len(CHOSEN) + len(ruled)}")
        return 0
    began, counts, before_change = time.monotonic(), Counter(), {}
    for mutant in mutants:
        if time.monotonic() - began > options.seconds:
            break
        outcome = judge(mutant, options.timeout, before_change)
        counts[outcome] += 1
        print(f"{outcome:10} {mutant.name}", flush=True)
    print(f"{counts.total()} of {len(mutants)} mutants run:", ", ".join(f"{n} {what}" for what, n in counts.items()))
    return int(counts.total() != counts["noticed"])


if __name__ == "__main__":
    sys.exit(main())
