"""Charts of the generated pages."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from shared.detection_chart import detection_chart
from shared.text_chart import text_chart
from topsign.plots import plot_det, plot_tippett

COLORS = ("#0072B2", "#D55E00", "#CC79A7", "#009E73", "#555555", "#E69F00", "#56B4E9", "#000000", "#A0522D", "#7B68EE")
MARKERS = "osD^v<>Phx*dpX"


def draw(results, folder):
    """Draw every chart whose results exist."""
    folder.mkdir(parents=True, exist_ok=True)
    charts = {
        "search": ("search-512-8192-t1", search_chart),
        "scale": ("scale", scale_chart),
        "cameras": ("cameras", cameras_chart),
        "cameras_simulation": ("cameras_simulation", simulation_chart),
        "heads": ("paper", heads_chart),
        "camera_scores": ("cameras", scores_chart),
    }
    if {"detection", "trellis/detection"} <= results.keys():
        save(detection_chart(results["detection"], results["trellis/detection"]), folder / "detection.png")
    if {"text_embeddings", "trellis/text"} <= results.keys():
        save(text_chart(results), folder / "text_embeddings.png")
    if "cameras_simulation-1024" in results:
        simulation_tippett(results["cameras_simulation-1024"], folder)
    if "camera_evidence" in results:
        evidence_charts(results["camera_evidence"], folder)
    for file, (name, chart) in charts.items():
        if name in results:
            save(chart(results[name]), folder / f"{file}.png")


def save(figure, path):
    figure.savefig(path, dpi=130)
    plt.close(figure)


def simulation_chart(report):
    """Detection of simulated cameras against bytes, one panel for each number of photographs enrolled."""
    rows, options = report["measured"]["rows"], report["options"]
    counts = sorted(options["enrolled"])
    figure, panels = plt.subplots(1, len(counts), figsize=(4.4 * len(counts), 4), layout="constrained", sharey=True)
    for axes, enrolled in zip(panels, counts, strict=True):
        chosen = [row for row in rows if row["enrolled"] == enrolled and "detection" in row]
        methods = dict.fromkeys(row["method"] for row in chosen)
        for method, color, marker in zip(methods, COLORS, MARKERS, strict=False):
            points = sorted((row["bytes"], row["detection"]) for row in chosen if row["method"] == method)
            if len(points) == 1:
                axes.axhline(points[0][1], color=color, linestyle="--", label=method)
            else:
                axes.plot(*zip(*points, strict=True), color=color, marker=marker, label=method)
        axes.set(xscale="log", xlabel="bytes per fingerprint", title=f"{enrolled} photographs enrolled", ylim=(0, 1))
    panels[0].set_ylabel("detected at a false alarm of 1e-6")
    panels[0].legend(fontsize=8)
    return figure


SEARCHES = {  # by the beginning of the name: the label
    "scikit-learn NearestNeighbors": "scikit-learn, float32",
    "faiss FlatIP": "FAISS FlatIP, float32",
    "faiss RaBitQ, 4-bit": "FAISS RaBitQ, 4-bit queries",
    "faiss BinaryFlat, equal storage": "FAISS BinaryFlat, equal storage",
    "faiss PQ fast-scan": "FAISS PQ fast-scan",
    "topsign asymmetric, compact": "topsign, real-valued queries",
    "topsign Hamming, compact": "topsign, Hamming",
}


def search_chart(report):
    figure, axes = plt.subplots(figsize=(9.5, 5), layout="constrained")
    rows = report["measured"]["rows"]
    for (name, label), color, marker in zip(SEARCHES.items(), COLORS, MARKERS, strict=False):
        chosen = [row for row in rows if row["name"].startswith(name)]
        line = {"ls": "-", "lw": 2} if label.startswith("topsign") else {"ls": "--", "lw": 1.2}
        times = [row["nanoseconds"]["median"] for row in chosen]
        axes.plot([row["batch"] for row in chosen], times, color=color, marker=marker, label=label, **line)
    batches = sorted({row["batch"] for row in rows})
    axes.set(xscale="log", yscale="log", xlabel="queries in a batch", ylabel="nanoseconds per entry and query")
    axes.set_xticks(batches, [str(n) for n in batches])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1))
    return figure


def heads_chart(report):
    """Draw the points of accuracy that a compressed head loses."""
    found = report["measured"]["table"]
    methods = {
        "adaptive, real inputs": "adaptive, real-valued inputs",
        "adaptive": "adaptive, Hamming (the paper)",
        "sign, equal storage": "sign codes, Hamming",
        "universal, equal storage": "universal codes",
    }
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for (method, words), color, marker in zip(methods.items(), COLORS, MARKERS, strict=False):
        rows = [row for row in found["rows"] if row["method"] == method]
        errors = [row["standard_error"] for row in rows]
        sizes, lost = [row["storage"] for row in rows], [row["points_lost"] for row in rows]
        axes.errorbar(sizes, lost, errors, color=color, marker=marker, capsize=2, label=words)
    axes.axhline(0, color="#999999", lw=0.8)
    axes.set(
        xlabel="bits per class, locations counted (float32: 32,768)",
        ylabel="points of accuracy lost",
        title=f"CIFAR-10, 1024 features, {found['accuracy']:.2f}% uncompressed",
    )
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def scale_chart(report):
    """A panel for each number of queries."""
    rows = report["measured"]["entries"]
    batches = sorted({row["queries"] for row in rows})
    figure, panels = plt.subplots(1, len(batches), figsize=(4.2 * len(batches), 4.4), layout="constrained", sharey=True)
    for axes, queries in zip(panels, batches, strict=True):
        for name, color, marker in zip(dict.fromkeys(row["name"] for row in rows), COLORS, MARKERS, strict=False):
            chosen = [row for row in rows if (row["name"], row["queries"]) == (name, queries)]
            sizes, times = zip(*((row["entries"], 1e3 * row["seconds"]["median"]) for row in chosen), strict=True)
            line = "-" if name.startswith("topsign") else "--"
            axes.plot(sizes, times, color=color, marker=marker, ls=line, label=name)
        axes.set(
            xscale="log", yscale="log", xlabel="entries", title=f"{queries} {'query' if queries == 1 else 'queries'}"
        )
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("milliseconds per search")
    panels[0].legend(fontsize=9)
    return figure


def cameras_chart(report):
    styles = {
        ("adaptive", "real query"): ("#0072B2", "-", "o"),
        ("adaptive", "Hamming"): ("#CC79A7", "-.", "s"),
        ("sign codes, equal bytes", "real query"): ("#D55E00", "--", "D"),
        ("sign codes, equal bytes", "Hamming"): ("#009E73", ":", "^"),
    }
    rows = report["measured"]["rows"]
    (whole,) = [row for row in rows if row["method"] == "uncompressed"]
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    sides = [("top1", "right at first place"), ("d_prime", "d': own camera against others")]
    for axes, (name, label) in zip(panels, sides, strict=True):
        for (method, scoring), (color, line, marker) in styles.items():
            chosen = [row for row in rows if (row["method"], row["scoring"]) == (method, scoring)]
            means, spreads = ([row[name][of] for row in chosen] for of in ("mean", "spread"))
            style = {"color": color, "ls": line, "marker": marker, "label": f"{method.partition(',')[0]}, {scoring}"}
            axes.errorbar([row["bytes"] for row in chosen], means, spreads, capsize=3, **style)
        axes.axhline(whole[name]["mean"], color="#555555", ls=":", label=f"uncompressed ({whole['bytes'] // 1024} KiB)")
        axes.set(xscale="log", xlabel="bytes per camera", ylabel=label)
        axes.grid(alpha=0.3)
    panels[0].legend()
    return figure


def simulation_tippett(report, folder):
    """Draw the Tippett plot of simulated cameras: adaptive codes of 4 KiB and the most photographs enrolled."""
    chosen = [one for one in report["measured"]["evidence"] if (one["method"], one["bytes"]) == ("adaptive", 4096)]
    ratios = max(chosen, key=lambda one: one["enrolled"])["log10"]
    plot_tippett(ratios["matches"], ratios["impostors"], folder / "cameras_simulation_tippett.png")


def scores_chart(report):
    found = report["measured"]["identification"]
    genuine, impostor, null = (np.array(found[name]) for name in ("genuine", "impostor", "null"))
    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    bins = np.linspace(min(impostor.min(), 0), genuine.max(), 40)
    axes.hist(impostor, bins, density=True, color="#D55E00", alpha=0.6, label="photographs of other cameras")
    axes.hist(genuine, bins, density=True, color="#0072B2", alpha=0.7, hatch="//", label="photographs of the camera")
    fine = np.linspace(bins[0], bins[-1], 400)
    normal = np.exp(-(((fine - null.mean()) / null.std(ddof=1)) ** 2) / 2) / (null.std(ddof=1) * np.sqrt(2 * np.pi))
    axes.plot(fine, normal, "k--", lw=1.5, label="null learned from enrolled photographs")
    axes.set(xlabel=f"estimated correlation with a fingerprint, {found['kept']} bits kept", ylabel="density")
    axes.margins(y=0.3)  # room for the legend
    axes.legend(loc="upper right")
    return figure


def evidence_charts(report, folder):
    """Draw the Tippett plot of the longest code, and the DET curve of the shortest, which has more errors."""
    rows = report["measured"]["rows"]
    plot_tippett(rows[-1]["log10"]["matches"], rows[-1]["log10"]["impostors"], folder / "camera_tippett.png")
    plot_det(rows[0]["scores"]["matches"], rows[0]["scores"]["impostors"], folder / "camera_det.png")
