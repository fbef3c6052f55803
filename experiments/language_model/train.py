"""Train a small language model and save its head, with held-out features and the tokens that follow them.

    python experiments/language_model/train.py --tokens tokens.npz --width 512 --out head-512

A decoder of GPT-2's shape (pre-norm, GELU, learned positions, head tied to the embedding, no bias) trained on the
tokens of ``tokens.py``. Writes ``OUT.weights.N.npy`` (float16 rows of the head, in files below 15 MB) and ``OUT.npz``
(float16 input features of the head, the tokens that follow, and training parameters); ``benchmarks/heads.py --head``
reads them. With a GPU it takes about a minute. Needs only PyTorch.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

CONTEXT = 256
ROWS_BYTES = 15_000_000  # of one file of weights


class Block(nn.Module):
    def __init__(self, width: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.attention(self.before_attention(x)).view(batch, length, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self._drop(self.joined(seen.transpose(1, 2).reshape(batch, length, width)))
        return x + self._drop(self.mlp(self.before_mlp(x)))

    def _drop(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.dropout, self.training)


class LanguageModel(nn.Module):
    def __init__(self, vocabulary: int, width: int, n_layers: int, dropout: float) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, width // 64, dropout) for _ in range(n_layers)))
        self.last = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def features(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.last(self.blocks(self.tokens(ids) + self.places(places)))

    def forward(self, ids: Tensor) -> Tensor:
        return self.features(ids) @ self.tokens.weight.T


def batches(tokens: Tensor, size: int, n_batches: int) -> Tensor:
    starts = torch.randint(0, len(tokens) - CONTEXT - 1, (n_batches, size))
    return starts.unsqueeze(2) + torch.arange(CONTEXT + 1)


@torch.no_grad()
def held_out(model: LanguageModel, tokens: Tensor, device: str) -> tuple[Tensor, Tensor, float]:
    """Return features and next tokens of the second half of every window, which has context, and the mean loss."""
    model.eval()
    windows = tokens[: (len(tokens) - 1) // CONTEXT * CONTEXT].view(-1, CONTEXT)
    following = tokens[1 : 1 + windows.numel()].view(-1, CONTEXT)
    kept, after, losses = [], [], []
    for ids, targets in zip(windows.split(32), following.split(32), strict=True):
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            features = model.features(ids.to(device))
        late = features[:, CONTEXT // 2 :].reshape(-1, features.shape[-1]).float()
        wanted = targets[:, CONTEXT // 2 :].reshape(-1).to(device)
        losses.append(functional.cross_entropy(late @ model.tokens.weight.T, wanted, reduction="none").cpu())
        kept.append(late.cpu())
        after.append(wanted.cpu())
    return torch.cat(kept), torch.cat(after), float(torch.cat(losses).mean())


def train(model: LanguageModel, tokens: Tensor, options: argparse.Namespace, device: str) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), options.rate, betas=(0.9, 0.95), weight_decay=0.1)
    places, start = batches(tokens, options.batch, options.steps), time.perf_counter()
    tokens = tokens.to(device)
    model.train()
    for step, where in enumerate(places):
        warm, left = min(1.0, (step + 1) / 100), 0.5 * (1 + math.cos(math.pi * step / options.steps))
        for group in optimizer.param_groups:
            group["lr"] = options.rate * warm * (0.05 + 0.95 * left)
        ids = tokens[where.to(device)]
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 200 == 0 or step == options.steps - 1:
            print(f"step {step}: loss {float(loss):.3f}, {time.perf_counter() - start:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=Path, required=True)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--positions", type=int, default=3000, help="held-out features that are kept")
    parser.add_argument("--out", type=Path, default=Path("head"))
    options = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with np.load(options.tokens) as stored:
        vocabulary = int(stored["vocabulary"])
        tokens, test = (torch.from_numpy(stored[name].astype(np.int64)) for name in ("train", "test"))
    model = LanguageModel(vocabulary, options.width, options.layers, options.dropout).to(device)
    train(model, tokens, options, device)
    features, following, loss = held_out(model, test, device)
    chosen = torch.randperm(len(features))[: options.positions]
    made = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
    made |= {"vocabulary": vocabulary, "held_out_perplexity": math.exp(loss), "n_held_out": len(features)}
    print(json.dumps(made))
    weights = model.tokens.weight.detach().half().cpu().numpy()
    size = ROWS_BYTES // weights[:1].nbytes
    for part, start in enumerate(range(0, vocabulary, size)):
        np.save(f"{options.out}.weights.{part}.npy", weights[start : start + size])
    np.savez(
        f"{options.out}.npz",
        features=features[chosen].half().numpy(),
        following=following[chosen].numpy(),
        made=np.array(json.dumps(made)),
    )


if __name__ == "__main__":
    main()
