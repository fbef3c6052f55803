"""Stress test: concurrent writer processes, writer threads and readers on one durable index, with compaction.

    python tests/faults/crowd.py [--seconds 60] [--writers 3] [--threads 8] [--readers 20] [--seed 0] [--folder FOLDER]

Each writer owns a range of ids. It replaces a group of entries as a whole, adds, removes and updates others, and
compacts; some writers give up after a short timeout. Readers open, refresh and search: all entries of a group have the
same mark, which never decreases, and every result has the metadata and the code of its id. At the end the index has
exactly the acknowledged entries, and no unused file is left. The only permitted error is TimeoutError from a writer
with a timeout, and such a change must not have been stored.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from pathlib import Path

os.environ.setdefault("TOPSIGN_NUM_THREADS", "1")

import numpy as np

import topsign as ts
from topsign.store import segments, stored_columns

N_FEATURES, GROUP, RANGE = 32, 12, 10**6
TIMEOUT = 0.02


def signals_of(ids):
    return np.stack([np.random.default_rng(i).standard_normal(N_FEATURES) for i in ids]).astype(np.float32)


def codes_of(ids):
    plain = ts.Index(N_FEATURES, family="sign", n_bytes=N_FEATURES // 8, random_state=1)
    return plain.get(plain.add(signals_of(ids))).codes


class Writer:
    """Writer with its acknowledged entries."""

    def __init__(self, number, index, seed):
        self.number, self.index, self.rng = number, index, random.Random(f"{seed} {number}")
        self.first = number * RANGE
        self.entries, self.next, self.mark, self.counts = {}, self.first + GROUP, 0, Counter()

    def note(self, i, mark):
        return {"id": i, "writer": self.number, "mark": mark}

    def change(self):
        """Make one change and return the entries after it."""
        others = [i for i in self.entries if i >= self.first + GROUP]
        kind = self.rng.choice(["group", "group", "add", "remove", "update", "compact"])
        self.mark += 1
        if kind == "group":
            ids = range(self.first, self.first + GROUP)
            self.index.upsert(signals_of(ids), ids=ids, metadata=[self.note(i, self.mark) for i in ids])
            self.entries |= dict.fromkeys(ids, self.mark)
        elif kind == "add" or len(others) < 4:
            kind, ids = "add", range(self.next, self.next + self.rng.choice([1, 3, 30]))
            self.next = ids.stop  # ids of a refused addition are not used again
            self.index.add(signals_of(ids), ids=ids, metadata=[self.note(i, self.mark) for i in ids])
            self.entries |= dict.fromkeys(ids, self.mark)
        elif kind == "remove":
            ids = self.rng.sample(others, self.rng.randrange(1, len(others)))
            self.index.remove(ids)
            for i in ids:
                del self.entries[i]
        elif kind == "update":
            ids = self.rng.sample(others, 2)
            self.index.update_metadata(ids, [self.note(i, self.mark) for i in ids])
            self.entries |= dict.fromkeys(ids, self.mark)
        else:
            self.index.compact()
        return kind

    def run(self, until):
        while time.monotonic() < until:
            try:
                self.counts[self.change()] += 1
            except TimeoutError:
                assert self.index._store.timeout is not None
                self.counts["timeout"] += 1


def check_groups(index, seen):
    """Assert that every group is complete and not older than before."""
    entries = index.get(index.ids)
    groups = {}
    for i, note in zip(entries.ids.tolist(), entries.metadata, strict=True):
        assert note["id"] == i
        assert note["writer"] == i // RANGE
        if i % RANGE < GROUP:
            groups.setdefault(note["writer"], []).append(note["mark"])
    for writer, marks in groups.items():
        assert len(marks) == GROUP, "part of a group is missing"
        assert len(set(marks)) == 1, "a change is half visible"
        assert marks[0] >= seen.get(writer, 0), "a change was taken back"
    assert groups.keys() >= seen.keys(), "a group is gone"
    seen |= {writer: marks[0] for writer, marks in groups.items()}
    return entries


def read(path, number, until):
    """Open, refresh and search repeatedly."""
    rng, seen, counts = random.Random(number), {}, Counter()
    index = ts.open_index(path, readonly=True)
    while time.monotonic() < until:
        if rng.random() < 0.2:
            index.close()
            index = ts.open_index(path, readonly=True)
            counts["opened"] += 1
        counts["changes seen"] += index.refresh()
        entries = check_groups(index, seen)
        if len(entries):
            chosen = rng.choice(entries.ids.tolist())
            found = index.search(signals_of([chosen]), k=1, scoring="hamming")  # others may have a larger estimate
            assert found.distances.tolist() == [[0]]
            assert found.ids[0, 0] <= chosen, "the lower id breaks a tie"
            assert index.get([found.ids[0, 0]]).codes == index.get([chosen]).codes == codes_of([chosen])
            counts["searched"] += 1
        if rng.random() < 0.05:
            index.verify()
            counts["verified"] += 1
        time.sleep(rng.uniform(0, 0.2))  # so writers get processor time
    return counts, {}


def write(path, number, seed, until):
    index = ts.open_index(path, timeout=TIMEOUT if number % 3 == 0 else None)
    writer = Writer(number, index, seed)
    writer.run(until)
    return writer.counts, writer.entries


def started(work):
    """Run work() in a child; return its process id and the file for its result."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child:
        os.close(sending)
        return child, os.fdopen(receiving)
    try:
        counts, entries = work()
        with os.fdopen(sending, "w") as file:
            json.dump([counts, sorted(entries.items())], file)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(70)


def run_threads(path, numbers, seed, until):
    """Run writers in threads of this process; half share one index object, the others have one each."""
    shared, problems = ts.open_index(path), []
    writers = [
        Writer(number, shared if number % 2 else ts.open_index(path, timeout=None if number % 4 else TIMEOUT), seed)
        for number in numbers
    ]

    def run(writer):
        try:
            writer.run(until)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return writers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--writers", type=int, default=3, help="processes")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--readers", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="where to make the index; a temporary folder when not given")
    options = parser.parse_args()
    stored_columns.INLINE_BYTES, segments.MERGED_ENTRIES = 1000, 100  # many files and segments
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = os.path.join(folder, "crowd.topsign")
        ts.Index(N_FEATURES, family="sign", n_bytes=N_FEATURES // 8, random_state=1, path=path).close()
        codes_of([0])  # imports and makes tables before forking
        until = time.monotonic() + options.seconds
        children = [started(lambda n=n: write(path, n, options.seed, until)) for n in range(options.writers)]
        children += [started(lambda n=n: read(path, n, until)) for n in range(options.readers)]
        numbers = range(options.writers, options.writers + options.threads)
        writers = run_threads(path, numbers, options.seed, until)
        counts = sum((writer.counts for writer in writers), Counter())
        expected = dict(item for writer in writers for item in writer.entries.items())
        failed = 0
        for child, file in children:
            text = file.read()
            failed += os.waitpid(child, 0)[1] != 0
            if text:
                told, entries = json.loads(text)
                counts.update(told)
                expected |= dict(map(tuple, entries))
        if failed:
            sys.exit(f"{failed} of {len(children)} processes failed: see above")
        index = ts.open_index(path)
        index.verify()
        entries = index.get(index.ids)
        found = dict(zip(entries.ids.tolist(), (note["mark"] for note in entries.metadata), strict=True))
        assert found == expected, "the index does not hold what its writers were told"
        assert entries.codes == codes_of(index.ids.tolist())
        index.compact()
        named = {file.path for file in index._store.now.manifest.files}
        left = {str(file.relative_to(path)) for file in Path(path).rglob("*") if file.is_file()} - {"lock"}
        assert len(left) == len(named) + 1, f"files are left behind: {sorted(left - named)}"
    print(
        f"{options.writers} writing processes, {options.threads} writing threads, {options.readers} readers for "
        f"{options.seconds:g} seconds (seed {options.seed}); nothing lost, no error"
    )
    for name, count in sorted(counts.items()):
        print(f"{count:7d}  {name}")


if __name__ == "__main__":
    main()
