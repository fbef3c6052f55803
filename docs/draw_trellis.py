"""Draw docs/_static/trellis.svg: a ring of bits and the overlapping windows that the coordinates read.

The values are the first eight coordinates of a code of 24 bits, decoded by the kernels.
"""

import sys
from pathlib import Path

import numpy as np
from draw_idea import FAINT, GREY, MINUS, PLUS, line, text

import topsign as ts

N_SHOWN, SLOT, LEFT, TOP = 8, 22, 165, 40


def main(path):
    signals = np.random.Generator(np.random.Philox(3)).integers(-9, 10, (1, 16)).astype(np.float32)
    encoder = ts.TrellisEncoder(3, basis="hadamard", center=False, window=6, random_state=7).fit(signals)
    codes = encoder.encode(signals)
    bits, levels = np.unpackbits(codes.data[0]), codes.levels[0]
    offsets = encoder.recipe_.designs[0].offsets
    values = encoder.project(signals)[0][encoder.recipe_.designs[0].coded]
    step = float(encoder.recipe_.designs[0].amplitudes[0] / np.sqrt((levels.astype(float) ** 2).mean()))
    width, height = LEFT + 24 * SLOT + 230, TOP + 40 + N_SHOWN * 26 + 10
    parts = [text(LEFT - 22, TOP + 4, "ring of 24 bits", anchor="end", weight="bold")]
    for i, bit in enumerate(bits):
        parts.append(text(LEFT + i * SLOT, TOP + 4, str(bit), size=15, colour=PLUS if bit else MINUS, anchor="middle"))
    parts.append(text(LEFT + 24 * SLOT + 30, TOP + 4, "level", size=13))
    parts.append(text(LEFT + 24 * SLOT + 90, TOP + 4, "decoded", size=13))
    parts.append(text(LEFT + 24 * SLOT + 160, TOP + 4, "original", size=13))
    for i in range(N_SHOWN):
        y, start = TOP + 40 + 26 * i, LEFT + int(offsets[i]) * SLOT - SLOT / 2
        parts.append(text(LEFT - 22, y + 4, f"coordinate {i + 1} reads", anchor="end", size=13))
        parts.append(line(start, y, start + 6 * SLOT, y, PLUS if levels[i] > 0 else MINUS, width=7))
        parts.append(line(LEFT - SLOT / 2, y + 11, LEFT + 23.5 * SLOT, y + 11, FAINT, width=0.5))
        shown = (f"{levels[i]:+d}", f"{levels[i] * step:+.2f}", f"{values[i] / np.sqrt((values**2).mean()):+.2f}")
        for x, words in zip((30, 90, 160), shown, strict=True):
            parts.append(text(LEFT + 24 * SLOT + x, y + 4, words.replace("-", "−"), size=13, colour=GREY))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">'
    Path(path).write_text("\n".join([head, *parts, "</svg>", ""]))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "_static" / "trellis.svg")
