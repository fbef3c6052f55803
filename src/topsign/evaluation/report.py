"""Results of an evaluation: measured configurations, the recommendation as text, commands and code, and the page."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from .._checks import check_count
from .._page import document, table_rows
from ..index import Index
from .sample import Isotropy

SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4)
"""Default sizes of adaptive codes, as fractions of the number of features."""

GROUPED_SHARES = (1 / 32, 1 / 16)
"""Bytes of grouped codes as fractions of the number of features: a quarter and half a bit per feature."""

TRELLIS_SHARES = (1 / 16, 1 / 8, 1 / 4)
"""Bytes of trellis codes as fractions of the number of features: half a bit, one bit and two bits per feature."""

MAX_TRELLIS_FEATURES = 2048
"""Above this size, trellis codes are omitted, because building them takes longer than all the rest."""


@dataclass(frozen=True)
class Configuration:
    """Index constructor with the parameters that an evaluation varies."""

    family: str
    name: str  # as tables show it
    parameters: dict[str, Any]
    has_null: bool  # whether p-values of isotropic signals are known

    def make(self, n_features: int, **options: Any) -> Index:
        """Return an empty index; ``options`` are shared by all configurations."""
        return Index(n_features, family=self.family, **(self.parameters | options))

    def options(self) -> str:
        """Return the options of ``topsign build`` for this configuration."""
        words = [f"--family {self.family}"]
        for name, value in self.parameters.items():
            option = name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{option}" if value else f"--no-{option}")
            else:
                words.append(f"--{option} {value}")
        return " ".join(words)

    def constructor(self, n_features: int, **options: Any) -> str:
        """Return the Python expression that creates the index."""
        values = {"family": self.family} | self.parameters | options
        return f"ts.Index({n_features}, {', '.join(f'{name}={value!r}' for name, value in values.items())})"


def configurations(
    n_bits: Sequence[int] | None, n_features: int, n_entries: int, *, metric: str, center: bool, has_mean: bool
) -> tuple[list[Configuration], list[str]]:
    """Return the configurations to measure, and notes on those that are omitted.

    For correlations of signals as given, all codes except trellis codes are measured with and without centring if the
    signals have a mean.
    """
    both = metric == "correlation" and not center and has_mean
    inner: dict[str, Any] = {"metric": "inner_product"} if metric == "inner_product" else {}
    found = []
    for subtracts in (False, True) if both else (center,):
        shared = ({"center": True} if subtracts else {}) | inner
        words = ", centred" if subtracts else ""
        found += [
            Configuration("adaptive", f"adaptive, {size} bits{words}", {"n_bits": size} | shared, True)
            for size in _sizes(n_bits, n_features)
        ]
        grouped = sorted({max(1, int(n_features * share)) for share in GROUPED_SHARES})
        found += [
            Configuration("grouped", f"grouped, {size} bytes{words}", {"n_bytes": size} | shared, True)
            for size in grouped
        ]
        size = -(-n_features // 8)
        found.append(Configuration("sign", f"sign, {size} bytes{words}", {"n_bytes": size} | shared, True))
    enough = n_entries >= max(200, n_features // 8)  # to learn axes from
    if not (32 <= n_features <= MAX_TRELLIS_FEATURES and enough):
        return found, [
            f"trellis codes were omitted, because with {n_features:,} features and {n_entries:,} entries they have too "
            "few entries or take longer to build than all other codes"
        ]
    sizes = [max(3, int(n_features * share)) for share in TRELLIS_SHARES]
    found += [_trellis(size, "learned axes", inner) for size in sizes]
    random = {"basis": "hadamard", "center": False} | inner
    found.append(_trellis(sizes[1], "random axes", random, has_null=True))
    return found, []


def _sizes(n_bits: Sequence[int] | None, n_features: int) -> list[int]:
    if n_bits is None:
        return sorted({max(8, int(n_features * share) // 8 * 8) for share in SHARES if n_features * share >= 1})
    if not len(n_bits):
        raise ValueError("n_bits must name at least one size, got none")
    return sorted({check_count(one, "n_bits", maximum=n_features) for one in n_bits})


def _trellis(n_bytes: int, axes: str, parameters: dict[str, Any], *, has_null: bool = False) -> Configuration:
    name = f"trellis, {n_bytes} bytes, {axes}"
    return Configuration("trellis", name, {"n_bytes": n_bytes} | parameters, has_null)


INDEX = "index.topsign"
ORIGINALS = "float32"
"""Type of stored originals that orders candidates exactly as the signals do."""


@dataclass(frozen=True)
class SignalSource:
    """Source of signals, ids and queries: files, or arrays named ``signals`` and ``queries``."""

    signals: str | None = None
    queries: str | None = None
    vector_column: str | None = None
    id_column: str | None = None

    def commands(self, option: Option, random_state: int) -> str:
        """Return shell commands that build an index and search it."""
        build = ["topsign build", shlex.quote(self.signals or "signals.npy"), f"-o {INDEX}"]
        build += [f"--vector-column {shlex.quote(self.vector_column)}"] if self.vector_column else []
        build += [f"--id-column {shlex.quote(self.id_column)}"] if self.id_column else []
        build += [option.configuration.options(), f"--random-state {random_state}"]
        build += [] if option.kept is None else [f"--originals {option.kept}"]
        build += [] if option.recall is None else ["--regions"]
        search = ["topsign search", INDEX, shlex.quote(self.queries or "queries.npy"), f"-k {K}"]
        search += [f"--vector-column {shlex.quote(self.vector_column)}"] if self.vector_column and self.queries else []
        search += [f"--{name} {value:g}" for name, value in option.search.items()]
        return f"{' '.join(build)}\n{' '.join(search)}"

    def python(self, option: Option, n_features: int, random_state: int) -> str:
        """Return Python code that builds an index and searches it; the last line assigns ``neighbors``."""
        kept: dict[str, Any] = {} if option.kept is None else {"originals": option.kept}
        made = option.configuration.constructor(n_features, **kept, random_state=random_state)
        settings = "".join(f", {name}={value:g}" for name, value in option.search.items())
        return "\n".join(
            [
                "import topsign as ts",
                *self._reading(),
                "",
                f"index = {made}",
                f"index.add(signals{', ids=ids' if self.id_column else ''})",
                *([] if option.recall is None else ["index.learn_regions()"]),
                f"neighbors = index.search(queries, k={K}{settings})",
            ]
        )

    def _reading(self) -> list[str]:
        if self.signals is None:
            return []
        columns = f", [{self.id_column!r}]" if self.id_column else ""
        lines = [
            "from topsign.signals import FilesRows, open_files",
            "",
            f"files = open_files({self.signals!r}, {self.vector_column!r}{columns})",
            "signals = FilesRows(files)",
        ]
        if self.id_column:
            name = repr(self.id_column)
            lines.append(f"ids = [id for file in files for id in file.columns([{name}])[{name}].to_pylist()]")
        asked = self.queries or "queries.npy"
        return [*lines, f"queries = FilesRows(open_files({asked!r}, {self.vector_column!r}))"]


K = 10
"""Number of neighbours to which the target recall refers."""

SAME_TIME = 1.25
"""Times whose ratio is below this are treated as equal, because measurements vary by as much."""


@dataclass(frozen=True)
class Recall:
    """Fraction of the true k nearest neighbours that are found, with its 95% interval over queries."""

    k: int
    share: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.share:.1%} [{self.low:.1%}, {self.high:.1%}]"


@dataclass(frozen=True)
class Option:
    """Configuration with a number of candidates that are rescored by the original signals."""

    configuration: Configuration
    factor: int | None  # rescored candidates per neighbour; None without rescoring
    bytes_per_entry: float  # resident: code and id, plus the shared data divided by the number of entries
    measured: Recall  # recall@10 among the entries of the sample
    expected: Recall  # recall@10 among all signals, extrapolated if the sample is smaller
    milliseconds: float  # per query in a batch on all threads, among the entries of the sample
    single_milliseconds: float  # of one query at a time
    originals: str | None = None  # type of stored originals
    recall: float | None = None  # recall requested from a search of regions
    disk_bytes: float = 0.0  # of stored originals, per entry

    @property
    def name(self) -> str:
        """Name for tables and sentences."""
        return f"{self.configuration.name}, {self.how}"

    @property
    def how(self) -> str:
        """Description of how candidates are found and ordered."""
        kept = f" by {self.originals} originals" if self.originals is not None else ""
        if self.recall is not None:
            return f"regions searched for a recall of {self.recall:g}, rescored{kept}"
        return "by codes only" if self.factor is None else f"{self.factor * K} candidates rescored{kept}"

    @property
    def kept(self) -> str | None:
        """Type of the originals that the index keeps."""
        return self.originals or (None if self.factor is None else ORIGINALS)

    @property
    def search(self) -> dict[str, float]:
        """Arguments of a search after the number of neighbours."""
        if self.recall is not None:
            return {"recall": self.recall}
        return {} if self.factor is None else {"rescore": self.factor * K}

    @property
    def time(self) -> str:
        """Times of single queries and of a batch."""
        return f"{self.single_milliseconds:.2f} ms for a single query and {self.milliseconds:.2f} ms each in a batch"

    def meets(self, target: float) -> bool:
        """Return whether the whole interval of the expected recall reaches the target."""
        return self.expected.low >= target


@dataclass(frozen=True)
class Candidate:
    """Measurements of one configuration."""

    configuration: Configuration
    bytes_per_entry: float
    recall: list[Recall]  # by codes only, of the 1, 10 and 100 nearest
    options: list[Option]

    @property
    def name(self) -> str:
        """Name for tables."""
        return self.configuration.name

    def option(self, factor: int | None) -> Option:
        """Return the option with this number of candidates per neighbour."""
        return next(one for one in self.options if one.factor == factor)


@dataclass(frozen=True)
class Evaluation:
    """Results of :func:`evaluate`."""

    n_signals: int  #: number of entries of the planned index
    n_entries: int  #: number of entries in the sample
    n_queries: int  #: number of queries in the sample
    n_features: int  #: length of a signal
    own_queries: bool  #: whether queries are held-out rows of the signals
    metric: str  #: quantity that scores estimate: "correlation" or "inner_product"
    center: bool  #: whether the mean of the signals is subtracted before true correlations are computed
    target_recall: float  #: requested recall
    isotropy: Isotropy  #: deviation of the signals from isotropy
    notes: list[str]  #: remarks about the signals
    n_nested: int | None  #: entries of each nested sample, None if there is none
    candidates: list[Candidate]  #: all measured configurations, one row each
    stored: list[Option]  #: the best option with stored originals of each type, and with regions
    best: Option  #: recommended option
    second: Option | None  #: second best option, None if there is no other
    false_alarms: dict[str, list[float]]  #: share of searches for held-out signals with a match at each level, by null
    levels: list[float]  #: levels at which p-values were compared with the truth
    n_judged: int  #: number of queries with which false-alarm rates are measured
    random_state: int  #: seed of the sample and of all projections
    seconds: float  #: duration of the evaluation
    source: SignalSource = SignalSource()  #: files of the signals and queries, for commands and code

    @property
    def met(self) -> bool:
        """Whether the recommended option meets the target."""
        return self.best.meets(self.target_recall)

    @property
    def extrapolated(self) -> bool:
        """Whether the recommendation is for more entries than were measured."""
        return self.n_signals > self.n_entries

    def command(self) -> str:
        """Return the shell commands that build and search the recommended index."""
        return self.source.commands(self.best, self.random_state)

    def python(self) -> str:
        """Return the Python code that builds and searches the recommended index."""
        return self.source.python(self.best, self.n_features, self.random_state)

    def recommendation(self) -> str:
        """Return the recommendation and its expected performance in a few sentences."""
        best = self.best
        saved = 4 * self.n_features / best.bytes_per_entry
        met = "" if self.met else f"No configuration meets a recall of {self.target_recall:.0%}; the closest is: "
        text = (
            f"{met}{best.name}. It takes {best.bytes_per_entry:.0f} resident bytes per entry ({saved:.1f} times fewer "
            f"than float32) and finds {best.measured} of the true {K} nearest among {self.n_entries:,} entries, in "
            f"{best.time}."
        )
        if self.extrapolated:
            text += f" Among {self.n_signals:,} entries the expected recall is {best.expected} (extrapolated)."
        if best.originals is not None:
            text += f" Originals take {best.disk_bytes:,.0f} bytes per entry on disk."
        return text

    def alternative(self) -> str | None:
        """Return the second best option and the reason why it is not the first, or None if there is no other."""
        if self.second is None:
            return None
        best, other = self.best, self.second
        found = f"Second: {other.name}, {other.bytes_per_entry:.0f} bytes, {other.expected}, {other.time}"
        found += f", {other.disk_bytes:,.0f} bytes on disk: " if other.disk_bytes else ": "
        if not other.meets(self.target_recall):
            return found + ("it may miss the target." if self.met else "its recall is lower.")
        more = other.bytes_per_entry / best.bytes_per_entry - 1
        if abs(more) < 0.005:
            larger = other.disk_bytes > best.disk_bytes
            return found + ("equally small, but larger on disk." if larger else "equally small, but slower.")
        if more < 0:
            return found + f"{-more:.0%} smaller, but slower for single queries."
        if other.milliseconds < best.milliseconds:
            return found + f"faster, but {more:.0%} larger."
        return found + f"{more:.0%} larger, and not faster."

    def false_alarm_advice(self) -> str | None:
        """Return advice on calibration before p-values are used, or None if none is needed."""
        rate = self.false_alarms.get("as they are", [0.0])[-1]
        if rate <= 2 * self.levels[-1]:
            return None
        return (
            f"Call index.calibrate() before using p-values: without it, {rate:.0%} of searches for held-out "
            f"signals had a match at a false-alarm rate of {self.levels[-1]:.0%}."
        )


def choose(options: list[Option], target: float) -> tuple[Option, Option | None]:
    """Return the best option that meets the target, and the second best.

    Options are ordered by resident bytes, then by time in a batch, and at about equal times by bytes on disk. Regions
    take more bytes; they are preferred if they make single queries clearly faster, and left out otherwise. The
    second best is the fastest option that is faster than the best, or else the next in this order, or, if no other
    option meets the target, the one with the highest recall. If no option meets the target, the two with the highest
    recall are returned.
    """

    def cost(one: Option) -> tuple[float, float, float, float]:
        return (
            one.bytes_per_entry,
            round(math.log(max(one.milliseconds, 1e-9)) / math.log(SAME_TIME)),
            one.disk_bytes,
            one.milliseconds,
        )

    ranked = sorted(options, key=lambda one: -one.expected.low)
    enough = sorted((one for one in options if one.meets(target)), key=cost)
    if not enough:
        return ranked[0], ranked[1] if len(ranked) > 1 else None
    best = enough[0]
    if best.recall is None:
        regional = min(
            (one for one in enough if one.recall is not None), key=lambda one: one.single_milliseconds, default=best
        )
        if SAME_TIME * regional.single_milliseconds < best.single_milliseconds:
            return regional, best
        enough = [one for one in enough if one.recall is None]
    others = enough[1:]
    faster = min(others, key=lambda one: one.milliseconds, default=None)
    if faster is not None and faster.milliseconds < best.milliseconds:
        return best, faster
    others = [one for one in others if one.configuration != best.configuration] or others
    return best, next(iter([*others, *(one for one in ranked if not one.meets(target))]), None)


WIDTH, HEIGHT, MARGIN, LABEL_WIDTH = 640, 320, 52, 24
MIDDLE = 'text-anchor="middle" fill="var(--ink)"'
TRUTHS = {
    ("correlation", False): "largest correlation with the signals as given",
    ("correlation", True): "largest correlation after subtracting the mean of the signals",
    ("inner_product", False): "largest inner product",
}


def render(found: Evaluation) -> str:
    """Return the page of an evaluation."""
    return document("topsign on your signals", _body(found))


def _body(found: Evaluation) -> Iterator[str]:
    held = "held out from the signals" if found.own_queries else "as given"
    source = found.source.signals or "your signals"
    yield "<h1>topsign on your signals</h1>"
    yield (
        f"<p>{escape(source)}: {found.n_signals:,} signals of {found.n_features:,} features. Measured on a sample: "
        f"{found.n_entries:,} entries and {found.n_queries:,} queries {held}, in {found.seconds:.0f} s.</p>"
    )
    yield '<h2 id="recommendation">Recommendation</h2>'
    yield f"<p>Target: {found.target_recall:.0%} of the true 10 nearest neighbours.</p>"
    yield f"<p><strong>{escape(found.recommendation())}</strong></p>"
    if (second := found.alternative()) is not None:
        yield f"<p>{escape(second)}</p>"
    yield f"<pre>{escape(found.command())}</pre><pre>{escape(found.python())}</pre>"
    yield '<h2 id="signals">The signals</h2>'
    yield f"<p>{escape(found.isotropy.sentence(found.n_features))}</p>"
    if found.notes:
        yield "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in found.notes) + "</ul>"
    yield '<h2 id="results">Results</h2>'
    yield f'<figure id="figure-recall">{_chart(found)}<figcaption>Recall@10 against resident bytes per entry. Circles '
    yield "are searches by codes only, squares are searches with 100 rescored candidates, and the dashed line is the "
    yield "target. The filled mark is the recommended configuration.</figcaption></figure>"
    for words, titles, rows in tables(found):
        yield f"<p>{escape(words)}</p>"
        yield from table_rows("numbers", titles, [[_cell(text) for text in row] for row in rows])
    if (advice := found.false_alarm_advice()) is not None:
        yield f"<p>{escape(advice)}</p>"


def _cell(text: str) -> str:
    number, *details = escape(text).split("\n")
    return number + "".join(f"<span class='interval'>{one}</span>" for one in details)


def tables(found: Evaluation) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield an explanation, the titles and the rows of each table; the second line of a cell has details."""
    titles = ["code", "bytes", "recall@1", "@10", "@100", "@10, 40 rescored", "100", "400", "ms, single", "batch"]
    yield _recall_words(found), titles, [_numbers(one) for one in found.candidates]
    if found.stored:
        words = (
            "The best configuration as a stored index: with originals of each type on disk and, from 20,000 entries "
            "on, with regions; a search visits as many of them as the requested recall needs. Regions are recommended "
            "only if single queries are at least a quarter faster. Among options with the same resident bytes and "
            "about the same time, the one with the fewest bytes on disk is recommended."
        )
        titles = ["stored as", "resident bytes", "bytes on disk", "recall@10", "ms, single query", "ms in a batch"]
        yield words, titles, [_stored_numbers(one) for one in found.stored]
    if found.extrapolated:
        titles = ["code", "recall@10", "40 rescored", "100", "400"]
        rows = [[one.name, *(_share(option.expected) for option in one.options)] for one in found.candidates]
        yield f"Expected among {found.n_signals:,} entries:", titles, rows
    if found.false_alarms:
        words = (
            f"Fraction of {found.n_judged:,} searches for held-out signals, in a sample of the entries, that have a "
            "match. If no held-out signal truly matches an entry, it should equal the false-alarm rate."
        )
        titles = ["p-values", *(f"at {level:g}" for level in found.levels)]
        yield words, titles, [[name, *(f"{rate:.3f}" for rate in rates)] for name, rates in found.false_alarms.items()]


def _recall_words(found: Evaluation) -> str:
    """Return the explanation of recall, bytes and times."""
    words = (
        f"For all codes, true neighbours are the entries with the {TRUTHS[found.metric, found.center]}. Recall is the "
        "fraction of them that is found, with 95% intervals over queries, by codes only and with candidates rescored "
        "by the original signals. Bytes per entry include all resident data: code, norm, scale and id, plus shared "
        "means and axes divided by the number of entries. Times are per query, of single queries and in one batch on "
        "all threads, in the sample."
    )
    if found.extrapolated:
        nested = "" if found.n_nested is None else f", corrected by nested samples of {found.n_nested:,}"
        words += (
            f" Recall changes as entries are added. For {found.n_signals:,} entries it is extrapolated from fewer "
            f"neighbours in the sample, which are as dense there as 10 neighbours among all entries{nested}."
        )
    return words


def _numbers(one: Candidate) -> list[str]:
    recall = [_share(part) for part in one.recall] + [""] * (3 - len(one.recall))
    exact = [_share(option.measured) for option in one.options if option.factor is not None]
    cells = [one.name, f"{one.bytes_per_entry:.0f}", *recall, *exact]
    for times in ([each.single_milliseconds for each in one.options], [each.milliseconds for each in one.options]):
        first, *rescored = (f"{time:.2f}" for time in times)
        cells.append(f"{first}\n({', '.join(rescored)})")
    return cells


def _stored_numbers(one: Option) -> list[str]:
    sizes = f"{one.bytes_per_entry:.0f}", f"{one.disk_bytes:.0f}"
    return [one.name, *sizes, _share(one.measured), f"{one.single_milliseconds:.2f}", f"{one.milliseconds:.2f}"]


def _share(one: Recall) -> str:
    return f"{one.share:.3f}\n[{one.low:.3f}, {one.high:.3f}]"


def _chart(found: Evaluation) -> str:
    """Return a chart of recall@10 against bytes as an SVG element."""
    largest = 1.08 * max(one.bytes_per_entry for one in found.candidates)

    def at(n_bytes: float, share: float) -> tuple[float, float]:
        x = MARGIN + (WIDTH - 2 * MARGIN) * n_bytes / largest
        return x, HEIGHT - MARGIN - (HEIGHT - 1.5 * MARGIN) * share

    def mark(one: Option, color: str) -> str:
        x, y = at(one.bytes_per_entry, one.measured.share)
        chosen = one.configuration == found.best.configuration and (one.factor is None) == (found.best.factor is None)
        drawn = f'fill="{color if chosen else "none"}" stroke="{color}" stroke-width="2"'
        if one.factor is None:
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5.5" {drawn}><title>{escape(one.name)}</title></circle>'
        corner = f'x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10"'
        return f"<rect {corner} {drawn}><title>{escape(one.name)}</title></rect>"

    parts = [f'<svg role="img" aria-label="recall against bytes" viewBox="0 0 {WIDTH} {HEIGHT}" font-size="12">']
    for share in (0, 0.25, 0.5, 0.75, 1):
        (left, y), (right, _) = at(0, share), at(largest, share)
        parts.append(f'<line x1="{left:.0f}" x2="{right:.0f}" y1="{y:.0f}" y2="{y:.0f}" stroke="var(--faint)"/>')
        parts.append(f'<text x="{left - 8:.0f}" y="{y + 4:.0f}" text-anchor="end" fill="var(--ink)">{share:g}</text>')
    (left, y), (right, _) = at(0, found.target_recall), at(largest, found.target_recall)
    parts.append(
        f'<line x1="{left:.0f}" x2="{right:.0f}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--green)" '
        'stroke-dasharray="5 4"/>'
        f'<text x="{right:.0f}" y="{y - 5:.0f}" text-anchor="end" fill="var(--green)">target</text>'
    )
    for one in found.candidates:
        parts += [mark(one.option(None), "var(--blue)"), mark(one.option(10), "var(--orange)")]
    labelled = -math.inf
    for n_bytes in sorted(one.bytes_per_entry for one in found.candidates):
        x, y = at(n_bytes, 0)
        if x - labelled >= LABEL_WIDTH:
            labelled = x
            parts.append(f'<text x="{x:.0f}" y="{y + 18:.0f}" {MIDDLE}>{n_bytes:.0f}</text>')
    parts.append(f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT - 8}" {MIDDLE}>resident bytes per entry</text></svg>')
    return "".join(parts)
