"""Indexes in buckets: concurrent changes by several clients are applied exactly once or refused."""

import contextlib
import pickle
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import topsign as ts

pytest.importorskip("fsspec", reason="needs the extra distributed: pip install 'topsign[distributed]'")

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from topsign.store import backends
from topsign.store import versions as versioning
from topsign.store.backends import Bucket
from topsign.store.stored_columns import FileWriter, write_segment
from topsign.store.versions import UnknownOutcomeError, Versions

N_FEATURES = 32


@pytest.fixture
def url():
    name = f"memory://{secrets.token_hex(8)}/photos.topsign"
    yield name
    with contextlib.suppress(FileNotFoundError):
        fsspec.filesystem("memory").rm(name.rsplit("/", 1)[0], recursive=True)


@pytest.fixture
def signals(rng):
    return rng.standard_normal((300, N_FEATURES)).astype(np.float32)


def make_index(path=None):
    return ts.Index(N_FEATURES, family="adaptive", n_bits=12, random_state=7, path=path)


def files_of(url):
    fs, root = fsspec.core.url_to_fs(url)
    return {path.removeprefix(root).lstrip("/"): fs.cat_file(path) for path in fs.find(root)}


def assert_same(found, expected):
    for name in ("ids", "scores", "p_values", "distances"):
        assert_array_equal(getattr(found, name), getattr(expected, name))


def change_everything(index, signals):
    index.add(signals[:200], metadata=[{"row": row, "text": "x" * 90} for row in range(200)])
    index.add(signals[200:])
    index.remove(np.arange(0, 300, 7))
    index.upsert(signals[:3] + 1, ids=[1, 7, 900])
    index.update_metadata([2, 299], [{"row": -1}, {"row": -2}])
    index.compact()
    index.remove([5])


def test_a_bucket_holds_what_a_folder_holds(url, signals, tmp_path):
    """Methods and results are the same, and copies in both directions are equal."""
    memory, stored = make_index(), make_index(url)
    for index in (memory, stored):
        change_everything(index, signals)
    with ts.open_index(url) as opened:
        opened.verify()
        assert_same(opened.search(signals[:9]), memory.search(signals[:9]))
        assert_same(opened.search(signals[:9], where="row < 0"), memory.search(signals[:9], where="row < 0"))
        assert opened.get([2, 900]).metadata == [{"row": -1}, None]
        assert (opened.path, opened.versions()) == (url, [8])
        assert_array_equal(pickle.loads(pickle.dumps(opened)).ids, memory.ids)
        opened.save(tmp_path / "copy.topsign")
    with ts.open_index(tmp_path / "copy.topsign") as copy:
        copy.verify()
        assert_same(copy.search(signals[:9]), memory.search(signals[:9]))
        copy.save(f"{url}/../back")
    with pytest.raises(FileExistsError, match="exists; choose another name"):
        memory.save(url)
    with ts.open_index(f"{url}/../back") as back:
        assert_array_equal(back.ids, memory.ids)
    with pytest.raises(ts.StorageError, match="there are none; this folder is not a topsign index"):
        ts.open_index(f"{url}/nothing")
    with pytest.raises(ValueError, match="was written with n_bits=12"):
        ts.Index(N_FEATURES, family="adaptive", n_bits=13, random_state=7, path=url)


def test_only_the_blocks_of_candidates_are_downloaded(url, rng, monkeypatch):
    """Rescoring four candidates of 12,000 originals reads at most four blocks of 64 KiB, and damage in them raises."""
    signals = rng.standard_normal((12_000, N_FEATURES)).astype(np.float32)
    index = ts.Index(N_FEATURES, family="adaptive", n_bits=12, random_state=7, path=url, originals="float32")
    index.add(signals)
    fs, read = fsspec.filesystem("memory"), []
    plain = type(fs).cat_file
    monkeypatch.setattr(type(fs), "cat_file", lambda *given, **more: read.append(plain(*given, **more)) or read[-1])

    def n_read(call):
        read.clear()
        call()
        return sum(map(len, read))

    with ts.open_index(url) as opened:
        query = signals[7:8] + 0.01
        opened.search(query, k=1)  # reads ids and codes
        assert n_read(lambda: opened.search(query, k=1, rescore=True)) <= 4 * 2**16 + 4 * 12_000
        assert n_read(lambda: opened.search(query, k=1, rescore=True)) == 0
        assert opened.search(query, k=1, rescore=True).ids[0, 0] == 7
        far = np.array([11_000])
        assert n_read(lambda: opened.get(far)) <= 2**16 + 4096
        assert_array_equal(opened.get(far).signals, signals[far])
    (name,) = (name for name, content in files_of(url).items() if len(content) > signals.nbytes)
    content = bytearray(fs.cat_file(f"{url}/{name}"))
    content[-4 * 12_000 - 5 - 4 * N_FEATURES * 9_000] ^= 1  # in the row 2,999, before the scales
    fs.pipe_file(f"{url}/{name}", bytes(content))
    with ts.open_index(url) as opened:
        assert_array_equal(opened.get(far).signals, signals[far])
        with pytest.raises(ts.StorageError, match="originals: damaged: checksum"):
            opened.get([2999])


# Conflicts


@pytest.fixture(params=["bucket", "cluster"])
def opener(request):
    """Open clients of a bucket, or indexes on a cluster of a local folder."""
    if request.param == "bucket":
        return ts.open_index
    pytest.importorskip("distributed")
    return ts.distributed.open


CHANGES = {
    "update_metadata": lambda index, signals, note: index.update_metadata([5, 6], [note] * 2),
    "upsert": lambda index, signals, note: index.upsert(signals[:2] + 1, ids=[5, 6], metadata=[note] * 2),
    "add": lambda index, signals, note: index.add(signals[:2] + 1, metadata=[note] * 2),
    "remove": lambda index, signals, note: index.remove([5, 6]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_stale_change_does_not_touch_an_acknowledged_one(opener, url, tmp_path, signals, change):
    place = url if opener is ts.open_index else tmp_path / "photos.topsign"
    make_index(place).add(signals)
    first, second = opener(place), opener(place)
    ids = CHANGES["update_metadata" if change == "remove" else change](first, signals, {"by": 1})
    if change == "add":
        assert ids.tolist() == [300, 301]
        assert CHANGES[change](second, signals, {"by": 2}).tolist() == [302, 303], "applied to the newest version"
    else:
        with pytest.raises(
            ts.ConflictError, match=r"5, 6 are changed by another client .*nothing was changed; refresh"
        ):
            CHANGES[change](second, signals, {"by": 2})
    with ts.open_index(place) as newest:
        newest.verify()
        assert newest.get([300, 301] if change == "add" else [5, 6]).metadata == [{"by": 1}] * 2
    second.refresh()
    CHANGES[change](second, signals, {"by": 2})
    with ts.open_index(place) as newest:
        assert change == "remove" or newest.get([5, 6] if change != "add" else [304, 305]).metadata == [{"by": 2}] * 2
        assert (5 in newest) == (change != "remove")


def test_a_refused_change_leaves_no_files(url, signals, monkeypatch):
    make_index(url).add(signals)
    first, second = ts.open_index(url), ts.open_index(url)
    first.update_metadata([5], [{"by": 1}])
    stored = set(files_of(url))
    large = np.repeat(signals, 20, axis=0)  # in a file of its own, not in the manifest
    with pytest.raises(ts.ConflictError):
        second.upsert(large, ids=np.arange(len(large)))
    assert set(files_of(url)) == stored
    second.refresh()

    def fail(_self, _folders):
        raise MemoryError("no memory to sync")

    monkeypatch.setattr(Bucket, "sync", fail)
    with pytest.raises(MemoryError, match="no memory to sync"):
        second.add(large)
    assert set(files_of(url)) == stored


def test_a_change_of_other_entries_is_applied(url, signals):
    """Entries that another client only moved by compaction do not conflict."""
    make_index(url).add(signals, metadata=[{"row": row} for row in range(300)])
    first, second = ts.open_index(url), ts.open_index(url)
    second.get([3, 250])  # its snapshot is read before another client compacts it away
    first.remove(np.arange(100, 200))
    first.compact()
    second.remove([3])
    second.update_metadata([250], [{"row": -1}])
    with pytest.raises(ValueError, match="ids must be new, but 7 is in the index already"):
        second.add(signals[:1], ids=[7])
    first.add(signals[:1], ids=[1000])
    with pytest.raises(ValueError, match="ids must be new, but 1000 is in the index already"):
        second.add(signals[:1], ids=[1000])
    with pytest.raises(ValueError, match="ids must be in the index, but 150 is not"):
        second.remove([150])
    with ts.open_index(url) as newest:
        newest.verify()
        assert len(newest) == 200
        assert newest[250].metadata == {"row": -1}


def test_calibrations_and_sources_conflict_too(url, signals):
    make_index(url).add(signals[:200])
    first, second = ts.open_index(url), ts.open_index(url)
    first.calibrate(signals[200:], false_alarm=0.05)
    with pytest.raises(ts.ConflictError, match="topsign:calibration is changed by another client"):
        second.calibrate(signals[200:] + 1, false_alarm=0.05)
    first.add(signals[:2], source=("a.npy", {"taken": 2}))
    second.refresh()
    third = ts.open_index(url)
    second.add(signals[2:4], source=("a.npy", {"taken": 4}))
    with pytest.raises(ts.ConflictError, match=r"a\.npy is changed by another client"):
        third.add(signals[2:4], source=("a.npy", {"taken": 4}))
    assert len(ts.open_index(url)) == 204


def run_clients(url, signals, n_clients, n_changes):
    """Run clients that add entries, replace their own, and increment a counter in the metadata of a shared entry."""
    make_index(url).add(signals[: n_clients + 1], metadata=[{"count": 0}] * (n_clients + 1))
    acknowledged, refused = [], []

    def work(client):
        index = ts.open_index(url)
        for number in range(n_changes):
            kind = ("add", "upsert", "count")[number % 3]
            try:
                if kind == "add":
                    added = index.add(signals[:1] + number, metadata=[{"client": client, "number": number}])
                    acknowledged.append((client, number, int(added[0])))
                elif kind == "upsert":
                    index.upsert(signals[:1], ids=[client + 1], metadata=[{"count": number}])
                    acknowledged.append((client, number, None))
                else:
                    index.refresh()
                    index.update_metadata([0], [{"count": index[0].metadata["count"] + 1}])
                    acknowledged.append((client, number, "count"))
            except ts.ConflictError:
                refused.append((client, number))

    with ThreadPoolExecutor(n_clients) as pool:
        for done in [pool.submit(work, client) for client in range(n_clients)]:
            done.result()
    assert len(acknowledged) + len(refused) == n_clients * n_changes
    added = {(client, number): id for client, number, id in acknowledged if isinstance(id, int)}
    assert len(set(added.values())) == len(added) == n_clients * len(range(0, n_changes, 3)), "each once, none refused"
    with ts.open_index(url) as index:
        index.verify()
        assert len(index) == n_clients + 1 + len(added)
        for (client, number), id in added.items():
            assert index[id].metadata == {"client": client, "number": number}
        counted = sum(id == "count" for _, _, id in acknowledged)
        assert index[0].metadata == {"count": counted}, "an acknowledged count was lost, or one refused was stored"
        for client in range(n_clients):
            last = max(number for one, number, id in acknowledged if one == client and id is None)
            assert index[client + 1].metadata == {"count": last}
        assert index.versions() == [index._store.version]
    segments = [name for name in files_of(url) if name.startswith("segments/")]
    assert len(segments) <= 12, "files of superseded attempts are left"


@pytest.mark.parametrize("n_clients", [2, 5])
def test_concurrent_changes_are_applied_once_or_refused(url, signals, n_clients):
    run_clients(url, signals, n_clients, 201 // n_clients)


@pytest.fixture(scope="module")
def s3():
    """Local server of the S3 protocol."""
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    import logging

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    before = dict(fsspec.config.conf)
    fsspec.config.conf["s3"] = {"endpoint_url": f"http://{host}:{port}", "key": "key", "secret": "secret"}
    fsspec.filesystem("s3").mkdir("s3://photos")
    yield "s3://photos"
    fsspec.config.conf.clear()
    fsspec.config.conf.update(before)
    server.stop()


def test_a_server_of_the_s3_protocol(s3, signals):
    url = f"{s3}/{secrets.token_hex(8)}"
    memory, stored = make_index(), make_index(url)
    for index in (memory, stored):
        change_everything(index, signals)
    with ts.open_index(url) as opened:
        opened.verify()
        assert_same(opened.search(signals[:9]), memory.search(signals[:9]))
    run_clients(f"{url}-clients", signals, 2, 15)


# Failing commits


def test_a_lost_reply_is_settled(url, signals, monkeypatch):
    index, plain, n_lost = make_index(url), Bucket._create_new, []

    def lose_reply(self, name, content):
        plain(self, name, content)
        if name.startswith("versions/") and len(n_lost) < 2:
            n_lost.append(name)
            raise OSError(5, "connection reset")

    monkeypatch.setattr(Bucket, "_create_new", lose_reply)
    assert index.add(signals[:5]).tolist() == list(range(5))
    index.remove([2])
    assert len(n_lost) == 2
    assert ts.open_index(url).ids.tolist() == [0, 1, 3, 4]


def test_a_put_that_fails_is_tried_again(url, signals, monkeypatch):
    index, plain, failures = make_index(url), Bucket._create_new, []

    def fail(self, name, content):
        if len(failures) < 2:
            failures.append(name)
            raise OSError(5, "slow down")
        plain(self, name, content)

    monkeypatch.setattr(Bucket, "_create_new", fail)
    monkeypatch.setattr(backends.time, "sleep", lambda seconds: None)
    index.add(signals[:5])
    assert len(failures) == 2
    monkeypatch.setattr(Bucket, "_create_new", lambda *_: (_ for _ in ()).throw(PermissionError(13, "denied")))
    with pytest.raises(ts.StorageError, match="cannot be written: the folder is read-only"):
        index.add(signals[:200])
    monkeypatch.undo()
    assert len(ts.open_index(url)) == 5
    index.add(signals[5:])


def test_an_outcome_that_cannot_be_found_out_is_said_to_be_unknown(url, signals, monkeypatch):
    index = make_index(url)
    index.add(signals[:100])
    plain = Bucket._create_new

    def vanish(self, name, content):
        plain(self, name, content)
        monkeypatch.setattr(Bucket, "fetch", lambda *_: (_ for _ in ()).throw(OSError(5, "no route")))
        monkeypatch.setattr(Bucket, "size", lambda *_: (_ for _ in ()).throw(OSError(5, "no route")))
        raise OSError(5, "no route")

    monkeypatch.setattr(Bucket, "_create_new", vanish)
    monkeypatch.setattr(backends.time, "sleep", lambda seconds: None)
    with pytest.raises(UnknownOutcomeError, match=r"it is unknown whether the change was stored: .*no route"):
        index.add(signals[100:])
    monkeypatch.undo()
    with ts.open_index(url) as newest:  # it was applied; a file that it needs must not have been deleted
        newest.verify()
        assert len(newest) == 300


class LatePuts:
    """Puts of manifests that time out at the client; the first lands when the test says so."""

    def __init__(self, monkeypatch):
        self.plain, self.n_lost, self.puts = MemoryFileSystem.pipe_file, 4, []
        monkeypatch.setattr(MemoryFileSystem, "pipe_file", self.put)
        monkeypatch.setattr(backends.time, "sleep", lambda seconds: None)

    def put(self, *arguments, **options):
        """Handle a put; the instance is no method, so that the file system is not among the arguments."""
        path, value = arguments[:2]
        if self.n_lost and "/versions/" in path:
            self.n_lost -= 1
            self.puts.append((path, value, options))
            raise OSError("read timed out")
        self.plain(fsspec.filesystem("memory"), path, value, **options)

    def land(self):
        """Let the first put that timed out arrive; the others find its name."""
        path, value, options = self.puts[0]
        with contextlib.suppress(FileExistsError):
            self.plain(fsspec.filesystem("memory"), path, value, **options)


LARGE = 2000
REPEATED = {
    "add": lambda index, signals: index.add(signals[:5]).tolist(),
    "add in a file": lambda index, signals: index.add(np.repeat(signals, LARGE // 300, axis=0)).tolist(),
    "upsert": lambda index, signals: index.upsert(signals[:2], ids=[5, 900]).tolist(),
    "update_metadata": lambda index, signals: index.update_metadata([5], [{"new": 1}]),
    "remove": lambda index, signals: index.remove([5, 6]),
    "erase": lambda index, signals: index.remove([5, 6], erase=True),
    "calibrate": lambda index, signals: index.calibrate(signals[200:], false_alarm=0.05),
}
"""Changes; the cases in which a repetition would store more or raise are those that matter."""


@pytest.mark.parametrize("when", ["at once", "before the repetition", "during it", "never"])
@pytest.mark.parametrize("kind", REPEATED)
def test_a_repeated_change_is_stored_once(url, signals, monkeypatch, kind, when):
    """The put of the manifest times out and lands later or never."""
    for index in (make_index(url), expected := make_index()):
        index.add(signals[:200], metadata=[{"row": row} for row in range(200)])
    index, change = ts.open_index(url), REPEATED[kind]
    late = LatePuts(monkeypatch)
    with pytest.raises(
        UnknownOutcomeError, match="it is unknown whether the change was stored: read timed out; repeat"
    ):
        change(index, signals)
    assert len(index) == 200
    if when == "at once":
        late.land()
        assert index.refresh()
    elif when == "before the repetition":
        late.land()
    elif when == "during it":
        plain = Bucket.publish
        monkeypatch.setattr(Bucket, "publish", lambda *arguments: (late.land(), plain(*arguments)))
    result = change(index, signals)
    late.land()
    ts.open_index(url).add(signals[:1], ids=[5000])
    if kind != "calibrate":
        assert result == change(expected, signals)
    expected.add(signals[:1], ids=[5000])
    with ts.open_index(url) as newest:
        newest.verify()
        assert_array_equal(newest.ids, expected.ids)
        assert newest.get(newest.ids).metadata == expected.get(expected.ids).metadata
    if when != "never":
        segments = {name for name in files_of(url) if name.startswith("segments/")}
        assert segments <= {file.path for file in newest_files(url)}, "the repetition left files"


def newest_files(url):
    with ts.open_index(url) as index:
        return [*index._store.now.manifest.files]


def test_a_change_is_repeated_after_two_unknown_outcomes(url, signals, monkeypatch):
    """The first of two puts lands after the second has timed out as well."""
    make_index(url).add(signals[:20])
    index = ts.open_index(url)
    late = LatePuts(monkeypatch)
    late.n_lost = 8
    for _ in range(2):
        with pytest.raises(UnknownOutcomeError):
            index.add(signals[:5])
    late.land()
    assert index.add(signals[:5]).tolist() == list(range(20, 25))
    assert index.add(signals[:5]).tolist() == list(range(25, 30)), "a new addition of the same signals"
    assert len(ts.open_index(url)) == 30


def test_another_change_after_an_unknown_outcome_is_made(url, signals, monkeypatch):
    make_index(url).add(signals[:20])
    index = ts.open_index(url)
    late = LatePuts(monkeypatch)
    with pytest.raises(UnknownOutcomeError):
        index.add(signals[:5])
    late.land()
    index.refresh()
    assert index.add(signals[5:10]).tolist() == list(range(25, 30))
    index.remove([22])  # is not in the version before
    with ts.open_index(url) as newest:
        newest.verify()
        assert newest.ids.tolist() == [*range(22), *range(23, 30)]


def test_a_change_whose_version_was_cleaned_before_its_reply_is_settled(url, signals, monkeypatch):
    """The put landed, its reply was lost, and another client has replaced that version."""
    make_index(url).add(signals[:20])
    index, plain = ts.open_index(url), Bucket._create_new

    def lose_reply(self, name, content):
        plain(self, name, content)
        monkeypatch.setattr(Bucket, "_create_new", plain)
        ts.open_index(url).add(signals[:1])
        raise OSError("read timed out")

    monkeypatch.setattr(Bucket, "_create_new", lose_reply)
    assert index.add(signals[:5]).tolist() == list(range(20, 25))
    assert ts.open_index(url).ids.tolist() == list(range(26))


@pytest.mark.parametrize("n_meanwhile", [3, 104])
def test_a_stale_client_is_refused(url, signals, n_meanwhile, monkeypatch):
    """Others created its version and deleted it again, so the name of the manifest is free."""
    make_index(url).add(signals[:20])
    sleeper, plain = ts.open_index(url), Versions.commit

    def sleep(self, manifest):
        if self is sleeper._store.commits:
            monkeypatch.setattr(versioning.Versions, "commit", plain)
            other = ts.open_index(url)
            for row in range(n_meanwhile):
                other.update_metadata([row % 20], [{"count": row}])
        plain(self, manifest)

    monkeypatch.setattr(versioning.Versions, "commit", sleep)
    if n_meanwhile > 100:
        with pytest.raises(UnknownOutcomeError, match="it is unknown whether the change was stored: version 106 was"):
            sleeper.add(signals[:200])
    else:
        assert sleeper.add(signals[:200]).tolist() == list(range(20, 220)), "made again on the newest version"
    with ts.open_index(url) as newest:
        newest.verify()
        assert len(newest) == (20 if n_meanwhile > 100 else 220)
        newest.add(signals[:1])
        assert newest.versions() == [newest._store.version]


@pytest.mark.parametrize("n_failures", [1, 9])
def test_a_commit_that_cannot_be_checked_is_not_taken_for_stored(url, signals, monkeypatch, n_failures):
    """Others have replaced the version that it follows and deleted its number, and then versions cannot be listed."""
    make_index(url).add(signals[:20])
    sleeper, plain, plain_list, left = ts.open_index(url), Versions.commit, Bucket.list, [n_failures]

    def fail(self, folder):
        if left[0] and folder == "versions":
            left[0] -= 1
            raise OSError(5, "no route")
        return plain_list(self, folder)

    def sleep(self, manifest):
        monkeypatch.setattr(versioning.Versions, "commit", plain)
        other = ts.open_index(url)
        for row in range(3):
            other.update_metadata([row], [{"count": row}])
        monkeypatch.setattr(Bucket, "list", fail)
        return plain(self, manifest)

    monkeypatch.setattr(versioning.Versions, "commit", sleep)
    monkeypatch.setattr(versioning.time, "sleep", lambda seconds: None)
    if n_failures == 1:
        sleeper.add(signals[20:23])  # made again on the newest version
    else:
        with pytest.raises(UnknownOutcomeError, match="it is unknown whether the change was stored"):
            sleeper.add(signals[20:23])
    monkeypatch.undo()
    assert len(ts.open_index(url)) == (23 if n_failures == 1 else 20)
    assert sleeper.refresh() == (n_failures > 1)
    assert len(sleeper) == (23 if n_failures == 1 else 20)


def test_segments_of_a_cluster_survive_the_repetition_of_their_commit(url, signals):
    """Workers write the files once; the commit is made again if another client was first."""
    index, memory = make_index(url), make_index()
    memory.add(signals, ids=range(300))
    record = write_segment(FileWriter(index._store.backend), memory._store.snapshot.segments[0].columns)
    other, n_attempts = ts.open_index(url), []

    def commit(change):
        change.add_stored([record])
        change.next_id = max(300, change.next_id)
        n_attempts.append(1)
        if len(n_attempts) == 1:
            other.add(signals[:1], ids=[300])

    index._store.apply(commit)
    assert len(n_attempts) == 2
    with ts.open_index(url) as newest:
        newest.verify()
        assert_array_equal(newest.ids, np.arange(301))


def test_a_change_that_cannot_be_made_again_is_refused(url, signals):
    index = make_index(url)
    index.add(signals[:20])

    def change_both():
        with index._store.change() as change:
            ts.open_index(url).add(signals[:1])
            change.remove(np.array([0]))

    with pytest.raises(ts.ConflictError, match="another client committed version 3 first; nothing was changed"):
        change_both()
    assert len(ts.open_index(url)) == 21


def test_an_index_made_anew_at_the_same_url_is_refused(url, signals):
    make_index(url).add(signals[:5])
    stale = ts.open_index(url)
    fsspec.filesystem("memory").rm(url, recursive=True)
    make_index(url).add(signals[:50])
    for use in (stale.refresh, lambda: stale.add(signals[:1])):
        with pytest.raises(ts.StorageError, match="was replaced, moved or deleted since it was opened"):
            use()


PIPE = MemoryFileSystem.pipe_file
PUTS = {
    "ignored": lambda self, path, value, mode="overwrite", **_: PIPE(self, path, value),
    "unknown": lambda self, path, value: PIPE(self, path, value),
}
"""Puts of object stores that ignore the condition in silence, or do not know it."""


@pytest.mark.parametrize("put", PUTS)
def test_stores_without_conditional_puts_are_refused(put, url, signals, monkeypatch):
    make_index(f"{url}/sound").add(signals)
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", PUTS[put])
    monkeypatch.setattr(backends, "_probed", set())
    before = files_of(url)
    with pytest.raises(ts.StorageError, match=r"creates a name twice \(it has no conditional put\)"):
        make_index(f"{url}/new")
    with ts.open_index(f"{url}/sound") as index:
        assert index.search(signals[:1], 1).ids == [[0]], "reading is safe"
        with pytest.raises(ts.StorageError, match="could overwrite each other's changes; write to a local folder"):
            index.add(signals[:1])
    assert files_of(url) == before


def test_conditional_puts_are_probed_once_per_store(url, signals, monkeypatch):
    """Before the first change, a process creates one name twice exclusively; the second creation must fail."""
    puts, plain = [], MemoryFileSystem.pipe_file

    def counted(self, path, value, **options):
        puts.append(path)
        plain(self, path, value, **options)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", counted)
    monkeypatch.setattr(backends, "_probed", set())
    make_index(url).add(signals[:20])
    with ts.open_index(url) as index:
        index.add(signals[20:40])
    probes = [path for path in puts if "/removed/." in path]
    assert len(probes) == 2
    assert len(set(probes)) == 1
    assert not [name for name in files_of(url) if name.startswith("removed/")]


def test_a_probe_that_could_not_be_deleted_is_deleted_later(url, signals, monkeypatch):
    index, plain, now = make_index(url), Bucket.modified, [0]
    monkeypatch.setattr(backends, "_probed", set())
    with monkeypatch.context() as patched:
        patched.setattr(MemoryFileSystem, "rm_file", lambda *_: (_ for _ in ()).throw(OSError("slow down")))
        index.add(signals[:20])
    (probe,) = set(files_of(url)) - {"versions/00000000000000000001.json", *expected_files(index)}
    monkeypatch.setattr(Bucket, "modified", lambda self, name: plain(self, name) + now[0] * (name != probe))
    index.add(signals[:1])
    assert probe in files_of(url), "another client may be using it"
    now[0] = 86_401
    index.add(signals[:1])
    assert set(files_of(url)) == expected_files(index)


def expected_files(index):
    manifest = index._store.now.manifest
    return {f"versions/{manifest.version:020d}.json", *(file.path for file in manifest.files)}


# Cleaning and damage


def test_orphans_are_deleted_after_a_day(url, signals, monkeypatch):
    index = make_index(url)
    index.add(signals)
    young, old = f"segments/{'a' * 32}.safetensors", f"segments/{'b' * 32}.safetensors"
    for name in (young, old):
        Bucket(url).create(name, [b"of another client"])
    plain = Bucket.modified
    monkeypatch.setattr(Bucket, "modified", lambda self, name: plain(self, name) - (name == old) * 86_401)
    before = set(files_of(url))
    index.compact()
    index.remove([1])
    after = set(files_of(url))
    assert young in after
    assert old not in after
    assert {name for name in before - after if name.startswith("versions/")}, "older versions are deleted at once"


@pytest.mark.parametrize("meanwhile", ["cleans", "commits"])
def test_an_upload_that_takes_days_is_not_lost(url, signals, monkeypatch, meanwhile):
    """Another client cleans, with a clock that is a year ahead, while files of a change are uploaded and not named."""
    day, clock, written = 86_400, [1e9], {}
    plain_create, plain_put, plain_commit = Bucket.create, Bucket._create_new, Versions.commit

    def dated(plain):
        def create(self, name, content):
            plain(self, name, content)
            written[name] = clock[0]

        return create

    monkeypatch.setattr(Bucket, "create", dated(plain_create))
    monkeypatch.setattr(Bucket, "_create_new", dated(plain_put))
    monkeypatch.setattr(Bucket, "modified", lambda self, name: written[name])
    monkeypatch.setattr("time.time", lambda: clock[0] + 365 * day)
    make_index(url).add(signals[:20])
    slow, other, large = ts.open_index(url), ts.open_index(url), np.repeat(signals, 20, axis=0)

    def commit(self, manifest):
        monkeypatch.setattr(Versions, "commit", plain_commit)
        assert [file.path for file in manifest.files if written[file.path] == clock[0]], "no file was uploaded"
        clock[0] += 3 * day
        other.compact() if meanwhile == "cleans" else other.add(signals[:1])
        other.refresh()
        plain_commit(self, manifest)

    clock[0] += day
    monkeypatch.setattr(Versions, "commit", commit)
    first = 20 if meanwhile == "cleans" else 21
    assert slow.add(large).tolist() == list(range(first, first + len(large)))
    with ts.open_index(url) as newest:
        newest.verify()
        assert len(newest) == first + len(large)
    clock[0] += 3 * day
    slow.remove([0])
    assert {name for name in files_of(url) if name.startswith("segments/")} <= {
        file.path for file in slow._store.now.manifest.files
    }, "orphans are left"


def test_a_file_that_is_gone_says_why(url, signals):
    make_index(url).add(signals, metadata=[{"text": "x" * 300}] * 300)
    reader, writer = ts.open_index(url), ts.open_index(url)
    writer.remove(np.arange(200))
    writer.compact()
    with pytest.raises(ts.ConflictError, match=r"is gone: another client compacted the index .*; refresh"):
        reader.get([250])
    assert reader.refresh()
    assert reader[250].metadata == {"text": "x" * 300}


def test_damage_in_a_bucket_is_named(url, signals):
    make_index(url).add(signals, metadata=[{"text": "x" * 300}] * 300)
    files, fs = files_of(url), fsspec.filesystem("memory")
    name = max((name for name in files if name.startswith("segments/")), key=lambda name: len(files[name]))
    content = bytearray(files[name])
    for changed in (content[:-9], content[:4], b""):
        fs.pipe_file(f"{url}/{name}", bytes(changed))
        with pytest.raises(ts.StorageError, match=f"{name}: damaged: .* bytes expected"):
            ts.open_index(url)
    content[-50] ^= 1
    fs.pipe_file(f"{url}/{name}", bytes(content))
    with pytest.raises(ts.StorageError, match=f"{name}, .*: damaged: checksum"):
        ts.open_index(url).verify()
    fs.rm_file(f"{url}/{name}")
    with pytest.raises(ts.StorageError, match="a file of version 2 is missing"):
        ts.open_index(url)


def test_threads_of_one_client_take_turns(url, signals):
    index, started = make_index(url), threading.Barrier(4)

    def work(thread):
        started.wait()
        return [int(index.add(signals[:1])[0]) for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        ids = [id for part in pool.map(work, range(4)) for id in part]
    assert sorted(ids) == list(range(20))
    assert index.versions() == [21]
    index._store.timeout = 0.01
    with (
        index._store.change(),
        pytest.raises(TimeoutError, match=r"is being written by another thread, waited 0\.01 s"),
    ):
        index.add(signals[:1])


@pytest.mark.parametrize("zone", [None, UTC, timezone(timedelta(hours=5))], ids=["naive", "utc", "other"])
def test_times_of_objects_do_not_depend_on_the_time_zone(zone, url, monkeypatch):
    """Times without a zone are UTC."""
    backend = Bucket(url)
    changed = datetime(2026, 3, 29, 2, 30, tzinfo=UTC)
    given = changed.replace(tzinfo=None) if zone is None else changed.astimezone(zone)
    monkeypatch.setattr(type(backend._fs), "modified", lambda self, path: given)
    assert backend.modified("one") == changed.timestamp()
