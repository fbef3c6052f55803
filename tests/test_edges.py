"""Invalid and unusual calls of the library and of the command line raise a clear error or do what was meant."""

import json
import os
import pty
import subprocess
import sys
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

import topsign as ts
from topsign.cli import app

N_FEATURES = 64


@pytest.fixture
def signals(rng):
    return rng.standard_normal((300, N_FEATURES)).astype(np.float32)


def make(signals, folder, name="a.topsign", **options):
    index = ts.Index(N_FEATURES, family="adaptive", n_bits=16, random_state=7, path=folder / name)
    index.add(signals, **options)
    return index


def run(*command, code=2):
    shown = CliRunner().invoke(app, [str(one) for one in command])
    assert shown.exit_code == code, shown.output
    return " ".join(shown.output.split())


@pytest.mark.parametrize("ids", [None, [], np.empty(0, np.int64)], ids=["none", "list", "array"])
def test_nothing_is_added_to_an_index_with_text_ids(signals, tmp_path, ids):
    index = make(signals[:2], tmp_path, ids=["a", "b"])
    new = index.add(signals[:0], ids=ids)
    assert len(new) == 0
    assert new.dtype == object
    assert index.ids.tolist() == ["a", "b"]
    assert index.upsert(signals[:0], ids=[]).tolist() == []


def test_a_slice_of_an_index_is_refused(signals, tmp_path):
    index = make(signals, tmp_path)
    with pytest.raises(TypeError, match=r"index\[id\] needs one id.*got slice\(0, 3, None\).*index\.get"):
        index[0:3]
    with pytest.raises(TypeError, match=r"index\[id\] needs one id .* got \[0, 1\]"):
        index[[0, 1]]
    with pytest.raises(KeyError):
        index[999]


@pytest.mark.parametrize("level", [0, 1, -1, 2, float("nan")])
def test_false_alarm_has_one_range(signals, tmp_path, level):
    index = make(signals, tmp_path)
    calls = [
        lambda: index.within(signals[:1], false_alarm=level),
        lambda: index.pairs(false_alarm=level),
        lambda: ts.theory.plan(correlation=0.1, detection=0.9, false_alarm=level, n_features=64),
        lambda: ts.significance.ScoreCalibration.fit(np.arange(2000.0), n_entries=9).threshold(level),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="false_alarm must lie strictly between 0 and 1, got"):
            call()


def test_bad_requests_are_answered_with_4xx(signals, tmp_path):
    testclient = pytest.importorskip("starlette.testclient")
    from topsign.explore import make_app

    index = make(signals, tmp_path)
    client = testclient.TestClient(
        make_app(index, token="t", port=80), base_url="http://127.0.0.1:80", raise_server_exceptions=False
    )
    large, huge = "9" * 400, "9" * 5000
    bad = [
        f"describe?n_entries={huge}",
        f"describe?n_entries={large}",
        f"plan?n_entries={large}",
        "entries?start=%C2%B2",
    ]
    bad += ["describe?n_features=64&n_pool=64&n_bits=8&correlation=nan", f"entries?start={huge}", "neighbors?id=%00"]
    bad += [
        f"neighbors?id={large}",
        f"neighbors?id={huge}",
        f"neighbors?id=1&k={huge}",
        "neighbors?id=1&k=0",
        "neighbors",
    ]
    for query in bad:
        answer = client.get(f"/t/api/{query}", headers={"host": "127.0.0.1:80"})
        assert 400 <= answer.status_code < 500, (query[:40], answer.status_code)
        assert answer.json()["error"]
    shape = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999,), }"
    contents = [b"", b"[", b"[[1, 2], [3]]", b"{}", b'["a"]', b"[1e999]", b"\xff\xfe", b"\x93NUMPY", b"[" * 10**5]
    for content in [*contents, shape.ljust(128) + b"\n"]:
        answer = client.post("/t/api/search", content=content, headers={"host": "127.0.0.1:80"})
        assert 400 <= answer.status_code < 500, (content[:40], answer.status_code)


def test_a_failed_build_leaves_nothing(signals, tmp_path):
    signals[5] = 0
    np.save(tmp_path / "zero.npy", signals)
    np.save(tmp_path / "nan.npy", np.full((4, N_FEATURES), np.nan))
    np.save(tmp_path / "few.npy", signals[:4])
    np.save(tmp_path / "none.npy", signals[:0])
    before = sorted(os.listdir(tmp_path))
    for name, options in [
        ("zero.npy", ["--family", "adaptive", "--n-bits", "16"]),
        ("nan.npy", ["--family", "adaptive", "--n-bits", "16"]),
        ("nan.npy", ["--family", "adaptive", "--n-bits", "16", "--center"]),
        ("few.npy", ["--family", "trellis", "--n-bytes", "4"]),
        ("none.npy", ["--family", "adaptive", "--n-bits", "16"]),
        ("none.npy", ["--family", "trellis", "--n-bytes", "4"]),
    ]:
        shown = CliRunner().invoke(app, ["build", str(tmp_path / name), "-o", str(tmp_path / "a.topsign"), *options])
        assert shown.exit_code in (1, 2), (name, options, shown.output)
        assert sorted(os.listdir(tmp_path)) == before, (name, options)
    assert "none.npy holds no signals" in shown.output.replace("\n", " ")


def test_swapped_arguments_are_recognised(signals, tmp_path):
    make(signals, tmp_path).close()
    np.save(tmp_path / "x.npy", signals[:1])
    shown = run("search", tmp_path / "x.npy", tmp_path / "a.topsign")
    assert "x.npy is not a topsign index, which is a folder" in shown
    shown = run("add", tmp_path / "x.npy", tmp_path / "a.topsign")
    assert "a.topsign is a topsign index, not a file of signals" in shown


def test_codes_larger_than_the_signals_are_warned_of():
    with pytest.warns(UserWarning, match="5,000 bytes.*512 bytes of 128 float32"):
        ts.Index(128, n_bytes=5000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ts.Index(128, n_bytes=64)


EVIL = "\x1b]0;pwned\x07\x1b[31mRED\r\n\u202egnp"


def on_terminal(*command):
    """Return what a command writes to a terminal."""
    controller, terminal = pty.openpty()
    environment = os.environ | {"TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "200"}
    with subprocess.Popen(
        [sys.executable, "-m", "topsign", *map(str, command)], stdout=terminal, stderr=terminal, env=environment
    ) as process:
        os.close(terminal)
        content = b""
        while True:
            try:
                part = os.read(controller, 65536)
            except OSError:  # the other end of the terminal is closed
                break
            if not part:
                break
            content += part
        process.wait()
    os.close(controller)
    return content.decode().replace("\r\n", "\n")


@pytest.mark.slow
def test_control_characters_are_escaped_on_a_terminal(signals, tmp_path):
    ids = [EVIL, *(f"d{row}" for row in range(1, 300))]
    make(signals, tmp_path, ids=ids, metadata=[{"x": EVIL}, *[None] * 299]).close()
    np.save(tmp_path / "q.npy", signals[:1])
    index = tmp_path / "a.topsign"
    for command in [
        ("list", index, "--limit", "1"),
        ("get", index, EVIL),
        ("search", index, tmp_path / "q.npy", "-k", "1", "--with-metadata"),
        ("get", index, "\x1b[31mnot there\x07"),
    ]:
        shown = on_terminal(*command)
        assert not any(one in shown for one in "\x1b\x07\r\u202e"), (command, shown)
        assert "\\x1b" in shown or "\\u001b" in shown, (command, shown)
    piped = subprocess.run([sys.executable, "-m", "topsign", "list", index], capture_output=True, check=True)
    assert piped.stdout.decode().startswith(EVIL + "\nd1\n")
    piped = subprocess.run([sys.executable, "-m", "topsign", "get", index, EVIL], capture_output=True, check=True)
    assert json.loads(piped.stdout)["metadata"] == {"x": EVIL}
