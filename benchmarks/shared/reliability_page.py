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
    made = {"attack": _attack, "churn": _churn}
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
        f"memory (tmpfs); {machine['processor']}, {machine['cores']} cores that other work kept busy (load "
        f"{machine['load']:.0f}), commit `{report['commit']}`, {report['date']}."
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
