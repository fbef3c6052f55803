"""The report as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from typing import Any

import numpy as np

from .._page import document, table_rows
from .curve import Curve
from .distortion import Distortion
from .energy import Energy
from .errata import Erratum
from .roc import AUTHORS_STORAGE, N_BITS, STORAGE, Detection, Roc
from .table import Table, TableCell
from .three_party import ThreeParty
from .verdicts import RULE, Claim, count_outcomes

Figures = Mapping[str, str]

NOT_DIGITISED = "The paper publishes curves without numbers: they are not comparable point by point, and not drawn"


def render(
    parts: Mapping[str, Any],
    claims: Iterable[Claim],
    figures: Figures,
    conditions: Mapping[str, str],
    files: Iterable[str],
) -> str:
    """The whole page; parts that were not run are left out."""
    sections: dict[str, tuple[str, Callable[[Any, Figures], Iterator[str]]]] = {
        "curve": ("Figure 1: a signal and its reference", _curve),
        "three-party": ("Figure 2: two other signals", _three_party),
        "roc": ("Figure 3: detecting weak matches", _roc),
        "table": ("Table I: the head of a network", _table),
        "distortion": ("Many signals: how many bits", _distortion),
        "energy": ("Beyond the paper: energy against rate", _energy),
        "errata": ("Errata", _errata),
    }
    shown = {name: section for name, section in sections.items() if name in parts}
    links = {"verdicts": "Verdicts", **{name: title.split(":")[0] for name, (title, _) in shown.items()}}
    links |= {"conditions": "Conditions", "files": "Files"}
    body = [
        "<h1>Binary adaptive embeddings, reproduced</h1>",
        "<p>Every figure and the table of “Binary adaptive embeddings from order statistics of random projections” "
        "(D. Valsesia and E. Magli, IEEE Signal Processing Letters 24(1), 2017; arXiv 1701.08511), computed again by "
        "<strong>topsign</strong> beside exact theory, and what the paper gets wrong.</p>",
        "<nav>" + " ".join(f'<a href="#{name}">{escape(title)}</a>' for name, title in links.items()) + "</nav>",
        '<h2 id="verdicts">Verdicts</h2>',
        *_verdicts(claims),
    ]
    for name, (title, section) in shown.items():
        body += [f'<h2 id="{name}">{escape(title)}</h2>', *section(parts[name], figures)]
    body += ['<h2 id="conditions">Conditions</h2>', *_conditions(conditions)]
    body += ['<h2 id="files">Files</h2>', "<p>The numbers behind every figure, and the figures as pictures.</p><ul>"]
    body += [f'<li><a href="{escape(file)}">{escape(file)}</a></li>' for file in files]
    return document("Binary adaptive embeddings, reproduced", [*body, "</ul>"])


MARKS = {
    "reproduced": '<span class="yes">✓ reproduced</span>',
    "not reproduced": '<span class="no">✗ not reproduced</span>',
    "inconclusive": '<span class="muted">? inconclusive</span>',
    "not comparable": '<span class="muted">– not comparable</span>',
}


def _verdicts(claims: Iterable[Claim]) -> Iterator[str]:
    claims = list(claims)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in count_outcomes(claims).items())
    rows = [
        [f"{escape(one.claim)} <span class='muted'>({escape(one.where)})</span>", MARKS[one.outcome], *_texts(one)]
        for one in claims
    ]
    yield f"<p><strong>{len(claims)} claims: {counts}.</strong> ± is one standard error. {escape(RULE)}</p>"
    yield from table_rows("cards", ["Claim of the paper", "Verdict", "Ours", "Theirs"], rows)


def _texts(one: Claim) -> list[str]:
    return [escape(one.ours), escape(one.theirs)]


def _curve(found: Curve, figures: Figures) -> Iterator[str]:
    worst = max(
        np.abs(one.deviations).max() for one in (found.adaptive, found.signs, *(o.points for o in found.others))
    )
    yield (
        f"<p>Unit-norm signals of {found.n_features} features at a known inner product with the reference; "
        f"{found.n_draws} draws, each with fresh signals and a fresh Gaussian matrix. "
        f"{NOT_DIGITISED}; its bound is.</p>"
    )
    yield from _panels(
        figures,
        {
            "curve": "Measured points lie on the exact curve, and the adaptive curve is steeper than that of sign "
            "projections on both sides of zero. The printed bound lies below the exact distance for every negative "
            "inner product and far above it for positive ones. The corrected bound covers the exact curve up to 0.7.",
            "curve-pools": "The smaller the share of the pool that is kept, the steeper the curve: 50 of 5000, then "
            "800 of 10000, then 800 of 5000. The largest deviation of any point from theory, in both panels, is "
            f"{worst:.1f} standard errors.",
        },
    )


def _three_party(found: ThreeParty, figures: Figures) -> Iterator[str]:
    worst = max(np.abs(pair.points.deviations).max() for pair in found.pairs)
    yield (
        "<p>Two signals, neither of them the reference, at the same inner product with it; distances between their "
        f"codes. {found.n_draws} draws. {NOT_DIGITISED}; its formula is.</p>"
    )
    caption = (
        "Distances between two other signals still fall with their inner product, but less the closer both are to the "
        "reference (lines are labelled by that inner product). The printed formula, dotted in the same colours, lies "
        "far below the measured points, by half for an orthogonal reference. The largest deviation from exact theory "
        f"is {worst:.1f} standard errors."
    )
    yield from _panels(figures, {"three-party": caption})


def _roc(found: Roc, figures: Figures) -> Iterator[str]:
    impostors = found.n_matches * (found.n_references - 1)
    yield (
        f"<p>n = M = {found.n_features}, m = {found.n_bits}; a match is its reference u of unit norm in noise, "
        f"u + {found.noise} N(0, I), at an expected correlation of {found.correlation:.4f}; impostors are independent. "
        f"{found.n_matches:,} matches and {impostors:,} impostor pairs, with a fresh random matrix for every "
        f"{found.n_references:,} matches; all detectors see the same signals. The Gaussian pool is the paper's. "
        f"Universal codes have step 2 and no dither, as in the authors' demonstration. {NOT_DIGITISED}; "
        "only their order is compared.</p>"
    )
    yield from _panels(
        figures,
        {
            "roc": "Adaptive codes detect best after uncompressed signals, and entries that adapt give the same curve "
            f"as queries that adapt. Codes of {STORAGE} bits have equal storage, those of {N_BITS} bits equal "
            "computation. Broad pale lines are exact theory, thin lines measured, and points have bars of two standard "
            "errors.",
            "roc-log": "The same curves with a logarithmic axis, which shows rare false alarms. The authors' "
            f"demonstration gives sign projections {AUTHORS_STORAGE} bits, fewer than equal storage allows.",
        },
    )
    caption = (
        "A real-valued query and an orthonormal pool each improve detection at the same storage; together they also "
        "beat sign codes with a real-valued query."
    )
    yield from _panels(figures, {"roc-library": caption})
    wanted = [int(np.flatnonzero(found.levels == level)[0]) for level in (0.1, 0.01, 0.001)]
    titles = ["Detector", "Bits per entry", "AUC", "Pd at Pfa 0.1", "Pd at 0.01", "Pd at 0.001"]

    def row(one: Detection) -> list[str]:
        low, high = one.interval_at_levels(found.n_matches)
        reach = 1.959964 * one.auc_error
        area = _measured(one.auc, one.auc - reach, min(1.0, one.auc + reach), one.exact_auc, 4)
        cells = [_measured(one.at_levels[i], low[i], high[i], one.exact_at_levels[i], 3) for i in wanted]
        return [escape(one.name), f"{one.stored_bits:,}", area, *cells]

    paper = [row(one) for one in found.detections if not one.ours]
    ours = [row(one) for one in found.detections if one.ours]
    yield "<p>Measured, with its 95% interval (it allows for signals that many pairs share), and exact.</p>"
    yield from _grouped(titles, {"in the paper": paper, "the library's own": ours})


def _measured(value: float, low: float, high: float, exact: float, digits: int) -> str:
    return (
        f"{value:.{digits}f}<span class='interval'>[{low:.{digits}f}, {high:.{digits}f}]</span>"
        f"<span class='interval'>exact {exact:.{digits}f}</span>"
    )


def _table(found: Table, figures: Figures) -> Iterator[str]:
    yield (
        f"<p>Percentage points of accuracy lost against the uncompressed head ({found.accuracy:.2f}% of "
        f"{found.n_images:,} CIFAR-10 test images), mean over {found.n_seeds} seeds of the projection ± its standard "
        f"error; {found.n_pool} Gaussian projections in the pool. Below each, what the paper prints: its drop, its "
        f"accuracy against {found.published_accuracy:.2f}% uncompressed, and its number of bits where that differs. "
        "<strong>The network and the copy of the data are ours, so accuracies do not compare with the paper’s: drops "
        "do.</strong> The paper prints no errors; one image of 10,000 is 0.01 points. Equal computation is as many "
        "projections as the adaptive code keeps, equal storage as many bits as it takes with its locations. The "
        "universal embedding’s step is the best on every tenth image over at most five seeds (the paper’s, 180, "
        "belongs to signals of another scale); its loss is that of the other images. It has no dither, as in the "
        "authors’ demonstration: with one it lost 5.03 points at 128 bits, where the paper prints 0.54.</p>"
    )

    caption = (
        "Filled marks are ours with bars of two standard errors, open marks the values that the paper prints; the axis "
        "is linear below half a point. At equal computation the two agree except for sign projections at 128; at equal "
        "storage all methods are close."
    )
    yield from _panels(figures, {"table": caption})

    def cell(one: TableCell) -> str:
        digits = 2 if one.lost < 10 else 1
        text = f"{round(one.lost, digits) + 0.0:.{digits}f} ± {one.standard_error:.{digits}f}"  # no minus zero
        if one.published is not None:
            size = "" if one.published.n_bits == one.n_bits else f" at {one.published.n_bits}"
            text += (
                f"<span class='interval'>paper {one.published.lost:.2f} ({one.published.accuracy:.2f}%){size}</span>"
            )
        return text + ("" if one.step is None else f"<span class='interval'>step {one.step:g}</span>")

    stored = [one.storage for one in found.of("adaptive").cells]
    titles = ["Kept of the pool (bits with locations)"]
    titles += [f"{kept} ({bits})" for kept, bits in zip(found.kept, stored, strict=True)]
    rows = {
        group: [[escape(row.method), *map(cell, row.cells)] for row in found.rows if row.ours == ours]
        for group, ours in (("in the paper", False), ("the library's own", True))
    }
    yield from _grouped(titles, rows)


def _distortion(found: Distortion, figures: Figures) -> Iterator[str]:
    yield (
        "<p>The paper states without constants that m = O(δ⁻² log N) bits keep every distance among N signals within δ "
        "of its expectation. <code>theory.bits_for_distortion</code> gives the number: sufficient bits by a union "
        "bound over the pairs, each with the largest tail of a binomial count, with Hoeffding’s bound in brackets. All "
        f"distances hold together with probability {1 - found.failure:g}. Measured: {found.n_draws} draws of "
        f"{found.n_signals} signals at δ = {found.distortion:g} and {found.n_bits} bits, of which {found.n_failures} "
        f"had a pair that strayed further; the largest deviation was {found.largest:.3f}.</p>"
    )
    titles = ["δ", *(f"N = {n:,}" for n in found.needed[0].n_signals)]
    rows = [
        [
            f"{one.distortion:g}",
            *(
                f"{bits:,} <span class='muted'>({hoeffding:,})</span>"
                for bits, hoeffding in zip(one.n_bits, one.hoeffding_bits, strict=True)
            ),
        ]
        for one in found.needed
    ]
    yield from table_rows("numbers", titles, rows)


def _energy(found: Energy, figures: Figures) -> Iterator[str]:
    yield (
        "<p>How good can any code of so few bits be? For white signals the paper’s code, m signs and their locations "
        "at m + log₂ C(M, m) bits, is the best entropy-coded scalar quantiser up to about one bit per dimension: a "
        "second or third level of magnitude gains nothing below 0.8 bits and 0.004% of the energy at 1. It is a "
        "permutation code of Berger’s second variant. The detection index d′ of a real-valued query is the square root "
        "of the share times that of uncompressed signals.</p>"
    )
    caption = (
        "Up to half a bit per dimension the code captures more energy than an ideal vector quantiser that spends one "
        "bit on each of a part of the dimensions, and it is above plain signs everywhere. Only vector quantisers can "
        "come closer to Shannon’s limit."
    )
    yield from _panels(figures, {"energy": caption})
    titles = ["Bits per dimension", "Shannon", "This code", "Two levels", "Signs of a subspace"]
    shannon, signs = (np.interp(found.shown, found.rate, line) for line in (found.shannon, found.signs))
    columns = [shannon, *found.by_levels, signs]
    rows = [[f"{rate:g}", *(f"{column[i]:.4f}" for column in columns)] for i, rate in enumerate(found.shown)]
    yield from table_rows("numbers", titles, rows)


def _errata(found: list[Erratum], figures: Figures) -> Iterator[str]:
    yield "<p>The printed formulas are kept in <code>topsign.paper.printed</code>; each test shows where one fails.</p>"
    rows = [
        [
            escape(one.where),
            escape(one.printed),
            escape(one.correct),
            f"{escape(one.example)}: <strong>{one.printed_value:.4g}</strong> printed, "
            f"<strong>{one.correct_value:.4g}</strong> right",
            f"<code>{escape(one.test)}</code>",
        ]
        for one in found
    ]
    yield from table_rows("cards", ["Where", "Printed", "Correct", "A number", "Test"], rows)


def _conditions(conditions: Mapping[str, str]) -> Iterator[str]:
    yield from table_rows("", ["", ""], [[escape(name), escape(value)] for name, value in conditions.items()])


def _panels(figures: Figures, captions: Mapping[str, str]) -> Iterator[str]:
    yield '<div class="panels">'
    for name, caption in captions.items():
        yield f'<figure id="figure-{name}">{figures[name]}<figcaption>{escape(caption)}</figcaption></figure>'
    yield "</div>"


def _grouped(titles: list[str], groups: Mapping[str, list[list[str]]]) -> Iterator[str]:
    yield '<div class="scroll"><table class="numbers"><thead><tr>'
    yield "".join(f"<th>{escape(title)}</th>" for title in titles) + "</tr></thead><tbody>"
    for name, rows in groups.items():
        yield f'<tr class="group"><th colspan="{len(titles)}">{escape(name)}</th></tr>'
        for row in rows:
            yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"
    yield "</tbody></table></div>"
