"""A linear head as codes of its weight vectors, with everything that a prediction needs; NumPy alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Bytes, Float32, Float64, Int64
from .._checks import as_signals, check_choice, check_count
from .._files import Record
from .._lazy import lazy
from .._random import RandomState
from ..errors import StorageError
from ..projections import Projection
from ..recipe import Recipe
from .files import check_arrays, plain_labels, raise_not_a_head, read_head, read_universal, write_head
from .links import LINKS, probabilities
from .queries import Universal, encode_weights, query_blocks
from .recipes import head_recipe, shared_nbytes
from .scores import EstimatedLogits, HammingScores, LogitScores, TrellisScores
from .shortlist import Shortlist, exact_weights
from .weights import check_class_labels, check_intercepts, check_weights

SCORINGS = ("asymmetric", "hamming")


class TopK(NamedTuple):
    """Highest logits of each input, falling, and positions of their classes; of equal ones the lower class first."""

    values: Float64
    indices: Int64


@dataclass(frozen=True, eq=False)
class Head:
    """A linear head: codes of its weight vectors, their scales and biases, and the recipe of the codes.

    scikit-learn's classifiers and PyTorch's layers are faces of it. Two classes may share one weight vector, whose
    logit is that of the second class.
    """

    recipe: Recipe
    codes: Bytes  # (n_vectors, code_bytes)
    scales: Float32 | None  # (n_vectors,); zero for zero vectors, None in trellis codes and where scores are Hamming
    biases: Float64  # (n_vectors,)
    classes: Array  # (n_classes,) labels
    scoring: str = (
        "asymmetric"  # "asymmetric": scores estimate logits; "hamming": signs that agree less those that differ
    )
    link: str | None = None  # how logits become probabilities
    shortlist: Shortlist | None = None
    universal: Universal | None = None  # of codes that are parities of quantisation cells

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        weights: Array,
        biases: Float64,
        classes: Array,
        *,
        scoring: str = "asymmetric",
        link: str | None = None,
        shortlist: Shortlist | None = None,
        universal: Universal | None = None,
    ) -> Self:
        """The head of weight vectors, one per class or one alone for two classes, read block by block."""
        alone = len(weights) < len(classes)
        both = universal is not None and alone  # these codes know distances: -w stands for the first class
        codes, scales = encode_weights(recipe, universal, np.vstack([-weights, weights]) if both else weights)
        if scoring == "hamming" and scales is not None and not scales.all():
            raise ValueError(
                f"the weight vector of class {classes.tolist()[-1 if alone else int(np.argmin(scales))]!r} is zero, so "
                'it has no signs to compare; drop that class, or take scoring="asymmetric" of '
                "AdaptiveLinearClassifier or SignLinearClassifier, which scores it by its intercept"
            )
        return cls(
            recipe,
            codes,
            scales if scoring == "asymmetric" else None,
            biases,
            classes,
            scoring,
            link if scoring == "asymmetric" else None,
            shortlist,
            universal,
        )

    @classmethod
    def from_weights(
        cls,
        weights: npt.ArrayLike,
        *,
        biases: npt.ArrayLike | None = None,
        classes: npt.ArrayLike | None = None,
        codes: str = "adaptive",
        n_bits: int | str = "auto",
        n_pool: int | None = None,
        projection: str | Projection = "hadamard",
        layout: str = "compact",
        link: str | None = "softmax",
        random_state: RandomState = None,
    ) -> Self:
        """Compresses weight vectors, (n_classes, n_features), or one alone for two classes.

        Parameters
        ----------
        weights : array or memory map
            Read block by block.
        biases, classes : arrays of shape (n_classes,), optional
            Zeros, and labels 0, 1, ... when not given.
        codes, n_bits, n_pool, projection, layout, random_state
            As in :class:`topsign.AdaptiveLinearClassifier`.
        link : "softmax", "sigmoid", "modified_huber" or None
            How :meth:`predict_proba` makes probabilities of logits.

        Examples
        --------
        >>> import numpy as np
        >>> weights = np.random.default_rng(0).standard_normal((1000, 512))
        >>> head = Head.from_weights(weights, n_bits=64, random_state=7)
        >>> head.topk(weights[:3], k=2).indices[:, 0], head.nbytes
        (array([0, 1, 2]), 52000)
        """
        labels = None if classes is None else check_class_labels(classes, np.empty(0), present=False)
        rows, labels = check_weights(weights, classes=labels)
        if link is not None:
            check_choice(link, "link", tuple(LINKS))
        recipe = head_recipe(
            codes,
            rows,
            n_bits=n_bits,
            n_pool=n_pool,
            projection=projection,
            layout=layout,
            random_state=random_state,
        )
        return cls.of(recipe, rows, check_intercepts(biases, len(rows)), labels, link=link)

    def with_shortlist(
        self,
        size: int,
        weights: npt.ArrayLike | None = None,
        *,
        storage: str = "original",
        file: tuple[str | os.PathLike[str], str] | None = None,
    ) -> Self:
        """With exact logits among the ``size`` best classes of each input; nothing is compressed again.

        Parameters
        ----------
        weights : array or memory map of shape (n_vectors, n_features)
        storage : "original", "float16" or "int8"
            How the weights are held and saved.
        file : (path, key)
            In place of weights: a tensor of a safetensors file, where they stay. A saved head names it.
        """
        if (weights is None) == (file is None):
            raise ValueError("a shortlist needs either weights or file=(path, key)")
        shape = len(self.biases), self.n_features
        if file is not None:
            shortlist = Shortlist.in_file(size, *file)
            if shortlist.weights.shape != shape:
                raise ValueError(
                    f"a shortlist of this head needs weights of shape {shape}, got {shortlist.weights.shape}"
                )
        else:
            shortlist = Shortlist.of(size, exact_weights(weights, shape[1], shape[0]), storage)
        return replace(self, shortlist=shortlist)

    @property
    def n_features(self) -> int:
        """Length of an input."""
        return self.recipe.n_features

    @property
    def one_vector(self) -> bool:
        """Whether two classes share one weight vector."""
        return len(self.biases) < len(self.classes)

    @property
    def nbytes(self) -> int:
        """Bytes that a prediction needs: codes, scales, biases and the weights of a shortlist, wherever they are."""
        return self.code_nbytes + self.shortlist_nbytes

    @property
    def shortlist_nbytes(self) -> int:
        """Bytes of the weights of a shortlist."""
        return 0 if self.shortlist is None else self.shortlist.nbytes

    @property
    def code_nbytes(self) -> int:
        """Bytes of codes, scales and biases, as far as the scoring uses them, and of axes that were learned."""
        used = (self.codes, self.scales, self._used_biases)
        return sum(array.nbytes for array in used if array is not None) + shared_nbytes(self.recipe)

    @property
    def compression_ratio(self) -> float:
        """Bytes of the weights (and biases, unless all are zero) in float32, over ``nbytes``."""
        return 4 * len(self.biases) * (self.n_features + bool(self.biases.any())) / self.nbytes

    def __repr__(self) -> str:
        held = (
            ""
            if self.shortlist is None
            else (f" + {self.shortlist_nbytes:,} of a shortlist of {self.shortlist.size} ({self.shortlist.storage})")
        )
        return (
            f"Head({len(self.classes)} classes, {self.n_features} features, n_bits={self.recipe.n_bits}, "
            f"n_pool={self.recipe.n_pool}, {self.scoring}; {self.code_nbytes:,} bytes of codes{held}: "
            f"{self.compression_ratio:.1f} times smaller than float32)"
        )

    # Predicting

    def logits(self, X: npt.ArrayLike) -> Float64:
        """Scores of the classes, (n_samples, n_classes); one column where two classes share one weight vector.

        By ``scoring="asymmetric"`` estimates of the logits. With a shortlist, those of its classes are exact, and
        estimates of the others are held just below the least of these. By ``scoring="hamming"`` the signs that agree
        less the signs that differ.
        """
        signals = as_signals(X, n_features=self.n_features, name="X")
        out = np.empty((len(signals), len(self.biases)))
        for rows, queries in self._queries(signals):
            out[rows] = self._values(signals[rows], queries)
        return out

    def topk(self, X: npt.ArrayLike, k: int) -> TopK:
        """The k highest scores of each input, and positions in ``classes``.

        Scores of all classes are never held at once, unless k is above the size of a shortlist.
        """
        signals = as_signals(X, n_features=self.n_features, name="X")
        k = check_count(k, "k", maximum=len(self.classes))
        found = TopK(np.empty((len(signals), k)), np.empty((len(signals), k), np.int64))
        for rows, queries in self._queries(signals):
            found.indices[rows], found.values[rows] = self._best(signals[rows], queries, k)
        return found

    def predict(self, X: npt.ArrayLike) -> Array:
        """The class of the highest score, the first of equal ones."""
        if self.one_vector:
            return self.classes[(self.logits(X)[:, 0] > 0).astype(np.int64)]
        return self.classes[self.topk(X, 1).indices[:, 0]]

    def predict_proba(self, X: npt.ArrayLike) -> Float64:
        """Probabilities of the classes, (n_samples, n_classes), made of the logits by the link."""
        if self.link is None:
            raise ValueError(
                "this head has no link from logits to probabilities; give it one: "
                f"dataclasses.replace(head, link=...) with one of {', '.join(map(repr, LINKS))}"
            )
        return probabilities(self.link, self.logits(X))

    # Classes that come and go

    def with_classes(self, weights: Array, biases: Float64, classes: Array) -> Self:
        """With new classes after its own, whose codes stay."""
        new = type(self).of(self.recipe, weights, biases, classes, scoring=self.scoring, universal=self.universal)
        return replace(
            self,
            codes=np.concatenate([self.codes, new.codes]),
            scales=None if self.scales is None or new.scales is None else np.concatenate([self.scales, new.scales]),
            biases=np.concatenate([self.biases, biases]),
            classes=np.concatenate([self.classes, classes]),
            shortlist=None if self.shortlist is None else self.shortlist.extended(weights),
        )

    def kept_classes(self, rows: Array) -> Self:
        """With some of its classes alone."""
        return replace(
            self,
            codes=self.codes[rows],
            scales=None if self.scales is None else self.scales[rows],
            biases=self.biases[rows],
            classes=self.classes[rows],
            shortlist=None if self.shortlist is None else self.shortlist.kept(rows),
        )

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes an npz file of plain arrays with the recipe; a file of the same name is replaced whole or not at all.

        The weights of a shortlist are written as they are held, or named where they lie in a file of their own.
        """
        shortlist, weights = (None, {}) if self.shortlist is None else self.shortlist.to_file()
        header: Record = {
            "recipe": self.recipe.to_json(),
            "scoring": self.scoring,
            "link": self.link,
            "shortlist": shortlist,
            "universal": None if self.universal is None else vars(self.universal),
        }
        arrays: dict[str, Any] = {"codes": self.codes, "biases": self.biases, "classes": plain_labels(self.classes)}
        if self.scales is not None:
            arrays["scales"] = self.scales
        write_head(path, header, arrays | weights)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The head that :meth:`save` wrote; StorageError for a file that is damaged, or anything else."""
        header, arrays = read_head(path)
        try:
            recipe = Recipe.from_json(header["recipe"], path)
            scoring = check_choice(header["scoring"], "scoring", SCORINGS)
            link = None if header["link"] is None else check_choice(header["link"], "link", tuple(LINKS))
            universal = None if header["universal"] is None else read_universal(header["universal"])
            check_arrays(recipe, scoring, universal, arrays)
            shape, record = (len(arrays["biases"]), recipe.n_features), header["shortlist"]
            shortlist = None if record is None else Shortlist.from_file(record, arrays, shape)
        except StorageError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, FileNotFoundError) as error:
            raise_not_a_head(path, f"it has no {error.args[0]!r}" if isinstance(error, KeyError) else str(error))
        return cls(
            recipe,
            np.ascontiguousarray(arrays["codes"]),
            arrays.get("scales") if scoring == "asymmetric" else None,
            arrays["biases"],
            arrays["classes"],
            scoring,
            link,
            shortlist,
            universal,
        )

    # Scores

    @lazy
    def _used_biases(self) -> Float64 | None:
        return self.biases if self.scoring == "asymmetric" and self.biases.any() else None

    @property
    def _scores(self) -> EstimatedLogits | HammingScores:
        if self.recipe.family == "trellis":
            return TrellisScores(self.recipe.cells[0].tables, self.codes, self._used_biases)
        if self.scales is None:
            return HammingScores(self.recipe.layout, self.codes)
        return LogitScores(self.recipe.layout, self.codes, self.scales, self._used_biases)

    def _queries(self, signals: Array) -> Iterator[tuple[slice, Any]]:
        return query_blocks(self.recipe, self.universal, self.scoring, signals, "X")

    def _values(self, signals: Array, queries: Any) -> Float64:
        values = self._scores.values(queries)
        if self.universal is not None and self.one_vector:
            return np.diff(values, axis=1)
        if self.shortlist is None:
            return values
        classes, exact = self._shortlisted(signals, queries)
        np.minimum(values, np.nextafter(exact.min(axis=1, keepdims=True), -np.inf), out=values)
        np.put_along_axis(values, classes, exact, axis=1)
        return values

    def _best(self, signals: Array, queries: Any, k: int) -> tuple[Int64, Float64]:
        if self.one_vector or (self.shortlist is not None and k > self.shortlist.size):
            values = self._values(signals, queries)
            values = np.hstack([-values, values]) if self.one_vector else values
            classes = np.broadcast_to(np.arange(values.shape[1]), values.shape)
        elif self.shortlist is None:
            return self._scores.best(queries, k)
        else:
            classes, values = self._shortlisted(signals, queries)
        order = np.lexsort((classes, -values), axis=1)[:, :k]
        return np.take_along_axis(classes, order, axis=1), np.take_along_axis(values, order, axis=1)

    def _shortlisted(self, signals: Array, queries: Any) -> tuple[Int64, Float64]:
        """The classes of highest score, and their exact logits."""
        assert self.shortlist is not None
        classes, _ = self._scores.best(queries, min(self.shortlist.size, len(self.codes)))
        return classes, self.shortlist.products(signals, classes) + self.biases[classes]
