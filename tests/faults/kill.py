"""Fault injection by kills: writers of a durable index receive SIGKILL at random times; no change may be partial.

    python tests/faults/kill.py [--rounds 200] [--seed 0] [--folder FOLDER]

Each round a process adds (several segments), replaces, removes, updates metadata, calibrates or compacts, and is
killed: in half of the rounds at an instant uniform over the time the operation usually takes; in the others during its
commit or shortly after it, by its own alarm without a handler, which is precise on a busy machine, too. Another process
then opens the folder, verifies all checksums and ids, and compares all entries with the states before and after the
operation. It must find one of the two, and the latter if the writer had returned. The next round continues with the
same folder.
"""

import argparse
import mmap
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter

import numpy as np

import topsign as ts
from topsign.store import segments
from topsign.store.versions import Versions

N_FEATURES = 64
SEGMENT = 64  # entries, so that an addition takes several segments and a compaction several steps
PREPARING, COMMITTING, CLEANING = range(3)
PHASES = ("preparing", "committing", "cleaning or after")
KINDS = ("add", "add", "upsert", "remove", "update_metadata", "calibrate", "compact")


def signals_of(ids):
    return np.stack([np.random.default_rng(i).standard_normal(N_FEATURES) for i in ids])


def open_or_make(path):
    return ts.Index(N_FEATURES, family="adaptive", n_bits=16, random_state=7, path=path)


def operate(index, operation):
    kind, ids, mark = operation
    if kind in ("add", "upsert"):
        getattr(index, kind)(signals_of(ids), ids=ids, metadata=[{"id": i, "mark": mark} for i in ids])
    elif kind == "update_metadata":
        index.update_metadata(ids, [{"id": i, "mark": mark} for i in ids])
    elif kind == "remove":
        index.remove(ids)
    elif kind == "calibrate":
        index.calibrate(signals_of(range(10**6, 10**6 + 200)))
    else:
        index.compact()


def after(entries, operation):
    """Return the entries after an operation: ids with the mark of their metadata."""
    kind, ids, mark = operation
    if kind == "remove":
        return {i: held for i, held in entries.items() if i not in set(ids)}
    return entries | dict.fromkeys(ids, mark)


def draw_kinds(rng):
    """Yield an endless sequence of operations in which every kind occurs regularly."""
    while True:
        yield from rng.sample(KINDS, len(KINDS))


def draw_operation(rng, kind, entries, next_id, mark):
    if len(entries) <= 200:
        kind = "add"
    elif len(entries) >= 1500 and kind == "add":
        kind = "remove"
    if kind == "add":
        return kind, list(range(next_id, next_id + rng.choice([1, 40, 300, 300]))), mark
    some = rng.sample(sorted(entries), rng.randrange(1, len(entries) // 2))
    return kind, some if kind in ("remove", "upsert", "update_metadata") else [], mark


def forked(work):
    """Run work() in a child and return its process id."""
    child = os.fork()
    if child:
        return child
    try:
        os._exit(work() or 0)
    except BaseException:
        traceback.print_exc()
        os._exit(70)


def write(path, operation, ready, phase, in_commit, delay):
    """Child process: open the folder, report it, operate, report it, and wait to be killed.

    The kill comes a given time after the start of its commit, or from the parent.
    """
    plain_commit = Versions.commit

    def watched_commit(self, *arguments):
        phase[0] = COMMITTING
        if in_commit:
            signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-6))
        plain_commit(self, *arguments)
        phase[0] = CLEANING

    index = open_or_make(path)
    Versions.commit = watched_commit
    os.write(ready, b"r")
    operate(index, operation)
    os.write(ready, b"d")
    time.sleep(60)


def check(path, before, wanted, acknowledged):
    """Child process: exit with 0 if the folder has the entries before the operation, with 1 if those after it."""
    index = open_or_make(path)
    index.verify()
    notes = index.get(index.ids).metadata if len(index) else []
    found = {note["id"]: note["mark"] for note in notes}
    assert found in (before, wanted), f"neither before nor after: {len(found)}, {len(before)}, {len(wanted)} entries"
    assert not acknowledged or found == wanted, "acknowledged, and lost"
    ids = sorted(found)
    if ids:
        entries = index.get(ids)
        expected = (
            ts.Encoder(N_FEATURES, family="adaptive", n_bits=16, random_state=7)
            .fit(np.eye(1, N_FEATURES))
            .encode(signals_of(ids))
        )
        assert entries.codes == expected, "entries differ from what was added"
        assert [note["id"] for note in entries.metadata] == ids
        query = signals_of(ids[-1:])
        assert index.search(query, k=1).ids.tolist() == [ids[-1:]], "the newest entry is not found"
    return int(found == wanted)


def killed(path, operation, delay, in_commit):
    """Run an operation and kill it; return whether it was acknowledged, and in which phase it died."""
    phase = mmap.mmap(-1, 1)
    receiving, sending = os.pipe()
    child = forked(lambda: write(path, operation, sending, phase, in_commit, delay))
    os.close(sending)
    said = os.read(receiving, 1)
    if said and in_commit:
        said += os.read(receiving, 1)  # empty if it is dead; done if it had nothing to commit
    elif said:
        time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    said += os.read(receiving, 2)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(receiving)
    assert said[:1] == b"r", "the writer failed before it began"
    assert status in (-signal.SIGKILL, -signal.SIGALRM), "the writer failed, after another had been killed"
    return said[1:] == b"d", PHASES[phase[0]]


def usual_times(folder):
    """Return the seconds that each kind of operation takes without a kill."""

    def work():
        index = open_or_make(os.path.join(folder, "calibration.topsign"))
        operate(index, ("add", list(range(1000, 1300)), 0))
        for name, ids in (
            ("add", range(300)),
            ("little", range(300, 340)),
            ("upsert", range(100, 250)),
            ("update_metadata", range(100, 250)),
            ("remove", range(0, 300, 2)),
            ("calibrate", []),
            ("compact", []),
        ):
            start = time.perf_counter()
            operate(index, ("add" if name == "little" else name, list(ids), 0))
            os.write(sending, f"{name} {time.perf_counter() - start}\n".encode())

    receiving, sending = os.pipe()
    child = forked(work)
    os.close(sending)
    with os.fdopen(receiving) as lines:
        times = {kind: float(seconds) for kind, seconds in map(str.split, lines)}
    assert os.waitpid(child, 0)[1] == 0
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="where to make the index; a temporary folder when not given")
    options = parser.parse_args()
    segments.MERGED_ENTRIES = SEGMENT
    plain = ts.Index(N_FEATURES, family="adaptive", n_bits=16, random_state=7)
    plain.search(signals_of(plain.add(signals_of([0]))))  # makes the tables that all children share
    ts.Encoder  # noqa: B018  (imported before forking, because that takes long)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = os.path.join(folder, "killed.topsign")
        times = usual_times(folder)
        entries, next_id, outcomes, kinds = dict.fromkeys(range(600), 0), 600, Counter(), draw_kinds(rng)
        assert os.waitpid(forked(lambda: operate(open_or_make(path), ("add", sorted(entries), 0))), 0)[1] == 0
        for number in range(options.rounds):
            operation = draw_operation(rng, next(kinds), entries, next_id, number + 1)
            wanted = after(entries, operation)
            next_id = max([next_id, *(i + 1 for i in operation[1])])
            name = "little" if operation[0] == "add" and len(operation[1]) <= 40 else operation[0]
            in_commit = number % 2 == 1
            delay = rng.uniform(0, 1.1 * times[name])
            if in_commit:
                delay *= rng.choice([0, 1 / 20, 1 / 4])  # as the commit begins, within it, around its end
            acknowledged, died_in = killed(path, operation, delay, in_commit)
            status = os.waitpid(forked(lambda: check(path, entries, wanted, acknowledged)), 0)[1]  # noqa: B023
            status = os.waitstatus_to_exitcode(status)
            if status not in (0, 1):
                sys.exit(f"round {number}: {operation[0]} of {len(operation[1])}, killed while {died_in}: see above")
            entries = wanted if status else entries
            outcomes[operation[0], died_in, "acknowledged" if acknowledged else "kept" if status else "undone"] += 1
    print(f"{options.rounds} writers killed (seed {options.seed}); {len(entries)} entries in the end, none lost")
    for (kind, died_in, outcome), count in sorted(outcomes.items()):
        print(f"{count:5d}  {kind:15s} while {died_in:18s} {outcome}")


if __name__ == "__main__":
    main()
