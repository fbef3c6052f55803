"""Regions: assignment of entries, selection by searches, and the recall they reach."""

import pickle
import shutil
import sys
import threading
import weakref

import numpy as np
import pytest
import reference
from folders import content_of, pack, read_manifest, store, unpack, write_manifest
from small import visit_regions

import topsign as ts
from topsign import kernels
from topsign.errors import StorageError
from topsign.families import unit_queries
from topsign.index.entries import LocalEntries
from topsign.search import recall as region_search
from topsign.search.recall import (
    CANDIDATES,
    N_STRATA,
    NEVER,
    RecallCalibration,
    Setting,
    coarse_path,
    found_from,
    merge_strata,
    region_path,
)
from topsign.search.regions import Regions, automatic_regions, k_means, shared_out
from topsign.store import memory

N_FEATURES = 32

pytestmark = pytest.mark.filterwarnings("ignore::topsign.errors.CalibrationWarning")  # clusters correlate


def clustered(n, seed=0, noise=0.5, n_clusters=60):
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((n_clusters, N_FEATURES))
    labels = rng.integers(n_clusters, size=n)
    return (centres[labels] + noise * rng.standard_normal((n, N_FEATURES))).astype(np.float32)


FAMILIES = {
    "trellis": lambda **place: ts.Index(N_FEATURES, n_bytes=6, random_state=7, **place),
    "trellis norms": lambda **place: ts.Index(N_FEATURES, n_bytes=6, metric="inner_product", random_state=7, **place),
    "adaptive": lambda **place: ts.Index(N_FEATURES, family="adaptive", n_bits=8, center=True, random_state=7, **place),
    "adaptive norms": lambda **place: ts.Index(
        N_FEATURES, family="adaptive", n_bits=12, n_pool=48, metric="inner_product", random_state=7, **place
    ),
    "grouped": lambda **place: ts.Index(N_FEATURES, family="grouped", n_bytes=4, random_state=7, **place),
    "sign": lambda **place: ts.Index(N_FEATURES, family="sign", n_bytes=N_FEATURES // 8, random_state=7, **place),
}


@pytest.fixture(scope="module", params=FAMILIES)
def built(request):
    """An index of several segments with removed entries, and queries."""
    index = FAMILIES[request.param]()
    signals = clustered(4000)
    rng = np.random.default_rng(3)
    ids = rng.permutation(4000)
    for part in (slice(0, 2600), slice(2600, 3700), slice(3700, 4000)):
        index.add(signals[part], ids=ids[part])
    index.learn_regions(n_regions=64)
    index.remove(ids[::7])
    return index, clustered(40, seed=5)


def test_one_call_finds_what_single_steps_find(built, monkeypatch):
    """A search in one native call equals the choice of regions, visits, and exact comparison, as clusters do them."""
    index, queries = built
    searches = [{"recall": 0.8}, {"recall": 0.9}, {"recall": 0.9999}, {"recall": 0.9, "among": index.ids[::3]}]
    expected = [index.search(queries, 10, **options) for options in searches]
    monkeypatch.setattr(LocalEntries, "local_regions", lambda *_: None)
    for before, options in zip(expected, searches, strict=True):
        found = index.search(queries, 10, **options)
        for name in ("ids", "scores", "distances", "visited", "recall", "exhaustive"):
            assert np.array_equal(getattr(found, name), getattr(before, name)), name


def test_entries_are_in_the_order_of_their_regions(built):
    index, _ = built
    index = pickle.loads(pickle.dumps(index))
    index.add(clustered(500, seed=9))
    for _ in range(2):  # in each segment, and among all after compaction
        for segment in index._store.snapshot.segments:
            regions, ids = segment.columns.extra("regions"), segment.ids
            assert np.array_equal(np.lexsort((ids, regions)), np.arange(len(ids)))
            assert np.array_equal(segment.position(ids[segment.living]), np.flatnonzero(segment.living))
        index.compact()
    regions = np.concatenate([segment.columns.extra("regions") for segment in index._store.snapshot.segments])
    assert (np.diff(regions.astype(int)) >= 0).all()
    assert np.array_equal(index.get(index.ids[::50]).ids, index.ids[::50])


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("n_regions", [16, 128])
def test_a_search_takes_entries_and_regions_of_one_version(stored, n_regions, monkeypatch, tmp_path):
    """Regions are learned again by another thread after a search has taken its entries."""
    index = FAMILIES["grouped"](**({"path": tmp_path / "index"} if stored else {}))
    index.add(clustered(3000))
    index.learn_regions(n_regions=64)
    queries, plain = clustered(20, seed=5), LocalEntries.filtered
    expected = index.search(queries, 5, recall=0.9)

    def filtered(entries, *arguments, **options):
        monkeypatch.undo()
        index.learn_regions(n_regions=n_regions, random_state=1)
        return plain(entries, *arguments, **options)

    monkeypatch.setattr(LocalEntries, "filtered", filtered)
    found = index.search(queries, 5, recall=0.9)
    assert index.regions.n_regions == n_regions
    assert np.array_equal(found.ids, expected.ids)
    assert np.array_equal(found.visited, expected.visited)


def test_segments_are_written_while_regions_are_learned(tmp_path, monkeypatch):
    """Rewritten entries and their originals are not held in memory until the end."""
    index = FAMILIES["grouped"](path=tmp_path / "index", originals="float32")
    index.add(clustered(4000))
    index._store.segment_entries = 500
    made, held, plain = [], [], memory.take_entries

    def take(*arguments):
        held.append(sum(earlier() is not None for earlier in made))
        segment = plain(*arguments)
        made.append(weakref.ref(segment.columns))
        return segment

    monkeypatch.setattr(memory, "take_entries", take)
    index.learn_regions(n_regions=16)
    assert len(held) == index.info["segments"] >= 8
    assert held == len(held) * [0]


@pytest.mark.parametrize("name", ["trellis", "grouped", "adaptive"])
def test_concurrent_first_visits_find_what_later_ones_find(name, monkeypatch):
    """Nothing that threads share is seen before it is complete."""
    index, queries = FAMILIES[name](), clustered(2, seed=4)
    parts = np.array_split(clustered(3000), [1500, 2200, 2700, 2900, 2970])
    index.add(parts[0])
    index.learn_regions(n_regions=16)
    for part in parts[1:]:
        index.add(part)
    assert index.info["segments"] > 3
    visit_regions(monkeypatch, 2)
    expected = index.search(queries, 5, recall=0.9).ids
    found, barrier, interval = [], threading.Barrier(4), sys.getswitchinterval()

    def search():
        barrier.wait()
        found.append(index.search(queries, 5, recall=0.9).ids)

    sys.setswitchinterval(1e-6)
    try:
        for _ in range(150):
            snapshot = index._store.snapshot
            for cache in (snapshot.derived, *(segment.columns.derived for segment in snapshot.segments)):
                cache.clear()  # as after opening
            threads = [threading.Thread(target=search) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(found) == 600
    assert all(np.array_equal(ids, expected) for ids in found)


@pytest.mark.parametrize("path", kernels.available())
@pytest.mark.parametrize(("n_queries", "n_rows", "width"), [(1, 1, 64), (3, 100, 128), (17, 33, 448)])
def test_products_of_bytes_are_exact(path, n_queries, n_rows, width):
    rng = np.random.default_rng(0)
    queries = rng.integers(-127, 128, (n_queries, width)).astype(np.int8)
    rows = rng.integers(0, 128, (n_rows, width)).astype(np.uint8)
    queries[0], rows[0] = -127, 127
    with kernels.use(path) as chosen:
        found = chosen.byte_products(queries, rows)
    assert np.array_equal(found, queries.astype(np.int64) @ rows.astype(np.int64).T)


@pytest.mark.parametrize("of_signals", [False, True])
def test_settings_follow_the_rule_of_risk_control(of_signals):
    rng = np.random.default_rng(0)
    path = region_path(300)
    found = rng.integers(0, len(path) + 3, (500, 100)).clip(0, len(path)).astype(np.uint8)
    found[found == len(path)] = NEVER
    ranks = (rng.integers(0, 400, (500, 100)) * of_signals).astype(np.uint16)
    strata = rng.choice(N_STRATA, 500, p=[0.02, 0.18, 0.2, 0.2, 0.2, 0.2]).astype(np.uint8)
    known = RecallCalibration(
        generation=1, of_signals=of_signals, own=True, path=path, coarse=coarse_path(path, 300, 17),
        candidates=np.arange(10, 10 + len(path)) * of_signals, edges=np.arange(N_STRATA - 1.0), least=0.0,
        strata=strata, found=found, code_ranks=ranks, entries=np.cumsum(rng.random((N_STRATA, len(path))), axis=1),
    )  # fmt: skip
    for k, asked in ((1, 0.5), (10, 0.8), (10, 0.85), (100, 0.9), (10, 0.999)):
        for stratum, (setting, whole) in enumerate(known.settings(k, asked)):
            rule = strata.tolist(), stratum
            expected = reference.least_setting(found[:, :k].tolist(), *rule, len(path), asked)
            assert (None if setting is None else path.tolist().index(setting.n_regions)) == expected
            if setting is not None:
                assert setting.n_entries == int(np.ceil(known.entries[stratum, expected]))
                assert setting.n_coarse == known.coarse[expected]
                assert setting.recall_low < setting.recall
            if not of_signals:
                assert (whole.recall, whole.n_candidates) == (1, 0)
                continue
            tried = [one for one in CANDIDATES.tolist() if one >= k]
            needed = np.searchsorted(tried, ranks[:, :k], side="right")
            expected = reference.least_setting(needed.tolist(), *rule, len(tried), asked)
            assert (None if whole is None else tried.index(whole.n_candidates)) == expected
    other = RecallCalibration.from_table(known.to_table())
    assert other.settings(10, 0.8) == known.settings(10, 0.8)


def test_strata_of_few_queries_are_merged():
    counts = np.array([10, 90, 100, 100, 100, 100])
    for least, groups in ((1, [0, 1, 2, 3, 4, 5]), (50, [0, 0, 1, 2, 3, 4]), (234, 6 * [0]), (1e9, 6 * [0])):
        assert merge_strata(counts, least).tolist() == groups
    assert merge_strata(counts, 150).tolist() == [0, 0, 0, 1, 1, 1]  # the last stratum is left


def test_neighbours_count_from_the_setting_on_that_finds_them_for_good():
    found = np.array([[1, 0, 0, 0], [0, 1, 0, 1], [1, 1, 0, 0]], bool)
    assert found_from(found).tolist() == [2, 1, NEVER, NEVER]


def test_the_lower_bound_covers():
    rng = np.random.default_rng(0)
    for mean in (0.6, 0.95):
        bounds = [Setting(1, 0, 1, 0, rng.binomial(1, mean, 100).mean(), 100).recall_low for _ in range(400)]
        assert np.mean([bound > mean for bound in bounds]) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


def test_sizes():
    assert [automatic_regions(n) for n in (1, 20_000, 10**5, 10**6, 10**12)] == [64, 1024, 2048, 8192, 65_536]
    assert shared_out(np.array([10, 100, 1]), 12).tolist() == [1, 10, 1]
    assert shared_out(np.array([2, 3]), 50).tolist() == [2, 3]
    assert len(k_means(np.eye(4, dtype=np.float32), 9, 3, np.random.default_rng(0))) == 4


@pytest.fixture(scope="module", params=["trellis", "adaptive", "grouped", "sign"])
def learned(request):
    """Entries in regions, and held-out queries."""
    index = FAMILIES[request.param]()
    index.add(clustered(6000, noise=0.8))
    index.learn_regions(n_regions=128)
    return index, clustered(400, seed=8, noise=0.8)


def achieved(index, queries, k, asked, **options):
    some = index.search(queries, k, recall=asked, **options)
    exact = index.search(queries, k, **options)
    return np.array([np.isin(b, a).mean() for a, b in zip(some.ids, exact.ids, strict=True)]), some


@pytest.mark.parametrize("k", [1, 10, 100])
@pytest.mark.parametrize("asked", [0.9, 0.98])
def test_held_out_queries_reach_the_recall_asked_for(learned, k, asked):
    index, queries = learned
    recalls, some = achieved(index, queries, k, asked)
    assert recalls.mean() >= asked - 0.01 - 2 * recalls.std() / np.sqrt(len(recalls))
    assert (some.visited <= 1).all()
    assert (some.recall >= asked).all()
    assert (some.recall_low <= some.recall).all()
    assert some.recall_of == "codes"


def test_removal_filters_and_growth_keep_the_recall(learned):
    index, queries = pickle.loads(pickle.dumps(learned[0])), learned[1]
    rng = np.random.default_rng(0)
    for share in (0.5, 0.1):
        recalls, some = achieved(index, queries, 10, 0.9, among=rng.permutation(6000)[: int(6000 * share)])
        assert recalls.mean() >= 0.89
        assert np.isnan(some.recall_low[some.exhaustive == ""]).all()
    index.remove(rng.permutation(6000)[:4200])
    assert achieved(index, queries, 10, 0.9)[0].mean() >= 0.89
    index.add(clustered(9000, seed=20, noise=0.8))
    recalls, _ = achieved(index, queries, 10, 0.9)
    assert recalls.mean() >= 0.89
    assert index.regions.n_learned == 6000
    assert not index.regions.is_due
    index.add(clustered(15_000, seed=21, noise=0.8))
    assert index.regions.is_due


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.02, 0.04, 0.08])
def test_queries_of_a_rare_and_harder_kind_keep_the_recall(share):
    n, n_features, rng = 40_000, 64, np.random.default_rng(0)
    centres = rng.standard_normal((600, n_features))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    plane = np.linalg.qr(rng.standard_normal((n_features, 8)))[0].T

    def rare(count):
        """Signals on a sphere of 8 dimensions, whose neighbours are scattered; all others are in tight clusters."""
        signals = rng.standard_normal((count, 8))
        return (signals / np.linalg.norm(signals, axis=1, keepdims=True) @ plane).astype(np.float32)

    n_rare = int(share * n)
    noise = 0.3 / 8 * rng.standard_normal((n - n_rare, n_features))
    common = (centres[rng.integers(600, size=n - n_rare)] + noise).astype(np.float32)
    index = ts.Index(n_features, n_bytes=16, random_state=1)
    index.add(rng.permutation(np.concatenate([common, rare(n_rare)])))
    index.learn_regions()
    recalls, some = achieved(index, rare(400), 10, 0.95)
    assert recalls.mean() >= 0.95 - 0.03
    assert some.visited.mean() < 0.5


def test_single_queries_visit_few_entries(learned, monkeypatch):
    index, queries = learned
    some = index.search(queries[:1], 10, recall=0.9)
    assert some.exhaustive[0] == ""
    assert 0 < some.visited[0] < 0.4
    visit_regions(monkeypatch, 3)
    assert index.search(queries[:1], 10, recall=0.9).visited[0] < 0.2
    visit_regions(monkeypatch, 128)
    everything = index.search(queries[:1], 10, recall=0.9)
    assert everything.visited[0] == 1
    assert np.array_equal(everything.ids, index.search(queries[:1], 10).ids)


def test_distances_do_not_depend_on_what_becomes_of_the_queries(learned):
    index, queries = learned[0], learned[1][:2].copy()
    expected = index.search(queries, recall=0.9).distances
    found = index.search(queries, recall=0.9)
    assert (found.exhaustive == "").all()
    queries[:] = 0
    assert np.array_equal(found.distances, expected)


def test_results_say_why_all_entries_were_visited(learned):
    index, queries = learned
    plain = index.search(queries[:3])
    assert set(plain.exhaustive) == {"recall was not asked for"}
    assert plain.recall.tolist() == plain.visited.tolist() == plain.recall_low.tolist() == [1, 1, 1]
    strangers = np.random.default_rng(0).standard_normal((3000, N_FEATURES))
    regions = index._learned().regions.regions(index._store.now.tables)
    best = regions.fine.scores(unit_queries(index.recipe, strangers)[0]).max(axis=1)
    least = index._learned().regions.calibration(index._store.now.tables).least
    assert best.min() < least or index.family == "adaptive"  # coarse codes are close to all regions
    cases = {"the query is farther": (strangers[[best.argmin()]], {})} if best.min() < least else {}
    cases |= {
        "recall is calibrated for k up to 100": (queries[:1], {"k": 101}),
        "this recall needs more": (queries[:1], {"recall": 0.9999}),
        "few entries pass": (queries[:1], {"among": [1, 2, 3]}),
    }
    for reason, (asked, options) in cases.items():
        found = index.search(asked, **({"recall": 0.9} | options))
        assert found.exhaustive[0].startswith(reason), reason
        exact = index.search(asked, **{name: value for name, value in options.items() if name != "recall"})
        assert np.array_equal(found.ids, exact.ids)
    assert index.search(queries[:1], recall=0.9, among=[]).exhaustive[0].startswith("few entries pass")
    if best.min() < least:
        mixed = index.search(np.concatenate([queries[:1], strangers[[best.argmin()]]]), recall=0.9)
        assert (mixed.exhaustive == "").tolist() == [True, False]
        assert mixed.visited[1] == mixed.recall[1] == mixed.recall_low[1] == 1
    small = FAMILIES["sign"]()
    small.add(clustered(100))
    assert small.learn_regions() is None
    assert small.search(queries[:1], recall=0.9).exhaustive[0].startswith("fewer than 20,000 entries")


def test_a_folder_keeps_regions(tmp_path):
    signals, queries = clustered(5000), clustered(9, seed=4)
    index = FAMILIES["adaptive"](path=tmp_path / "a")
    index.add(signals[:3000])
    index.learn_regions(n_regions=64)
    index.add(signals[3000:])
    index.upsert(signals[:50], ids=np.arange(50))
    index.remove(np.arange(100, 400))
    before = index.search(queries, 10, recall=0.9)
    index.save(tmp_path / "b")
    index.verify()
    for other in (ts.open_index(tmp_path / "a"), ts.open_index(tmp_path / "b"), pickle.loads(pickle.dumps(index))):
        other.compact()
        found = other.search(queries, 10, recall=0.9)
        assert np.array_equal(found.ids, before.ids)
        assert np.array_equal(found.visited, before.visited)
        assert np.array_equal(other.search(queries, 10).ids, index.search(queries, 10).ids)
        assert np.array_equal(other.ids, index.ids)
        assert other.regions == index.regions


def test_regions_are_the_same_for_the_same_seed():
    tables = []
    for seed in (0, 0, 1):
        index = FAMILIES["trellis"]()
        index.add(clustered(3000))
        index.learn_regions(n_regions=40, random_state=seed)
        tables.append(index._store.now.tables["regions"]["means"])
    assert np.array_equal(tables[0], tables[1])
    assert tables[0].shape != tables[2].shape or not np.array_equal(tables[0], tables[2])


def test_calibration_entries_do_not_train_regions(monkeypatch):
    from topsign.index import regions

    seen = {}

    def spy(*arguments, **options):
        seen.update(options)
        return learn(*arguments, **options)

    learn = regions.learn_regions
    monkeypatch.setattr(regions, "learn_regions", spy)
    index = FAMILIES["sign"](originals="float32")
    index.add(clustered(3000))
    index.learn_regions(n_regions=32)
    assert len(np.unique(seen["left_out"])) == len(seen["left_out"]) == 750


@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
def test_with_originals_recall_is_of_exact_neighbours(kind, tmp_path):
    signals, queries = clustered(4000, noise=0.8), clustered(300, seed=8, noise=0.8)
    index = FAMILIES["trellis"](originals=kind)
    index.add(signals)
    index.learn_regions(n_regions=64)
    units, others = (
        one / np.linalg.norm(one, axis=1, keepdims=True) for one in (index.get(np.arange(4000)).signals, queries)
    )
    exact = np.argsort(-(others @ units.T), axis=1)[:, :10]
    found = index.search(queries, 10, recall=0.9)
    recalls = np.array([np.isin(b, a).mean() for a, b in zip(found.ids, exact, strict=True)])
    index.save(tmp_path / "a")
    opened = ts.open_index(tmp_path / "a")
    for _ in range(2):  # originals of candidates are verified when they are read, then all of them
        again = opened.search(queries, 10, recall=0.9)
        assert np.array_equal(again.ids, found.ids)
        assert np.array_equal(again.scores, found.scores)
        opened.verify()
    assert found.recall_of == "signals"
    assert recalls.mean() >= 0.89
    assert index.search(queries[:1], 10, recall=0.9).visited[0] < 1
    check = index.check(queries, recall=0.9).recall
    assert abs(check.achieved - recalls.mean()) < 0.005
    impossible = index.search(queries[:20], 10, recall=0.9999)
    assert np.array_equal(np.sort(impossible.ids), np.sort(exact[:20]))
    assert set(impossible.exhaustive) == {region_search.ALL_SIGNALS}
    for among in (np.arange(0, 4000, 3), np.arange(0, 4000, 80)):
        found = index.search(queries, 10, recall=0.9, among=among)
        own = among[np.argsort(-(others @ units[among].T), axis=1)[:, :10]]
        assert np.mean([np.isin(b, a).mean() for a, b in zip(found.ids, own, strict=True)]) >= 0.89
        assert len(among) > 100 or np.array_equal(np.sort(found.ids), np.sort(own))


def test_a_recall_beyond_regions_compares_codes_and_rescores_candidates(monkeypatch):
    """No originals but those of candidates are read."""
    index, queries = FAMILIES["trellis"](originals="float16"), clustered(50, seed=8, noise=0.8)
    index.add(clustered(4000, noise=0.8))
    index.learn_regions(n_regions=64)
    monkeypatch.setattr(LocalEntries, "nearest_signals", lambda *_: pytest.fail("all originals were read"))
    monkeypatch.setattr(region_search, "MOST_REGIONS", 0.01)
    index.learn_regions(n_regions=64)
    found = index.search(queries, 10, recall=0.93)
    assert set(found.exhaustive) == {region_search.TOO_MANY}
    assert (found.visited == 1).all()
    exact = index.search(queries, 10, rescore=1000)
    assert np.mean([np.isin(b, a).mean() for a, b in zip(found.ids, exact.ids, strict=True)]) > 0.9
    best = found.ids == exact.ids
    assert np.array_equal(found.scores[best], exact.scores[best])


def test_check_recall_compares_both_searches(learned):
    index, queries = learned
    check = index.check(queries, k=10, recall=0.9).recall
    recalls, some = achieved(index, queries, 10, 0.9)
    assert check.achieved == pytest.approx(recalls.mean())
    assert check.interval[0] <= check.achieved <= check.interval[1]
    assert check.visited == pytest.approx(some.visited.mean())
    assert "asked 0.900" in str(check)
    assert index.check(recall=0.9).recall.achieved >= 0.88  # entries, left out of their own results


def test_real_queries_calibrate(learned):
    index, queries = pickle.loads(pickle.dumps(learned[0])), learned[1]
    n_regions = index.regions.n_regions
    assert index.learn_regions(queries[:200], n_regions=n_regions).n_queries == 200
    assert index.learn_regions(n_regions=n_regions).n_queries == 1500  # entries, whose codes are decoded
    with pytest.raises(ValueError, match="number of queries"):
        index.learn_regions(queries[:199], n_regions=n_regions)


def test_bad_input_is_refused(learned):
    index, queries = learned
    for options, words in (
        ({"recall": 1.0}, r"recall must lie in \(0, 1\)"),
        ({"recall": 0.9, "rescore": queries}, "rescore does not go with recall"),
    ):
        with pytest.raises(ValueError, match=words):
            index.search(queries, **options)
    with pytest.raises(ValueError, match="n_regions"):
        index.learn_regions(n_regions=1)
    with pytest.raises(ValueError, match="need at least 20000 entries"):
        index.learn_regions(n_regions=10_000)


def test_damaged_regions_stop_no_exhaustive_search(tmp_path):
    index = FAMILIES["sign"](path=tmp_path / "a")
    index.add(clustered(20_000))
    index.learn_regions(n_regions=64)
    (segment,) = index._store.snapshot.segments
    file = tmp_path / "a" / segment.columns.record.regions.path
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    queries = clustered(3, seed=4)
    other = ts.open_index(tmp_path / "a")
    assert np.array_equal(other.search(queries).ids, index.search(queries).ids)
    for use in (lambda: other.search(queries, recall=0.9), other.verify):
        with pytest.raises(StorageError, match=file.name):
            use()


def forge_regions(path, name, change):
    """Change a column of regions, or of a table, with valid checksums."""
    record = read_manifest(path)
    file = record["tables"][name] if name in record["tables"] else record["segments"][0]["regions"]
    columns = {column: np.array(array) for column, array in unpack(content_of(path, file)).items()}
    change(columns)
    store(path, file, *pack(columns))
    write_manifest(path, record)


FORGED = {
    "order": ("entries", lambda columns: columns["regions"].__setitem__(100, 0), "entries must be in the order"),
    "number": ("entries", lambda columns: columns["regions"].__setitem__(-1, 16), "in the order of their 16 regions"),
    "regions": ("regions", lambda columns: columns["scales"].__setitem__(3, np.nan), "regions: damaged: means must"),
    "recall": ("recall", lambda columns: columns["path"].__setitem__(-1, 17), "recall: damaged: visits 17 of 16"),
}


@pytest.fixture(scope="module")
def with_regions(tmp_path_factory):
    path = tmp_path_factory.mktemp("forged") / "a"
    index = FAMILIES["grouped"](path=path)
    index.add(clustered(800))
    index.learn_regions(n_regions=16)
    return path


@pytest.mark.parametrize(("name", "change", "words"), FORGED.values(), ids=FORGED)
def test_forged_regions_are_refused_and_named_by_verify(tmp_path, with_regions, name, change, words):
    """Their checksums are valid, so only their values show that they are damaged."""
    path = shutil.copytree(with_regions, tmp_path / "a")
    forge_regions(path, name, change)
    for use in (ts.Index.verify, lambda index: index.search(clustered(2, seed=4), recall=0.9)):
        with pytest.raises(StorageError, match=words), ts.open_index(path) as index:
            use(index)


@pytest.mark.parametrize(
    "name", ["numbers", "path", "coarse", "candidates", "edges", "least", "strata", "found", "code_ranks", "entries"]
)
def test_crafted_calibrations_of_recall_are_refused(name):
    index = FAMILIES["sign"]()
    index.add(clustered(20_000))
    index.learn_regions(n_regions=64)
    table = dict(index._store.now.tables["recall"])
    for crafted in (table[name][:-1], np.array(0, table[name].dtype)):
        with pytest.raises(ValueError, match="have shapes"):
            RecallCalibration.from_table(table | {name: crafted})
    with pytest.raises(ValueError, match=f"has no {name}"):
        RecallCalibration.from_table({other: array for other, array in table.items() if other != name})


@pytest.mark.parametrize("name", ["means", "scales", "coarse", "starts", "numbers"])
def test_crafted_tables_of_regions_are_refused(name):
    index = FAMILIES["sign"]()
    index.add(clustered(500))
    index.learn_regions(n_regions=16)
    table = dict(index._store.now.tables["regions"])
    for crafted in (table[name][:-1], np.full_like(table[name], 200), np.array(0, table[name].dtype)):
        if name in ("numbers", "scales", "coarse") and crafted.shape == table[name].shape:
            continue
        with pytest.raises(ValueError, match=r"regions|means"):
            Regions.from_table(table | {name: crafted}, N_FEATURES)
