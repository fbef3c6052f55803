"""Trellis codes compared with other codes of the same bytes, all scored by the cosine of their reconstructions.

    python benchmarks/trellis_peers.py text|few|unseen|shift|cifar|source [--bytes 12 24 48 96] [--json FILE]

``text`` are the sentence vectors of text_embeddings.py (384 features), ``few`` a fifth of them, ``unseen`` the others
learned from that fifth, ``shift`` learned from nouns with verbs encoded, ``cifar`` features of the CIFAR-10 test images
that the paper's head classifies (1,024), ``source`` TF-IDF of the Python files of this environment, reduced to 300
features. Queries are held out from learning and encoding. Vectors in the cache may be float16, for all codes.

Recall@10 against the exact cosine. Everything that is drawn at random is drawn for each seed: a query's recall is the
mean over seeds, intervals of 95% are bootstrapped over queries, and differences are those on the same queries. Seconds
are wall time with the given number of threads. Rows are written as they are measured, and kept by later runs; those
that ``--only`` names are measured again. Differences are taken of rows of one run: to have those of a row that was
missing, name the row of local bases beside it.
"""

import argparse
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
from shared.codes import LEARNED_LONG, METHODS, SECONDS, applies, best
from shared.results import Record
from shared.sets import SETS
from text_embeddings import bootstrap

K = 10
OURS = "trellis, 16 local bases"
LONG = 24  # bytes above which codes that take long to learn are learned once


class Contest:
    """A set with the true neighbours of its queries."""

    def __init__(self, options):
        import faiss

        faiss.omp_set_num_threads(options.threads)
        self.options = options
        self.sample, self.entries, self.queries = SETS[options.set](options)
        self.truth = best(self.queries, self.entries, K)

    @property
    def sizes(self):
        return {
            "learned_from": len(self.sample),
            "entries": len(self.entries),
            "queries": len(self.queries),
            "features": self.entries.shape[1],
        }

    def planned(self):
        """Codes and their sizes."""
        options, n_features = self.options, self.entries.shape[1]
        return [
            (name, n_bytes)
            for n_bytes in options.bytes
            for name in METHODS
            if applies(name, n_bytes, n_features, options.most_residual)
        ]

    def seeds(self, method, n_bytes):
        if method not in LEARNED_LONG:
            return self.options.seeds
        return self.options.learned_seeds if n_bytes <= LONG else 1

    def run(self, method, n_bytes, seed):
        """A code with all but what it found, and each query's recall."""
        coded = METHODS[method](self.sample, self.entries, self.queries, n_bytes, seed, self.options)
        return per_query(coded.pop("found"), self.truth), coded


def row(method, n_bytes, runs):
    """Results of all seeds, and the mean recall of each query."""
    recalls, coded = zip(*(runs[seed] for seed in sorted(runs)), strict=True)
    found, rescored = np.mean(recalls, axis=0)
    measured = {
        "method": method,
        "bytes": n_bytes,
        "shared_bytes": coded[0]["shared_bytes"],
        "recall": float(found.mean()),
        "interval": bootstrap(found),
        "by_seed": [float(one[0].mean()) for one in recalls],
        "rescored": float(rescored.mean()),
    }
    return measured | {name: float(np.mean([one[name] for one in coded])) for name in SECONDS}, found


def per_query(found, truth):
    """Shares of each query's true neighbours among the first ten found, and among all found."""
    right = (found[:, np.newaxis] == truth[..., np.newaxis]).any(axis=1)
    return np.stack([right[:, :K].sum(axis=1), right.sum(axis=1)]) / K


def differences(before, recalls, method, n_bytes):
    """Recall of local bases less that of others on the same queries: those before, and what a row adds to them."""
    found = {(one["less"], one["bytes"]): one for one in before}
    for other, size in recalls:
        if size == n_bytes and OURS in (method, other) and other != method:
            less = other if method == OURS else method
            gain = recalls[OURS, n_bytes] - recalls[less, n_bytes]
            one = {"less": less, "bytes": n_bytes, "mean": float(gain.mean()), "interval": bootstrap(gain)}
            found[less, n_bytes] = one
    return list(found.values())


def start_worker(options):
    global contest
    contest = Contest(options)


def work(job):
    return contest.run(*job)


def compare(options):
    """Measure rows in separate processes, with a given number at a time."""
    whole = Contest(options)
    planned = whole.planned()
    names = {one: "{}, {} bytes".format(*one) for one in planned}
    record = Record(options, names.values(), "{method}, {bytes} bytes".format_map, **whole.sizes, differences=[])
    print(whole.sizes, f"{len(record.wanted)} rows", flush=True)
    todo = [one for one in planned if names[one] in record.wanted]
    jobs = [(*one, seed) for one in todo for seed in range(whole.seeds(*one))]
    jobs.sort(key=lambda job: (job[0] in LEARNED_LONG, job[1]))  # slow codes last, because a run may be stopped
    runs, recalls, spawn = {one: {} for one in planned}, {}, multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, spawn, start_worker, (options,)) as pool:
        started = {pool.submit(work, job): job for job in jobs}
        for done in as_completed(started):
            method, n_bytes, seed = started[done]
            of_row = runs[method, n_bytes]
            of_row[seed] = done.result()
            if len(of_row) == whole.seeds(method, n_bytes):
                measured, recalls[method, n_bytes] = row(method, n_bytes, of_row)
                record.notes["differences"] = differences(record.notes["differences"], recalls, method, n_bytes)
                record.add(measured)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set", choices=list(SETS))
    parser.add_argument("--bytes", type=int, nargs="+", default=[12, 24, 48, 96])
    parser.add_argument("--entries", type=int, default=50_000, help="sentences")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--learned-seeds", type=int, default=1, help=f"of OPQ and residual codebooks up to {LONG} bytes"
    )
    parser.add_argument("--source-files", type=int, default=10_000, help="queries included")
    parser.add_argument("--opq-rounds", type=int, default=20)
    parser.add_argument("--beam", type=int, default=5, help="of the residual quantiser")
    parser.add_argument("--most-residual", type=int, default=24, help="bytes above which it would take too long")
    parser.add_argument("--only", nargs="+", default=[], metavar="ROW", help='such as "OPQ, 96 bytes"')
    parser.add_argument("--workers", type=int, default=1, help="rows measured at a time")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each")
    parser.add_argument("--cache", default=str(Path.home() / ".cache" / "topsign"), help="folder of the vectors")
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    for name in ("TOPSIGN_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(options.threads)  # of the processes that are started
    compare(options)


if __name__ == "__main__":
    main()
