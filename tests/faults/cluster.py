"""Fault injection for clusters: parts are killed with SIGKILL, and jobs return the right result or a clear error.

    python tests/faults/cluster.py [--rounds 10] [--seed 0]

Each round uses a scheduler and four workers as processes. A worker is killed while encoding, one while Dask allows no
task to lose a worker, and one while searching; the scheduler is killed during a job, which continues with another
scheduler; and a segment is truncated.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

sys.path.insert(0, str(Path(__file__).parents[1]))

from folders import segment_paths
from processes import PATIENCE, Processes

import topsign as ts

N_FEATURES = 64
FILES, ROWS, SEGMENT = 6, 300, 75


def make_signals(folder, seed):
    """Write files of signals; return an encoder, queries, and the results of one index in this process."""
    signals = np.random.default_rng(seed).standard_normal((FILES * ROWS, N_FEATURES)).astype(np.float32)
    source = Path(folder) / "signals"
    source.mkdir()
    for i, part in enumerate(np.split(signals, FILES)):
        np.save(source / f"part{i}.npy", part)
    index = ts.Index(N_FEATURES, family="adaptive", n_bits=16, random_state=7)
    index.add(signals)
    queries = signals[::100] + 0.5
    return source, index, queries, index.search(queries, k=20)


def assert_same(found, expected):
    for name in ("ids", "distances", "scores", "p_values"):
        assert_array_equal(getattr(found, name), getattr(expected, name))


def segment_files(out):
    return {file.name: file.stat().st_ino for file in Path(out).glob("segments/*")}


def worker_pids(client):
    return client.run(os.getpid)


def kill_while_encoding(processes, client, folder, rng):
    source, index, queries, expected = make_signals(folder, rng.randrange(2**32))
    out = Path(folder) / "codes"
    kept = {}
    victim = rng.choice(sorted(worker_pids(client).values()))
    last = rng.randrange(1, FILES * ROWS // SEGMENT)

    def kill(done, total):
        if not kept and done >= last * SEGMENT:
            time.sleep(rng.uniform(0, 0.02))
            processes.kill_worker(victim)
            kept.update(segment_files(out))

    encoded = ts.distributed.encode(source, out, index, client=client, segment_entries=SEGMENT, progress=kill)
    assert kept, "nobody was killed"
    assert (encoded.n_entries, encoded.n_segments) == (FILES * ROWS, FILES * ROWS // SEGMENT)
    files = segment_files(out)
    redone = [name for name in kept if files[name] != kept[name]]
    assert not redone, f"finished, and written again: {redone}"
    with ts.open_index(out) as here:
        named = {file.path for file in here._store.now.manifest.files}
    assert {f"segments/{name}" for name in files} <= named, "files that no version names are left"
    with ts.distributed.open(out, client=client) as opened:
        assert_same(opened.search(queries, k=20), expected)


def allow_failures(client, n_failures):
    """Set the number of workers that a task may lose before Dask gives up, 3 by default."""

    def allow(dask_scheduler):
        dask_scheduler.allowed_failures = n_failures

    client.run_on_scheduler(allow)


def kill_with_suspicion(processes, client, folder, rng):
    """Kill a worker while Dask gives up the tasks of the first lost worker; the library submits them again."""
    source, index, queries, expected = make_signals(folder, rng.randrange(2**32))
    out = Path(folder) / "codes"
    address, victim = rng.choice(sorted(worker_pids(client).items()))
    allow_failures(client, 0)
    os.kill(victim, signal.SIGSTOP)  # so its tasks do not finish

    ended = threading.Event()

    def kill():
        while not client.processing([address])[address] and not ended.is_set():
            time.sleep(0.02)
        processes.kill_worker(victim)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    try:
        encoded = ts.distributed.encode(source, out, index, client=client, segment_entries=SEGMENT)
    finally:
        ended.set()
        killer.join(PATIENCE)
        allow_failures(client, 3)
    assert encoded.n_written == encoded.n_segments == FILES * ROWS // SEGMENT
    with ts.distributed.open(out, client=client) as opened:
        assert_same(opened.search(queries, k=20), expected)


def kill_while_searching(processes, client, folder, rng):
    source, index, queries, expected = make_signals(folder, rng.randrange(2**32))
    out = Path(folder) / "codes"
    ts.distributed.encode(source, out, index, client=client, segment_entries=SEGMENT)
    with ts.distributed.open(out, client=client) as opened:
        assert_same(opened.search(queries, k=20), expected)
        pids = worker_pids(client)
        address = rng.choice(sorted(opened.placement))
        os.kill(pids[address], signal.SIGSTOP)  # so the search cannot finish earlier
        found = []
        search = threading.Thread(target=lambda: found.append(opened.search(queries, k=20)))
        search.start()
        time.sleep(rng.uniform(0.1, 0.6))
        assert search.is_alive()
        processes.kill_worker(pids[address])
        search.join(PATIENCE)
        assert not search.is_alive(), "the search hangs"
        assert_same(found[0], expected)
        assert address not in opened.placement
        assert sum(map(len, opened.placement.values())) == FILES * ROWS // SEGMENT


def restart_scheduler(processes, client, folder, rng):
    """Restart the scheduler and return a client of the new cluster."""
    source, index, queries, expected = make_signals(folder, rng.randrange(2**32))
    out = Path(folder) / "codes"
    last = rng.randrange(1, FILES * ROWS // SEGMENT)

    def kill(done, total):
        if done == last * SEGMENT:
            processes.kill_scheduler()

    client._timeout = client.rpc.timeout = 5  # seconds to look for the lost scheduler; the default is 30
    with pytest.raises(ConnectionError, match=r"the scheduler at .* is gone; .* open the folder again"):
        ts.distributed.encode(source, out, index, client=client, segment_entries=SEGMENT, progress=kill)
    processes.stop()
    assert len(ts.open_index(out)) == 0, "entries before all segments"
    kept = segment_files(out)
    assert len(kept) >= last
    processes.start()
    client = processes.client()
    encoded = ts.distributed.encode(source, out, index, client=client, segment_entries=SEGMENT)
    assert encoded.n_written == FILES * ROWS // SEGMENT - len(kept)
    files = segment_files(out)
    assert {name: files[name] for name in kept} == kept, "finished, and written again"
    with ts.distributed.open(out, client=client) as opened:
        assert_same(opened.search(queries, k=20), expected)
    return client


def truncate_segment(processes, client, folder, rng):
    """Truncate a segment: damage is reported, and only the segment that a job left incomplete is written again."""
    source, index, queries, expected = make_signals(folder, rng.randrange(2**32))
    out = Path(folder) / "codes"
    options = {"client": client, "segment_entries": SEGMENT}

    def stop(done, total):
        if done == total:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        ts.distributed.encode(source, out, index, progress=stop, **options)
    torn = rng.choice(sorted((out / "segments").iterdir()))  # no version names them yet
    os.truncate(torn, rng.randrange(torn.stat().st_size))
    assert ts.distributed.encode(source, out, index, **options).n_written == 1
    with ts.distributed.open(out, client=client) as opened:
        assert_same(opened.search(queries, k=20), expected)
    bad = rng.choice(segment_paths(out))
    os.truncate(bad, rng.randrange(bad.stat().st_size))
    with pytest.raises(ts.StorageError, match=f"segments/{bad.name}"):
        ts.distributed.open(out, client=client)


FAULTS = (kill_while_encoding, kill_with_suspicion, kill_while_searching, restart_scheduler, truncate_segment)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as scratch, Processes(scratch) as processes:
        client = processes.client()
        for number in range(options.rounds):
            for fault in FAULTS:
                start = time.perf_counter()
                with tempfile.TemporaryDirectory(dir=scratch) as folder:
                    client = fault(processes, client, folder, rng) or client
                    client.wait_for_workers(processes.n_workers, timeout=PATIENCE)
                print(f"round {number}: {fault.__name__}: {time.perf_counter() - start:.1f} s", flush=True)
    print(f"{options.rounds} rounds of {len(FAULTS)} faults (seed {options.seed}): all answers right, nothing redone")


if __name__ == "__main__":
    main()
