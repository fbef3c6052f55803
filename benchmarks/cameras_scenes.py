"""Correlation of residuals that show one natural image, by the distance of the crops; the sensors differ.

    python benchmarks/cameras_scenes.py [--size 1024] [--repeats 2] [--json FILE]

Each photograph is taken by another simulated sensor. The correlation is that of two signals W I, as ``topsign.cameras``
compares them; the isotropic deviation of a correlation is 1 / size. Signatures are those of ``topsign.cameras``, which
recognises a scene if at most 28 bits differ.
"""

import argparse

import numpy as np
from shared.results import save
from shared.sensors import decoded, natural_images, pattern_of, photograph

from topsign import cameras

SHIFTS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Distances of two crops along a row, in pixels."""


def take(seed, colours):
    """Normalised query and scene signature of a photograph of these colours, by a sensor of its own."""
    pattern = pattern_of(5000 + seed, len(colours), [0.01, 0.03])
    pixels = decoded(photograph(np.random.default_rng([4, seed]), pattern, colours).content)
    query = cameras.extract_residual(pixels).query
    return query / np.linalg.norm(query), cameras.scene_signature(pixels)


def compare(image, size, repeats):
    """Mean correlation, its standard deviation and the fewest different bits, by shift."""
    top, room = (image.shape[0] - size) // 2, image.shape[1] - size - max(SHIFTS)
    correlations, bits = np.empty((len(SHIFTS), repeats)), np.empty((len(SHIFTS), repeats), int)
    for number in range(repeats):
        left = number * room // max(1, repeats - 1)
        query, signature = take(100 * number, image[top : top + size, left : left + size])
        for row, shift in enumerate(SHIFTS):
            start = left + shift
            other, shown = take(100 * number + row + 1, image[top : top + size, start : start + size])
            correlations[row, number] = query @ other
            bits[row, number] = (int.from_bytes(signature) ^ int.from_bytes(shown)).bit_count()
    names = "shift", "correlation", "deviation", "least_different_bits"
    columns = SHIFTS, correlations.mean(axis=1).tolist(), correlations.std(axis=1).tolist(), bits.min(axis=1).tolist()
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    print(*rows, sep="\n", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1024, help="pixels a side")
    parser.add_argument("--repeats", type=int, default=2, help="places of the first crop in the image")
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    names = ("china.jpg", "flower.jpg")
    images = zip(names, natural_images(options.size), strict=True)
    measured = {"images": {name: compare(image, options.size, options.repeats) for name, image in images}}
    if options.json:
        save(options.json, options, measured)


if __name__ == "__main__":
    main()
