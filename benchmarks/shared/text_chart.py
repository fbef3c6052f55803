"""The chart of recall against bytes on text."""

import matplotlib.pyplot as plt

from shared.text_page import recalls, sizes_of

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#555555"
PANELS = {
    "Trained on the vectors": {
        "trellis, 16 local bases": (BLUE, "-", "o"),
        "residual quantiser": (ORANGE, "--", "D"),
        "trellis, principal axes": (GREEN, "-", "s"),
        "OPQ": ("#CC79A7", "--", "^"),
        "PCA + ITQ": (GREY, "--", "v"),
        "PQ, FAISS's score": ("#E69F00", ":", "P"),
        "PCA + RaBitQ, FAISS's score": ("#000000", ":", "x"),
    },
    "Not trained": {
        "trellis, random basis": (BLUE, "-", "o"),
        "sign": (GREY, "--", "v"),
        "adaptive": (GREEN, "-", "s"),
        "LSH, FAISS's score": ("#E69F00", ":", "P"),
    },
}


def text_chart(results):
    """Two panels, legends in the order of the curves."""
    found = recalls(results)
    sizes = sizes_of(results)
    figure, panels = plt.subplots(1, 2, figsize=(11, 5), layout="constrained", sharey=True)
    for axes, (title, codes) in zip(panels, PANELS.items(), strict=True):
        for code, (color, line, marker) in codes.items():
            points = sorted((size, recall) for (one, size), recall in found.items() if one == code)
            name = code.replace(", FAISS's score", " (FAISS's score)")
            axes.plot(*zip(*points, strict=True), color=color, ls=line, marker=marker, label=name)
        axes.set(xscale="log", xlabel="bytes per entry", title=title, ylim=(0.1, 1))
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right")
    panels[0].set_ylabel("recall@10")
    figure.suptitle("50,000 sentence embeddings of 384 features")
    return figure
