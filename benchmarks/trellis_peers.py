"""Trellis codes beside trained codes of the same bytes, all scored by the cosine of their reconstructions.

    python benchmarks/trellis_peers.py [text] [cifar] [source] [shift] [--entries 20000] [--json FILE]

Three real sets: ``text``, the sentence vectors of text_embeddings.py (384 features); ``cifar``, the features of the
CIFAR-10 test images that the paper's head classifies (1,024); ``source``, TF-IDF of the Python files of this
environment, reduced to 300 by a singular value decomposition. Queries are not entries. Everything that learns learns
from the entries, as the peers do. ``shift`` learns on nouns and encodes verbs of the text.

OPQ, residual quantisation (faiss) and PCA with ITQ signs are decoded, the mean put back, and ranked by the cosine of
the query with the result, as trellis codes are: that finds more than the scores these libraries take themselves.
Recall@10 with intervals of 95%, bootstrapped over queries.
"""

import argparse
import sysconfig
import time
from pathlib import Path

import numpy as np
from shared.results import save
from text_embeddings import bootstrap, glosses, load

import topsign as ts

K, SHORTLIST = 10, 100
BASES = {
    "trellis, hadamard": {"basis": "hadamard"},
    "trellis, principal": {},
    "trellis, 16 local bases": {"n_local": 16},
}


def unit(rows):
    return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)).astype(np.float32)


def text(options):
    return load(options)


def cifar(options):
    from topsign.paper.heads import load_cifar10_head

    features = unit(load_cifar10_head().features)
    return features[options.queries :], features[: options.queries]


def source(options):
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    paths = sorted(Path(sysconfig.get_paths()["purelib"]).rglob("*.py"))
    texts = [path.read_text(errors="ignore")[:4000] for path in paths if path.stat().st_size > 1000]
    order = np.random.default_rng(0).permutation(len(texts))[: options.source_files + options.queries]
    words = TfidfVectorizer(max_features=20_000, sublinear_tf=True).fit_transform([texts[i] for i in order])
    vectors = unit(TruncatedSVD(300, random_state=0, n_iter=3).fit_transform(words))
    return vectors[options.queries :], vectors[: options.queries]


def best(scores):
    return np.argsort(-scores, axis=1, kind="stable")[:, :SHORTLIST]


def measured(name, n_bytes, found, truth, seconds):
    right = (found[:, np.newaxis] == truth[..., np.newaxis]).any(axis=1)
    recalls = right[:, :K].sum(axis=1) / K
    row = {"method": name, "bytes": n_bytes, "recall": float(recalls.mean()), "interval": bootstrap(recalls)}
    row |= {"rescored": float(right.sum() / right.shape[0] / K), "seconds": seconds}
    print(row, flush=True)
    return row


def itq(entries, n_bits, n_rounds=30):
    """Principal axes, rotated so that signs lose least (Gong and Lazebnik 2011); reconstructions of the signs."""
    mean = entries.mean(axis=0)
    axes = np.linalg.svd((entries - mean)[:: max(1, len(entries) // 8000)], full_matrices=False)[2][:n_bits]
    values = (entries - mean) @ axes.T
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((len(axes), len(axes))))[0]
    for _ in range(n_rounds):
        u, _, v = np.linalg.svd(np.where(values @ turn >= 0, 1, -1).T @ values)
        turn = (u @ v).T
    turned = values @ turn
    return mean + np.where(turned >= 0, 1, -1) * np.abs(turned).mean(axis=0) @ turn.T @ axes


def peers(entries, n_bytes, options):
    """Names and makers of reconstructions by faiss."""
    import faiss

    faiss.omp_set_num_threads(options.threads)
    mean = entries.mean(axis=0)
    centred = np.ascontiguousarray(entries - mean)

    def coded(index):
        index.train(centred)
        index.add(centred)
        return mean + index.reconstruct_n(0, len(centred))

    def opq():
        n_features = entries.shape[1]
        n_kept = n_features // n_bytes * n_bytes  # as many as its parts can share
        turn = faiss.OPQMatrix(n_features, n_bytes, n_kept)
        turn.niter = 15
        return coded(faiss.IndexPreTransform(turn, faiss.IndexPQ(n_kept, n_bytes, 8)))

    def residual():
        index = faiss.IndexResidualQuantizer(entries.shape[1], n_bytes, 8)
        index.rq.train_type, index.rq.max_beam_size = faiss.ResidualQuantizer.Train_default, options.beam
        return coded(index)

    yield "OPQ", opq
    if n_bytes <= options.most_residual:
        yield "residual quantiser", residual
    if 8 * n_bytes <= entries.shape[1]:
        yield "PCA + ITQ", lambda: itq(entries, 8 * n_bytes)


def contest(entries, queries, options, *, sample=None, with_peers=True):
    truth, rows = best(queries @ entries.T)[:, :K], []
    for n_bytes in options.bytes:
        for name, parameters in BASES.items():
            start = time.process_time()
            index = ts.TrellisIndex(n_features=entries.shape[1], n_bytes=n_bytes, random_state=7, **parameters)
            index.fit(entries if sample is None else sample).add(entries)
            seconds = time.process_time() - start
            rows.append(measured(name, n_bytes, index.search(queries, k=SHORTLIST).ids, truth, seconds))
        for name, make in peers(entries, n_bytes, options) if with_peers else ():
            if name in options.skip:
                continue
            start = time.process_time()
            decoded = unit(make())
            rows.append(measured(name, n_bytes, best(queries @ decoded.T), truth, time.process_time() - start))
    return rows


def shift(options):
    """Bases from nouns, verbs encoded and searched."""
    every = glosses(kinds=True)
    order = np.random.default_rng(0).permutation(len(every))[: options.entries + options.queries]
    entries, queries = load(options)
    kinds = np.array([every[i][1] for i in order])
    vectors = np.concatenate([queries, entries])
    verbs, nouns = vectors[kinds == "verb"], vectors[kinds == "noun"]
    return contest(verbs[500:], verbs[:500], options, sample=nouns, with_peers=False)


SETS = {"text": text, "cifar": cifar, "source": source}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*SETS, "shift", []], default=[*SETS, "shift"])
    parser.add_argument("--bytes", type=int, nargs="+", default=[12, 24])
    parser.add_argument("--entries", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--source-files", type=int, default=9000)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--most-residual", type=int, default=24, help="bytes above which it would take too long")
    parser.add_argument("--skip", nargs="*", default=[], help="peers to leave out")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache", default=str(Path.home() / ".cache" / "topsign"))
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    found = {}
    for name in options.parts:
        print(name, flush=True)
        found[name] = shift(options) if name == "shift" else contest(*SETS[name](options), options)
        if options.json:
            save(options.json, options, found)


if __name__ == "__main__":
    main()
