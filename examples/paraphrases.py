"""Find paraphrases among sentences, like ``sentence_transformers.util.paraphrase_mining``.

    python examples/paraphrases.py [sentences.txt] [--model all-MiniLM-L6-v2] [--threshold 0.4]

The file has one sentence per line; by default, a few built-in sentences are used. With --model, sentence-transformers
embeds them; otherwise they become TF-IDF vectors of character n-grams, a sparse matrix of 65,536 columns. All pairs are
compared by their codes (``index.pairs``, in bounded memory), and candidates are ranked by exact cosines.
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize

import topsign as ts

SENTENCES = """
The cat sits outside in the garden
A man is playing the guitar on stage
The new movie is awesome
The cat is sitting outside in our garden
A woman watches television at home
The new movie is so great, awesome
On stage, a man is playing a guitar
Do you like pizza with mushrooms?
The train to Turin leaves at noon
Do you like pizza with olives?
At noon the train leaves to Turin
My phone does not charge any more
"""


def embed(sentences, model):
    """Embed sentences as unit rows: dense with a model, or sparse with character n-grams."""
    if model is not None:
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(model).encode(sentences, normalize_embeddings=True)
    grams = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 5), n_features=2**16, norm=None, alternate_sign=False)
    return make_pipeline(grams, TfidfTransformer()).fit_transform(sentences)


def mine(vectors, *, threshold, margin=0.2):
    """Return triples (cosine, i, j) above the threshold in descending order."""
    index = ts.Index(vectors.shape[1], family="grouped", n_bytes=min(1024, vectors.shape[1] // 16), random_state=7)
    index.add(vectors)
    candidates = index.pairs(threshold=max(0.05, threshold - margin))  # scores of codes are estimates, hence the margin
    first, second = (normalize(vectors[part]) for part in (candidates.first, candidates.second))
    products = first.multiply(second) if hasattr(first, "multiply") else first * second
    cosines = np.asarray(products.sum(axis=1)).ravel()
    found = zip(cosines.tolist(), candidates.first.tolist(), candidates.second.tolist(), strict=True)
    return sorted((triple for triple in found if triple[0] >= threshold), reverse=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentences", nargs="?", help="a text file, one sentence per line")
    parser.add_argument("--model", help="a model of sentence-transformers")
    parser.add_argument("--threshold", type=float, default=0.4, help="smallest cosine of a pair")
    options = parser.parse_args()
    text = SENTENCES if options.sentences is None else Path(options.sentences).read_text(encoding="utf-8")
    sentences = [line for line in text.splitlines() if line.strip()]
    for cosine, i, j in mine(embed(sentences, options.model), threshold=options.threshold):
        print(f"{cosine:.2f}  {sentences[i]}  =  {sentences[j]}")


if __name__ == "__main__":
    main()
