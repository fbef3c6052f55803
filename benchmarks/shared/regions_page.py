"""Results of searches for a recall in docs/reference/benchmarks.md."""

from shared.markdown import join, source, table

SECTIONS = ("recall", "shifted", "alike", "sizes", "originals", "peers", "peers-100000", "weak")
NAMES = tuple(f"regions/{name}" for name in SECTIONS)
FAMILIES = "regions/families"
BUSY = (
    "Some machines were shared with other work, which affects processor time less than wall-clock time; on an idle "
    "machine times are lower."
)


def regions(results):
    """Requested and achieved recall, time, other libraries, and weak matches."""
    found = {name.partition("/")[2]: results[name]["measured"] for name in NAMES if name in results}
    if not found:
        return ""
    made = {
        "recall": _recall,
        "shifted": _shifted,
        "alike": _alike,
        "sizes": _sizes,
        "originals": _originals,
        "peers": _peers,
        "peers-100000": _peers,
        "weak": _weak,
    }
    parts = [made[name](measured) for name, measured in found.items()]
    held = [name for name in NAMES if name in results]
    return join("## Searches for a recall", BUSY, *parts, source(results, *held), _families(results))


def _families(results):
    """Adaptive and sign codes, which were measured on another machine."""
    if FAMILIES not in results:
        return ""
    measured, lines = results[FAMILIES]["measured"], []
    for recall in measured["recall"]:
        rows = [row for row in measured["times"] if row["case"] == recall["case"]]
        took = {(row["batch"], row["asked"]): f"{1e3 * row['seconds_each']:.3f}" for row in rows}
        asked = recall["asked"]
        lines.append(
            [
                recall["case"],
                *(took[batch, one] for batch in (1, 256) for one in (None, asked)),
                f"{1e3 * recall['batch_seconds_each']:.3f}",
                f"{recall['achieved']:.3f} ± {recall['standard_error']:.3f} ({recall['visited']:.3f})",
            ]
        )
    shown, n_entries = f"recall={measured['recall'][0]['asked']:.2f}", measured["times"][0]["n_entries"]
    header = ["", "one query, exhaustive", f"one query, {shown}", "256 queries, exhaustive", f"256 queries, {shown}"]
    return join(
        "### Adaptive and sign codes",
        f"{n_entries:,} sentences, k = 10: processor time in ms per query, one thread. A batch is compared with all "
        "entries if that is expected to take less time; the next column has the time if it visits regions "
        "nevertheless. Recall is that of visits, with its standard error and the share of the entries visited.",
        table([*header, "256 queries, visits", "recall of visits"], lines),
        source(results, FAMILIES),
    )


def _recall(measured):
    return join(
        "### Requested and achieved recall",
        "Share of the results of an exhaustive search by trellis codes of 24 bytes that a search for a recall returns: "
        "mean over held-out queries with its standard error, and the share of the entries visited in parentheses.",
        _recall_table(measured["recall"]),
    )


def _shifted(measured):
    return join(
        "### Queries that differ from the entries",
        "Resampled entries lie between sentences, so real sentences have another distribution. The recall is "
        "guaranteed for queries that are distributed like the entries, or like those passed to `calibrate_recall`.",
        _recall_table(measured["recall"]),
    )


def _alike(measured):
    times = measured["times"]
    return join(
        "### Queries like the entries",
        f"{times['n_entries']:,} resampled sentences, trellis codes of 24 bytes. The guarantee applies to queries that "
        "are resampled in the same way as the entries; real sentences differ from them, and fall short at k = 1. With "
        f"recall=0.95 and k = 10 one query takes {1e3 * times['one_query_seconds']:.2f} ms of processor time, and a "
        f"batch of 256 queries {1e3 * times['batch_seconds_each']:.2f} ms per query, in one thread.",
        _recall_table(measured["recall"]),
    )


def _recall_table(rows):
    asked = sorted({row["asked"] for row in rows})
    lines = []
    for case, k in dict.fromkeys((row["case"], row["k"]) for row in rows):
        here = {row["asked"]: row for row in rows if (row["case"], row["k"]) == (case, k)}
        cells = [
            f"{here[one]['achieved']:.3f} ± {here[one]['standard_error']:.3f} ({here[one]['visited']:.3f})"
            for one in asked
        ]
        lines.append([case, k, f"{next(iter(here.values()))['n_queries']:,}", *cells])
    return table(["", "k", "queries", *(f"recall={one:.2f}" for one in asked)], lines)


def _sizes(measured):
    lines = []
    for row in measured["sizes"]:
        asked = "exhaustive" if row["asked"] is None else f"recall {row['asked']:.2f}"
        each, visited = 1e3 * row["seconds_each"], row.get("visited")
        lines.append(
            [f"{row['n_entries']:,}", row["batch"], asked, f"{each:.3f}", "" if visited is None else f"{visited:.3f}"]
        )
    times = table(["entries", "queries in a batch", "", "processor ms per query", "visited (batches of 256)"], lines)
    learned = {row["n_entries"]: row for row in measured["sizes"]}
    notes = [
        f"{row['n_regions']:,} regions of {n:,} entries were learned and calibrated in {row['learning_seconds']:.0f} s "
        f"(wall clock), after encoding in {row['build_seconds']:.0f} s"
        for n, row in learned.items()
    ]
    text = "Resampled sentences, trellis codes of 24 bytes, k = 10, one thread. " + "; ".join(notes) + "."
    return join("### Time by the number of entries", text, times)


def _originals(measured):
    rows = measured["originals"]
    lines = [
        [
            row["case"],
            f"{row['n_queries']:,}",
            f"{row['achieved']:.3f} ± {row['standard_error']:.3f} ({row['visited']:.3f})",
            f"{1e3 * row['warm_seconds']:.2f}",
            f"{1e3 * row['cold_seconds_median']:.2f}",
            f"{1e3 * row['first_seconds']:.0f}",
        ]
        for row in rows
    ]
    header = ["", "queries", "recall@10", "warm, processor ms", "cold, median ms", "first query, ms"]
    one = rows[0]
    return join(
        "### Exact neighbours with originals on disk",
        f"{one['n_entries']:,} resampled sentences, 24 bytes of code and float16 originals in a folder, "
        f"recall={one['asked']:.2f}: recall@10 of the exact neighbours with its standard error, and the share of the "
        "entries visited in parentheses. Times are those of one query in one thread: processor time with a warm page "
        f"cache, and wall time of 100 queries after the cache was dropped ({one['cold_is']}). The index has "
        f"{one['nbytes'] / one['n_entries']:.0f} bytes per entry (code, id and region), and on disk "
        f"{one['originals_nbytes'] / one['n_entries']:.0f} more for the originals. Real sentences differ from the "
        "resampled entries, so they reach the requested recall only after `calibrate_recall`.",
        table(header, lines),
    )


def _peers(measured):
    rows = measured["peers"]
    n_entries, n_queries, threads = rows[0]["n_entries"], rows[0]["n_queries"], measured["build_threads"]
    return join(
        f"### Comparison with other libraries, {n_entries:,} entries",
        f"{n_entries:,} resampled sentences, recall@10 of the exact neighbours of {n_queries:,} real sentences, "
        f"processor time of one thread, one run. Indexes were built in {threads} "
        f"{'thread' if threads == 1 else 'threads'} of a machine that was shared with other work (wall time). Bytes "
        "include codes, ids, regions and links. The other libraries were tuned with 1,000 other queries and their "
        "exact neighbours; topsign was not, except where `calibrate_recall` is named, which uses the same queries.",
        "Codes without originals. topsign asks for 95% of what its codes find; FAISS visits the fewest lists that "
        "find 95% of what its codes find in a quarter of the lists:",
        _peer_table([row for row in rows if row["equal"] == "bytes"]),
        f"A recall of .95 of the exact neighbours.{_missing(rows)} topsign and FAISS rank candidates by float16 "
        "originals; graphs use the smallest `ef` that reaches it, or 512:",
        _peer_table([row for row in rows if row["equal"] == "recall"]),
        _winners(rows),
    )


def _peer_table(rows):
    lines = []
    for row in rows:
        size = f"{row['bytes_per_entry']:.0f}"
        if row["originals_bytes_per_entry"]:
            size += f" + {row['originals_bytes_per_entry']:.0f}"
        lines.append(
            [
                row["name"],
                row["setting"],
                size,
                f"{row['recall']:.3f} ± {row['standard_error']:.3f}",
                f"{1e3 * row['one_query_seconds']:.3f}",
                f"{1e3 * row['batch_seconds_each']:.3f}",
                f"{row['build_seconds']:.0f}",
            ]
        )
    header = ["", "setting", "bytes per entry (+ originals)", "recall@10", "one query, ms", "256 queries, ms each"]
    return table([*header, "build, s"], lines)


def _missing(rows):
    """A sentence about a library that was not measured at this size."""
    if any(row["name"].startswith("hnswlib") for row in rows):
        return ""
    return " hnswlib is missing, because its graph of this many entries was not finished; the next section has it."


def _winners(rows):
    """The best library in each column, by name."""
    parts = []
    for equal, what in (("bytes", "Without originals"), ("recall", "At equal recall")):
        here = [row for row in rows if row["equal"] == equal and (equal == "bytes" or row["recall"] >= 0.94)]
        single = min(here, key=lambda row: row["one_query_seconds"])["name"]
        batch = min(here, key=lambda row: row["batch_seconds_each"])["name"]
        found = f"{what}, one query is answered fastest by {single}, and a batch by {batch}; "
        if equal == "bytes":
            found += f"{max(here, key=lambda row: row['recall'])['name']} finds most, "
        small = min(here, key=lambda row: row["bytes_per_entry"])
        parts.append(found + f"{small['name']} takes the fewest bytes in memory.")
    return " ".join(parts) + " None of the other libraries guarantees a recall."


def _weak(measured):
    rows = measured["weak"]
    shown = table(
        ["correlation of the match", *(f"{row['correlation']:.1f}" for row in rows)],
        [["share visited", *(f"{row['visited']:.3f}" for row in rows)]],
    )
    return join(
        "### Weak matches",
        "100,000 white signals of 256 features: share of the entries that must be visited for a match to "
        "be among them with a probability of 90%. Below a correlation of about 0.2 regions do not help.",
        shown,
    )
