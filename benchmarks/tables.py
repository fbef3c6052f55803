"""Byte codes and look-up tables compared with FAISS: detection, speed of one query and of many, encoding, recall.

Everything runs on one thread. Contestants take turns within a repeat; times are medians of processor time, ratios are
medians of ratios within a repeat. Queries of topsign are real-valued and already projected, as FAISS's binary queries
are bits. The recall of sentences needs ``--cache``, the folder that text_embeddings.py fills.
"""

import time
from functools import partial

import detection
import numpy as np
import text_embeddings
from heads import make_head
from shared.families import index_of, untrained
from shared.results import arguments, bounds, interleaved, interval, ratio, save, spread, table

import topsign as ts
from topsign import kernels
from topsign.encoding import encode
from topsign.kernels import CodeBlocks, CodeRange, RoundedQueries

K = 10
SENTENCE_BYTES = (12, 24, 48, 96)


def rounded(scoring, rng, n_queries):
    """Random queries of a scoring."""
    values = rng.standard_normal((n_queries, scoring.width), dtype=np.float32)
    return RoundedQueries(*kernels.active().round(values, scoring.limit), np.zeros(n_queries, np.float32))


def paths():
    return [name for name in kernels.available() if name in ("avx512", "avx2", "neon")]


def ranked(path, scoring, codes, queries):
    """A call that finds the best codes on one path."""
    kernel = kernels.Kernels(path)
    return partial(kernel.rank, scoring, [CodeRange(codes)], queries, K)


def weak_matches(options):
    sums, _ = detection.simulate([("grouped", 448, "asymmetric")], options.pairs, n_recipes=1 if options.quick else 5)
    value, ends = detection.with_interval(sums["grouped", 448, "asymmetric"])
    theory = detection.predicted("grouped", 448, "asymmetric")
    row = ["grouped", 448, value, bounds(ends, 3), theory, "yes" if ends[0] <= theory <= ends[1] else "no"]
    columns = ["code", "bytes", "d'", "95% interval", "theory", "theory in the interval"]
    note = f"{options.pairs:,} pairs, see detection.py."
    return table(
        f"Weak matches: d' at a correlation of {detection.CORRELATION:.4f}, 8,192 features", columns, [row], note
    )


def nibble_codes(options):
    """Grouped and sign codes, and FAISS's binary codes of equal bytes."""
    import faiss

    rng, rows = np.random.default_rng(0), []
    packed = rng.integers(0, 256, (options.entries, 448), dtype=np.uint8)
    binary, codes = faiss.IndexBinaryFlat(8 * 448), CodeBlocks.of(packed)
    binary.add(packed)
    for n_queries in (1, 256):
        bits = rng.integers(0, 256, (n_queries, 448), dtype=np.uint8)
        calls = {("FAISS IndexBinaryFlat, Hamming", ""): partial(binary.search, bits, K)}
        for family in ("grouped", "sign"):
            scoring = untrained(family, 8192, 448).scorer
            queries = rounded(scoring, rng, n_queries)
            for path in paths():
                calls[f"{family}, real-valued", path] = ranked(path, scoring, codes, queries)
        repeats = options.repeats if n_queries == 1 else max(2, options.repeats // 3)
        times = interleaved(list(calls.values()), repeats, time.process_time) / (options.entries * n_queries) * 1e9
        for i, (name, path) in enumerate(calls):
            against = ratio(times[:, i], times[:, 0]) if i else None
            rows.append([n_queries, name, path, spread(times[:, i]), against])
    columns = ["queries", "code", "path", "ns per pair", "times FAISS"]
    note = f"{options.entries:,} random codes, the {K} best of each query."
    return table("Codes of 448 bytes: one query and a batch", columns, rows, note)


def white_blocks(n_entries, n_features=384, size=50_000):
    """Signals with falling variances, in blocks."""
    rng, scales = np.random.default_rng(1), (np.arange(1, n_features + 1) ** -0.35).astype(np.float32)
    for start in range(0, n_entries, size):
        yield rng.standard_normal((min(size, n_entries - start), n_features), dtype=np.float32) * scales


def trellis_codes(options):
    """Trellis codes and FAISS's product quantisers: PQ of 24 bytes, and 48 x 4 bits in fast scan."""
    import faiss

    n_entries = options.trellis_entries
    sample = next(white_blocks(20_000))
    recipes = {n: index_of("trellis", 384, n).fit(sample).recipe for n in (24, 48)}
    product, fast = faiss.IndexPQ(384, 24, 8), faiss.IndexPQFastScan(384, 48, 4)
    for one in (product, fast):
        one.train(sample)
    parts = {n: [] for n in recipes}
    for block in white_blocks(n_entries):
        for n, recipe in recipes.items():
            parts[n].append(encode(recipe, block))
        for one in (product, fast):
            one.add(block)
    codes = {n: CodeBlocks.of(np.concatenate(found)) for n, found in parts.items()}
    rows = []
    for n_queries in (1, 256):
        signals = next(white_blocks(n_queries))
        calls = {("FAISS PQ24", ""): partial(product.search, signals, K)}
        calls["FAISS PQ48x4fs", ""] = partial(fast.search, signals, K)
        for n, recipe in recipes.items():
            queries = recipe.prepare(signals).rounded
            for path in paths():
                calls[f"trellis {n} B", path] = ranked(path, recipe.scorer, codes[n], queries)
        repeats = options.repeats if n_queries == 1 else max(2, options.repeats // 3)
        times = interleaved(list(calls.values()), repeats, time.process_time) / (n_entries * n_queries) * 1e9
        for i, (name, path) in enumerate(calls):
            against = [ratio(times[:, i], times[:, other]) if i > 1 else None for other in (0, 1)]
            rows.append([n_queries, name, path, spread(times[:, i]), *against])
    columns = ["queries", "code", "path", "ns per pair", "times PQ24", "times PQ48x4fs"]
    note = f"""{n_entries:,} signals of 384 features, the {K} best of each query; trellis codes with principal axes and
    two bytes for their factor."""
    return table("Trellis codes: one query and a batch", columns, rows, note)


def encoding(options):
    rng, rows = np.random.default_rng(0), []
    sample = next(white_blocks(10_000))
    shapes = {
        "grouped, 8,192 features, 448 bytes": (untrained("grouped", 8192, 448), 8192),
        "grouped, 8,192 features, 512 bytes": (untrained("grouped", 8192, 512), 8192),
        "sign, 8,192 features, 448 bytes": (untrained("sign", 8192, 448), 8192),
        "adaptive, 8,192 features, 448 bytes": (untrained("adaptive", 8192, 448), 8192),
        "trellis, 384 features, 24 bytes": (index_of("trellis", 384, 24).fit(sample).recipe, 384),
        "trellis, 384 features, 48 bytes": (index_of("trellis", 384, 48).fit(sample).recipe, 384),
    }
    size = 256 if options.quick else 1024
    batches = {n: rng.standard_normal((size, n), dtype=np.float32) for n in (384, 8192)}
    calls = [partial(encode, recipe, batches[n]) for recipe, n in shapes.values()]
    times = interleaved(calls, options.repeats, time.process_time) / size * 1e6
    rows = [[name, spread(times[:, i])] for i, name in enumerate(shapes)]
    note = f"Batches of {size:,} signals, from float32 to stored bytes."
    return table("Encoding: microseconds per signal", ["code", "us per signal"], rows, note)


def recall(options):
    """Recall of unseen sentences; None without sentence vectors."""
    sample, entries, queries = text_embeddings.unseen(options)
    if not len(entries):
        return None
    truth, rows = text_embeddings.nearest(queries, entries, K), []
    for n_bytes in SENTENCE_BYTES:
        index = index_of("trellis", 384, n_bytes, seed=0).fit(sample)
        index.add(entries)
        shares = text_embeddings.recalls(index.search(queries, k=K).ids, truth)
        rows.append(["trellis, principal axes", n_bytes, float(shares.mean()), bounds(interval(shares))])
    note = f"""{len(entries):,} entries, {len(queries):,} queries, axes and codebooks learned from {len(sample):,} other
    sentences. Trellis codes take two more bytes for their factor. Intervals are bootstrapped over queries."""
    columns = ["code", "bytes", "recall@10", "95% interval"]
    return table("Recall@10 of unseen sentences", columns, rows, note)


def logits(options):
    weights, inputs, _ = make_head(np.random.default_rng(0), options.classes, 1024, 64)
    heads = {
        "grouped, 64 bytes": ts.Head.from_weights(weights, family="grouped", n_bytes=64, random_state=7),
        "sign, 128 bytes": ts.Head.from_weights(weights, family="sign", n_bytes=128, random_state=7),
        "adaptive, 128 of 1,024": ts.Head.from_weights(weights, family="adaptive", n_bits=128, random_state=7),
        "trellis, 64 bytes": ts.Head.from_weights(weights, family="trellis", n_bytes=64, random_state=7),
    }
    calls = [lambda: inputs @ weights.T, *(partial(head.logits, inputs) for head in heads.values())]
    times = 1e3 * interleaved(calls, options.repeats, time.process_time)
    rows = [["float32 matrix product", 4096, spread(times[:, 0]), None]]
    for i, (name, head) in enumerate(heads.items(), 1):
        rows.append([name, head.code_nbytes / len(weights), spread(times[:, i]), ratio(times[:, i], times[:, 0])])
    columns = ["head", "bytes per class", "ms per batch", "times float32"]
    return table(f"All logits of a head, {len(weights):,} x 1,024, batch of 64, one thread", columns, rows)


PARTS = {
    "detection": weak_matches,
    "nibbles": nibble_codes,
    "trellis": trellis_codes,
    "encoding": encoding,
    "recall": recall,
    "logits": logits,
}


def main():
    options = arguments(
        __doc__,
        entries=(200_000, 5_000),
        trellis_entries=(1_000_000, 20_000),
        classes=(100_000, 3_000),
        pairs=(20_000, 600),
        repeats=(15, 2),
        cache=None,
        sentences=(51_000, 2_000),
        parts=list(PARTS),
    )
    found = {}
    for name in options.parts:
        found[name] = PARTS[name](options)
        rows = headline(found["nibbles"], found["trellis"]) if {"nibbles", "trellis"} <= found.keys() else ()
        save(options, [one for one in found.values() if one], rows)


def headline(nibbles, rings):
    """Rows of the README: speed compared with FAISS on the fastest path."""
    fastest = kernels.available()[0]
    one, many = (
        [row for row in nibbles["rows"] if row[1:3] == ["grouped, real-valued", fastest] and row[0] == n]
        for n in (1, 256)
    )
    ring, fast = (
        [row for row in rings["rows"] if row[0] == 1 and row[1] == name and row[2] in ("", fastest)]
        for name in ("trellis 24 B", "FAISS PQ48x4fs")
    )
    words = "one query takes {:.2f} and 256 queries {:.2f} times as long as the Hamming distance of FAISS"
    nibble = words.format(one[0][4]["ratio"], many[0][4]["ratio"])
    times = ring[0][3]["median"], fast[0][3]["median"]
    single = "one query takes {:.1f} ns per code, FAISS PQ of 48 x 4 bits (fast scan) {:.1f} ns".format(*times)
    return [
        ["Search grouped codes of 448 bytes by real-valued queries, one thread", nibble],
        ["Search trellis codes of 24 bytes by real-valued queries, one thread", single],
    ]


if __name__ == "__main__":
    main()
