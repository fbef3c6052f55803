"""Commands for indexes, used as a user would."""

import ast
import csv
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from folders import column_places, flip
from typer.testing import CliRunner

import topsign as ts
from topsign.cli import app
from topsign.families import Recipe

N_FEATURES = 128
CODES = "--family adaptive --n-bits 32 --random-state 7"


@pytest.fixture
def folder(tmp_path, monkeypatch, rng):
    """Working folder: signals, and queries that are noisy copies of rows 42 and 7."""
    monkeypatch.chdir(tmp_path)
    signals = rng.standard_normal((300, N_FEATURES)).astype(np.float32)
    np.save("signals.npy", signals)
    np.save("queries.npy", signals[[42, 7]] + 0.5 * rng.standard_normal((2, N_FEATURES)).astype(np.float32))
    return tmp_path


def run(command, *, code=0):
    result = CliRunner(env={"COLUMNS": "150", "NO_COLOR": "1", "TERM": "dumb"}).invoke(app, command.split())
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.replace("│", " ").split())


@pytest.fixture
def built(folder):
    run("build signals.npy -o a.topsign --family adaptive --n-bits 32 --random-state 7")
    return folder


def test_build_search_remove_verify(built):
    index = ts.open_index("a.topsign")
    assert (len(index), index.recipe.n_bits, index.recipe.seed) == (300, 32, 7)
    memory = ts.Index(N_FEATURES, family="adaptive", n_bits=32, random_state=7)
    memory.add(np.load("signals.npy"))
    expected = memory.search(np.load("queries.npy"), k=3)
    rows = json.loads(run("search a.topsign queries.npy -k 3 --json"))
    assert [row["id"] for row in rows] == expected.ids.ravel().tolist()
    assert [row["p_value"] for row in rows] == expected.p_values.ravel().tolist()
    assert [(row["query"], row["rank"]) for row in rows] == [(q, r) for q in (0, 1) for r in (1, 2, 3)]
    assert "a.topsign: 1 removed, 299 entries left" in run("remove a.topsign 42")
    assert 42 not in [row["id"] for row in json.loads(run("search a.topsign queries.npy --json"))]
    assert "a.topsign: sound: 299 entries" in run("verify a.topsign")
    assert "1 removed entries freed, 299 entries in" in run("compact a.topsign")
    assert ts.open_index("a.topsign").get([7]).codes == memory.get([7]).codes


def test_search_formats(built):
    table = run("search a.topsign queries.npy -k 1")
    assert "query rank id score distance p_value e_value 0 1 42" in table
    run("search a.topsign queries.npy -k 1 --scoring hamming -o near.csv")
    lines = Path("near.csv").read_text().split()
    assert lines[0] == "query,rank,id,score,distance,p_value,log10_p_value,e_value"
    assert [line.split(",")[2] for line in lines[1:]] == ["42", "7"]
    run("search a.topsign queries.npy --false-alarm 1e-3 -o found.json")
    assert [row["id"] for row in json.loads(Path("found.json").read_text())] == [42, 7]
    run("search a.topsign queries.npy -k 2 -o found.parquet --with-metadata")
    import pyarrow.parquet as parquet

    found = parquet.read_table("found.parquet").to_pydict()
    assert [found["id"][0], found["id"][2], found["metadata"]] == [42, 7, 4 * ["null"]]
    np.save("noise.npy", np.random.default_rng(1).standard_normal((1, N_FEATURES)))
    assert "no matches" in run("search a.topsign noise.npy --false-alarm 1e-9")


def test_scores_without_a_null_are_shown_without_p_values(folder):
    """Trellis codes have p-values only after a calibration: JSON has null, not NaN, and the table a hint."""
    run("build signals.npy -o t.topsign --n-bytes 8 --basis hadamard")
    shown = run("search t.topsign queries.npy -k 1")
    assert "query rank id score distance 0 1 42" in shown
    assert "calibrate first" in shown
    refuse = partial(json.loads, parse_constant=pytest.fail)
    (row, _) = refuse(run("search t.topsign queries.npy -k 1 --json"))
    assert (row["p_value"], row["e_value"]) == (None, None)
    run("search t.topsign queries.npy -k 1 -o t.csv")
    assert Path("t.csv").read_text().split()[1].endswith(",,,")
    np.save("impostors.npy", np.random.default_rng(2).standard_normal((200, N_FEATURES)))
    learned = refuse(run("calibrate t.topsign impostors.npy --json"))
    assert learned["searches"] == 200
    assert "p_value e_value" in run("search t.topsign queries.npy -k 1")


def test_trellis_codes_are_deduplicated_at_a_rate_once_calibrated(folder):
    np.save("signals.npy", np.vstack([np.load("signals.npy"), np.load("signals.npy")[:2]]))
    run("build signals.npy -o t.topsign --n-bytes 32 --basis hadamard")
    assert "or a calibrated index" in run("dedupe t.topsign", code=2)
    assert "--correlation has no effect on trellis codes" in run("inspect t.topsign --correlation 0.3", code=2)
    np.save("impostors.npy", np.random.default_rng(2).standard_normal((200, N_FEATURES)))
    run("calibrate t.topsign impostors.npy")
    run("dedupe t.topsign --false-alarm 0.5 -o groups.json")
    assert [row["id"] for row in json.loads(Path("groups.json").read_text())] == [0, 300, 1, 301]


def test_queries_are_numbered_through_the_files(built):
    """The first file has ten queries, so the second begins with query 10."""
    signals = np.load("signals.npy")
    noise = np.random.default_rng(5).standard_normal((10, N_FEATURES)).astype(np.float32)
    noise[3] = signals[42]
    (built / "asked").mkdir()
    np.save("asked/a.npy", noise)
    np.save("asked/b.npy", signals[[7, 8]])
    rows = json.loads(run("search a.topsign asked --false-alarm 1e-6 --json"))
    assert [(row["query"], row["id"]) for row in rows] == [(3, 42), (10, 7), (11, 8)]


def test_tables_bring_ids_and_metadata(folder, monkeypatch):
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    signals = np.load("signals.npy")
    table = {"doc": [f"d{i}" for i in range(300)], "x": signals.tolist(), "year": [2000 + i for i in range(300)]}
    (folder / "docs").mkdir()
    for part in range(3):
        rows = slice(100 * part, 100 * part + 100)
        parquet.write_table(arrow.table({n: v[rows] for n, v in table.items()}), f"docs/{part}.parquet")
    monkeypatch.setattr(sys.modules["topsign.cli.entries"], "CHUNK_ROWS", 40)
    run(
        "build docs --id-column doc --vector-column x --metadata-columns year -o d.topsign --family adaptive "
        "--n-bits 32 --random-state 7"
    )
    index = ts.open_index("d.topsign")
    assert (len(index), index["d42"].metadata) == (300, {"year": 2042})
    rows = json.loads(run("search d.topsign queries.npy -k 1 --json --with-metadata"))
    assert [(row["id"], row["metadata"]) for row in rows] == [("d42", {"year": 2042}), ("d7", {"year": 2007})]
    result = CliRunner().invoke(app, ["search", "d.topsign", "queries.npy", "-k", "1", "--where", "year >= 2300"])
    assert "no matches" in result.output
    assert run("list d.topsign --limit 2") == "d0 d1"
    assert json.loads(run("get d.topsign d42")) == {"id": "d42", "metadata": {"year": 2042}}
    assert "1 removed, 299 entries left" in run("remove d.topsign d42")
    assert "the ids of this index are texts, got no ids" in run("add d.topsign signals.npy", code=2)
    shown = run("add d.topsign docs/0.parquet --id-column doc --vector-column x --metadata-columns year --upsert")
    assert "d.topsign: 300 entries" in shown
    assert "must be in the index, but zz is not" in run("get d.topsign zz", code=2)
    assert "has no column 'nothing'; it has doc, x, year" in run("build docs --id-column nothing -o e.topsign", code=2)


def sparse_texts(codes):
    """Return codes in pgvector's sparsevec syntax, from their sparse matrix."""
    rows = [codes.to_sparse()[[row]].tocoo() for row in range(len(codes))]
    texts = [",".join(f"{at + 1}:{int(sign)}" for at, sign in zip(row.col, row.data, strict=True)) for row in rows]
    return [f"{{{text}}}/{codes.n_pool}" for text in texts]


def test_exports_lose_nothing(built):
    run("remove a.topsign 0 17")
    index = ts.open_index("a.topsign")
    expected = index.get(index.ids).codes
    for form in ("codes", "bits", "sparse"):
        assert "298 entries" in run(f"export a.topsign -o {form}.npz --form {form}")
        with np.load(f"{form}.npz") as stored:
            np.testing.assert_array_equal(stored["ids"], index.ids)
            assert form == "sparse" or len(stored[form]) == 298
    with np.load("codes.npz") as stored:
        codes = dict(stored)
    recipe = Recipe.from_json(json.loads(str(codes["recipe"])), "codes.npz")
    assert recipe.codes_type(codes["codes"], recipe=recipe) == expected
    with np.load("bits.npz") as stored:
        np.testing.assert_array_equal(stored["bits"], expected.to_bits())
    assert abs(scipy.sparse.load_npz("sparse.npz") - expected.to_sparse()).sum() == 0
    for form in ("codes", "bits", "sparse"):
        assert "298 entries" in run(f"export a.topsign -o {form}.parquet --form {form}")
        table = ts.export.read_parquet(f"{form}.parquet")
        np.testing.assert_array_equal(table.entries.ids, index.ids)
        assert table.entries.codes == expected
    bits = np.unpackbits(expected.to_bits(), axis=1, count=2 * expected.n_pool, bitorder="little")
    for form, texts in (("bits", ["".join(map(str, row)) for row in bits]), ("sparse", sparse_texts(expected))):
        run(f"export a.topsign -o {form}.csv --form {form}")
        with open(f"{form}.csv") as file:
            rows = list(csv.reader(file))
        assert rows[0] == ["id", form]
        assert rows[1:] == [[str(id), text] for id, text in zip(index.ids, texts, strict=True)]


def test_resume_goes_on_without_duplicates(folder, monkeypatch):
    monkeypatch.setattr(sys.modules["topsign.cli.entries"], "CHUNK_ROWS", 40)
    plain_add, calls = ts.Index.add, []

    def interrupted_add(self, *arguments, **options):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return plain_add(self, *arguments, **options)

    monkeypatch.setattr(ts.Index, "add", interrupted_add)
    shown = run("build signals.npy -o a.topsign --family adaptive --n-bits 32 --random-state 7", code=130)
    assert (
        "interrupted: 120 of 300 signals are stored; continue with: topsign build signals.npy -o a.topsign --res"
        in shown
    )
    assert "was started with n_bits=32, got n_bits=31; omit those" in run(
        "build signals.npy -o a.topsign --resume --n-bits 31", code=2
    )
    assert "300 entries" in run("build signals.npy -o a.topsign --resume")
    assert "300 entries" in run("build signals.npy -o a.topsign --resume")  # nothing is left to do
    memory = ts.Index(N_FEATURES, family="adaptive", n_bits=32, random_state=7)
    memory.add(np.load("signals.npy"))
    assert ts.open_index("a.topsign").get(range(300)).codes == memory.get(range(300)).codes
    np.save("signals.npy", np.load("signals.npy")[::-1])
    assert "changed since this build started: its first or last" in run(
        "build signals.npy -o a.topsign --resume", code=2
    )
    np.save("signals.npy", np.load("signals.npy")[:10])
    assert "its shape differs: [300, 128] then, [10, 128] now" in run("build signals.npy -o a.topsign --resume", code=2)


def test_a_resumed_build_reads_the_columns_of_the_first(tmp_path, monkeypatch, rng):
    """Otherwise some entries have other metadata than the rest, and ids of another kind."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["topsign.cli.entries"], "CHUNK_ROWS", 10)
    columns = {"doc": [f"d{row}" for row in range(30)], "year": 30 * [2020], "x": list(rng.standard_normal((30, 16)))}
    parquet.write_table(arrow.table(columns), "t.parquet")
    plain_add, calls = ts.Index.add, []

    def interrupted_add(self, *arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return plain_add(self, *arguments, **options)

    monkeypatch.setattr(ts.Index, "add", interrupted_add)
    start = "build t.parquet -o a.topsign --family grouped --n-bytes 2 --id-column doc --metadata-columns year"
    shown = run(start, code=130)
    again = "build t.parquet -o a.topsign --resume --id-column doc --metadata-columns year"
    assert f"10 of 30 signals are stored; continue with: topsign {again}" in shown
    for other in ("--id-column doc", "--metadata-columns year", "--id-column doc --metadata-columns year,doc"):
        shown = run(f"build t.parquet -o a.topsign --resume {other}", code=2)
        assert "t.parquet was read with other options, columns: ['doc', 'year'] then, [" in shown
        assert len(ts.open_index("a.topsign")) == 10
    assert "30 entries" in run(again)
    assert ts.open_index("a.topsign").get(["d29"]).metadata == [{"year": 2020}]


def test_a_resumed_build_that_fails_deletes_nothing(folder):
    """The index was there before, with what its owner has put into its folder."""
    ts.Index(N_FEATURES, family="grouped", n_bytes=4, path="a.topsign").close()
    Path("a.topsign/notes.txt").write_text("mine")
    np.save("signals.npy", np.full((3, N_FEATURES), np.nan))
    assert "signals.npy: NaN or infinity in signals" in run("build signals.npy -o a.topsign --resume", code=2)
    assert Path("a.topsign/notes.txt").read_text() == "mine"
    assert len(ts.open_index("a.topsign")) == 0


@pytest.fixture
def interruptible():
    """Let SIGINT interrupt this process and its children, even if a background shell has set it to be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_in_a_finalizer_is_not_lost(folder, monkeypatch, interruptible):
    class Dropped:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    plain_add, dropped = ts.Index.add, [Dropped()]

    def add(self, *arguments, **options):
        dropped.clear()
        return plain_add(self, *arguments, **options)

    monkeypatch.setattr(sys.modules["topsign.cli.entries"], "CHUNK_ROWS", 40)
    monkeypatch.setattr(ts.Index, "add", add)
    shown = run("build signals.npy -o a.topsign --family adaptive --n-bits 32 --random-state 7", code=130)
    assert "interrupted: 40 of 300 signals are stored; continue with: topsign build" in shown


def test_sigint_keeps_what_was_built(folder, rng, interruptible):
    """A process is interrupted by SIGINT, then resumed, then verified."""
    np.save("many.npy", rng.standard_normal((40_000, N_FEATURES)).astype(np.float32))
    program = "import sys, topsign.cli; sys.modules['topsign.cli.entries'].CHUNK_ROWS = 20; topsign.cli.main()"
    command = [sys.executable, "-c", program, *f"build many.npy -o m.topsign {CODES}".split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as building:
        while not os.path.exists("m.topsign") or len(ts.open_index("m.topsign", readonly=True)) == 0:
            assert building.poll() is None
            time.sleep(0.01)
        building.send_signal(signal.SIGINT)
        _, complaints = building.communicate(timeout=300)
    assert building.returncode == 130
    assert "of 40,000 signals are stored; continue with: topsign build many.npy -o m.topsign --resume" in complaints
    assert "Traceback" not in complaints
    assert 0 < len(ts.open_index("m.topsign")) < 40_000
    assert "40,000 entries" in run("build many.npy -o m.topsign --resume")
    run("verify m.topsign")
    memory = ts.Index(N_FEATURES, family="adaptive", n_bits=32, random_state=7)
    memory.add(np.load("many.npy"))
    assert ts.open_index("m.topsign").get(range(40_000)).codes == memory.get(range(40_000)).codes


def test_damage_is_reported_with_exit_code_1(built, monkeypatch):
    monkeypatch.setattr("topsign.store.stored_columns.INLINE_BYTES", 0)
    run("build signals.npy -o large.topsign --family adaptive --n-bits 32 --random-state 7")
    place = next((file, place) for (file, name), place in column_places("large.topsign").items() if name == "codes")
    file, (offset, size) = place
    flip(file, offset + size // 2, 1)
    assert f"segments/{file.name}, codes: damaged: checksum" in run("verify large.topsign", code=1)
    assert f"segments/{file.name}, codes: damaged" in run("search large.topsign queries.npy", code=1)
    with open(file, "r+b") as opened:
        opened.truncate(900)
    assert "bytes expected, 900 found" in run("verify large.topsign", code=1)


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("build nothing.npy -o b.topsign", 2, "nothing.npy does not exist"),
        ("build signals.npy -o a.topsign", 2, "a.topsign exists; use --resume to continue it"),
        ("build signals.npy --n-bytes 8 -o no/where/b.topsign", 1, "does not exist; create it first"),
        ("build signals.npy -o b.topsign --family sign --n-bits 9", 2, "family='sign' takes n_bytes"),
        ("build signals.npy -o b.topsign --segment-entries 5", 2, "--segment-entries goes with --scheduler"),
        ("build signals.npy -o a.topsign --resume --center", 2, "started with center=False, got center=True"),
        ("add a.topsign signals.npy --ids few.npy", 2, "one per signal, got 2 ids for 300 signals"),
        ("add a.topsign signals.npy --timeout 1 --scheduler local", 2, "--timeout has no effect with --scheduler"),
        ("search a.topsign queries.npy -k 3 --false-alarm 0.1", 2, "-k has no effect with --false-alarm"),
        ("search a.topsign queries.npy --force", 2, "--force goes with --false-alarm"),
        (
            "search a.topsign queries.npy --threshold 1 --false-alarm .1",
            2,
            "give --false-alarm or --threshold, not both",
        ),
        ("inspect --correlation .1", 2, "--correlation, --version and --scheduler go with an INDEX"),
        ("regions a.topsign --check queries.npy", 2, "a.topsign has no regions to check"),
        ("reproduce roc --seeds 5", 2, "--seeds has no effect on roc"),
        ("reproduce errata --quick", 2, "--quick has no effect on errata, which draws nothing"),
        ("calibrate a.topsign --vector-column x", 2, "--vector-column goes with IMPOSTORS"),
        ("plan --recall .9 --correlation .1", 2, "--correlation has no effect with --recall"),
        ("plan --recall .9 --plot p.png", 2, "--plot has no effect with --recall"),
        ("plan --correlation .1 --n-bytes 8", 2, "--n-bytes goes with --recall"),
        ("plan --recall .9 --costs c.json --n-entries nan", 2, "--costs: cannot read c.json"),
        ("plan --correlation .1 --plot p.txt", 2, "--plot must be one of .png, .svg, .pdf, got p.txt"),
        ("evaluate signals.npy --page signals.npy", 2, "--page: signals.npy cannot be made: File exists"),
        ("remove a.topsign --ids words.txt", 2, "the ids of this index are integers in [0, 2**63), got 'one'"),
        ("get a.topsign 9223372036854775808", 2, "integers in [0, 2**63), got '9223372036854775808'"),
        ("build lengths -o b.topsign --family sign", 2, "2.npy has signals of 127 features"),
        ("evaluate lengths", 2, "2.npy has signals of 127 features"),
        ("calibrate a.topsign lengths", 2, "2.npy has signals of 127 features"),
        ("dedupe a.topsign -o g.txt --scheduler local", 2, "--output must be one of .parquet, .csv, .json, got g.txt"),
        ("dedupe a.topsign --false-alarm .5 --threshold .9", 2, "give --false-alarm or --threshold, not both"),
        ("regions a.topsign --check queries.npy --n-regions 9", 2, "--n-regions has no effect with --check"),
        ("remove a.topsign 9999", 2, "9999 is not"),
        ("export a.topsign -o codes.csv", 2, "a .csv file holds text: use --form bits or --form sparse"),
        pytest.param(
            *("verify a.topsign --scheduler tcp://127.0.0.1:1", 1, "no scheduler answers at tcp://127.0.0.1:1"),
            marks=pytest.mark.slow,  # it waits for ten seconds
        ),
    ],
)
def test_mistakes_are_explained_without_a_traceback(built, command, code, words):
    np.save("few.npy", [1, 2])
    Path("words.txt").write_text("7\none\n")
    Path("lengths").mkdir()
    np.save("lengths/1.npy", np.load("signals.npy"))
    np.save("lengths/2.npy", np.load("signals.npy")[:, 1:])
    before = ts.open_index("a.topsign").ids
    assert words in run(command, code=code)
    np.testing.assert_array_equal(ts.open_index("a.topsign").ids, before)


@pytest.mark.parametrize("n_entries", ["nan", "inf", "2.5"])
def test_the_number_of_entries_is_whole(n_entries):
    code = "--correlation .1 --false-alarm .01 --n-features 512 --detection .9"
    assert f"--n-entries must be a whole number, got {n_entries}" in run(f"plan {code} --n-entries {n_entries}", code=2)


def test_integer_ids_are_read_from_text(built):
    """Ids in a text file have the type of the index's ids; an index without entries takes texts."""
    Path("ids.txt").write_text("700\n701\n")
    np.save("two.npy", np.load("signals.npy")[:2])
    run("add a.topsign two.npy --ids ids.txt")
    assert json.loads(run("list a.topsign --json"))[-2:] == [700, 701]
    assert "2 removed, 300 entries left" in run("remove a.topsign --ids ids.txt")
    assert "1 removed, 299 entries left" in run("remove a.topsign 7 7")
    ts.Index(N_FEATURES, family="grouped", n_bytes=8, path="empty.topsign").close()
    run("add empty.topsign two.npy --ids ids.txt")
    assert json.loads(run("list empty.topsign --json")) == ["700", "701"]


def strict_json(text):
    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.filterwarnings("ignore:axes of 128 features")
@pytest.mark.parametrize("options", ["--family trellis --n-bytes 8", "--family grouped --n-bytes 8"])
@pytest.mark.parametrize("n_entries", [0, 300])
def test_results_are_strict_json(folder, options, n_entries):
    """Without entries, p-values or calibration, unknown numbers are null."""
    run(f"build signals.npy -o i.topsign {options} --originals float16")
    if not n_entries:
        with ts.open_index("i.topsign") as index:
            index.remove(index.ids)
    limit = "--threshold 0.3" if "trellis" in options else "--false-alarm 0.1"
    for command in (
        "search i.topsign queries.npy -k 400",
        f"search i.topsign queries.npy {limit}",
        "list i.topsign",
        "inspect i.topsign",
        "verify i.topsign",
        "regions i.topsign",
        f"dedupe i.topsign {limit}",
        "export i.topsign -o i.parquet",
        "compact i.topsign",
    ):
        found = CliRunner().invoke(app, [*command.split(), "--json"])
        assert found.exit_code == 0, found.output
        strict_json(found.stdout)
    rows = strict_json(CliRunner().invoke(app, ["search", "i.topsign", "queries.npy", "--json"]).stdout)
    assert len(rows) == min(20, 2 * n_entries)
    assert {row["p_value"] is None for row in rows} == ({"trellis" in options} if rows else set())


def test_sources_of_python_are_not_resumed(folder):
    """Such sources say nothing about files, and one with the name of a file is refused."""
    with ts.Index(N_FEATURES, family="grouped", n_bytes=8, path="p.topsign") as index:
        index.add(np.load("signals.npy")[:5], source=("page 1", {"url": "x"}))
        assert "p.topsign: 305 entries" in run("build signals.npy -o p.topsign --resume")
        np.save("more.npy", np.load("signals.npy")[:9])
        index.refresh()
        index.add(np.load("more.npy")[:5], source=("more.npy", {"page": 1}))
    assert "is a source of this index that topsign build did not add" in run(
        "build more.npy -o p.topsign --resume", code=2
    )
    assert len(ts.open_index("p.topsign")) == 310


def test_an_index_is_known_by_its_content_not_by_its_name(built):
    Path("a.topsign").rename("folder")
    assert "of 300 entries in " in run("dedupe folder")
    found = json.loads(CliRunner().invoke(app, ["dedupe", "folder", "--json"]).stdout)
    assert found["entries"] == 300
    assert found["grouped"] == sum(map(len, found["groups"]))


@pytest.mark.slow
def test_commands_import_only_what_they_need(built):
    """Lists of modules, not seconds: these are most of the time of a short command."""
    slow = [
        "numpy",
        "scipy",
        "scipy.special",
        "scipy.interpolate",
        "sklearn",
        "distributed",
        "pyarrow",
        "rich.console",
        "rich.progress",
    ]
    run("build signals.npy -o t.topsign --n-bytes 8 --basis hadamard")
    lines = {
        "--version": set(),
        "--help": {"rich.console"},
        "search t.topsign queries.npy -k 1": {"numpy", "scipy"},
        "search a.topsign queries.npy -k 1": {"numpy", "scipy", "scipy.special"},
        "list a.topsign --limit 1": {"numpy", "scipy"},
    }
    for line, allowed in lines.items():
        program = f"""
import sys, atexit
atexit.register(lambda: print([name for name in {slow} if name in sys.modules], file=sys.stderr))
sys.argv = ["topsign", *{line.split()}]
from topsign.cli import main
main()
"""
        shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert shown.returncode == 0, shown.stderr
        assert set(ast.literal_eval(shown.stderr.splitlines()[-1])) <= allowed, line
