"""Pages agree with the stored results, and benchmarks measure what they claim."""

import argparse
import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import topsign as ts

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"


def run(script, *arguments):
    command = [sys.executable, str(BENCHMARKS / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def load(monkeypatch):
    """Import a benchmark as a module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_pages_agree_with_results():
    shown = run("page.py", "--check")
    assert shown.returncode == 0, shown.stderr


BY_HAND = {
    "gpu",
    "trellis/build",
    "trellis/gpu",
    "trellis/gpu-encoding",
    "trellis/shares",
    "trellis/threads",
    "regions/gpu",
    "false_alarms",
    "mutants",
}  # written by hand into gpu-, kernel- and trellis-measurements.md, significance.md and CONTRIBUTING.md
RESULTS = BENCHMARKS / "results"
PATHS = [path for folder in ("", "trellis/", "regions/") for path in RESULTS.glob(f"{folder}*.json")]
GENERATED = sorted({str(path.relative_to(RESULTS).with_suffix("")) for path in PATHS} - BY_HAND)


@pytest.mark.parametrize("name", GENERATED)
def test_every_result_is_on_a_page(name, load):
    """Doubling the numbers of a result changes the page."""
    page = load("page")
    results = page.load(BENCHMARKS / "results")
    written = page.pages(results, ROOT)
    changed = results | {name: results[name] | {"measured": doubled(results[name]["measured"])}}
    assert page.pages(changed, ROOT) != written


def doubled(value):
    """Double real numbers and keep integers, which are sizes that identify rows."""
    if isinstance(value, dict):
        return {name: doubled(one) for name, one in value.items()}
    if isinstance(value, list):
        return [doubled(one) for one in value]
    return 2 * value if isinstance(value, float) else value


def test_the_gpu_page_shows_the_measurements():
    report = json.loads((BENCHMARKS / "results/gpu.json").read_text())
    text = (ROOT / "docs/reference/gpu-measurements.md").read_text()
    for head in report["heads"]:
        for row in head["top_10"]:
            took = row["microseconds"]
            graph = f"{took['ours_graph']:.0f} | {took['dense_graph']:.0f} | {row['times_as_fast_in_graphs']:.2f}"
            plain = f"{took['ours']:.0f} | {took['dense']:.0f} | {row['times_as_fast']:.2f}"
            assert f"| {row['inputs']} | {graph} | {plain} |" in text
    for row in report["index"]["search"]:
        assert f"| {row['queries']:,} | {row['milliseconds']:.1f} | {row['nanoseconds_per_pair']:.3f} |" in text
    trellis = json.loads((BENCHMARKS / "results/trellis/gpu.json").read_text())
    for row in trellis["heads"][0]["top_10"]:
        took = [row["microseconds"][name] for name in ("ours_graph", "dense_graph", "ours", "dense")]
        assert "| " + " | ".join(f"{value:,.0f}" for value in [row["inputs"], *took]) + " |" in text
    for row in trellis["two_digits"]:
        took = [row["microseconds"][name] for name in ("one_digit", "two_digits")]
        assert "| " + " | ".join(f"{value:,.0f}" for value in [row["queries"], *took]) + " |" in text
    regions = json.loads((BENCHMARKS / "results/regions/gpu.json").read_text())["measured"]
    for row in regions["times"]:
        took = [row["milliseconds"][name] for name in ("device, exhaustive", "device, visits", "processor, visits")]
        assert "| " + " | ".join([f"{row['queries']}", *(f"{value:,.1f}" for value in took)]) + " |" in text
    for part in trellis["index"]:
        for row in part["search"]:
            sizes = f"| {part['entries']:,} | {part['bytes_per_code']} | {row['queries']:,} |"
            took = f"{row['milliseconds']:.2f} | {row['dense_milliseconds']:.2f} | {row['times_as_fast']:.2f}"
            assert f"{sizes} {took} | {row['nanoseconds_per_pair']:.4f} |" in text
            assert row["same_as_processor"]


def test_a_page_edited_by_hand_is_reported(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    assert run("page.py", "--check", "--out", tmp_path).returncode == 0
    page = tmp_path / "docs/reference/benchmarks.md"
    page.write_text(page.read_text().replace("0.", "0.9", 1))
    shown = run("page.py", "--check", "--out", tmp_path)
    assert shown.returncode == 1
    assert shown.stderr.startswith("docs/reference/benchmarks.md: not what")


def test_results_carry_machine_versions_commit_and_spread(tmp_path):
    shown = run("run.py", "--quick", "--only", "limits", "--results", tmp_path)
    assert shown.returncode == 0, shown.stderr
    report = json.loads((tmp_path / "limits.json").read_text())
    assert report["versions"]["topsign"] == ts.__version__
    assert report["machine"]["cores"] >= 1
    assert report["machine"]["kernels"] in ts.kernels.available()
    assert set(report) >= {"script", "options", "date", "commit"}
    bandwidth = report["measured"]["rows"][0]["gigabytes_per_second"]
    assert 0 < bandwidth["least"] <= bandwidth["median"] <= bandwidth["most"]


def test_an_unknown_benchmark_is_named():
    shown = run("run.py", "--only", "serach")
    assert shown.returncode == 2
    assert "no benchmark is called serach" in shown.stderr


def test_recall_counts_the_true_neighbours_found(load):
    module = load("text_embeddings")
    rng = np.random.default_rng(0)
    entries, queries = (rng.standard_normal((n, 384)).astype(np.float32) for n in (500, 4))
    contest = module.Contest(entries, queries, argparse.Namespace(seeds=2))
    order = np.argsort(-(queries @ entries.T), axis=1)
    right = order[:, :100]
    late = np.hstack([order[:, 100:105], order[:, :95]])  # five of the ten, and all of them in the hundred
    sizes = {"bits": 1.0, "code_bytes": 10, "shared_bytes": 500, "seconds": 0.0}
    contest.add("a", "bytes", 0.1, np.stack([right, late]), **sizes)
    row = contest.rows[0]
    assert row["recall"]["mean"] == 0.75
    assert row["recall_rescored"]["mean"] == 1
    assert row["bytes_per_entry"] == 11


def test_sizes_of_codes_stay_within_the_budget(load):
    fitting = load("text_embeddings").fitting
    kept = fitting(lambda n: ts.theory.storage_bits(n_bits=n, n_pool=384), 96, 384)
    assert ts.theory.storage_bits(n_bits=kept, n_pool=384) <= 96 < ts.theory.storage_bits(n_bits=kept + 1, n_pool=384)
    assert fitting(lambda n: 10 * n, 5, 384) is None


def test_detection_agrees_with_theory(tmp_path):
    shown = run("detection.py", "--pairs", 600, "--json", tmp_path / "detection.json")
    assert shown.returncode == 0, shown.stderr
    rows = json.loads((tmp_path / "detection.json").read_text())["measured"]["rows"]
    assert len(rows) == 10
    for row in rows:
        # d' of n pairs has a variance near (1 + d'**2 / 4) / n: four standard errors.
        assert abs(row["d_prime"] - row["theory"]) < 4 * np.sqrt((1 + row["theory"] ** 2 / 4) / 600)


def test_camera_codes_are_compared_at_equal_sizes(tmp_path):
    rng = np.random.default_rng(0)
    cameras = np.repeat(np.arange(3), 6)
    residuals = rng.standard_normal((18, 4096)) + 0.5 * rng.standard_normal((3, 4096))[cameras]
    quantised = np.clip(np.round(residuals * 30), -127, 127).astype(np.int8)
    np.savez(tmp_path / "residuals.npz", residuals=quantised, scale=np.float32(1 / 30), camera=cameras.astype(np.int8))
    shown = run(
        "cameras.py", tmp_path / "residuals.npz", "--kept", 128, "--seeds", 2, "--json", tmp_path / "cameras.json"
    )
    assert shown.returncode == 0, shown.stderr
    rows = json.loads((tmp_path / "cameras.json").read_text())["measured"]["rows"]
    whole = next(row for row in rows if row["method"] == "uncompressed")
    assert (whole["top1"]["mean"], whole["auc"]["mean"]) == (1, 1)
    found = {(row["method"], row["scoring"]): row for row in rows}
    adaptive, equal = found[("adaptive", "real query")], found[("sign codes, equal bytes", "real query")]
    assert adaptive["bytes"] == equal["bytes"]
    assert found[("sign codes, equal information", "Hamming")]["bits"] == round(adaptive["bits"])
    assert adaptive["top1"]["mean"] == 1
    assert whole["d_prime"]["mean"] > adaptive["d_prime"]["mean"]
    assert adaptive["d_prime"]["mean"] > found[("sign codes, equal computation", "real query")]["d_prime"]["mean"]


def test_comparisons_of_one_scene_are_neither_matches_nor_impostors(load, monkeypatch):
    simulation, rng = load("cameras_simulation"), np.random.default_rng(0)

    def shown():
        return simulation.Shown(simulation.Photograph(b"", 1.0, None), rng.bytes(16), 1.0)

    asked, enrolled = [shown() for _ in range(60)], [[shown(), shown()] for _ in range(5)]
    enrolled[3][0], enrolled[2][1] = asked[3], asked[30]  # photographs of one scene
    scores, own = rng.standard_normal((60, 5)), np.zeros((60, 5), bool)
    own[np.arange(20), np.arange(20) % 5] = True
    scores[own], scores[30, 2], scores[31, 2] = 9, 10, 8
    comparisons = simulation.Comparisons(own, asked, enrolled)
    noise, intensity = rng.standard_normal((16, 16)), np.ones((16, 16))
    monkeypatch.setattr(simulation, "queries", {31: (noise, intensity, asked[31])}, raising=False)
    monkeypatch.setattr(simulation, "fingerprints", {2: rng.standard_normal((16, 16))}, raising=False)
    found = comparisons.false_matches(scores, 20)
    (false,) = found["false_matches"]
    assert (false["query"], false["sensor"], false["score"]) == (31, 2, 8)
    strict = found["rows"][-1]
    assert (strict["count"], strict["comparisons"], strict["same_scene"]) == (1, 40 * 5 - 20 - 1, 1)
    assert strict["interval"][0] < 1 / 179 < strict["interval"][1]
    assert (found["same_scene"], found["learned_from"]) == (1, 100)
    assert comparisons.summary(scores, "adaptive", 1, 64)["matches"] == 19
    assert simulation.interval(0, 20_000)[1] == pytest.approx(1.5e-4, rel=0.01)
    assert simulation.cost(*simulation.ideal(scores[own], scores[40:].ravel())) < 1e-6


def test_a_stopped_benchmark_is_continued(tmp_path, load):
    """Existing rows are kept with the run that measured them; with other options, all rows are measured again."""
    record, path = load("shared.results").Record, tmp_path / "rows.json"

    def begun(planned="ab", **options):
        options = argparse.Namespace(json=str(path), rates=(0.5, 1.0), **options)
        return record(options, planned, "{name}".format_map, sizes=3)

    def written():
        measured = json.loads(path.read_text())["measured"]
        return measured, [(run["options"]["threads"], run["rows"]) for run in measured["runs"]]

    begun(seeds=2, threads=1).add({"name": "b", "recall": 0.5})
    stopped, _ = written()
    assert (stopped["complete"], stopped["missing"]) == (False, ["a"])
    assert begun(seeds=3, threads=1).missing == ["a", "b"]
    continued = begun(seeds=2, threads=8)
    assert continued.missing == continued.wanted == ["a"]
    continued.add({"name": "a", "recall": 0.25})
    measured, runs = written()
    assert measured["complete"]
    assert [row["name"] for row in measured["rows"]] == ["a", "b"]
    assert runs == [(1, ["b"]), (8, ["a"])]
    assert begun(seeds=2, threads=8).wanted == ["a", "b"]  # nothing is missing, so everything is measured again


def test_rows_are_added_to_a_complete_record_and_measured_again(tmp_path, load):
    record, path = load("shared.results").Record, tmp_path / "rows.json"

    def begun(planned, only=(), **options):
        options = argparse.Namespace(json=str(path), only=list(only), **options)
        return record(options, planned, "{name}".format_map)

    begun("a", threads=1, most_residual=24).add({"name": "a", "recall": 0.5})
    more = begun("ab", threads=2, most_residual=48)
    assert more.wanted == ["b"]
    more.add({"name": "b", "recall": 0.25})
    again = begun("a", "a", threads=3, most_residual=24)  # b is not planned now, and stays
    assert (again.wanted, again.missing) == (["a"], [])
    again.add({"name": "a", "recall": 0.75})
    measured = json.loads(path.read_text())["measured"]
    assert [(row["name"], row["recall"]) for row in measured["rows"]] == [("a", 0.75), ("b", 0.25)]
    assert [(run["options"]["threads"], run["rows"]) for run in measured["runs"]] == [(2, ["b"]), (3, ["a"])]
    with pytest.raises(SystemExit, match=r"no such rows: \['c'\]; there are: a; b"):
        begun("ab", "ac")


def test_differences_are_taken_on_the_same_queries(load):
    peers = load("trellis_peers")
    ours, opq, old = np.array([0.5, 1.0]), np.array([0.25, 0.5]), {"less": "OPQ", "bytes": 24, "mean": 0.5}
    recalls = {(peers.OURS, 24): ours, ("OPQ", 24): opq, ("OPQ", 12): opq, ("signs", 24): opq}
    found = peers.differences([old, old | {"bytes": 48}], recalls, "OPQ", 24)
    assert [(one["less"], one["bytes"], one["mean"]) for one in found] == [("OPQ", 24, 0.375), ("OPQ", 48, 0.5)]
    assert len(peers.differences(found, recalls, peers.OURS, 24)) == 3


def test_seconds_of_a_busy_machine_are_left_out(load):
    page = load("shared.trellis_page")
    sizes = {"shared_bytes": 1000, "recall": 0.5, "interval": [0.4, 0.6], "by_seed": [0.5]}
    row = {"method": "OPQ", "seconds_to_learn": 30.0, "seconds_to_code": 2.0} | sizes
    rows = [row | {"bytes": 12}, row | {"bytes": 24, "load": 9.0}, row | {"bytes": 48, "load": 2.1}]
    machine = {"processor": "P", "cores": 2, "kernels": "avx2"}
    run = {"commit": "c", "date": "d", "options": {}}
    runs = [
        run | {"machine": machine | {"load": 7.0}, "rows": ["OPQ, 12 bytes", "OPQ, 48 bytes"]},
        run | {"machine": machine | {"load": 1.0}, "rows": ["OPQ, 24 bytes"]},
    ]
    measured = {"rows": rows, "runs": runs, "missing": ["OPQ, 96 bytes"], "differences": [], "entries": 9000}
    report = {"script": "trellis_peers.py", "options": {"set": "few"}, "measured": measured}

    def text():
        return page.blocks({"trellis/few": report})["peers"]

    assert "| 1.0 | 30; 2.0 |" in text()
    assert text().endswith("Not measured yet: OPQ, 96 bytes.")
    rows[2]["load"] = 9.0
    assert "| 1.0 |  |" in text()


def test_codes_of_peers_are_ranked_by_their_reconstructions(load):
    pytest.importorskip("faiss")
    codes, peers = load("shared.codes"), load("trellis_peers")
    rng = np.random.default_rng(0)
    entries = codes.unit(rng.standard_normal((400, 32)) * np.geomspace(1, 0.2, 32) + 0.1)
    queries = codes.unit(entries[:20] + 0.1 * rng.standard_normal((20, 32)))
    truth = codes.best(queries, entries, 10)
    assert (truth == np.argsort(-(queries @ entries.T), axis=1, kind="stable")[:, :10]).all()
    options = argparse.Namespace(opq_rounds=2, beam=2)
    whole = codes.decoded(lambda *_: (lambda signals: signals, 8), entries, entries, queries, 4, 0, options)
    assert peers.per_query(whole["found"], truth).min() == 1
    assert whole["shared_bytes"] == 8 + 4 * 32
    found = {}
    for method in ("trellis, hadamard", "adaptive", "signs", "PCA + ITQ"):
        coded = codes.METHODS[method](entries, entries, queries, 4, 0, options)
        found[method] = peers.per_query(coded["found"], truth)[0]
        # Ten of 400 by chance would be 0.025.
        assert found[method].mean() > 0.25, method
    row, recalls = peers.row("signs", 4, {0: (np.stack([found["signs"]] * 2), whole), 1: (np.ones((2, 20)), whole)})
    assert row["recall"] == recalls.mean() == pytest.approx((found["signs"].mean() + 1) / 2)
    assert row["by_seed"] == [pytest.approx(found["signs"].mean()), 1]
