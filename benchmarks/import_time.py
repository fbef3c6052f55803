"""Time of ``import topsign`` and of the first use of an index; fails above a limit."""

import argparse
import statistics
import subprocess
import sys
import time

PROGRAMS = {
    "python alone": "pass",
    "import numpy": "import numpy",
    "import topsign": "import topsign",
    "and the first index": "import topsign; topsign.AdaptiveIndex(n_features=64, n_bits=8)",
}


def seconds(program):
    start = time.perf_counter()
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=float, default=0.6, help="limit of the import in seconds")
    options = parser.parse_args()
    medians = {}
    for name, program in PROGRAMS.items():
        medians[name] = statistics.median(seconds(program) for _ in range(options.repeats))
        print(f"{name:>20}  {medians[name]:.2f} s, median of {options.repeats}")
    if medians["import topsign"] > options.limit:
        sys.exit(f"import topsign takes longer than {options.limit} s")


if __name__ == "__main__":
    main()
