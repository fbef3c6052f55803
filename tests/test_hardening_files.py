"""Hostile files: damaged or crafted bytes at every door are refused with StorageError, and never crash."""

import io
import json
import os
import shutil
import socket
import stat
import struct
import subprocess
import sys
import textwrap
import threading
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from faults import attack
from folders import column_places, files_of, flip, rewrite, rewrite_recipe, size_of, write_manifest_text
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

import topsign as ts
from topsign import export
from topsign.cli.app import app
from topsign.store import segments
from topsign.signals import Place, open_file

N_FEATURES = 64


def make_index(**options):
    return ts.AdaptiveIndex(**{"n_features": N_FEATURES, "n_bits": 16, "random_state": 1} | options)


@pytest.fixture
def signals(rng):
    return rng.standard_normal((60, N_FEATURES)).astype(np.float32)


@pytest.fixture
def filled(tmp_path, signals):
    path = tmp_path / "cameras.topsign"
    with make_index(path=path) as index:
        index.add(signals[:40], metadata=[{"n": n} for n in range(40)])
    return path


def use(path, signals):
    with ts.open_index(path, readonly=True) as index:
        index.search(signals[:2], k=60)
        index.search(signals[:2], k=60, scoring="hamming")
        index.get(index.ids)
        index.within(signals[:2], threshold=0.1)


def put(**columns):
    """A change of columns: values, or functions of what was there."""

    def change(held):
        for name, value in columns.items():
            name = name.replace("__", ".")
            held[name] = value(held[name]) if callable(value) else value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put(codes=lambda c: 0 * c), "codes: damaged: the column is not a packed code at row 0"),
        (put(codes=lambda c: 0 * c + 255), "codes: damaged"),
        (put(codes=lambda c: c[:-1]), r"codes: damaged: shape \(39, 10\), \(40, 10\) expected"),
        (put(codes=lambda c: c[:, :-1].copy()), r"codes: damaged: shape \(40, 9\)"),
        (put(codes=lambda c: c.view(np.uint8).astype(np.int32)), "codes: damaged: type I32, uint8 expected"),
        (put(ids=lambda c: c[:-1]), r"ids: damaged: shape \(39,\), \(40,\) expected"),
        (put(ids=lambda c: c[::-1].copy()), "ids: damaged: ids must be ascending"),
        (put(norms=np.full(40, np.nan, "<f4")), "norms: damaged"),
        (put(norms=np.zeros(40, "<f4")), "norms: damaged: the weights of its entries"),
        (put(scales=np.full(40, np.inf, "<f4")), "scales: damaged"),
        (put(metadata__starts=lambda c: c[::-1].copy()), "metadata: damaged: the starts of its texts"),
        (put(metadata__starts=lambda c: c[:-1]), "metadata.starts: damaged: shape"),
        (put(metadata__text=lambda c: c[:-1]), "metadata: damaged: the starts of its texts"),
        (lambda held: held.pop("ids"), "has no ids"),
        (lambda held: held.pop("norms"), "has no norms"),
    ],
)
def test_crafted_columns_with_right_checksums_are_refused(filled, signals, change, words):
    rewrite(filled, change)
    with pytest.raises(ts.StorageError, match=words):
        use(filled, signals)


def tensor(name, **changes):
    return lambda header: header[name].update(changes)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (tensor("codes", dtype="F13"), "cannot be read in place"),
        (tensor("codes", shape=[2**40, 2**40]), "does not take 400 bytes"),
        (tensor("codes", shape=[-1, -400]), "malformed"),
        (tensor("codes", shape=[40.0, 10]), "malformed"),
        (tensor("codes", shape=[True, 400]), "malformed"),
        (tensor("codes", data_offsets=[0, 400]), "overlap or leave a gap"),
        (tensor("codes", data_offsets=[400, 0]), "does not take -400 bytes"),
        (tensor("codes", data_offsets=[2**61, 2**61 + 400]), "overlap or leave a gap"),
        (tensor("codes", extra=1), "must have dtype, shape and data_offsets"),
        (lambda header: header.update(codes=7), "must have dtype, shape and data_offsets"),
        (lambda header: header.update(__metadata__=[]), "__metadata__ must be an object of texts"),
        (lambda header: header["__metadata__"].update({"crc32:codes": ""}), "codes: damaged: 1 checksums expected"),
        (lambda header: header["__metadata__"].update({"crc32:codes": "zzzzzzzz"}), "1 checksums expected"),
        (lambda header: header.update(none={"dtype": "U8", "shape": [2**61, 0], "data_offsets": [0, 0]}), None),
    ],
)
def test_crafted_headers_with_right_checksums_are_refused(filled, signals, header, words):
    rewrite(filled, header=header)
    if words is None:  # a column that nobody reads
        ts.open_index(filled).verify()
        return
    with pytest.raises(ts.StorageError, match=words):
        use(filled, signals)


def edit(*path, **changes):
    """A change of a manifest, or of an object in it."""

    def change(record):
        for step in path:
            record = record[step]
        record.update(changes)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (edit("segments", 0, entries=41), "damaged"),
        (edit("segments", 0, entries=0), "damaged"),
        (edit("segments", 0, entries=-1), "entries must be an integer in"),
        (edit("segments", 0, entries="many"), "entries must be an integer in"),
        (edit("segments", 0, entries=2**70), "entries must be an integer in"),
        (edit("segments", 0, file="../../../../etc/passwd"), "file must be 32 hexadecimal digits"),
        (edit("segments", 0, file="a/b"), "file must be 32 hexadecimal digits"),
        (edit("segments", 0, file="0" * 31 + "/"), "file must be 32 hexadecimal digits"),
        (edit("segments", 0, crc32="x"), "crc32 must be 8 hexadecimal digits"),
        (edit("segments", 0, bytes=5), "damaged"),
        (edit("segments", 0, content="!!!"), "damaged"),
        (edit("segments", 0, content=7), "content must be a text"),
        (edit("segments", 0, extra=1), "members"),
        (edit("recipe", file=".."), "file must be 32 hexadecimal digits"),
        (lambda r: r["segments"].append(r["segments"][0]), "a file is named twice"),
        (edit(segments=None), "segments must be a list"),
        (edit(segments=[7]), "a segment must be an object"),
        (edit(segments={}), "segments must be a list"),
        (edit(next_id=-5), "next_id must be an integer in"),
        (edit(next_id=1.5), "next_id must be an integer in"),
        (edit(next_id=2**70), "next_id must be an integer in"),
        (edit(version=7), "says that it is version 7"),
        (edit(version="x"), "says that it is version 'x'"),
        (edit(ancestors=5), "ancestors must be a list"),
        (edit(ancestors=["a"] * 101), "ancestors must be a list of at most 100"),
        (edit(token=5), "tokens and names must be texts"),
        (edit(sources=[1]), "sources an object"),
        (edit(sources={"a": 7}), "sources must be objects"),
        (edit(more=1), "members"),
        (lambda r: r.pop("next_id"), "members"),
    ],
)
def test_crafted_manifests_with_right_checksums_are_refused(filled, signals, change, words):
    rewrite(filled, manifest=change)
    with pytest.raises(ts.StorageError, match=words):
        use(filled, signals)


DEEP = b"[" * 200_000 + b"]" * 200_000


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b'{"a":' + DEEP + b"}",
        b'{"a":1e999}',
        b'{"a":NaN}',
        b'{"a":1,"a":2}',
        b'{"a":1' + b"0" * 5000 + b"}",
        b"{1}",
        b'{"format":1,"format":1}',
    ],
    ids=lambda text: text[:20].decode(),
)
def test_manifests_that_are_not_plain_json_are_refused(filled, text):
    write_manifest_text(filled, text)
    with pytest.raises(ts.StorageError, match="damaged"):
        ts.open_index(filled)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layout": "fast"}, "damaged"),
        ({"n_bits": 17}, "damaged"),
        ({"n_pool": 2**30}, "n_pool"),
        ({"n_features": 2**40}, "n_features=1099511627776 and n_pool=.* cannot be kept"),
        ({"n_features": [64]}, "n_features and n_pool must be integers"),
        ({"norms": 7}, "norms"),
        ({"options": [[[]]]}, "cannot be read"),
    ],
)
def test_crafted_recipes_with_right_checksums_are_refused(filled, signals, changes, words):
    rewrite_recipe(filled, **changes)
    with pytest.raises(ts.StorageError, match=words):
        use(filled, signals)


@pytest.mark.parametrize("projection", ["hadamard", "circulant", "gaussian", "sparse"])
def test_a_small_folder_that_claims_much_costs_little_to_open(tmp_path, projection):
    """At most a second and 100 MB beyond an honest folder, for a claim of 2**28 features."""
    path = tmp_path / "i.topsign"
    ts.SignIndex(n_features=64, random_state=1, path=path).close()
    assert size_of(path) < 20_000
    program = """
        import resource, sys, time, numpy as np, topsign as ts
        index = ts.open_index(sys.argv[1])
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        before, start = peak(), time.process_time()
        try:
            len(ts.open_index(sys.argv[2]))
        except ts.StorageError as error:
            pass
        print(peak() - before, time.process_time() - start)
    """
    honest = tmp_path / "honest.topsign"
    shutil.copytree(path, honest)
    options = {"hadamard": {"rounds": 3}, "circulant": {"spectrum": "gaussian"}}.get(projection, {})
    rewrite_recipe(path, n_features=2**28, n_pool=64, n_bits=64, projection=projection, options=options)
    command = [sys.executable, "-c", textwrap.dedent(program), str(honest), str(path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    megabytes, seconds = map(float, shown.stdout.split())
    assert megabytes < 100
    assert seconds < 1


def test_an_index_that_claims_much_is_checked_before_it_is_used(tmp_path):
    """The projection of a large claim is compared with its fingerprint when signals are first projected."""
    path = tmp_path / "i.topsign"
    n_features = 2**20 + 2
    with ts.SignIndex(n_features=n_features, n_pool=64, random_state=1, path=path) as index:
        index.add(np.ones((1, n_features), np.float32))
    assert len(ts.open_index(path).search(np.ones((1, n_features), np.float32), k=1)) == 1
    rewrite_recipe(path, fingerprint="0" * 32)
    index = ts.open_index(path)
    for call in (index.search, index.add):
        with pytest.raises(ts.StorageError, match="has the fingerprint 00000000000000000000000000000000"):
            call(np.ones((1, n_features), np.float32))


def test_a_few_codes_are_checked_before_they_are_used(filled, signals):
    """A crafted code is refused where it is read; others are not kept back by it until all are needed."""
    expected = ts.open_index(filled).get([3, 39]).codes

    def change(columns):
        columns["codes"][7] = 255

    rewrite(filled, change)
    with ts.open_index(filled, readonly=True) as index:
        assert index.get([3, 39]).codes == expected
        for call in (
            lambda: index.get([3, 7]),
            lambda: index.search(signals[:2]),
            index.verify,
            lambda: index.get(range(40)),
        ):
            with pytest.raises(ts.StorageError, match="codes: damaged: the column is not a packed code at row"):
                call()


def test_a_few_rows_are_verified_without_reading_the_others(tmp_path, rng):
    """Checksums are per mebibyte: damage in one block does not keep back rows of another."""
    path = tmp_path / "large.topsign"
    with ts.AdaptiveIndex(n_features=4096, n_bits=2048, layout="fast", random_state=1, path=path) as index:
        index.add(rng.standard_normal((1100, 4096)).astype(np.float32))
        expected = index.get([5]).codes
    ((file, _), (offset, size)), *_ = [item for item in column_places(path).items() if item[0][1] == "codes"]
    assert size > 2 * 2**20
    flip(file, offset + 2**20 + 5)
    with ts.open_index(path) as index:
        assert index.get([5]).codes == expected
        for call in (lambda: index.get([550]), lambda: index.search(np.ones((1, 4096))), index.verify):
            with pytest.raises(ts.StorageError, match="codes: damaged: checksum"):
                call()


def test_metadata_that_is_not_json_is_refused(filled):
    def change(columns):
        columns["metadata.text"][:] = ord("{")

    rewrite(filled, change)
    with ts.open_index(filled) as index, pytest.raises(ts.StorageError, match="metadata"):
        index.get([0])


def test_refused_additions_do_not_grow_the_file(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(segments, "MERGED_ENTRIES", 64)
    path = tmp_path / "a.topsign"
    index = make_index(path=path)
    index.add(rng.standard_normal((10, N_FEATURES)))
    bad = rng.standard_normal((640, N_FEATURES))
    bad[-1] = np.nan
    index.add(bad[:-1], ids=range(1000, 1639))
    index.remove(range(1000, 1639))
    index.compact()
    before = files_of(path)
    for _ in range(15):
        with pytest.raises(ValueError, match="row 639"):
            index.add(bad)
    assert files_of(path) == before
    empty = bad.copy()
    empty[-1] = 0
    with pytest.raises(ValueError, match="row 639 is zero"):
        index.add(empty)
    assert files_of(path) == before
    index.verify()


def test_creators_at_once_join_the_first(tmp_path):
    """Each with a random seed of its own: all end up with one index, and no addition is lost."""
    path, made, problems = tmp_path / "a.topsign", [], []

    def create(number):
        try:
            index = make_index(random_state=None, path=path)
            index.add(np.eye(1, N_FEATURES), ids=[number])
            made.append(index)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len({index.seed for index in made}) == 1
    assert_array_equal(ts.open_index(path).ids, np.arange(8))


def test_a_sample_of_every_attack():
    """A sample of ``make test-attack``."""
    pytest.importorskip("distributed")
    counts = attack.attack(10, 7)
    assert {door for door, _ in counts} == {*attack.CHEAP, *attack.FILES}


# Archives and tables


def read_signals(path):
    rows = open_file(Place.at(path)).rows()
    return np.asarray(rows[0 : rows.shape[0]])


@pytest.mark.parametrize("compressed", [False, True])
def test_a_damaged_npz_is_refused(tmp_path, rng, signals, compressed):
    (np.savez_compressed if compressed else np.savez)(tmp_path / "a.npz", signals=signals)
    whole = (tmp_path / "a.npz").read_bytes()
    for at in rng.integers(200, len(whole) - 200, 40):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(8))
        (tmp_path / "b.npz").write_bytes(damaged)
        with pytest.raises(ts.StorageError):
            make_index().add(read_signals(tmp_path / "b.npz"))


@pytest.mark.parametrize("form", export.FORMS)
def test_a_damaged_table_of_codes_is_refused(tmp_path, rng, signals, form):
    pytest.importorskip("pyarrow")
    index = make_index()
    index.add(signals, metadata=[{"n": n} for n in range(60)])
    export.write_parquet(tmp_path / "a.parquet", index, form=form)
    expected = export.read_parquet(tmp_path / "a.parquet").entries
    whole, wrong = (tmp_path / "a.parquet").read_bytes(), 0
    for at in rng.integers(0, len(whole), 150):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(8))
        (tmp_path / "b.parquet").write_bytes(damaged)
        try:
            found = export.read_parquet(tmp_path / "b.parquet").entries
        except ts.StorageError:
            continue
        same = np.array_equal(found.ids, expected.ids) and found.codes == expected.codes
        wrong += not (same and found.metadata == expected.metadata)
    assert wrong == 0


@pytest.mark.parametrize("lengths", [(3, 5, 4, 4), (4, 4, 4, 3), (4, 4, 4, 0)])
def test_ragged_lists_are_refused(tmp_path, lengths):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    lists = pyarrow.array([[1.0] * n for n in lengths])
    with pytest.raises(ValueError, match="lists of one length"):
        ts.AdaptiveIndex(n_features=4, n_bits=2).add(lists)
    parquet.write_table(pyarrow.table({"a": lists}), tmp_path / "a.parquet")
    with pytest.raises(ts.StorageError, match="signals differ in length"):
        read_signals(tmp_path / "a.parquet")


def test_messages_that_claim_more_than_they_hold_are_refused():
    header = struct.Struct("<4sBBBxIIQI")
    for n_bits, n_pool, n_codes, set_bytes in [(1, 2**24, 20_000, 0), (8, 2**24, 10_000, 1), (1, 2, 10_000, 200)]:
        body = header.pack(b"TSAC", 1, 0, 0, n_bits, n_pool, n_codes, set_bytes) + bytes(n_codes * (1 + set_bytes))
        with pytest.raises(ts.StorageError, match="cannot take"):
            ts.AdaptiveCodes.from_bytes(body + struct.pack("<I", zlib.crc32(body)))


def test_head_files_that_unpack_to_much_more_are_refused(tmp_path):
    image = io.BytesIO()
    np.save(image, np.zeros(10**7, np.uint8))
    with zipfile.ZipFile(tmp_path / "a.head", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("codes.npy", image.getvalue())
    with pytest.raises(ts.StorageError, match=r"bytes unpack to 10,000,128"):
        ts.AdaptiveLinearClassifier.load(tmp_path / "a.head")


# The command line


def run(*arguments, code=0):
    shown = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert shown.exit_code == code, shown.output
    return shown.output


@pytest.mark.parametrize("target", ["fifo", "link", "device"])
def test_output_goes_through_what_is_not_a_regular_file(filled, signals, tmp_path, target):
    np.save(tmp_path / "q.npy", signals[:2])
    out, received = tmp_path / "out", []
    if target == "fifo":
        os.mkfifo(out)
        reader = threading.Thread(target=lambda: received.append(out.read_bytes()))
        reader.start()
    elif target == "link":
        (tmp_path / "real").write_text("old")
        out.symlink_to(tmp_path / "real")
    else:
        out = "/dev/null"
    run("search", filled, tmp_path / "q.npy", "-k", 1, "--format", "csv", "-o", out)
    if target == "fifo":
        reader.join(10)
        assert received[0].startswith(b"query,rank")
        assert stat.S_ISFIFO(os.stat(out).st_mode)
    elif target == "link":
        assert out.is_symlink()
        assert (tmp_path / "real").read_text().startswith("query,rank")
    else:
        assert stat.S_ISCHR(os.stat(out).st_mode)


def test_metadata_and_paths_are_never_markup(tmp_path, signals):
    folder = tmp_path / "[bold]"
    folder.mkdir()
    path = folder / "a[red].topsign"
    notes = [{"a": [True, False]}, {"b": "[/docs]"}, {"c": "[red]x[/red] :smile:"}]
    with make_index(path=path) as index:
        index.add(signals[:3], metadata=notes)
    np.save(tmp_path / "q.npy", signals[:3])
    shown = "".join(run("search", path, tmp_path / "q.npy", "-k", 1, "--metadata").split())
    for note in notes:
        assert "".join(json.dumps(note).split()) in shown
    assert "a[red].topsign" in "".join(run("verify", path).split())
    assert "a[red].topsign" in "".join(run("inspect", path).split())
    assert "[bold]" in "".join(run("verify", folder / "none", code=2).split())


def test_metadata_lines_end_at_newlines_alone(tmp_path, filled, signals):
    note = {"text": "one\u2028two\u0085three\x1cfour"}
    (tmp_path / "notes.jsonl").write_text(json.dumps(note, ensure_ascii=False) + "\n", encoding="utf-8")
    np.save(tmp_path / "x.npy", signals[40:41])
    run("add", filled, tmp_path / "x.npy", "--metadata", tmp_path / "notes.jsonl")
    assert ts.open_index(filled).get([40]).metadata == [note]


# The network


def listening():
    """Addresses and ports that this process listens on."""
    inodes = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:"):
            inodes.add(target[8:-1])
    found = []
    for table, family, size in (("tcp", socket.AF_INET, 8), ("tcp6", socket.AF_INET6, 32)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes and fields[3] == "0A":
                raw = bytes.fromhex(fields[1].split(":")[0])
                words = b"".join(raw[i : i + 4][::-1] for i in range(0, size // 2, 4))
                found.append(socket.inet_ntop(family, words))
    return found


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="needs Linux's tables of sockets")
def test_a_local_cluster_listens_to_this_machine_alone():
    pytest.importorskip("distributed")
    from topsign.distributed import cluster

    before = listening()
    client = cluster.resolve_client(None)
    assert client.nthreads()
    after = [address for address in listening() if address not in before]
    assert all(address in ("127.0.0.1", "::1") for address in after), after


def test_long_codes_are_exported_in_parts_that_arrow_can_address(monkeypatch, signals):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(export.tables, "PART_BYTES", 1000)
    index = make_index()
    index.add(signals)
    for form in export.FORMS:
        table = export.to_arrow(index, form=form)
        assert table.column("id").num_chunks == 4  # 15 entries of 64 bytes at most
        assert export.from_arrow(table).entries.codes == index.get(index.ids).codes


def test_an_empty_file_of_signals_says_that_it_is_empty(tmp_path):
    from topsign.signals import Place, open_file

    (tmp_path / "empty.npy").write_bytes(b"")
    with pytest.raises(ts.StorageError, match=r"empty: it has no bytes; write it with numpy\.save"):
        open_file(Place.at(tmp_path / "empty.npy"))


def test_the_checksum_of_an_archive_is_compared_once(tmp_path, signals, monkeypatch):
    from topsign.signals import Place, npz, open_file

    compared, plain = [], npz._check_content
    monkeypatch.setattr(npz, "_check_content", lambda *arguments: compared.append(1) or plain(*arguments))
    np.savez(tmp_path / "a.npz", signals=signals)
    file = open_file(Place.at(tmp_path / "a.npz"))
    for _ in range(3):
        assert file.rows().shape == signals.shape
    assert len(compared) == 1
    np.savez(tmp_path / "a.npz", signals=signals + 1)  # another file
    file.rows()
    assert len(compared) == 2
