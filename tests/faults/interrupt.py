"""Interrupts writers of a durable index with SIGINT at random instants; they must be as harmless as no call at all.

    python tests/faults/interrupt.py [--rounds 500] [--seed 0]

One process adds, replaces, removes, updates metadata, compacts, opens and closes, and an interval timer raises
KeyboardInterrupt at instants uniform over the time that a round takes. After every round: files that the application
opened are still open and are still its own; no error but KeyboardInterrupt came out; the index, and one that is opened
anew, hold the entries before the call or those after it, and those after it if the call returned; both go on working.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import warnings

import numpy as np

import topsign as ts
from topsign.store import stored_file

N_FEATURES = 32


def calls(rng, index, path, signals, next_id, entries):
    """Name, call, and the entries afterwards."""
    some = rng.sample(sorted(entries), min(3, len(entries)))
    new = list(range(next_id, next_id + rng.choice([1, 5, 60])))
    rows = signals[[i % len(signals) for i in new]]
    return rng.choice(
        [
            ("add", lambda: index.add(rows, ids=new), entries | set(new)),
            ("upsert", lambda: index.upsert(rows[:1].repeat(len(some), 0), ids=some), entries),
            ("remove", lambda: index.remove(some), entries - set(some)),
            ("update_metadata", lambda: index.update_metadata(some, len(some) * [{"n": next_id}]), entries),
            ("compact", index.compact, entries),
            ("refresh", index.refresh, entries),
            ("open", lambda: ts.open_index(path).close(), entries),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    stored_file.INLINE_BYTES = 500  # so that small changes make files too
    signals = np.random.default_rng(options.seed).standard_normal((64, N_FEATURES))
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    warnings.simplefilter("ignore", ResourceWarning)
    landed, usual, rounds = {}, {}, 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "i.topsign")
        index = ts.SignIndex(n_features=N_FEATURES, random_state=1, path=path)
        index.add(signals)
        entries, next_id = set(range(64)), 64
        while sum(landed.values()) < options.rounds:
            name, call, wanted = calls(rng, index, path, signals, next_id, entries)
            mine = [open("/dev/null") for _ in range(4)]  # noqa: SIM115
            identities = [os.fstat(file.fileno()) for file in mine]
            returned, start = False, time.perf_counter()
            try:
                signal.setitimer(signal.ITIMER_REAL, max(1e-5, rng.uniform(0, 1.2 * usual.get(name, 0.01))))
                call()
                returned = True
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                landed[name] = landed.get(name, 0) + 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            if returned:
                usual[name] = time.perf_counter() - start
            for file, identity in zip(mine, identities, strict=True):
                assert os.path.samestat(os.fstat(file.fileno()), identity), "a file of the application was closed"
                file.close()
            reopened = ts.open_index(path)
            found = set(reopened.ids.tolist())
            assert found in (entries, wanted), f"{name}: neither before nor after"
            assert not returned or found == wanted, f"{name}: returned, and lost"
            index.refresh()
            assert set(index.ids.tolist()) == found, f"{name}: the interrupted index differs from its folder"
            rounds += 1
            if rounds % 20 == 0:
                reopened.verify()
            entries, next_id = found, next_id + 60
            if len(entries) < 20:
                index.add(signals, ids=range(next_id, next_id + 64))
                entries |= set(range(next_id, next_id + 64))
                next_id += 64
        index.compact()
        reopened = ts.open_index(path)
        reopened.verify()
        left = [name for _, _, names in os.walk(path) for name in names]
        kept = {file.name for file in reopened.store._now.manifest.files}
        assert len(left) == len(kept) + 2, f"files are left behind: {left}"
    print(f"{sum(landed.values())} interrupts in {rounds} calls (seed {options.seed}); no error, nothing lost")
    for name, count in sorted(landed.items()):
        print(f"{count:5d}  {name}")


if __name__ == "__main__":
    sys.exit(main())
