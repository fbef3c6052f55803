"""The sections on simulated cameras and on speed of docs/how-to/cameras.md."""

from .markdown import bold_best, join, number, source, table

NAME, FULL, WEAK = "cameras_simulation", "cameras_simulation-1024", "cameras_weak"
SPEED, LARGE, IMAGES = "cameras_speed", "cameras_large", "cameras_scenes"
METHODS = ("adaptive", "trellis", "digest", "binarised")
CODE_BYTES = 4096
"""Bytes of the codes whose false matches and likelihood ratios are shown."""

PROTOTYPE = {None: (0.022, 12.8), 1024: (None, 2.4), 4096: (None, 4.4), 16384: (None, 7.7)}
"""Correlation and d' of matches, relative to zero, in the prototype of the pipeline, by projections kept."""


def simulated_cameras(results):
    """The section, or nothing without results."""
    if NAME not in results:
        return ""
    sizes = [name for name in (NAME, FULL) if name in results]
    return join(
        _setting(results[NAME]),
        *(_detection_tables(results, name) for name in sizes),
        "![Detection by bytes](../images/cameras_simulation.png)",
        "### False matches and likelihood ratios",
        *(_evidence(results[name]) for name in sizes),
        _one_image(results),
        "![Tippett plot of the simulation](../images/cameras_simulation_tippett.png)",
        _weak(results),
        *(source(results, name) for name in (*sizes, IMAGES, WEAK) if name in results),
    )


def camera_speed(results):
    """Seconds per photograph and the large index, or nothing without results."""
    return join(*(part(results) for name, part in ((SPEED, _reading), (LARGE, _large)) if name in results))


def _reading(results):
    report = results[SPEED]
    measured, options = report["measured"], report["options"]
    threads = " and ".join(
        f"{row['seconds']:.2f} s with {row['threads']} thread{'' if row['threads'] == 1 else 's'}"
        for row in measured["reading"]
    )
    side = options["size"]
    return join(
        f"Reading a simulated JPEG file of {side} x {side} pixels and extracting its residual takes {threads} "
        f"(wall-clock time per photograph, the least of {options['repeats']} passes over {options['photographs']} "
        f"photographs), and {measured['processor_seconds']:.2f} s of processor time. Enrolment, which also compares "
        f"each photograph with the fingerprint of the others, takes {measured['enroll_seconds']:.2f} s per photograph "
        f"with {max(options['threads'])} threads. Photographs are read on all cores (`--threads`).",
        source(results, SPEED),
    )


def _large(results):
    large = results[LARGE]["measured"]
    share = large["uncompressed_bytes"] / (large["bytes_per_entry"] * large["entries"])
    return join(
        f"An index of {large['entries']:,} simulated fingerprints (random vectors of {large['features']:,} features, "
        f"added as they are generated) has {large['bytes_per_entry']:,.0f} bytes per fingerprint, {share:.0f} times "
        f"less "
        f"than float32, and {large['disk_bytes'] / 2**20:,.0f} MiB on disk, which includes a sample for calibration. "
        f"Adding took {large['add_seconds']:.0f} s, which includes generating the vectors. Identifying one photograph "
        f"takes {large['residual_seconds']:.2f} s for its residual and {large['search_seconds']:.3f} s for searching "
        f"all "
        f"fingerprints. An uncompressed search would take {large['uncompressed_seconds_extrapolated']:.2f} s, "
        f"extrapolated from 64 fingerprints in memory, and {large['uncompressed_bytes'] / 2**30:.1f} GiB of memory. "
        "Times are the least of several repeats on a shared machine.",
        source(results, LARGE),
    )


def _setting(report):
    measured, options = report["measured"], report["options"]
    return (
        f"{options['sensors']} simulated sensors have a multiplicative pattern of strength "
        f"{options['strength'][0]:g} to "
        f"{options['strength'][1]:g}, shot and read noise, a Bayer mosaic, white balance, demosaicing and JPEG of "
        f"quality "
        f"75 to 95. Two fifths of the scenes come from the two photographs that ship with scikit-learn, the others are "
        f"synthetic with natural spectra; a tenth of the photographs are overexposed, a tenth are dark. "
        f"{options['queries']} photographs of each sensor are identified, and {options['impostors']} photographs are "
        f"of "
        f"other sensors; {measured['n_photographs']:,} photographs in total. Detection is the fraction of matches "
        f"above "
        "the threshold of a normal law of the impostor scores at a false-alarm rate of 1e-6. Digests are the largest "
        "pixels with their positions (Goljan, Fridrich and Filler 2010), and binarised fingerprints are signs of a "
        "random "
        "subset of the pixels (Bayram, Sencar and Memon 2012). All codes are compared with a real-valued query."
    )


def _detection_tables(results, name):
    report = results[name]
    rows, options = report["measured"]["rows"], report["options"]
    size = options["size"]
    parts = [f"### Detection, crops of {size} x {size} pixels"]
    counts = _counts(rows)
    parts += [_detection(rows, enrolled, options["bytes"]) for enrolled in counts]
    if len(counts) < len(options["enrolled"]):
        parts.append(f"The run was stopped after {', '.join(map(str, counts))} photographs enrolled.")
    refused = {row["bytes"] for row in rows if "refused" in row}
    if refused:
        parts.append(
            f"Trellis codes of {', '.join(f'{one:,}' for one in sorted(refused))} bytes are not available for "
            f"{size**2:,} features."
        )
    return join(*parts, _winners(rows, options["bytes"]))


def _counts(rows):
    """Numbers of photographs enrolled that were measured."""
    return sorted({row["enrolled"] for row in rows})


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
        f"Photographs enrolled: {enrolled}. Uncompressed fingerprints ({whole['bytes']:,} bytes): correlation "
        f"{whole['detection']:.3f}; PCE of 60 or more {pce['detection']:.3f}, with {pce['false']} false matches in "
        f"{pce.get('impostors', pce['matches']):,} comparisons with impostors."
    )
    if "interval" in pce:
        words += (
            f" The 95% interval of this rate reaches {pce['interval'][1]:.1e}, and the largest PCE of an impostor is "
            f"{pce['largest_impostor']:.0f}."
        )
    return f"{words}\n\n{table([f'{enrolled} enrolled', *(f'{size:,} B' for size in sizes)], lines)}"


def _winners(rows, sizes):
    """Number of cells of the tables in which each method detects most."""
    wins = dict.fromkeys(METHODS, 0)
    enrolled = _counts(rows)
    for count in enrolled:
        for size in sizes:
            shares = {method: _rows(rows, count, method)[size].get("detection", 0) for method in METHODS}
            for method, share in shares.items():
                wins[method] += share == max(shares.values())
    listed = ", ".join(f"{method} {count}" for method, count in wins.items())
    return (
        f"Number of cells with the highest detection, of {len(enrolled) * len(sizes)} (ties count for each): {listed}."
    )


def _evidence(report):
    measured, options = report["measured"], report["options"]
    chosen = [one for one in measured["evidence"] if (one.get("method"), one["bytes"]) == ("adaptive", CODE_BYTES)]
    if not chosen:
        return ""
    chosen.sort(key=lambda one: one["enrolled"])
    lines = []
    for one in chosen:
        counts = [f"{row['count']} ({number(row['level'] * row['comparisons'])})" for row in one["rows"]]
        fit = f"{one['normal_law_p_value']:.2g}"
        costs = f"{one['cllr']:.3f}", f"{one['least_cllr']:.3f}"
        lines.append([one["enrolled"], f"{one['rows'][0]['comparisons']:,}", *counts, fit, *costs])
    strict = [one["rows"][-1] for one in measured["evidence"] if one["method"] == "adaptive"]
    at_level = [one["rows"][-1] for one in chosen]
    same, above = sum(one["same_scene"] for one in chosen), sum(row["same_scene"] for row in at_level)
    total, count = sum(row["comparisons"] for row in at_level), sum(row["count"] for row in at_level)
    every, false = sum(row["comparisons"] for row in strict), sum(row["count"] for row in strict)
    bound = max(row["interval"][1] for row in at_level)
    head = [
        "enrolled",
        "comparisons",
        *(f"at {row['level']:g}" for row in chosen[0]["rows"]),
        "p-value of the normal law",
    ]
    exact = [one["rows"][-1]["count"] for one in measured["evidence"] if one["method"] == "uncompressed"]
    words = (
        f"**{options['size']} x {options['size']} pixels.** False matches of adaptive codes of {CODE_BYTES:,} bytes. "
        f"Thresholds are those of the scores of {options['learned']} other impostor photographs "
        f'(`EmpiricalNull(method="normal")`); the expected number is in parentheses. At 1e-6 there are {count} false '
        f"matches in {total:,} comparisons, and for each number of photographs enrolled the 95% interval of the rate "
        f"reaches {bound:.1e}. Codes of all sizes together have {false} in {every:,} comparisons, which share "
        f"photographs. Uncompressed correlations have {sum(exact)} in {total:,}. Comparisons of one scene "
        f"({same:,}) do not count; {above} of them are above the threshold. Cllr is the cost of likelihood ratios "
        "fitted on even sensors and tested on odd ones; the least Cllr is that of ideally calibrated ratios of the "
        "same scores."
    )
    return f"{words}\n\n{table([*head, 'Cllr', 'least Cllr'], lines)}"


def _one_image(results):
    """Correlations of residuals that show one natural image, by the distance of the crops."""
    if IMAGES not in results:
        return ""
    report = results[IMAGES]
    images, side = report["measured"]["images"], report["options"]["size"]
    lines = []
    for rows in zip(*images.values(), strict=True):
        cells = [(f"{row['correlation']:.4f}", row["least_different_bits"]) for row in rows]
        lines.append([rows[0]["shift"], *(cell for pair in cells for cell in pair)])
    head = ["shift in pixels", *(word for name in images for word in (name, "different bits"))]
    return join(
        f"Correlation of the residuals of two photographs by different sensors that show one natural image of the "
        f"simulation, by the distance of the crops along a row ({side} x {side} pixels, means of "
        f"{report['options']['repeats']} places in the image; isotropic deviation {1 / side:.4f}), and the fewest "
        "different bits of the scene signatures, which recognise a scene up to 28:",
        table(head, lines),
    )


def _weak(results):
    report = results.get(WEAK)
    if report is None:
        return ""
    measured, options = report["measured"], report["options"]
    lines = []
    for n_bits in (None, *options["bits"]):
        kinds = {row["fingerprints"]: row for row in measured["rows"] if row["n_bits"] == n_bits}
        cleaned, plain = kinds["cleaned"], kinds["plain"]
        prototype = PROTOTYPE.get(n_bits)
        lines.append(
            [
                "uncompressed" if n_bits is None else f"{n_bits:,} projections",
                f"{cleaned['bytes']:,.0f}",
                f"{cleaned['match_mean']:.4f}",
                f"{cleaned['d_prime']:.1f}",
                f"{plain['match_mean']:.4f} ({plain['impostor_mean']:.4f})",
                f"{plain['match_mean'] / plain['impostor_deviation']:.1f}",
                "" if prototype is None else f"{prototype[1]:.1f}",
            ]
        )
    exact = next(row for row in measured["rows"] if row["n_bits"] is None)
    ratio = exact["impostor_deviation"] / measured["isotropic_deviation"]
    head = [
        "code",
        "bytes",
        "matches",
        "d'",
        "plain: matches (impostors)",
        "plain: d' from zero",
        "prototype: d' from zero",
    ]
    return join(
        "### Weak patterns under strong compression",
        f"{options['sensors']} sensors of strength {options['strength']:g}, JPEG of quality {options['quality']}, "
        f"{options['enrolled']} photographs enrolled, crops of 1024 x 1024 pixels. Mean score of matches, and d': the "
        "difference of the mean scores of matches and impostors over the standard deviation of impostors. A "
        "prototype of "
        "the pipeline had a correlation of 0.022. It used plain fingerprints, without zero mean in rows and columns, "
        "whose "
        "scores have an offset that matches and impostors share (in parentheses), and it measured d' from zero "
        "instead of "
        f"the impostor mean. The deviation of the impostors is {ratio:.1f} times that of isotropic noise, so isotropic "
        "p-values would be too small.",
        table(head, lines),
    )
