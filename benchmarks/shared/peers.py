"""Codes of other libraries and papers of a given size, learned from a sample and ranked by their reconstructions.

``learn(sample, n_bytes, seed)`` takes centred signals and returns a function from signals to their reconstructions, and
the bytes of what it has learned. The cosine with reconstructions finds more than the scores of these libraries.
"""

import numpy as np

FLOAT = 4  # bytes


def rotation(n, seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0].astype(np.float32)


def itq(sample, n_bytes, seed, n_rounds=30):
    """Learn principal axes, rotated to minimise the quantisation error of signs (Gong and Lazebnik 2011)."""
    axes = np.linalg.eigh(sample.T @ sample)[1].T[::-1][: 8 * n_bytes]
    values = sample[:: max(1, len(sample) // 10_000)] @ axes.T
    turn = rotation(len(axes), seed)
    for _ in range(n_rounds):
        u, _, v = np.linalg.svd(np.where(values @ turn >= 0, 1, -1).T.astype(np.float32) @ values)
        turn = (u @ v).T
    rows = turn.T @ axes
    amplitudes = np.abs(sample @ rows.T).mean(axis=0)

    def code(signals):
        return (np.where(signals @ rows.T >= 0, 1, -1) * amplitudes).astype(np.float32) @ rows

    return code, FLOAT * (rows.size + len(rows))


def opq(sample, n_bytes, seed, n_rounds=10):
    """Rotation and codebooks (Ge and others 2013) by FAISS, which starts from what it is given: seeds turn that."""
    import faiss

    n_features = sample.shape[1]
    n_kept = n_features // n_bytes * n_bytes  # as many as its parts can share
    turn = rotation(n_features, seed)
    matrix = faiss.OPQMatrix(n_features, n_bytes, n_kept)
    matrix.niter, matrix.max_train_points = n_rounds, 2**15
    index = faiss.IndexPreTransform(matrix, faiss.IndexPQ(n_kept, n_bytes, 8))
    index.train(np.ascontiguousarray(sample @ turn))

    def code(signals):
        return index.sa_decode(index.sa_encode(np.ascontiguousarray(signals @ turn))) @ turn.T

    return code, FLOAT * (256 * n_kept + n_features * n_kept)


def residual(sample, n_bytes, seed, beam=5):
    """Learn residual codebooks (Chen and others 2010) with FAISS, encoded by beam search."""
    import faiss

    n_features = sample.shape[1]
    quantizer = faiss.ResidualQuantizer(n_features, n_bytes, 8)
    quantizer.train_type, quantizer.max_beam_size = faiss.ResidualQuantizer.Train_default, beam
    quantizer.cp.seed = 1234 + seed
    quantizer.train(sample)
    return (lambda signals: quantizer.decode(quantizer.compute_codes(signals))), FLOAT * 256 * n_bytes * n_features


def rabitq(sample, n_bytes, seed):
    """One bit for each of as many principal components as leave room for the two factors of RaBitQ, by FAISS."""
    import faiss

    n_features, n_kept = sample.shape[1], min(sample.shape[1], 8 * (n_bytes - 8))
    index = faiss.IndexPreTransform(faiss.PCAMatrix(n_features, n_kept, 0, True), faiss.IndexRaBitQ(n_kept))
    index.train(sample)

    def code(signals):
        return index.sa_decode(index.sa_encode(np.ascontiguousarray(signals)))

    return code, FLOAT * (n_features * n_kept + n_features + n_kept)


PEERS = {"PCA + ITQ": itq, "PCA + RaBitQ": rabitq, "OPQ": opq, "residual quantiser": residual}


def applies(name, n_bytes, n_features, most_residual):
    """Whether a code has this size: ITQ has a bit per axis, residual codebooks take too long beyond some bytes."""
    if name == "PCA + ITQ":
        return 8 * n_bytes <= n_features
    if name == "PCA + RaBitQ":
        return n_bytes > 8
    return name != "residual quantiser" or n_bytes <= most_residual
