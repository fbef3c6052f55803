"""Table I at equal storage: does the adaptive head lose less than the sign and universal embeddings?

``topsign reproduce`` measures Table I with 20 seeds of the projection, which do not decide differences of a few
hundredths of a point. This script measures the same heads with many more, in parallel. Differences are paired: all
methods see the same images and the same seeds. Steps of the universal embedding are chosen on every tenth image, so it
is compared on the other images.
"""

import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache

import numpy as np
from shared.results import arguments, save, table

from topsign.paper.heads import (
    STORAGE,
    adaptive_losses,
    choose_steps,
    load_cifar10_head,
    sign_losses,
    universal_losses,
)

OTHERS = ("sign", "universal")


@cache
def heads():
    """The head with all images, and with those on which the universal step is not chosen."""
    head = load_cifar10_head()
    rest = np.arange(len(head.labels)) % 10 != 0
    return head, replace(head, features=head.features[rest], labels=head.labels[rest])


def adaptive_points(head, seeds):
    """Points lost by the adaptive head, (n_sizes, n_seeds)."""
    found = {one.n_bits: one.points for one in adaptive_losses(head, seeds=seeds) if one.method.endswith("hamming")}
    return [found[n_bits] for n_bits in STORAGE]


def differences(seed, steps):
    """Return the additional points that other methods lose at equal storage, (n_others, n_sizes, 1)."""
    (head, rest), seeds = heads(), range(seed, seed + 1)
    signs, universal = sign_losses(head, seeds=seeds), universal_losses(head, seeds=seeds, steps=steps)
    found = []
    for method, made, mine in zip(
        OTHERS, (signs, universal), (adaptive_points(head, seeds), adaptive_points(rest, seeds)), strict=True
    ):
        by_size = {one.n_bits: one.points for one in made if one.method == f"{method}, equal storage"}
        found.append([by_size[size] - points for size, points in zip(STORAGE.values(), mine, strict=True)])
    return np.array(found)


def measure(n_seeds, n_processes, seconds):
    """Yield the differences of as many seeds as there is time for, in order."""
    end = time.monotonic() + seconds
    steps = choose_steps(heads()[0], seeds=range(5))
    with ProcessPoolExecutor(n_processes) as pool:
        for task in [pool.submit(differences, seed, steps) for seed in range(n_seeds)]:
            if time.monotonic() > end:
                task.cancel()
            if not task.cancelled():
                yield task.result()


def summarised(points):
    """Mean differences and their standard errors, over seeds."""
    n_seeds, rows = points.shape[2], []
    for method, sizes in zip(OTHERS, points, strict=True):
        for n_bits, more in zip(STORAGE, sizes, strict=True):
            error = float(more.std(ddof=1) / np.sqrt(n_seeds))
            rows.append({"method": method, "kept": n_bits, "lost_more": float(more.mean()), "standard_error": error})
    return {"n_seeds": n_seeds, "rows": rows}


def main():
    cores = os.cpu_count() or 1
    options = arguments(__doc__, seeds=(2000, 4), processes=(cores, cores), seconds=float("inf"))
    parts = []
    for part in measure(options.seeds, options.processes, options.seconds):
        parts.append(part)
        if len(parts) % 20 == 0 or len(parts) == options.seeds:
            found = summarised(np.concatenate(parts, axis=2))
            rows = [[row["method"], row["kept"], row["lost_more"], row["standard_error"]] for row in found["rows"]]
            columns = ["method", "kept of 1,024", "points lost more than by adaptive codes", "standard error"]
            shown = table("Table I at equal storage", columns, rows, f"{len(parts)} of {options.seeds} seeds.")
            save(options, [shown], measured=found)  # topsign.paper reads ``measured``


if __name__ == "__main__":
    main()
