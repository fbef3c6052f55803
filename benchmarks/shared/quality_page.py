"""What codes find: text embeddings, the paper's detection problem, heads, cameras."""

from shared.markdown import bold_best, join, listed, source, table

ADAPTIVE, SIGNS = "adaptive, real query", "sign codes, real query"


def verdicts(results):
    found = [
        text_verdict(results.get("text_embeddings")),
        detection_verdict(results.get("detection")),
        cameras_verdict(results.get("cameras")),
    ]
    lines = [f"- {one}" for one in found if one]
    return "## Verdict\n\n" + "\n".join(lines) if lines else ""


def text_verdict(report):
    if report is None:
        return ""
    rows = report["measured"]["rows"]
    sizes = sorted({row["bits_per_dimension"] for row in rows})
    winners = {size: max(of_size(rows, size, "information"), key=lambda row: row["recall"]["mean"]) for size in sizes}
    by_winner = {}
    for size, row in winners.items():
        by_winner.setdefault(row["method"], []).append(size)
    won = "; ".join(f"{method} at {listed(at)}" for method, at in by_winner.items())
    ranked = sorted(of_size(rows, 0.25, "information"), key=lambda row: -row["recall"]["mean"])
    quarter = ", ".join(f"{row['method']} {row['recall']['mean']:.3f}" for row in ranked)
    parts = [
        f"**Text embeddings** ({report['options']['entries']:,} sentences, 384 dimensions). Best recall@10 by bits per "
        f"dimension: {won}. At 0.25: {quarter}. faiss's PQ, OPQ and PCA are trained on the entries; adaptive "
        f"and sign codes "
        "learn a mean alone."
    ]
    for equal, words in [("information", "equal information"), ("bytes", "equal bytes of the compact layout")]:
        outcome = {"beat": [], "lose to": [], "cannot be told from": []}
        for one in report["measured"]["differences"]:
            if (one["ours"], one["equal"]) == (ADAPTIVE, equal):
                low, high = one["interval"]
                outcome["beat" if low > 0 else "lose to" if high < 0 else "cannot be told from"].append(
                    one["bits_per_dimension"]
                )
        told = ", ".join(f"{verb} them at {listed(at)}" for verb, at in outcome.items() if at)
        parts.append(
            f"Against sign codes with a real-valued query, at {words}, adaptive codes {told} bits per dimension."
        )
    return " ".join(parts)


def detection_verdict(report):
    if report is None:
        return ""
    rows = report["measured"]["rows"]

    def d_prime(method, equal):
        (row,) = (r for r in rows if (r["method"], r["equal"], r["scoring"]) == (method, equal, "real query"))
        return row["d_prime"]

    adaptive, compact, fast = (
        d_prime("adaptive", ""),
        d_prime("sign codes", "equal bytes, compact layout"),
        d_prime("sign codes", "equal bytes, fast layout"),
    )
    return (
        f"**Detecting weak matches** (correlation 0.07, 8192 features). With a real-valued query adaptive codes "
        f"reach d' {adaptive:.2f}; "
        f"sign codes of the compact layout's bytes {compact:.2f}, of the fast layout's {fast:.2f}: "
        + ("the compact layout is better per byte" if adaptive > compact else "sign codes are better per byte")
        + (", the fast one is not." if fast > adaptive else ", and so is the fast one.")
    )


def cameras_verdict(report):
    if report is None:
        return ""
    rows = report["measured"]["rows"]
    kept = report["measured"]["identification"]["kept"]

    def row(method):
        return next(r for r in rows if (r["method"], r["scoring"], r["kept"]) == (method, "real query", kept))

    ours, signs = row("adaptive"), row("sign codes, equal bytes")
    (whole,) = (r for r in rows if r["method"] == "uncompressed")
    return (
        f"**Cameras told by their noise** ({len(report['measured']['cameras'])} real cameras, see "
        f"[cameras](../how-to/cameras.md)). "
        f"In {ours['bytes']:,} bytes a camera, {whole['bytes'] / ours['bytes']:.0f} times less than float32, "
        f"{ours['top1']['mean']:.1%} are right and AUC is {ours['auc']['mean']:.4f}; d' is "
        f"{ours['d_prime']['mean']:.2f}, "
        f"of sign codes of the same bytes {signs['d_prime']['mean']:.2f}, uncompressed {whole['d_prime']['mean']:.2f}."
    )


def of_method(rows, method, equal):
    """Detection index of a method with a real-valued query."""
    (found,) = [row for row in rows if (row["method"], row["equal"], row["scoring"]) == (method, equal, "real query")]
    return found["d_prime"]


def of_size(rows, size, equal):
    return [row for row in rows if row["bits_per_dimension"] == size and row["equal"] in (equal, "both")]


def recall(row, name):
    low, high = row[name]["interval"]
    return f"{row[name]['mean']:.3f}\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{(high - low) / 2:.3f}"


def text_section(results):
    report = results.get("text_embeddings")
    if report is None:
        return ""
    rows = report["measured"]["rows"]
    sizes = sorted({row["bits_per_dimension"] for row in rows})
    methods = list(dict.fromkeys(row["method"] for row in rows))
    options = report["options"]
    parts = [
        "## Quality per stored byte, on text",
        f"Sentence vectors of {options['entries']:,} WordNet definitions (all-MiniLM-L6-v2, 384 dimensions), "
        f"{options['queries']:,} other "
        "definitions as queries; recall@10 against the exact cosine, with half the width of its 95% interval "
        "(bootstrap over queries); "
        f"adaptive and sign codes are means of {options['seeds']} seeds. " + source(results, "text_embeddings"),
        "Trellis codes of these sentences are on [their page](trellis-measurements.md#on-text), beside PCA + ITQ, OPQ "
        "and a residual quantiser by the cosine of their reconstructions.",
        "![Recall against bytes](../images/text_embeddings.png)",
    ]
    for equal, words in [
        ("information", "At equal information, n_bits + log2 C(n_pool, n_bits) bits for adaptive codes"),
        ("bytes", "At equal bytes of a code (compact layout for adaptive codes)"),
    ]:
        for name, title in [("recall", "recall@10"), ("recall_rescored", "recall@10 after rescoring 100")]:
            lines = []
            for method in methods:
                cells = [[row for row in of_size(rows, size, equal) if row["method"] == method] for size in sizes]
                lines.append([method, *(recall(cell[0], name) if cell else "" for cell in cells)])
            parts.append(f"{words}: {title} by bits per dimension")
            parts.append(table(["", *sizes], lines))
    lines = []
    for method in methods:
        for size in sizes:
            chosen = [row for row in of_size(rows, size, "bytes") if row["method"] == method]
            if chosen and "Hamming" not in method:
                row = chosen[0]
                lines.append(
                    [
                        method,
                        size,
                        row["code_bytes"],
                        f"{row['bytes_per_entry']:.1f}",
                        f"{row['recall']['mean']:.3f}",
                        f"{row['training_seconds']:.1f}",
                    ]
                )
    parts.append(
        "Every stored byte at this number of entries: codes with their factors, and codebooks, matrices and "
        "means divided among the "
        "entries. Projections of adaptive and sign codes are made from a seed and take none."
    )
    parts.append(
        table(["", "bits per dimension", "bytes of a code", "all bytes an entry", "recall@10", "training, s"], lines)
    )
    lines = []
    for one in report["measured"]["differences"]:
        low, high = one["interval"]
        lines.append(
            [
                one["ours"],
                one["theirs"],
                one["equal"],
                one["bits_per_dimension"],
                f"{one['mean']:+.4f}",
                f"{low:+.4f} to {high:+.4f}",
            ]
        )
    parts.append("Difference of recall@10 on the same queries, with its 95% interval:")
    parts.append(table(["", "less", "at equal", "bits per dimension", "difference", "interval"], lines))
    return join(*parts)


def detection_section(results):
    report = results.get("detection")
    if report is None:
        return ""
    lines = [
        [
            ", ".join(filter(None, [row["method"], row["equal"]])),
            row["scoring"],
            f"{row['bits']:.0f}",
            row["bytes"],
            f"{row['d_prime']:.2f}",
            f"{row['interval'][0]:.2f} to {row['interval'][1]:.2f}",
            f"{row['theory']:.2f}",
        ]
        for row in report["measured"]["rows"]
    ]
    return join(
        "## Detecting weak matches",
        "The paper's problem: unit references of 8192 features, matches in noise of 0.15 a feature (correlation "
        "0.0735). d' is the "
        "distance between scores of matches and of impostors in standard deviations, with its 95% interval. "
        + source(results, "detection"),
        table(["codes", "scoring", "bits", "bytes", "d'", "interval", "theory"], lines),
    )


def table_lines(results):
    """The paper's table in the words of this library; our own first, as a reader would take it."""
    rows = results["paper"]["measured"]["table"]["rows"]
    kept = sorted({row["kept"] for row in rows})
    names = {
        "adaptive, real inputs": "**adaptive, real-valued inputs**",
        "adaptive": "adaptive, Hamming (the paper)",
        "adaptive, Hadamard pool": "adaptive, Hamming, Hadamard pool",
        "adaptive, Hadamard pool, real inputs": "adaptive, real-valued inputs, Hadamard pool",
        "sign, equal storage": "sign codes, Hamming, equal storage",
        "sign, equal computation": "sign codes, Hamming, equal computation",
        "universal, equal storage": "universal codes, equal storage",
        "universal, equal computation": "universal codes, equal computation",
    }
    lines = []
    for method, words in names.items():
        cells = {row["kept"]: row for row in rows if row["method"] == method}
        lines.append([words, *(f"{cells[n]['points_lost']:.2f} ± {cells[n]['standard_error']:.2f}" for n in kept)])
    storage = {row["kept"]: row["storage"] for row in rows if row["method"] == "adaptive"}
    return table(["kept of 1024 (bits with locations)", *(f"{n} ({storage[n]:,})" for n in kept)], lines)


def table_section(results):
    report = results.get("paper")
    if report is None:
        return ""
    found = report["measured"]["table"]
    return join(
        f"Points of accuracy lost on those images ({found['accuracy']:.2f}% of {found['images']:,} uncompressed), pool "
        f"of 1024 Gaussian projections where no other is named, mean of {report['options']['seeds']} seeds with its "
        "standard error; the network is ours, so drops compare with the paper, not accuracies. Equal storage counts an "
        "adaptive code's information, as the paper does; the compact layout holds 256, 448, 768 and 1280 bits, and a "
        "scale of 32 for real-valued inputs. " + source(results, "paper"),
        table_lines(results),
    )


def heads_section(results):
    words = table_section(results).replace("on those images", "by the head of a CIFAR-10 network")
    return join("## A network's head, compressed", words) if words else ""


def paper_section(results):
    words = roc_section(results)
    legend = "Detection against false alarm: broad pale lines are exact theory, thin lines are measured"
    picture = f"![{legend}](../images/roc.png)"
    head = (
        "A match is a reference of 8192 features in noise, at a correlation of 0.0735; codes keep 512 of 8192. "
        "`make reproduce` measures every figure and the table of the paper."
    )
    return join("## The paper's third figure", head, picture, words) if words else ""


def roc_section(results):
    report = results.get("paper")
    if report is None:
        return ""
    found = report["measured"]["roc"]
    names = {
        "adaptive, Hadamard, real query": "**adaptive, real-valued query, Hadamard pool**",
        "adaptive, entries adapt": "adaptive (the paper)",
        "sign, 3269 (equal storage)": "sign projections, equal storage",
        "universal, 3269 (equal storage)": "universal embedding, equal storage",
        "sign, 512 (equal computation)": "sign projections, equal computation",
        "universal, 512 (equal computation)": "universal embedding, equal computation",
    }
    rows = {row["detector"]: row for row in found["rows"]}
    lines = [
        [words, f"{row['bits']:,}", f"{row['auc']:.4f} ± {row['standard_error']:.4f}", f"{row['exact']:.4f}"]
        for words, row in ((words, rows[name]) for name, words in names.items())
    ]
    return join(
        f"Areas under the curves, {found['matches']:,} matches and {found['impostors']:,} impostors, ± standard error. "
        + source(results, "paper"),
        table(["", "bits", "area under the curve", "exact"], lines),
    )


def evidence_section(results):
    report = results.get("camera_evidence")
    if report is None:
        return ""
    rows = report["measured"]["rows"]
    lines = [
        [
            row["kept"],
            f"{row['missed']:.1%}",
            f"{row['false_alarms']:.1%}",
            f"{10 ** row['median_log10']['matches']:.0f}",
            f"{row['misleading_matches']:.1%} / {row['misleading_impostors']:.1%}",
            f"{row['cllr']:.3f}",
        ]
        for row in rows
    ]
    titles = ["kept", "missed", "false alarms", "median ratio of matches", "misleading matches / impostors", "Cllr"]
    words = "; ".join(f"{words}: {count}" for words, count in rows[-1]["words"].items())
    n_matches, n_impostors = (len(rows[-1]["scores"][kind]) for kind in ("matches", "impostors"))
    return join(
        "## As evidence",
        "A court asks for the weight of a match, not for its p-value: how much more probable such a score is if this "
        "camera took the photograph than if another did. Threshold and likelihood ratio are learned from one half of "
        "the photographs (each compared with fingerprints of the others, so that none is part of the fingerprint it is "
        f"compared with) and judged by the other half, then the halves change places: {n_matches} matches and "
        f"{n_impostors} impostors that nothing was learned from. At a threshold for "
        f"{report['measured']['false_alarm']:.0%} false alarms (`EmpiricalNull.threshold`), and with ratios of "
        "`EmpiricalNull.likelihood_ratio`, which never exceed what 30 known matches and 150 known impostors support "
        "(151):",
        table(titles, lines),
        f"In words, of the {n_matches} matches with {rows[-1]['kept']} kept: {words}. Cllr is the cost of the ratios "
        "in bits, 0 for perfect evidence and 1 for none.",
        "![Tippett plot](../images/camera_tippett.png)",
        f"![DET curve](../images/camera_det.png)\n\nTippett plot of {rows[-1]['kept']} kept, DET curve of "
        f"{rows[0]['kept']} kept. Six cameras make too few pairs for `index.calibrate`, which takes 1,000; a normal "
        'null of the known impostors (`EmpiricalNull(scores, method="normal")`) stands in. The example prints the same '
        "for one split, and draws both plots.",
        source(results, "camera_evidence"),
    )


def real_cameras(results):
    report = results.get("cameras")
    if report is None:
        return ""
    measured = report["measured"]
    rows = measured["rows"]
    kept = sorted({row["kept"] for row in rows if row["kept"]})
    (whole,) = (row for row in rows if row["method"] == "uncompressed")
    found = measured["identification"]
    parts = [
        cameras_verdict(report).replace(", see [cameras](../how-to/cameras.md)", ""),
        "Every sensor leaves a faint pattern in its photographs, which stays when the scene is filtered out. A "
        "camera's "
        "fingerprint is the mean of such residuals; a photograph is compared with the fingerprints of all cameras. "
        "`python examples/camera_fingerprints.py residuals.npz --bits 2048` enrols and identifies, with p-values.",
        "![Scores of photographs](../images/camera_scores.png)",
        "The theoretical null takes an impostor as independent and isotropic. Real ones are not: cameras of one maker "
        "share parts of their pattern and of their processing, and score a little above zero and more widely. "
        f"In the picture ({found['kept']} bits kept, the second half of the photographs), {found['right']} of "
        f"{found['photographs']} are right; the largest p-value of a first place, corrected for all comparisons, is "
        f"{found['largest_p_value']['theoretical']:.1e} by theory and "
        f"{found['largest_p_value']['empirical']:.1e} by the null "
        "learned from the enrolled photographs. Of the impostors, "
        f"{found['impostors_below_0.01']['theoretical']:.1%} have a theoretical p-value below 0.01, and "
        f"{found['impostors_below_0.01']['empirical']:.1%} an empirical one: trust the null that is learned from known "
        "impostors; the theoretical one is for planning.",
        f"Here: {measured['n_photographs']} photographs of {len(measured['cameras'])} cameras (two each of "
        f"three models of one maker; "
        f"{listed(measured['cameras'])}), residuals of {measured['n_features']:,} pixels. Half of each camera's "
        f"photographs are enrolled, "
        "the others identified, then the halves change places; codes are over a Hadamard pool of the same size, "
        f"means of {report['options']['seeds']} seeds of the projection. Uncompressed correlation: top-1 "
        f"{whole['top1']['mean']:.4f}, "
        f"AUC {whole['auc']['mean']:.4f}, d' {whole['d_prime']['mean']:.2f}, {whole['bytes']:,} bytes a camera.",
    ]
    for name, words, digits in [
        ("top1", "Top-1", 4),
        ("auc", "AUC", 5),
        ("d_prime", "d', own camera against others", 2),
    ]:
        keys = list(dict.fromkeys((row["method"], row["scoring"]) for row in rows if row["kept"]))
        columns = []
        for n in kept:
            values = [
                next(r for r in rows if (r["method"], r["scoring"], r["kept"]) == (*key, n))[name]["mean"]
                for key in keys
            ]
            columns.append(bold_best(values, lambda value, digits=digits: f"{value:.{digits}f}"))
        lines = [[f"{key[0]}, {key[1]}", *cells] for key, *cells in zip(keys, *columns, strict=True)]
        parts.append(f"{words}, by projections kept:")
        parts.append(table(["", *kept], lines))
    sizes = []
    for method in dict.fromkeys(row["method"] for row in rows if row["kept"]):
        chosen = [next(r for r in rows if (r["method"], r["kept"]) == (method, n)) for n in kept]
        sizes.append([method, *(f"{row['bits']:,.0f} / {row['bytes']:,}" for row in chosen)])
    parts += [
        "Bits of information / bytes a camera takes, by projections kept:",
        table(["", *kept], sizes),
        "![Quality against bytes](../images/cameras.png)",
        source(results, "cameras"),
        evidence_section(results),
        "**Patents.** Matching compressed camera fingerprints is the subject of patents. This page and the "
        "example show what "
        "the library measures; whether a use of it needs a licence is for its user to find out.",
        "Thirty photographs in a half cannot tell 99% from 100%: where every method is right, d' says who has "
        "room left.",
    ]
    return join(*parts)
