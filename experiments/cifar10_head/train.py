"""Train the paper's kind of network on CIFAR-10, and save its test features and two linear heads in one small file.

Eight convolutional layers (VGG style, 128 to 1,024 channels, batch normalisation), two fully connected layers with
ReLU, and a linear head without biases on 1,024 features, as the paper compresses. A second head, with intercepts and
other norms, is a logistic regression on the same frozen features.

    python experiments/cifar10_head/train.py --archive cifar10-jpeg.tar.xz --out src/topsign/paper/data/cifar10_head.npz

The archive holds ``cifar10/{train,test}/<class>/NNNN.jpg``. Needs PyTorch, and torchvision or Pillow to decode; a GPU
reduces the time to minutes. If neither decoder is installed, run ``--decode-to images.npz`` on another machine and pass
``--images images.npz``.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

CHANNELS = (128, 128, 256, 256, 512, 512, 1024, 1024)
N_FEATURES = 1024
MAX_BYTES = 2_000_000  # of the file written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--archive", type=Path, help="tar file of JPEG images")
    source.add_argument("--images", type=Path, help="npz file that --decode-to wrote")
    parser.add_argument("--decode-to", type=Path, help="write decoded images to this npz file and stop")
    parser.add_argument("--out", type=Path, default=Path("cifar10_head.npz"))
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rate", type=float, default=0.1, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="images of each split, for a trial run")
    arguments = parser.parse_args()

    images = read_archive(arguments.archive) if arguments.archive else dict(np.load(arguments.images))
    if arguments.decode_to:
        np.savez(arguments.decode_to, **images)
        return
    for split in ("train", "test") if arguments.limit else ():
        chosen = np.random.default_rng(arguments.seed).permutation(len(images[split]))[: arguments.limit]
        images[split], images[f"{split}_labels"] = images[split][chosen], images[f"{split}_labels"][chosen]

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(arguments.seed)
    torch.backends.cudnn.benchmark = True
    splits = {name: torch.from_numpy(array).to(device) for name, array in images.items()}
    start = time.perf_counter()
    model = train(splits, epochs=arguments.epochs, batch=arguments.batch, peak_rate=arguments.rate)
    print(f"trained in {time.perf_counter() - start:.0f} s on {device.type}", flush=True)

    features = {split: model.features_of(splits[split]) for split in ("train", "test")}
    head = model.head.weight.detach().float()
    coef, intercept = logistic_regression(features["train"], splits["train_labels"])
    save(
        arguments.out,
        features=features["test"].cpu().numpy(),
        labels=images["test_labels"],
        head=head.cpu().numpy(),
        coef=coef.cpu().numpy(),
        intercept=intercept.cpu().numpy(),
        made={"epochs": arguments.epochs, "batch": arguments.batch, "rate": arguments.rate, "seed": arguments.seed},
    )


def read_archive(path: Path) -> dict[str, np.ndarray]:
    """Return both splits as uint8 (n, 3, 32, 32) and labels, with classes in alphabetical order."""
    decode = jpeg_decoder()
    images: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    names: dict[str, list[str]] = {"train": [], "test": []}
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(".jpg"):
                _, split, name, _ = member.name.rsplit("/", 3)
                images[split].append(decode(archive.extractfile(member).read()))
                names[split].append(name)
    classes = sorted(set(names["train"]))
    out = {split: np.stack(images[split]) for split in images}
    return out | {f"{split}_labels": np.array([classes.index(name) for name in names[split]]) for split in names}


def jpeg_decoder() -> Callable[[bytes], np.ndarray]:
    """Return a function that decodes a JPEG file to uint8 (3, height, width), with the installed decoder."""
    try:
        from torchvision.io import ImageReadMode, decode_jpeg

        return lambda data: decode_jpeg(
            torch.frombuffer(bytearray(data), dtype=torch.uint8), mode=ImageReadMode.RGB
        ).numpy()
    except ImportError:
        pass
    try:
        from PIL import Image

        return lambda data: np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).transpose(2, 0, 1)
    except ImportError:
        raise SystemExit(
            "neither torchvision nor Pillow is installed, so JPEG images cannot be decoded here; "
            "install one, or decode elsewhere with --decode-to and pass --images"
        ) from None


class Network(nn.Module):
    """Network from uint8 images to ten logits, with 1,024 non-negative features."""

    def __init__(self, mean: torch.Tensor, deviation: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean.view(1, 3, 1, 1))
        self.register_buffer("deviation", deviation.view(1, 3, 1, 1))
        layers: list[nn.Module] = []
        before = 3
        for number, channels in enumerate(CHANNELS):
            layers += [nn.Conv2d(before, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if number % 2 else []
            before = channels
        self.convolutions = nn.Sequential(*layers)
        self.hidden = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(4 * CHANNELS[-1], N_FEATURES),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(N_FEATURES, N_FEATURES),
            nn.ReLU(),
        )
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(N_FEATURES, 10, bias=False)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        scaled = ((images.float() - self.mean) / self.deviation).to(memory_format=torch.channels_last)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=images.is_cuda):
            return self.hidden(self.convolutions(scaled))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.dropout(self.features(images).float()))

    @torch.no_grad()
    def features_of(self, images: torch.Tensor) -> torch.Tensor:
        self.eval()
        return torch.cat([self.features(part).float() for part in images.split(1000)])


def train(splits: dict[str, torch.Tensor], *, epochs: int, batch: int, peak_rate: float) -> Network:
    """Train by SGD with Nesterov momentum, a one-cycle learning rate, and augmentation on the device."""
    images, labels = splits["train"], splits["train_labels"]
    pixels = images.float()
    model = Network(pixels.mean((0, 2, 3)), pixels.std((0, 2, 3))).to(images.device, memory_format=torch.channels_last)
    del pixels
    optimizer = torch.optim.SGD(model.parameters(), lr=peak_rate, momentum=0.9, weight_decay=5e-4, nesterov=True)
    batch = min(batch, len(images))
    steps = len(images) // batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, peak_rate, total_steps=steps * epochs, pct_start=0.2)
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.05)
    for epoch in range(epochs):
        model.train()
        total = torch.zeros((), device=images.device)
        for rows in torch.randperm(len(images), device=images.device)[: steps * batch].view(steps, batch):
            loss = loss_of(model(augmented(images[rows])), labels[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
        if epoch % 10 == 9 or epoch == epochs - 1:
            logits = model.features_of(splits["test"]) @ model.head.weight.T
            accuracy = (logits.argmax(1) == splits["test_labels"]).float().mean()
            print(f"epoch {epoch + 1}: loss {total.item() / steps:.3f}, test accuracy {accuracy:.4f}", flush=True)
    return model


def augmented(images: torch.Tensor, *, pad: int = 4, cutout: int = 8) -> torch.Tensor:
    """Return randomly flipped images, cropped after reflection padding, with one small square blanked."""
    count, _, height, width = images.shape
    device = images.device
    padded = functional.pad(images.float(), (pad,) * 4, mode="reflect")
    down, right = (torch.randint(0, 2 * pad + 1, (count, 1), device=device) for _ in range(2))
    rows = down + torch.arange(height, device=device)
    columns = right + torch.arange(width, device=device)
    flip = torch.rand(count, 1, device=device) < 0.5
    columns = torch.where(flip, columns.flip(1), columns)
    every = torch.arange(count, device=device)[:, None, None]
    cropped = padded.permute(0, 2, 3, 1)[every, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    top, left = (torch.randint(-cutout // 2, height - cutout // 2, (count, 1), device=device) for _ in range(2))
    hidden_rows = (torch.arange(height, device=device) - top).unsqueeze(2)
    hidden_columns = (torch.arange(width, device=device) - left).unsqueeze(1)
    inside = (hidden_rows >= 0) & (hidden_rows < cutout) & (hidden_columns >= 0) & (hidden_columns < cutout)
    return torch.where(inside.unsqueeze(1), cropped.mean((2, 3), keepdim=True), cropped)


def logistic_regression(
    features: torch.Tensor, labels: torch.Tensor, *, penalty: float = 1e-3
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights (10, n_features) and intercepts of a multinomial logistic regression, by L-BFGS."""
    scale = features.square().mean().sqrt()
    scaled = features / scale
    coef = torch.zeros(10, features.shape[1], device=features.device, requires_grad=True)
    intercept = torch.zeros(10, device=features.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([coef, intercept], max_iter=300, history_size=20, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(scaled @ coef.T + intercept, labels) + penalty / 2 * coef.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return coef.detach() / scale, intercept.detach()


def save(
    path: Path,
    *,
    features: np.ndarray,
    labels: np.ndarray,
    head: np.ndarray,
    coef: np.ndarray,
    intercept: np.ndarray,
    made: dict[str, object],
) -> None:
    """Save the features in 8 bits with one common step, which is coarser only if the file would exceed its limit."""
    heads = {"head": (head, 0), "head with intercepts": (coef, intercept)}

    def accuracies(values: np.ndarray) -> dict[str, float]:
        return {
            name: float(((values @ weights.T + bias).argmax(1) == labels).mean())
            for name, (weights, bias) in heads.items()
        }

    made = made | {"accuracy": accuracies(features)}
    path.parent.mkdir(parents=True, exist_ok=True)
    for levels in (255, 191, 127, 95, 63, 47, 31, 24, 19):
        step = np.float32(features.max() / levels)
        quantised = np.rint(features / step).astype(np.uint8)
        made["accuracy_quantised"] = accuracies(quantised * step)
        arrays = {"features": quantised, "step": step, "labels": labels.astype(np.uint8), "head": head, "coef": coef}
        write_npz(path, arrays | {"intercept": intercept, "made": np.array(json.dumps(made))})
        if path.stat().st_size < MAX_BYTES:
            break
    else:
        raise SystemExit(f"{path} is {path.stat().st_size} bytes even with {levels} levels, over {MAX_BYTES}")
    print(f"{path}: {path.stat().st_size} bytes, features in {levels} levels, {np.mean(features > 0):.0%} not zero")
    for name in heads:
        exact, stored = made["accuracy"][name], made["accuracy_quantised"][name]
        print(f"{name}: accuracy {exact:.4f}, with stored features {stored:.4f}")


def write_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write an npz file compressed by LZMA, which takes a third less than Deflate; NumPy reads both."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)


if __name__ == "__main__":
    main()
