"""What compressed classifiers share, as scikit-learn wants it: learning, predicting, changing classes, files."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .._arrays import Array, Float64
from .._checks import check_choice, check_count, check_real, interchanged
from .._random import RandomState
from .._warning import warn
from ..errors import StorageError
from ..projections import Projection
from ..recipe import Recipe
from .head import SCORINGS, Head
from .links import LINKS
from .queries import Universal
from .report import CompressionReport, compare
from .shortlist import STORAGES, Shortlist
from .weights import check_class_labels, check_intercepts, check_weights, linear_weights, link_of


def _has_probabilities(self: CompressedClassifier) -> bool:
    """Whether there are probabilities; AttributeError, which scikit-learn shows, says why there are none."""
    if self.scoring != "asymmetric":
        raise AttributeError('Hamming scores are no logits, so they give no probabilities; take scoring="asymmetric"')
    if hasattr(self, "head_") and self.head_.link is None:
        raise AttributeError(
            "the link from logits to probabilities is not known: the estimator has none, or the head was made from "
            'weights; give from_weights(..., link="softmax") or "sigmoid"'
        )
    return hasattr(self, "head_") or hasattr(self.estimator, "predict_proba")


class CompressedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A linear classifier known by codes of its weight vectors; subclasses say which codes.

    With ``scoring="asymmetric"`` scores estimate logits without bias, and a class whose weight vector is zero scores
    its intercept. With ``scoring="hamming"`` intercepts play no part (a warning says so), and a zero vector raises.
    """

    estimator: Any
    n_bits: int | str
    projection: str | Projection
    random_state: RandomState
    scoring: str = "hamming"
    shortlist: int | None = None
    shortlist_storage: str = "original"
    keep_estimator: bool = False
    head_: Head
    n_bits_: int
    classes_: Array
    n_features_in_: int
    projection_: Projection
    estimator_: Any

    @abstractmethod
    def _make_recipe(self, n_features: int) -> Recipe:
        """The recipe of the codes."""

    @classmethod
    @abstractmethod
    def _parameters_of(cls, head: Head) -> dict[str, Any]:
        """Parameters of the constructor that give such a head; ValueError where none do."""

    def _universal(self) -> Universal | None:
        return None

    # Learning

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, **fit_params: Any) -> Self:
        """Fits a clone of the estimator, kept as ``estimator_``, and encodes its weight vectors.

        ``fit_params``, such as sample_weight, go to the estimator. One that is fitted already is taken as it is when
        wrapped in ``sklearn.frozen.FrozenEstimator``; :meth:`from_fitted` does the same without data.
        """
        self._check_parameters()
        if self.estimator is None:
            raise ValueError(
                "this classifier was made from weights or from a file and has no estimator to fit; "
                "make one with an estimator, say AdaptiveLinearClassifier(LogisticRegression())"
            )
        X, y = interchanged(X, "X"), interchanged(y, "y")
        _, labels = validate_data(self, X, y, dtype="numeric", accept_sparse="csr")
        check_classification_targets(labels)
        recipe = self._make_recipe(self.n_features_in_)  # before the training: a wrong n_bits is known at once
        self.estimator_ = clone(self.estimator).fit(X, y, **fit_params)
        return self._compress_estimator(recipe, X)

    @classmethod
    def from_fitted(cls, estimator: Any, **parameters: Any) -> Self:
        """Compresses a fitted linear classifier; parameters are those of the constructor."""
        classifier = cls(FrozenEstimator(estimator), **parameters)
        classifier._check_parameters()
        if hasattr(estimator, "feature_names_in_"):
            classifier.feature_names_in_ = estimator.feature_names_in_
        classifier.estimator_ = estimator
        return classifier._compress_estimator(None, None)

    @classmethod
    def from_weights(
        cls,
        coef: npt.ArrayLike,
        *,
        intercept: npt.ArrayLike | None = None,
        classes: npt.ArrayLike | None = None,
        link: str | None = None,
        **parameters: Any,
    ) -> Self:
        """Compresses weight vectors, (n_classes, n_features), or one alone for two classes.

        Parameters
        ----------
        coef : array or memory map
            Read block by block. With a shortlist it is kept as it is, so that a memory map stays on disk.
        intercept : array of shape (n_classes,), optional
        classes : array of shape (n_classes,), optional
            Labels; 0, 1, ... when not given.
        link : "softmax", "sigmoid", "modified_huber" or None
            How ``predict_proba`` makes probabilities of logits; without one there are none.
        **parameters
            Those of the constructor.
        """
        classifier = cls(None, **parameters)
        classifier._check_parameters()
        labels = None if classes is None else check_class_labels(classes, np.empty(0), present=False)
        weights, labels = check_weights(coef, classes=labels)
        biases = check_intercepts(intercept, len(weights))
        if link is not None:
            check_choice(link, "link", tuple(LINKS))
        return classifier._compress(classifier._make_recipe(weights.shape[1]), weights, biases, labels, link)

    @classmethod
    def from_head(cls, head: Head) -> Self:
        """A classifier that is another face of a head, say of a PyTorch layer's; nothing is compressed again."""
        return cls(None, **cls._parameters_of(head))._set_head(head)

    def _check_parameters(self) -> None:
        check_choice(self.scoring, "scoring", SCORINGS)
        if self.shortlist is not None:
            check_count(self.shortlist, "shortlist")
        check_choice(self.shortlist_storage, "shortlist_storage", STORAGES)

    def _compress_estimator(self, recipe: Recipe | None, X: Any) -> Self:
        coef, intercept, classes = linear_weights(self.estimator_, None if recipe is None else recipe.n_features)
        recipe = self._make_recipe(coef.shape[1]) if recipe is None else recipe
        return self._compress(recipe, coef, intercept, classes, link_of(self.estimator_, coef), X)

    def _compress(
        self, recipe: Recipe, coef: Array, intercept: Float64, classes: Array, link: str | None, X: Any = None
    ) -> Self:
        if self.scoring == "hamming":
            _warn_unused(intercept)
        size = self.shortlist
        shortlist = None if size is None else Shortlist.of(size, coef, self.shortlist_storage)

        def made(recipe: Recipe) -> Head:
            options: Any = {"scoring": self.scoring, "link": link, "shortlist": shortlist}
            return Head.of(recipe, coef, intercept, classes, universal=self._universal(), **options)

        recipe = self._sized(recipe, coef, intercept, X, made)
        self.n_bits_ = recipe.n_bits
        return self._set_head(made(recipe))

    def _sized(self, recipe: Recipe, coef: Array, intercept: Float64, X: Any, made: Callable[[Recipe], Head]) -> Recipe:
        """The recipe with its number of bits chosen, where that is left to us."""
        return recipe

    def _set_head(self, head: Head) -> Self:
        self.head_ = head
        self.classes_, self.projection_, self.n_features_in_ = head.classes, head.recipe.projection, head.n_features
        return self

    # Predicting

    def decision_function(self, X: npt.ArrayLike) -> Float64:
        """Scores of the classes: (n_samples, n_classes), or (n_samples,) where two classes share one weight vector.

        By ``scoring="asymmetric"`` estimates of the logits ``X @ coef.T + intercept``. With a shortlist, those of
        its classes are exact, and estimates of the others are held just below the least of these. By
        ``scoring="hamming"`` the signs that agree less the signs that differ.
        """
        check_is_fitted(self)
        logits = self.head_.logits(self._check(X))
        return logits[:, 0] if self.head_.one_vector else logits

    def predict(self, X: npt.ArrayLike) -> Array:
        """The class of the highest score, the first of equal ones. Scores of all classes are never held at once."""
        check_is_fitted(self)
        return self.head_.predict(self._check(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: npt.ArrayLike) -> Float64:
        """Probabilities of the classes, made of estimated logits as the estimator makes them of its own."""
        check_is_fitted(self)
        return self.head_.predict_proba(self._check(X))

    def _check(self, X: npt.ArrayLike) -> Array:
        """Shape, type and feature names; finiteness is checked block by block where rows are projected."""
        X = interchanged(X, "X")
        checked: Array = validate_data(
            self, X, reset=False, dtype="numeric", accept_sparse="csr", ensure_all_finite=False
        )
        return checked

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.estimator is None or get_tags(self.estimator).input_tags.sparse
        # Norms and intercepts, which Hamming scores ignore, matter on scikit-learn's data.
        tags.classifier_tags.poor_score = self.scoring == "hamming"
        return tags

    # What it costs

    @property
    def storage_bits_(self) -> int:
        """Bits that a prediction needs: codes, scales, intercepts, and the weights of a shortlist.

        Not the projection, which its seed makes. ``head_`` says how much is code and how much is shortlist.
        """
        check_is_fitted(self)
        return 8 * self.head_.nbytes

    @property
    def compression_ratio_(self) -> float:
        """Bits of the weights (and intercepts, unless all are zero) in float32, over ``storage_bits_``."""
        check_is_fitted(self)
        return self.head_.compression_ratio

    def report(
        self, X: npt.ArrayLike, y: npt.ArrayLike, *, against: Any = None, confidence: float = 0.95
    ) -> CompressionReport:
        """Accuracy, agreement with the uncompressed classifier, and an interval for the accuracy lost.

        Parameters
        ----------
        X, y
            Samples that were not trained on, and their labels.
        against : fitted classifier, or array of its predictions, optional
            The uncompressed one; ``estimator_`` when not given.
        confidence : float
            That the interval covers at least, whatever the number of samples.
        """
        level = check_real(confidence, "confidence", minimum=0, maximum=1)
        predicted = self.predict(X)
        if against is None:
            against = getattr(self, "estimator_", None)
        if against is None:
            raise ValueError(
                "the uncompressed classifier is not at hand (this one was made from weights or a file, or its classes "
                "were changed); pass against=, a fitted classifier or its predictions"
            )
        uncompressed = np.asarray(against.predict(X) if hasattr(against, "predict") else against)
        return compare(
            np.asarray(y),
            predicted,
            uncompressed,
            confidence=level,
            head=self.head_,
        )

    # Classes that come and go

    def add_classes(
        self, coef: npt.ArrayLike, *, classes: npt.ArrayLike, intercept: npt.ArrayLike | None = None
    ) -> Self:
        """New classes after those there are, whose codes stay: a weight vector and a label each.

        ``estimator_``, which does not know them, is let go of. Where a shortlist keeps a memory map of the original
        weights, they are in memory from here on.
        """
        check_is_fitted(self)
        _check_enough_classes(len(self.classes_), one_vector=self.head_.one_vector)
        labels = check_class_labels(classes, self.classes_, present=False)
        weights, _ = check_weights(coef, classes=labels, n_features=self.n_features_in_, one_each=True)
        intercepts = check_intercepts(intercept, len(weights))
        if self.scoring == "hamming":
            _warn_unused(intercepts)
        return self._set_head(self.head_.with_classes(weights, intercepts, labels))._without_estimator()

    def remove_classes(self, classes: npt.ArrayLike) -> Self:
        """Forgets classes; the codes of the others stay. At least two must be left. ``estimator_`` is let go of."""
        check_is_fitted(self)
        labels = check_class_labels(classes, self.classes_, present=True)
        _check_enough_classes(len(self.classes_) - len(labels), one_vector=self.head_.one_vector)
        rows = np.flatnonzero(~np.isin(self.classes_, labels))
        return self._set_head(self.head_.kept_classes(rows))._without_estimator()

    def _without_estimator(self) -> Self:
        if hasattr(self, "estimator_"):
            del self.estimator_
        return self

    # Files

    def __getstate__(self) -> Any:
        """What pickle and joblib keep: without the fitted estimator, unless keep_estimator asks for it."""
        state = dict(super().__getstate__())
        if not self.keep_estimator:
            state.pop("estimator_", None)
            if isinstance(self.estimator, FrozenEstimator):
                state["estimator"] = None
        return state

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes ``head_`` into an npz file of plain arrays, see :meth:`topsign.Head.save`; not the estimator."""
        check_is_fitted(self)
        self.head_.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The classifier that :meth:`save` wrote; it predicts as before, and has no estimator.

        Raises StorageError for a file that is damaged, or holds another kind of head.
        """
        head = Head.load(path)
        try:
            return cls.from_head(head)
        except ValueError as error:
            raise StorageError(path, "head", str(error)) from None


def _warn_unused(intercept: Float64) -> None:
    if intercept.any():
        warn(
            f"intercepts, here up to {np.abs(intercept).max():.3g}, play no part in Hamming scores, which compare "
            'directions alone; fit the estimator with fit_intercept=False, or take scoring="asymmetric"',
        )


def _check_enough_classes(n_classes: int, *, one_vector: bool) -> None:
    """Classes can come and go where each has its own weight vector and two are left."""
    if one_vector:
        raise ValueError(
            "two classes share one weight vector here, so none can be added or removed; "
            "start from one weight vector per class (from_weights with two rows, say)"
        )
    if n_classes < 2:
        raise ValueError(f"at least two classes must be left, not {n_classes}")
