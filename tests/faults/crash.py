"""Crash tests for writers of a durable index: kills before every file-changing call, and power losses.

    python tests/faults/crash.py kill [--every 1] [--seed 0]
    python tests/faults/crash.py power [--states 500] [--seed 0]

A preloaded library (shim.c) counts the calls of write, fsync, link, rename, unlink, mkdir and creating open below a
folder. ``kill`` runs each operation once per call and kills the process before that call. ``power`` logs the calls of
each operation and replays them up to a random one into a new folder, with all synced data and an arbitrary part of the
rest: writes that were not synced are lost or torn, and names that were not synced independently appear, disappear or
stay.

After each crash the index is opened, verified and compared. It must have the entries before or after the operation
(after it, if the call had returned), and the next change must succeed and leave no unused file.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
N_FEATURES = 32

PROGRAM = """
import warnings
import numpy as np, topsign as ts
from topsign.store import stored_columns, segments
warnings.simplefilter("ignore")
stored_columns.INLINE_BYTES, segments.MERGED_ENTRIES = 600, 64
signals = np.random.default_rng(5).standard_normal((400, 32)).astype(np.float32)
if verb == "create":
    ts.Index(32, family="sign", n_bytes=4, random_state=1, path=path)
elif verb == "first add with learning":
    ts.Index(32, n_bytes=5, path=path, random_state=1).add(signals)
elif verb == "save":
    memory = ts.Index(32, family="sign", n_bytes=4, random_state=1)
    memory.add(signals[:150])
    memory.save(path)
else:
    index = ts.open_index(path)
    if verb == "small add":
        index.add(signals[200:201], metadata=[{"n": 1}])
    elif verb == "large add":
        index.add(signals[200:])
    elif verb == "upsert":
        index.upsert(signals[250:260], ids=range(95, 105))
    elif verb == "remove":
        index.remove(range(0, 149, 3))
    elif verb == "update_metadata":
        index.update_metadata([3, 100], [{"n": 2}, None])
    elif verb == "calibrate":
        index.calibrate(np.random.default_rng(6).standard_normal((200, 32)))
    elif verb == "compact":
        index.compact()
    elif verb == "erase":
        index.remove([5, 6, 120], erase=True)
"""

NEW = ("create", "first add with learning", "save")
VERBS = (*NEW, "small add", "large add", "upsert", "remove", "update_metadata", "calibrate", "compact", "erase")


def build_shim(folder):
    library = Path(folder) / "shim.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, HERE / "shim.c", "-ldl"], check=True)
    return library


def state_of(path):
    """Return the content of an index as text, or None if there is no index."""
    import topsign as ts

    if not os.path.exists(path):
        return None
    with ts.open_index(path, readonly=True) as index:
        index.verify()
        ids = index.ids
        entries = index.get(ids) if len(ids) else None
        codes = None if entries is None else getattr(entries.codes, "data", entries.codes)
        return json.dumps(
            [
                ids.tolist(),
                codes if codes is None else bytes(memoryview(codes).cast("B")).hex(),
                None if entries is None else entries.metadata,
                index._store.now.next_id,
                sorted(index._store.now.sources),
            ]
        )


def prepare(path):
    """Create an index with several segments, removed entries and metadata."""
    import numpy as np

    import topsign as ts
    from topsign.store import segments, stored_columns

    stored_columns.INLINE_BYTES, segments.MERGED_ENTRIES = 600, 64
    signals = np.random.default_rng(5).standard_normal((400, N_FEATURES)).astype(np.float32)
    with ts.Index(N_FEATURES, family="sign", n_bytes=N_FEATURES // 8, random_state=1, path=path) as index:
        for start in range(0, 200, 20):
            index.add(signals[start : start + 20], metadata=20 * [{"start": start}])
        index.remove([7, 8, 150])


def run(path, verb, **settings):
    """Run an operation in a forked child under the shim; return exit status, whether it returned, and its errors."""
    receiving, sending = os.pipe()
    with tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            try:
                os.dup2(errors.fileno(), 2)
                os.environ.update({"SHIM_ROOT": str(Path(path).parent)} | settings)
                exec(PROGRAM, {"path": str(path), "verb": verb})
                os.write(sending, b"returned")
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(70)
        os.close(sending)
        returned = os.read(receiving, 8) == b"returned"
        os.close(receiving)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        errors.seek(0)
        return status, returned, errors.read().decode()


def check(path, verb, before, after, returned):
    """Return whether the index has the entries after the call; raise AssertionError if it has neither state."""
    found = state_of(path)
    allowed = {before, after}
    if verb == "first add with learning" and found is not None:
        allowed.add(json.dumps([[], None, None, 0, []]))  # the folder, with the learned recipe
    assert found in allowed, f"{verb}: neither before nor after"
    assert not returned or found == after, f"{verb}: returned, and lost"
    goes_on(path)
    return found == after


def goes_on(path):
    """Assert that the next change succeeds and leaves only the files of its version."""
    import numpy as np

    import topsign as ts

    if not os.path.exists(path):
        return
    with ts.open_index(path, timeout=0) as index:
        n_entries = len(index)
        index.add(np.ones((1, N_FEATURES)))
        index.verify()
        assert len(index) == n_entries + 1
        named = {file.path for file in index._store.now.manifest.files}
    left = {str(file.relative_to(path)) for file in Path(path).rglob("*") if file.is_file()} - {"lock"}
    assert len(left) == len(named) + 1, f"files are left behind: {sorted(left - named)}"
    assert named < left


class Case:
    """Operation with its initial index and its expected result."""

    def __init__(self, folder, verb):
        self.folder, self.verb = Path(folder), verb
        self.sound = self.folder / "sound" / "i.topsign"
        if verb not in NEW:
            self.sound.parent.mkdir()
            prepare(self.sound)
        self.before = state_of(self.sound)
        work = self.copy("whole")
        self.log = self.folder / "log"
        code, returned, errors = run(work, verb, SHIM_LOG=str(self.log))
        assert code == 0, errors
        assert returned
        self.after = state_of(work)
        self.calls = read_log(self.log, work.parent)

    def copy(self, name):
        work = self.folder / name
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        if self.sound.exists():
            shutil.copytree(self.sound, work / "i.topsign")
        return work / "i.topsign"


def read_log(log, root):
    """Return system calls as (kind, path, other path, bytes), with paths relative to the root."""
    content, at, calls = log.read_bytes(), 0, []
    while at < len(content):
        end = content.index(b"\n", at)
        kind, path, other, length = content[at:end].decode().split("\t")
        at = end + 1 + int(length)
        path, other = (os.path.relpath(one, root) if one else "" for one in (path, other))
        calls.append((kind, path, other, content[end + 1 : at]))
    return calls


def kill_everywhere(verbs, every, seed):
    outcomes = Counter()
    for verb in verbs:
        with tempfile.TemporaryDirectory() as folder:
            case = Case(folder, verb)
            for number in range(1 + seed % every, len(case.calls) + 1, every):
                work = case.copy("killed")
                code, returned, errors = run(work, verb, SHIM_KILL=str(number))
                assert code == -9, f"{verb}, call {number}: ended with {code}: {errors}"
                done = check(work, verb, case.before, case.after, returned)
                outcomes[verb, case.calls[number - 1][0], "after" if done else "before"] += 1
    print(f"{outcomes.total()} writers killed, each before another call; nothing lost, nothing half-done")
    for (verb, call, outcome), count in sorted(outcomes.items()):
        print(f"{count:5d}  {verb:24s} at {call:7s} -> {outcome}")


class Disk:
    """Disk content after a power loss: synced bytes and names, and an arbitrary part of the others."""

    def __init__(self, start):
        self.names = {"": None}  # path to inode, None for a folder
        self.content = {}  # inode to bytes that are synced
        self.pending_writes = {}  # inode to pieces that are not
        self.pending_names = {}  # folder to operations that are not synced
        for path in sorted(start.rglob("*")):
            name = str(path.relative_to(start))
            self.names[name] = None if path.is_dir() else name
            if path.is_file():
                self.content[name] = path.read_bytes()
        self.now = dict(self.names)  # names as the running system sees them
        self.inodes = 0

    def apply(self, kind, path, other, content):
        folder = os.path.dirname(path)
        if kind == "create":
            self.inodes += 1
            self.now[path] = self.inodes
            self.content[self.inodes] = b""
            self._pend(folder, ("set", path, self.inodes))
        elif kind == "mkdir":
            self.now[path] = None
            self._pend(folder, ("set", path, None))
        elif kind == "write":
            self.pending_writes.setdefault(self.now[path], []).append(content)
        elif kind == "link":
            self.now[other] = self.now[path]
            self._pend(os.path.dirname(other), ("set", other, self.now[path]))
        elif kind == "unlink":
            if path in self.now:
                del self.now[path]
                self._pend(folder, ("drop", path, None))
        elif kind == "rename":
            self._rename(path, other)
        elif kind == "fsync":
            self._sync("" if path == "." else path)

    def _rename(self, path, other):
        for name in [one for one in self.now if one == path or one.startswith(path + "/")]:
            self.now[other + name[len(path) :]] = self.now.pop(name)
        for table in (self.pending_names,):
            for name in [one for one in table if one == path or one.startswith(path + "/")]:
                table[other + name[len(path) :]] = table.pop(name)
        self._pend(os.path.dirname(other), ("move", path, other))

    def _pend(self, folder, operation):
        self.pending_names.setdefault(folder, []).append(operation)

    def _sync(self, path):
        if self.now.get(path, path and None) is None:
            for operation in self.pending_names.pop(path, []):
                self._settle(self.names, operation)
        else:
            inode = self.now[path]
            self.content[inode] += b"".join(self.pending_writes.pop(inode, []))

    def _settle(self, names, operation):
        kind, path, value = operation
        if kind == "set":
            names[path] = value
        elif kind == "drop":
            names.pop(path, None)
        else:
            for name in [one for one in names if one == path or one.startswith(path + "/")]:
                names[value + name[len(path) :]] = names.pop(name)

    def lose_power(self, rng, target):
        """Write the data that survive a power loss into a folder."""
        names, content = dict(self.names), dict(self.content)
        for inode, pieces in self.pending_writes.items():
            share = rng.choice([0, 0, 0.5])  # fraction of writes that are lost individually and leave zeros
            lost = b"".join(bytes(len(piece)) if rng.random() < share else piece for piece in pieces)
            cut = rng.choice([0, len(lost), rng.randrange(len(lost) + 1)])
            torn = bytes(0 if rng.random() < 0.5 else byte for byte in lost[:cut]) if rng.random() < 0.3 else lost[:cut]
            content[inode] += torn
        for operations in self.pending_names.values():
            share = rng.choice([0, 0.5, 1])
            for operation in operations:
                if rng.random() < share:
                    self._settle(names, operation)
        for name, inode in sorted(names.items()):
            place = target / name
            if any(str(parent) not in names for parent in Path(name).parents if str(parent) != "."):
                continue  # its folder is lost
            if inode is None:
                place.mkdir(exist_ok=True)
            else:
                place.write_bytes(content[inode])


def lose_power(verbs, n_states, seed):
    rng, outcomes = random.Random(seed), Counter()
    with tempfile.TemporaryDirectory() as top:
        cases = []
        for number, verb in enumerate(verbs):
            folder = Path(top) / str(number)
            folder.mkdir()
            cases.append(Case(folder, verb))
        for number in range(n_states):
            case = cases[number % len(cases)]
            end = rng.randrange(len(case.calls) + 1)
            start, target = case.folder / "sound", case.folder / "lost"
            start.mkdir(exist_ok=True)
            disk = Disk(start)
            for call in case.calls[:end]:
                disk.apply(*call)
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            disk.lose_power(rng, target)
            # Unlinks are not synced, because nothing depends on them, so the operation returns after the last other
            # call.
            rest = [kind for kind, *_ in case.calls[end:] if kind != "unlink"]
            done = check(target / "i.topsign", case.verb, case.before, case.after, returned=not rest)
            outcomes[case.verb, "after" if done else "before"] += 1
    print(f"{n_states} losses of power (seed {seed}); nothing acknowledged lost, nothing half-done")
    for (verb, outcome), count in sorted(outcomes.items()):
        print(f"{count:5d}  {verb:24s} -> {outcome}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["kill", "power"])
    parser.add_argument("--every", type=int, default=1, help="kill at one of so many calls")
    parser.add_argument("--states", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbs", nargs="*", default=VERBS)
    options = parser.parse_args()
    if "SHIM" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            settings = {"SHIM": "1", "LD_PRELOAD": str(build_shim(folder)), "TOPSIGN_NUM_THREADS": "1"}
            settings |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
            sys.exit(subprocess.run([sys.executable, *sys.argv], env=os.environ | settings).returncode)
    import sklearn.base  # noqa: F401  (imported before forking, because that takes long)

    if options.kind == "kill":
        kill_everywhere(options.verbs, options.every, options.seed)
    else:
        lose_power(options.verbs, options.states, options.seed)


if __name__ == "__main__":
    main()
