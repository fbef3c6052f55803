"""Searches and encoding of trellis codes on a CUDA device, compared with dense vectors there and with the CPU.

    python benchmarks/gpu_trellis.py [--out benchmarks/results/trellis/gpu.json]

Searched codes are random bytes (any bytes are a valid code) over 384 features and a random basis. Times are medians,
and ratios are taken from interleaved measurements of one run. Ids, scores and codes are checked to be bit-identical to
those of the CPU. ``--only encoding encoders`` measures only encoding.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gpu import MISSING, THREADS, graph_of, interleaved

import topsign as ts
from topsign import kernels
from topsign.families import TrellisRecipe
from topsign.gpu import cuda_device
from topsign.gpu.best import BestSearch
from topsign.gpu.rings import RoundedOnDevice, TrellisFormat
from topsign.gpu.scan import Part
from topsign.gpu.viterbi import Viterbi
from topsign.kernels import QueriedCells, RoundedQueries, TrellisRange, TrellisSignals

if not MISSING:
    import cupy
    import torch

FEATURES, K = 384, 10
COMPARED = 64  # queries of a batch
ROWS = 2**20  # dense vectors multiplied at a time


def dense_search(vectors: Any, queries: Any) -> tuple[Any, Any]:
    """Return the best rows by half-precision products, one block of rows at a time."""
    values, places = [], []
    for start in range(0, len(vectors), ROWS):
        found, at = torch.topk(queries @ vectors[start : start + ROWS].T, K)
        values.append(found)
        places.append(at + start)
    best, order = torch.topk(torch.cat(values, 1), K)
    return best, torch.cat(places, 1).gather(1, order)


def index(device: Any, n: int, n_bytes: int, vectors: Any, batches: tuple[int, ...]) -> dict[str, Any]:
    """Searches of n codes, and of as many dense vectors."""
    recipe = TrellisRecipe.learn(
        np.empty((0, FEATURES), np.float32), n_bits=8 * n_bytes, basis="hadamard", center=False, random_state=3
    )
    (cell,) = recipe.cells
    codes = cupy.random.default_rng(n_bytes).integers(0, 256, (n, n_bytes), dtype=cupy.uint8)
    host = cupy.asnumpy(codes)
    form = TrellisFormat(device, cell.tables)
    times = []
    for _ in range(2):
        begin = time.perf_counter()
        rings = form.load(host, norms=False)
        device.wait()
        times.append(time.perf_counter() - begin)
    part = Part(rings, rings.weights)
    found: dict[str, Any] = {
        "entries": n,
        "bytes_per_code": n_bytes,
        "bytes": rings.nbytes + 4 * n,
        "seconds_to_load": round(times[-1], 3),
        "search": [],
    }
    for n_queries in batches:
        signals = np.random.default_rng(2).standard_normal((n_queries, FEATURES), dtype=np.float32)
        (queries,) = recipe.cells.round(recipe.project(signals)[0])
        on_device, half = RoundedOnDevice.put(device, queries), torch.from_numpy(signals).cuda().half()
        search = BestSearch(device, form, n_queries, K, n, waits=True)

        def ours(search: Any = search, on_device: Any = on_device) -> None:
            search.start(on_device)
            search.scan(part)

        def dense(half: Any = half) -> Any:
            return dense_search(vectors[:n], half)

        times_of = interleaved({"ours": ours, "dense": dense}, 3 if n_queries * n > 10**9 else 10)
        few = RoundedQueries(*(column[:COMPARED] for column in (queries.values, queries.scales, queries.constants)))
        begin = time.perf_counter()
        cells = QueriedCells.one(cell.tables, few)
        positions, scores = kernels.active().rank_trellis(cells, [TrellisRange(host)], K, n_threads=THREADS)
        seconds = time.perf_counter() - begin
        same = np.array_equal(cupy.asnumpy(search.positions)[:COMPARED], positions)
        same = same and np.array_equal(cupy.asnumpy(search.scores)[:COMPARED], scores)
        found["search"].append(
            {
                "queries": n_queries,
                "milliseconds": round(times_of["ours"] / 1e3, 3),
                "dense_milliseconds": round(times_of["dense"] / 1e3, 3),
                "times_as_fast": round(times_of["dense"] / times_of["ours"], 2),
                "nanoseconds_per_pair": round(times_of["ours"] * 1e3 / n / n_queries, 5),
                "processor_milliseconds": round(1e3 * seconds, 1),
                "queries_compared": len(few),
                "same_as_processor": bool(same),
            }
        )
        print(n, n_bytes, json.dumps(found["search"][-1]), flush=True)
        del search
        cupy.get_default_memory_pool().free_all_blocks()
    return found


def two_digits(device: Any, n: int, n_bytes: int) -> list[dict[str, Any]]:
    """Searches by queries of one and of two digits of the same codes; values of queries are random."""
    recipe = TrellisRecipe.learn(
        np.empty((0, FEATURES), np.float32), n_bits=8 * n_bytes, basis="hadamard", center=False, random_state=3
    )
    tables = recipe.cells[0].tables
    rng, found = np.random.default_rng(1), []
    codes = rng.integers(0, 256, (n, n_bytes), np.uint8)
    for n_queries in (1, 8, 64, 1024):
        values = rng.integers(-127, 128, (n_queries, tables.n_coded), np.int8)
        fine = rng.integers(-16, 16, values.shape, np.int8)
        numbers = rng.uniform(1e-4, 1, (2, n_queries)).astype(np.float32)
        calls, searches, scanners = {}, [], {}
        for name, digits in (("one_digit", (None, 0)), ("two_digits", (fine, 5))):
            queries, here = RoundedQueries(values, *numbers, *digits), replace(tables, fine_bits=digits[1])
            form = TrellisFormat(device, here)
            rings = form.load(codes, norms=False)
            search = BestSearch(device, form, n_queries, K, n, waits=True)
            on_device, part = RoundedOnDevice.put(device, queries), Part(rings, rings.weights)

            def run(search: Any = search, on_device: Any = on_device, part: Any = part) -> None:
                search.start(on_device)
                search.scan(part)

            calls[name], scanners[name] = run, type(search.scanner).__name__
            searches.append((search, QueriedCells.one(here, queries[:COMPARED])))
        times = interleaved(calls, 5)
        same = True
        for search, cells in searches:
            positions, scores = kernels.active().rank_trellis(cells, [TrellisRange(codes)], K, n_threads=THREADS)
            same = same and np.array_equal(cupy.asnumpy(search.positions)[:COMPARED], positions)
            same = same and np.array_equal(cupy.asnumpy(search.scores)[:COMPARED], scores)
        row = {"entries": n, "bytes_per_code": n_bytes, "queries": n_queries, "microseconds": times}
        found.append(row | {"scanners": scanners, "same_as_processor": bool(same)})
        print(json.dumps(found[-1]), flush=True)
    return found


def pq(n: int, n_bytes: int, n_queries: int) -> dict[str, Any]:
    """faiss IndexPQ of the same bytes on the processor, and our kernels there; codes are random bytes."""
    import faiss

    rng = np.random.default_rng(0)
    peer = faiss.IndexPQ(FEATURES, n_bytes, 8)
    peer.pq.cp.niter = 1
    peer.train(rng.standard_normal((9984, FEATURES), dtype=np.float32))
    codes = rng.integers(0, 256, (n, n_bytes), np.uint8)
    faiss.copy_array_to_vector(codes.ravel(), peer.codes)
    peer.ntotal = n
    queries, times = rng.standard_normal((n_queries, FEATURES), dtype=np.float32), []
    for _ in range(3):
        begin = time.perf_counter()
        peer.search(queries, K)
        times.append(time.perf_counter() - begin)
    return {
        "entries": n,
        "bytes_per_code": n_bytes,
        "queries": n_queries,
        "threads": faiss.omp_get_max_threads(),
        "milliseconds": round(1e3 * sorted(times)[1], 2),
    }


def whole_index(n: int) -> list[dict[str, Any]]:
    """An index with all that a search returns, on the processor and by ``to("cuda")``: one basis, and 16 local ones."""
    rng, found = np.random.default_rng(5), []
    signals = rng.standard_normal((n, 128), dtype=np.float32) * np.geomspace(1, 0.1, 128).astype(np.float32)
    for n_local in (1, 16):
        made = ts.TrellisIndex(n_features=128, n_bytes=16, n_local=n_local, random_state=7).fit(signals[:20_000])
        made.add(signals)
        held = made.to("cuda")
        for n_queries in (1, 256):
            queries = signals[:n_queries] + 0.1 * rng.standard_normal((n_queries, 128), dtype=np.float32)
            held.search(queries)
            times, answers = {}, []
            for name, searched in (("device", held), ("processor", made)):
                begin = time.perf_counter()
                answers.append(searched.search(queries))
                times[name] = round(1e3 * (time.perf_counter() - begin), 2)
            same = all(np.array_equal(*(getattr(a, name) for a in answers)) for name in ("ids", "scores"))
            found.append(
                {
                    "entries": n,
                    "n_local": n_local,
                    "queries": n_queries,
                    "milliseconds": times,
                    "same_as_processor": same,
                }
            )
            print(json.dumps(found[-1]), flush=True)
    return found


def encoding(device: Any, n: int, n_bytes: int, window: int) -> dict[str, Any]:
    """Codes of coordinates, without projections, on the device (copies included) and on all threads."""
    recipe = TrellisRecipe.learn(
        np.empty((0, FEATURES), np.float32),
        n_bits=8 * n_bytes,
        basis="hadamard",
        center=False,
        window=window,
        random_state=3,
    )
    tables = recipe.cells[0].tables
    values = np.random.default_rng(4).standard_normal((n, tables.n_coded), dtype=np.float32)
    some, encoder = values[: n // 20], Viterbi(device)
    made = encoder.trellis_encode([TrellisSignals(tables, values)])  # compiles
    begin = time.perf_counter()
    expected = kernels.active().trellis_encode([TrellisSignals(tables, some)], n_threads=THREADS)
    seconds = time.perf_counter() - begin
    times = interleaved({"ours": lambda: encoder.trellis_encode([TrellisSignals(tables, values)])}, 5)
    found = {
        "signals": n,
        "bytes_per_code": n_bytes,
        "window": window,
        "microseconds_per_signal": round(times["ours"] / n, 4),
        "processor_microseconds_per_signal": round(1e6 * seconds / len(some), 4),
        "signals_compared": len(some),
        "same_as_processor": bool(np.array_equal(made[: len(some)], expected)),
    }
    print(json.dumps(found), flush=True)
    return found


def encoders(n: int) -> list[dict[str, Any]]:
    """An encoder with the projections of signals, on the processor and by ``to("cuda")``: three kinds of bases."""
    signals = np.random.default_rng(5).standard_normal((n, 128), dtype=np.float32)
    signals *= np.geomspace(1, 0.1, 128).astype(np.float32)
    found = []
    for basis, n_local in (("hadamard", 1), ("principal", 1), ("principal", 16)):
        made = ts.TrellisEncoder(16, basis=basis, n_local=n_local, random_state=7).fit(signals[:20_000])
        held = made.to("cuda")
        held.encode(signals[:100])
        times, codes = {}, []
        for name, encoder in (("device", held), ("processor", made)):
            begin = time.perf_counter()
            codes.append(encoder.encode(signals))
            times[name] = round(1e6 * (time.perf_counter() - begin) / n, 3)
        found.append(
            {
                "signals": n,
                "basis": basis,
                "n_local": n_local,
                "microseconds_per_signal": times,
                "same_as_processor": codes[0] == codes[1],
            }
        )
        print(json.dumps(found[-1]), flush=True)
    return found


def head(n_classes: int, n_features: int, n_bits: int, inputs: tuple[int, ...]) -> dict[str, Any]:
    """Top 10 of a layer, with the projection of inputs, compared with a bfloat16 Linear; codes are random bytes."""
    layer = ts.nn.CompressedLinear(n_features, n_classes, family="trellis", n_bits=n_bits, bias=False, random_state=3)
    layer.codes.copy_(torch.randint(0, 256, layer.codes.shape, dtype=torch.uint8))
    layer.codes[:, -1] = 0x80  # scales near one
    x = torch.randn(max(inputs), n_features)
    expected = layer.topk(x[:16], 10)
    layer.cuda()
    linear = torch.nn.Linear(n_features, n_classes, bias=False, dtype=torch.bfloat16, device="cuda")
    found: dict[str, Any] = {
        "classes": n_classes,
        "features": n_features,
        "bits": n_bits,
        "times_smaller": round(2 * n_classes * n_features / layer.nbytes, 1),
        "top_10": [],
    }
    for n_inputs in inputs:
        here = x[:n_inputs].cuda()
        half = here.bfloat16()
        calls = {"ours": lambda h=here: layer.topk(h, 10), "dense": lambda h=half: torch.topk(linear(h), 10)}
        ours = calls["ours"]()
        n = min(n_inputs, 16)
        same = torch.equal(ours.indices[:n].cpu(), expected.indices[:n])
        same = same and torch.equal(ours.values[:n].cpu(), expected.values[:n])
        calls |= {f"{name}_graph": graph_of(call) for name, call in calls.items()}
        calls["ours_logits"] = lambda h=here: layer(h)
        calls["dense_logits"] = lambda h=half: linear(h)
        times = interleaved(calls, 20)
        found["top_10"].append({"inputs": n_inputs, "microseconds": times, "same_as_processor": bool(same)})
        print(json.dumps(found["top_10"][-1]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="parts to measure; the others stay as the file has them")
    parser.add_argument("--commit", help="recorded with the results")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "trellis" / "gpu.json")
    options = parser.parse_args()
    if MISSING:
        parser.error(f"needs CuPy and PyTorch: {MISSING}")
    device = cuda_device()
    result: dict[str, Any] = json.loads(options.out.read_text()) if options.only and options.out.exists() else {}
    result |= {
        "device": torch.cuda.get_device_name(0),
        "software": {
            "python": platform.python_version(),
            "cupy": cupy.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "commit": options.commit,
        "processor_threads": THREADS,
        "kernels": kernels.active().name,
    }

    def indexes() -> list[dict[str, Any]]:
        vectors = torch.randn(10**7, FEATURES, device="cuda", dtype=torch.float16)
        return [index(device, n, n_bytes, vectors, (1, 64, 1024)) for n in (10**6, 10**7) for n_bytes in (24, 48)]

    steps = {
        "index": indexes,
        "two_digits": lambda: two_digits(device, 10**6, 24),
        "pq": lambda: [pq(10**6, n_bytes, n_queries) for n_bytes in (24, 48) for n_queries in (1, 64)],
        "whole_index": lambda: whole_index(200_000),
        "encoding": lambda: [
            encoding(device, 200_000, n_bytes, window) for n_bytes in (24, 48) for window in (8, 10, 12)
        ],
        "encoders": lambda: encoders(200_000),
        "heads": lambda: [head(128_256, 4096, 2048, (1, 16, 256))],
    }
    for name, step in steps.items():
        if options.only and name not in options.only:
            continue
        begin = time.perf_counter()
        result[name] = step()
        cupy.get_default_memory_pool().free_all_blocks()
        torch.cuda.empty_cache()
        print(f"{name}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
