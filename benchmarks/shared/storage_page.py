"""Durable indexes in docs/reference/benchmarks.md."""

from __future__ import annotations

from .markdown import join, source, table

DOORS = {
    "damaged_index": "index files, bytes changed",
    "crafted_index": "index files, records and columns changed, checksums valid",
    "damaged_head": "head files, bytes changed",
    "crafted_head": "head files, arrays and headers changed",
    "crafted_message": "messages of codes, changed, checksums valid",
    "hostile_codes": "arrays of codes with arbitrary bytes, shapes and order",
    "damaged_table": "exported tables, bytes changed",
    "damaged_npz": "archives of signals, bytes changed",
    "crafted_state": "state dicts of PyTorch layers, tensors changed",
}


def storage(results):
    """Sections about durable indexes: the previous storage, churn, concurrent readers, and invalid files."""
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
        f"An index of {n_entries:,} sign codes of 192 bits with text ids, stored in a folder and in the LMDB file that "
        f"the folder replaced (commit e83ac7b). Times are milliseconds, the minimum of {repeats} processes that took "
        "turns. Entries are added and removed one at a time in a small index. Searches of 16 queries differ by later "
        "kernels and not by the storage; the machine was shared, so medians depend on its load.",
        table(["", *names, "ratio"], rows),
        source(results, "stores"),
    )


def _churn(results):
    report = results["churn"]
    measured, batch = report["measured"], report["options"]["batch"]
    return join(
        f"Churn: in an index of {measured['entries']:,} entries ({measured['live_mb']:.1f} MB), {batch:,} entries were "
        f"removed and as many added, {measured['steps']:,} times, while a reader was open. The folder grew to at most "
        f"{measured['largest']:.2f} times its live bytes and had {measured['compacted']:.2f} times after compaction. A "
        f"removal and an addition took {measured['step_seconds']['median']:.2f} s (median).",
        source(results, "churn"),
    )


def _readers(results):
    report = results["readers"]
    measured, machine, options = report["measured"], report["machine"], report["options"]
    opened, searched = measured["open_wall_ms"], measured["search_wall_ms"]
    own = measured["open_processor_ms"]["most"]
    return join(
        f"Concurrent readers: {options['readers']} processes open an index of {options['entries']:,} entries once "
        f"per second and search it {options['rate']} times per second on {machine['cores']} cores, while a writer "
        f"makes changes continuously ({measured['changes']:,} in {options['seconds']:g} seconds). Opening takes "
        f"{opened['p50']:.0f} ms (median, wall clock) and at most {opened['most']:.0f} ms, including at most {own:.0f} "
        f"ms of processor time. A search takes {searched['p50']:.0f} ms (median), including "
        f"{measured['search_processor_ms']['p50']:.0f} ms of processor time, and "
        f"{searched['p99'] / searched['p50']:.1f} times that at the 99th percentile. Wall-clock times include waiting "
        f"for a core: the load of the machine was {machine['load']:.0f}, because other programs ran.",
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
    text = (
        f"{total:,} cases in {measured['seconds']:.0f} seconds: no crash, no wrong result, no undocumented exception."
    )
    header = ("change", "rejected", "read")
    return join("### Invalid files", text, table(header, rows), _attack_source(results["attack"]))


def _attack_source(report):
    seconds, seed, machine = report["options"]["seconds"], report["options"]["seed"], report["machine"]
    return (
        f"`python tests/faults/attack.py --seconds {seconds:g} --seed {seed}`; {machine['processor']}, "
        f"{machine['cores']} cores, commit `{report['commit']}`, {report['date']}."
    )


_PARTS = {"stores": _stores, "churn": _churn, "readers": _readers, "attack": _attack}
