"""Draw docs/_static/trellis.svg: a ring of nibbles, and the two nibbles that each step reads.

The values are those of a code of four bytes, decoded by the kernels.
"""

import sys
from pathlib import Path

import numpy as np
from draw_idea import FAINT, GREY, MINUS, PLUS, line, text

import topsign as ts

N_BYTES, N_FEATURES, SLOT, LEFT, TOP = 4, 24, 46, 175, 40


def main(path):
    signals = np.random.Generator(np.random.Philox(3)).integers(-9, 10, (1, N_FEATURES)).astype(np.float32)
    encoder = ts.Encoder(signals.shape[1], n_bytes=N_BYTES, basis="hadamard", center=False, random_state=7).fit(signals)
    recipe, codes = encoder.recipe_, encoder.encode(signals)
    first, coded = recipe.design.first, recipe.design.coded
    values = encoder.project(signals)[0][coded]
    decoded = recipe.levels(codes.data)[0] * recipe.design.values
    nibbles = [part for byte in codes.data[0, :N_BYTES] for part in (byte >> 4, byte & 15)]
    table = LEFT + len(nibbles) * SLOT + 20
    parts = [text(LEFT - 30, TOP + 4, f"ring of {len(nibbles)} nibbles", anchor="end", weight="bold")]
    for i, nibble in enumerate(nibbles):
        parts.append(text(LEFT + i * SLOT, TOP + 4, f"{nibble:04b}", size=15, colour=PLUS, anchor="middle"))
    for x, words in zip((0, 60, 220), ("row", "decoded", "original"), strict=True):
        parts.append(text(table + x, TOP + 4, words, size=13))
    for step in range(len(nibbles)):
        y, colour = TOP + 40 + 26 * step, MINUS if step % 2 else PLUS
        parts.append(text(LEFT - 30, y + 4, f"step {step + 1} reads", anchor="end", size=13))
        for at in {step, (step - 1) % len(nibbles)}:
            left = LEFT + (at - 0.5) * SLOT
            parts.append(line(left, y, left + SLOT, y, colour, width=7))
        parts.append(line(LEFT - SLOT / 2, y + 11, LEFT + (len(nibbles) - 0.5) * SLOT, y + 11, FAINT, width=0.5))
        own = slice(first[step], first[step + 1])
        shown = [f"{16 * nibbles[step - 1] + nibbles[step]}"]
        shown += [" ".join(f"{value:+.2f}" for value in row[own]) for row in (decoded, values)]
        for x, words in zip((0, 60, 220), shown, strict=True):
            parts.append(text(table + x, y + 4, words.replace("-", "−"), size=13, colour=GREY))
    size = f"{table + 370} {TOP + 50 + len(nibbles) * 26}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="sans-serif">'
    Path(path).write_text("\n".join([head, *parts, "</svg>", ""]))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "_static" / "trellis.svg")
