"""Tables of docs/reference/trellis-measurements.md: recall compared with other codes, heads, cameras and speed."""

from __future__ import annotations

import numpy as np

from .markdown import join, listed, table

SETS = {
    "text": "**Sentences**: {entries:,} of {features} features; codes trained on the entries.",
    "few": "**Few sentences**: {entries:,}; codes trained on the entries.",
    "unseen": "**Unseen sentences**: codes trained on {learned_from:,} sentences, {entries:,} others encoded.",
    "shift": "**Shift**: codes trained on {learned_from:,} definitions of nouns, {entries:,} of verbs encoded.",
    "cifar": "**Features of CIFAR-10 images**: {entries:,} of {features} features; codes trained on the entries.",
    "source": "**TF-IDF of source files**: {entries:,} of {features} features after SVD; codes trained on the entries.",
}
BUSY = 1.2  # load per core above which seconds are left out
LONG = ("OPQ", "residual quantiser")
ORDER = (
    "trellis, hadamard",
    "trellis, principal",
    "trellis, 16 local bases",
    "adaptive",
    "signs",
    "PCA + ITQ",
    *LONG,
)


def blocks(results):
    """Texts by marker; empty if the results are missing."""
    made = {"pairs": _pairs, "text": _text, "peers": _peers, "heads": _heads, "cameras": _cameras, "speed": _speeds}
    return {name: make(results).strip() for name, make in made.items()}


def _pairs(results):
    """Scores of near-duplicates by exact cosine, for each code."""
    if "trellis/pairs" not in results:
        return ""
    report = results["trellis/pairs"]
    rows = report["measured"]["pairs"]
    ranges = sorted({tuple(row["cosine"]) for row in rows})
    codes = sorted({(row["local"], row["bytes"]) for row in rows})
    found = {(row["local"], row["bytes"], *row["cosine"]): row for row in rows}
    lines = []
    for n_local, n_bytes in codes:
        here = [found[n_local, n_bytes, *one] for one in ranges]
        scores = [f"{row['median']:.2f} [{row['low']:.2f}, {row['high']:.2f}]" for row in here]
        lines.append([f"{'principal' if n_local == 1 else f'{n_local} local bases'}, {n_bytes} bytes", *scores])
    names = [f"{low:g} to {min(high, 1):g} ({found[*codes[0], low, high]['pairs']:,})" for low, high in ranges]
    return join(table(["pairs with an exact cosine of", *names], lines), _source(report))


def _text(results):
    return _contest(results, "text")


def _peers(results):
    return join(*(_contest(results, name) for name in SETS if name != "text"))


def _contest(results, name):
    """Recall by code and bytes, size of shared data, time on an idle machine, and differences."""
    report = results.get(f"trellis/{name}")
    if report is None:
        return ""
    measured = report["measured"]
    rows = {(row["method"], row["bytes"]): row for row in measured["rows"]}
    sizes, quiet = sorted({n_bytes for _, n_bytes in rows}), _quiet(measured)
    lines = []
    for method in sorted({method for method, _ in rows}, key=ORDER.index):
        own = [row for (one, _), row in rows.items() if one == method]
        cells = [_recall(rows.get((method, n_bytes))) for n_bytes in sizes]
        timed = _seconds([row for row in own if _name(row) in quiet])
        lines.append([method, *cells, _range([row["shared_bytes"] / 1000 for row in own]), timed])
    header = ["code", *(f"{n_bytes} bytes" for n_bytes in sizes), "shared, kB", "seconds to train; to encode"]
    return join(
        SETS[name].format_map(measured),
        table(header, lines),
        _differences(measured["differences"]),
        _seeds(measured["rows"]),
        _source(report),
    )


def _share(value):
    """Format a share without the zero before the point."""
    return f"{value:.3f}".removeprefix("0")


def _recall(row):
    return "" if row is None else f"{_share(row['recall'])} [{', '.join(map(_share, row['interval']))}]"


def _range(values):
    low, high = (f"{end:,.0f}" if end >= 10 or end == 0 else f"{end:.1f}" for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _quiet(measured):
    """Names of rows that were measured while the load was about the number of cores."""
    load = {_name(row): row["load"] for row in measured["rows"] if "load" in row}
    return {
        name
        for run in measured["runs"]
        for name in run["rows"]
        if load.get(name, run["machine"]["load"]) <= BUSY * run["machine"]["cores"]
    }


def _name(row):
    return f"{row['method']}, {row['bytes']} bytes"


def _seconds(rows):
    if not rows:
        return ""
    return "; ".join(_range([row[name] for row in rows]) for name in ("seconds_to_learn", "seconds_to_code"))


def _differences(found):
    """Recall of local bases minus recall of codes that are slow to train, on the same queries."""
    told = {}
    for one in found:
        if one["less"] in LONG:
            low, high = one["interval"]
            text = f"{one['mean']:+.3f} [{low:+.3f}, {high:+.3f}] at {one['bytes']} bytes"
            told.setdefault(one["less"], []).append((one["bytes"], text))
    parts = [f"{method}: {', '.join(text for _, text in sorted(texts))}" for method, texts in sorted(told.items())]
    return f"Recall of local bases minus that of others, on the same queries: {'; '.join(parts)}." if parts else ""


def _seeds(rows, name="method"):
    """Number of seeds, and the standard deviation between them."""
    several = [row["by_seed"] for row in rows if len(row["by_seed"]) > 1]
    if not several:
        return "One seed."
    spread, counts = max(np.std(one, ddof=1) for one in several), sorted({len(one) for one in several})
    alone = [row[name] for row in rows if len(row["by_seed"]) == 1]
    some = [one for one in dict.fromkeys(alone) if alone.count(one) < sum(row[name] == one for row in rows)]
    once = [f"{one} at {listed(_sizes(rows, one))} bytes" if one in some else one for one in dict.fromkeys(alone)]
    return (
        f"Means of {listed(counts)} seeds (standard deviation at most {_share(spread)})"
        f"{f'; one seed for {listed(once)}' if once else ''}."
    )


def _sizes(rows, method):
    return [row["bytes"] for row in rows if row["method"] == method and len(row["by_seed"]) == 1]


def _source(report):
    """Commands, machines, and missing rows."""
    measured, runs = report["measured"], report["measured"].get("runs", [report])
    options = report["options"]
    parts = " ".join(options.get("parts", []))
    first = options.get("set") or options.get("part") or parts or "residuals.npz"
    machines = dict.fromkeys(
        f"{run['machine']['processor']}, {run['machine']['cores']} cores, {run['machine']['kernels']} kernels, "
        f"{_threads(run['options'])}commit `{run['commit']}`, {run['date']}"
        for run in runs
        if run.get("rows", True)
    )
    text = f"`python benchmarks/{report['script']} {first}`; {'; '.join(machines)}."
    return text + (f" Not measured yet: {listed(measured['missing'])}." if measured.get("missing") else "")


def _threads(options):
    n_threads = options.get("threads")
    return "" if n_threads is None else f"{n_threads} thread{'s' * (n_threads != 1)} per row, "


def _heads(results):
    return join(*(_head(results, name) for name in ("heads-cifar", "heads-many")))


def _head(results, name):
    report = results.get(f"trellis/{name}")
    if report is None:
        return ""
    measured = report["measured"]
    sized = [row for row in measured["rows"] if row["bits_per_weight"] is not None]
    rates = sorted({row["bits_per_weight"] for row in sized})
    several = "top10" in sized[0]
    lines = []
    for method in dict.fromkeys(row["name"] for row in sized):
        own = {row["bits_per_weight"]: row for row in sized if row["name"] == method}
        shared = _range([row["shared_bytes"] / 1000 for row in own.values()])
        lines.append([method, *(_agreement(own.get(rate)) for rate in rates), shared])
    wholes = [
        f"{row['name']}, {row['bytes_per_class']:,} bytes: {_agreement(row)}"
        for row in measured["rows"]
        if row["bits_per_weight"] is None
    ]
    title = "The head of a CIFAR-10 network" if name == "heads-cifar" else "The head of `benchmarks/heads.py`"
    words = f"**{title}**: {measured['classes']:,} classes, {measured['features']:,} features."
    words += " Agreement of the top class" + ("; of the ten best classes." if several else ".")
    header = ["code", *(f"{rate:g} bit{'s' * (rate != 1)} per weight" for rate in rates), "shared, kB"]
    return join(
        words, table(header, lines), f"For comparison, {'; '.join(wholes)}.", _seeds(sized, "name"), _source(report)
    )


def _agreement(row):
    if row is None:
        return ""
    low, high = row["interval"]
    ten = f"; {row['top10']:.1%}" if "top10" in row else ""
    return f"{row['agreement']:.2%} [{100 * low:.2f}, {100 * high:.2f}]{ten}"


def _cameras(results):
    report = results.get("trellis/cameras")
    if report is None:
        return ""
    measured = report["measured"]
    whole, *coded = measured["rows"]
    sizes, n_seeds = sorted({row["bytes"] for row in coded}), len(coded[0]["d_prime"]["by_seed"])
    found = {(row["method"], row["bytes"]): row for row in coded}
    lines = [
        [method, *(_detection(found[method, n_bytes]) for n_bytes in sizes)]
        for method in dict.fromkeys(row["method"] for row in coded)
    ]
    gains = [
        f"{one['mean']:+.2f} [{one['interval'][0]:+.2f}, {one['interval'][1]:+.2f}] at {one['bytes']:,}"
        for one in measured["differences"]
        if one["less"] == "adaptive"
    ]
    return join(
        f"{measured['photographs']} photographs of {measured['cameras']} cameras, {measured['features']:,} features; "
        f"d' and the share of photographs whose camera is ranked first; means of {n_seeds} seeds. Uncompressed: "
        f"{_detection(whole)}.",
        table(["code", *(f"{n_bytes:,} bytes" for n_bytes in sizes)], lines),
        f"d' of trellis codes minus d' of adaptive codes, on the same photographs: {', '.join(gains)} bytes.",
        _source(report),
    )


def _detection(row):
    low, high = row["d_prime"]["interval"]
    return f"{row['d_prime']['mean']:.2f} [{low:.2f}, {high:.2f}], {row['top1']['mean']:.1%}"


def _speeds(results):
    return join(*(_speed(results[name]) for name in ("trellis/speed", "trellis/speed-avx512") if name in results))


def _speed(report):
    """Times of one machine compared with IndexPQ of as many bytes: one thread, processor time, 384 features."""
    rows = report["measured"]["speed"]
    long = [
        f"; {row['features']:,} features at {row['bits']:,} bits are encoded in "
        f"{row['encode_us']['median'] / 1000:.1f} ms"
        for row in report["measured"].get("long", [])
    ]
    lines = [
        ["encode, microseconds per signal", *(f"{row['encode_us']:.0f}" for row in rows)],
        [
            "256 queries, ns per pair (FAISS; times as fast)",
            *(
                f"{row['batch']['median']:.1f} ({row['batch_faiss']['median']:.1f}; {row['batch_ratio']:.1f})"
                for row in rows
            ),
        ],
        [
            "one query, ns per entry (FAISS; times as long)",
            *(f"{row['one']['median']:.0f} ({row['one_faiss']['median']:.0f}; {row['one_ratio']:.1f})" for row in rows),
        ],
        [
            "one query, inner products with norms (times as long as FAISS)",
            *(f"{row['one_with_norms']['median']:.0f} ({row['one_ratio_with_norms']:.1f})" for row in rows),
        ],
    ]
    return join(
        f"**{report['machine']['processor']}**, path `{rows[0]['path']}`, load {report['machine']['load']:.1f} on "
        f"{report['machine']['cores']} cores{''.join(long)}:",
        table(["", *(f"{row['bytes']} bytes" for row in rows)], lines),
    )
