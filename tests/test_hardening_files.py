"""Malicious files: damaged or forged bytes in every file format raise StorageError and never crash."""

import json
import os
import socket
import stat
import struct
import threading
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from faults import attack
from small import make_index
from typer.testing import CliRunner

import topsign as ts
from topsign import codes, export
from topsign.cli.app import app

pytestmark = pytest.mark.slow

FORMS = ("codes", "bits", "sparse")  # forms of adaptive codes that are read back


def test_a_sample_of_every_attack():
    """A sample of ``make test-attack``."""
    pytest.importorskip("distributed")
    counts = attack.attack(10, 7)
    assert {door for door, _ in counts} == {*attack.CHEAP, *attack.FILES}


# Archives and tables


def test_messages_that_claim_more_than_they_hold_are_refused():
    """Small recipes that claim large pools or many codes are refused before memory is allocated."""
    encoder = ts.Encoder(64, family="adaptive", n_bits=8, n_pool=64, random_state=1).fit(np.ones((1, 64)))
    message = encoder.encode(np.random.default_rng(0).standard_normal((3, 64))).to_bytes()
    magic, version, recipe_bytes, n_codes, packed_bytes = codes.HEADER.unpack_from(message)
    record = json.loads(message[codes.HEADER.size : codes.HEADER.size + recipe_bytes])
    rest = message[codes.HEADER.size + recipe_bytes : -4]
    for changes, claimed in (({}, 20_000_000), ({"n_pool": 2**30}, n_codes), ({"n_features": 2**40}, n_codes)):
        text = json.dumps(record | changes).encode()
        body = codes.HEADER.pack(magic, version, len(text), claimed, packed_bytes) + text + rest
        tracemalloc.start()
        with pytest.raises(ts.StorageError):
            ts.read_codes(body + struct.pack("<I", zlib.crc32(body)))
        assert tracemalloc.get_traced_memory()[1] < 10**8
        tracemalloc.stop()


# The command line


def run(*arguments, code=0):
    shown = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert shown.exit_code == code, shown.output
    return shown.output


@pytest.mark.parametrize("target", ["fifo", "link", "device"])
def test_output_goes_through_what_is_not_a_regular_file(filled, signals, tmp_path, target):
    np.save(tmp_path / "q.npy", signals[:2])
    out, received = tmp_path / "out.csv", []
    if target == "fifo":
        os.mkfifo(out)
        reader = threading.Thread(target=lambda: received.append(out.read_bytes()))
        reader.start()
    elif target == "link":
        (tmp_path / "real").write_text("old")
        out.symlink_to(tmp_path / "real")
    else:
        out.symlink_to("/dev/null")
    run("search", filled, tmp_path / "q.npy", "-k", 1, "-o", out)
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
    shown = "".join(run("search", path, tmp_path / "q.npy", "-k", 1, "--with-metadata").split())
    for note in notes:
        assert "".join(json.dumps(note).split()) in shown
    assert "a[red].topsign" in "".join(run("verify", path).split())
    assert "a[red].topsign" in "".join(run("inspect", path).split())
    assert "[bold]" in "".join(run("verify", folder / "none", code=2).split())


def test_metadata_lines_end_only_at_newlines(tmp_path, filled, signals):
    note = {"text": "one\u2028two\u0085three\x1cfour"}
    (tmp_path / "notes.jsonl").write_text(json.dumps(note, ensure_ascii=False) + "\n", encoding="utf-8")
    np.save(tmp_path / "x.npy", signals[40:41])
    run("add", filled, tmp_path / "x.npy", "--metadata", tmp_path / "notes.jsonl")
    assert ts.open_index(filled).get([40]).metadata == [note]


# The network


def listening():
    """Return the addresses and ports on which this process listens."""
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
def test_a_local_cluster_listens_only_on_this_machine():
    pytest.importorskip("distributed")
    from topsign.distributed import cluster

    before = listening()
    client = cluster.resolve_client(None)
    assert client.nthreads()
    after = [address for address in listening() if address not in before]
    assert all(address in ("127.0.0.1", "::1") for address in after), after


def test_long_codes_are_exported_in_parts_that_arrow_can_address(monkeypatch, signals):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(export, "PART_BYTES", 200)
    index = make_index()
    index.add(signals)
    for form in FORMS:
        table = export.to_arrow(index, form=form)
        row_bytes = sum(one.dtype.itemsize * one.shape[1] for one in index.get(index.ids).codes.to_form(form).values())
        assert table.column("id").num_chunks == -(-60 // max(1, 200 // row_bytes)) > 1
        assert export.from_arrow(table).entries.codes == index.get(index.ids).codes
