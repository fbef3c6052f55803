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
    if "attack" not in results:
        return {}
    measured = results["attack"]["measured"]
    rows = [
        (words, f"{measured['doors'][door]['refused']:,}", f"{measured['doors'][door]['answered']:,}")
        for door, words in DOORS.items()
        if door in measured["doors"]
    ]
    total = sum(sum(counts.values()) for counts in measured["doors"].values())
    text = f"{total:,} cases in {measured['seconds']:.0f} seconds; no crash, no wrong answer, no other exception:"
    header = ("what was changed", "refused", "answered")
    return {"attack": "\n\n".join([text, table(header, rows), _source(results["attack"])])}


def _source(report):
    seconds, seed, machine = report["options"]["seconds"], report["options"]["seed"], report["machine"]
    return (
        f"`python tests/faults/attack.py --seconds {seconds:g} --seed {seed}`; {machine['processor']}, "
        f"{machine['cores']} cores, commit `{report['commit']}`, {report['date']}."
    )
