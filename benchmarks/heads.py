"""Compressed heads: bytes per class, time of the top class, and agreement with the exact head.

Weights and inputs are normal vectors whose covariance has eigenvalues i**-0.7 in a random basis, as features of real
networks have falling eigenvalues. Each input is the weight vector of its class, at a correlation of 0.45, plus such
noise. Times are medians of interleaved repeats, processor time with one thread; the float32 head is a matrix product
and an argmax. ``--head`` is the prefix of the files of experiments/language_model, a head of a language model:
perplexity and agreement of its tokens.
"""

import json
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from search import clock
from shared.families import adaptive_shape
from shared.results import arguments, interleaved, ratio, save, spread, table

import topsign as ts

CORRELATION, DECAY, BLOCK = 0.45, 0.7, 500


def make_head(rng, n_classes, n_features, n_inputs):
    """Weights (n_classes, n_features), inputs (n_inputs, n_features) and the labels planted in them."""
    eigenvalues = np.arange(1, n_features + 1) ** -DECAY
    basis, _ = np.linalg.qr(rng.standard_normal((n_features, n_features)))
    shape = (np.sqrt(eigenvalues / eigenvalues.sum())[:, np.newaxis] * basis.T).astype(np.float32)
    weights = np.empty((n_classes, n_features), np.float32)
    for start in range(0, n_classes, 10_000):  # drawing all values at once would need a second copy
        part = weights[start : start + 10_000]
        part[:] = rng.standard_normal(part.shape, dtype=np.float32) @ shape
    labels = rng.integers(0, n_classes, n_inputs)
    noise = rng.standard_normal((n_inputs, n_features), dtype=np.float32) @ shape
    return weights, CORRELATION * weights[labels] + np.float32(np.sqrt(1 - CORRELATION**2)) * noise, labels


def exact_top(weights, inputs):
    parts = np.array_split(inputs, -(-len(inputs) // 256))
    return np.concatenate([(part @ weights.T).argmax(axis=1) for part in parts])


def compressed(weights, n_bytes):
    """Heads of all families with about as many bytes per class."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ts.heads.SizeWarning)
        return {
            family: ts.Head.from_weights(weights, family=family, random_state=7, **size)
            for family, size in {
                "adaptive": adaptive_shape(weights.shape[1], n_bytes),
                "sign": {"n_bytes": n_bytes},
                "grouped": {"n_bytes": n_bytes},
                "trellis": {"n_bytes": n_bytes},
            }.items()
        }


def synthetic(options):
    n_features = 1024
    weights, inputs, labels = make_head(np.random.default_rng(0), options.classes, n_features, options.inputs)
    batch, exact = inputs[: options.batch], exact_top(weights, inputs)
    heads = {f"{family}, {n} bytes": one for n in options.bytes for family, one in compressed(weights, n).items()}
    first = f"grouped, {options.bytes[0]} bytes"
    heads[f"{first}, shortlist of {options.shortlist}"] = heads[first].with_shortlist(options.shortlist, weights)
    calls = [lambda: (batch @ weights.T).argmax(axis=1), *(partial(head.predict, batch) for head in heads.values())]
    times = 1e3 * interleaved(calls, options.repeats, clock(options))
    rows = [["float32", 4 * n_features, None, spread(times[:, 0]), None, 1.0, float(np.mean(exact == labels))]]
    for i, (name, head) in enumerate(heads.items(), 1):
        found = head.predict(inputs)
        quality = float(np.mean(found == exact)), float(np.mean(found == labels))
        size = head.code_nbytes / len(weights)
        smaller = weights.nbytes / (head.code_nbytes + head.shortlist_nbytes)
        rows.append([name, size, smaller, spread(times[:, i]), ratio(times[:, 0], times[:, i]), *quality])
    columns = ["head", "bytes per class", "times smaller", "ms per batch", "times as fast", "agreement", "accuracy"]
    title = f"A head of {options.classes:,} classes and {n_features:,} features, batches of {options.batch}"
    note = f"""{options.threads} thread(s). Agreement with the float32 head and accuracy on {options.inputs:,} inputs.
    Sizes include the two bytes of a class's factor."""
    shown = next(row for row in rows if row[0] == first)
    words = f"""{shown[2]:.0f} times smaller, {shown[5]:.0%} of the top classes unchanged, {shown[4]["ratio"]:.1f} times
    as fast as the matrix product"""
    task = f"""Compress a head of {options.classes:,} classes to {shown[1]:.0f} bytes each (synthetic, {n_features:,}
    features, {options.threads} thread)"""
    return table(title, columns, rows, note), [[task, words]]


def products(options):
    """All logits and the best class, by the number of classes, beside float32 and PyTorch's int8 layers."""
    try:
        import torch
    except ImportError:
        return []
    rng, rows, n_features = np.random.default_rng(1), [], 1024
    for n_classes in options.products:
        weights, inputs, _ = make_head(rng, n_classes, n_features, 2_000)
        linear = torch.nn.Linear(n_features, n_classes, bias=False)
        linear.weight.data = torch.from_numpy(weights)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.ao is deprecated, and has no successor in PyTorch itself
            small = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(linear), {torch.nn.Linear})
        head, exact = compressed(weights, 64)["grouped"], exact_top(weights, inputs)
        with torch.inference_mode():
            for size in (1, 64):
                batch, tensor = inputs[:size], torch.from_numpy(inputs[:size])
                calls = [lambda x=batch, w=weights: x @ w.T, partial(small, tensor)]
                calls += [partial(head.logits, batch), partial(head.predict, batch)]
                times = 1e3 * interleaved(calls, options.repeats, clock(options))
                rows.append([n_classes, size, *(spread(times[:, i]) for i in range(4))])
            same = [np.mean(small(torch.from_numpy(inputs)).argmax(1).numpy() == exact)]
        same.append(np.mean(head.predict(inputs) == exact))
        rows[-1] += map(float, same)
        rows[-2] += [None, None]
    columns = ["classes", "inputs", "float32 (ms)", "int8 (ms)", "all logits (ms)", "best class (ms)"]
    columns += ["agreement of int8", "agreement of codes"]
    note = f"""{options.threads} thread(s); int8: dynamic quantisation of PyTorch, 1,028 bytes per class. Grouped codes
    of 64 bytes. Agreement with the float32 head on 2,000 inputs."""
    return [table(f"All logits of a head of {n_features:,} features, and its best class", columns, rows, note)]


def cifar(options):
    """The head of the paper, ten classes: points of accuracy lost, by family and bytes."""
    from topsign.paper.heads import load_cifar10_head

    head = load_cifar10_head()
    accuracy = np.mean((head.features @ head.weights.T).argmax(axis=1) == head.labels)
    rows = []
    for n_bytes in (16, 24, 32, 64):
        for family in ("adaptive", "sign", "grouped", "trellis"):
            size = adaptive_shape(1024, n_bytes) if family == "adaptive" else {"n_bytes": n_bytes}
            shares = []
            for seed in range(options.seeds):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ts.heads.SizeWarning)
                    made = ts.Head.from_weights(head.weights, family=family, random_state=seed, **size)
                shares.append(100 * (accuracy - np.mean(made.predict(head.features) == head.labels)))
            rows.append([family, n_bytes, float(np.mean(shares)), float(np.std(shares) / np.sqrt(len(shares)))])
    title = "CIFAR-10 head of the paper, 1,024 features: points of accuracy lost"
    note = f"""Mean of {options.seeds} seeds, real-valued inputs; exact accuracy {accuracy:.2%}. Without the two bytes
    of a factor."""
    chart = {"file": "heads", "x": "bytes per class", "y": "points lost", "by": "code", "log": "x"}
    return table(title, ["code", "bytes per class", "points lost", "standard error"], sorted(rows), note, chart)


def language_model(options):
    """Perplexity and agreement of a language model's head."""
    parts = sorted(Path(options.head).parent.glob(f"{Path(options.head).name}.weights.*.npy"))
    weights = np.concatenate([np.load(part) for part in parts]).astype(np.float32)
    with np.load(f"{options.head}.npz") as stored:
        features, following = stored["features"][:3000].astype(np.float32), stored["following"][:3000]
        made = json.loads(str(stored["made"]))
    logits = {"float32": (4 * weights.shape[1], lambda x: x @ weights.T)}
    for n_bytes in (32, 64, 128):
        for family, head in compressed(weights, n_bytes).items():
            logits[f"{family}, {n_bytes} bytes"] = head.code_nbytes / len(weights), head.logits
    rows = []
    for name, (size, call) in logits.items():
        losses, same = [], []
        for start in range(0, len(features), BLOCK):
            part = slice(start, start + BLOCK)
            exact, found = features[part] @ weights.T, call(features[part])
            highest = found.max(axis=1, keepdims=True)
            total = np.log(np.exp(found - highest).sum(axis=1)) + highest[:, 0]
            losses.append(total - np.take_along_axis(found, following[part, np.newaxis], axis=1)[:, 0])
            same.append(exact.argmax(axis=1) == found.argmax(axis=1))
        rows.append([name, size, float(np.exp(np.concatenate(losses).mean())), float(np.concatenate(same).mean())])
    title = f"Head of a language model, {len(weights):,} tokens, {weights.shape[1]} features"
    return table(title, ["head", "bytes per token", "perplexity", "same best token"], rows, f"Trained with {made}.")


def main():
    options = arguments(
        __doc__,
        classes=(100_000, 2_000),
        products=([10, 1_000, 100_000], [10, 1_000]),
        inputs=(5_000, 300),
        bytes=([64, 128], [64]),
        batch=256,
        shortlist=100,
        repeats=(7, 2),
        seeds=(20, 1),
        head=None,
    )
    shown, headline = synthetic(options)
    tables = [shown, cifar(options), *products(options)] + ([language_model(options)] if options.head else [])
    save(options, tables, headline)


if __name__ == "__main__":
    main()
