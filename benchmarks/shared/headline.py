"""The table of results in the README, each row linked to its files."""

from statistics import NormalDist

from shared.markdown import listed, table
from shared.quality_page import of_method
from topsign.theory import rate_distortion_limit

FOLDER = "benchmarks/results"
N_FEATURES = 8192
PROCESSORS = {
    "search-512-8192-t1": "Zen 3",
    "paths/zen4": "Zen 4",
    "paths/sapphire-rapids-16": "Sapphire Rapids",
}


def headline(results):
    """One row per result that is there."""
    parts = (detection, text, head, speed, encoding)
    rows = [row for row in (part(results) for part in parts) if row]
    return table(["task", "measured", "files"], rows) if rows else ""


def links(*names):
    return ", ".join(f"[{name}]({FOLDER}/{name}.json)" for name in names)


def detection(results):
    """Weak matches found, as in the figure above the table."""
    if not {"detection", "trellis/detection"} <= results.keys():
        return []
    report = results["detection"]["measured"]
    (row,) = [one for one in report["rows"] if (one["method"], one["scoring"]) == ("adaptive", "real query")]
    signs = found(of_method(report["rows"], "sign codes", "equal bytes, compact layout"))
    best = max(results["trellis/detection"]["measured"]["detection"], key=lambda row: row["window"])
    share = rate_distortion_limit(8 * best["bytes"] / N_FEATURES)
    limit = found(report["correlation"] * (N_FEATURES * float(share)) ** 0.5)
    return [
        f"Detect signals of {N_FEATURES:,} features at a correlation of {report['correlation']:.3f}, one false alarm "
        "in 1,000 comparisons",
        f"adaptive codes of {row['bytes']} bytes find {found(row['d_prime']):.0%}, sign codes of {row['bytes']} bytes "
        f"{signs:.0%}, trellis codes of {best['bytes']} bytes {found(best['d_prime']):.0%}; no code of "
        f"{best['bytes']} bytes finds more than {limit:.0%}",
        links("detection", "trellis/detection"),
    ]


def found(index):
    """Share of matches at one false alarm in a thousand comparisons, given the detection index d'."""
    return NormalDist().cdf(index - NormalDist().inv_cdf(0.999))


def text(results, n_bytes=24):
    if "trellis/text" not in results:
        return []
    measured = results["trellis/text"]["measured"]
    recall = {row["method"]: row["recall"] for row in measured["rows"] if row["bytes"] == n_bytes}
    names = {
        "trellis, 16 local bases": "trellis codes",
        "residual quantiser": "residual quantiser",
        "OPQ": "OPQ",
        "signs": "sign codes",
        "adaptive": "adaptive codes",
    }
    return [
        f"Search {measured['entries']:,} sentence embeddings of {measured['features']} features in {n_bytes} bytes "
        "each",
        "recall@10: " + ", ".join(f"{words} {recall[name]:.2f}" for name, words in names.items() if name in recall),
        links("trellis/text"),
    ]


def head_row(results):
    """The row of the compact layout, or None without results."""
    if "heads-0.45" not in results:
        return None
    report = results["heads-0.45"]
    name = f"{report['options']['bits'][0]} of {report['options']['pool']}, compact"
    return next(row for row in report["measured"]["rows"] if row["name"] == name)


def head(results):
    row = head_row(results)
    if row is None:
        return []
    options = results["heads-0.45"]["options"]
    return [
        f"Compress a head of {options['classes']:,} classes and {options['features']:,} features (synthetic)",
        f"{row['times_smaller']:.0f} times smaller, {row['agreement']:.0%} of the top classes unchanged, "
        f"{row['times_faster']['median']:.1f} times as fast as the matrix product on one thread",
        links("heads-0.45"),
    ]


def hamming(report):
    """Nanoseconds per pair by number of queries: ours in the compact layout, and FAISS's of equal storage."""
    rows = report["measured"]["rows"]
    if report["script"] == "search.py":
        named = {(row["name"], row["batch"]): row["nanoseconds"]["median"] for row in rows}
        (peer,) = {name for name, _ in named if "equal storage" in name}
        return {size: (named["topsign Hamming, compact", size], named[peer, size]) for size in (1, 256)}
    kept = [row for row in rows if (row["kind"], row["layout"], row["threads"]) == ("Hamming", "compact", 1)]
    best = {row["queries"]: row["ns"] for row in kept if row["queries"] in (1, 256)}
    return {size: (ns[report["machine"]["kernels"]], ns["faiss 3272 bits"]) for size, ns in best.items()}


def hamming_ratios(results):
    """Ratios on all processors, ascending: times as fast with 256 queries, and times as long with one."""
    times = [hamming(results[name]) for name in PROCESSORS if name in results]
    faster = sorted(theirs / ours for ours, theirs in (one[256] for one in times))
    slower = sorted(ours / theirs for ours, theirs in (one[1] for one in times))
    return (faster, slower) if times else None


def speed(results):
    ratios = hamming_ratios(results)
    if ratios is None:
        return []
    faster, slower = ratios
    names = [name for name in PROCESSORS if name in results]
    return [
        "Search by Hamming distance, compared with FAISS on sign codes of equal storage, one thread "
        f"({listed([PROCESSORS[name] for name in names])})",
        f"256 queries: {faster[0]:.0f} to {faster[-1]:.0f} times as fast as FAISS; a single query takes "
        f"{slower[0]:.1f} to {slower[-1]:.1f} times as long as with FAISS",
        links(*names),
    ]


def encoding(results):
    names = [name for name in ("encode-t1", "encode-t2") if name in results]
    if not names:
        return []
    rows = [row for name in names for row in results[name]["measured"]["rows"]]
    ratios = sorted(row["times_as_fast_as_gemm"]["median"] for row in rows if row["name"] == "topsign encode, hadamard")
    return [
        f"Encode signals of {N_FEATURES:,} features, batches of 256",
        f"{ratios[0]:.0f} (two threads) to {ratios[-1]:.0f} (one thread) times as fast as the matrix product of a "
        "dense projection",
        links(*names),
    ]
