"""Codes of a given size, learned from a sample: trellis, adaptive and sign codes, and those of other libraries.

All are ranked by the same score, the cosine of the query with the reconstruction of an entry including its mean.
Trellis codes are searched in an index; the others are decoded, which gives a higher recall than the scores of their
libraries.
"""

import time
from functools import partial

import numpy as np

import topsign as ts
from topsign.kernels import Layout

SHORTLIST = 100
BASES = {
    "trellis, hadamard": {"basis": "hadamard"},
    "trellis, principal": {},
    "trellis, 16 local bases": {"n_local": 16},
}
FLOAT = 4  # bytes


def unit(rows):
    return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)).astype(np.float32)


def best(queries, rows, n):
    """Positions of the rows of highest inner products with each query, falling."""
    import faiss

    contiguous = (np.ascontiguousarray(side, np.float32) for side in (queries, rows))
    return faiss.knn(*contiguous, n, metric=faiss.METRIC_INNER_PRODUCT)[1]


SECONDS = ("seconds_to_learn", "seconds_to_code")


def coded(found, shared_bytes, times):
    """Neighbours that a code finds, shared bytes, and seconds, from three readings of the time."""
    return {"found": found, "shared_bytes": int(shared_bytes)} | dict(zip(SECONDS, np.diff(times), strict=True))


def trellis(parameters, sample, entries, queries, n_bytes, seed, options):
    times = [time.perf_counter()]
    index = ts.TrellisIndex(n_features=entries.shape[1], n_bytes=n_bytes, random_state=seed, **parameters)
    index.fit(sample)
    times.append(time.perf_counter())
    index.add(entries)
    times.append(time.perf_counter())
    return coded(index.search(queries, k=SHORTLIST).ids, learned_bytes(index.recipe), times)


def learned_bytes(recipe):
    """Axes, means, and of every coded coordinate its number, amplitude and gain."""
    arrays = [recipe.mean, *(getattr(recipe.projection, name, None) for name in ("axes", "means"))]
    coordinates = sum(design.n_coded for design in recipe.designs)
    return 3 * FLOAT * coordinates + sum(array.nbytes for array in arrays if array is not None)


def decoded(learn, sample, entries, queries, n_bytes, seed, options):
    """``learn`` gives a function from centred signals to their reconstructions, and bytes of what it has learned."""
    times = [time.perf_counter()]
    mean = sample.mean(axis=0)
    code, shared = learn(np.ascontiguousarray(sample - mean), n_bytes, seed, options)
    times.append(time.perf_counter())
    rows = code(np.ascontiguousarray(entries - mean))
    times.append(time.perf_counter())
    return coded(best(queries, unit(mean + rows), SHORTLIST), shared + FLOAT * len(mean), times)


def with_amplitude(code, sample):
    """Reconstructions multiplied by one number, that of least error on the sample."""
    rows = code(sample)
    amplitude = np.float32((rows * sample).sum() / (rows**2).sum())
    return (lambda signals: amplitude * code(signals)), FLOAT


def matrix_of(index):
    """Rows of an index's projection, (n_pool, n_features)."""
    return np.asarray(index.recipe.projection.apply(np.eye(index.recipe.n_features, dtype=np.float32))).T


def signs(sample, n_bytes, seed, options):
    index = ts.SignIndex(n_features=sample.shape[1], n_pool=8 * n_bytes, norms=False, random_state=seed)
    rows = matrix_of(index)
    return with_amplitude(lambda signals: np.where(signals @ rows.T >= 0, 1, -1).astype(np.float32) @ rows, sample)


def adaptive_shape(n_features, n_bytes):
    """The most projections kept whose compact code has this size, of a pool of one rotation or two."""
    n_pool = n_features if 8 * n_bytes <= n_features else 2 * n_features
    fits = [n for n in range(1, n_pool // 2 + 1) if Layout("compact", n, n_pool).code_bytes <= n_bytes]
    return {"n_bits": fits[-1], "n_pool": n_pool}


def adaptive(sample, n_bytes, seed, options):
    shape = {"n_features": sample.shape[1]} | adaptive_shape(sample.shape[1], n_bytes)
    rows = matrix_of(ts.AdaptiveIndex(norms=False, random_state=seed, **shape))

    def code(signals):
        index = ts.AdaptiveIndex(norms=False, random_state=seed, **shape)
        codes = index.get(index.add(signals)).codes
        kept = np.zeros((len(signals), shape["n_pool"]), np.float32)
        np.put_along_axis(kept, codes.locations.astype(np.int64), codes.signs.astype(np.float32), axis=1)
        return kept @ rows

    return with_amplitude(code, sample)


def itq(sample, n_bytes, seed, options, n_rounds=30):
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


def rotation(n, seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0].astype(np.float32)


def opq(sample, n_bytes, seed, options):
    """Rotation and codebooks (Ge and others 2013) by faiss, which starts from what it is given: seeds turn that."""
    import faiss

    n_features = sample.shape[1]
    n_kept = n_features // n_bytes * n_bytes  # as many as its parts can share
    turn = rotation(n_features, seed)
    matrix = faiss.OPQMatrix(n_features, n_bytes, n_kept)
    matrix.niter, matrix.max_train_points = options.opq_rounds, 2**15
    index = faiss.IndexPreTransform(matrix, faiss.IndexPQ(n_kept, n_bytes, 8))
    index.train(sample @ turn)

    def code(signals):
        return index.sa_decode(index.sa_encode(signals @ turn)) @ turn.T

    return code, FLOAT * (256 * n_kept + n_features * n_kept)


def residual(sample, n_bytes, seed, options):
    """Learn residual codebooks (Chen and others 2010) with FAISS, encoded by beam search."""
    import faiss

    n_features = sample.shape[1]
    quantizer = faiss.ResidualQuantizer(n_features, n_bytes, 8)
    quantizer.train_type, quantizer.max_beam_size = faiss.ResidualQuantizer.Train_default, options.beam
    quantizer.cp.seed = 1234 + seed
    quantizer.train(sample)
    return (lambda signals: quantizer.decode(quantizer.compute_codes(signals))), FLOAT * 256 * n_bytes * n_features


METHODS = {name: partial(trellis, parameters) for name, parameters in BASES.items()} | {
    "adaptive": partial(decoded, adaptive),
    "signs": partial(decoded, signs),
    "PCA + ITQ": partial(decoded, itq),
    "OPQ": partial(decoded, opq),
    "residual quantiser": partial(decoded, residual),
}


LEARNED_LONG = ("OPQ", "residual quantiser")


def applies(method, n_bytes, n_features, most_residual):
    """Whether a code has this size: ITQ has a bit per axis, residual codebooks take too long beyond some bytes."""
    if method == "PCA + ITQ":
        return 8 * n_bytes <= n_features
    return method != "residual quantiser" or n_bytes <= most_residual
