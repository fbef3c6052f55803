"""Fuzzing of every kernel that reads codes, on every path, under the address and undefined-behaviour sanitizers.

    python tests/faults/sanitize.py [--cases 20000] [--doors 20000] [--seed 0] [--large]

Builds the core with sanitizers (build/sanitized), then runs itself with that core and the sanitizers' runtime. A case
is one call. Any result is accepted, but a read or write outside an array ends the process with the sanitizer's report.
``--doors`` then runs attack.py with that core, which opens and uses invalid files and states.
"""

import argparse
import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "sanitized"


def build():
    """Build the sanitized core and return it with the runtime to preload; RuntimeError if the compiler cannot."""
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DTOPSIGN_SANITIZE=ON"]
    for command in (
        ["cmake", "-S", ROOT / "native", "-B", BUILD, *options],
        ["cmake", "--build", BUILD, "--parallel", "2"],
    ):
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise RuntimeError(f"the sanitized core cannot be built: {getattr(error, 'stderr', error)}") from error
    shown = subprocess.run(["c++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    runtime = Path(shown.stdout.strip())
    if not runtime.is_absolute():
        raise RuntimeError("the compiler has no libasan.so to preload")
    return BUILD / "topsign_core.so", runtime.resolve()


def run(cases, seed, script=__file__, more=()):
    """Run this file, or another, in a new process; return its output and exit status."""
    core, runtime = build()
    settings = {
        "LD_PRELOAD": str(runtime),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(ROOT / "src"),
    }
    command = [sys.executable, str(script), "--core", str(core), "--cases", str(cases), "--seed", str(seed), *more]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | settings)


def make_codes(rng, layout, kernel):
    """Return random or constant bytes, codes, or codes with changed bytes, sometimes at the end of an allocation."""
    import numpy as np

    n_codes = int(rng.choice([1, 2, 3, 20, 70]))
    kind = rng.integers(4)
    if kind == 0:
        return rng.integers(0, 256, (n_codes, layout.code_bytes), dtype=np.uint8)
    if kind == 1:
        return np.full((n_codes, layout.code_bytes), rng.choice([0, 1, 127, 128, 255]), np.uint8)
    if layout.name == "signs":
        codes = rng.integers(0, 256, (n_codes, layout.code_bytes), dtype=np.uint8)
    else:
        projected = rng.standard_normal((n_codes, layout.n_pool)).astype(np.float32)
        codes = kernel.pack_codes(layout, *kernel.select(projected, layout.n_bits)[:2])
    for _ in range(int(rng.integers(1, 9)) * int(kind == 2)):
        codes[rng.integers(n_codes), rng.integers(layout.code_bytes)] = rng.integers(256)
    return codes


def call(rng, kernel, layout, codes):
    """Call one kernel on the codes and return its name."""
    import numpy as np

    from topsign.kernels import CodeRange, RegionArrays, RegionCodes, VisitedCodes

    n_queries = int(rng.choice([1, 2, 5, 7, 17, 64, 65, 130, 260]))
    queries = rng.standard_normal((n_queries, layout.n_pool)).astype(np.float32)
    bits = kernel.pack_bits(queries)
    alive = None if rng.integers(2) else np.packbits(rng.random(len(codes)) < 0.7, bitorder="little")
    weights = None if rng.integers(2) else rng.random(len(codes), dtype=np.float32)
    k = int(rng.integers(1, len(codes) + 3))
    half, threads = len(codes) // 2, {"n_threads": int(rng.integers(1, 3))}
    halves = [CodeRange(np.ascontiguousarray(part), row) for row, part in ((half, codes[:half]), (0, codes[half:]))]
    ranges = halves if rng.integers(2) else [CodeRange(codes, 5, alive, weights)]
    order, cuts = rng.permutation(len(codes)).astype(np.int32), np.sort(rng.integers(0, len(codes) + 1, 2))
    regions = RegionCodes(codes, order, np.array([0, *cuts, len(codes)], np.int32), 5, alive, weights)
    chosen = [rng.permutation(3)[: rng.integers(4)].astype(np.int32) for _ in range(n_queries)]
    starts = np.append(0, np.cumsum([len(one) for one in chosen])).astype(np.int64)
    visits = VisitedCodes(RegionArrays([regions]), starts, np.concatenate(chosen))
    calls = {
        "valid_codes": lambda: kernel.valid_codes(layout, codes),
        "mismatches": lambda: kernel.mismatches(layout, codes, bits),
        "score_sums": lambda: kernel.score_sums(layout, codes, queries),
        "rank_mismatches": lambda: kernel.rank_mismatches(layout, ranges, bits, k, **threads),
        "rank_scores": lambda: kernel.rank_scores(layout, ranges, queries, k, **threads),
        "visit_mismatches": lambda: kernel.visit_mismatches(layout, visits, bits, k, **threads),
        "visit_scores": lambda: kernel.visit_scores(layout, visits, queries, k, **threads),
        "within_mismatches": lambda: kernel.within_mismatches(
            layout, ranges, bits, rng.integers(0, layout.n_bits + 1, n_queries).astype(np.int32), **threads
        ),
        "within_scores": lambda: kernel.within_scores(
            layout, ranges, queries, rng.standard_normal(n_queries).astype(np.float32), **threads
        ),
    }
    if layout.name != "signs":
        calls["unpack_codes"] = lambda: kernel.unpack_codes(layout, codes)
        calls["decode_sets"] = lambda: kernel.decode_sets(codes, layout.n_bits, layout.n_pool)
    name = str(rng.choice(list(calls)))
    calls[name]()
    return name


def call_trellis(rng, kernel):
    """Call one trellis kernel with a random design on arbitrary bytes and return its name."""
    import numpy as np

    from topsign.families.trellis.design import design_trellis
    from topsign.kernels import (
        CellColumns,
        CellPositions,
        CellTables,
        Panels,
        Product,
        QueriedCells,
        RoundedCells,
        RoundedQueries,
        TrellisRange,
        TrellisSignals,
    )

    window = int(rng.integers(4, 9))
    n_features, n_bits = int(rng.integers(1, 90)), 2 * window + int(rng.integers(rng.choice([1, 40, 500])))
    variances = np.ones(n_features) if rng.integers(2) else rng.random(n_features) ** rng.choice([1, 8]) + 1e-9
    design = replace(design_trellis(variances, n_bits=n_bits, window=window), fine=bool(rng.integers(2)))
    norms = bool(rng.integers(2))
    middle = rng.standard_normal(design.n_coded) * rng.choice([0, 1, 100])
    tables = design.tables(middle, float(rng.random()), -(-n_bits // 8) + 2 * norms)
    n_codes, n_queries = int(rng.choice([1, 2, 7, 31, 70])), int(rng.choice([1, 2, 5, 9]))
    codes = rng.integers(0, 256, (n_codes, tables.code_bytes), dtype=np.uint8)
    if rng.integers(4) == 0:
        codes[:] = rng.choice([0, 255])
    signals = (rng.standard_normal((n_codes, design.n_coded)) * rng.choice([1, 1e9, 1e30])).astype(np.float32)
    values = rng.integers(-127, 128, (n_queries, design.n_coded), dtype=np.int8)
    digits = rng.integers(-32, 32, values.shape, dtype=np.int8) if design.fine else None
    ones, zeros = np.ones(n_queries, np.float32), np.zeros(n_queries, np.float32)
    queries = RoundedQueries(values, ones, zeros, digits, design.fine_bits)
    alive = None if rng.integers(2) else np.packbits(rng.random(n_codes) < 0.7, bitorder="little")
    positions = None if rng.integers(2) else np.flatnonzero(rng.random(n_codes) < 0.8)
    others = design_trellis(variances[::-1], n_bits=n_bits, window=window)  # a cell with other sizes
    values = rng.integers(-127, 128, (n_queries, others.n_coded), dtype=np.int8)
    other = others.tables(np.zeros(others.n_coded), 1.0, tables.code_bytes)
    both = RoundedCells.of([queries, RoundedQueries(values, ones, zeros)])
    cells = QueriedCells(CellTables((tables, other)), both, norms)
    some = rng.permutation(n_codes)[: rng.integers(n_codes + 1)]
    owned = np.split(some, [int(rng.integers(len(some) + 1))])
    parts = CellPositions(np.concatenate([np.sort(one) for one in owned]), np.cumsum([0, *map(len, owned)]))
    one, more = TrellisRange(codes, 3, alive), TrellisRange(codes, 100, alive, parts, np.arange(n_codes))
    ranges, threads = [one, more][: rng.integers(1, 3)], {"n_threads": int(rng.integers(1, 3))}
    columns = rng.standard_normal((int(rng.integers(1, 70)), design.n_coded)).astype(np.float32)
    products = [Product(Panels.of(columns)), Product(Panels.of(columns[:1]), columns[0].copy(), positions)]
    sizes = np.array([design.n_coded]), np.array([tables.fine_bits])
    read = CellColumns(np.arange(design.n_coded), rng.random(design.n_coded), *sizes)
    calls = {
        "trellis_round": lambda: kernel.trellis_round(signals, read, np.zeros((1, n_codes), np.float32), **threads),
        "trellis_encode": lambda: kernel.trellis_encode([TrellisSignals(tables, signals)], **threads),
        "multiply": lambda: kernel.multiply(signals, products, factors=signals[:, 0].copy(), **threads),
        "trellis_decode": lambda: kernel.trellis_decode(tables, codes, **threads),
        "trellis_weights": lambda: kernel.trellis_weights(tables, codes, **threads),
        "trellis_sums": lambda: kernel.trellis_sums(tables, codes, queries, **threads),
        "rank_trellis": lambda: kernel.rank_trellis(cells, ranges, int(rng.integers(1, n_codes + 3)), **threads),
        "within_trellis": lambda: kernel.within_trellis(
            cells, ranges, (rng.standard_normal(n_queries) * 1000).astype(np.float32), **threads
        ),
    }
    name = str(rng.choice(list(calls)))
    calls[name]()
    return name


def load_message(rng, codes):
    """Read codes from a message with changed bytes, which succeeds or raises an error of the library."""
    import topsign as ts

    message = bytearray(codes.to_bytes())
    for _ in range(int(rng.integers(1, 5))):
        message[rng.integers(len(message))] = rng.integers(256)
    with contextlib.suppress(ValueError, ts.StorageError):
        ts.read_codes(bytes(message[: rng.integers(len(message) + 1)] if rng.integers(2) else message))
    return "read_codes"


def fuzz(core, cases, seed, large=False):
    import numpy as np

    import topsign as ts
    from topsign.families.adaptive import AdaptiveRecipe
    from topsign.kernels import Layout, library

    library.library_file = lambda: Path(core)
    rng = np.random.default_rng(seed)
    sizes = [(1, 1), (1, 64), (3, 70), (8, 127), (40, 400), (100, 128), (33, 1000), (512, 8192), (2100, 4096)]
    sizes += [(20, 20_000), (300, 70_000), (200, 200), (700, 33_000), (9000, 40_000)]
    if large:
        sizes = [(9000, 40_000), (700, 33_000)]
    counts = {}
    for _ in range(cases):
        n_bits, n_pool = sizes[min(rng.integers(len(sizes)), rng.integers(len(sizes)))]
        name = str(rng.choice(["fast", "compact", "signs"]))
        layout = Layout(name, n_pool if name == "signs" else n_bits, n_pool)
        path = str(rng.choice(ts.kernels.available()))
        with ts.kernels.use(path) as kernel:
            if rng.random() < 0.2:
                called = call_trellis(rng, kernel)
            elif rng.random() < 0.02:
                locations = np.sort(rng.choice(n_pool, n_bits, replace=False))[np.newaxis]
                sizes_of_recipe = {"n_features": n_pool, "n_bits": n_bits, "n_pool": n_pool}
                recipe = AdaptiveRecipe.make(**sizes_of_recipe, norms=False, random_state=0)
                codes = ts.AdaptiveCodes.from_locations(locations, np.ones_like(locations), recipe=recipe)
                called = load_message(rng, codes)
            else:
                called = call(rng, kernel, layout, make_codes(rng, layout, kernel))
        counts[path, called] = counts.get((path, called), 0) + 1
    for (path, called), count in sorted(counts.items()):
        print(f"{path:10s} {called:20s} {count}")
    print(f"{cases} cases, none outside its arrays")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--doors", type=int, default=0, help="cases of attack.py")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--large", action="store_true", help="only pools that are scanned tile by tile")
    parser.add_argument("--core", help="the sanitized core; set by the outer process")
    options = parser.parse_args()
    if options.core:
        fuzz(options.core, options.cases, options.seed, options.large)
        return
    done = run(options.cases, options.seed, more=["--large"] if options.large else [])
    print(done.stdout, done.stderr, sep="")
    if options.doors and not done.returncode:
        done = run(options.doors, options.seed, Path(__file__).with_name("attack.py"))
        print(done.stdout, done.stderr, sep="")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
