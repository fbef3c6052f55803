"""Searches for a recall on a CUDA device: times of visits and of exhaustive searches there, beside the processor's.

    python benchmarks/gpu_regions.py INDEX --sentences FILE [--entries 10_000_000] [--out FILE]

INDEX is a folder: opened if it exists, else made. Its entries are resampled sentences, as in ``regions.py``, drawn on
the device from the vectors in FILE (.npy). Regions are learned from the first 400,000 entries; the others are assigned
to the region nearest to their signal by a product on the device, because the processor would take minutes. Recall is
calibrated with all entries present. Times are medians of interleaved calls, on the clock, in milliseconds.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from gpu import MISSING, THREADS
from shared.resampling import N_MIXED, N_SOURCES, SPREAD
from shared.results import save

import topsign as ts
from topsign.families import Visits, unit_queries
from topsign.kernels import RegionRule
from topsign.search import ENGINE, Regions, RegionSearch

if not MISSING:
    import cupy
    import torch

K, ASKED, FIRST, BLOCK = 10, 0.95, 400_000, 200_000
DEVICE, BATCHES, N_QUERIES = "cuda", (1, 4, 16, 256), 1024
WEIGHT = SPREAD / np.sqrt(N_MIXED)


class Resampler:
    """Sentences plus random combinations of differences to their neighbours, made on the device."""

    def __init__(self, path: Path, seed: int) -> None:
        self.vectors = torch.nn.functional.normalize(torch.from_numpy(np.load(path)).to(DEVICE).float())
        scores = [rows @ self.vectors.T for rows in self.vectors.split(4096)]
        self.neighbors = torch.cat([some.topk(N_SOURCES + 1).indices[:, 1:] for some in scores])
        self.random = torch.Generator(DEVICE).manual_seed(seed)

    def draw(self, n: int) -> Any:
        sources = torch.randint(len(self.vectors), (n,), device=DEVICE, generator=self.random)
        made, base = self.vectors[sources].clone(), self.vectors[sources]
        for _ in range(N_MIXED):
            which = torch.randint(N_SOURCES, (n,), device=DEVICE, generator=self.random)
            weights = WEIGHT * torch.randn((n, 1), device=DEVICE, generator=self.random)
            made += (self.vectors[self.neighbors[sources, which]] - base) * weights
        return torch.nn.functional.normalize(made)


def build(options: argparse.Namespace, source: Resampler, queries: Any) -> dict[str, float]:
    """Make the index in its folder; return the seconds of each step."""
    seconds: dict[str, float] = {}
    begin = time.perf_counter()

    def lap(name: str) -> None:
        seconds[name] = round(time.perf_counter() - begin - sum(seconds.values()), 1)
        print(name, seconds[name], flush=True)

    index = ts.TrellisIndex(n_features=source.vectors.shape[1], n_bytes=24, random_state=7, path=options.index)
    first = min(FIRST, options.entries)
    signals = source.draw(first).cpu().numpy()
    index.fit(signals[:20_000])
    index.add(signals)
    lap("first entries")
    index.learn_regions(options.regions)
    lap("regions")
    learned = index._learned().regional.regions()
    assert learned is not None
    means, halves = (torch.from_numpy(values).to(DEVICE) for values in (learned.vectors, learned.half_norms))
    mean = np.zeros(signals.shape[1]) if index.recipe.center is None else index.recipe.center
    center, held = torch.from_numpy(np.asarray(mean, np.float32)).to(DEVICE), list[Any]()

    def assign(regions: Regions, recipe: Any, codes: Any, columns: Any) -> Any:
        (units,) = held
        assert len(codes) == len(units)
        found = [torch.argmax(some @ means.T - halves, 1) for some in units.split(16384)]
        return torch.cat(found).cpu().numpy().astype(np.uint16)

    theirs, Regions.assign_codes = Regions.assign_codes, assign  # type: ignore[method-assign]
    for start in range(first, options.entries, BLOCK):
        signals = source.draw(min(BLOCK, options.entries - start))
        host = signals.cpu().numpy()
        held[:] = [torch.nn.functional.normalize(signals - center)]
        index.add(host)
    Regions.assign_codes = theirs  # type: ignore[method-assign]
    lap("other entries")
    index.calibrate_recall(queries)
    lap("calibration")
    index.close()
    return seconds


def always_visit(yes: bool) -> None:
    """Let searches visit regions whatever that costs, or as the costs say."""
    for name in ("_is_slower", "_choosing_is_slower"):
        setattr(RegionSearch, name, (lambda *_: False) if yes else ORIGINAL[name])


ORIGINAL = {name: getattr(RegionSearch, name) for name in ("_is_slower", "_choosing_is_slower")}


def interleaved(calls: dict[str, Any], rounds: int) -> dict[str, float]:
    """Median milliseconds on the clock; a call takes the number of the round."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(-3, rounds):
        for name, call in calls.items():
            begin = time.perf_counter()
            call(max(0, turn))
            if turn >= 0:
                times[name].append(1e3 * (time.perf_counter() - begin))
    return {name: round(statistics.median(found), 4) for name, found in times.items()}


def steps(index: Any, held: Any, queries: Any) -> dict[str, float]:
    """Times of what a search of one query does, one after the other."""
    recipe, regional, engine = index.recipe, index._learned().regional, held._engine
    regions, snapshot = regional.regions(), held._store.snapshot
    search = regional.search(index._entries(), index._entries(), k=K, recall=ASKED, probes=None)
    counts, strata, known = search._counts, search._strata, search.calibration
    rule = RegionRule(known.edges, strata.n_regions, strata.n_entries, known.least)
    units, _ = unit_queries(recipe, queries, n_threads=THREADS)
    prepared = [recipe.prepare(queries, part=slice(i, i + 1), n_threads=THREADS) for i in range(len(queries))]
    chosen = [regions.choose(rule, counts, units[i : i + 1], n_threads=THREADS) for i in range(len(queries))]
    visits = [Visits(regions.order.ranges(snapshot), *one[1:]) for one in chosen]
    calls = {
        "unit query": lambda i: unit_queries(recipe, queries[i : i + 1], n_threads=THREADS),
        "prepare": lambda i: recipe.prepare(queries, part=slice(i, i + 1), n_threads=THREADS),
        "choose": lambda i: regions.choose(rule, counts, units[i : i + 1], n_threads=THREADS),
        "visit on the device": lambda i: engine.visit(prepared[i], snapshot, visits[i], K, n_threads=THREADS),
        "visit on the processor": lambda i: ENGINE.visit(prepared[i], snapshot, visits[i], K, n_threads=THREADS),
        "rank on the device": lambda i: engine.rank(prepared[i], snapshot, K, n_threads=THREADS),
    }
    return interleaved(calls, len(queries))


def measure(options: argparse.Namespace, source: Resampler) -> dict[str, Any]:
    index = ts.open_index(options.index, readonly=True)
    begin = time.perf_counter()
    held = index.to(DEVICE)
    loading = time.perf_counter() - begin
    queries = source.draw(N_QUERIES).cpu().numpy()
    result: dict[str, Any] = {"n_entries": len(index), "n_regions": index.regions.n_regions, "k": K, "asked": ASKED}
    result |= {"seconds_to_load": round(loading, 2), "bytes": held.nbytes, "threads": THREADS, "times": []}
    always_visit(True)
    for size in BATCHES:
        batches = [queries[at : at + size] for at in range(0, len(queries) - size + 1, size)]
        calls = {
            "device, exhaustive": lambda i, b=batches: held.search(b[i], K),
            "device, visits": lambda i, b=batches: held.search(b[i], K, recall=ASKED),
            "processor, visits": lambda i, b=batches: index.search(b[i], K, recall=ASKED),
        }
        row = {"queries": size, "milliseconds": interleaved(calls, min(len(batches), 200 if size == 1 else 4))}
        some = [held.search(batches[i], K, recall=ASKED) for i in range(min(16, len(batches)))]
        same = [index.search(batches[i], K, recall=ASKED) for i in range(min(16, len(batches)))]
        row["visited"] = float(np.mean([one.visited.mean() for one in some]))
        row["same_as_processor"] = all(
            np.array_equal(getattr(a, name), getattr(b, name))
            for a, b in zip(some, same, strict=True)
            for name in ("ids", "scores")
        )
        always_visit(False)
        row["exhaustive_by_cost"] = float((held.search(batches[0], K, recall=ASKED).exhaustive != "").mean())
        always_visit(True)
        result["times"].append(row)
        print(row, flush=True)
    found, exact = held.search(queries[:512], K, recall=ASKED), held.search(queries[:512], K).ids
    recalls = np.array([np.isin(b, a).mean() for a, b in zip(found.ids, exact, strict=True)])
    result["recall"] = {
        "achieved": recalls.mean(),
        "standard_error": recalls.std() / np.sqrt(len(recalls)),
        "visited": found.visited.mean(),
        "exhaustive": (found.exhaustive != "").mean(),
        "queries": len(recalls),
    }
    result["steps_of_one_query"] = steps(index, held, queries[:200])
    print(result["recall"], result["steps_of_one_query"], flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("--sentences", type=Path, required=True, help="vectors of sentences, .npy")
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--regions", type=int, default=32768, help="as many as suit ten million entries")
    parser.add_argument("--build-only", action="store_true", help="make the index, measure nothing")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "regions" / "gpu.json")
    options = parser.parse_args()
    if MISSING:
        parser.error(f"needs CuPy and PyTorch: {MISSING}")
    source = Resampler(options.sentences, seed=1)
    if not options.index.exists():
        print(build(options, source, Resampler(options.sentences, seed=2).draw(1000).cpu().numpy()), flush=True)
    if options.build_only:
        return
    measured = measure(options, Resampler(options.sentences, seed=3))
    software = {"python": platform.python_version(), "cupy": cupy.__version__, "torch": torch.__version__}
    options.index, options.sentences, options.out, out = None, None, None, options.out
    save(out, options, {"device": torch.cuda.get_device_name(0), "software": software} | measured)


if __name__ == "__main__":
    main()
