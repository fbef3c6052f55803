"""Malicious index folders: damaged or forged files raise StorageError at low cost and never crash."""

import contextlib
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import numpy as np
import pytest
from folders import column_places, flip, rewrite, rewrite_recipe, size_of, write_manifest_text
from numpy.testing import assert_array_equal
from small import N_FEATURES, make_index

import topsign as ts

pytestmark = pytest.mark.core


def use(path, signals):
    with ts.open_index(path, readonly=True) as index:
        index.search(signals[:2], k=60)
        index.search(signals[:2], k=60, scoring="hamming")
        index.get(index.ids)
        index.within(signals[:2], threshold=0.1)


def put(**columns):
    """Return a change of columns, given as values or as functions of the old values."""

    def change(held):
        for name, value in columns.items():
            name = name.replace("__", ".")
            held[name] = value(held[name]) if callable(value) else value

    return change


def padded(planes):
    """Return codes with a byte in a lane that holds no code."""
    planes[-1, 3, 40 % 32] = 1
    return planes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put(codes=lambda c: 0 * c), "codes: damaged: the column is not a packed code at row 0"),
        (put(codes=lambda c: 0 * c + 255), "codes: damaged"),
        (put(codes=lambda c: c[:-1]), r"codes: damaged: shape \(1, 10, 32\), \(2, 10, 32\) expected"),
        (put(codes=lambda c: c[:, :-1].copy()), r"codes: damaged: shape \(2, 9, 32\)"),
        (put(codes=lambda c: c.reshape(40, 16)), r"codes: damaged: shape \(40, 16\)"),
        (put(codes=padded), "codes: damaged: bytes are set after the last of 40 codes"),
        (put(codes=lambda c: c.view(np.uint8).astype(np.int32)), "codes: damaged: type I32, uint8 expected"),
        (put(ids=lambda c: c[:-1]), r"ids: damaged: shape \(39,\), \(40,\) expected"),
        (put(ids=lambda c: c[::-1].copy()), "ids: damaged: ids must be ascending"),
        (put(metadata__starts=lambda c: c[::-1].copy()), "metadata: damaged: the starts of its texts"),
        (put(metadata__starts=lambda c: c[:-1]), "metadata.starts: damaged: shape"),
        (put(metadata__text=lambda c: c[:-1]), "metadata: damaged: the starts of its texts"),
        (lambda held: held.pop("ids"), "has no ids"),
        (lambda held: held.pop("codes"), "has no codes"),
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
        (tensor("codes", shape=[2**40, 2**40]), "does not take 640 bytes"),
        (tensor("codes", shape=[2.0, 10, 32]), "malformed"),
        (tensor("codes", data_offsets=[0, 640]), "overlap or leave a gap"),
        (tensor("codes", data_offsets=[640, 0]), "does not take -640 bytes"),
        (tensor("codes", extra=1), "must have dtype, shape and data_offsets"),
        (lambda header: header.update(codes=7), "must have dtype, shape and data_offsets"),
        (lambda header: header.update(__metadata__=[]), "__metadata__ must be an object of strings"),
        (lambda header: header["__metadata__"].update({"crc32:codes": ""}), "codes: damaged: 1 checksums expected"),
        (lambda header: header["__metadata__"].update({"crc32:codes": "zzzzzzzz"}), "1 checksums expected"),
        (lambda header: header.update(none={"dtype": "U8", "shape": [2**61, 0], "data_offsets": [0, 0]}), None),
    ],
)
def test_crafted_headers_with_right_checksums_are_refused(filled, signals, header, words):
    rewrite(filled, header=header)
    if words is None:  # a column that is never read
        ts.open_index(filled).verify()
        return
    with pytest.raises(ts.StorageError, match=words):
        use(filled, signals)


def edit(*path, **changes):
    """Return a change of a manifest or of an object in it."""

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
        (edit("segments", 0, entries=2**70), "entries must be an integer in"),
        (edit("segments", 0, file="../../../../etc/passwd"), "file must be 32 hexadecimal digits"),
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
        (edit(next_id=1.5), "next_id must be an integer in"),
        (edit(version=7), "says that it is version 7"),
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


def test_verify_compares_ids_with_the_next_new_one(filled):
    rewrite(filled, manifest=edit(next_id=39))
    with pytest.raises(ts.StorageError, match="id 39, but the next new id is 39"):
        ts.open_index(filled).verify()


def set_item(name, at, value):
    """Return a change of one element of a column."""
    return lambda columns: columns[name].__setitem__(at, value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_item("text_ids.text", 5, 0xFF), "not UTF-8"),
        (set_item("text_ids.starts", 3, 11), "begins within a character"),
        (set_item("text_ids.starts", 3, 8), "is empty or"),
        (set_item("text_ids.starts", -1, 5), "ascend from 0 to the end"),
        (set_item("text_ids.order", 1, 9), "must be a permutation"),
        (set_item("text_ids.order", 1, -1), "must be a permutation"),
        (lambda columns: columns["text_ids.hashes"].sort() or columns["text_ids.hashes"].__ior__(1), None),
        (set_item("text_ids.hashes", 0, 2**64 - 1), "must ascend"),
        (set_item("metadata.text", 0, 0xFF), None),
    ],
)
def test_crafted_text_ids_and_metadata_are_refused(tmp_path, signals, change, words):
    """Only ``verify`` reads enough to notice the changes without words."""
    path = tmp_path / "index"
    with make_index(path=path) as index:
        index.add(signals[:9], ids=[f"t{i}é" for i in range(9)], metadata=[{"row": i} for i in range(9)])
    rewrite(path, change)
    with pytest.raises(ts.StorageError, match=words):
        ts.open_index(path).verify()
    if words is not None:
        for call in (lambda index: list(index.ids), lambda index: index.add(signals[:1], ids=["x"])):
            with pytest.raises(ts.StorageError, match=words):
                call(ts.open_index(path))


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
        ({"n_bits": 17}, "damaged"),
        ({"n_pool": 2**30}, "n_pool"),
        ({"n_features": 2**40}, r"n_features must be an integer in \[1, 268435456\], got 1099511627776"),
        ({"n_features": [64]}, r"n_features must be an integer in .*, got \[64\]"),
        ({"metric": 7}, "metric"),
        ({"options": [[[]]]}, "cannot be read"),
        ({"family": "sorted"}, "family must be one of .* got 'sorted'; import"),
        ({"fingerprint": "00ff"}, "has the fingerprint 00ff, the one made from its parameters here has "),
    ],
)
def test_crafted_recipes_with_right_checksums_are_refused(filled, signals, changes, words):
    rewrite_recipe(filled, **changes)
    with pytest.raises(ts.StorageError, match=words):
        use(filled, signals)


@pytest.mark.parametrize("projection", ["hadamard", "circulant", "gaussian", "sparse"])
def test_a_small_folder_that_claims_much_costs_little_to_open(tmp_path, projection):
    """A folder that claims 2**28 features takes at most one second and 100 MB more than a valid one."""
    path = tmp_path / "i.topsign"
    ts.Index(64, family="sign", n_bytes=8, random_state=1, path=path).close()
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
    rewrite_recipe(path, n_features=2**28, projection=projection, options=options)
    command = [sys.executable, "-c", textwrap.dedent(program), str(honest), str(path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    megabytes, seconds = map(float, shown.stdout.split())
    assert megabytes < 100
    assert seconds < 1


def test_an_index_that_claims_much_is_checked_before_it_is_used(tmp_path):
    """The projection of a large index is compared with its fingerprint when signals are first projected."""
    path = tmp_path / "i.topsign"
    n_features = 2**20 + 2
    with ts.Index(n_features, family="sign", n_bytes=8, random_state=1, path=path) as index:
        index.add(np.ones((1, n_features), np.float32))
    assert len(ts.open_index(path).search(np.ones((1, n_features), np.float32), k=1)) == 1
    rewrite_recipe(path, fingerprint="0" * 32)
    index = ts.open_index(path)
    for call in (index.search, index.add):
        with pytest.raises(ts.StorageError, match="has the fingerprint 00000000000000000000000000000000"):
            call(np.ones((1, n_features), np.float32))


def test_a_few_codes_are_checked_before_they_are_used(filled, signals):
    """A forged code is refused when it is read; other codes stay readable until all are needed."""
    expected = ts.open_index(filled).get([3, 39]).codes

    def change(columns):
        columns["codes"][0, :, 7] = 255

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
    """Checksums are per mebibyte, so rows outside a damaged block stay readable."""
    path = tmp_path / "large.topsign"
    with ts.Index(4096, family="sign", n_bytes=2048, random_state=1, path=path) as index:
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


def test_creators_at_once_join_the_first(tmp_path):
    """Processes with different seeds end up with one index, and no addition is lost."""
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
    assert len({index.recipe.seed for index in made}) == 1
    assert_array_equal(ts.open_index(path).ids, np.arange(8))


def test_abandoned_drafts_are_removed_although_others_vanish(tmp_path):
    """Dangling links stand for drafts that their creators rename while a folder is listed."""
    for number in range(20):
        (tmp_path / f".a.topsign.{number:032x}").symlink_to("nowhere")
    abandoned = tmp_path / f".a.topsign.{20:032x}"
    abandoned.mkdir()
    os.utime(abandoned, (0, 0))
    make_index(path=tmp_path / "a.topsign").add(np.eye(1, N_FEATURES))
    assert not abandoned.exists()


@pytest.mark.parametrize(
    "best",
    [
        [5e-324] * 200,
        [-1e300] * 199 + [1e300],
    ],
    ids=lambda best: f"{best[0]} to {best[-1]}",
)
def test_a_crafted_calibration_does_not_hang(tmp_path, rng, best):
    path = tmp_path / "i.topsign"
    with make_index(path=path) as index:
        index.add(rng.standard_normal((500, N_FEATURES)))
        index.calibrate(rng.standard_normal((200, N_FEATURES)))

    def change(record):
        for null in record["sources"]["topsign:calibration"]["nulls"].values():
            null["scores"] |= {"best": best, "slopes": None}

    rewrite(path, manifest=change)
    index, start = ts.open_index(path, readonly=True), time.process_time()
    query = rng.standard_normal((1, N_FEATURES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for scoring in ("asymmetric", "hamming"):
            with contextlib.suppress(ts.StorageError):
                index.search(query, scoring=scoring).e_values  # noqa: B018
            for false_alarm in (0.5, 0.01, 1e-4):
                with contextlib.suppress(ts.StorageError, ValueError):  # too few impostors for the rate
                    index.within(query, false_alarm=false_alarm, scoring=scoring)
    assert time.process_time() - start < 3


@pytest.mark.parametrize(
    "record",
    [
        {"topsign:features": {"names": 5}},
        {"topsign:features": {}},
        {"topsign:features": {"names": ["a"] * 3}},
        {"topsign:features": {"names": [7] * N_FEATURES}},
        {"topsign:calibration": {"format": 1}},
        {"topsign:calibration": {"format": 1, "nulls": 7}},
        {"topsign:calibration": {}},
    ],
    ids=str,
)
def test_crafted_sources_are_refused(filled, signals, record):
    """Invalid feature names and calibrations raise StorageError in the call that needs them."""
    rewrite(filled, manifest=edit(sources=record))
    index = ts.open_index(filled)
    calls = [lambda: index.add(signals[:1]), lambda: index.within(signals[:1], false_alarm=0.1)]
    refused = 0
    for call in [*calls, lambda: index.search(signals[:1], k=1)]:
        try:
            call()
        except ts.StorageError:
            refused += 1
    assert refused


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"a":' + DEEP + b"}", "metadata"),
        (b'{"a":1' + b"0" * 5000 + b"}", "metadata"),
        (b'{"a":NaN}', "metadata"),
        (b"[1]", "metadata"),
        (b"{a}", "metadata"),
        (b'{ "a" : 1 }', None),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_crafted_metadata_are_refused_or_read(filled, text, words):
    """Metadata with valid checksums are a JSON object according to the standard, or raise StorageError."""

    def change(columns):
        lengths = np.zeros(41, "<i8")
        lengths[1:] = len(text)
        columns["metadata.starts"], columns["metadata.text"] = lengths, np.frombuffer(text, "u1")

    rewrite(filled, change)
    with ts.open_index(filled) as index:
        for call in (index.verify, lambda: index.get([0])):
            if words is None:
                call()
            else:
                with pytest.raises(ts.StorageError, match=words):
                    call()


@pytest.mark.parametrize("text", [b"{a}", b'{"a":"\xff"}', b'{"a":1},{"a":2}', DEEP])
def test_filters_refuse_metadata_that_are_not_json(filled, signals, text):
    """A text that holds several values would shift the metadata of all later entries."""

    def change(columns):
        lengths = np.zeros(41, "<i8")
        lengths[8:] = len(text)
        columns["metadata.starts"], columns["metadata.text"] = lengths, np.frombuffer(text, "u1")

    rewrite(filled, change)
    with ts.open_index(filled) as index, pytest.raises(ts.StorageError, match="metadata: damaged"):
        index.search(signals[:1], where={"a": 1})
