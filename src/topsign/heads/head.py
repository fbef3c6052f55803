"""A linear head as codes of its weight vectors, with everything that a prediction needs; NumPy alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Bytes, Float32, Float64, Int64
from .._checks import as_signals, check_choice, check_count, check_flag, check_positive
from .._files import Record
from .._lazy import lazy
from ..codes import check_content
from ..errors import StorageError
from ..recipe import Recipe
from .files import raise_not_a_head, read_head, write_head
from .links import LINKS, probabilities
from .queries import Universal, encode_weights, query_blocks
from .scores import HammingScores, LogitScores
from .shortlist import Shortlist

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
    scales: Float32 | None  # (n_vectors,); zero for zero vectors, None where scores are Hamming
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
        shortlist: int | None = None,
        universal: Universal | None = None,
    ) -> Self:
        """The head of weight vectors, one per class or one alone for two classes, read block by block."""
        alone = len(weights) < len(classes)
        both = universal is not None and alone  # these codes know distances: -w stands for the first class
        codes, scales = encode_weights(recipe, universal, np.vstack([-weights, weights]) if both else weights)
        if scoring == "hamming" and not scales.all():
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
            None if shortlist is None else Shortlist(shortlist, weights),
            universal,
        )

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
        """Bytes of codes, scales and biases, as far as the scoring uses them."""
        used: list[Array] = [self.codes] if self.scales is None else [self.codes, self.scales]
        return sum(array.nbytes for array in used) + (0 if self._used_biases is None else self._used_biases.nbytes)

    @property
    def compression_ratio(self) -> float:
        """Bytes of the weights (and biases, unless all are zero) in float32, over ``nbytes``."""
        return 4 * len(self.biases) * (self.n_features + bool(self.biases.any())) / self.nbytes

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
        size = None if self.shortlist is None else self.shortlist.size
        new = type(self).of(
            self.recipe,
            weights,
            biases,
            classes,
            scoring=self.scoring,
            shortlist=size,
            universal=self.universal,
        )
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

        The original weights are written where a shortlist needs them.
        """
        header: Record = {
            "recipe": self.recipe.to_json(),
            "scoring": self.scoring,
            "link": self.link,
            "shortlist": None if self.shortlist is None else self.shortlist.size,
            "universal": None if self.universal is None else vars(self.universal),
        }
        arrays: dict[str, Any] = {"codes": self.codes, "biases": self.biases, "classes": _plain_labels(self.classes)}
        if self.scales is not None:
            arrays["scales"] = self.scales
        if self.shortlist is not None:
            arrays["weights"] = self.shortlist.weights
        write_head(path, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The head that :meth:`save` wrote; StorageError for a file that is damaged, or anything else."""
        header, arrays = read_head(path)
        try:
            recipe = Recipe.from_json(header["recipe"], path)
            scoring = check_choice(header["scoring"], "scoring", SCORINGS)
            link = None if header["link"] is None else check_choice(header["link"], "link", tuple(LINKS))
            universal = None if header["universal"] is None else _read_universal(header["universal"])
            size = None if header["shortlist"] is None else check_count(header["shortlist"], "shortlist")
            _check_arrays(recipe, scoring, universal, arrays, shortlist=size is not None)
        except StorageError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise_not_a_head(path, f"it has no {error.args[0]!r}" if isinstance(error, KeyError) else str(error))
        return cls(
            recipe,
            np.ascontiguousarray(arrays["codes"]),
            arrays["scales"] if scoring == "asymmetric" else None,
            arrays["biases"],
            arrays["classes"],
            scoring,
            link,
            None if size is None else Shortlist(size, arrays["weights"]),
            universal,
        )

    # Scores

    @lazy
    def _used_biases(self) -> Float64 | None:
        return self.biases if self.scoring == "asymmetric" and self.biases.any() else None

    @property
    def _scores(self) -> LogitScores | HammingScores:
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


def _plain_labels(classes: Array) -> Array:
    """Labels that a file can hold without code: numbers, booleans or strings."""
    if classes.dtype == object and all(isinstance(label, str) for label in classes):
        return classes.astype(str)
    if classes.dtype == object:
        raise TypeError(f"classes must be numbers or strings to be saved, got {classes[:3]!r}")
    return classes


def _read_universal(record: Record) -> Universal:
    return Universal(check_positive(record["step"], "step"), check_flag(record["dither"], "dither"))


def _check_arrays(
    recipe: Recipe, scoring: str, universal: Universal | None, arrays: dict[str, Array], *, shortlist: bool
) -> None:
    """Arrays that fit together and hold what they should, because kernels check nothing."""
    codes, biases, classes = arrays["codes"], arrays["biases"], arrays["classes"]
    check_content(recipe.layout, codes, name="codes")
    n_classes = len(classes) if classes.ndim == 1 else 0
    alone = n_classes == 2 and biases.shape == (1,)
    if not (n_classes and (alone or biases.shape == (n_classes,))):
        raise ValueError(f"biases of shape {biases.shape} do not fit classes of shape {classes.shape}")
    if len(codes) != (n_classes if universal is not None else len(biases)):
        raise ValueError(f"{len(codes)} codes do not fit {n_classes} classes")
    wanted: dict[str, tuple[tuple[int, ...], str]] = {"biases": (biases.shape, "f")}
    if scoring == "asymmetric":
        wanted["scales"] = ((len(codes),), "f")
    if shortlist:
        wanted["weights"] = ((len(codes), recipe.n_features), "fiu")
    for name, (shape, kinds) in wanted.items():
        array = arrays[name]
        if array.shape != shape or array.dtype.kind not in kinds:
            raise ValueError(f"{name} must be numbers of shape {shape}, got {array.dtype} of shape {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds NaN or infinity")
    if scoring == "asymmetric" and arrays["scales"].dtype != np.float32:
        raise ValueError(f"scales must be float32, got {arrays['scales'].dtype}")
