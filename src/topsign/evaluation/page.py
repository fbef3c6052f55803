"""Report of an evaluation as one self-contained HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from .._page import document, table_rows
from .report import Candidate, Evaluation, Option, Recall

WIDTH, HEIGHT, MARGIN, LABEL_WIDTH = 640, 320, 52, 24
MIDDLE = 'text-anchor="middle" fill="var(--ink)"'
STORED_WORDS = (
    "The best configuration as a stored index: with originals of each type on disk and, from 20,000 entries on, with "
    "regions, of which a search visits as many as the requested recall needs. Among options with the same resident "
    "bytes and about the same time, the one with the fewest bytes on disk is recommended."
)
TRUTHS = {
    "cosine": "largest cosine of the signals as given",
    "centred cosine": "largest cosine after subtracting the mean of the signals",
    "inner_product": "largest inner product",
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
    yield '<h2 id="recall">Recall, bytes and time</h2>'
    yield f"<p>{escape(recall_words(found))}</p>"
    yield f'<figure id="figure-recall">{_chart(found)}<figcaption>Recall@10 against resident bytes per entry. Circles '
    yield "are searches by codes only, squares are searches with 100 rescored candidates, and the dashed line is the "
    yield "target. The filled mark is the recommended configuration.</figcaption></figure>"
    titles = ["Code", "Bytes", "Recall@1", "@10", "@100", "@10, 40 rescored", "100", "400", "ms"]
    yield from table_rows("numbers", titles, [_row(one) for one in found.candidates])
    if found.stored:
        yield f"<p>{escape(STORED_WORDS)}</p>"
        titles = ["Stored as", "Resident bytes", "Bytes on disk", "Recall@10", "ms"]
        rows = [[escape(one.name), *stored_numbers(one), f"{one.milliseconds:.2f}"] for one in found.stored]
        yield from table_rows("numbers", titles, rows)
    if found.extrapolated:
        yield f"<p>Expected among {found.n_signals:,} entries:</p>"
        titles = ["Code", "Recall@10", "40 rescored", "100", "400"]
        rows = [[escape(one.name), *(_share(option.expected) for option in one.options)] for one in found.candidates]
        yield from table_rows("numbers", titles, rows)
    if found.false_alarms:
        yield '<h2 id="false-alarms">False alarms</h2>'
        yield (
            f"<p>Fraction of {found.n_judged:,} searches for held-out signals, in a sample of the entries, that have a "
            "match. If no held-out signal truly matches an entry, it should equal the false-alarm rate.</p>"
        )
        titles = ["P-values", *(f"at {level:g}" for level in found.levels)]
        rows = [[escape(row.null), *(f"{rate:.3f}" for rate in row.rates)] for row in found.false_alarms]
        yield from table_rows("numbers", titles, rows)
        if (advice := found.false_alarm_advice()) is not None:
            yield f"<p>{escape(advice)}</p>"


def stored_numbers(one: Option) -> list[str]:
    """Return the bytes and the recall of an option as a stored index."""
    return [f"{one.bytes_per_entry:.0f}", f"{one.disk_bytes:.0f}", f"{one.measured.share:.3f}"]


def recall_words(found: Evaluation) -> str:
    """Return the explanation of recall, bytes and times."""
    words = (
        f"For all codes, true neighbours are the entries with the {TRUTHS[found.metric]}. Recall is the fraction of "
        "them that is found, with 95% intervals over queries, by codes only and with candidates rescored by the "
        "original signals. Bytes per entry include all resident data: code, norm, scale and id, plus shared means and "
        "axes divided by the number of entries. Times are per query, in one batch on all threads, in the sample."
    )
    if found.extrapolated:
        nested = "" if found.n_nested is None else f", corrected by nested samples of {found.n_nested:,}"
        words += (
            f" Recall changes as entries are added. For {found.n_signals:,} entries it is extrapolated from fewer "
            f"neighbours in the sample, which are as dense there as 10 neighbours among all entries{nested}."
        )
    return words


def _row(one: Candidate) -> list[str]:
    plain = [_share(part) for part in one.recall] + [""] * (3 - len(one.recall))
    exact = [_share(option.measured) for option in one.options if option.factor is not None]
    times = [f"{option.milliseconds:.2f}" for option in one.options]
    shown = f"{times[0]}<span class='interval'>({', '.join(times[1:])})</span>"
    return [escape(one.name), f"{one.bytes_per_entry:.0f}", *plain, *exact, shown]


def _share(one: Recall) -> str:
    return f"{one.share:.3f}<span class='interval'>[{one.low:.3f}, {one.high:.3f}]</span>"


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
