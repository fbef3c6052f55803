"""Made the files beside it with topsign 0.1.0; run again only to make files of a new format, in a folder of its own.

    python tests/data/v1/make.py FOLDER

Signals are whole numbers from a formula, so that any version and any language can make them again.
"""

import json
import sys
from pathlib import Path

import numpy as np

import topsign as ts

N_FEATURES = 48


def signals(n_signals):
    rows, columns = np.indices((n_signals, N_FEATURES))
    return ((rows * 7919 + columns * 104_729 + rows * columns * 31) % 201 - 100).astype(np.float32)


def queries():
    return signals(3) + 0.25 * signals(40)[[30, 31, 32]]


def fill(index):
    """Two segments, removed entries, ids that are not in order, metadata."""
    index.add(signals(40), ids=np.arange(40)[::-1] * 3, metadata=[{"row": i} if i % 2 else None for i in range(40)])
    index.add(signals(45)[40:])
    index.remove([3, 57, 118])


def answers(index):
    found = {}
    for scoring in ("asymmetric", "hamming"):
        nearest = index.search(queries(), k=4, scoring=scoring)
        found[scoring] = {
            "ids": nearest.ids.tolist(),
            "distances": nearest.distances.tolist(),
            "scores": nearest.scores.astype(float).tolist(),
        }
    entries = index.get([0, 9, 119])
    return found | {"ids": index.ids.tolist(), "metadata": entries.metadata}


def make(name, path):
    """Return an index without entries in a new folder."""
    adaptive = {"n_features": N_FEATURES, "n_bits": 16, "random_state": 7}
    made = {
        "compact": lambda: ts.AdaptiveIndex(**adaptive, path=path),
        "fast": lambda: ts.AdaptiveIndex(**adaptive, layout="fast", metric="inner_product", path=path),
        "signs": lambda: ts.SignIndex(n_features=N_FEATURES, norms=False, random_state=7, path=path),
    }
    return made[name]()


def main():
    folder, expected = Path(sys.argv[1]), {}
    for name in ("compact", "fast", "signs"):
        index = make(name, folder / f"{name}.topsign")
        fill(index)
        expected[name] = answers(index)
        index.close()
        (folder / f"{name}.topsign" / "lock").unlink()  # made again by the first change
    (folder / "answers.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
