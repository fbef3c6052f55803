"""Queries without a match that are refused, and queries with one that are kept, by calibrated and by fixed thresholds.

Entries are definitions of WordNet, embedded by all-MiniLM-L6-v2 and compared by cosine. A query is the first two thirds
of the words of a definition: answerable if that definition is an entry, else unanswerable. A random half of 6,000
unanswerable queries calibrates, the others are refused or not; results are means over ten such halves. An answerable
query is kept if its own definition is first and passes.

The last table follows thresholds as the corpus grows, for other scores and engines too: distances of FAISS, a graph of
hnswlib, inner products of vectors whose norms vary, BM25, a reranker, scores of trellis codes, features of CIFAR-10
images, and heavy tails. Vectors are kept in ``--cache`` (see
text_embeddings.py); a quick run without them takes random vectors and texts.
"""

import contextlib
import math
import os
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse
from shared.results import arguments, bounds, interval, save, table
from text_embeddings import N_FEATURES, glosses, load_model, sentences, unit

import topsign as ts
from topsign.significance import ScoreCalibration

RATE, K, N_SAMPLED, N_SPLITS, N_RERANKED = 0.01, 100, 500, 10, 20
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
        "unrelated": range(first, first + 2 * options.queries),
    }


def halves(n_queries):
    """Yield rows of queries that calibrate and of those that test."""
    rng = np.random.default_rng(6)
    for _ in range(N_SPLITS):
        order = rng.permutation(n_queries)
        yield order[: n_queries // 2], order[n_queries // 2 :]


def vectors(options):
    """Unit vectors of entries and of two kinds of queries."""
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


def best(queries, k, entries):
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
    n_unrelated, smallest = len(queries["unrelated"]), options.entries[0]
    sample = entries[np.random.default_rng(2).permutation(smallest)[: min(N_SAMPLED, smallest)]]
    similar = {name: (found @ sample.T).mean(axis=1) for name, found in queries.items()}
    hubs = similar["unrelated"] >= np.quantile(similar["unrelated"], 0.8)
    rows, covariates, first = [], [], {}
    for n in options.entries:
        unrelated = best(queries["unrelated"], min(K, n), entries[:n])[0]
        related, at = best(queries["related"], 2, entries[:n])
        right = at[:, 0] == np.arange(len(at))
        own = ScoreCalibration.fit_corpus(partial(best, entries=entries[:n]), entries[:n], k=min(K, n - 1))
        passed, shares = {}, {"none": [], "mean similarity": []}
        for number, (some, others) in enumerate(halves(n_unrelated)):
            known = ScoreCalibration.fit(unrelated[some], n_entries=n)
            first.setdefault(number, known)
            gaps = ScoreCalibration.fit(unrelated[some, 0] - unrelated[some, 1], n_entries=n)
            rules = {
                "calibrated at this size": (known.threshold(RATE), False),
                f"calibrated at {smallest:,}, grown": (first[number].threshold(RATE, n), False),
                f"fixed, from {smallest:,} entries": (first[number].threshold(RATE), False),
                "gap to the second": (gaps.threshold(RATE), True),
                "calibrated with entries": (own.threshold(RATE), False),
            }
            for rule, (limit, is_gap) in rules.items():
                values = [scores[:, 0] - is_gap * scores[:, 1] for scores in (unrelated[others], related)]
                refused, kept = float(np.mean(values[0] < limit)), (values[1] >= limit) & right
                passed.setdefault(rule, []).append((float(limit), refused, kept))
            given = {name: values[some] if name == "unrelated" else values for name, values in similar.items()}
            adjusted = ScoreCalibration.fit(unrelated[some], n_entries=n, covariates=given["unrelated"])
            for name, one in (("none", known), ("mean similarity", adjusted)):
                asked = [{} if one is known else {"covariates": similar["unrelated"][others]}]
                asked.append({} if one is known else {"covariates": similar["related"]})
                fires = one.matches(unrelated[others, 0], RATE, **asked[0])
                kept = one.matches(related[:, 0], RATE, **asked[1]) & right
                parts = [fires, fires[hubs[others]], fires[~hubs[others]], kept]
                shares[name].append([float(part.mean()) for part in parts])
        for rule, found in passed.items():
            limits, refused, kept = zip(*found, strict=True)
            each = np.mean(kept, axis=0)  # of a query, over the halves
            cells = [float(np.mean(limits)), float(np.mean(refused)), float(each.mean()), bounds(interval(each))]
            rows.append([n, rule, *cells, float(right.mean())])
        correlation = float(np.corrcoef(similar["unrelated"], unrelated[:, 0])[0, 1])
        for name, found in shares.items():
            covariates.append([n, name, None if name == "none" else correlation, *np.mean(found, axis=0).tolist()])
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


def reranker(options, entries, queries, texts, asked):
    """Return a search that reorders the best entries by late interaction of tokens, and the number of its entries."""
    n_entries = min(len(entries), 3 * options.entries[0])
    if options.quick and not options.cache:
        tokens = [[vector[np.newaxis] for vector in some] for some in (entries, queries)]
    else:
        model = load_model(options.threads)

        def encoded(some):
            found = model.encode(some, output_value="token_embeddings", convert_to_numpy=False)
            return [unit(one.cpu().numpy()) for one in found]

        tokens = [encoded(texts[:n_entries]), encoded(asked)]

    def search(rows, n, k):
        _, found = best(queries[rows], min(N_RERANKED, n), entries[:n])
        scores = [
            [float((tokens[1][row] @ tokens[0][entry].T).max(axis=1).mean()) for entry in mine]
            for row, mine in zip(rows, found, strict=True)
        ]
        return -np.sort(-np.array(scores), axis=1)[:, :k]

    return n_entries, search


def engines(options, entries, queries):
    """Yield names, entries, the number of queries, a search for rows of them among the first entries, and "closer"."""
    import faiss
    import hnswlib

    m, n_features = len(queries), entries.shape[1]

    def products(some, asked):
        return lambda rows, n, k: best(asked[rows], k, some[:n])[0]

    yield "cosine of sentences", len(entries), m, products(entries, queries), "larger"
    rng = np.random.default_rng(3)
    scaled = entries * np.exp(0.25 * rng.standard_normal((len(entries), 1)).astype(np.float32))
    yield "inner product, norms vary", len(entries), m, products(scaled, queries), "larger"

    def distances(rows, n, k):
        index = faiss.IndexFlatL2(n_features)
        index.add(scaled[:n])
        return index.search(queries[rows], k)[0]

    yield "FAISS, squared distance, norms vary", len(entries), m, distances, "smaller"

    def graph(rows, n, k):
        index = hnswlib.Index(space="cosine", dim=n_features)
        index.init_index(max_elements=n, M=12, ef_construction=60, random_seed=7)
        index.add_items(entries[:n], num_threads=options.threads)
        index.set_ef(2 * k + 50)
        return index.knn_query(queries[rows], k=k, num_threads=options.threads)[1]

    yield "hnswlib, cosine distance", len(entries), m, graph, "smaller"

    def codes(rows, n, k):
        index = ts.Index(n_features, n_bytes=24, random_state=7)
        index.fit(entries[:5000])
        index.add(entries[:n])
        return index.search(queries[rows], k=k).scores

    yield "trellis codes of 24 bytes", len(entries), m, codes, "larger"
    texts = texts_of(options)
    asked = [first_words(texts[row]) for row in rows_of(options)["unrelated"]]
    yield "BM25 of words", len(entries), m, products(*bm25(texts[: len(entries)], asked)), "larger"
    few = min(m, 1500)
    n_reranked, rerank = reranker(options, entries, queries, texts, asked[:few])
    yield f"reranker of {N_RERANKED} hits", n_reranked, few, rerank, "larger"
    from topsign.paper.heads import load_cifar10_head

    features = load_cifar10_head().features.astype(np.float32)
    features = features[np.random.default_rng(4).permutation(len(features))]
    parts = np.split(features, [min(m, 4000)])
    for name, (asked, some) in (("cosine", map(unit, parts)), ("inner product", parts)):
        yield f"{name} of image features", len(some), len(asked), products(some, asked), "larger"
    n_heavy = min(m, 2000)

    def heavy(rows, n, k):
        return -np.sort(-np.random.default_rng(n).standard_t(3, (n_heavy, n)), axis=1)[rows, :k]

    yield "Student t, 3 degrees", options.entries[-1] // 5, n_heavy, heavy, "larger"


def growth(options, entries, queries):
    """Rows of the table of false-alarm rates after growth, calibrated at the smallest number of entries."""
    rows, n = [], options.entries[0]
    for name, n_entries, m, search, closer in engines(options, entries, queries):
        every = np.arange(m)
        lists = search(every, n, min(K, n))
        known = [ScoreCalibration.fit(lists[some], n_entries=n, closer=closer) for some, _ in halves(m)]
        rates = {level: [] for level in (0.05, RATE)}
        for factor in options.growth:
            if factor * n > n_entries:
                for cells in rates.values():
                    cells.append(None)
                continue
            now = search(every, factor * n, 2)[:, 0]
            for level, cells in rates.items():
                cells.append(_rate(known, now, level, factor * n))
        curvature = np.mean([one.curvature for one in known], axis=0)
        shape = f"{curvature[0]:.3f} ({curvature[1]:.3f})"
        n_lines = sum(one.is_straight for one in known)
        rows += [[name, level, *cells, f"{n_lines} of {N_SPLITS}", shape] for level, cells in rates.items()]
        print(*rows[-2:], sep="\n", flush=True)
    return rows


def _rate(known, now, level, n_entries):
    """Mean share of the test queries with a match, over the halves whose calibration supports the rate."""
    found = []
    for one, (_, others) in zip(known, halves(len(now)), strict=True):
        with contextlib.suppress(ValueError):
            found.append(float(one.matches(now[others], level, n_entries).mean()))
    return float(np.mean(found)) if len(found) > N_SPLITS // 2 else "refused"


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
    print(len(entries), {name: len(found) for name, found in queries.items()}, flush=True)
    rows, covariates = answers(options, entries, queries)
    note = f"""False-alarm rate {RATE}, {options.queries:,} unanswerable queries to calibrate and as many to refuse,
    {len(queries["related"]):,} answerable ones; means over {N_SPLITS} random halves of the unanswerable ones. A
    fixed threshold is that of the smallest corpus; the gap is the best score minus the second, calibrated at each
    size; entries calibrate by fit_corpus. Kept: the right definition is first and passes; intervals are 95%,
    bootstrapped over queries."""
    columns = ["entries", "rule", "threshold", "refused", "kept", "95% interval", "right first"]
    tables = [table("Answers on real sentences", columns, rows, note)]
    note = f"""Covariate: the mean cosine of the query with {N_SAMPLED} entries. Hubs are the fifth of the unanswerable
    queries with the largest. Correlation: of the covariate with the best score of unanswerable queries."""
    columns = ["entries", "covariate", "correlation", "false alarms", "of hubs", "of others", "kept"]
    tables.append(table("Does a covariate of the query help?", columns, covariates, note))
    note = f"""Share of test queries with a match, mean over {N_SPLITS} random halves of the queries; the corpus grows
    from {options.entries[0]:,} entries. Curvature: of upper quantiles over shares of the entries, relative to their
    rise, with its standard error. If it is significantly positive, the union bound replaces the line, which refuses
    rates that the sample does not support; lines: halves whose thresholds follow a line."""
    columns = ["scores", "rate", *(f"{factor} x" for factor in options.growth), "lines", "curvature"]
    tables.append(
        table("False-alarm rates after growth", columns, growth(options, entries, queries["unrelated"]), note)
    )
    kept = {(row[0], row[1]): row for row in rows}
    last, fixed = options.entries[-1], [row for row in rows if row[1].startswith("fixed")][-1]
    mine = kept[last, "calibrated at this size"]
    task = f"Refuse {1 - RATE:.0%} of the queries that have no answer among {last:,} sentences"
    words = (
        f"{mine[3]:.1%} refused, {mine[4]:.0%} of the others answered; a fixed cosine threshold refuses {fixed[3]:.0%}"
    )
    save(options, tables, headline=[[task, words]])


if __name__ == "__main__":
    main()
