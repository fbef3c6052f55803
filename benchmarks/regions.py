"""Searches for a recall: achieved recall, share visited and time. ``region_peers.py`` has other libraries.

    python benchmarks/regions.py SECTION [--cache FOLDER] [--entries 50000] [--queries 2000] [--json FILE]

Sections:

- ``recall``: held-out sentences and CIFAR features at recalls of .90, .95 and .98 and k of 1, 10 and 100; the same with
  70% removed, under filters, after tenfold growth, and with queries of another kind (verbs in an index of nouns)
- ``shifted``: real sentences searched for among resampled ones, before and after ``calibrate_recall``
- ``alike``: 10^6 resampled sentences, searched for by queries that are resampled in the same way, and by real ones;
  times of one query and of 256. ``--index`` keeps the index, for ``cluster_recall.py``
- ``sizes``: 10^4 to 10^6 resampled sentences at 24 bytes: one query, and a batch of 256, exhaustive and for .95
- ``families``: adaptive and sign codes of sentences: one query, and a batch of 256, exhaustive and for .95, and the
  recall that is achieved if regions are visited
- ``originals``: recall@10 of exact neighbours with float16 originals in a folder; one query with a warm page cache, and
  with a cold one
- ``weak``: fraction of white entries that must be visited to find a match with probability 90%, by its correlation

Sentences are those of ``text_embeddings.py``. Resampled entries are a sentence plus a random combination of differences
to 12 of its 30 nearest, so that there can be 10^6 of them; queries stay real sentences, in no entry. Timings are
minima of processor time over interleaved repeats in one thread; those with a cold cache are wall-clock times.
"""

import argparse
import os
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np
from shared.resampling import (
    exact_neighbors,
    index_of,
    processor_seconds,
    recalls_of,
    resampled,
    resampled_queries,
    unit,
)
from shared.results import save
from shared.sets import PARTS_OF_SPEECH, cifar, parts_of_speech
from text_embeddings import load

import topsign as ts
from topsign.search import visiting

ASKED, KS = (0.90, 0.95, 0.98), (1, 10, 100)


def learned(index, n_regions="auto"):
    start = time.perf_counter()
    index.learn_regions(n_regions)
    return time.perf_counter() - start


def achieved(index, queries, case, **options):
    """Return rows with the recall, the visited fraction and the reported recall of held-out queries.

    Regions are visited even if the cost model prefers to compare a whole batch with all entries, whose recall is 1.
    """
    rows = []
    every = index.search(queries, max(KS), **options).ids
    for k in KS:
        exact = every[:, :k]
        for asked in ASKED:
            some = index.search(queries, k, recall=asked, **options)
            recalls = recalls_of(some.ids, exact)
            rows.append(
                {
                    "case": case,
                    "k": k,
                    "asked": asked,
                    "achieved": recalls.mean(),
                    "standard_error": recalls.std() / np.sqrt(len(recalls)),
                    "predicted": some.recall.mean(),
                    "visited": some.visited.mean(),
                    "exhaustive": (some.exhaustive != "").mean(),
                    "n_entries": len(index),
                    "n_queries": len(queries),
                }
            )
            row = rows[-1]
            print(
                f"{case}: k {k}, asked {asked}, achieved {row['achieved']:.4f} +- {row['standard_error']:.4f}, "
                f"visited {row['visited']:.4f}, exhaustive {row['exhaustive']:.3f}",
                flush=True,
            )
    return rows


def recall(options):
    """Achieved recall of every case."""
    visiting.RegionSearch._is_slower = visiting.RegionSearch._choosing_is_slower = lambda *_: False
    entries, queries = load(options)
    rng, rows = np.random.default_rng(0), []
    index, _ = index_of(entries)
    learned(index)
    rows += achieved(index, queries, "sentences, held-out queries")
    for share in (0.1, 0.01):
        among = rng.choice(len(entries), int(share * len(entries)), replace=False)
        rows += achieved(index, queries, f"sentences, filter that {share:.0%} pass", among=among)
    index.remove(rng.permutation(len(entries))[: int(0.7 * len(entries))])
    rows += achieved(index, queries, "sentences, 70% removed")
    index, _ = index_of(entries[: len(entries) // 10])
    learned(index, 512)
    index.add(entries[len(entries) // 10 :])
    rows += achieved(index, queries, "sentences, grown tenfold")
    vectors, kinds = np.concatenate([queries, entries]), parts_of_speech(options)
    noun, verb = (PARTS_OF_SPEECH.index(kind) for kind in ("noun", "verb"))
    index, _ = index_of(vectors[kinds == noun])
    learned(index)
    rows += achieved(index, vectors[kinds == verb][: options.queries], "index of nouns, queries are verbs")
    _, entries, queries = cifar(options)
    index, _ = index_of(entries)
    learned(index, 512)
    rows += achieved(index, queries, "CIFAR features, held-out queries")
    return {"recall": rows}


def alike(options):
    """Recall of queries that are exchangeable with 10^6 resampled entries, and of real sentences; and times."""
    entries, queries = load(options)
    if options.index and Path(options.index).exists():
        index = ts.open_index(options.index, readonly=True)
    else:
        index, _ = index_of(resampled(entries, options.most, options.cache), path=options.index)
        learned(index)
    ones = [queries[at : at + 1] for at in range(64)]
    calls = [lambda one=one: index.search(one, 10, recall=0.95, n_threads=1) for one in ones]
    calls.append(lambda: index.search(queries[:256], 10, recall=0.95, n_threads=1))
    *single, batch = processor_seconds(calls, options.repeats)
    times = {"one_query_seconds": float(np.mean(single)), "batch_seconds_each": batch / 256, "n_entries": len(index)}
    print(times, flush=True)
    visiting.RegionSearch._is_slower = visiting.RegionSearch._choosing_is_slower = lambda *_: False
    name = f"{len(index):,} resampled sentences"
    rows = achieved(index, resampled_queries(entries, len(queries)), f"{name}, queries resampled, too")
    rows += achieved(index, queries, f"{name}, queries are real sentences")
    return {"times": times, "recall": rows}


def sizes(options):
    """Times of one query and of a batch, by the number of entries."""
    entries, queries = load(options)
    every, rows = resampled(entries, options.most, options.cache), []
    for n_entries in [n for n in (10_000, 100_000, 1_000_000) if n <= options.most]:
        index, build = index_of(every[:n_entries])
        learning = learned(index, 512 if n_entries < 20_000 else "auto")
        calls, names = [], []
        for size in (1, 256):
            for asked in (None, 0.95):
                batches = [queries[at : at + size] for at in range(0, min(1024, len(queries)), size)]

                def call(index=index, batches=batches, asked=asked, size=size):
                    for batch in batches[: 16 if size == 1 else 1]:
                        index.search(batch, 10, recall=asked, n_threads=1)

                calls.append(call)
                names.append((size, asked))
        times = processor_seconds(calls, options.repeats)
        for (size, asked), seconds in zip(names, times, strict=True):
            each = seconds / (16 if size == 1 else size)
            found = index.search(queries[:256], 10, recall=asked, n_threads=1) if asked else None
            row = {"n_entries": n_entries, "batch": size, "asked": asked, "seconds_each": each, "build_seconds": build}
            row |= {"learning_seconds": learning, "n_regions": index.regions.n_regions}
            row |= {} if found is None else {"visited": found.visited.mean()}
            rows.append(row)
            print(row, flush=True)
    return {"sizes": rows}


def families(options):
    """Times of adaptive and sign codes, and the recall of visits."""
    entries, queries = load(options)
    n_features, rows, recalls = entries.shape[1], [], []
    indexes = {
        "adaptive codes, 72 of 384 bits": ts.AdaptiveIndex(
            n_features=n_features, n_bits=72, n_pool=384, center=True, random_state=7
        ),
        "adaptive codes, 512 of 8,192 bits": ts.AdaptiveIndex(
            n_features=n_features, n_bits=512, n_pool=8192, center=True, random_state=7
        ),
        "sign codes, 384 bits": ts.SignIndex(n_features=n_features, n_pool=384, center=True, random_state=7),
    }
    for name, index in indexes.items():
        index.add(entries)
        learned(index)
        calls, settings = [], []
        for size, asked in product((1, 256), (None, 0.95)):
            batches = [queries[at : at + 1] for at in range(16)] if size == 1 else [queries[:size]]

            def call(index=index, batches=batches, asked=asked):
                return [index.search(one, 10, recall=asked, n_threads=1) for one in batches]

            calls.append(call)
            settings.append({"case": name, "batch": size, "asked": asked})
        times = processor_seconds(calls, options.repeats)
        for setting, call, seconds in zip(settings, calls, times, strict=True):
            row = setting | {"n_entries": len(index), "seconds_each": seconds / max(16, setting["batch"])}
            if setting["asked"]:
                row["exhaustive"] = float(np.mean([(one.exhaustive != "").mean() for one in call()]))
            rows.append(row)
            print(row, flush=True)
    visiting.RegionSearch._is_slower = visiting.RegionSearch._choosing_is_slower = lambda *_: False
    for name, index in indexes.items():
        exact = index.search(queries, 10).ids
        found = index.search(queries, 10, recall=0.95)
        visits = processor_seconds(
            [lambda i=index: i.search(queries[:256], 10, recall=0.95, n_threads=1)], options.repeats
        )
        shares = recalls_of(found.ids, exact)
        row = {"case": name, "asked": 0.95, "achieved": shares.mean(), "n_queries": len(queries)}
        row |= {"standard_error": shares.std() / np.sqrt(len(shares)), "visited": found.visited.mean()}
        recalls.append(row | {"batch_seconds_each": visits[0] / 256})
        print(recalls[-1], flush=True)
    return {"times": rows, "recall": recalls}


def shifted(options):
    """Real sentences searched for among resampled ones, before and after calibration with other real ones."""
    visiting.RegionSearch._is_slower = visiting.RegionSearch._choosing_is_slower = lambda *_: False
    entries, queries = load(options)
    half, name = len(queries) // 2, f"{options.most:,} resampled sentences"
    with tempfile.TemporaryDirectory(dir=options.cache) as folder:
        if options.index:  # a copy, which is calibrated here
            with ts.open_index(options.index, readonly=True) as kept:
                kept.save(Path(folder) / "index.topsign")
            index = ts.open_index(Path(folder) / "index.topsign")
        else:
            index, _ = index_of(resampled(entries, options.most, options.cache))
            learned(index)
        rows = achieved(index, queries[half:], f"{name}, queries are real sentences")
        index.calibrate_recall(queries[:half])
        rows += achieved(index, queries[half:], f"{name}, calibrated with other real sentences")
        index.calibrate_recall(queries[half:])
        rows += achieved(index, queries[:half], f"{name}, calibrated with other real sentences")
        index.close()
    return {"recall": pooled(rows)}


def pooled(rows):
    """Rows of the same case, k and recall as one: means over all queries of both halves."""
    found = {}
    for row in rows:
        found.setdefault((row["case"], row["k"], row["asked"]), []).append(row)
    return [
        same[0]
        | {name: float(np.mean([row[name] for row in same])) for name in ("achieved", "predicted", "visited")}
        | {"standard_error": float(np.sqrt(np.sum([row["standard_error"] ** 2 for row in same])) / len(same))}
        | {"n_queries": sum(row["n_queries"] for row in same)}
        for same in found.values()
    ]


def originals(options):
    """Times and recall with float16 originals in a folder; the cold cache is that of a file dropped from it."""
    entries, queries = load(options)
    every = resampled(entries, options.most, options.cache)
    path = Path(options.index or Path(options.cache) / f"originals-{len(every)}.topsign")
    if not path.exists():
        index, _ = index_of(every, originals="float16", path=path)
        learned(index)
        index.close()
    half = len(queries) // 2
    alike, real = resampled_queries(entries, half), queries[half:]
    exact = exact_neighbors(every, np.concatenate([alike, real]))
    rows = []
    with ts.open_index(path, readonly=True) as index:
        rows.append(exactly(index, alike, exact[:half], "queries resampled, too"))
        rows.append(exactly(index, real, exact[half:], "queries are real sentences"))
    if options.calibrated:
        with ts.open_index(options.calibrated, readonly=True) as index:
            rows.append(exactly(index, real, exact[half:], "calibrated with other real sentences"))
    for row, chosen in zip(rows, (path, path, options.calibrated), strict=False):
        some = alike if row["case"] == "queries resampled, too" else real
        row |= times_on_disk(chosen, some, options)
        print(row, flush=True)
    return {"originals": rows}


def exactly(index, queries, exact, case):
    """A row of the recall of exact neighbours."""
    found = index.search(queries, 10, recall=0.95, n_threads=1)
    recalls = recalls_of(found.ids, exact)
    row = {"case": case, "n_entries": len(index), "achieved": recalls.mean(), "asked": 0.95, "n_queries": len(queries)}
    row |= {"standard_error": recalls.std() / np.sqrt(len(recalls)), "visited": found.visited.mean()}
    row |= {"nbytes": index.nbytes, "originals_nbytes": index.originals_nbytes}
    return row | {"exhaustive": (found.exhaustive != "").mean()}


def times_on_disk(path, queries, options):
    """Seconds of one query with a warm page cache, processor time, and with a cold one, wall time."""
    ones = [queries[at : at + 1] for at in range(200)]
    with ts.open_index(path, readonly=True) as index:

        def call():
            for one in ones[:16]:
                index.search(one, 10, recall=0.95, n_threads=1)

        warm = processor_seconds([call], options.repeats)[0] / 16
    dropped, cold = drop_cache(path), []
    with ts.open_index(path, readonly=True) as index:
        for one in ones[100:]:
            start = time.perf_counter()
            index.search(one, 10, recall=0.95, n_threads=1)
            cold.append(time.perf_counter() - start)
    found = {"warm_seconds": warm, "cold_seconds_median": np.median(cold), "cold_is": dropped}
    return found | {"first_seconds": cold[0]}


def drop_cache(path):
    """Ask the system to drop an index's files from the page cache; return a description of the outcome."""
    for file in Path(path).rglob("*.safetensors"):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return "posix_fadvise(DONTNEED) on every file of the closed index, which was then opened again"


def weak(options):
    """Share of 10^5 white entries visited for a 90% chance to meet the match, by its correlation."""
    rng, rows = np.random.default_rng(0), []
    entries = unit(rng.standard_normal((100_000, 256)))
    index = ts.TrellisIndex(n_features=256, n_bytes=32, basis="hadamard", center=False, random_state=7)
    index.add(entries)
    index.learn_regions()
    regions = index._learned().regional.regions()
    counts = regions.order.counts(index.store.snapshot)
    own = index.store.snapshot.gather("regions", np.arange(500)).astype(np.int64)
    for correlation in (0.1, 0.2, 0.3, 0.5, 0.7, 0.9):
        noise = rng.standard_normal((500, 256))
        noise -= (noise * entries[:500]).sum(axis=1, keepdims=True) * entries[:500]
        queries = correlation * entries[:500] + np.sqrt(1 - correlation**2) * unit(noise)
        order = np.argsort(-regions.scores(unit(queries)), axis=1)
        place = (order == own[:, np.newaxis]).argmax(axis=1)
        seen = np.take_along_axis(np.cumsum(counts[order], axis=1), place[:, np.newaxis], axis=1)[:, 0] / len(entries)
        rows.append({"correlation": correlation, "visited": np.quantile(seen, 0.9), "n_regions": len(regions)})
        print(rows[-1], flush=True)
    return {"weak": rows}


SECTIONS = {section.__name__: section for section in (recall, shifted, alike, sizes, families, originals, weak)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", choices=SECTIONS)
    parser.add_argument("--cache", default="benchmarks/cache")
    parser.add_argument("--entries", type=int, default=50_000)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--most", type=int, default=1_000_000, help="resampled entries")
    parser.add_argument("--index", help="folder of the index: opened if it exists, else made (shifted: a copy is used)")
    parser.add_argument("--calibrated", help="originals: folder of the same index, calibrated with the first queries")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1, help="of the sentence model")
    parser.add_argument("--json")
    options = parser.parse_args()
    measured = SECTIONS[options.section](options)
    if options.json:
        save(options.json, options, measured)


if __name__ == "__main__":
    main()
