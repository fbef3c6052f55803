"""Run every benchmark and write one JSON file each, with machine, versions, commit and spread.

    python benchmarks/run.py [--quick] [--only NAME ...] [--results FOLDER] [--residuals FILE]

By default, sizes are those of the documentation and results go to benchmarks/results. With --quick, sizes are small, to
test that everything runs, and results go to build/bench-quick. Benchmarks of cameras need --residuals. Benchmarks that
fail are listed at the end, and their previous results remain.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent
THREADS = (1, 2)
SHAPES = ((512, 8192), (128, 1024), (64, 1024))


def name_of(name, threads):
    return name if threads == 1 else f"{name}-t{threads}"


def runs():
    """Name of a result -> script, arguments, arguments of the quick run."""
    found = {"limits": ("limits.py", "", "--megabytes 64 --size 512 --repeats 3")}
    for threads in THREADS:
        small = f"--features 1024 --pool 1024 --bits 64 --repeats 2 --threads {threads}"
        found[f"encode-t{threads}"] = "encode.py", f"--repeats {3 if threads == 1 else 2} --threads {threads}", small
    for n_bits, n_pool in SHAPES:
        for threads in THREADS:
            shape = f"--bits {n_bits} --pool {n_pool} --threads {threads}"
            full = f"{shape} --entries {100_000 if threads == 1 else 50_000} --repeats {3 if threads == 1 else 2}"
            small = f"{shape} --entries 2000 --real-entries 1000 --batches 1 64 --repeats 2"
            found[f"search-{n_bits}-{n_pool}-t{threads}"] = "search.py", full, small
    small = "--entries 20000 --signals 1000 --bits 64 --pool 1024 --repeats 2"
    for threads in THREADS:
        found[name_of("durable", threads)] = (
            "durable.py",
            f"--repeats {4 if threads == 1 else 2} --threads {threads}",
            f"{small} --threads {threads}",
        )
    for correlation, threads in ((0.4, 2), (0.45, 1), (0.45, 2), (0.5, 2)):
        timed = correlation == 0.45  # only agreement depends on the correlation: times are compared at one
        shared = f"--correlation {correlation} --threads {threads} --layouts {'fast compact' if timed else 'fast'}"
        full = f"--repeats {4 if timed else 1} --inputs {10_000 if threads == 1 else 4000}"
        small = "--classes 2000 --inputs 500 --repeats 2"
        name = name_of(f"heads-{correlation}", threads) if timed else f"heads-{correlation}"
        found[name] = "heads.py", f"{shared} {full}", f"{shared} {small}"
    found["memory"] = "memory.py", "--signals 10000", "--signals 2000 --features 1024 --entries 20000"
    found["theory"] = "theory.py", "--repeats 3", "--repeats 1"
    small = "--entries 1000 10000 --features 1024 8192 --code-megabytes 2 --repeats 2"
    for threads in THREADS:
        sizes = "" if threads == 1 else "--entries 10000 100000 1000000 --features 8192 "
        found[name_of("scale", threads)] = (
            "scale.py",
            f"{sizes}--repeats 2 --threads {threads}",
            f"{small} --threads {threads}",
        )
    small = "--entries 20000 --signals 500 --workers 1 2 --segments 20 --repeats 1"
    found["cluster"] = "cluster.py", "--repeats 3 --signals 8000 --segments 100", small
    found["detection"] = "detection.py", "", "--pairs 1000"
    found["paper"] = "paper.py", "", "--seeds 2 --matrices 1 --references 200"
    small = "--entries 3000 --queries 100 --seeds 1 --opq-iterations 2"
    found["text_embeddings"] = "text_embeddings.py", "--seeds 3 --opq-iterations 4", small
    found["cameras"] = "cameras.py", "--seeds 5", "--kept 128 --seeds 2"
    found["camera_evidence"] = "camera_evidence.py", "", "--kept 128"
    small = "--sensors 4 --size 128 --enrolled 1 3 --bytes 512 4096 --queries 2 --impostors 12 --learned 8"
    found["cameras_simulation"] = "cameras_simulation.py", "--size 384", small
    found["cameras_simulation-1024"] = "cameras_simulation.py", "--size 1024", small
    small = "--sensors 2 --impostors 2 --enrolled 2 --bits 256"
    found["cameras_weak"] = "cameras_weak.py", "--sensors 40 --impostors 40", small
    found["cameras_speed"] = "cameras_speed.py", "", "--photographs 4 --size 128 --repeats 2"
    found["cameras_large"] = "cameras_speed.py", "--entries 10000", "--size 128 --entries 100 --repeats 2"
    found["evaluate"] = "evaluate.py", "", "--signals 2000 --features 64"
    found["database"] = "database.py", "--pairs 0", "--ids 20000 --filter 20000 --pairs 0 --repeats 2"
    found["database-pairs"] = "database.py", "--ids 0 --filter 0", "--ids 0 --filter 0 --pairs 2000"
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, into build/bench-quick")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(runs())}")
    parser.add_argument("--results", type=Path, help="folder of the JSON files")
    parser.add_argument("--residuals", help=".npz file of photographs' residuals, for the cameras")
    options = parser.parse_args()
    unknown = set(options.only or ()) - set(runs())
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(runs())}")
    results = options.results or (FOLDER.parent / "build/bench-quick" if options.quick else FOLDER / "results")
    results.mkdir(parents=True, exist_ok=True)
    failed, begin = [], time.perf_counter()
    for name, (script, full, quick) in runs().items():
        if options.only and name not in options.only:
            continue
        arguments = (quick if options.quick else full).split()
        if script in ("cameras.py", "camera_evidence.py"):
            if options.residuals is None:
                print(f"\n== {name}: left out, no residuals given (--residuals)", flush=True)
                continue
            arguments.insert(0, options.residuals)
        print(f"\n== {name}: {script} {' '.join(arguments)}", flush=True)
        start = time.perf_counter()
        command = [sys.executable, str(FOLDER / script), *arguments, "--json", str(results / f"{name}.json")]
        if subprocess.run(command).returncode != 0:
            failed.append(name)
        print(f"== {name}: {time.perf_counter() - start:.0f} s", flush=True)
    print(f"\n{time.perf_counter() - begin:.0f} s in all, results in {results}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
