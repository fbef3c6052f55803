"""docs/scale.md: measured slopes, and a billion entries on paper."""

from shared.markdown import NOTICE, join, number, source, table

BILLION = 10**9
MACHINE_GB, MACHINE_CORES = 128, 32  # a plain server
REALS_AND_ID = 20  # bytes: norm, scale, weight, id


def page(results):
    report = results.get("scale")
    if report is None:
        return ""
    entries, features = report["measured"]["entries"], report["measured"]["features"]
    options = report["options"]
    sizes = sorted({row["entries"] for row in entries})
    lines = []
    for scoring, queries in dict.fromkeys((row["scoring"], row["queries"]) for row in entries):
        chosen = [row for row in entries if (row["scoring"], row["queries"]) == (scoring, queries)]
        cells = [number(1e3 * row["seconds"]["median"]) for row in chosen]
        lines.append([f"{scoring}, {queries} queries", *cells, f"{chosen[-1].get('slope', float('nan')):.2f}"])
    growth = [
        [
            f"{row['features']:,}",
            f"{row['n_bits']:,}",
            f"{row['bytes']:,}",
            number(1e6 * row["encode_seconds"]["median"]),
            f"{row['slope']:.2f}" if "slope" in row else "",
            number(1e9 * row["search_seconds"]["median"]),
        ]
        for row in features
    ]
    return join(
        f"# Scale\n\n{NOTICE}",
        "A search reads every code, so that its cost is proportional to the number of entries once the fixed cost of a "
        "batch (the table of its queries) is paid: the slope tends to 1. Encoding costs n log n.",
        f"## Against the number of entries\n\nMilliseconds of a search for the ten best, {options['bits']} of "
        f"{options['pool']}, compact layout, "
        f"{options['threads']} thread(s); the slope is that of log time between the last two sizes. "
        + source(results, "scale"),
        table(["entries", *(f"{n:,}" for n in sizes), "slope"], lines),
        "![Cost against the number of entries](images/scale.png)",
        "## Against the number of features\n\nOne projection of sixteen is kept; search is with a real-valued "
        "query, 64 at a time.",
        table(["features", "kept", "bytes", "encode, µs a signal", "slope", "search, ns per pair"], growth),
        billion(report, entries),
    )


def billion(report, entries):
    """What the largest size measured says of 10**9 entries."""
    options = report["options"]
    largest = max(row["entries"] for row in entries)
    code_bytes = entries[0]["bytes"]
    slopes = [row["slope"] for row in entries if row["entries"] == largest]
    lines = []
    for row in entries:
        if row["entries"] == largest:
            core_seconds = row["seconds"]["median"] / largest * BILLION * options["threads"]
            lines.append(
                [
                    f"{row['scoring']}, {row['queries']} queries",
                    f"{core_seconds:,.0f}",
                    f"{core_seconds / row['queries']:,.1f}",
                    f"{core_seconds / MACHINE_CORES / n_machines(code_bytes):,.1f}",
                ]
            )
    total = (code_bytes + REALS_AND_ID) * BILLION / 1e9
    encode = (
        next(row for row in report["measured"]["features"] if row["features"] == 8192) if has_8192(report) else None
    )
    parts = [
        "## A billion entries, on paper",
        f"Not measured: reckoned from the time per entry at {largest:,} entries, taken to stay what it is there "
        f"(slopes of "
        f"{min(slopes):.2f} to {max(slopes):.2f} were measured). Codes take {code_bytes * BILLION / 1e9:,.0f} GB, "
        f"{total:,.0f} GB with norms, scales and ids: {n_machines(code_bytes)} machines of {MACHINE_GB} GB and "
        f"{MACHINE_CORES} "
        "cores, their shards searched apart and the ten best of each merged. The last column supposes that "
        "cores do not "
        "slow each other down; at one query they share a memory bandwidth that few cores exhaust, so take it as "
        "the least.",
        table(
            [
                "",
                "core seconds a batch",
                "core seconds a query",
                f"seconds on {n_machines(code_bytes)} x {MACHINE_CORES} cores",
            ],
            lines,
        ),
    ]
    if encode:
        hours = encode["encode_seconds"]["median"] * BILLION * options["threads"] / 3600
        parts.append(
            f"Encoding a billion signals of 8192 features takes {hours:.1f} core hours, and reading their "
            f"{4 * 8192 * BILLION / 1e12:.0f} TB at 1 GB/s "
            f"takes {4 * 8192 * BILLION / 1e9 / 3600:.0f} hours: the signals, not the codes, are what is large."
        )
    parts.append(
        "A search that must answer one query in milliseconds at this size needs an index that skips most "
        "entries (an inverted "
        "file, a graph); this library scans them all, exactly."
    )
    return join(*parts)


def n_machines(code_bytes):
    return -(-(code_bytes + REALS_AND_ID) * BILLION // (MACHINE_GB * 8 * 10**8))  # four fifths of the memory


def has_8192(report):
    return any(row["features"] == 8192 for row in report["measured"]["features"])
