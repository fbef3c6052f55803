"""Linear heads: codes of their weight vectors and everything that a prediction needs; imports only NumPy."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Bytes, Float64, Int64
from .._checks import as_signals, check_choice, check_count
from .._files import Record
from .._lazy import lazy
from .._random import RandomState
from ..errors import StorageError
from ..families import SCORINGS, Logits, Recipe
from ..families.base import check_real_valued
from ..kernels import CodeBlocks
from ..projections import Projection
from .advice import measured_agreement
from .files import check_arrays, plain_labels, raise_not_a_head, read_head, write_head
from .links import LINKS, probabilities
from .recipes import RecipeOptions
from .scores import Scores, highest
from .shortlist import Shortlist, exact_weights
from .weights import check_class_labels, check_intercepts, check_weights

Values = TypeVar("Values")
Indices = TypeVar("Indices")


class TopK(NamedTuple, Generic[Values, Indices]):
    """Highest logits of each input, descending, and positions of their classes; ties by ascending class."""

    values: Values  # (n_inputs, k) array of a head, or tensor of a layer
    indices: Indices  # (n_inputs, k)


@dataclass(frozen=True, eq=False)
class Head:
    """A linear head: codes of its weight vectors, which end with their scales, biases, and the recipe of the codes.

    The scikit-learn classifier and the PyTorch layer are wrappers of a head. Two classes may share one weight vector,
    whose logit is that of the second class.
    """

    recipe: Recipe
    codes: Bytes  # (n_vectors, n_bytes): each row ends with a scale of two bytes
    biases: Float64  # (n_vectors,)
    classes: Array  # (n_classes,) labels
    scoring: str = "asymmetric"  # or "hamming": scores are equal signs minus different signs, not logits
    link: str | None = None  # how logits become probabilities
    shortlist: Shortlist | None = None

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
    ) -> Self:
        """Return the head of weight vectors, one per class or only one for two classes, read block by block."""
        check_real_valued(recipe, scoring, None)
        codes = recipe.weight_coding().encode(weights)
        if scoring == "hamming":
            _check_directions(weights, classes)
            link = None
        return cls(recipe, codes, biases, classes, scoring, link, shortlist)

    @classmethod
    def from_weights(
        cls,
        weights: npt.ArrayLike,
        *,
        biases: npt.ArrayLike | None = None,
        classes: npt.ArrayLike | None = None,
        family: str = "adaptive",
        n_bits: int | str | None = "auto",
        n_bytes: int | None = None,
        bits_per_weight: float | None = None,
        features: npt.ArrayLike | None = None,
        n_pool: int | None = None,
        basis: str | Projection | None = None,
        link: str | None = "softmax",
        random_state: RandomState = None,
    ) -> Self:
        """Compress weight vectors, (n_classes, n_features), or only one for two classes.

        Parameters
        ----------
        weights : array or memory map
            Read block by block.
        biases, classes : arrays of shape (n_classes,), optional
            Zeros, and labels 0, 1, ... by default.
        bits_per_weight : float, optional
            Size of codes and scales over the number of weights, in place of n_bits or n_bytes.
        features : array of shape (n_samples, n_features), optional
            Inputs of the head. ``n_bits="auto"`` then takes the smallest size that agrees with the uncompressed head on
            99% of them, instead of predicting the agreement from the weights.
        family, n_bits, n_bytes, n_pool, basis, random_state
            As in :class:`topsign.CompressedLinearClassifier`.
        link : "softmax", "sigmoid", "modified_huber" or None
            How :meth:`predict_proba` makes probabilities of logits.

        Examples
        --------
        >>> import numpy as np
        >>> weights = np.random.default_rng(0).standard_normal((1000, 512))
        >>> head = Head.from_weights(weights, family="grouped", n_bytes=30, random_state=7)
        >>> head.topk(weights[:3], k=2).indices[:, 0], head.nbytes
        (array([0, 1, 2]), 32000)
        """
        labels = None if classes is None else check_class_labels(classes)
        rows, labels = check_weights(weights, classes=labels)
        if link is not None:
            check_choice(link, "link", tuple(LINKS))
        sizes: dict[str, Any] = {"n_bits": n_bits, "n_bytes": n_bytes, "bits_per_weight": bits_per_weight}
        options = RecipeOptions(family, **sizes, n_pool=n_pool, basis=basis, random_state=random_state)
        intercepts, measured = check_intercepts(biases, len(rows)), None
        made = partial(cls.of, weights=rows, biases=intercepts, classes=labels, link=link)
        if features is not None:
            if not options.automatic:
                raise ValueError(f'features choose the size of n_bits="auto", got {options.size}; leave one of them')
            inputs = as_signals(features, n_features=rows.shape[1], name="features")
            measured = measured_agreement(inputs, rows, intercepts, made)
        return made(options.recipe(rows, measured=measured)[0])

    def with_shortlist(
        self,
        size: int,
        weights: npt.ArrayLike,
        *,
        storage: str = "original",
    ) -> Self:
        """Return a head with exact logits among the ``size`` best classes of each input; the codes stay.

        Parameters
        ----------
        weights : array or memory map of shape (n_vectors, n_features)
        storage : "original", "float16" or "int8"
            How the weights are held and saved.
        """
        exact = exact_weights(weights, self.n_features, len(self.biases))
        return replace(self, shortlist=Shortlist.of(size, exact, storage))

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
        """Bytes that a prediction needs: codes, biases, learned parameters, and the weights of a shortlist."""
        return self.code_nbytes + self.shortlist_nbytes

    @property
    def shortlist_nbytes(self) -> int:
        """Bytes of the weights of a shortlist."""
        return 0 if self.shortlist is None else self.shortlist.nbytes

    @property
    def code_nbytes(self) -> int:
        """Bytes of codes, biases (unless all are zero) and the recipe's learned parameters."""
        biases = self._scores.biases
        return self.codes.nbytes + (0 if biases is None else biases.nbytes) + self.recipe.shared_nbytes

    @property
    def compression_ratio(self) -> float:
        """Bytes of the weights (and biases, unless all are zero) in float32, over ``nbytes``."""
        return 4 * len(self.biases) * (self.n_features + bool(self.biases.any())) / self.nbytes

    def __repr__(self) -> str:
        held, scoring = "", "" if self.scoring == "asymmetric" else f", scoring={self.scoring!r}"
        if self.shortlist is not None:
            held = f" + {self.shortlist_nbytes:,} of a shortlist of {self.shortlist.size} ({self.shortlist.storage})"
        return (
            f"Head({len(self.classes)} classes, {self.n_features} features, {self.recipe.family} codes of "
            f"{self.codes.shape[1]} bytes{scoring}; {self.code_nbytes:,} bytes{held}: "
            f"{self.compression_ratio:.1f} times smaller than float32)"
        )

    # Predicting

    def logits(self, X: npt.ArrayLike) -> Float64:
        """Return scores of the classes, (n_samples, n_classes); one column if two classes share one weight vector.

        With ``scoring="asymmetric"`` they estimate the logits. A shortlist makes the logits of its classes exact, and
        the estimates of all others are lowered to just below them. With ``scoring="hamming"`` they are the number of
        equal signs minus the number of different signs.
        """
        signals = as_signals(X, n_features=self.n_features, name="X")
        out = np.empty((len(signals), len(self.biases)))
        for rows, inputs in self._scores.prepare(signals, "X"):
            self._values(signals[rows], inputs, out[rows])
        return out

    def topk(self, X: npt.ArrayLike, k: int) -> TopK[Float64, Int64]:
        """Return the k highest scores of each input, and positions in ``classes``.

        The scores of all classes are held at once only if k is larger than a shortlist.
        """
        signals = as_signals(X, n_features=self.n_features, name="X")
        k = check_count(k, "k", maximum=len(self.classes))
        found = TopK(np.empty((len(signals), k)), np.empty((len(signals), k), np.int64))
        for rows, inputs in self._scores.prepare(signals, "X"):
            found.indices[rows], found.values[rows] = self._best(signals[rows], inputs, k)
        return found

    def predict(self, X: npt.ArrayLike) -> Array:
        """Return the class with the highest score, the first one in case of a tie."""
        if self.one_vector:
            return self.classes[(self.logits(X)[:, 0] > 0).astype(np.int64)]
        return self.classes[self.topk(X, 1).indices[:, 0]]

    def predict_proba(self, X: npt.ArrayLike) -> Float64:
        """Return probabilities of the classes, (n_samples, n_classes), from the logits by the link."""
        if self.link is None:
            raise ValueError(
                "this head has no link from logits to probabilities; give it one: "
                f"dataclasses.replace(head, link=...) with one of {', '.join(map(repr, LINKS))}"
            )
        return probabilities(self.link, self.logits(X))

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an npz file of plain arrays and the recipe; an existing file is replaced atomically.

        The weights of a shortlist are written as they are held.
        """
        shortlist, weights = (None, {}) if self.shortlist is None else self.shortlist.to_file()
        header: Record = {
            "recipe": self.recipe.to_json(),
            "scoring": self.scoring,
            "link": self.link,
            "shortlist": shortlist,
        }
        arrays: dict[str, Any] = {"codes": self.codes, "biases": self.biases, "classes": plain_labels(self.classes)}
        write_head(path, header, arrays | weights)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the head that :meth:`save` wrote; raise StorageError if the file is damaged or something else."""
        header, arrays = read_head(path)
        try:
            recipe = Recipe.from_json(header["recipe"], path)
            scoring = check_choice(header["scoring"], "scoring", SCORINGS)
            link = None if header["link"] is None else check_choice(header["link"], "link", tuple(LINKS))
            check_arrays(recipe, scoring, arrays)
            shape, record = (len(arrays["biases"]), recipe.n_features), header["shortlist"]
            shortlist = None if record is None else Shortlist.from_file(record, arrays, shape)
        except StorageError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise_not_a_head(path, f"it has no {error.args[0]!r}" if isinstance(error, KeyError) else str(error))
        codes = np.ascontiguousarray(arrays["codes"])
        return cls(recipe, codes, arrays["biases"], arrays["classes"], scoring, link, shortlist)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields, without the blocks of codes that predictions use."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    # Scores

    @lazy
    def _scores(self) -> Scores:
        biases = self.biases if self.scoring == "asymmetric" and self.biases.any() else None
        return Scores(self.recipe, CodeBlocks.of(self.codes), biases, self.scoring)

    def _values(self, signals: Array, inputs: Logits, out: Float64) -> None:
        """Write the scores of all classes to ``out``."""
        self._scores.values(inputs, out)
        if self.shortlist is not None:
            classes, exact = self._shortlisted(signals, inputs)
            np.minimum(out, np.nextafter(exact.min(axis=1, keepdims=True), -np.inf), out=out)
            np.put_along_axis(out, classes, exact, axis=1)

    def _best(self, signals: Array, inputs: Logits, k: int) -> tuple[Int64, Array]:
        if self.one_vector or (self.shortlist is not None and k > self.shortlist.size):
            values = np.empty((len(inputs), len(self.biases)))
            self._values(signals, inputs, values)
            return highest(np.hstack([-values, values]) if self.one_vector else values, k)
        if self.shortlist is None:
            return self._scores.best(inputs, k)
        classes, exact = self._shortlisted(signals, inputs)
        order, values = highest(exact, k)
        return np.take_along_axis(classes, order, axis=1), values

    def _shortlisted(self, signals: Array, inputs: Logits) -> tuple[Int64, Float64]:
        """Return the classes with the highest scores, ascending, and their exact logits."""
        assert self.shortlist is not None
        classes = np.sort(self._scores.best(inputs, min(self.shortlist.size, len(self.codes)))[0], axis=1)
        return classes, self.shortlist.products(signals, classes) + self.biases[classes]


def _check_directions(weights: Array, classes: Array) -> None:
    """Raise ValueError for a zero weight vector, which has no signs to compare."""
    zero = [number for number in range(len(weights)) if not np.any(weights[number])]
    if zero:
        label = classes.tolist()[-1 if len(weights) < len(classes) else zero[0]]
        raise ValueError(
            f"the weight vector of class {label!r} is zero, so it has no signs to compare; drop that class, or take "
            'scoring="asymmetric", which scores it by its intercept'
        )
