"""Report of the reproduction as one self-contained HTML page."""

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

NOT_DIGITISED = "The paper's curves have no published values, so they are not drawn or compared point by point"


def render(
    parts: Mapping[str, Any],
    claims: Iterable[Claim],
    figures: Figures,
    conditions: Mapping[str, str],
    files: Iterable[str],
) -> str:
    """Return the page; parts that were not run are omitted."""
    sections: dict[str, tuple[str, Callable[[Any, Figures], Iterator[str]]]] = {
        "curve": ("Figure 1: distance to the reference", _curve),
        "three-party": ("Figure 2: distance between two other signals", _three_party),
        "roc": ("Figure 3: detection of weak matches", _roc),
        "table": ("Table I: compression of a network's head", _table),
        "distortion": ("Many signals: number of bits", _distortion),
        "energy": ("Beyond the paper: energy against rate", _energy),
        "errata": ("Errata", _errata),
    }
    shown = {name: section for name, section in sections.items() if name in parts}
    links = {"verdicts": "Verdicts", **{name: title.split(":")[0] for name, (title, _) in shown.items()}}
    links |= {"conditions": "Conditions", "files": "Files"}
    body = [
        "<h1>Binary adaptive embeddings, reproduced</h1>",
        "<p>The three figures and the table of “Binary adaptive embeddings from order statistics of random "
        "projections” (D. Valsesia and E. Magli, IEEE Signal Processing Letters 24(1), 2017; arXiv 1701.08511), "
        "computed with <strong>topsign</strong> and compared with exact theory, followed by the paper’s errata.</p>",
        "<nav>" + " ".join(f'<a href="#{name}">{escape(title)}</a>' for name, title in links.items()) + "</nav>",
        '<h2 id="verdicts">Verdicts</h2>',
        *_verdicts(claims),
    ]
    for name, (title, section) in shown.items():
        body += [f'<h2 id="{name}">{escape(title)}</h2>', *section(parts[name], figures)]
    body += ['<h2 id="conditions">Conditions</h2>', *_conditions(conditions)]
    body += ['<h2 id="files">Files</h2>', "<p>The data of all parts as JSON, and the figures as PNG.</p><ul>"]
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
        f"<p>Unit-norm signals of {found.n_features} features with a known inner product with the reference; "
        f"{found.n_draws} draws, each with new signals and a new Gaussian matrix. "
        f"{NOT_DIGITISED}. The printed bound is drawn.</p>"
    )
    yield from _panels(
        figures,
        {
            "curve": "Measured points lie on the exact curve. The adaptive curve is steeper than the curve of sign "
            "projections on both sides of zero. The printed bound lies below the exact distance for all negative "
            "inner products and far above it for positive ones. The corrected bound lies on the exact curve up to 0.7.",
            "curve-pools": "The curve is steeper if a smaller fraction of the pool is kept: 50 of 5000 is the "
            "steepest, followed by 800 of 10000 and 800 of 5000. Over both panels, the largest deviation of a measured "
            f"point from theory is {worst:.1f} standard errors.",
        },
    )


def _three_party(found: ThreeParty, figures: Figures) -> Iterator[str]:
    worst = max(np.abs(pair.points.deviations).max() for pair in found.pairs)
    yield (
        "<p>Hamming distances between the codes of two signals that have the same inner product with the reference; "
        f"{found.n_draws} draws. {NOT_DIGITISED}. The printed formula is drawn.</p>"
    )
    caption = (
        "The distance between two signals falls as their inner product grows, and falls more slowly if both are closer "
        "to the reference (the legend gives their inner product with it). The printed formula (dotted, same colours) "
        "lies far below the measured points; for an orthogonal reference it gives half the measured distance. The "
        f"largest deviation of a measured point from exact theory is {worst:.1f} standard errors."
    )
    yield from _panels(figures, {"three-party": caption})


def _roc(found: Roc, figures: Figures) -> Iterator[str]:
    impostors = found.n_matches * (found.n_references - 1)
    yield (
        f"<p>n = M = {found.n_features}, m = {found.n_bits}. A match is its reference u of unit norm plus noise, "
        f"u + {found.noise} N(0, I), with an expected correlation of {found.correlation:.4f}; impostors are "
        f"independent. There are {found.n_matches:,} matches and {impostors:,} impostor pairs, with a new random "
        f"matrix for every {found.n_references:,} matches, and all detectors use the same signals. The pool is "
        f"Gaussian, as in the paper. Universal codes have step 2 and no dither, as in the authors' demonstration. "
        f"{NOT_DIGITISED}; only their order is compared.</p>"
    )
    yield from _panels(
        figures,
        {
            "roc": "Adaptive codes detect more matches than all other codes, and fewer than uncompressed signals. "
            "Adapting to entries or to queries gives the same curve. Sign and universal codes are shown with "
            f"{STORAGE} bits (equal storage) and with {N_BITS} bits (equal computation). Wide pale lines are exact "
            "theory, thin lines are measured, and error bars are two standard errors.",
            "roc-log": "The same curves with a logarithmic axis, for small false-alarm rates. The authors' "
            f"demonstration uses {AUTHORS_STORAGE} sign projections as its baseline, fewer than equal storage allows.",
        },
    )
    caption = (
        "Beyond the paper. At equal storage, a real-valued query improves detection, and so does an orthonormal "
        "(Hadamard) pool. With both, adaptive codes also detect more than sign codes with a real-valued query. Grouped "
        "codes, which keep the largest of every eight projections, detect as much as adaptive codes whose locations "
        f"are counted with the bits of their entropy, {STORAGE}; as stored, adaptive codes take a tenth more bytes."
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
    yield (
        "<p>Measured values with 95% intervals, and exact values. The intervals account for the dependence between "
        "pairs that share a signal.</p>"
    )
    yield from _sections(titles, {"in the paper": paper, "beyond the paper": ours})


def _measured(value: float, low: float, high: float, exact: float, digits: int) -> str:
    return (
        f"{value:.{digits}f}<span class='interval'>[{low:.{digits}f}, {high:.{digits}f}]</span>"
        f"<span class='interval'>exact {exact:.{digits}f}</span>"
    )


def _table(found: Table, figures: Figures) -> Iterator[str]:
    yield (
        f"<p>Percentage points of accuracy lost compared with the uncompressed head (accuracy {found.accuracy:.2f}% on "
        f"{found.n_images:,} CIFAR-10 test images): mean over {found.n_seeds} seeds of the projection ± its standard "
        f"error. The pool has {found.n_pool} Gaussian projections. Below each value are the paper’s drop, its accuracy "
        f"({found.published_accuracy:.2f}% uncompressed), and its number of bits if it differs from ours. "
        "<strong>The network and the copy of the data are ours, so drops can be compared with the paper’s, but "
        "accuracies cannot.</strong> The paper prints no standard errors; one image of 10,000 is 0.01 points. “Equal "
        "computation” means as many projections as the adaptive code keeps, and “equal storage” as many bits as the "
        "adaptive code takes including its locations. The universal embedding’s step is the best on every tenth image "
        "over at most five seeds (the paper’s step, 180, is for signals of another scale), and its loss is measured on "
        "the other images. It has no dither, as in the authors’ demonstration; with dither it lost 5.03 points at 128 "
        "bits, and the paper reports 0.54.</p>"
    )

    caption = (
        "Filled marks are our values with error bars of two standard errors, and open marks are the paper’s values. "
        "The vertical axis is linear below half a point. At equal computation both agree except for sign projections "
        "at 128 bits. At equal storage our losses are smaller than the paper’s, and all methods are close. Grouped "
        "codes are beyond the paper; they take at most the bits of the adaptive codes."
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
    titles = ["Projections kept (bits with locations)"]
    titles += [f"{kept} ({bits})" for kept, bits in zip(found.kept, stored, strict=True)]
    rows = {
        group: [[escape(row.method), *map(cell, row.cells)] for row in found.rows if row.ours == ours]
        for group, ours in (("in the paper", False), ("beyond the paper", True))
    }
    yield from _sections(titles, rows)


def _distortion(found: Distortion, figures: Figures) -> Iterator[str]:
    yield (
        "<p>The paper states, without constants, that m = O(δ⁻² log N) bits keep all distances among N signals within "
        "δ of their expectations. <code>theory.bits_for_distortion</code> computes a sufficient number of bits by a "
        "union bound over the pairs, with the largest tail of a binomial count for each pair; the number by "
        "Hoeffding’s inequality is in brackets. All distances are within δ simultaneously with probability at least "
        f"{1 - found.failure:g}. In {found.n_draws} draws of {found.n_signals} signals with δ = {found.distortion:g} "
        f"and {found.n_bits} bits, {found.n_failures} draws had a pair that deviated by more than δ; the largest "
        f"deviation was {found.largest:.3f}.</p>"
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
        "<p>How good can a code with so few bits be? For white signals, the paper’s code (m signs and their locations, "
        "m + log₂ C(M, m) bits) is the best entropy-coded scalar quantiser up to about one bit per dimension: a second "
        "or third magnitude level captures no more energy below 0.8 bits, and 0.004% more at 1 bit. It is a "
        "permutation code of Berger’s second variant. The detectability index d′ of a real-valued query is the square "
        "root of the captured fraction times the index of uncompressed signals.</p>"
    )
    caption = (
        "Up to half a bit per dimension, adaptive codes capture more energy than an ideal vector quantiser that spends "
        "one bit per dimension on a subset of the dimensions. They capture more than plain signs at all rates. Only "
        "vector quantisers can come closer to Shannon’s limit; grouped codes, which quantise eight dimensions jointly, "
        "do so around half a bit, at which their pool has one projection per dimension."
    )
    yield from _panels(figures, {"energy": caption})
    titles = ["Bits per dimension", "Shannon", "Adaptive", "Two levels", "Grouped", "Signs of a subspace"]
    shannon, signs = (np.interp(found.shown, found.rate, line) for line in (found.shannon, found.signs))
    columns = [shannon, *found.by_levels, found.grouped_shown, signs]
    rows = [[f"{rate:g}", *(f"{column[i]:.4f}" for column in columns)] for i, rate in enumerate(found.shown)]
    yield from table_rows("numbers", titles, rows)


def _errata(found: list[Erratum], figures: Figures) -> Iterator[str]:
    yield "<p>The module <code>topsign.paper.printed</code> has the printed formulas; each test shows one failing.</p>"
    rows = [
        [
            escape(one.where),
            escape(one.printed),
            escape(one.correct),
            f"{escape(one.example)}: <strong>{one.printed_value:.4g}</strong> printed, "
            f"<strong>{one.correct_value:.4g}</strong> correct",
            f"<code>{escape(one.test)}</code>",
        ]
        for one in found
    ]
    yield from table_rows("cards", ["Where", "Printed", "Correct", "Example", "Test"], rows)


def _conditions(conditions: Mapping[str, str]) -> Iterator[str]:
    yield from table_rows("", ["", ""], [[escape(name), escape(value)] for name, value in conditions.items()])


def _panels(figures: Figures, captions: Mapping[str, str]) -> Iterator[str]:
    yield '<div class="panels">'
    for name, caption in captions.items():
        yield f'<figure id="figure-{name}">{figures[name]}<figcaption>{escape(caption)}</figcaption></figure>'
    yield "</div>"


def _sections(titles: list[str], groups: Mapping[str, list[list[str]]]) -> Iterator[str]:
    yield '<div class="scroll"><table class="numbers"><thead><tr>'
    yield "".join(f"<th>{escape(title)}</th>" for title in titles) + "</tr></thead><tbody>"
    for name, rows in groups.items():
        yield f'<tr class="group"><th colspan="{len(titles)}">{escape(name)}</th></tr>'
        for row in rows:
            yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"
    yield "</tbody></table></div>"
