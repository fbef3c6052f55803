"""Recall of codes of sentence embeddings in docs/reference/benchmarks.md."""

from shared.markdown import join, source, table

ADAPTIVE, SIGNS = "adaptive, real query", "sign codes, real query"

# Names in the tables by method: first the codes of trellis/text, ranked by the cosine with their reconstructions, then
# FAISS's codes, ranked by FAISS.
COSINE = {
    "trellis, 16 local bases": "trellis, 16 local bases",
    "trellis, principal": "trellis, principal axes",
    "trellis, hadamard": "trellis, random basis",
    "adaptive": "adaptive",
    "signs": "sign",
    "residual quantiser": "residual quantiser",
    "OPQ": "OPQ",
    "PCA + ITQ": "PCA + ITQ",
}
FAISS = {
    "faiss OPQ+PQ": "OPQ, FAISS's score",
    "faiss PQ": "PQ, FAISS's score",
    "faiss PCA+RaBitQ": "PCA + RaBitQ, FAISS's score",
    "faiss LSH": "LSH, FAISS's score",
}


def recalls(results, name="recall"):
    """Recall@10 by (code, bytes of a code); ``name`` is "recall" or "rescored"."""
    found = {}
    for row in results["trellis/text"]["measured"]["rows"]:
        found[COSINE[row["method"]], row["bytes"]] = row[name]
    for row in results["text_embeddings"]["measured"]["rows"]:
        if row["method"] in FAISS and row["bits_per_dimension"] >= 0.25:
            key = "recall" if name == "recall" else "recall_rescored"
            found[FAISS[row["method"]], row["code_bytes"]] = row[key]["mean"]
    return found


def text_section(results):
    if not {"text_embeddings", "trellis/text"} <= results.keys():
        return ""
    report = results["text_embeddings"]
    options = report["options"]
    return join(
        "## Recall per byte on text",
        f"{options['entries']:,} sentence embeddings (WordNet definitions, all-MiniLM-L6-v2, 384 features), "
        f"{options['queries']:,} other definitions as queries. Recall@10 is the share of the ten nearest neighbours by "
        'exact cosine that a search by codes returns. Codes without "FAISS\'s score" are ranked by the cosine of the '
        "query with the reconstruction. [Measurements of trellis codes](trellis-measurements.md#on-text) has "
        "intervals, sizes of codebooks and other data sets.",
        "Recall@10 by bytes per entry:",
        by_bytes(results, "recall"),
        "Recall@10 if the 100 best entries are ranked again by the original vectors:",
        by_bytes(results, "rescored"),
        "Residual quantisers and ITQ of 96 bytes were not measured. PCA + RaBitQ keeps at most 384 axes, in 56 bytes "
        f"({recalls(results)[FAISS['faiss PCA+RaBitQ'], 56]:.3f}).",
        "Recall@10 at equal *information*: adaptive codes count `n_bits + log2 C(n_pool, n_bits)` bits, the least that "
        "any layout can take; ± is half the width of the 95% interval (bootstrap over queries). At equal bytes of the "
        f"compact layout, adaptive codes find {differences(report, 'bytes')} points less than sign codes; at equal "
        f"information they find {differences(report, 'information')} points more (real-valued queries).",
        by_information(report),
        "All bytes per entry at this number of entries, with codebooks, matrices and means divided among the entries, "
        "and seconds of training. Adaptive and sign codes store only a seed and a mean.",
        all_bytes(report),
        source(results, "text_embeddings"),
    )


def sizes_of(results):
    return sorted({row["bytes"] for row in results["trellis/text"]["measured"]["rows"]})


def by_bytes(results, name):
    found, sizes = recalls(results, name), sizes_of(results)
    rows = []
    for code in (*COSINE.values(), *FAISS.values()):
        rows.append([code, *(f"{found[code, size]:.3f}" if (code, size) in found else "" for size in sizes)])
    return table(["code", *(f"{size} bytes" for size in sizes)], rows)


def of_size(rows, size, equal):
    return [row for row in rows if row["bits_per_dimension"] == size and row["equal"] in (equal, "both")]


def by_information(report):
    rows = report["measured"]["rows"]
    sizes = sorted({row["bits_per_dimension"] for row in rows})
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        cells = [[row for row in of_size(rows, size, "information") if row["method"] == method] for size in sizes]
        lines.append([method.replace("faiss", "FAISS"), *(with_interval(cell[0]) if cell else "" for cell in cells)])
    return table(["bits per dimension", *sizes], lines)


def with_interval(row):
    low, high = row["recall"]["interval"]
    return f"{row['recall']['mean']:.3f}\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{(high - low) / 2:.3f}"


def differences(report, equal):
    """Range of the differences between adaptive and sign codes with real-valued queries, in points of recall."""
    found = [
        100 * abs(one["mean"])
        for one in report["measured"]["differences"]
        if (one["ours"], one["equal"]) == (ADAPTIVE, equal)
    ]
    return f"{min(found):.1f} to {max(found):.1f}"


def all_bytes(report):
    rows = report["measured"]["rows"]
    sizes = sorted({row["bits_per_dimension"] for row in rows})
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        if "Hamming" not in method:
            own = [[row for row in of_size(rows, size, "bytes") if row["method"] == method] for size in sizes]
            cells = [
                f"{cell[0]['bytes_per_entry']:.1f} ({cell[0]['training_seconds']:.0f} s)" if cell else ""
                for cell in own
            ]
            lines.append([method.replace("faiss", "FAISS"), *cells])
    return table(["bits per dimension", *sizes], lines)
