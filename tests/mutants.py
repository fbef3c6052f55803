"""Mutation testing: small changes of the source, each of which the tests of its module should detect.

``python tests/mutants.py`` copies the source tree once per process, applies one mutant at a time to a copy, and runs
the test files of the mutated module until the first failure. A mutant is *killed* if a test fails or does not end,
*survived* if all pass, and *equivalent* if EQUIVALENT gives the reason why no test can detect it. All hand-written
mutants and a sample of the generated ones are run. Outcomes are written to a JSON file as they arrive, and ``--resume``
continues from that file.
"""

import argparse
import ast
import hashlib
import json
import os
import queue
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "topsign"

MEMORY_BYTES = 24 * 2**30
"""Address space of the tests of a mutant: some mutants ask for all there is."""

MARKS = "not engines and not statistics and not gpu"

TESTS = {
    "search": [
        "test_boundaries",
        "test_ties",
        "test_index",
        "test_index_batches",
        "test_trellis_index",
        "test_regions",
    ],
    "search/engine": ["test_boundaries", "test_ties", "test_index"],
    "search/originals": ["test_boundaries", "test_ties", "test_originals", "test_index", "test_regions"],
    "search/pairs": ["test_pairs", "test_trellis_pairs"],
    "search/query_block": ["test_boundaries", "test_index", "test_bad_input"],
    "search/recall": ["test_regions", "test_cli_regions"],
    "search/regions": ["test_regions", "test_cli_regions"],
    "search/sample": ["test_calibration", "test_entries", "test_first"],
    "store": ["test_entries", "test_hostile_folders", "test_durable"],
    "store/backends": ["test_store_holes", "test_durable", "test_hardening_files", "test_full_disk", "test_bucket"],
    "store/folder_store": ["test_store_holes", "test_entries", "test_hardening", "test_durable", "test_bucket"],
    "store/memory": ["test_entries", "test_index", "test_durable"],
    "store/segments": ["test_segments", "test_entries", "test_originals", "test_filters", "test_index", "test_durable"],
    "store/stored_columns": ["test_originals", "test_hostile_folders", "test_entries", "test_regions", "test_durable"],
    "store/versions": ["test_store_holes", "test_segments", "test_hostile_folders", "test_durable", "test_bucket"],
    "families": ["test_boundaries", "test_ties", "test_families", "test_index", "test_encoders", "test_law"],
    "families/adaptive": [
        "test_boundaries",
        "test_entries",
        "test_codes",
        "test_hardening",
        "test_first",
        "test_index",
    ],
    "families/agreement": ["test_pairs"],
    "families/base": ["test_families", "test_decoded", "test_index", "test_trellis_index", "test_hostile_folders"],
    "families/comparison": ["test_decoded", "test_families", "test_boundaries", "test_index"],
    "families/projected": ["test_bad_input", "test_families", "test_first", "test_index", "test_encoders"],
    "families/signs": [
        "test_codes",
        "test_boundaries",
        "test_ties",
        "test_index",
        "test_index_batches",
        "test_families",
    ],
    "families/trellis": ["test_boundaries", "test_trellis", "test_trellis_index", "test_rates"],
    "families/trellis_pairs": ["test_trellis_pairs"],
    "families/weight_coding": ["test_heads"],
    "index/filters": ["test_filters"],
    "index/significance": ["test_boundaries", "test_calibration", "test_index"],
    "significance/score_calibration": ["test_score_calibration", "test_calibration"],
    "significance/likelihood_ratios": ["test_evidence"],
    "significance/null_distributions": [
        "test_boundaries",
        "test_law",
        "test_score_calibration",
        "test_index",
        "test_trellis_index",
    ],
    "significance/p_values": ["test_inference", "test_log_tails", "test_grouped_theory"],
    "theory": ["test_theory", "test_rates", "test_design", "test_detection"],
    "theory/distances": ["test_theory", "test_distortion", "test_paper_printed", "test_inference"],
    "theory/planning": ["test_design", "test_capacity"],
    "theory/detection": ["test_boundaries", "test_detection", "test_design"],
    "theory/grouped": ["test_grouped_theory"],
    "theory/rates": ["test_rates", "test_design"],
    "theory/tails": ["test_inference", "test_intervals", "test_log_tails"],
    "theory/trellis": ["test_rates", "test_trellis", "test_design"],
}
"""Test files of modules and packages; the longest name that fits decides."""

CHOSEN = [
    ("families/comparison.py", "SLACK = 1e-5", "SLACK = 0.0"),
    ("families/comparison.py", "np.count_nonzero(levels < 0, axis=1)", "np.count_nonzero(levels <= 0, axis=1)"),
    ("families/trellis.py", 'return "log" if self.metric == "inner_product" else "cosine"', 'return "cosine"'),
    ("families/agreement.py", "return np.maximum.accumulate(expected), rho", "return expected[::-1], rho"),
    ("search/engine.py", 'np.argsort(snapshot.gather("ids", others))', "np.arange(len(others))"),
    (
        "search/originals.py",
        "np.lexsort((candidates.ids, -scores, candidates.queries))",
        "np.lexsort((-scores, candidates.queries))",
    ),
    ("index/significance.py", "others &= hits.ids != own[hits.queries]", "pass"),
    ("index/significance.py", "known &= hits.ids != own[hits.queries]", "pass"),
    ("index/significance.py", "LEVEL, TOO_MANY = 1e-3, 10", "LEVEL, TOO_MANY = 1e-3, 20"),
    ("index/significance.py", "LEVEL, TOO_MANY = 1e-3, 10", "LEVEL, TOO_MANY = 1e-3, 5"),
    ("store/memory.py", "with self._lock:", "with threading.Lock():"),
    ("store/folder_store.py", "with self.backend.lock(self.timeout):", "if True:"),
]
"""Changes that once went unnoticed: file, old text, new text. The calibration sample changes under the two locks."""

EQUIVALENT = {
    ("families/projected.py", "return 4 * max(self.projection.shape)", "4", "5"): "decides only the size of blocks",
    (
        "families/projected.py",
        "for block in float_blocks(signals, max(1, 2**21 // max(1, signals.shape[1])), part=slice(first, end)):",
        "1",
        "2",
    ): "decides only the size of blocks",
    (
        "families/trellis_pairs.py",
        "products, n_rows = np.empty(len(rows)), max(1, COMPARED_BYTES // self.rows[:1].nbytes)",
        "1",
        "2",
    ): "decides only the size of blocks",
    (
        "index/filters.py",
        'shown = self.text if len(self.text) <= 200 else self.text[:200] + "..."',
        "200",
        "201",
    ): "the length of a quotation in a message",
    ("index/significance.py", "return NullCheck(0.0, 0, by_codes=True)", "0.0", "(0.0 * 1.5 + 0.1)"): (
        "the share of no pairs, which is not looked at"
    ),
    ("search/pairs.py", "n_rows = max(1, BLOCK_BYTES // pairing.row_bytes)", "//", "*"): "the size of blocks",
    (
        "search/recall.py",
        "return np.maximum.accumulate(np.clip(ordered[np.clip(places, 0, len(ordered) - 1)] + 1, 10, N_CANDIDATES))",
        "-",
        "+",
    ): "places are below the length",
    ("search/regions.py", "if not segment.n_alive:", "not segment.n_alive", "False"): (
        "a segment without living entries adds none"
    ),
    ("search/recall.py", "if is_wide.all():", "is_wide.all()", "False"): (
        "a visit of all regions finds the same entries, more slowly"
    ),
    ("store/folder_store.py", "OVERLAID_SHARE = 1 / 8", "1", "2"): "decides only when files are rewritten",
    (
        "theory/planning.py",
        "def bytes_against_detection(plan: Plan, n_points: int = 24) -> dict[str, tuple[list[int], list[float]]]:",
        "24",
        "25",
    ): "the number of points of a drawn curve",
    (
        "store/stored_columns.py",
        "if positions.size and width and (width > size or not (verified[first].all() and verified[last].all())):",
        "positions.size and width and (width > size or not (verifi...",
        "True",
    ): "blocks that are verified already are not read again",
    ("store/segments.py", "return False", "return False", "return None"): "None is false, too",
    (
        "significance/likelihood_ratios.py",
        "if len(values) <= 2 * N_EXTREMES + N_BINS:",
        "<=",
        "<",
    ): "bins of one score each are the scores themselves",
    ("theory/rates.py", "if excess(peak) < 0:", "<", "<="): "equal only for one rate, to the last bit",
    (
        "theory/rates.py",
        "starts = [np.full(levels - 1, start) for start in (-6.0, -1.0)]",
        "1.0",
        "(1.0 * 1.5 + 0.1)",
    ): "another start of the same optimisation",
}
"""Changes that no test can notice, with the reason: file, the line as it stands, old text, new text."""

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
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "//",
    ast.And: "or",
    ast.Or: "and",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
SIGNS = {"<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE, "==": ast.Eq, "!=": ast.NotEq}
SIGNS |= {"+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.Div, "//": ast.FloorDiv, "%": ast.Mod}
SIGNS |= {"and": ast.And, "or": ast.Or, "in": ast.In, "not in": ast.NotIn, "is": ast.Is, "is not": ast.IsNot}
SIGN_OF = {kind: sign for sign, kind in SIGNS.items()}
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
    for file, old, new in CHOSEN:
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
            between, sign = text[first:last], SIGN_OF.get(type(operator), "")
            if sign and between.strip(" ()") == sign:
                start = first + between.index(sign)
                yield mutant(start, start + len(sign), SWAPS[type(operator)])


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
        self._free = queue.SimpleQueue()
        for number in range(n_trees):
            self._free.put(_make_tree(Path(folder) / f"tree-{number}"))

    def run(self, files, seconds, *options, change=None):
        """Return the exit code and the output of the tests in these files; -1 if they do not end in time."""
        tree = self._free.get()
        try:
            if change is None:
                return _run_tests(tree, files, seconds, options)
            path = tree / "src" / "topsign" / change.file
            content = path.read_text()
            try:
                path.write_text(change.applied(content))
                return _run_tests(tree, files, seconds, options)
            finally:
                path.write_text(content)
        finally:
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


def _run_tests(tree, files, seconds, options):
    command = [tree / "environment" / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header"]
    command += ["-p", "no:xdist", "-rfE", "-m", MARKS, *options, *files]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONPATH", None)
    with subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES)),
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return -1, ""
    return process.returncode, output


class Baseline:
    """Time and failures of the tests of each file without a mutant."""

    def __init__(self, trees, files, pool, timeout):
        self.seconds, self.failing = {}, {}
        jobs = {pool.submit(self._measure, trees, file, timeout): file for file in files}
        for job in as_completed(jobs):
            file = jobs[job]
            self.seconds[file], self.failing[file] = job.result()
            failing = "cannot be run" if self.failing[file] is None else f"{len(self.failing[file])} fail"
            print(f"without a mutant {file}: {self.seconds[file]:.0f} s, {failing}", flush=True)

    @staticmethod
    def _measure(trees, file, timeout):
        began = time.monotonic()
        code, output = trees.run([file], timeout)
        failing = re.findall(r"^(?:FAILED|ERROR) (\S+::\S+(?:\[.*?\])?)", output, re.MULTILINE)
        is_usable = code == 0 or (code == 1 and bool(failing))
        return time.monotonic() - began, failing if is_usable else None

    def judge(self, trees, mutant):
        """Return the outcome of a mutant and the test that detected it."""
        files = sorted((file for file in mutant.tests if self.failing[file] is not None), key=self.seconds.get)
        if not files:
            return "not judged", "its tests cannot be run here"
        left_out = [f"--deselect={test}" for file in files for test in self.failing[file]]
        seconds = 60 + 4 * sum(self.seconds[file] for file in files)
        code, output = trees.run(files, seconds, "-x", *left_out, change=mutant)
        if code == 0:
            return "survived", ""
        found = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        return "killed", found[0] if found else "no end" if code == -1 else f"exit code {code}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=200, help="mutants made by rules, besides the chosen ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="run only mutants whose name contains this")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no mutant after this time")
    parser.add_argument("--timeout", type=float, default=900, help="seconds of one test file without a mutant")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "mutants.json")
    parser.add_argument("--resume", action="store_true", help="keep the killed mutants that the results have")
    parser.add_argument("--list", action="store_true", help="list the mutants and run none")
    options = parser.parse_args()
    began = time.monotonic()
    chosen, ruled = list(chosen_mutants()), list(ruled_mutants())
    mutants = [one for one in (*chosen, *choose(ruled, options.sample, options.seed)) if options.only in one.name]
    if options.list:
        print(*(one.name for one in mutants), sep="\n")
        print(f"{len(mutants)} mutants of {len(chosen) + len(ruled)}")
        return 0
    found = {}
    if options.resume and options.results.exists():
        earlier = json.loads(options.results.read_text())["mutants"]
        found = {key: record for key, record in earlier.items() if record["outcome"] == "killed"}
    for one in mutants:
        if one.reason is not None:
            found[one.key] = {"mutant": one.name, "outcome": "equivalent", "by": one.reason}
    waiting = [one for one in mutants if one.key not in found]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(options.processes) as pool:
        Path(folder).chmod(0o755)  # tests run programs as other users
        trees = Trees(folder, options.processes)
        files = sorted({file for one in waiting for file in one.tests})
        baseline = Baseline(trees, files, pool, options.timeout)

        def judge(one):
            is_late = time.monotonic() - began > options.seconds
            return ("not run", "") if is_late else baseline.judge(trees, one)

        jobs = {pool.submit(judge, one): one for one in waiting}
        for job in as_completed(jobs):
            one, (outcome, by) = jobs[job], job.result()
            found[one.key] = {"mutant": one.name, "outcome": outcome, "by": by}
            print(f"{outcome:10} {one.name}  {by}", flush=True)
            _write(options.results, found)
    _write(options.results, found)
    outcomes = Counter(found[one.key]["outcome"] for one in mutants)
    print(f"{len(mutants)} mutants:", ", ".join(f"{count} {what}" for what, count in outcomes.most_common()))
    return int(outcomes["killed"] + outcomes["equivalent"] != len(mutants))


def _write(path, found):
    counts = Counter(record["outcome"] for record in found.values())
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"counts": dict(sorted(counts.items())), "mutants": dict(sorted(found.items()))}
    path.with_suffix(".tmp").write_text(json.dumps(content, indent=1) + "\n")
    path.with_suffix(".tmp").replace(path)


if __name__ == "__main__":
    sys.exit(main())
