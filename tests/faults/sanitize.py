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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "sanitized"

SIZES = [(1, 1), (1, 64), (3, 70), (8, 127), (40, 400), (100, 128), (33, 1000), (512, 8192), (2100, 4096)]
SIZES += [(20, 20_000), (300, 70_000), (200, 200), (700, 33_000), (9000, 40_000)]
LARGE = [(9000, 40_000), (700, 33_000)]
"""Bits and pools of adaptive codes."""


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


def make_scoring(rng, *, large=False):
    """Return the description of random codes of one of the four kinds."""
    from topsign.kernels import Layout, Scoring

    kind = str(rng.choice(["signs", "groups", "kept", "ring"]))
    factor = [None, "cosine", "log"][rng.integers(3)]
    n_factor = 0 if factor is None and rng.integers(2) else 2  # codes may have a factor that is not used
    if kind == "kept":
        layout = Layout(*(LARGE if large else SIZES)[rng.integers(len(LARGE if large else SIZES))])
        return Scoring(kind, layout.code_bytes + n_factor, layout.n_pool, factor, layout=layout)
    n_bytes = int(rng.choice([2500, 5000] if large else [1, 2, 3, 24, 33, 100, 448]))
    if kind == "ring":
        ring = make_ring(rng, min(n_bytes, 500))
        return Scoring(kind, len(ring.book_of_step) // 2 + n_factor, len(ring.weights), factor, ring=ring)
    return Scoring(kind, n_bytes + n_factor, (8 if kind == "signs" else 16) * n_bytes, factor)


def make_ring(rng, n_bytes):
    """Return random codebooks of the steps of a ring; some steps have no coordinates, and some share their book."""
    import numpy as np

    from topsign.kernels import Ring

    n_steps = 2 * n_bytes
    sizes = np.full(n_steps, rng.integers(1, 9)) if rng.integers(2) else rng.integers(0, 9, n_steps)
    sizes[rng.integers(n_steps)] = 3
    n_coded = int(sizes.sum())
    shared = bool(rng.integers(2)) and len(np.unique(sizes)) == 1
    dims = sizes[:1] if shared else sizes
    starts = np.append(0, np.cumsum(256 * dims)).astype(np.int64)
    return Ring(
        first=np.append(0, np.cumsum(sizes)).astype(np.int32),
        book_of_step=np.zeros(n_steps, np.int32) if shared else np.arange(n_steps, dtype=np.int32),
        book_starts=starts,
        levels=rng.integers(-127, 128, int(starts[-1])).astype(np.int8),
        weights=rng.random(n_coded).astype(np.float32),
        scales=rng.random(n_coded).astype(np.float32) * np.float32(rng.choice([1, 1000])),
        squares=rng.random((n_steps, 256)) * float(rng.choice([0, 1, 1e9])),
        constant=float(rng.random()),
    )


def make_codes(rng, scoring, kernel):
    """Return random or constant bytes, codes, or codes with changed bytes."""
    import numpy as np

    n_codes = int(rng.choice([1, 2, 3, 20, 32, 33, 70]))
    kind = rng.integers(4)
    if kind == 0:
        return np.full((n_codes, scoring.code_bytes), rng.choice([0, 1, 127, 128, 255]), np.uint8)
    codes = rng.integers(0, 256, (n_codes, scoring.code_bytes), dtype=np.uint8)
    if kind > 1 and scoring.layout is not None:
        projected = rng.standard_normal((n_codes, scoring.width)).astype(np.float32)
        packed = kernel.pack_codes(scoring.layout, *kernel.select(projected, scoring.layout.n_bits)[:2])
        codes[:, : packed.shape[1]] = packed
    for _ in range(int(rng.integers(1, 9)) * int(kind == 2)):
        codes[rng.integers(n_codes), rng.integers(scoring.code_bytes)] = rng.integers(256)
    return codes


def call(rng, kernel, scoring, rows):
    """Call one kernel on the codes and return its name."""
    import numpy as np

    from topsign.kernels import (
        CodeBlocks,
        CodeRange,
        PackedMatrix,
        Product,
        RegionCodes,
        RoundedQueries,
        Visits,
        threads,
    )

    n_queries, n_codes, width = int(rng.choice([1, 2, 5, 7, 17, 64, 65, 130, 260])), len(rows), scoring.width
    limit = scoring.limit
    values = rng.integers(-limit, limit + 1, (n_queries, width)).astype(np.int16)
    if rng.integers(3) == 0:
        values[:] = rng.choice([-limit, 0, limit])
    numbers = rng.standard_normal((2, n_queries)).astype(np.float32)
    queries = RoundedQueries(values, numbers[0] * np.float32(rng.choice([1, 1e-30, 1e30])), numbers[1])
    codes = CodeBlocks.of(rows)
    alive = None if rng.integers(2) else np.packbits(rng.random(n_codes) < 0.7, bitorder="little")
    ids = None if rng.integers(2) else np.sort(rng.permutation(10 * n_codes)[:n_codes])
    k, n_threads = int(rng.integers(1, n_codes + 3)), int(rng.integers(1, 3))
    half = n_codes // 2
    halves = [CodeRange(CodeBlocks.of(part), row) for row, part in ((half, rows[:half]), (0, rows[half:])) if len(part)]
    ranges = halves if rng.integers(2) else [CodeRange(codes, 5, alive, ids)]
    cuts = np.array([0, *np.sort(rng.integers(0, n_codes + 1, 2)), n_codes])
    places = np.stack([np.zeros(3), cuts[:-1], cuts[1:]], axis=1).astype(np.int32)
    held = np.flatnonzero(np.diff(cuts))
    firsts = np.searchsorted(held, np.arange(4)).astype(np.int32)
    regions = RegionCodes([CodeRange(codes, 5, alive, ids)], firsts, np.ascontiguousarray(places[held]))
    chosen = [rng.permutation(3)[: rng.integers(4)].astype(np.int32) for _ in range(n_queries)]
    starts = np.append(0, np.cumsum([len(one) for one in chosen])).astype(np.int64)
    visits = Visits(starts, np.concatenate(chosen))
    bounds = (rng.standard_normal(n_queries) * rng.choice([0, 1, 1e9])).astype(np.float32)
    signals = (rng.standard_normal((n_codes, width)) * rng.choice([1, 1e9, 1e30])).astype(np.float32)
    calls = {
        "scores": lambda: kernel.scores(scoring, codes, queries),
        "rank": lambda: kernel.rank(scoring, ranges, queries, k),
        "within": lambda: kernel.within(scoring, ranges, queries, bounds),
        "visit": lambda: kernel.visit(scoring, regions, visits, queries, k),
        "decode": lambda: kernel.decode(scoring, rows),
        "round": lambda: kernel.round(signals, limit),
    }
    if scoring.kind == "groups":
        calls["encode_groups"] = lambda: kernel.encode_groups(signals)
    if (layout := scoring.layout) is not None:
        plain = np.ascontiguousarray(rows[:, : layout.code_bytes])
        calls["valid_codes"] = lambda: kernel.valid_codes(layout, plain)
        calls["unpack_codes"] = lambda: kernel.unpack_codes(layout, plain)
        calls["decode_sets"] = lambda: kernel.decode_sets(plain, layout.n_bits, layout.n_pool)
    if (ring := scoring.ring) is not None:
        columns = rng.standard_normal((int(rng.integers(1, 70)), width)).astype(np.float32)
        some = None if rng.integers(2) else np.flatnonzero(rng.random(n_codes) < 0.8)
        products = [Product(PackedMatrix.of(columns)), Product(PackedMatrix.of(columns[:1]), columns[0].copy(), some)]
        calls["ring_encode"] = lambda: kernel.ring_encode(ring, signals)
        calls["ring_norms"] = lambda: kernel.ring_norms(ring, rows)
        calls["multiply"] = lambda: kernel.multiply(signals, products, factors=signals[:, 0].copy())
    name = str(rng.choice(list(calls)))
    with threads(n_threads):
        calls[name]()
    return f"{scoring.kind} {name}"


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
    from topsign.kernels import native

    native.library_file = lambda: Path(core)
    rng = np.random.default_rng(seed)
    counts = {}
    for _ in range(cases):
        path = str(rng.choice(ts.kernels.available()))
        with ts.kernels.use(path) as kernel:
            if rng.random() < 0.02:
                n_bits, n_pool = SIZES[rng.integers(len(SIZES))]
                locations = np.sort(rng.choice(n_pool, n_bits, replace=False))[np.newaxis]
                recipe = AdaptiveRecipe.make(n_features=max(2, n_pool), n_bits=n_bits, n_pool=n_pool, random_state=0)
                codes = ts.AdaptiveCodes.from_locations(locations, np.ones_like(locations), recipe=recipe)
                called = load_message(rng, codes)
            else:
                scoring = make_scoring(rng, large=large)
                called = call(rng, kernel, scoring, make_codes(rng, scoring, kernel))
        counts[path, called] = counts.get((path, called), 0) + 1
    for (path, called), count in sorted(counts.items()):
        print(f"{path:10s} {called:24s} {count}")
    print(f"{cases} cases, none outside its arrays")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--doors", type=int, default=0, help="cases of attack.py")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--large", action="store_true", help="only large codes")
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
