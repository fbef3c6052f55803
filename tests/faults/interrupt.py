"""Fault injection by interrupts: writers of a durable index receive SIGINT at random times, without harm.

    python tests/faults/interrupt.py [--rounds 500] [--seed 0]

One process adds, replaces, removes, updates metadata, calibrates, compacts, erases, saves, opens and closes. A third of
the interrupts come from a timer, at times uniform over the duration of a call. A third are signals that arrive at a
random bytecode among those that the library executes in a call. The others are exceptions raised before such a
bytecode, as debuggers and other threads can raise them.

After every round, files opened by the application are still open and unchanged. The only error is KeyboardInterrupt,
and every signal raises one. The index and a newly opened one have the entries before or after the call (after it, if
the call returned); both continue to work, and the lock is free. After an exception that is not a signal, only a newly
opened index must continue to work.
"""

import _thread
import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings

import numpy as np

import topsign as ts
from topsign.store import stored_columns

N_FEATURES = 32


def calls(rng, index, path, signals, next_id, entries):
    """Name, call, and the entries afterwards."""
    some = rng.sample(sorted(entries), min(3, len(entries)))
    new = list(range(next_id, next_id + rng.choice([1, 5, 60])))
    rows = signals[[i % len(signals) for i in new]]
    impostors = np.random.default_rng(10**6).standard_normal((200, N_FEATURES))
    return rng.choice(
        [
            ("add", lambda: index.add(rows, ids=new), entries | set(new)),
            ("upsert", lambda: index.upsert(rows[:1].repeat(len(some), 0), ids=some), entries),
            ("remove", lambda: index.remove(some), entries - set(some)),
            ("update_metadata", lambda: index.update_metadata(some, len(some) * [{"n": next_id}]), entries),
            ("calibrate", lambda: index.calibrate(impostors), entries),
            ("compact", index.compact, entries),
            ("erase", lambda: index.remove(some, erase=True), entries - set(some)),
            ("save", lambda: index.save(f"{path}.{next_id}"), entries),
            ("refresh", index.refresh, entries),
            ("open", lambda: ts.open_index(path).close(), entries),
        ]
    )


def check_copy(copy, entries):
    """Assert that a copy is complete or absent."""
    if os.path.exists(copy):
        with ts.open_index(copy, readonly=True) as found:
            assert set(found.ids.tolist()) == entries, "half a copy"
        shutil.rmtree(copy)


class Bytecodes:
    """Tracer that counts the bytecodes of the library in a call and interrupts before one of them."""

    def __init__(self, stop=None, *, by_signal=False):
        self.count, self.stop, self.by_signal, self.came = 0, stop, by_signal, False

    def __call__(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(WATCHED):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self.count += 1
            if self.count == self.stop:
                sys.settrace(None)
                self.came = True
                if not self.by_signal:
                    raise KeyboardInterrupt
                # As if the signal came now: without a call or a loop, which would run its handler in this function.
                [*map(_thread.interrupt_main, [signal.SIGINT])]
        return self

    def __enter__(self):
        sys.settrace(self)
        return self

    def __exit__(self, *_):
        sys.settrace(None)


WATCHED = (os.path.dirname(ts.__file__), contextlib.__file__)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    stored_columns.INLINE_BYTES = 500  # so small changes also create files
    signals = np.random.default_rng(options.seed).standard_normal((64, N_FEATURES))
    for number in (signal.SIGINT, signal.SIGALRM):  # shells start jobs in the background with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    warnings.simplefilter("ignore", ResourceWarning)
    landed, usual, lengths, rounds, stored = {}, {}, {}, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "i.topsign")
        index = ts.Index(N_FEATURES, family="sign", n_bytes=N_FEATURES // 8, random_state=1, path=path, timeout=20)
        index.add(signals)
        entries, next_id = set(range(64)), 64
        while sum(landed.values()) < options.rounds:
            name, call, wanted = calls(rng, index, path, signals, next_id, entries)
            mine = [open("/dev/null") for _ in range(4)]  # noqa: SIM115
            identities = [os.fstat(file.fileno()) for file in mine]
            returned, start, by_timer, came = False, time.perf_counter(), rounds % 3 == 0, False
            stop = rng.randrange(1, lengths[name] + 1) if lengths.get(name) else None
            codes = Bytecodes(stop, by_signal=rounds % 3 == 1)
            by_signal = by_timer or codes.by_signal
            try:
                if by_timer:
                    signal.setitimer(signal.ITIMER_REAL, max(1e-5, rng.uniform(0, 1.2 * usual.get(name, 0.01))))
                    call()
                    returned = True
                    came = not signal.setitimer(signal.ITIMER_REAL, 0)[0]
                else:
                    with codes:
                        call()
                        returned = True  # before the end of the block, which runs handlers
                    came = codes.came
                spent = time.perf_counter() - start
                if came:  # as the call returned: its handler runs now
                    time.sleep(30)
                    raise AssertionError(f"{name}: an interrupt was lost")
            except KeyboardInterrupt:
                landed[name] = landed.get(name, 0) + 1
                usual[name] = 1.1 * usual.get(name, 0.01)  # so late times and bytecodes are also reached
                lengths[name] = 11 * lengths.get(name, 10**4) // 10
            else:
                if by_timer:
                    usual[name] = spent
                else:
                    lengths[name] = codes.count
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            for file, identity in zip(mine, identities, strict=True):
                assert os.path.samestat(os.fstat(file.fileno()), identity), "a file of the application was closed"
                file.close()
            check_copy(f"{path}.{next_id}", entries)
            reopened = ts.open_index(path)
            found = set(reopened.ids.tolist())
            assert found in (entries, wanted), f"{name}: neither before nor after"
            assert not returned or found == wanted, f"{name}: returned, and lost"
            if not returned and found == wanted != entries:
                stored += 1
            if not (by_signal or returned):
                # Its locks may be held: `with` does not free them if an exception comes at its last bytecodes.
                index = ts.open_index(path, timeout=20)
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
        kept = {file.name for file in reopened._store.now.manifest.files}
        assert len(left) == len(kept) + 2, f"files are left behind: {left}"
    print(f"{sum(landed.values())} interrupts in {rounds} calls (seed {options.seed}); no error, nothing lost")
    print(f"{stored:5d} interrupts ended a call whose change is stored")
    for name, count in sorted(landed.items()):
        print(f"{count:5d}  {name}")


if __name__ == "__main__":
    sys.exit(main())
