"""The section on simulated cameras of docs/how-to/cameras.md."""

from .markdown import bold_best, join, source, table

NAME, LARGE = "cameras_simulation", "cameras_large"
METHODS = ("adaptive", "trellis", "digest", "binarised")
CODE_BYTES = 4096
"""Bytes of the codes whose false matches and likelihood ratios are shown."""


def simulated_cameras(results):
    """The section, or nothing without results."""
    report = results.get(NAME)
    if report is None:
        return ""
    measured, options = report["measured"], report["options"]
    rows = measured["rows"]
    return join(
        f"{options['sensors']} sensors of strength {options['strength'][0]:g} to {options['strength'][1]:g} "
        f"with shot "
        f"and read noise, Bayer mosaic, white balance, demosaicing and JPEG of quality 75 to 95; crops "
        f"of {options['size']} x {options['size']} pixels; scenes from scikit-learn's photographs and synthetic "
        f"ones with natural "
        f"spectra, a tenth overexposed and a tenth dark; {measured['n_photographs']:,} photographs. "
        f"{options['queries']} photographs of each sensor are identified, {options['impostors']} are of other "
        f"sensors. Share detected "
        "at a false alarm of 1e-6 (threshold of a normal law of the impostor scores), by bytes per fingerprint:",
        *(_detection(rows, enrolled, options["bytes"]) for enrolled in options["enrolled"]),
        "![Detection against bytes](../images/cameras_simulation.png)",
        "Digests are the largest pixels with their places (Goljan, Fridrich and Filler 2010), binarised fingerprints "
        "are signs of a random part of the pixels (Bayram, Sencar and Memon 2012), all at equal bytes and "
        "compared with a "
        "real-valued query. " + _winners(rows, options["bytes"]),
        _evidence(measured, options),
        f"Simulating a photograph and its residual takes {measured['cpu_seconds']:.2f} CPU seconds.",
        source(results, NAME),
        _large(results),
    )


def _rows(rows, enrolled, method):
    return {row["bytes"]: row for row in rows if (row["enrolled"], row["method"]) == (enrolled, method)}


def _detection(rows, enrolled, sizes):
    (whole,), (pce,) = (_rows(rows, enrolled, name).values() for name in ("uncompressed", "PCE above 60"))
    columns = []
    for size in sizes:
        shares = [_rows(rows, enrolled, method)[size].get("detection") for method in METHODS]
        columns.append(bold_best(shares, lambda share: f"{share:.3f}"))
    lines = [[method, *cells] for method, *cells in zip(METHODS, *columns, strict=True)]
    words = (
        f"Photographs enrolled: {enrolled}. Uncompressed ({whole['bytes']:,} bytes): correlation "
        f"{whole['detection']:.3f}, PCE above 60 {pce['detection']:.3f} ({pce['false']} of {pce['matches']} "
        f"impostors too)."
    )
    return f"{words}\n\n{table([f'enrolled {enrolled}', *(f'{size:,} B' for size in sizes)], lines)}"


def _winners(rows, sizes):
    """Which method detects most, in how many of the cells of the tables."""
    wins = dict.fromkeys(METHODS, 0)
    enrolled = sorted({row["enrolled"] for row in rows})
    for count in enrolled:
        for size in sizes:
            shares = {method: _rows(rows, count, method)[size].get("detection", 0) for method in METHODS}
            for method, share in shares.items():
                wins[method] += share == max(shares.values())
    listed = ", ".join(f"{method} {count}" for method, count in wins.items())
    return f"Cells in which a method detects most, ties counted for each, of {len(enrolled) * len(sizes)}: {listed}."


def _evidence(measured, options):
    chosen = [one for one in measured["evidence"] if one["bytes"] == CODE_BYTES]
    lines = []
    for one in chosen:
        counts = [f"{row['count']} ({row['level'] * row['comparisons']:.3g})" for row in one["rows"]]
        fit = f"{one['normal_law_p_value']:.2g}"
        lines.append([one["enrolled"], *counts, fit, f"{one['cllr']:.3f}"])
    first = chosen[0]["rows"]
    strict = [one["rows"][-1] for one in chosen]  # at 1e-6
    second = [f"{pce:.0f}" for one in chosen for pce in one.get("false_match_pce", [])]
    bound = max(row["interval"][1] for row in strict)
    caught = f" (their PCE, the second test: {', '.join(second)})" if second else ""
    head = ["enrolled", *(f"at {row['level']:g}" for row in first), "p of the normal law", "Cllr"]
    return (
        f"False matches of adaptive codes of {CODE_BYTES:,} bytes among {first[0]['comparisons']:,} comparisons with "
        f"impostors, at thresholds learned from the scores of {options['learned']} other impostor photographs "
        f'({chosen[0]["learned_from"]:,} scores, `EmpiricalNull(method="normal")`), with the number to expect in '
        f"brackets. At 1e-6, all rows together have {sum(row['count'] for row in strict)}{caught}, and the normal law "
        f"predicts {sum(row['level'] * row['comparisons'] for row in strict):.2g}; the 95% interval of the rate "
        f"reaches up to {bound:.1e}. So a score beyond the calibration sample needs the second test, PCE, beside it. "
        "Two fifths of the scenes come from two photographs and their mirror images, so scenes repeat between "
        "enrolment and impostors, more than in practice. Cllr is that of likelihood ratios learned from even sensors "
        f"and judged by odd ones:\n\n{table(head, lines)}"
    )


def _large(results):
    report = results.get(LARGE)
    if report is None:
        return ""
    large = report["measured"]
    share = large["uncompressed_bytes"] / (large["bytes_per_entry"] * large["entries"])
    words = (
        f"An index of {large['entries']:,} simulated fingerprints (random vectors of {large['features']:,} features, "
        f"added as they are made): {large['bytes_per_entry']:,.0f} bytes each, {share:.0f} times less than "
        f"float32, and "
        f"{large['disk_bytes'] / 2**20:,.0f} MiB on disk, the sample for calibration included; added in "
        f"{large['add_seconds']:.0f} s, making the vectors included. One photograph takes "
        f"{large['residual_seconds']:.2f} s for its residual and {large['search_seconds']:.3f} s for the search "
        f"of all; "
        f"the uncompressed products would take {large['uncompressed_seconds_extrapolated']:.2f} s, extrapolated "
        f"from 64 "
        f"fingerprints, and {large['uncompressed_bytes'] / 2**30:.1f} GiB of memory. Times are the least of "
        f"seven; the "
        "machine was shared."
    )
    return f"{words}\n\n{source(results, LARGE)}"
