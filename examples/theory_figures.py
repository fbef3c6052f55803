"""Draw the first two figures of the paper from theory, as theory_figures.png.

Left: expected distance to the reference against the inner product with it. Right: expected distance between two
other signals against their inner product, if both have the same inner product with the reference.
"""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from topsign import theory
from topsign.paper import printed

POOL = {"n_bits": 800, "n_pool": 5000}


def main():
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    rho = np.linspace(-1, 1, 401)
    left.plot(rho, theory.expected_hamming(rho, **POOL), "#0072B2", lw=2.2, label="adaptive, exact")
    left.plot(rho, theory.sign_expected_hamming(rho), "#D55E00", ls="--", label="sign projections, exact")
    inner = rho[np.abs(rho) < 1]
    left.plot(inner, printed.expected_hamming_bound(inner, **POOL), "#555555", ls=":", label="Theorem 2 as printed")
    left.set(xlabel="inner product with the reference (unit norms)", ylabel="expected Hamming distance")
    left.set_title("A signal and its reference")
    for shared, style in zip((0.0, 0.3, 0.5, 0.7), ("-", "--", "-.", ":"), strict=True):
        lowest = max(-1.0, 2 * shared**2 - 1)  # smallest possible inner product of two such signals
        vw = np.linspace(lowest, 1, 201)
        distances = theory.expected_pair_hamming(uv=shared, uw=shared, vw=vw, **POOL)
        right.plot(vw, distances, style, lw=1.9, label=f"both at {shared:g} to the reference")
    right.set(xlabel="inner product of the two signals (unit norms)", ylabel="expected Hamming distance")
    right.set_title("Two other signals")
    for axes in (left, right):
        axes.legend()
        axes.grid(alpha=0.3)
    figure.suptitle("800 of 5000 Gaussian projections")
    figure.savefig("theory_figures.png", dpi=120)
    print("saved theory_figures.png")


if __name__ == "__main__":
    main()
