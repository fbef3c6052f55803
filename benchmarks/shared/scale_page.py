"""The measured parts of docs/reference/scaling.md, and the table of plans in docs/how-to/scale.md."""

from dataclasses import asdict

from shared.markdown import join, number, source, table, threads
from shared.search_costs import fitted_rows, predicted
from topsign.theory import SearchCosts, plan_cluster

BILLION = 10**9
MACHINE_GB, MACHINE_CORES = 128, 32  # a plain server
SEGMENT_BYTES = 64 * 2**20  # of codes, by default
REALS_AND_ID = 20  # bytes: norm, scale, weight, id


def blocks(results):
    """Texts by marker; empty if the results are missing."""
    return {
        "entries": against_entries(results),
        "features": against_features(results),
        "cluster": cluster(results),
        "cluster-verbs": cluster_verbs(results),
        "cluster-recall": cluster_recall(results),
        "billion": billion(results),
    }


def against_entries(results):
    parts = []
    for name in ("scale", "scale-t2"):
        if name not in results:
            continue
        report = results[name]
        rows, options = report["measured"]["entries"], report["options"]
        sizes = sorted({row["entries"] for row in rows})
        lines = []
        for search, queries in dict.fromkeys((row["name"], row["queries"]) for row in rows):
            chosen = [row for row in rows if (row["name"], row["queries"]) == (search, queries)]
            cells = [number(1e3 * row["seconds"]["median"]) for row in chosen]
            slope = chosen[-1].get("slope", float("nan"))
            words = f"{search}, {queries} {'query' if queries == 1 else 'queries'}"
            lines.append([words, f"{chosen[0]['bytes']:,}", *cells, f"{slope:.2f}"])
        parts += [
            f"Milliseconds per search, k = 10, {options['bits']} of {options['pool']} in the compact layout, "
            f"{threads(options['threads'])}. The slope is that of log time between the last two sizes. "
            + source(results, name),
            table(["", "bytes", *(f"{n:,}" for n in sizes), "slope"], lines),
        ]
        if name == "scale":
            parts.append("![Time of a search against the number of entries](../images/scale.png)")
    return join(*parts) if parts else ""


def against_features(results):
    if "scale" not in results:
        return ""
    lines = [
        [
            f"{row['features']:,}",
            f"{row['n_bits']:,}",
            f"{row['bytes']:,}",
            number(1e6 * row["encode_seconds"]["median"]),
            f"{row['slope']:.2f}" if "slope" in row else "",
            number(1e9 * row["search_seconds"]["median"]),
        ]
        for row in results["scale"]["measured"]["features"]
    ]
    return join(
        "One thread, one projection of sixteen kept, batches of 64 real-valued queries. " + source(results, "scale"),
        table(["features", "kept", "bytes", "encode, µs per signal", "slope", "search, ns per pair"], lines),
    )


def cluster(results):
    if "cluster" not in results:
        return ""
    report = results["cluster"]
    measured, options = report["measured"], report["options"]
    names = {"hamming": "Hamming", "asymmetric": "real-valued"}
    searches = [
        [
            f"{names[row['scoring']]}, {row['workers']}",
            f"{row['one_process']['median']:.2f}",
            f"{row['seconds']['median']:.2f}",
            f"{row['ratio']['median']:.2f} ({row['ratio']['least']:.2f} to {row['ratio']['most']:.2f})",
        ]
        for row in measured["search"]
    ]
    encodings = [
        [
            row["workers"] or "this process, one thread",
            f"{row['signals_per_second']['median']:,.0f}",
            f"{row['of_a_thread_each']['median']:.2f}",
        ]
        for row in measured["encode"]
    ]
    segments = measured["segments"]
    cost = segments["a_segment"]
    opened = ", ".join(f"{row['seconds']:.1f} s on {row['workers']}" for row in measured["open"])
    return join(
        f"Workers are processes with one thread on one machine of {report['machine']['cores']} cores, so more workers "
        "than cores show the overhead, not the gain. " + source(results, "cluster"),
        f"Seconds per search of {options['entries']:,} entries of 512 of 8192 with {options['queries']} queries, on "
        "the cluster and in one process with as many threads as there are workers; ratios are medians over repeats "
        "(min to max):",
        table(["scoring, workers", "one process", "cluster", "ratio"], searches),
        f"Encoding of {options['signals']:,} signals of 8192 features, including writing and syncing files:",
        table(["workers", "signals per second", "relative to one thread each"], encodings),
        f"Opening the index took {opened} workers. A search of an almost empty index takes "
        f"{1e3 * segments['least_search_seconds']:.0f} ms. Every segment adds {1e3 * cost['encode_seconds']:.1f} ms to "
        f"encoding, {1e3 * cost['open_seconds']:.1f} ms to opening and {1e3 * cost['search_seconds']:.2f} ms to a "
        f"search ({segments['workers']} workers, tiny segments).",
    )


def cluster_verbs(results):
    if "cluster-verbs" not in results:
        return ""
    report = results["cluster-verbs"]
    options, measured = report["options"], report["measured"]
    n_workers = f"on {options['workers']} workers"
    spreads = {name: one for part in measured.values() for name, one in part.items() if name != "first_s"}
    took = {name: one["median"] for name, one in spreads.items()}
    return join(
        f"One query with a filter that keeps 1% of {options['entries']:,} entries (32 of 256 projections) takes "
        f"{took['filtered_ms']:.0f} ms {n_workers} and {took['one_process_ms']:.0f} ms in one process with as many "
        f"threads; without a filter it takes {took['plain_ms']:.0f} ms on the cluster, and the first use of a field "
        f"{measured['filter']['first_s']:.1f} s. All pairs of {options['paired']:,} entries (256 of 2048 projections) "
        f"take {took['cluster_s']:.1f} s {n_workers}, {took['one_process_s']:.1f} s in one process, ratio "
        f"{took['ratio']:.2f}. " + source(results, "cluster-verbs")
    )


def cluster_recall(results):
    """Searches for a recall on workers, and the cost model beside them."""
    return join(*(on_workers(results, name) for name in ("cluster_recall-16", "cluster_recall") if name in results))


def on_workers(results, name):
    """One run of ``cluster_recall.py``."""
    report = results[name]
    measured, n_copies, machine = report["measured"], report["options"]["copies"], report["machine"]
    rows, costs = measured["search"], SearchCosts(**measured.get("costs", {}))
    fitted = fitted_rows(rows) if "costs" in measured else []
    lines = []
    for row in rows:
        is_modelled = row["asked"] is not None or row["probes"] is not None
        model = predicted(costs, row) if is_modelled else 0.0
        ratio = f"{row['seconds'] / model:.2f}" if is_modelled else ""
        lines.append(
            [
                f"{row['workers']} worker{'s' * (row['workers'] > 1)}" if row["workers"] else "one process",
                f"recall {row['asked']:.2f}" if row["asked"] else "one region" if row["probes"] else "exhaustive",
                row["batch"],
                f"{1e3 * row['seconds']:,.1f}",
                f"{1e3 * row['least_seconds']:,.1f}",
                number(row["queries_per_second"]),
                f"{row['visited']:.2%}",
                f"{row['bytes_moved'] / row['batch']:,.0f}" if row["bytes_moved"] else "",
                f"{1e3 * model:,.1f}" if is_modelled else "",
                f"{ratio} (fitted)" if row in fitted else ratio,
            ]
        )
    header = ["", "", "batch", "median, ms", "least, ms", "queries per second", "visited", "bytes moved per query"]
    n_entries, is_busy = rows[0]["n_entries"], machine["load"] > machine["cores"]
    return join(
        f"{n_entries:,} trellis codes of 24 bytes: {n_entries // n_copies:,} resampled sentences, each {n_copies} "
        f"times, in {rows[0]['n_regions']:,} regions. Every worker is a process with one thread, on one machine of "
        f"{machine['cores']} cores; ids and scores are those of one process. "
        + "The load exceeded the number of cores, so times are longer than on an idle machine. " * is_busy
        + (f"Left out: {measured['left_out']}. " if "left_out" in measured else "")
        + source(results, name),
        table([*header, "model, ms", "median / model"], lines),
        'The column "model" is the prediction of `SearchCosts` for the fraction of the entries that was visited; the '
        "model does not describe exhaustive searches. "
        + (constants(costs, fitted) if fitted else "It uses the default constants, which do not come from this run."),
    )


def constants(costs, fitted):
    """Return the constants of a run with their defaults, and the rows to which they were fitted."""
    defaults, lines = asdict(SearchCosts()), []
    for name, value in asdict(costs).items():
        if "seconds" in name:
            lines.append([f"`{name}`", *(number(1e6 * one) for one in (value, defaults[name]))])
    return join(
        "Its constants were fitted to searches of the sentences before they were copied, in one process, and to the "
        f'{len(fitted)} rows marked "fitted", so these do not test the model; all others do.',
        table(["microseconds", "this run", "default"], lines),
    )


def plans(results):
    """The table of plans in docs/how-to/scale.md, with the default constants and with those of a slower machine."""
    known = {"default": SearchCosts()}
    if costs := results.get("cluster_recall", {"measured": {}})["measured"].get("costs"):
        machine = results["cluster_recall"]["machine"]
        known[f"{machine['cores']} cores, {machine['kernels']}"] = SearchCosts(**costs)
    lines = []
    for power in (7, 9, 10):
        for name, costs in known.items():
            plan = plan_cluster(10**power, recall=0.95, queries_per_second=1000, costs=costs)
            lines.append(
                [
                    f"10^{power}",
                    name,
                    f"{plan.n_regions:,}",
                    f"{100 * plan.visited:.2g}%",
                    number(plan.memory_bytes / 2**30),
                    number(plan.disk_bytes / 2**30),
                    number(1e3 * plan.seconds_per_query),
                    f"{plan.n_cores:,}",
                    f"{plan.n_workers:,}",
                    number(1e3 * plan.latency_seconds),
                ]
            )
    header = ["entries", "constants", "regions", "visited", "memory, GiB", "disk with float16 originals, GiB"]
    header += ["processor time of a query, ms", "cores", "workers", "latency, ms"]
    note = "The other rows use constants that were fitted on a machine without AVX-512." if len(known) > 1 else ""
    return {"plans": join(table(header, lines), note)}


def billion(results):
    """Estimate for 10**9 entries from the largest size that was measured."""
    if "scale" not in results:
        return ""
    report = results["scale"]
    options = report["options"]
    rows = [row for row in report["measured"]["entries"] if row["name"].startswith("topsign")]
    largest = max(row["entries"] for row in rows)
    rows = [row for row in rows if row["entries"] == largest]
    code_bytes = rows[0]["bytes"]
    machines = n_machines(code_bytes)
    n_segments = -(-BILLION * code_bytes // SEGMENT_BYTES)
    slopes = [row["slope"] for row in rows]
    segments = results["cluster"]["measured"]["segments"] if "cluster" in results else None
    lines = []
    for row in rows:
        core_seconds = row["seconds"]["median"] / largest * BILLION * options["threads"]
        line = [
            f"{row['name']}, {row['queries']} {'query' if row['queries'] == 1 else 'queries'}",
            f"{core_seconds:,.0f}",
            f"{core_seconds / row['queries']:,.1f}",
            f"{core_seconds / MACHINE_CORES / machines:,.1f}",
        ]
        lines.append(line)
    total = (code_bytes + REALS_AND_ID) * BILLION / 1e9
    parts = [
        f"This is an estimate, not a measurement. It assumes the time per entry at {largest:,} entries "
        f"(slopes of {min(slopes):.2f} to {max(slopes):.2f} were measured). Codes take "
        f"{code_bytes * BILLION / 1e9:,.0f} GB, {total:,.0f} GB with norms, scales and ids, on {machines} machines of "
        f"{MACHINE_GB} GB and {MACHINE_CORES} cores. The last column assumes perfect scaling over cores; a single "
        "query is limited by memory bandwidth, so the column is a lower bound.",
        table(
            ["", "core seconds per batch", "core seconds per query", f"seconds on {machines} x {MACHINE_CORES} cores"],
            lines,
        ),
    ]
    if segments:
        cost = segments["a_segment"]
        parts.append(
            f"These are {n_segments:,} segments of 64 MiB, {n_segments // machines:,} per machine. At the measured "
            f"cost per segment, they add {cost['search_seconds'] * n_segments / machines:.1f} s to a search; "
            f"{cost['open_seconds'] * n_segments / machines / 60:.1f} minutes to opening, in addition to reading "
            f"{total / machines:,.0f} GB per machine ({total / machines / 60:.0f} minutes at 1 GB/s); and "
            f"{cost['encode_seconds'] * n_segments / machines / 60:.1f} minutes to encoding."
        )
    encode = next((row for row in report["measured"]["features"] if row["features"] == 8192), None)
    if encode:
        hours = encode["encode_seconds"]["median"] * BILLION * options["threads"] / 3600
        parts.append(
            f"Encoding a billion signals of 8192 features takes {hours:.1f} core hours, and reading their "
            f"{4 * 8192 * BILLION / 1e12:.0f} TB at 1 GB/s takes {4 * 8192 * BILLION / 1e9 / 3600:.0f} hours."
        )
    parts.append(
        "This is the cost of exhaustive searches. A search for a recall visits a small part of the entries, see "
        "[Use a cluster](../how-to/scale.md)."
    )
    return join(*parts)


def n_machines(code_bytes):
    return -(-(code_bytes + REALS_AND_ID) * BILLION // (MACHINE_GB * 8 * 10**8))  # four fifths of the memory
