"""Compress the head of a CIFAR-10 network in scikit-learn and in PyTorch, and report its accuracy.

The head has 1,024 features and 10 classes; the features of the 10,000 test images come with the library.
"""

import numpy as np

import topsign as ts
from topsign.paper.heads import load_cifar10_head


def main():
    head = load_cifar10_head()
    exact = (head.features @ head.weights.T).argmax(axis=1)
    print(f"uncompressed: {(exact == head.labels).mean():.2%} right")
    for n_bytes in (8, 16, 32, 64):
        small = ts.CompressedLinearClassifier.from_weights(head.weights, n_bytes=n_bytes, random_state=7)
        report = small.report(head.features, head.labels, against=exact)
        right = (small.predict(head.features) == head.labels).mean()
        print(f"{n_bytes:3} bytes: {report.compression_ratio:4.0f} times smaller, {right:.2%} right, ", end="")
        print(f"{report.agreement:.2%} unchanged")

    try:
        import torch
    except ImportError:
        print("PyTorch is not installed: pip install '.[torch]'")
        return
    linear = torch.nn.Linear(1024, 10, bias=False)
    linear.weight.data = torch.from_numpy(np.array(head.weights, np.float32))
    layer = ts.nn.compress(linear, n_bytes=32, random_state=7)
    best = layer.topk(torch.from_numpy(np.array(head.features, np.float32)), k=1).indices[:, 0].numpy()
    print(f"as a PyTorch layer, 32 bytes: {(best == head.labels).mean():.2%} right")


if __name__ == "__main__":
    main()
