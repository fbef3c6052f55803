"""The summary of docs/reference/benchmarks.md: a chart and five sentences."""

from shared.headline import found, hamming_ratios, head_row
from shared.markdown import join, listed
from shared.quality_page import of_method
from shared.text_page import recalls, sizes_of


def summary(results):
    sentences = [one(results) for one in (text, detection, cameras, heads, speed)]
    lines = [f"- {one}" for one in sentences if one]
    chart = "![Recall@10 against bytes per entry: trellis codes and other codes](../images/text_embeddings.png)"
    shown = chart if {"text_embeddings", "trellis/text"} <= results.keys() else ""
    return join("## Summary", shown, "\n".join(lines)) if lines else ""


def text(results):
    if not {"text_embeddings", "trellis/text"} <= results.keys():
        return ""
    recall, sizes = recalls(results), sizes_of(results)
    by_leader = {}
    for size in sizes:
        best = max((code for code, one in recall if one == size), key=lambda code, size=size: recall[code, size])
        by_leader.setdefault(best, []).append(size)
    won = "; ".join(f"{code} at {listed(at)} bytes" for code, at in by_leader.items())
    close = [size for size in sizes if intervals_meet(results, size)]
    shown = ("trellis, 16 local bases", "residual quantiser", "OPQ", "sign", "adaptive")
    values = ", ".join(f"{code} {recall[code, 24]:.2f}" for code in shown if (code, 24) in recall)
    return (
        f"**Text search** (50,000 sentence embeddings). Best recall@10: {won}"
        + (f" (intervals overlap with those of a residual quantiser at {listed(close)} bytes)" if close else "")
        + f". At 24 bytes: {values}. Trellis codes with learned axes, residual quantisers and OPQ are trained on the "
        "vectors; sign and adaptive codes learn only a mean."
    )


def intervals_meet(results, size, first="trellis, 16 local bases", second="residual quantiser"):
    rows = results["trellis/text"]["measured"]["rows"]
    ends = {row["method"]: row["interval"] for row in rows if row["bytes"] == size}
    return {first, second} <= ends.keys() and ends[first][0] <= ends[second][1] and ends[second][0] <= ends[first][1]


def detection(results):
    if "detection" not in results:
        return ""
    rows = results["detection"]["measured"]["rows"]
    adaptive = of_method(rows, "adaptive", "")
    signs = of_method(rows, "sign codes", "equal bytes, compact layout")
    return (
        "**Weak matches** (correlation 0.07, 8,192 features, 448 bytes). At one false alarm in 1,000 comparisons, "
        f"adaptive codes find {found(adaptive):.0%} (d' {adaptive:.2f}) and sign codes {found(signs):.0%} "
        f"(d' {signs:.2f}) of the matches."
    )


def cameras(results):
    if "cameras" not in results:
        return ""
    measured = results["cameras"]["measured"]
    kept = measured["identification"]["kept"]
    rows = {(row["method"], row["scoring"], row["kept"]): row for row in measured["rows"]}
    ours, signs = (rows[name, "real query", kept] for name in ("adaptive", "sign codes, equal bytes"))
    (whole,) = [row for row in measured["rows"] if row["method"] == "uncompressed"]
    return (
        f"**[Camera fingerprints](../how-to/cameras.md)** ({len(measured['cameras'])} cameras). Codes of "
        f"{ours['bytes']:,} bytes, {whole['bytes'] / ours['bytes']:.0f} times smaller than float32, identify "
        f"{ours['top1']['mean']:.1%} of the photographs; d' is {ours['d_prime']['mean']:.2f}, that of sign codes "
        f"{signs['d_prime']['mean']:.2f}, uncompressed {whole['d_prime']['mean']:.2f}."
    )


def heads(results):
    row = head_row(results)
    if row is None:
        return ""
    return (
        f"**Classifier heads** (100,000 classes, 1,024 features, synthetic). A head that is "
        f"{row['times_smaller']:.0f} times smaller finds the same top class for {row['agreement']:.0%} of the inputs, "
        f"{row['times_faster']['median']:.1f} times as fast as the matrix product. Codes do not replace the [head of a "
        "language model](#the-head-of-a-language-model) without its weights."
    )


def speed(results):
    ratios = hamming_ratios(results)
    if not ratios:
        return ""
    faster, slower = ratios
    return (
        "**Speed compared with FAISS** (sign codes of equal storage, Hamming distance, one thread, three processors). "
        f"Batches of 256 queries are {faster[0]:.0f} to {faster[-1]:.0f} times as fast; a single query takes "
        f"{slower[0]:.1f} to {slower[-1]:.1f} times as long."
    )
