"""Which sentences say the same? Paraphrase mining by codes, as ``sentence_transformers.util.paraphrase_mining`` does.

    python examples/paraphrases.py [sentences.txt] [--model all-MiniLM-L6-v2] [--threshold 0.4]

One sentence per line; without a file, a few below. With --model they are embedded by sentence-transformers; without it,
by weighted character n-grams, a sparse matrix of 65,536 columns that is never made dense. All pairs are compared by
their codes (``index.pairs``, each pair once, in bounded memory); exact scores of the original vectors decide among the
candidates.
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
    """Rows of length one: dense by a model, or sparse by character n-grams."""
    if model is not None:
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(model).encode(sentences, normalize_embeddings=True)
    grams = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 5), n_features=2**16, norm=None, alternate_sign=False)
    return make_pipeline(grams, TfidfTransformer()).fit_transform(sentences)


def mine(vectors, *, threshold, margin=0.2):
    """Triples (cosine, i, j) of rows at least as similar as the threshold, the most similar first."""
    index = ts.AdaptiveIndex(n_features=vectors.shape[1], n_bits=min(2048, vectors.shape[1] // 8), random_state=7)
    index.add(vectors)
    candidates = index.pairs(threshold=max(0.05, threshold - margin))  # by codes, which err: exact scores decide
    first, second = (normalize(vectors[part]) for part in (candidates.first, candidates.second))
    products = first.multiply(second) if hasattr(first, "multiply") else first * second
    cosines = np.asarray(products.sum(axis=1)).ravel()
    found = zip(cosines.tolist(), candidates.first.tolist(), candidates.second.tolist(), strict=True)
    return sorted((triple for triple in found if triple[0] >= threshold), reverse=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentences", nargs="?", help="a text file, one sentence per line")
    parser.add_argument("--model", help="a model of sentence-transformers")
    parser.add_argument("--threshold", type=float, default=0.4, help="least cosine of a pair")
    options = parser.parse_args()
    text = SENTENCES if options.sentences is None else Path(options.sentences).read_text(encoding="utf-8")
    sentences = [line for line in text.splitlines() if line.strip()]
    for cosine, i, j in mine(embed(sentences, options.model), threshold=options.threshold):
        print(f"{cosine:.2f}  {sentences[i]}  =  {sentences[j]}")


if __name__ == "__main__":
    main()
