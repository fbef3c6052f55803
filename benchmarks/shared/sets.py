"""Real sets of vectors: a sample to learn from, entries, and queries that are in neither."""

import sysconfig
from pathlib import Path

import numpy as np
from text_embeddings import glosses, load

from .codes import unit

PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")


def text(options):
    """Sentence vectors, all of which are learned from."""
    entries, queries = load(options)
    return entries, entries, queries


def few(options):
    """A fifth of the sentence vectors, all of which are learned from."""
    entries, queries = load(options)
    entries = entries[: len(entries) // 5]
    return entries, entries, queries


def unseen(options):
    """Sentence vectors, learned from a fifth of them that are not entries."""
    entries, queries = load(options)
    n_sample = len(entries) // 5
    return entries[:n_sample], entries[n_sample:], queries


def shift(options):
    """Learned from sentences of nouns, entries and queries are those of verbs."""
    entries, queries = load(options)
    vectors, kinds = np.concatenate([queries, entries]), parts_of_speech(options)
    nouns, verbs = (vectors[kinds == PARTS_OF_SPEECH.index(kind)] for kind in ("noun", "verb"))
    return nouns[:20_000], verbs[options.queries :], verbs[: options.queries]


def parts_of_speech(options):
    """Of each sentence, queries first, as its place in PARTS_OF_SPEECH; kept in the cache."""
    path = Path(options.cache) / "wordnet-kinds.npy"
    if not path.exists():
        every = glosses(kinds=True)
        order = np.random.default_rng(0).permutation(len(every))
        np.save(path, np.array([PARTS_OF_SPEECH.index(every[i][1]) for i in order], np.uint8))
    return np.load(path)[: options.entries + options.queries]


def cifar(options):
    """Features of the CIFAR-10 test images that the paper's head classifies."""
    from topsign.paper.heads import load_cifar10_head

    features = unit(load_cifar10_head().features)
    return features[options.queries :], features[options.queries :], features[: options.queries]


def source(options):
    """TF-IDF of Python files of this environment, reduced to 300 features; kept in the cache."""
    path = Path(options.cache) / "source-tfidf.npy"
    if not path.exists():
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer

        paths = sorted(Path(sysconfig.get_paths()["purelib"]).rglob("*.py"))
        texts = [path.read_text(errors="ignore")[:4000] for path in paths if path.stat().st_size > 1000]
        texts = list(dict.fromkeys(texts))
        order = np.random.default_rng(0).permutation(len(texts))[: options.source_files]
        words = TfidfVectorizer(max_features=20_000, sublinear_tf=True).fit_transform([texts[i] for i in order])
        np.save(path, unit(TruncatedSVD(300, random_state=0, n_iter=3).fit_transform(words)))
    vectors = np.load(path).astype(np.float32)
    return vectors[options.queries :], vectors[options.queries :], vectors[: options.queries]


SETS = {make.__name__: make for make in (text, few, unseen, shift, cifar, source)}
