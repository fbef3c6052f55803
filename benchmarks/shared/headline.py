"""The line of headline ratios in the README, each linked to its result file."""

from statistics import NormalDist

from shared.quality_page import of_method
from topsign.theory import rate_distortion_limit

FOLDER = "benchmarks/results"
N_FEATURES = 8192


def headline(results):
    """One sentence per result that is there."""
    parts = [detection(results), head(results), speed(results), encoding(results)]
    return "Measured: " + "; ".join(part for part in parts if part) + "." if any(parts) else ""


def link(words, name):
    return f"[{words}]({FOLDER}/{name}.json)"


def detection(results):
    """Weak matches found, as in the picture above the line."""
    if not {"detection", "trellis/detection"} <= results.keys():
        return ""
    report = results["detection"]["measured"]
    ours = found(of_method(report["rows"], "adaptive", ""))
    signs = found(of_method(report["rows"], "sign codes", "equal bytes, compact layout"))
    best = max(results["trellis/detection"]["measured"]["detection"], key=lambda row: row["window"])
    share = rate_distortion_limit(8 * best["bytes"] / N_FEATURES)
    limit = found(report["correlation"] * (N_FEATURES * float(share)) ** 0.5)
    adaptive = link(f"{ours:.0%} of weak matches found where sign codes of equal bytes find {signs:.0%}", "detection")
    trellis = link(f"{found(best['d_prime']):.0%} with trellis codes", "trellis/detection")
    return f"{adaptive}, {trellis} in fewer bytes (no code of that size finds more than {limit:.0%})"


def found(index):
    """Share of matches at one false alarm in a thousand comparisons, the detection index d' given."""
    return NormalDist().cdf(index - NormalDist().inv_cdf(0.999))


def head(results):
    if "heads-0.45" not in results:
        return ""
    report = results["heads-0.45"]
    options = report["options"]
    rows = {row["name"]: row for row in report["measured"]["rows"]}
    kept = f"{options['bits'][0]} of {options['pool']}"
    fast, compact = rows[f"{kept}, fast"], rows[f"{kept}, compact"]
    words = f"{fast['times_smaller']:.0f} to {compact['times_smaller']:.0f} times smaller"
    return (
        f"a head of {options['classes']:,} classes {link(words, 'heads-0.45')} that finds the top class "
        f"{compact['times_faster']['median']:.1f} times faster than the matrix product"
    )


def speed(results):
    name = "search-512-8192-t1"
    if name not in results:
        return ""
    rows = [row for row in results[name]["measured"]["rows"] if row["batch"] == 256]
    times = {row["name"]: row["nanoseconds"]["median"] for row in rows}
    ours = times["topsign Hamming, compact"]
    signs = next(value for search, value in times.items() if "equal storage" in search)
    words = f"{signs / ours:.0f} times as fast as FAISS searches sign codes"
    return f"batches searched by Hamming distance {link(words, name)} of equal storage"


def encoding(results):
    name = "encode-t1"
    if name not in results:
        return ""
    row = next(row for row in results[name]["measured"]["rows"] if row["name"] == "topsign encode, hadamard")
    words = f"{row['times_as_fast_as_gemm']['median']:.0f} times as fast as the matrix product"
    return f"signals encoded {link(words, name)} that others project with"
