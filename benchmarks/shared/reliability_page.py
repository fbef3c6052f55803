"""The measured part of docs/reliability.md."""

from __future__ import annotations

from .markdown import table

DOORS = {
    "damaged_index": "index files, bytes changed",
    "crafted_index": "index files, records and columns changed under right checksums",
    "damaged_head": "head files, bytes changed",
    "crafted_head": "head files, arrays and headers changed",
    "crafted_message": "messages of codes, changed under right checksums",
    "hostile_codes": "arrays of codes, of any bytes, shape and order",
    "damaged_table": "exported tables, bytes changed",
    "crafted_shard": "shards, columns changed under right checksums",
    "damaged_npz": "archives of signals, bytes changed",
    "crafted_state": "state dicts of PyTorch layers, tensors changed",
}


def blocks(results):
    """Texts by marker."""
    made = {"attack": _attack, "churn": _churn, "readers": _readers}
    return {name: make(results) for name, make in made.items() if name in results}


def _churn(results):
    report = results["churn"]
    measured, machine, options = report["measured"], report["machine"], report["options"]
    batch, took = options["batch"], measured["step_seconds"]
    return (
        f"{measured['entries']:,} entries, {measured['live_mb']:.1f} MB; {measured['steps']:,} times {batch:,} of them "
        f"were removed and as many added, beside a reader: the file grew to {measured['largest']:.2f} times its live "
        f"bytes at most, and shrinking left {measured['shrunk']:.2f}. A removal and an addition took "
        f"{took['median']:.2f} s at the median.\n\n`python benchmarks/churn.py --seconds {options['seconds']:g}` in "
        f"memory (tmpfs); {machine['processor']}, {machine['cores']} cores, with other work beside it (load "
        f"{machine['load']:.0f}), commit `{report['commit']}`, {report['date']}."
    )


def _readers(results):
    report = results["readers"]
    measured, machine, options = report["measured"], report["machine"], report["options"]
    opened, searched = measured["open_wall_ms"], measured["search_wall_ms"]
    own = measured["open_processor_ms"]["most"]
    return (
        f"{options['readers']} processes that open the index of {options['entries']:,} entries once a second and "
        f"search it {options['rate']} times a second, beside a writer without a pause ({measured['changes']:,} changes "
        f"in {options['seconds']:g} seconds), on {machine['cores']} cores: opening costs {opened['p50']:.0f} ms by the "
        f"clock at the median and {opened['most']:.0f} at most, of which {own:.0f} ms at most are its own work and the "
        f"rest is waiting for a core; a search takes {searched['p50']:.0f} ms at the median, and "
        f"{searched['p99'] / searched['p50']:.1f} times that at the 99th percentile.\n\n"
        f"`python benchmarks/readers.py --seconds {options['seconds']:g}`; {machine['processor']}, commit "
        f"`{report['commit']}`, {report['date']}."
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
    return "\n\n".join([text, table(header, rows), _source(results["attack"])])


def _source(report):
    seconds, seed, machine = report["options"]["seconds"], report["options"]["seed"], report["machine"]
    return (
        f"`python tests/faults/attack.py --seconds {seconds:g} --seed {seed}`; {machine['processor']}, "
        f"{machine['cores']} cores, commit `{report['commit']}`, {report['date']}."
    )
