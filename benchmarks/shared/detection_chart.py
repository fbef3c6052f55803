"""Chart of the README: fraction of weak matches found against bytes."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

from topsign import theory
from topsign.kernels import Layout

FALSE_ALARM = 1e-3
N_FEATURES = 8192


def detection_chart(report, trellis):
    """Lines by theory, points as measured; d' becomes detection as it does for two normal laws of one spread."""
    correlation = report["measured"]["correlation"]
    exact = correlation * np.sqrt(N_FEATURES)
    n_bytes = np.geomspace(32, 2048, 120)
    rates = 8 * n_bytes / N_FEATURES
    kept = np.unique(np.geomspace(16, 2048, 60).astype(int))
    sizes = [Layout("compact", int(n_bits), N_FEATURES).code_bytes for n_bits in kept]
    energies = [float(theory.captured_energy(n_bits=int(n_bits), n_pool=N_FEATURES)) for n_bits in kept]
    below = rates <= 1  # plain signs: a bit for each dimension at the most
    lines = [
        ("the limit (Shannon)", n_bytes, theory.rate_distortion_limit(rates), "#555555", ":"),
        ("topsign, trellis codes", n_bytes, theory.trellis_energy(rates), "#009E73", "-."),
        ("topsign, adaptive codes", sizes, energies, "#0072B2", "-"),
        ("sign codes (LSH)", n_bytes[below], 2 / np.pi * rates[below], "#D55E00", "--"),
    ]
    figure, axes = plt.subplots(figsize=(7.6, 4.2), layout="constrained")
    for name, size, energy, color, line in lines:
        axes.plot(size, found(exact * np.sqrt(energy)), color=color, ls=line, lw=2.2, label=name)
    for size, index, error, color, marker in measured(report, trellis):
        ends = [[found(index) - found(index - error)], [found(index + error) - found(index)]]
        axes.errorbar([size], [found(index)], ends, color=color, marker=marker, ms=7, capsize=3, ls="none")
    axes.axhline(found(exact), color="#999999", lw=0.8)
    axes.annotate(f"uncompressed: {4 * N_FEATURES:,} bytes", (34, found(exact) - 0.045), fontsize=9, color="#555555")
    axes.set(
        xscale="log",
        xlim=(32, 2048),
        ylim=(0, 1.02),
        xlabel=f"bytes per signal of {N_FEATURES:,} samples",
        ylabel="weak matches found",
        title=f"correlation {correlation:.3f}, one false alarm in {1 / FALSE_ALARM:,.0f} comparisons",
    )
    axes.set_xticks([32, 64, 128, 256, 512, 1024, 2048], ["32", "64", "128", "256", "512", "1024", "2048"])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", title="lines: theory; points: measured", title_fontsize=9, fontsize=9)
    return figure


def found(index):
    """Share of matches above the threshold, the detection index d' given."""
    return norm.cdf(np.asarray(index) - norm.isf(FALSE_ALARM))


def measured(report, trellis):
    """Bytes, d', its error at 95%, colour and marker of each code with a real-valued query."""
    marks = {"adaptive": ("#0072B2", "o"), "sign codes": ("#D55E00", "D")}
    for row in report["measured"]["rows"]:
        if row["scoring"] == "real query":
            low, high = row["interval"]
            yield row["bytes"], row["d_prime"], (high - low) / 2, *marks[row["method"]]
    best = max(trellis["measured"]["detection"], key=lambda row: row["window"])
    yield best["bytes"], best["d_prime"], 1.96 * best["error"], "#009E73", "s"
