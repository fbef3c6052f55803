"""Trellis codes: captured energy of white signals, the paper's detection problem, and speed compared with FAISS.

    python benchmarks/trellis.py [shares] [detection] [scores] [pairs] [speed] [long] [--json FILE]

``shares`` is the mean squared cosine of white signals and their reconstructions, which trellis-measurements.md and
``topsign.theory`` quote. ``scores`` compares two scores on the same codes. ``pairs`` gives scores of near-duplicates
among the sentences of text_embeddings.py by their exact cosine, to choose a threshold. Speed is measured on one thread,
in processor time, as medians of interleaved repeats. trellis_peers.py, trellis_heads.py and trellis_cameras.py measure
trellis codes and other codes on real data.
"""

import argparse
import itertools
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from shared.codes import best
from shared.results import save, spread
from shared.sets import cifar
from text_embeddings import load

import topsign as ts
from topsign import kernels
from topsign.families import TrellisRecipe
from topsign.kernels import QueriedCells, TrellisRange

RATES = (3 / 64, 13 / 128, 0.25, 51 / 128, 0.5, 1.0, 2.0, 4.0)  # whole bytes at 1,024 features
WINDOWS = (8, 10, 12)
COSINES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.01)


def shares(options):
    """Measure the captured energy at each rate and window, with its standard error."""
    rng, rows = np.random.default_rng(0), []
    n_features = 1024
    for rate in RATES:
        for window in WINDOWS:
            n_signals = {8: 96, 10: 64, 12: 24}[window]
            signals = rng.standard_normal((n_signals, n_features)).astype(np.float32)
            recipe = TrellisRecipe.learn(
                signals,
                n_bits=8 * round(rate * n_features / 8),
                basis="hadamard",
                center=False,
                window=window,
                random_state=1,
            )
            index = ts.index_for(recipe)
            decoded = index.get(index.add(signals)).codes.decode()
            kept = (decoded * signals).sum(1) ** 2 / (signals**2).sum(1)
            error = float(kept.std() / np.sqrt(n_signals))
            rows.append({"rate": rate, "window": window, "share": float(kept.mean()), "error": error})
            print(rows[-1], flush=True)
    return rows


def detection(options):
    """The paper's problem: 8192 features, 3269 bits, correlation such that uncompressed signals reach d' = 6.67."""
    rng, n_features, n_pairs = np.random.default_rng(0), 8192, 200
    correlation = 6.67 / np.sqrt(n_features + 6.67**2)
    rows = []
    for window in (10, 12):
        index = ts.TrellisIndex(
            n_features=n_features, n_bytes=409, basis="hadamard", center=False, window=window, random_state=1
        )
        scores = {"match": [], "impostor": []}
        for _ in range(n_pairs // 50):
            entries = rng.standard_normal((50, n_features)).astype(np.float32)
            noise = rng.standard_normal((50, n_features))
            matches = (correlation * entries + np.sqrt(1 - correlation**2) * noise).astype(np.float32)
            signals = index.get(index.add(entries)).codes.decode()
            for name, queries in (("match", matches), ("impostor", rng.standard_normal(matches.shape))):
                unit = queries / np.sqrt((queries**2).sum(1, keepdims=True))
                scores[name].append((unit * signals).sum(1))
        match, impostor = (np.concatenate(scores[name]) for name in ("match", "impostor"))
        # The mean of a match over the exact spread of an impostor, 1 / sqrt(n_features).
        index_of_detection = float((match.mean()) * np.sqrt(n_features))
        error = float(match.std() / np.sqrt(len(match)) * np.sqrt(n_features))
        rows.append({"window": window, "bytes": 409, "d_prime": index_of_detection, "error": error})
        rows[-1]["impostor_mean"] = float(impostor.mean() * np.sqrt(n_features))
        print(rows[-1], flush=True)
    return rows


def scores(options):
    """Recall@10 among CIFAR features of one code in 24 bytes, random bases: cosines, and products without norms."""
    _, entries, queries = cifar(argparse.Namespace(queries=1000))
    truth, rows = best(queries, entries, 10), []
    for seed in range(4):
        index = ts.TrellisIndex(n_features=entries.shape[1], n_bytes=24, basis="hadamard", random_state=seed)
        codes = index.fit(entries).get(index.add(entries)).codes
        cell = index.recipe.cells[0]
        levels = kernels.active().trellis_decode(cell.tables, codes.data, n_threads=kernels.n_threads(None))
        sums = cell.signals(levels)  # mean plus reconstruction, of any norm
        ways = {"index": index.search(queries, k=10).ids, "cosine": best(queries, codes.decode(), 10)}
        ways["inner_product"] = best(queries, sums, 10)
        recalls = {way: float((found[:, None] == truth[..., None]).any(1).mean()) for way, found in ways.items()}
        norms = np.linalg.norm(sums, axis=1)
        rows.append({"seed": seed, "bytes": 24, **recalls, "spread_of_norms": float(norms.std() / norms.mean())})
        print(rows[-1], flush=True)
    return rows


def pairs(options):
    """Measure scores of pairs among 20,000 sentences by their exact cosine: medians and 90% ranges."""
    options = argparse.Namespace(cache=options.cache, entries=20_000, queries=1000, threads=1)
    signals, rows = load(options)[0], []
    first, second, cosines = near(signals, COSINES[0])
    for n_local in (1, 16):
        for n_bytes in (24, 48, 96):
            index = ts.TrellisIndex(n_features=signals.shape[1], n_bytes=n_bytes, n_local=n_local, random_state=0)
            index.fit(signals)
            found = index.get(index.add(signals)).codes.decode()
            scores = np.einsum("ij,ij->i", found[first], found[second])
            for low, high in itertools.pairwise(COSINES):
                here = scores[(cosines >= low) & (cosines < high)]
                at = dict(zip(("low", "median", "high"), np.quantile(here, (0.05, 0.5, 0.95)).tolist(), strict=True))
                rows.append({"bytes": n_bytes, "local": n_local, "cosine": [low, high], "pairs": len(here), **at})
                print(rows[-1], flush=True)
    return rows


def near(signals, least):
    """Pairs of unit signals whose cosine is at least this, and the cosines."""
    parts = []
    for start in range(0, len(signals), 2000):
        cosines = signals[start : start + 2000] @ signals.T
        rows, columns = np.nonzero(np.triu(cosines, start + 1) >= least)
        parts.append((rows + start, columns, cosines[rows, columns]))
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def processor_times(calls, repeats):
    """Run like ``interleaved``, but in processor time, for calls of one thread on a shared machine."""
    times = np.empty((repeats + 1, len(calls)))
    for repeat in range(repeats + 1):
        for i, call in enumerate(calls):
            start = time.process_time()
            call()
            times[repeat, i] = time.process_time() - start
    return times[1:]


def speed(options):
    """Measure times per pair of 256 queries, per entry of one query, and per encoded signal, against FAISS IndexPQ."""
    import faiss

    faiss.omp_set_num_threads(1)
    search = kernels.active().rank_trellis
    rng, n_features, n_codes, rows = np.random.default_rng(0), 384, 100_000, []
    signals = rng.standard_normal((10_000, n_features)).astype(np.float32)
    queries = rng.standard_normal((256, n_features)).astype(np.float32)
    for n_bytes in (24, 48):
        recipe = TrellisRecipe.learn(
            signals, n_bits=8 * n_bytes, basis="hadamard", center=False, norms=True, random_state=1
        )
        index = ts.index_for(recipe)
        index.add(signals[:512], n_threads=1)
        encode = float(np.median(processor_times([lambda i=index: i.add(signals[:512], n_threads=1)], 3))) / 512
        peer = faiss.IndexPQ(n_features, n_bytes, 8, faiss.METRIC_INNER_PRODUCT)
        peer.train(signals)
        peer.add(signals)
        codes = index.get(index.ids[:512]).codes
        repeated = np.tile(codes.data, (n_codes // 512 + 1, 1))[:n_codes]
        faiss.copy_array_to_vector(np.tile(faiss.vector_to_array(peer.codes), 10), peer.codes)
        peer.ntotal = n_codes
        batch, single = (
            QueriedCells(recipe.cells.tables, recipe.cells.round(recipe.project(some)[0]))
            for some in (queries, queries[:1])
        )
        weighted, ranges = replace(single, norms=True), [TrellisRange(repeated)]
        calls = [
            lambda cells=batch, ranges=ranges: search(cells, ranges, 10),
            lambda p=peer: p.search(queries, 10),
            lambda cells=weighted, ranges=ranges: search(cells, ranges, 10),
            lambda cells=single, ranges=ranges: search(cells, ranges, 10),
            lambda p=peer: p.search(queries[:1], 10),
        ]
        times = processor_times(calls, options.repeats) / n_codes * 1e9
        row = {"bytes": n_bytes, "encode_us": encode * 1e6, "path": kernels.active().name}
        names = ("batch", "batch_faiss", "one_with_norms", "one", "one_faiss")
        for name, column in zip(names, times.T, strict=True):
            row[name] = spread(column / (256 if name.startswith("batch") else 1))
        row["batch_ratio"] = float(np.median(times[:, 1] / times[:, 0]))
        row["one_ratio_with_norms"] = float(np.median(times[:, 2] / times[:, 4]))
        row["one_ratio"] = float(np.median(times[:, 3] / times[:, 4]))
        rows.append(row)
        print(row, flush=True)
    return rows


def long(options):
    """Microseconds to encode the paper's signals: 8192 features at 3269 bits, one thread, of the processor."""
    signals = np.random.default_rng(0).standard_normal((64, 8192)).astype(np.float32)
    recipe = TrellisRecipe.learn(signals, n_bits=3269, basis="hadamard", center=False, random_state=1)
    index = ts.index_for(recipe)
    times = processor_times([lambda: index.add(signals, n_threads=1)], options.repeats)
    rows = [{"features": 8192, "bits": 3269, "encode_us": spread(times[:, 0] / len(signals) * 1e6)}]
    print(rows, flush=True)
    return rows


PARTS = {part.__name__: part for part in (shares, detection, scores, pairs, speed, long)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cache", default=str(Path.home() / ".cache" / "topsign"), help="folder of the vectors")
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    measured = {name: PARTS[name](options) for name in options.parts}
    if options.json:
        save(options.json, options, measured)


if __name__ == "__main__":
    main()
