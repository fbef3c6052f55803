"""Self-contained HTML pages: style for light, dark, phone and print, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

# Light, dark. Okabe and Ito's hues, distinct for most eyes; every line has its own dashes and marker as well.
PALETTE = {
    "ink": ("#15181c", "#e8eaed"),
    "faint": ("#d3d7dc", "#3a4048"),
    "blue": ("#0072b2", "#5cb8f0"),
    "orange": ("#d55e00", "#ff9248"),
    "green": ("#00805c", "#35d0a0"),
    "pink": ("#b8558c", "#f09ac8"),
    "gold": ("#8f6a00", "#f0c540"),
    "grey": ("#5f6670", "#a8b0ba"),
}

_COLORS = {mode: "".join(f"--{name}:{pair[mode]};" for name, pair in PALETTE.items()) for mode in (0, 1)}

STYLE = (
    ":root{color-scheme:light dark;--page:#fff;--card:#f6f7f9;--good:#00663f;--bad:#a02800;"
    + _COLORS[0]
    + "}\n@media (prefers-color-scheme:dark){:root{--page:#14171b;--card:#1d2126;--good:#4fd69c;--bad:#ff9a78;"
    + _COLORS[1]
    + "}}\n@media print{:root{--page:#fff;--card:#fff;--good:#00663f;--bad:#a02800;"
    + _COLORS[0]
    + """}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,sans-serif}
main{max-width:66rem;margin:0 auto;padding:1rem 1.2rem 3rem}
h1{font-size:1.7rem;line-height:1.2;margin:1rem 0 .3rem}
h2{font-size:1.3rem;margin:2.6rem 0 .4rem;border-bottom:1px solid var(--faint);padding-bottom:.2rem}
p,figcaption,li{max-width:46rem}
a{color:var(--blue)}
.muted,figcaption,.interval,nav{color:var(--grey);font-size:.88rem}
nav a{margin-right:.9rem;white-space:nowrap}
.panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,21rem),1fr));gap:1rem}
figure{margin:.8rem 0;background:var(--card);border:1px solid var(--faint);border-radius:.5rem;padding:.7rem}
figure svg{display:block;width:100%;max-width:34rem;height:auto;margin:0 auto}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;margin:.6rem 0;font-size:.92rem;font-variant-numeric:tabular-nums}
th,td{padding:.4rem .55rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--faint)}
thead th{border-bottom:2px solid var(--grey)}
.numbers td:not(:first-child),.numbers th:not(:first-child){text-align:right;white-space:nowrap}
tr.ours td:first-child{padding-left:1.1rem}
tr.group th{background:var(--card);font-weight:600;text-align:left!important}
.interval{display:block;white-space:nowrap}
.yes{color:var(--good);font-weight:650;white-space:nowrap}
.no{color:var(--bad);font-weight:650;white-space:nowrap}
pre{background:var(--card);border:1px solid var(--faint);border-radius:.5rem;padding:.6rem;overflow-x:auto}
pre{font-size:.85rem}
code{font-size:.85em;overflow-wrap:anywhere}
@media (max-width:40rem){
.cards thead{display:none}
.cards tr{display:block;border:1px solid var(--faint);border-radius:.5rem;margin:.7rem 0;padding:.3rem .6rem}
.cards td{display:block;border:0;padding:.15rem 0}
.cards td::before{content:attr(data-label) " ";color:var(--grey);font-size:.82rem}
}
@media print{main{max-width:none;padding:0}figure,tr{break-inside:avoid}p{break-inside:avoid}h2,h2~p{break-after:avoid}
.scroll{overflow:visible}pre{white-space:pre-wrap}table{font-size:.72rem}.interval{font-size:inherit}}
"""
)


def document(title: str, body: Iterable[str]) -> str:
    """Return a complete HTML page without external resources."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title>'
        f"<style>\n{STYLE}</style></head>\n<body><main>\n" + "\n".join(body) + "\n</main></body></html>\n"
    )


def table_rows(kind: str, titles: list[str], rows: Iterable[list[str] | str]) -> Iterator[str]:
    """Yield the HTML of a table; the kind "cards" shows one card per row on narrow screens.

    A row that is a string is a title of the following rows.
    """
    yield f'<div class="scroll"><table class="{kind}">'
    if any(titles):
        yield "<thead><tr>" + "".join(f"<th>{escape(title)}</th>" for title in titles) + "</tr></thead>"
    yield "<tbody>"
    for row in rows:
        if isinstance(row, str):
            yield f'<tr class="group"><th colspan="{len(titles)}">{escape(row)}</th></tr>'
            continue
        cells = zip(titles, row, strict=True)
        yield "<tr>" + "".join(f'<td data-label="{escape(title)}">{cell}</td>' for title, cell in cells) + "</tr>"
    yield "</tbody></table></div>"
