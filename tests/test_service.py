"""The HTTP service of examples/service: results, the token and every limit."""

import asyncio
import json
import runpy
import time

import numpy as np
import pytest
from pages import ROOT

import topsign as ts

pytest.importorskip("httpx", reason="needs httpx, which Starlette's test client is made of")
pytest.importorskip("starlette", reason="needs the extra explore: pip install 'topsign[explore]'")
import httpx
from starlette.testclient import TestClient

SERVICE = runpy.run_path(str(ROOT / "examples" / "service" / "app.py"))
HEADERS = {"Authorization": "Bearer secret"}


@pytest.fixture(scope="module")
def signals():
    return np.random.default_rng(0).standard_normal((300, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def client(signals, tmp_path_factory):
    path = tmp_path_factory.mktemp("service") / "index.topsign"
    options = {"n_bytes": 8, "random_state": 7, "originals": "float16"}
    with ts.Index(64, family="grouped", path=path, **options) as index:
        index.add(signals, metadata=[{"tenant": row % 60} for row in range(300)])
    with TestClient(SERVICE["make_app"](path, "secret")) as client:
        client.path = path
        yield client


def post(client, request, **options):
    return client.post("/search", json=request, headers=HEADERS, **options)


def test_results_are_those_of_the_index(client, signals):
    """Candidates are rescored with originals; a filter that few entries pass gives fewer than k."""
    index = ts.open_index(client.path, readonly=True)
    for more in ({}, {"where": "tenant == 3"}, {"where": {"tenant": 3}}):
        answer = post(client, {"queries": signals[:5].tolist(), "k": 7} | more)
        expected = index.search(signals[:5], k=7, rescore=True, **more)
        filled = 5 if more else 7
        assert answer.status_code == 200
        assert answer.json()["results"] == [
            {"ids": ids[:filled].tolist(), "scores": scores[:filled].tolist()}
            for ids, scores in zip(expected.ids, expected.scores, strict=True)
        ]


@pytest.mark.parametrize("token", [None, "secret", "Bearer wrong", "Bearer secret2"])
def test_searches_need_the_token(client, signals, token):
    headers = {} if token is None else {"Authorization": token}
    answer = client.post("/search", json={"queries": signals[:1].tolist()}, headers=headers)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


ROW = [0.5] * 64
BAD = {
    "no JSON": (b"{", "send JSON"),
    "ragged": (json.dumps({"queries": [ROW, ROW[1:]]}), "send JSON"),
    "too many": (json.dumps({"queries": [ROW] * 65}), "queries must be 1 to 64 rows"),
    "not finite": (b'{"queries": [[NaN' + b", 0.5" * 63 + b"]]}", "finite"),
    "k of 0": (json.dumps({"queries": [ROW], "k": 0}), "k must be an integer from 1 to 100, got 0"),
    "a field twice": (b'{"queries": [[0.5]], "where": "tenant == 3", "where": null}', "send JSON"),
    "recall of 1": (json.dumps({"queries": [ROW], "recall": 1}), "recall must be a number between 0 and 1, got 1"),
}


@pytest.mark.parametrize(("body", "message"), BAD.values(), ids=BAD)
def test_bad_requests_are_refused_with_a_reason(client, body, message):
    answer = client.post("/search", content=body, headers=HEADERS)
    assert answer.status_code == 400
    assert message in answer.json()["error"]


def test_unknown_fields_are_refused(client):
    answer = post(client, {"queries": [ROW], "filter": "tenant == 3", "n": 5})
    assert answer.status_code == 422
    assert answer.json()["error"] == "unknown fields: filter, n; there are queries, k, where, recall"


def test_a_long_body_is_refused(client):
    answer = client.post("/search", content=(b" " * 2**20 for _ in range(5)), headers=HEADERS)  # without Content-Length
    assert answer.status_code == 413
    assert "4,194,304 bytes" in answer.json()["error"]


def test_few_searches_run_at_once_with_one_thread_each(client, signals, monkeypatch):
    running, most, threads = [], [], set()
    plain = ts.Index.search

    def search(self, queries, k, **options):
        running.append(1)
        most.append(len(running))
        threads.add(ts.kernels.n_threads())
        time.sleep(0.05)
        running.pop()
        return plain(self, queries, k=k, **options)

    async def ask():
        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here", headers=HEADERS) as http:
            request = {"queries": signals[:1].tolist()}
            return await asyncio.gather(*(http.post("/search", json=request) for _ in range(8)))

    monkeypatch.setattr(ts.Index, "search", search)
    assert {answer.status_code for answer in asyncio.run(ask())} == {200}
    assert (max(most), threads) == (2, {1})


def test_an_empty_token_is_refused(client):
    with pytest.raises(ValueError, match="token is empty"):
        SERVICE["make_app"](client.path, "")
