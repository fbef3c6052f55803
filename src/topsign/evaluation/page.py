"""The evaluation as one self-contained HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from .._page import document, table_rows
from .report import Candidate, Evaluation, Recall

WIDTH, HEIGHT, MARGIN, LABEL_WIDTH = 640, 320, 52, 24
MIDDLE = 'text-anchor="middle" fill="var(--ink)"'


def render(found: Evaluation, *, source: str = "signals.npy") -> str:
    """The page of an evaluation; ``source`` is the file that the commands name."""
    return document("topsign on your signals", _body(found, source))


def _body(found: Evaluation, source: str) -> Iterator[str]:
    held = "held out of them" if found.own_queries else "given"
    yield "<h1>topsign on your signals</h1>"
    yield (
        f"<p>{escape(source)}: {found.n_signals:,} signals of {found.n_features:,} features. Measured on a sample: "
        f"{found.n_entries:,} entries and {found.n_queries:,} queries {held}, in {found.seconds:.0f} s.</p>"
    )
    yield '<h2 id="recommendation">Recommendation</h2>'
    yield f"<p><strong>{escape(found.recommendation())}</strong></p>"
    yield f"<pre>{escape(found.command(source))}</pre><pre>{escape(found.python())}</pre>"
    if found.alternative() is not None:
        yield f"<p>{escape(str(found.alternative()))}</p>"
    if found.smaller is not None:
        yield f"<pre>{escape(found.smaller.command(source))}</pre>"
    yield '<h2 id="signals">The signals</h2>'
    yield f"<p>{escape(found.isotropy.sentence(found.n_features))}</p>"
    if found.notes:
        yield "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in found.notes) + "</ul>"
    yield '<h2 id="recall">Recall, bytes and time</h2>'
    yield (
        "<p>Share of the true nearest by correlation"
        + (" of centred signals (of the signals as they are, for trellis codes)" if found.center else "")
        + " that are found, with 95% bootstrap intervals over queries: by codes alone, and rescored by the original "
        "signals (100 candidates; 400 for the 100 nearest). Bytes per entry are all that are stored: code, norm, "
        "scale, id, and the share of means and axes, which all signals have in common. Times are per query, of one "
        "batch on all threads.</p>"
    )
    yield f'<figure id="figure-recall">{_chart(found)}<figcaption>Recall@10 against bytes per entry: circles are codes '
    yield "alone, squares rescored; filled marks are sign codes, pale ones trellis codes.</figcaption></figure>"
    titles = ["Code", "Bytes", "Recall@1", "@10", "@100", "Rescored@1", "@10", "@100", "ms (rescored)"]
    yield from table_rows("numbers", titles, [_row(one) for one in found.candidates])
    yield '<h2 id="p-values">P-values</h2>'
    yield (
        f"<p>Shares of {found.n_pairs:,} random pairs, none of which was learned from, with p-values below each level: "
        "they should be the level itself.</p>"
    )
    titles = ["Null", *(f"below {level:g}" for level in found.levels)]
    yield from table_rows(
        "numbers",
        titles,
        [[escape(row.null), *(f"{share:.2g}" for share in row.shares)] for row in found.calibration],
    )


def _row(one: Candidate) -> list[str]:
    plain = [_share(part) for part in one.recall] + [""] * (3 - len(one.recall))
    exact = [_share(part) for part in one.rescored] + [""] * (3 - len(one.rescored))
    times = f"{one.milliseconds:.2f}<span class='interval'>({one.rescored_milliseconds:.2f})</span>"
    return [escape(one.name), f"{one.bytes_per_entry:.0f}", *plain, *exact, times]


def _share(one: Recall) -> str:
    return f"{one.share:.3f}<span class='interval'>[{one.low:.3f}, {one.high:.3f}]</span>"


def _chart(found: Evaluation) -> str:
    """Recall@10 against bytes, as an SVG in the colours of the page."""
    largest = 1.08 * max(one.bytes_per_entry for one in found.candidates)

    def at(n_bytes: float, share: float) -> tuple[float, float]:
        x = MARGIN + (WIDTH - 2 * MARGIN) * n_bytes / largest
        return x, HEIGHT - MARGIN - (HEIGHT - 1.5 * MARGIN) * share

    parts = [f'<svg role="img" aria-label="recall against bytes" viewBox="0 0 {WIDTH} {HEIGHT}" font-size="12">']
    for share in (0, 0.25, 0.5, 0.75, 1):
        (left, y), (right, _) = at(0, share), at(largest, share)
        parts.append(f'<line x1="{left:.0f}" x2="{right:.0f}" y1="{y:.0f}" y2="{y:.0f}" stroke="var(--faint)"/>')
        parts.append(f'<text x="{left - 8:.0f}" y="{y + 4:.0f}" text-anchor="end" fill="var(--ink)">{share:g}</text>')
    for one in found.candidates:
        for recall, color, square in ((one.recall, "var(--blue)", False), (one.rescored, "var(--orange)", True)):
            share = next(part.share for part in recall if part.k == 10)
            x, y = at(one.bytes_per_entry, share)
            fill = {"sign": f'"{color}"', "trellis": f'"{color}" fill-opacity="0.45"'}.get(
                one.configuration.family, '"none"'
            )
            mark = (
                f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10"'
                if square
                else f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5.5"'
            )
            parts.append(f'{mark} fill={fill} stroke="{color}" stroke-width="2"/>')
    labelled = -math.inf
    for n_bytes in sorted(one.bytes_per_entry for one in found.candidates):
        x, y = at(n_bytes, 0)
        if x - labelled >= LABEL_WIDTH:
            labelled = x
            parts.append(f'<text x="{x:.0f}" y="{y + 18:.0f}" {MIDDLE}>{n_bytes:.0f}</text>')
    parts.append(f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT - 8}" {MIDDLE}>bytes per entry</text></svg>')
    return "".join(parts)
