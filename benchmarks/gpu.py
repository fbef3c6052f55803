"""Heads, an index and encoding on a CUDA device, compared with dense layers and the CPU, in one run.

    python benchmarks/gpu.py [--entries 100_000_000] [--out benchmarks/results/gpu.json]

Times are medians, and ratios are taken from interleaved measurements of one run. All timed results are checked to be
bit-identical to those of the CPU.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import topsign as ts
from topsign import kernels
from topsign.gpu import GpuEncoder, HeadScanner, cuda_device
from topsign.gpu.best import BestSearch
from topsign.gpu.chunks import CHUNK, ResidentChunks, chunks_of
from topsign.gpu.forms import SignLoader
from topsign.gpu.scan import Part
from topsign.gpu.stripes import Format, Stripes
from topsign.kernels import CodeRange, Layout

try:
    import cupy
    import torch
except ImportError as error:
    MISSING: str | None = str(error)
else:
    MISSING = None

THREADS = kernels.n_threads(None)


def interleaved(functions: dict[str, Any], rounds: int) -> dict[str, float]:
    """Median microseconds of each, measured in turn by events of the device."""
    for function in functions.values():
        for _ in range(3):
            function()
    torch.cuda.synchronize()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            function()
            end.record()
            end.synchronize()
            times[name].append(1e3 * start.elapsed_time(end))
    return {name: round(statistics.median(found), 1) for name, found in times.items()}


def graph_of(function: Any) -> Any:
    """Return a function that runs the CUDA graph of a call."""
    function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = function()
    return lambda: (graph.replay(), kept)


def random_codes(device: Any, n: int, layout: Layout, encoder: GpuEncoder, seed: int) -> tuple[Any, Any, Any, float]:
    """Codes, norms and scales of normal signals, encoded on the device, and seconds of encoding."""
    codes = cupy.empty((n, layout.code_bytes), cupy.uint8)
    norms, scales = cupy.empty((2, n), cupy.float32)
    rng, size, seconds = cupy.random.default_rng(seed), 16384, 0.0
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        signals = rng.standard_normal((rows.stop - start, encoder.n_features), dtype=cupy.float32)
        device.wait()
        begin = time.perf_counter()
        codes[rows], norms[rows], scales[rows] = encoder.encode(signals)
        device.wait()
        seconds += time.perf_counter() - begin
    return codes, norms, scales, seconds


def head(device: Any, n_classes: int, n_features: int, n_bits: int, inputs: tuple[int, ...]) -> dict[str, Any]:
    layout = Layout("compact", n_bits, n_features)
    projection = ts.make_projection("hadamard", n_features=n_features, random_state=3)
    encoder = GpuEncoder(projection, layout, device=device)
    codes, _, scales, _ = random_codes(device, n_classes, layout, encoder, 0)
    codes, scales = cupy.asnumpy(codes), cupy.asnumpy(scales)
    scanner = HeadScanner(codes, scales, None, layout, device=device)
    linear = torch.nn.Linear(n_features, n_classes, bias=False, dtype=torch.bfloat16, device="cuda")
    found: dict[str, Any] = {
        "classes": n_classes,
        "features": n_features,
        "bits": n_bits,
        "bytes": scanner.nbytes,
        "times_smaller": round(2 * n_classes * n_features / scanner.nbytes, 2),
        "top_10": [],
    }
    for n_inputs in inputs:
        x = torch.randn(n_inputs, n_features, device="cuda").bfloat16()
        projected = torch.empty(n_inputs, n_features, device="cuda")

        def ours(x: Any = x, projected: Any = projected) -> Any:
            with device.stream_of(x):
                encoder.project(x.float(), projected)
            return scanner.topk(projected, 10)

        def dense(x: Any = x) -> Any:
            return torch.topk(linear(x), 10)

        values, classes = ours()
        host = projection.apply(x.float().cpu().numpy())
        ranges = [CodeRange(codes, weights=scales)]
        expected = kernels.active().rank_scores(layout, ranges, host, 10, n_threads=THREADS)
        same = np.array_equal(classes.cpu(), expected[0]) and np.array_equal(values.cpu(), expected[1])
        pair = {"ours": ours, "dense": dense, "ours_graph": graph_of(ours), "dense_graph": graph_of(dense)}
        times = interleaved(pair, 40)
        logits = interleaved({"ours": lambda p=projected: scanner.logits(p), "dense": lambda x=x: linear(x)}, 10)
        found["top_10"].append(
            {
                "inputs": n_inputs,
                "microseconds": times,
                "times_as_fast": round(times["dense"] / times["ours"], 2),
                "times_as_fast_in_graphs": round(times["dense_graph"] / times["ours_graph"], 2),
                "logits_microseconds": logits,
                "same_as_processor": bool(same),
            }
        )
        print(json.dumps(found["top_10"][-1]), flush=True)
    return found


def index(device: Any, n: int, *, batches: tuple[int, ...], peers: bool) -> dict[str, Any]:
    layout = Layout("compact", 512, 8192)
    projection = ts.make_projection("hadamard", n_features=8192, random_state=3)
    encoder = GpuEncoder(projection, layout, device=device)
    codes, norms, scales, seconds = random_codes(device, n, layout, encoder, 1)
    found: dict[str, Any] = {
        "entries": n,
        "encode_microseconds_per_signal": round(seconds / n * 1e6, 3),
        "search": [],
    }
    weights = scales / norms
    begin = time.perf_counter()
    host_codes, host_weights = cupy.asnumpy(codes), cupy.asnumpy(weights)
    found["seconds_to_host"] = round(time.perf_counter() - begin, 2)
    del codes
    cupy.get_default_memory_pool().free_all_blocks()
    begin = time.perf_counter()
    stripes = Stripes.load(device, layout, host_codes)
    device.wait()
    found["seconds_to_load"] = round(time.perf_counter() - begin, 2)
    found["bytes"] = stripes.nbytes
    part = Part(stripes, weights)
    for n_queries in batches:
        queries = cupy.random.default_rng(2).standard_normal((n_queries, 8192), dtype=cupy.float32)
        search = BestSearch(device, stripes.format, n_queries, 10, n)

        def run(search: Any = search, queries: Any = queries) -> None:
            search.start(queries)
            search.scan(part)

        microseconds = interleaved({"ours": run}, 3 if n_queries >= 256 else 10)["ours"]
        compared = min(n_queries, 8)
        ranges = [CodeRange(host_codes, weights=host_weights)]
        expected = kernels.active().rank_scores(layout, ranges, cupy.asnumpy(queries[:compared]), 10, n_threads=THREADS)
        same = np.array_equal(cupy.asnumpy(search.positions[:compared]), expected[0])
        same = same and np.array_equal(cupy.asnumpy(search.scores[:compared]), expected[1])
        found["search"].append(
            {
                "queries": n_queries,
                "milliseconds": round(microseconds / 1e3, 3),
                "nanoseconds_per_pair": round(microseconds * 1e3 / n / n_queries, 4),
                "queries_compared": compared,
                "same_as_processor": bool(same),
            }
        )
        print(n, json.dumps(found["search"][-1]), flush=True)
        del search
    if peers:
        found["dense_products"] = dense_products()
    return found


def dense_products() -> list[dict[str, Any]]:
    """Products of dense rows of 8192 values with the queries, without selecting the best: cost of the arithmetic."""
    rows, out = 65_536, []
    for n_queries in (256, 1024):
        small = torch.randint(-1, 2, (rows, 8192), dtype=torch.int8, device="cuda")
        query8 = torch.randint(-127, 128, (n_queries, 8192), dtype=torch.int8, device="cuda")
        half, query16 = small.bfloat16(), query8.bfloat16()
        pair = {
            "int8": lambda s=small, q=query8: torch._int_mm(s, q.T),
            "bfloat16": lambda s=half, q=query16: s @ q.T,
        }
        times = interleaved(pair, 10)
        out.append(
            {
                "queries": n_queries,
                "nanoseconds_per_pair": {k: round(v * 1e3 / rows / n_queries, 4) for k, v in times.items()},
            }
        )
    return out


def encoding(device: Any) -> dict[str, Any]:
    """Signals of 8192 features, 512 of 8192, on the device and on two cores."""
    layout = Layout("compact", 512, 8192)
    projection = ts.make_projection("hadamard", n_features=8192, random_state=3)
    signals = np.random.default_rng(0).standard_normal((8192, 8192), dtype=np.float32)
    encoder = GpuEncoder(projection, layout, device=device)
    made = ts.AdaptiveEncoder(512, projection=projection, layout="compact").fit(signals[:1])
    on_device = cupy.asarray(signals)
    encoder.encode(on_device)
    device.wait()
    ours, theirs = [], []
    for _ in range(3):
        begin = time.perf_counter()
        codes, norms, scales = encoder.encode(on_device)
        device.wait()
        ours.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        expected = made.encode(signals[:1024], n_threads=2)
        theirs.append((time.perf_counter() - begin) * 8)
    same = np.array_equal(cupy.asnumpy(codes[:1024]), expected.data)
    same = same and np.array_equal(cupy.asnumpy(norms[:1024]), expected.norms)
    same = same and np.array_equal(cupy.asnumpy(scales[:1024]), expected.scales)
    fast, slow = statistics.median(ours) / 8192 * 1e6, statistics.median(theirs) / 8192 * 1e6
    return {
        "device_microseconds_per_signal": round(fast, 3),
        "two_cores_microseconds_per_signal": round(slow, 2),
        "times_as_fast": round(slow / fast, 1),
        "same_as_processor": bool(same),
    }


def whole_index(n: int) -> dict[str, Any]:
    """An index in memory with all that a search returns, on the processor and by ``to("cuda")``."""
    signals = np.random.default_rng(5).standard_normal((n, 2048), dtype=np.float32)
    made = ts.AdaptiveIndex(n_features=2048, n_bits=256, random_state=7)
    made.add(signals)
    held = made.to("cuda")
    found = []
    for n_queries in (1, 256):
        queries = signals[:n_queries] + np.random.default_rng(6).standard_normal((n_queries, 2048), dtype=np.float32)
        held.search(queries)
        times, answers = {}, []
        for name, searched in (("device", held), ("processor", made)):
            begin = time.perf_counter()
            answers.append(searched.search(queries))
            times[name] = round(1e3 * (time.perf_counter() - begin), 2)
        same = all(np.array_equal(*(getattr(a, name) for a in answers)) for name in ("ids", "scores", "p_values"))
        found.append({"queries": n_queries, "milliseconds": times, "same_as_processor": same})
    return {"entries": n, "n_features": 2048, "n_bits": 256, "threads": THREADS, "search": found}


def huge(device: Any, n: int) -> dict[str, Any]:
    """Load and search this number of entries of 512 of 8192 on one GPU; codes of a tenth, repeated."""
    layout = Layout("compact", 512, 8192)
    encoder = GpuEncoder(ts.make_projection("hadamard", n_features=8192, random_state=3), layout, device=device)
    tenth = n // 10
    codes, norms, scales, _ = random_codes(device, tenth, layout, encoder, 9)
    host, weights = cupy.asnumpy(codes), scales / norms
    del codes
    cupy.get_default_memory_pool().free_all_blocks()
    begin, parts = time.perf_counter(), []
    for copy in range(10):
        parts.append(Part(Stripes.load(device, layout, host), weights * (1 + copy / 1000), None, None, copy * tenth))
    device.wait()
    found: dict[str, Any] = {
        "entries": 10 * tenth,
        "seconds_to_load": round(time.perf_counter() - begin, 1),
        "bytes": sum(part.stripes.nbytes for part in parts),
        "search": [],
    }
    for n_queries in (1, 256):
        queries = cupy.random.default_rng(2).standard_normal((n_queries, 8192), dtype=cupy.float32)
        search = BestSearch(device, parts[0].stripes.format, n_queries, 10, tenth)
        for _ in range(2 if n_queries == 1 else 1):
            begin = time.perf_counter()
            search.start(queries)
            for part in parts:
                search.scan(part)
            device.wait()
            seconds = time.perf_counter() - begin
        ranges = [CodeRange(host, weights=cupy.asnumpy(weights * np.float32(1 + 9 / 1000)))]
        best = kernels.active().rank_scores(layout, ranges, cupy.asnumpy(queries[:2]), 10, n_threads=THREADS)
        last = cupy.asnumpy(search.positions[:2, 0])
        same = np.array_equal(last, best[0][: len(last), 0] + 9 * tenth)  # the heaviest copy of the best entry
        found["search"].append(
            {"queries": n_queries, "milliseconds": round(1e3 * seconds, 1), "best_as_on_processor": bool(same)}
        )
        print(json.dumps(found["search"][-1]), flush=True)
        del search
    return found


def streamed(device: Any, n: int) -> dict[str, Any]:
    """Search with no codes kept in GPU memory, compared with only copying and with only scanning.

    Each is one pass over all chunks; the second of two is reported.
    """
    layout = Layout("compact", 512, 8192)
    encoder = GpuEncoder(ts.make_projection("hadamard", n_features=8192, random_state=3), layout, device=device)
    codes, norms, scales, _ = random_codes(device, CHUNK, layout, encoder, 11)
    columns = {"scales": cupy.asnumpy(scales), "norms": cupy.asnumpy(norms)}
    host = cupy.asnumpy(codes)
    segments = [WholeChunk(host, columns) for _ in range(n // CHUNK)]
    del codes
    cupy.get_default_memory_pool().free_all_blocks()
    chunks, loader = [chunk for one in segments for chunk in chunks_of(one)], SignLoader(device, layout)
    found: dict[str, Any] = {"entries": len(chunks) * CHUNK, "search": []}
    for n_queries in (1, 256, 1024):
        queries = cupy.random.default_rng(2).standard_normal((n_queries, 8192), dtype=cupy.float32)
        held = {"streamed": ResidentChunks(device, loader, 0), "resident": ResidentChunks(device, loader, 2**40)}
        held["resident"].keep(SimpleNamespace(segments=segments))
        search = BestSearch(device, Format.of(layout), n_queries, 10, CHUNK)
        seconds, answers = {}, []
        for name, resident in held.items():
            for _ in range(2):
                begin = time.perf_counter()
                search.start(queries)
                for number, loaded in enumerate(resident.load(chunks, "weights")):
                    (codes,) = loaded.cells
                    search.scan(Part(codes.stripes, codes.weights["weights"], base=number * CHUNK))
                device.wait()
                seconds[name] = round(time.perf_counter() - begin, 3)
            answers.append((cupy.asnumpy(search.positions), cupy.asnumpy(search.scores)))
        begin = time.perf_counter()
        for chunk in chunks:
            loader.load(chunk).load_weights(device, "weights")
        device.wait()
        seconds["copying"] = round(time.perf_counter() - begin, 3)
        same = all(map(np.array_equal, *answers))
        found["search"].append({"queries": n_queries, "seconds": seconds, "same_as_resident": bool(same)})
        print(json.dumps(found["search"][-1]), flush=True)
        del held, search
        cupy.get_default_memory_pool().free_all_blocks()
    return found


class WholeChunk:
    """A segment of one chunk, and its columns."""

    def __init__(self, codes: Any, columns: dict[str, Any]) -> None:
        self.codes, self.columns, self.derived, self._values = codes, self, {}, columns

    def column(self, name: str) -> Any:
        """Return a column other than the codes."""
        return self._values[name]

    def __len__(self) -> int:
        return len(self.codes)


def shortlists() -> list[dict[str, Any]]:
    """Exact top 10 of a head with a shortlist of 100, with weights in GPU memory or in pinned host memory."""
    linear, found = torch.nn.Linear(4096, 128_256, dtype=torch.bfloat16, device="cuda"), []
    layers = {
        where: ts.nn.compress(linear, n_bits=512, shortlist=100, shortlist_memory=where, random_state=3)
        for where in ("device", "pinned")
    }
    for n_inputs in (1, 16):
        x = torch.randn(n_inputs, 4096, device="cuda").bfloat16()
        calls = {where: lambda layer=layer, x=x: layer.topk(x, 10) for where, layer in layers.items()}
        calls |= {f"{where}_graph": graph_of(call) for where, call in calls.items()}
        calls["dense"] = lambda x=x: torch.topk(linear(x), 10)
        same = torch.equal(layers["device"].topk(x, 10).indices, layers["pinned"].topk(x, 10).indices)
        found.append({"inputs": n_inputs, "microseconds": interleaved(calls, 20), "same_classes": bool(same)})
        print(json.dumps(found[-1]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=10_000_000, help="of the index")
    parser.add_argument("--huge", type=int, default=100_000_000, help="entries loaded and searched once; 0: none")
    parser.add_argument("--only", nargs="*", help="parts to measure; the others stay as the file has them")
    parser.add_argument("--commit", help="recorded with the results, by default that of the working copy")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "gpu.json")
    options = parser.parse_args()
    if MISSING:
        parser.error(f"needs CuPy and PyTorch: {MISSING}")
    device = cuda_device()
    revision = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    result: dict[str, Any] = json.loads(options.out.read_text()) if options.only and options.out.exists() else {}
    result |= {
        "device": torch.cuda.get_device_name(0),
        "software": {
            "python": platform.python_version(),
            "cupy": cupy.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "driver": cupy.cuda.runtime.driverGetVersion(),
        },
        "commit": options.commit or revision.stdout.strip() or None,
        "processor_threads": THREADS,
    }
    steps = {
        "heads": lambda: [
            head(device, 128_256, 4096, 512, (1, 16, 256)),
            head(device, 1_000_000, 768, 96, (1, 16)),
        ],
        "encoding": lambda: encoding(device),
        "index": lambda: index(device, options.entries, batches=(1, 16, 256, 1024), peers=True),
        "whole_index": lambda: whole_index(200_000),
        "streamed": lambda: streamed(device, 12 * 2**20),
        "shortlists": shortlists,
        "huge": lambda: huge(device, options.huge) if options.huge else None,
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
