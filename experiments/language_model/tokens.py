"""Convert WordNet's glosses to tokens of a byte-pair vocabulary, as train.py reads them.

    python experiments/language_model/tokens.py --wordnet /usr/share/wordnet --out tokens.npz

The folder is that of Debian's package wordnet-base (files data.noun, data.verb, data.adj, data.adv). Each line of
text is ``words: gloss``; every twentieth synset, by the hash of its line, is held out. Needs the package tokenizers.
"""

from __future__ import annotations

import argparse
import zlib
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<end>"


def glosses(folder: Path) -> list[str]:
    """One line per synset."""
    lines = []
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{part}").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("  "):  # the licence
                continue
            fields, _, gloss = line.partition("|")
            parts = fields.split()
            words = [parts[4 + 2 * i].replace("_", " ") for i in range(int(parts[3], 16))]
            lines.append(f"{', '.join(words)}: {gloss.strip()}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wordnet", type=Path, required=True)
    parser.add_argument("--vocabulary", type=int, default=16_384)
    parser.add_argument("--out", type=Path, default=Path("tokens.npz"))
    options = parser.parse_args()
    lines = glosses(options.wordnet)
    held_out = [zlib.crc32(line.encode()) % 20 == 0 for line in lines]
    train = [line for line, out in zip(lines, held_out, strict=True) if not out]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=options.vocabulary, special_tokens=[END], show_progress=False)
    tokenizer.train_from_iterator(train, trainer)
    end = tokenizer.token_to_id(END)

    def encoded(texts: list[str]) -> np.ndarray:
        return np.concatenate([[*one.ids, end] for one in tokenizer.encode_batch(texts)]).astype(np.uint16)

    test = [line for line, out in zip(lines, held_out, strict=True) if out]
    arrays = {"train": encoded(train), "test": encoded(test)}
    np.savez_compressed(options.out, vocabulary=tokenizer.get_vocab_size(), tokenizer=tokenizer.to_str(), **arrays)
    print(f"{len(lines):,} glosses, {tokenizer.get_vocab_size():,} tokens in the vocabulary; ", end="")
    print(", ".join(f"{name} {len(array):,} tokens" for name, array in arrays.items()))


if __name__ == "__main__":
    main()
