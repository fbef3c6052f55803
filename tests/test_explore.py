"""The page of ``topsign explore``: numbers, entries and access control."""

import io

import numpy as np
import pytest
from numpy.testing import assert_allclose

import topsign as ts

pytest.importorskip("starlette", reason="needs the extra explore: pip install 'topsign[explore]'")
pytest.importorskip("httpx", reason="needs httpx, which Starlette's test client is made of")
from starlette.testclient import TestClient

from topsign.explore import make_app
from topsign.explore.sizes import CodeSizes, describe

PORT = 8123


@pytest.fixture(scope="module")
def index():
    rng = np.random.default_rng(5)
    signals = rng.standard_normal((300, 256)).astype(np.float32)
    made = ts.Index(256, family="adaptive", n_bits=64, random_state=7)
    made.add(signals, metadata=[{"row": row} if row % 2 else None for row in range(300)])
    return made, signals


@pytest.fixture(scope="module")
def client(index):
    return TestClient(make_app(index[0], token="secret", port=PORT), base_url=f"http://127.0.0.1:{PORT}")


def test_numbers_are_those_of_the_theory():
    choice = CodeSizes(n_features=1024, n_pool=1024, n_bits=64, correlation=0.2, n_entries=100, false_alarm=1e-3)
    found = describe(choice)
    shape = {"n_bits": 64, "n_pool": 1024}
    same = {"correlation": 0.2, "n_features": 1024}
    numbers = found["numbers"]
    assert numbers["expected_hamming"] == ts.theory.expected_hamming(0.2, **shape)
    assert numbers["d_prime"] == ts.theory.roc(**same, **shape, scoring="asymmetric").d_prime
    assert numbers["detection"] == ts.theory.detection_at(**same, **shape, false_alarm=1e-3, n_entries=100)
    assert numbers["code_bytes"] == ts.kernels.Layout(**shape).code_bytes
    level = numbers["false_alarm_per_entry"]
    rate = ts.theory.detection_at(n_bytes=numbers["code_bytes"], **same, false_alarm=1e-3, n_entries=100)
    assert numbers["detection_grouped"] == rate
    curve = ts.theory.roc(**same, n_bytes=numbers["code_bytes"], scoring="asymmetric")
    assert numbers["d_prime_grouped"] == curve.d_prime
    rate = ts.theory.trellis_detection(numbers["code_bytes"], **same, false_alarm=level)
    assert numbers["detection_trellis"] == rate
    curve = ts.theory.roc(**same, **shape, scoring="hamming")
    line = found["roc"][1]
    assert_allclose(line["y"], np.interp(line["x"], curve.pfa, curve.pd))


@pytest.mark.parametrize("choice", [{"correlation": 0.9}, {"n_pool": 4, "n_bits": 2}])
def test_extreme_sizes_are_described(client, choice):
    """An index d' beyond the range of floats is null, and no curve shows more bits than the pool has."""
    answer = client.get("/secret/api/describe", params=choice)
    assert answer.status_code == 200, answer.text
    numbers = answer.json()["numbers"]
    assert (numbers["d_prime"] is None) == (numbers["d_prime_uncompressed"] is None) == ("correlation" in choice)


def test_entries_and_their_neighbors(client, index):
    made, signals = index
    assert client.get("/secret/api/summary").json()["index"]["n_entries"] == 300
    page = client.get("/secret/api/entries?start=20").json()
    assert [entry["id"] for entry in page["entries"]] == list(range(20, 30))
    assert page["entries"][1]["metadata"] == {"row": 21}
    found = client.get("/secret/api/neighbors?id=21&k=3").json()
    assert found["neighbors"][0]["id"] == 21
    assert found["neighbors"][0]["metadata"] == {"row": 21}
    assert found["neighbors"][0]["e_value"] < 1e-6
    histogram = found["histogram"]
    assert sum(histogram["counts"]) == 300
    # Nearly all scores are those of impostors, so the null expects nearly all entries within the histogram.
    assert 250 < sum(histogram["expected"]) <= 300
    tails = ts.significance.match_pvalue(
        histogram["edges"], n_bits=64, n_pool=256, n_features=256, scoring="asymmetric"
    )
    assert_allclose(
        histogram["expected"], -300 * np.diff(tails), atol=0.02
    )  # interpolation error of the tabulated distribution
    file = io.BytesIO()
    np.save(file, signals[33])
    for content in (file.getvalue(), str(signals[33].tolist()).encode(), " ".join(map(str, signals[33])).encode()):
        found = client.post("/secret/api/search", content=content).json()
        direct = made.search(signals[33], k=10)
        assert [one["id"] for one in found["neighbors"]] == direct.ids[0].tolist()
    wrong = client.post("/secret/api/search", content=b"1, 2, 3")
    assert (wrong.status_code, "256 features" in wrong.json()["error"]) == (400, True)
    assert client.get("/secret/api/neighbors?id=999").status_code == 400


def test_regions_are_searched_on_request(rng):
    centres = rng.standard_normal((20, 32))
    signals = (centres[rng.integers(20, size=12_000)] + 0.5 * rng.standard_normal((12_000, 32))).astype(np.float32)
    made = ts.Index(32, n_bytes=8, random_state=7)
    made.add(signals)
    client = TestClient(make_app(made, token="secret", port=PORT), base_url=f"http://127.0.0.1:{PORT}")
    assert not client.get("/secret/api/summary").json()["index"]["has_regions"]
    assert client.get("/secret/api/neighbors?id=7").json()["visited"] is None
    whole = client.get("/secret/api/neighbors?id=7&recall=0.9").json()["visited"]
    assert whole["share"] == 1
    assert "regions" in whole["exhaustive"]
    made.learn_regions(n_regions=64)
    assert client.get("/secret/api/summary").json()["index"]["has_regions"]
    found = client.get("/secret/api/neighbors?id=7&recall=0.9").json()
    direct = made.search(made.get([7]).codes.decode(), k=10, recall=0.9)
    assert [one["id"] for one in found["neighbors"]] == direct.ids[0].tolist()
    assert found["visited"] == {"share": direct.visited[0], "exhaustive": direct.exhaustive[0]}
    assert client.get("/secret/api/neighbors?id=7&recall=high").status_code == 400


def test_only_the_page_itself_is_answered(client):
    page = client.get("/secret/")
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "http" not in page.text.replace("http://www.w3.org/2000/svg", "")  # nothing is loaded from elsewhere
    assert client.get("/").status_code == 404
    assert client.get("/guessed/").status_code == 404
    for headers in (
        {"host": "attacker.example"},
        {"origin": "http://attacker.example"},
        {"sec-fetch-site": "cross-site"},
        {"host": f"127.0.0.1:{PORT + 1}"},
    ):
        assert client.get("/secret/", headers=headers).status_code == 403
    assert client.get("/secret/", headers={"origin": f"http://127.0.0.1:{PORT}"}).status_code == 200
