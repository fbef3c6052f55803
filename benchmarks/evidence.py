"""Queries without a match that are refused, and queries with one that are kept, by calibrated and by fixed thresholds.

Entries are definitions of WordNet, embedded by all-MiniLM-L6-v2 and compared by cosine. A query is the first two thirds
of the words of a definition: answerable if that definition is an entry, else unanswerable. 3,000 unanswerable queries
calibrate, 3,000 others are refused or not. An answerable query is kept if its own definition is first and passes.

The last table follows thresholds as the corpus grows, for other scores too: BM25, inner products of vectors whose norms
vary, features of CIFAR-10 images, scores of trellis codes, and heavy tails. Vectors are kept in ``--cache`` (see
text_embeddings.py); a quick run without them takes random vectors and texts.
"""

import math
import os
from collections import Counter
from pathlib import Path

import numpy as np
import scipy.sparse
from shared.results import arguments, bounds, interval, save, table
from text_embeddings import N_FEATURES, glosses, load_model, sentences, unit

import topsign as ts
from topsign.significance import ScoreCalibration

RATE, K, N_SAMPLED = 0.01, 100, 500
CUT = 2 / 3  # of the words of a definition that make a query


def first_words(text):
    words = text.split()
    return " ".join(words[: max(3, math.ceil(CUT * len(words)))])


def texts_of(options):
    """Definitions in the order of their vectors; invented ones in a quick run without a cache."""
    if not options.quick or options.cache:
        texts = glosses()
        return [texts[i] for i in np.random.default_rng(0).permutation(len(texts))]
    rng = np.random.default_rng(0)
    words = rng.zipf(1.3, (options.sentences + 2 * options.queries, 8)) % 5000
    return [" ".join(f"w{word}" for word in row) for row in words]


def rows_of(options):
    """Rows of the texts that entries and queries come from."""
    first = options.sentences
    return {
        "related": range(min(options.queries, 1000, options.entries[0])),
        "calibration": range(first, first + options.queries),
        "test": range(first + options.queries, first + 2 * options.queries),
    }


def vectors(options):
    """Unit vectors of entries and of three kinds of queries."""
    entries = sentences(options)[: options.entries[-1]]
    if options.quick and not options.cache:
        rng = np.random.default_rng(1)
        scales = np.arange(1, N_FEATURES + 1) ** -0.5
        queries = {
            name: unit(rng.standard_normal((len(rows), N_FEATURES)) * scales + 0.02)
            for name, rows in rows_of(options).items()
        }
        queries["related"] = unit(entries[: len(queries["related"])] + 0.5 * queries["related"])
        return entries, queries
    folder, queries, texts, model = Path(options.cache), {}, None, None
    for name, rows in rows_of(options).items():
        path = folder / f"wordnet-minilm-{name}.npy"
        if not path.exists():
            texts, model = texts or texts_of(options), model or load_model(options.threads)
            found = model.encode([first_words(texts[row]) for row in rows], normalize_embeddings=True)
            np.save(path, found.astype(np.float32))
        queries[name] = unit(np.load(path)[: len(rows)])
    return entries, queries


def best(queries, entries, k):
    """Scores and rows of the k best entries of each query, by inner product."""
    scores, rows = np.empty((queries.shape[0], k)), np.empty((queries.shape[0], k), np.int64)
    for start in range(0, queries.shape[0], 250):
        block = slice(start, start + 250)
        products = queries[block] @ entries.T
        products = products.toarray() if scipy.sparse.issparse(products) else products
        found = np.argpartition(-products, k - 1, axis=1)[:, :k]
        values = np.take_along_axis(products, found, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        scores[block], rows[block] = (np.take_along_axis(one, order, axis=1) for one in (values, found))
    return scores, rows


def answers(options, entries, queries):
    """Rows of the table of refused and kept queries, and of the table of covariates."""
    rows, covariates, first = [], [], None
    sample = entries[np.random.default_rng(2).permutation(options.entries[0])[: min(N_SAMPLED, options.entries[0])]]
    similar = {name: (found @ sample.T).mean(axis=1) for name, found in queries.items()}
    for n in options.entries:
        found = {name: best(some, entries[:n], min(K, n))[0] for name, some in queries.items()}
        right = best(queries["related"], entries[:n], 1)[1][:, 0] == np.arange(len(queries["related"]))
        known = ScoreCalibration.fit(found["calibration"], n_entries=n)
        first = first or known
        gaps = ScoreCalibration.fit(found["calibration"][:, 0] - found["calibration"][:, 1], n_entries=n)
        rules = {
            "calibrated at this size": known.threshold(RATE),
            f"calibrated at {first.n_entries:,}, grown": first.threshold(RATE, n),
            f"fixed, from {first.n_entries:,} entries": first.threshold(RATE),
        }
        passed = {
            rule: {name: scores[:, 0] >= limit for name, scores in found.items()} for rule, limit in rules.items()
        }
        passed["gap to the second"] = {
            name: gaps.matches(scores[:, 0] - scores[:, 1], RATE) for name, scores in found.items()
        }
        for rule, mask in passed.items():
            limit = rules.get(rule, gaps.threshold(RATE))
            kept = (mask["related"] & right).astype(float)
            cells = [float(limit), 1 - float(mask["test"].mean()), float(kept.mean()), bounds(interval(kept))]
            rows.append([n, rule, *cells, float(right.mean())])
        adjusted = ScoreCalibration.fit(found["calibration"], n_entries=n, covariates=similar["calibration"])
        for name, one, given in (("none", known, False), ("mean similarity", adjusted, True)):
            mask = {
                kind: one.matches(scores[:, 0], RATE, **({"covariates": similar[kind]} if given else {}))
                for kind, scores in found.items()
            }
            hubs = similar["test"] >= np.quantile(similar["test"], 0.8)
            rates = [float(mask["test"][some].mean()) for some in (slice(None), hubs, ~hubs)]
            correlation = np.corrcoef(similar["calibration"], found["calibration"][:, 0])[0, 1] if given else None
            covariates.append([n, name, correlation, *rates, float((mask["related"] & right).mean())])
    return rows, covariates


def bm25(texts, queries, k1=1.5, b=0.75):
    """Weights of the words of entries, and counts of those of queries: their product is the score (Okapi)."""
    words, documents = {}, []
    for text in texts:
        documents.append({words.setdefault(word, len(words)): n for word, n in Counter(text.lower().split()).items()})
    lengths = np.array([sum(one.values()) for one in documents])
    frequency = np.bincount([word for one in documents for word in one], minlength=len(words))
    rarity = np.log1p((len(texts) - frequency + 0.5) / (frequency + 0.5))
    share = k1 * (1 - b + b * lengths / lengths.mean())
    at = [(i, word, n) for i, one in enumerate(documents) for word, n in one.items()]
    row, column, count = (np.array(part) for part in zip(*at, strict=True))
    weights = rarity[column] * count * (k1 + 1) / (count + share[row])
    entries = scipy.sparse.csr_array((weights, (row, column)), shape=(len(texts), len(words)))
    asked = [(i, words[word]) for i, text in enumerate(queries) for word in text.lower().split() if word in words]
    shape = (len(queries), len(words))
    return entries, scipy.sparse.csr_array((np.ones(len(asked)), tuple(zip(*asked, strict=True))), shape=shape)


def engines(options, entries, queries):
    """Yield names, entries, calibration and test queries, and a function to the best scores among the first entries."""
    calibration, test = queries["calibration"], queries["test"]

    def products(some):
        return lambda asked, n, k: best(asked, some[:n], k)[0]

    yield "cosine of sentences", len(entries), calibration, test, products(entries)
    rng = np.random.default_rng(3)
    scaled = entries * np.exp(0.25 * rng.standard_normal((len(entries), 1)).astype(np.float32))
    yield "inner product, norms vary", len(entries), calibration, test, products(scaled)

    def codes(asked, n, k):
        index = ts.Index(entries.shape[1], n_bytes=24, random_state=7)
        index.fit(entries[:5000])
        index.add(entries[:n])
        return index.search(asked, k=k).scores

    yield "trellis codes of 24 bytes", len(entries), calibration, test, codes
    texts, chosen = texts_of(options), rows_of(options)
    weights, asked = bm25(
        texts[: len(entries)], [first_words(texts[i]) for i in (*chosen["calibration"], *chosen["test"])]
    )
    yield "BM25 of words", len(entries), asked[: len(calibration)], asked[len(calibration) :], products(weights)
    from topsign.paper.heads import load_cifar10_head

    features = load_cifar10_head().features.astype(np.float32)
    features = features[np.random.default_rng(4).permutation(len(features))]
    n_queries = min(options.queries, 2000)
    for name, some in (("cosine of image features", unit(features)), ("inner product of image features", features)):
        parts = np.split(some, [n_queries, 2 * n_queries])
        yield name, len(parts[2]), parts[0], parts[1], products(parts[2])
    heavy = lambda asked, n, k: -np.sort(-np.random.default_rng([*asked, n]).standard_t(3, (asked[1], n)))[:, :k]  # noqa: E731
    n_heavy = min(options.queries, 1000)
    yield "Student t, 3 degrees", options.entries[-1] // 2, (5, n_heavy), (6, n_heavy), heavy


def growth(options, entries, queries):
    """Rows of the table of false-alarm rates after growth, calibrated at the smallest number of entries."""
    rows, n = [], options.entries[0]
    for name, n_entries, calibration, test, search in engines(options, entries, queries):
        known = ScoreCalibration.fit(search(calibration, n, min(K, n)), n_entries=n)
        for level in (0.05, RATE):
            cells = []
            for factor in options.growth:
                rate = None
                if factor * n <= n_entries:
                    try:
                        limit = known.threshold(level, factor * n)
                        rate = float(np.mean(search(test, factor * n, 1)[:, 0] >= limit))
                    except ValueError:
                        rate = "refused"
                cells.append(rate)
            shape = f"{known.curvature[0]:.3f} ({known.curvature[1]:.3f})"
            rows.append([name, level, *cells, "line" if known.is_straight else "union bound", shape])
    return rows


def main():
    options = arguments(
        __doc__,
        entries=([1000, 10_000, 50_000], [200, 1000]),
        growth=([1, 3, 10, 50], [1, 3, 5]),
        queries=(3000, 400),
        sentences=(51_000, 1000),
        cache=None,
    )
    options.cache = options.cache or (None if options.quick else str(Path.home() / ".cache" / "topsign"))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    entries, queries = vectors(options)
    rows, covariates = answers(options, entries, queries)
    note = f"""False-alarm rate {RATE}, {options.queries:,} unanswerable queries to calibrate and as many to refuse,
    {len(queries["related"]):,} answerable ones. A fixed threshold is that of the smallest corpus; the gap is the best
    score minus the second, calibrated at each size. Kept: the right definition is first and passes; intervals are 95%,
    bootstrapped over queries."""
    columns = ["entries", "rule", "threshold", "refused", "kept", "95% interval", "right first"]
    tables = [table("Answers on real sentences", columns, rows, note)]
    note = f"""Covariate: the mean cosine of the query with {N_SAMPLED} entries. Hubs are the fifth of the test queries
    with the largest. Correlation: of the covariate with the best score of calibration queries."""
    columns = ["entries", "covariate", "correlation", "false alarms", "of hubs", "of others", "kept"]
    tables.append(table("Does a covariate of the query help?", columns, covariates, note))
    note = f"""Share of test queries with a match; the corpus grows from {options.entries[0]:,} entries. Curvature: of
    upper quantiles over shares of the entries, relative to their rise, with its standard error. If it is
    significantly positive, the union bound replaces the line, which refuses rates that the sample does not support."""
    columns = ["scores", "rate", *(f"{factor} x" for factor in options.growth), "growth", "curvature"]
    tables.append(table("False-alarm rates after growth", columns, growth(options, entries, queries), note))
    kept = {(row[0], row[1]): row for row in rows}
    last, fixed = options.entries[-1], [row for row in rows if row[1].startswith("fixed")][-1]
    mine = kept[last, "calibrated at this size"]
    words = f"""{mine[3]:.1%} of unanswerable queries refused among {last:,} sentences, asked for {1 - RATE:.0%};
    {mine[4]:.0%} of answerable ones kept; a fixed cosine threshold refuses {fixed[3]:.0%}"""
    save(options, tables, headline=[["Is this hit real?", words]])


if __name__ == "__main__":
    main()
