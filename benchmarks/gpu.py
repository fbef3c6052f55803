"""A CUDA device compared with the processor and with dense products: search, encoding, heads and regions.

Answers are checked to be equal to those of the processor. Times of the device are medians of wall-clock time around
calls that return to the host. Needs CuPy and PyTorch with CUDA.
"""

import sys
from functools import partial

import numpy as np
from search import filled
from shared.families import untrained
from shared.results import arguments, interleaved, ratio, save, spread, table

import topsign as ts
from topsign import kernels
from topsign.encoding import encode
from topsign.gpu.encoding import RingEncoder


def searching(options):
    """Indexes on the device, and the same on the processor if they are not too large for it."""
    import torch

    rng, rows = np.random.default_rng(0), []
    for family, n_features, n_bytes in (("grouped", 8192, 512), ("sign", 8192, 512), ("trellis", 384, 24)):
        index = filled(family, options.entries, n_features, n_bytes, rng, per_segment=2_000_000)
        device = index.to("cuda")
        for n_queries in options.batches:
            queries = rng.standard_normal((n_queries, n_features), dtype=np.float32)
            found, expected = device.search(queries[:4]), index.search(queries[:4])
            same = np.array_equal(found.ids, expected.ids) and np.array_equal(found.scores, expected.scores)
            comparison = index.recipe.prepare(queries, scoring="asymmetric")
            ranked = partial(device._engine.rank, comparison, device._store.snapshot, 10)
            times = 1e3 * interleaved([partial(device.search, queries), ranked], options.repeats)
            each = spread(1e6 * times[:, 0] / (options.entries * n_queries))
            cells = spread(times[:, 0]), spread(times[:, 1]), each, "yes" if same else "NO"
            rows.append([family, n_bytes, n_queries, *cells])
        del device
        torch.cuda.empty_cache()
    columns = ["code", "bytes", "queries", "search (ms)", "ranking (ms)", "ns per pair", "equal to the processor"]
    note = "The ten best of each query. A search includes projections on the processor and significance."
    return table(f"{options.entries:,} entries on the device", columns, rows, note)


def encoding(options):
    rng, rows = np.random.default_rng(1), []
    for family, n_features, n_bytes in (("grouped", 8192, 512), ("adaptive", 8192, 448), ("trellis", 384, 24)):
        recipe = untrained(family, n_features, n_bytes)
        signals = rng.standard_normal((options.signals, n_features), dtype=np.float32)
        encoder = ts.gpu.DeviceEncoder(recipe, device="cuda")
        same = np.array_equal(encoder.encode(signals[:512]).data, encode(recipe, signals[:512]))
        times = (
            1e6
            / len(signals)
            * interleaved([partial(encoder.encode, signals), partial(encode, recipe, signals)], options.repeats)
        )
        cells = spread(times[:, 0]), spread(times[:, 1]), ratio(times[:, 1], times[:, 0])
        rows.append([family, n_features, n_bytes, *cells, "yes" if same else "NO"])
        if family == "trellis":
            coordinates = rng.standard_normal((options.signals, recipe.ring.n_coded), dtype=np.float32)
            viterbi = partial(RingEncoder(ts.gpu.cuda_device(), recipe.ring).ring_encode, recipe.ring, coordinates)
            both = [viterbi, partial(kernels.active().ring_encode, recipe.ring, coordinates)]
            times = 1e6 / len(signals) * interleaved(both, options.repeats)
            cells = spread(times[:, 0]), spread(times[:, 1]), ratio(times[:, 1], times[:, 0])
            same = np.array_equal(viterbi(), both[1]())
            rows.append(["trellis, Viterbi only", n_features, n_bytes, *cells, "yes" if same else "NO"])
    columns = ["code", "features", "bytes", "device (us)", "processor (us)", "times as fast", "equal to the processor"]
    return table(
        f"Encoding {options.signals:,} signals",
        columns,
        rows,
        f"Copies to and from the device count; processor: {options.threads} threads.",
    )


def heads(options):
    """Compressed layers of PyTorch beside a dense layer in bfloat16."""
    import torch

    rng, rows = np.random.default_rng(2), []
    weights = rng.standard_normal((options.classes, 1024), dtype=np.float32)
    dense = torch.from_numpy(weights).to("cuda", torch.bfloat16)
    for family in ("grouped", "trellis"):
        layer = ts.nn.CompressedLinear.from_head(
            ts.Head.from_weights(weights, family=family, n_bytes=64, random_state=7)
        ).to("cuda")
        for n_inputs in (1, 64, 1024):
            inputs = torch.randn(n_inputs, 1024, device="cuda")
            half = inputs.bfloat16()

            def finished(call):
                call()
                torch.cuda.synchronize()

            calls = [lambda x=inputs, layer=layer: layer(x), lambda x=half: x @ dense.T]
            times = 1e3 * interleaved([partial(finished, call) for call in calls], options.repeats)
            rows.append([family, n_inputs, spread(times[:, 0]), spread(times[:, 1]), ratio(times[:, 0], times[:, 1])])
    columns = ["code of 64 bytes", "inputs", "all logits (ms)", "bfloat16 product (ms)", "ratio"]
    return table(f"All logits of a head, {options.classes:,} x 1,024, on the device", columns, rows)


def main():
    options = arguments(
        __doc__,
        entries=(10_000_000, 20_000),
        batches=([1, 16, 256, 1024], [1, 16]),
        signals=(131_072, 512),
        classes=(100_000, 2_000),
        repeats=(7, 2),
        threads=(16, 2),
    )
    try:
        ts.gpu.cuda_device()
    except (ImportError, RuntimeError) as error:
        sys.exit(f"there is no device to measure: {error}")
    tables = []
    for part in (searching, encoding, heads):
        tables.append(part(options))
        save(options, tables)


if __name__ == "__main__":
    main()
