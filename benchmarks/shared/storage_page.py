"""Durable indexes on docs/reference/benchmarks.md."""

from __future__ import annotations

from .markdown import join, source, table

DOORS = {
    "damaged_index": "index files, bytes changed",
    "crafted_index": "index files, records and columns changed under right checksums",
    "damaged_head": "head files, bytes changed",
    "crafted_head": "head files, arrays and headers changed",
    "crafted_message": "messages of codes, changed under right checksums",
    "hostile_codes": "arrays of codes, of any bytes, shape and order",
    "damaged_table": "exported tables, bytes changed",
    "damaged_npz": "archives of signals, bytes changed",
    "crafted_state": "state dicts of PyTorch layers, tensors changed",
}


def storage(results):
    """Sections about durable indexes: against the storage before, under churn, beside readers, and attacked."""
    parts = [make(results) for name, make in _PARTS.items() if name in results]
    return join("## Storage", *parts) if parts else ""


def _stores(results):
    report = results["stores"]
    names = report["options"]["python"]
    rows = [
        [what, *(f"{one['milliseconds'][name]['least']:.2f}" for name in names), f"{one['ratio']:.2f}"]
        for what, one in report["measured"].items()
    ]
    n_entries, repeats = report["options"]["entries"], report["options"]["repeats"]
    return join(
        f"An index of {n_entries:,} sign codes of 192 bits with text ids, in the folder of today and in the LMDB file "
        f"that it replaced (commit e83ac7b); milliseconds, the least of {repeats} processes that took turns. Entries "
        "are added and removed one by one in a small index.",
        table(["", *names, "ratio"], rows),
        source(results, "stores"),
    )


def _churn(results):
    report = results["churn"]
    measured, batch = report["measured"], report["options"]["batch"]
    return join(
        f"{measured['entries']:,} entries, {measured['live_mb']:.1f} MB; {measured['steps']:,} times {batch:,} of them "
        f"were removed and as many added, beside a reader: the folder grew to {measured['largest']:.2f} times its live "
        f"bytes at most, and compaction left {measured['compacted']:.2f}. A removal and an addition took "
        f"{measured['step_seconds']['median']:.2f} s at the median.",
        source(results, "churn"),
    )


def _readers(results):
    report = results["readers"]
    measured, machine, options = report["measured"], report["machine"], report["options"]
    opened, searched = measured["open_wall_ms"], measured["search_wall_ms"]
    own = measured["open_processor_ms"]["most"]
    return join(
        f"{options['readers']} processes that open the index of {options['entries']:,} entries once a second and "
        f"search it {options['rate']} times a second, beside a writer without a pause ({measured['changes']:,} changes "
        f"in {options['seconds']:g} seconds), on {machine['cores']} cores: opening costs {opened['p50']:.0f} ms by the "
        f"clock at the median and {opened['most']:.0f} at most, of which {own:.0f} ms at most are its own work and the "
        f"rest is waiting for a core; a search takes {searched['p50']:.0f} ms at the median, and "
        f"{searched['p99'] / searched['p50']:.1f} times that at the 99th percentile.",
        source(results, "readers"),
    )


def _attack(results):
    measured = results["attack"]["measured"]
    rows = [
        (words, f"{measured['doors'][door]['refused']:,}", f"{measured['doors'][door]['answered']:,}")
        for door, words in DOORS.items()
        if door in measured["doors"]
    ]
    total = sum(sum(counts.values()) for counts in measured["doors"].values())
    text = f"{total:,} cases in {measured['seconds']:.0f} seconds; no crash, no wrong answer, no other exception:"
    header = ("what was changed", "refused", "answered")
    return join("### Hostile files", text, table(header, rows), _attack_source(results["attack"]))


def _attack_source(report):
    seconds, seed, machine = report["options"]["seconds"], report["options"]["seed"], report["machine"]
    return (
        f"`python tests/faults/attack.py --seconds {seconds:g} --seed {seed}`; {machine['processor']}, "
        f"{machine['cores']} cores, commit `{report['commit']}`, {report['date']}."
    )


_PARTS = {"stores": _stores, "churn": _churn, "readers": _readers, "attack": _attack}
