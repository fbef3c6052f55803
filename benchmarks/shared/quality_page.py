"""The paper's detection problem, heads and cameras."""

from shared.markdown import bold_best, join, listed, source, table


def cameras_verdict(report):
    """Identification of real cameras in one paragraph."""
    rows = report["measured"]["rows"]
    kept = report["measured"]["identification"]["kept"]

    def row(method):
        return next(r for r in rows if (r["method"], r["scoring"], r["kept"]) == (method, "real query", kept))

    ours, signs = row("adaptive"), row("sign codes, equal bytes")
    (whole,) = (r for r in rows if r["method"] == "uncompressed")
    return (
        f"Adaptive codes of {ours['bytes']:,} bytes per camera, {whole['bytes'] / ours['bytes']:.0f} times smaller "
        f"than "
        f"float32, identify {ours['top1']['mean']:.1%} of the photographs of {len(report['measured']['cameras'])} real "
        f"cameras, with an AUC of {ours['auc']['mean']:.4f} and a d' of {ours['d_prime']['mean']:.2f}. Sign codes of "
        f"the "
        f"same bytes have a d' of {signs['d_prime']['mean']:.2f}, uncompressed fingerprints "
        f"{whole['d_prime']['mean']:.2f}."
    )


def of_method(rows, method, equal):
    """Detection index of a method with a real-valued query."""
    (found,) = [row for row in rows if (row["method"], row["equal"], row["scoring"]) == (method, equal, "real query")]
    return found["d_prime"]


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
        "The detection problem of the paper: unit references of 8,192 features, and matches in noise with a standard "
        "deviation of 0.15 per feature (correlation 0.0735). d' is the distance between the mean scores of matches and "
        "of impostors in standard deviations, with its 95% interval. " + source(results, "detection"),
        table(["codes", "scoring", "bits", "bytes", "d'", "interval", "theory"], lines),
    )


def table_lines(results):
    """The table of the paper in the terms of this library, with our own method first."""
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
        f"Points of accuracy lost by the head of a CIFAR-10 network ({found['accuracy']:.2f}% of {found['images']:,} "
        "images uncompressed), with a pool of 1,024 Gaussian projections unless stated otherwise; means of "
        f"{report['options']['seeds']} seeds with standard errors. The network differs from the paper's, so compare "
        "the losses, not the accuracies. Equal storage counts the information of an adaptive code, as the paper does; "
        "the compact layout takes 256, 448, 768 and 1,280 bits, and 32 more for the scale of real-valued inputs. "
        + source(results, "paper"),
        table_lines(results),
    )


def heads_section(results):
    words = table_section(results)
    return join("## A compressed classifier head", words) if words else ""


def paper_section(results):
    words = roc_section(results)
    legend = "Detection rate against false-alarm rate; broad pale lines: exact theory, thin lines: measured"
    picture = f"![{legend}](../images/roc.png)"
    head = (
        "The same problem as ROC curves; codes keep 512 of 8,192 projections. `make reproduce` reproduces every figure "
        "and the table of the paper."
    )
    return join("## Figure 3 of the paper", head, picture, words) if words else ""


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
        f"Area under the curves ({found['matches']:,} matches and {found['impostors']:,} impostors; ± standard error). "
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
        "Forensic reports state a likelihood ratio: how much more probable the score is if this camera took the "
        "photograph than if another camera did. Thresholds and likelihood ratios are fitted on one half of the "
        "photographs, each compared with the fingerprint of the others, and tested on the other half; then the halves "
        f"are exchanged. The tests comprise {n_matches} matches and {n_impostors} impostors. The threshold is that of "
        f"`EmpiricalNull.threshold` at a false-alarm rate of {report['measured']['false_alarm']:.0%}. Ratios are those "
        "of `EmpiricalNull.likelihood_ratio`, and 30 known matches and 150 known impostors limit them to 151:",
        table(titles, lines),
        f"Verbal scale of the {n_matches} matches with {rows[-1]['kept']} projections kept: {words}. Cllr is the "
        f"cost of "
        "the ratios in bits: 0 for perfect evidence, 1 for none.",
        "![Tippett plot](../images/camera_tippett.png)",
        f"![DET curve](../images/camera_det.png)\n\nTippett plot for {rows[-1]['kept']} projections kept, "
        f"DET curve for {rows[0]['kept']}. Six cameras have too few pairs for `index.calibrate`, which needs 1,000, "
        f"so the "
        'null is a normal law of the known impostors (`EmpiricalNull(scores, method="normal")`). The example prints '
        "the "
        "same for one split and draws both plots.",
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
        cameras_verdict(report),
        f"The data are residuals of {measured['n_features']:,} pixels of {measured['n_photographs']} photographs by "
        f"{len(measured['cameras'])} cameras, two each of three models of one maker ({listed(measured['cameras'])}). "
        f"The "
        "fingerprint of a camera is the mean of its residuals. "
        "`python examples/camera_fingerprints.py residuals.npz --bits 2048` enrols and identifies, with p-values.",
        "![Scores of photographs](../images/camera_scores.png)",
        "The theoretical null assumes independent, isotropic impostors. Real impostors score slightly above zero and "
        "have "
        "a larger deviation, because cameras of one maker share parts of their pattern and processing. "
        f"In the picture ({found['kept']} projections kept, the second half of the photographs), {found['right']} of "
        f"{found['photographs']} photographs are identified. The largest p-value of a first rank, corrected for all "
        f"comparisons, is {found['largest_p_value']['theoretical']:.1e} in theory and "
        f"{found['largest_p_value']['empirical']:.1e} under the null estimated from enrolled photographs. Of the "
        f"impostors, {found['impostors_below_0.01']['theoretical']:.1%} have a theoretical p-value below 0.01, and "
        f"{found['impostors_below_0.01']['empirical']:.1%} an empirical one. Use the null estimated from known "
        f"impostors "
        "for decisions and the theoretical null for planning.",
        "Half of the photographs of each camera are enrolled and the others identified; then the halves are exchanged. "
        f"Codes use a Hadamard pool of the same size; results are means of {report['options']['seeds']} seeds. "
        f"Uncompressed correlation ({whole['bytes']:,} bytes per camera): top-1 {whole['top1']['mean']:.4f}, AUC "
        f"{whole['auc']['mean']:.4f}, d' {whole['d_prime']['mean']:.2f}.",
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
        "Bits of information / bytes per camera, by projections kept:",
        table(["", *kept], sizes),
        "![Quality against bytes](../images/cameras.png)",
        source(results, "cameras"),
        evidence_section(results),
        "**Patents.** Matching compressed camera fingerprints is the subject of patents. Whether a use of the "
        "library needs "
        "a licence is for the user to determine.",
        "Thirty photographs per half cannot distinguish 99% from 100%. If every method identifies all photographs, "
        "compare "
        "d'.",
    ]
    return join(*parts)
