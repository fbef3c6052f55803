"""Ids, filters, pairs and evaluations in docs/reference/benchmarks.md."""

from shared.markdown import join, source, table

NAMES = ("database", "database-pairs")


def database(results):
    """Table of the results with their limits."""
    reports = {name: results[name] for name in NAMES if name in results}
    measured = {part: found for report in reports.values() for part, found in report["measured"].items()}
    lines = []
    if "ids" in measured:
        found = measured["ids"]
        n = f"{found['n_entries']:,} ids of text"
        lines += [
            [f"{n}: open", "100 ms", f"{found['open_ms']['median']:.0f} ms"],
            [
                f"{n}: 1,000 lookups",
                "20 ms",
                f"{found['lookup_1000_ms']['median']:.0f} ms ({found['lookup_1000_cpu_ms']['median']:.0f} ms of CPU); "
                f"right after opening, when checksums are read, {found['first_1000_ms']['median']:.0f} ms",
            ],
            [f"{n}: bytes per entry beyond the text", "24", f"{found['bytes_beyond_text']:.0f}"],
        ]
    if "filter" in measured:
        found = measured["filter"]
        lines.append(
            [
                f"a filter that keeps 1% of {found['n_entries']:,}",
                f"1.3 times a search of those plus 60 ms: {found['limit_ms']:.0f} ms",
                f"{found['filtered_ms']['median']:.0f} ms (a search of only those "
                f"{found['alone_ms']['median']:.1f}); the first use of a field {found['first_s']:.1f} s "
                f"({found['first_cpu_s']:.1f} s of CPU)",
            ]
        )
    if "pairs" in measured:
        found = measured["pairs"]
        lines.append(
            [
                f"all pairs of {found['n_entries']:,} entries, 256 of 2048 kept",
                "1.2 times that many batched searches",
                f"{found['ratio']:.2f} times ({found['pairs_cpu_s']:.0f} s of CPU)",
            ]
        )
    if not lines:
        return ""
    return join("## Ids, filters, pairs", table(["", "at most", "measured"], lines), source(results, *reports))


def evaluation(results):
    """Time of an evaluation."""
    if "evaluate" not in results:
        return ""
    lines = [
        [
            f"{row['n_signals']:,} x {row['n_features']:,}",
            f"{row['n_entries']:,}",
            row["n_codes"],
            f"{row['cpu_seconds']:.0f}",
            f"{row['wall_seconds']:.0f}",
        ]
        for row in results["evaluate"]["measured"]["rows"]
    ]
    return join(
        "## Evaluation of your own signals",
        "`topsign evaluate` with default options, including start-up and reading. CPU seconds are summed over two "
        "threads; wall-clock seconds are from a machine shared with other work.",
        table(["signals", "entries in the sample", "codes compared", "CPU seconds", "wall-clock seconds"], lines),
        source(results, "evaluate"),
    )
