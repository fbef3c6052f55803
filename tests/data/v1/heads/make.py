"""Made the files beside it with topsign 0.1.0, format 1; kept to show that later versions still read them.

    python tests/data/v1/heads/make.py FOLDER

Weights and inputs are whole numbers from a formula, so that any version and any language can make them again.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

import topsign as ts

N_FEATURES = 24


def rows(n_rows, salt):
    row, column = np.indices((n_rows, N_FEATURES))
    return ((row * 7919 + column * 104_729 + row * column * 31 + salt) % 201 - 100).astype(np.float32)


def inputs():
    return rows(4, 77)


def main():
    folder = Path(sys.argv[1])
    weights, intercept, names = rows(5, 0), np.arange(5) * 100.0, np.array(["a", "b", "c", "d", "e"])
    adaptive = {"n_bits": 8, "n_pool": 40, "random_state": 7}
    made = {
        "compact": ts.AdaptiveLinearClassifier.from_weights(weights, intercept=intercept, classes=names, **adaptive),
        "fast": ts.AdaptiveLinearClassifier.from_weights(weights, layout="fast", shortlist=2, **adaptive),
        "two": ts.AdaptiveLinearClassifier.from_weights(weights[:1], scoring="hamming", **adaptive),
        "signs": ts.SignLinearClassifier.from_weights(weights, n_bits=50, random_state=7),
        "universal": ts.UniversalLinearClassifier.from_weights(weights[:1], n_bits=50, step=1.5, random_state=7),
    }
    answers = {}
    for name, classifier in made.items():
        classifier.save(folder / f"{name}.npz")
        answers[name] = {
            "classifier": type(classifier).__name__,
            "scores": classifier.decision_function(inputs()).tolist(),
            "labels": classifier.predict(inputs()).tolist(),
        }
    linear = torch.nn.Linear(N_FEATURES, 5)
    linear.weight.data, linear.bias.data = torch.from_numpy(weights), torch.from_numpy(intercept.astype(np.float32))
    layer = ts.nn.compress(linear, **adaptive)
    torch.save(layer.state_dict(), folder / "layer.pt")
    answers["layer"] = {"scores": layer(torch.from_numpy(inputs())).tolist()}
    (folder / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
