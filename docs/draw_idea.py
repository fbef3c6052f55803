"""Draw docs/_static/idea.svg: projections of a signal, the largest of them, their signs, and another signal.

The values are computed with a Hadamard pool of 24 rows. Colours have medium lightness, so that they are legible on
light and on dark pages.
"""

import sys
from pathlib import Path

import numpy as np

import topsign as ts

N_POOL, N_BITS, SLOT, LEFT = 24, 6, 19, 12
WIDTH = 2 * LEFT + N_POOL * SLOT
GREY, FAINT, PLUS, MINUS = "#78818c", "#a3abb5", "#2f7ee0", "#d9730d"


def text(x, y, words, *, size=14, colour=GREY, anchor="start", weight="normal"):
    style = f'font-size="{size}" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{words}</text>'


def line(x1, y1, x2, y2, colour, *, width=1.0, dashes=""):
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" stroke-width="{width:g}"{dashed}/>'


def middle(slot):
    return LEFT + (slot + 0.5) * SLOT


def colour_of(value):
    return PLUS if value >= 0 else MINUS


def bars(values, kept, y, scale):
    """One bar a projection, the kept ones in the colour of their sign."""
    yield line(LEFT, y, WIDTH - LEFT, y, FAINT)
    for slot, value in enumerate(values):
        height = max(1.5, abs(value) * scale)
        colour, opacity = (colour_of(value), 1) if slot in kept else (FAINT, 0.55)
        shape = f'x="{middle(slot) - 6:g}" y="{y - height * (value >= 0):.1f}" width="12" height="{height:.1f}"'
        yield f'<rect {shape} rx="1.5" fill="{colour}" fill-opacity="{opacity}"/>'


def draw():
    rng = np.random.default_rng(35)
    signal = rng.standard_normal(N_POOL)
    query = 0.75 * signal + 0.66 * rng.standard_normal(N_POOL)
    encoder = ts.Encoder(N_POOL, family="adaptive", n_bits=N_BITS, random_state=7).fit(signal[np.newaxis])
    code = encoder.encode(signal)
    projected, other = (encoder.project(values)[0] / np.sqrt(N_POOL) * 3 for values in (signal, query))
    kept = dict(zip(code.locations[0].tolist(), code.signs[0].tolist(), strict=True))
    limit = min(abs(projected[slot]) for slot in kept)
    scale = 38 / max(np.abs(projected).max(), np.abs(other).max())
    parts = [text(LEFT, 18, "a pool of random projections of a signal", weight="600")]
    parts += [text(WIDTH - LEFT, 18, f"n_pool = {N_POOL}", size=13, anchor="end")]
    for side in (-1, 1):
        height = 68 + side * limit * scale * 0.985
        parts.append(line(LEFT, height, WIDTH - LEFT, height, GREY, dashes="3 4"))
    parts += bars(projected, kept, 68, scale)
    parts += [text(LEFT, 138, "the largest are kept: locations and signs", weight="600")]
    parts += [text(WIDTH - LEFT, 138, f"n_bits = {N_BITS}", size=13, anchor="end")]
    for slot, sign in kept.items():
        x, colour = middle(slot), colour_of(sign)
        parts.append(line(x, 68 + max(0, -projected[slot]) * scale + 3, x, 124, colour, dashes="2 3"))
        parts.append(f'<rect x="{x - 9:g}" y="150" width="18" height="22" rx="4" fill="{colour}"/>')
        parts.append(
            text(
                x,
                166.5,
                "+" if sign > 0 else "\N{MINUS SIGN}",
                size=16,
                colour="#ffffff",
                anchor="middle",
                weight="700",
            )
        )
        parts.append(text(x, 187, slot, size=12, anchor="middle"))
    parts += [text(LEFT, 222, "another signal, at those locations", weight="600")]
    parts += bars(other, kept, 272, scale)
    n_differ = int(code.mismatches(encoder.project(query))[0, 0])
    for slot, sign in kept.items():
        same = (other[slot] >= 0) == (sign > 0)
        parts.append(
            text(
                middle(slot),
                332,
                "=" if same else "≠",
                size=17,
                colour=colour_of(other[slot]),
                anchor="middle",
                weight="700",
            )
        )
    parts.append(text(LEFT, 356, f"{n_differ} of {N_BITS} signs differs: the distance is 1/{N_BITS}", size=14))
    described = f"{N_BITS} of {N_POOL} projections kept, compared with another signal: {n_differ} sign differs"
    size = f'viewBox="0 0 {WIDTH} 366" width="{WIDTH}" height="366"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif" role="img">'
    assert n_differ == 1, "the caption speaks of one"
    return "\n".join([head, f"<title>{described}</title>", *parts, "</svg>", ""])


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "_static" / "idea.svg")
    target.write_text(draw())
    print(f"wrote {target}")
