"""Run all benchmarks that this machine can run, and write one JSON file of tables each.

    python benchmarks/run.py [--quick] [--only NAME ...] [--results FOLDER] [--cache FOLDER] [--residuals FILE]

Results go to benchmarks/results, those of --quick, with small sizes, to build/bench-quick. gpu.py needs a CUDA device,
text_embeddings.py and regions.py need sentence vectors, which they compute in hours unless --cache has them. Benchmarks
that fail are listed at the end, and their previous results remain.
"""

import argparse
import importlib.util
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent
NAMES = (
    *("tables", "search", "detection", "text_embeddings", "evidence", "regions", "heads", "build", "storage", "memory"),
    *("import_time", "walk", "cameras", "camera_photographs", "cluster", "gpu"),
)
WITH_SENTENCES = ("tables", "text_embeddings", "evidence", "regions")


def missing(name, options):
    """Return why this machine cannot run a benchmark, or None."""
    if name == "gpu" and importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed, so there is no device"
    if name in ("text_embeddings", "regions") and options.cache is None and options.quick:
        return "no --cache of sentence vectors"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, into build/bench-quick")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--results", type=Path, help="folder of the JSON files")
    parser.add_argument("--cache", help="folder of sentence vectors")
    parser.add_argument("--residuals", help=".npz file of photographs' residuals, for the cameras")
    options = parser.parse_args()
    unknown = set(options.only or ()) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    results = options.results or (FOLDER.parent / "build/bench-quick" if options.quick else FOLDER / "results")
    failed, begin = [], time.perf_counter()
    for name in options.only or NAMES:
        if why := missing(name, options):
            print(f"\n== {name}: left out, {why}", flush=True)
            continue
        command = [sys.executable, str(FOLDER / f"{name}.py"), "--json", str(results / f"{name}.json")]
        command += ["--quick"] * options.quick
        command += ["--cache", options.cache] if options.cache and name in WITH_SENTENCES else []
        command += ["--residuals", options.residuals] if options.residuals and name == "cameras" else []
        print(f"\n== {name}", flush=True)
        start = time.perf_counter()
        if subprocess.run(command).returncode != 0:
            failed.append(name)
        print(f"== {name}: {time.perf_counter() - start:.0f} s", flush=True)
    print(f"\n{time.perf_counter() - begin:.0f} s in all, results in {results}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
