"""Write signals.npz, small real signals for the tests of calibration.

    python tests/data/real/make.py SENTENCES.npy RESIDUALS.npz

``sentences``: 1000 sentence vectors (all-MiniLM-L6-v2, 384 dimensions) of definitions in WordNet, as
benchmarks/text_embeddings.py computes them. ``residuals``: 10 patches of 512 pixels from the noise of each of 60
photographs by 6 cameras, as docs/how-to/cameras.md describes them. Both as int8 times a scale. Features of CIFAR-10
images are part of the package (topsign.paper.heads).
"""

import sys
from pathlib import Path

import numpy as np

sentences = np.load(sys.argv[1])[:1000]
with np.load(sys.argv[2]) as file:
    patches = file["residuals"][:, : 10 * 26000].reshape(60, 10, 26000)[:, :, :512].reshape(600, 512)
    cameras = np.repeat(file["camera"], 10)
scale = np.float32(np.abs(sentences).max() / 127)
np.savez_compressed(
    Path(__file__).with_name("signals.npz"),
    sentences=np.rint(sentences / scale).astype(np.int8),
    sentence_scale=scale,
    residuals=patches,
    residual_camera=cameras,
)
