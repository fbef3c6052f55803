"""Speed and memory of encoding, searching, durable indexes, heads and theory, with the limits of the machine."""

from math import log2

from shared.markdown import join, number, source, table, threads

LANES = 8  # float32 in a vector of 256 bits
MAIN = "search-512-8192-t1"


def rates(results, threads):
    """Measured bytes and vector operations a second, or None."""
    if "limits" not in results:
        return None
    rows = {row["threads"]: row for row in results["limits"]["measured"]["rows"]}
    row = rows.get(threads)
    return row and (row["gigabytes_per_second"]["median"] * 1e9, row["gigaflops"]["median"] * 1e9 / (2 * LANES))


def limits(results):
    if "limits" not in results:
        return ""
    lines = [
        [
            row["threads"],
            f"{row['gigabytes_per_second']['median']:.1f}",
            f"{row['gigaflops']['median']:.0f}",
            f"{row['gigaflops']['median'] / (2 * LANES):.1f}",
        ]
        for row in results["limits"]["measured"]["rows"]
    ]
    return join(
        "## Limits of the machine",
        "The following sections give in parentheses a lower bound of the time on this machine: the bytes that a method "
        "must read divided by the measured bandwidth (reads from a cache are faster), or the operations of its inner "
        "loop divided by the measured peak, whichever is larger. A pair of a query and an entry takes five logical "
        "operations on the bits of 256 queries per kept projection (topsign, Hamming), an addition of sixteen 16-bit "
        "values per kept projection (topsign, real-valued query), a popcount per 64 bits (sign codes; RaBitQ, for each "
        "bit of the query), a shuffle per 32 parts (PQ fast-scan), or a fused multiply-add of eight floats (float32). "
        + source(results, "limits"),
        table(["threads", "GB/s read", "GFLOP/s float32", "10^9 vector operations per second"], lines),
    )


def operations(name, options):
    """Fewest operations of a pair, by the name of the search."""
    bits, pool = options["bits"], options["pool"]
    if name.startswith("topsign Hamming"):
        return 5 * bits / 256
    if name.startswith("topsign asymmetric"):
        return bits / 16
    if "RaBitQ" in name:
        return pool / 64 * (4 if "4-bit" in name else 1)
    if "fast-scan" in name:
        return int(name.split(",")[1].split()[0]) / 32
    if "float32" in name:
        return pool / LANES
    return int(name.rsplit(",", 1)[1].split()[0]) / 64  # so many sign bits


def search_limit(row, options, rate):
    """Nanoseconds per pair: codes are read once a batch."""
    bandwidth, peak = rate
    return 1e9 * max(row["bytes"] / row["batch"] / bandwidth, operations(row["name"], options) / peak)


def search_lines(results, name):
    report = results[name]
    rows, options = report["measured"]["rows"], report["options"]
    lines = []
    for search in dict.fromkeys(row["name"] for row in rows):
        chosen = [row for row in rows if row["name"] == search]
        threads = 1 if search.endswith("one thread") else options["threads"]
        rate = rates(results, threads)
        cells = []
        for row in chosen:
            limit = f" ({number(search_limit(row, options, rate))})" if rate else ""
            cells.append(number(row["nanoseconds"]["median"]) + limit)
        own = search.startswith("topsign")
        lines.append([f"**{search}**" if own else search, f"{chosen[0]['bytes']:,}", *cells])
    batches = [row["batch"] for row in rows if row["name"] == rows[0]["name"]]
    return table(["queries in a batch", "bytes", *batches], lines)


def searching(results):
    parts = []
    for name in sorted((name for name in results if name.startswith("search-")), key=shape_of):
        options = results[name]["options"]
        largest = max(
            row["nanoseconds"]["most"] / row["nanoseconds"]["median"] for row in results[name]["measured"]["rows"]
        )
        parts.append(f"### {options['bits']} of {options['pool']}, {threads(options['threads'])}")
        parts.append(
            f"{options['entries']:,} entries, k = 10. The slowest repeat took {largest:.2f} times its median. "
            + source(results, name)
        )
        parts.append(search_lines(results, name))
    if not parts:
        return ""
    head = [
        "## Search",
        "Nanoseconds per entry and query of an exhaustive search: medians of interleaved repeats, with the lower bound "
        "in parentheses. `asymmetric` keeps the query real-valued.",
    ]
    if MAIN in results:
        head.append("![Nanoseconds per entry and query against queries in a batch](../images/search.png)")
        head.append(
            "The chart shows 7 of the 13 searches in the first table: both scorings of the compact layout, and peers "
            "that store 400 to 1,100 bytes per entry or full vectors. It omits the fast layout, RaBitQ with 1-bit "
            "queries, and the three searches of 512 bits (BinaryFlat at equal computation, LSH and usearch). These "
            "read only 64 bytes per entry. The two by FAISS are the fastest for a single query, but codes of 512 bits "
            "detect fewer matches."
        )
    return join(*head, *parts)


def shape_of(name):
    _, bits, pool, threads = name.split("-")
    return -int(pool), -int(bits), threads


def encode_lines(results, name):
    report = results[name]
    rows, options = report["measured"]["rows"], report["options"]
    rate = rates(results, options["threads"])
    n, pool = options["features"], options["pool"]

    def limit(row):
        work = {
            "GEMM": n * pool / LANES,
            "hadamard": 3 * n * log2(n) / LANES,
            "gaussian": n * pool / LANES,
            "LSH": n * pool / LANES,
        }
        for key, amount in work.items():
            if key in row["name"] and rate:
                return f" ({number(1e6 * max(4 * n / rate[0], amount / rate[1]))})"
        return ""

    batches = list(dict.fromkeys(row["batch"] for row in rows))
    lines = []
    for contestant in dict.fromkeys(row["name"] for row in rows):
        chosen = {row["batch"]: row for row in rows if row["name"] == contestant}
        cells = [number(chosen[size]["microseconds"]["median"]) + limit(chosen[size]) for size in batches]
        own = f"**{contestant}**" if contestant == "topsign encode, hadamard" else contestant
        lines.append([own, *cells, f"{chosen[batches[0]]['times_as_fast_as_gemm']['median']:.1f}"])
    return table(["signals in a batch", *batches, f"times as fast as GEMM, {batches[0]}"], lines)


def encoding(results):
    names = [name for name in ("encode-t1", "encode-t2") if name in results]
    parts = []
    for name in names:
        options = results[name]["options"]
        parts += [
            f"### {threads(options['threads'])}",
            source(results, name),
            encode_lines(results, name),
        ]
    head = [
        "## Encoding",
        "Microseconds per signal: medians of interleaved repeats, with the lower bound in parentheses (three rounds of "
        "n log2 n additions for Hadamard projections, a matrix product for dense ones).",
    ]
    return join(*head, *parts) if parts else ""


def durable_sentence(results, name="durable"):
    if name not in results:
        return ""
    report = results[name]
    measured, options = report["measured"], report["options"]
    fresh, ratios = measured["fresh"], [row["ratio"]["median"] for row in measured["rows"]]
    return (
        f"A durable index of {options['entries']:,} entries of {options['bits']} of {options['pool']} "
        f"({measured['file_bytes'] / 1e6:,.0f} MB), {threads(options['threads'])}: it opens in "
        f"{1e3 * fresh['open_seconds']['median']:.0f} ms. A search of the mapped files takes {min(ratios):.2f} to "
        f"{max(ratios):.2f} times as long as a search in memory (medians over repeats, 1 and 64 queries, both "
        "scorings). The first search verifies all checksums and takes "
        f"{fresh['first_search_seconds']['median']:.2f} s, the next {fresh['next_search_seconds']['median']:.2f} s. "
        f"The process uses {fresh['resident_mb_beyond_file']['median']:.0f} MB besides the mapped files. `add` reaches "
        f"{1 / measured['adding']['ratio']['median']:.0%} of the speed of encoding. " + source(results, name)
    )


def durable(results):
    parts = []
    for name in ("durable", "durable-t2"):
        if name in results:
            parts += [durable_sentence(results, name), durable_lines(results, name)]
    if not parts:
        return ""
    return join("## Durable indexes", *parts, "Times are milliseconds per search, with the lower bound in parentheses.")


def durable_lines(results, name):
    measured, options = results[name]["measured"], results[name]["options"]
    rate = rates(results, options["threads"])
    lines = []
    for row in measured["rows"]:
        pairs = row["queries"] * options["entries"]
        search = {
            "name": "topsign Hamming" if row["scoring"] == "hamming" else "topsign asymmetric",
            "batch": row["queries"],
            "bytes": measured["file_bytes"] / options["entries"],
        }
        limit = f" ({number(search_limit(search, options, rate) * pairs / 1e6)})" if rate else ""
        lines.append(
            [
                f"{search['name'].removeprefix('topsign ')}, {row['queries']}",
                number(1e3 * row["seconds"]["median"]) + limit,
                number(1e3 * row["in_memory"]["median"]),
                f"{row['ratio']['median']:.2f} ({row['ratio']['least']:.2f} to {row['ratio']['most']:.2f})",
            ]
        )
    return table(["scoring, queries", "mapped files", "in memory", "ratio (min to max)"], lines)


def large_heads(results):
    names = sorted(name for name in results if name.startswith("heads-"))
    if not names:
        return ""
    lines = []
    for name in names:
        measured, options = results[name]["measured"], results[name]["options"]
        for row in measured["rows"]:
            exact = row["name"] == "float32"
            lines.append(
                [
                    options["correlation"],
                    options["threads"],
                    row["name"],
                    f"{row['bytes_per_class']:,.0f}",
                    number(row["milliseconds"]["median"])
                    + head_limit(row, options, rates(results, options["threads"])),
                    "" if exact else f"{row['times_faster']['median']:.1f}",
                    "" if exact else f"{row['agreement']:.2%}",
                    f"{measured['accuracy'] if exact else row['accuracy']:.2%}",
                ]
            )
    options = results[names[0]]["options"]
    return join(
        "## Large heads",
        f"Top class of {options['classes']:,} synthetic classes, {options['features']} features, batches of "
        f"{options['batch']}. The correlation of an input with the weights of its class determines how clear the top "
        "class is. Times have their lower bound in parentheses. A shortlist also stores the weights, "
        f"{4 * options['features']:,} bytes per class in float32. " + source(results, *names),
        table(
            [
                "correlation",
                "threads",
                "head",
                "bytes of codes per class",
                "ms per batch",
                "times faster",
                "agreement",
                "accuracy",
            ],
            lines,
        ),
    )


def head_limit(row, options, rate):
    """Milliseconds of a batch at the least: weights or codes are read once."""
    if rate is None:
        return ""
    bandwidth, peak = rate
    one = options["features"] / LANES if row["name"] == "float32" else options["bits"][0] / 16
    seconds = max(row["bytes_per_class"] / bandwidth, options["batch"] * one / peak) * options["classes"]
    return f" ({number(1e3 * seconds)})"


def memory_sentence(results):
    if "memory" not in results:
        return ""
    encoding, long_signal = (results["memory"]["measured"][name] for name in ("encoding", "long_signal"))
    return (
        f"Encoding {encoding['signals']:,} signals of 8192 features from a memory-mapped file of "
        f"{encoding['file_mb']:,.0f} MB raises the peak memory by {encoding['growth_mb']:.0f} MB, of which "
        f"{encoding['codes_mb']:.0f} MB are codes. A signal of {long_signal['features']:,} features takes "
        f"{long_signal['milliseconds']['median']:.0f} ms to encode. " + source(results, "memory")
    )


def memory(results):
    if "memory" not in results:
        return ""
    rows = results["memory"]["measured"]["rows"]
    lines = [
        [row["layout"], f"{row['entries']:,}", f"{row['growth_mb']:.0f}", f"{row['highest_mb']:.0f}"] for row in rows
    ]
    return join(
        "## Memory",
        memory_sentence(results),
        "Memory of an index with norms, scales and ids:",
        table(["layout", "entries", "final, MB", "peak, MB"], lines),
    )


def theory(results):
    if "theory" not in results:
        return ""
    rows = results["theory"]["measured"]["rows"]
    lines = [[row["name"], f"{row['seconds']['median']:.3f}", f"{row['seconds']['most']:.3f}"] for row in rows]
    return join("## Theory", source(results, "theory"), table(["first call, caches empty", "seconds", "worst"], lines))


def targets(results):
    """Targets of the library, whether this run reached them, and the likely cause if it did not."""
    lines = [target for target in [*search_targets(results), *other_targets(results)] if target]
    shown = []
    for words, value, bound, at_least, cause in lines:
        held = value >= bound if at_least else value <= bound
        sign = "at least" if at_least else "at most"
        shown.append([words, f"{sign} {bound:g}", number(value), "yes" if held else f"**no**; likely cause: {cause}"])
    if not shown:
        return ""
    return join(
        "## Targets",
        "Targets set before the measurement, and the results.",
        table(["", "target", "measured", "reached"], shown),
    )


def search_targets(results):
    if MAIN not in results:
        return

    def ns(name, batch, run=MAIN):
        rows = results[run]["measured"]["rows"]
        found = [row for row in rows if row["name"].startswith(name) and row["batch"] == batch]
        return found[0]["nanoseconds"]["median"] if found else None

    def ratio(words, slower, faster, batch, bound, at_least, cause):
        above, below = ns(slower, batch), ns(faster, batch)
        return (words, above / below, bound, at_least, cause) if above and below else None

    few, many = "faiss BinaryFlat, equal computation", "faiss BinaryFlat, equal storage"
    hamming, compact, real = "topsign Hamming, fast", "topsign Hamming, compact", "topsign asymmetric, fast"
    table_cause = "the table of query bits fills the second-level cache, so a slower or shared cache has an effect"
    one_cause = "a single query cannot share loads with others, so every kept projection takes one"
    yield ratio(
        "Hamming, 256 queries: times as fast as BinaryFlat of 512 bits", few, hamming, 256, 1.2, True, table_cause
    )
    yield ratio(
        "Hamming, 256 queries: times as fast as BinaryFlat of equal storage", many, hamming, 256, 12, True, table_cause
    )
    yield ratio(
        "Hamming, 64 queries: times the time of BinaryFlat of 512 bits", hamming, few, 64, 2.6, False, table_cause
    )
    yield ratio(
        "Hamming, 1 query: times the time of BinaryFlat of equal storage", hamming, many, 1, 2.8, False, one_cause
    )
    yield ratio(
        "compact over fast, Hamming, 256 queries",
        compact,
        hamming,
        256,
        1.6,
        False,
        "the cost of unpacking codes",
    )
    yield ratio(
        "real-valued, 256 queries: times as fast as RaBitQ, 4-bit",
        "faiss RaBitQ, 4-bit",
        real,
        256,
        10,
        True,
        table_cause,
    )
    yield ratio(
        "real-valued, 1 query: times as fast as RaBitQ, 4-bit", "faiss RaBitQ, 4-bit", real, 1, 1, True, one_cause
    )
    two, one_thread = "search-512-8192-t2", f"{hamming}, one thread"
    if two in results and ns(one_thread, 256, two):
        gain = ns(one_thread, 256, two) / ns(hamming, 256, two)
        yield (
            "two threads over one, Hamming, 256 queries",
            gain,
            1.6,
            True,
            "the cores share a cache, or one was busy",
        )


def other_targets(results):
    if "durable" in results:
        measured = results["durable"]["measured"]
        slowest = max(row["ratio"]["median"] for row in measured["rows"])
        share = 1 / measured["adding"]["ratio"]["median"]
        beyond = measured["fresh"]["resident_mb_beyond_file"]["median"]
        yield "durable: ms to open", 1e3 * measured["fresh"]["open_seconds"]["median"], 50, False, "the disk"
        yield (
            "durable: time of a search relative to memory",
            slowest,
            1.1,
            False,
            "mapped pages are small, so the TLB misses more often",
        )
        yield "durable: speed of add relative to encoding", share, 0.6, True, "the disk"
        yield "durable: MB besides the mapped files", beyond, 300, False, "workspace of the batch kernels"
    if "heads-0.45" in results:
        rows = {row["name"]: row for row in results["heads-0.45"]["measured"]["rows"]}
        fast = next((row for name, row in rows.items() if name.endswith("fast")), None)
        listed = next((row for name, row in rows.items() if "fast, shortlist" in name), None)
        if fast and listed:
            yield "head of 100,000 classes: times smaller", fast["times_smaller"], 12, True, "few features"
            yield "head: times as fast as float32", fast["times_faster"]["median"], 3, True, "few features"
            yield (
                "head, shortlist=100: percent agreement",
                100 * listed["agreement"],
                99.9,
                True,
                "top classes too close",
            )
    if "memory" in results:
        for row in results["memory"]["measured"]["rows"]:
            bound = {"compact": 490, "fast": 620}[row["layout"]]
            if row["entries"] == 10**6:
                yield f"million entries, {row['layout']}: MB", row["growth_mb"], bound, False, "ids, norms and scales"
                yield (
                    f"million entries, {row['layout']}: peak over final",
                    row["highest_mb"] / row["growth_mb"],
                    1.3,
                    False,
                    "merging",
                )
    if "detection" in results:
        rows = results["detection"]["measured"]["rows"]
        by = {(row["method"], row["equal"]): row["d_prime"] for row in rows if row["scoring"] == "real query"}
        ours, theirs = by[("adaptive", "")], by[("sign codes", "equal bytes, compact layout")]
        yield "detection: d' over that of sign codes of equal bytes", ours / theirs, 1, True, "too few pairs"
