"""What compressed classifiers share: learning, predicting, classes that come and go, files."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .._arrays import Array, Bytes, Float32, Float64, Int64
from .._checks import (
    check_choice,
    check_class_labels,
    check_count,
    check_enough_classes,
    check_intercepts,
    check_real,
    check_samples,
    check_weights,
    interchanged,
    linear_weights,
    raise_no_estimator,
    raise_no_uncompressed,
    raise_zero_weights,
    warn_unused_intercepts,
)
from ..kernels import Layout
from ..projections import Projection
from ..theory.inference import SCORINGS
from .files import check_head, read_head, write_head
from .heads import AsymmetricHead, HammingHead
from .links import link_of, probabilities
from .report import CompressionReport, compare


def _has_probabilities(self: CompressedClassifier) -> bool:
    if hasattr(self, "classes_"):
        return self._link is not None
    return self.scoring == "asymmetric" and hasattr(self.estimator, "predict_proba")


class CompressedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A linear classifier known by codes of its weight vectors; subclasses say which codes.

    With ``scoring="asymmetric"`` scores estimate logits without bias, and a class whose weight vector is zero scores
    its intercept. With ``scoring="hamming"`` intercepts play no part (a warning says so), and a zero vector raises.
    """

    estimator: Any
    n_bits: int
    projection: str | Projection
    scoring: str = "hamming"
    shortlist: int | None = None
    classes_: Array
    n_features_in_: int
    projection_: Projection
    estimator_: Any
    _head: AsymmetricHead | HammingHead
    _link: str | None
    _intercept: Float64
    _coef: Array | None  # the original weights, where a shortlist needs them
    _one_vector: bool  # two classes that share one weight vector

    @abstractmethod
    def _make_embedding(self, n_features: int) -> Any:
        """The fitted embedding of weight vectors and inputs."""

    @property
    @abstractmethod
    def _layout(self) -> Layout:
        """Of the codes."""

    @abstractmethod
    def _encode(self, weights: Array) -> tuple[Bytes, Float32]:
        """Codes of weight vectors, and scales that are zero for zero vectors."""

    @abstractmethod
    def _queries(self, signals: Array) -> Iterator[tuple[slice, Any]]:
        """Blocks of rows, with what the head compares: projections, or packed signs of them for Hamming scores."""

    # Learning

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, **fit_params: Any) -> Self:
        """Fits a clone of the estimator, kept as ``estimator_``, and encodes its weight vectors.

        ``fit_params``, such as sample_weight, go to the estimator. One that is fitted already is taken as it is when
        wrapped in ``sklearn.frozen.FrozenEstimator``; :meth:`from_fitted` does the same without data.
        """
        self._check_parameters()
        if self.estimator is None:
            raise_no_estimator()
        X, y = interchanged(X, "X"), interchanged(y, "y")
        _, labels = validate_data(self, X, y, dtype="numeric")
        check_classification_targets(labels)
        self._set_embedding(self.n_features_in_)  # before the training: a wrong n_bits is known at once
        self.estimator_ = clone(self.estimator).fit(X, y, **fit_params)
        return self._compress_estimator()

    @classmethod
    def from_fitted(cls, estimator: Any, **parameters: Any) -> Self:
        """Compresses a fitted linear classifier; parameters are those of the constructor."""
        classifier = cls(FrozenEstimator(estimator), **parameters)
        classifier._check_parameters()
        if hasattr(estimator, "feature_names_in_"):
            classifier.feature_names_in_ = estimator.feature_names_in_
        classifier.estimator_ = estimator
        return classifier._compress_estimator()

    @classmethod
    def from_weights(
        cls,
        coef: npt.ArrayLike,
        *,
        intercept: npt.ArrayLike | None = None,
        classes: npt.ArrayLike | None = None,
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
        **parameters
            Those of the constructor.
        """
        classifier = cls(None, **parameters)
        classifier._check_parameters()
        labels = None if classes is None else check_class_labels(classes, np.empty(0), present=False)
        weights, labels = check_weights(coef, classes=labels)
        return classifier._compress(weights, check_intercepts(intercept, len(weights)), labels, None)

    def _check_parameters(self) -> None:
        check_choice(self.scoring, "scoring", SCORINGS)
        if self.shortlist is not None:
            check_count(self.shortlist, "shortlist")

    def _compress_estimator(self) -> Self:
        coef, intercept, classes = linear_weights(self.estimator_, getattr(self, "n_features_in_", None))
        return self._compress(coef, intercept, classes, link_of(self.estimator_, coef))

    def _compress(self, coef: Array, intercept: Float64, classes: Array, link: str | None) -> Self:
        if not hasattr(self, "n_features_in_"):
            self._set_embedding(coef.shape[1])
        self._one_vector = len(coef) < len(classes)
        self._head = self._make_head(coef, intercept, classes)
        self._intercept, self._link = intercept, link if self.scoring == "asymmetric" else None
        self._coef = None if self.shortlist is None else coef
        self.classes_ = classes
        return self

    def _set_embedding(self, n_features: int) -> None:
        self._embedding = self._make_embedding(n_features)
        self.projection_: Projection = self._embedding.projection_
        self.n_features_in_ = n_features

    def _make_head(self, coef: Array, intercept: Float64, classes: Array) -> AsymmetricHead | HammingHead:
        codes, scales = self._encode(coef)
        if self.scoring == "asymmetric":
            return AsymmetricHead(self._layout, codes, scales, intercept if intercept.any() else None)
        if not scales.all():
            raise_zero_weights(classes.tolist()[-1 if self._one_vector else int(np.argmin(scales))])
        if intercept.any():
            warn_unused_intercepts(intercept)
        return HammingHead(self._layout, codes)

    # Predicting

    def decision_function(self, X: npt.ArrayLike) -> Float64:
        """Scores of the classes: (n_samples, n_classes), or (n_samples,) where two classes share one weight vector.

        By ``scoring="asymmetric"`` estimates of the logits ``X @ coef.T + intercept``. With a shortlist, those of
        its classes are exact, and estimates of the others are held just below the least of these. By
        ``scoring="hamming"`` the signs that agree less the signs that differ.
        """
        signals = self._check(X)
        values = np.concatenate([self._values(signals[rows], queries) for rows, queries in self._queries(signals)])
        return values[:, 0] if self._one_vector else values

    def predict(self, X: npt.ArrayLike) -> Array:
        """The class of the highest score, the first of equal ones. Scores of all classes are never held at once."""
        if self._one_vector_fitted():
            return self.classes_[(self.decision_function(X) > 0).astype(np.int64)]
        signals = self._check(X)
        best = [self._best(signals[rows], queries) for rows, queries in self._queries(signals)]
        return self.classes_[np.concatenate(best)]

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: npt.ArrayLike) -> Float64:
        """Probabilities of the classes, made of estimated logits as the estimator makes them of its own."""
        logits = self.decision_function(X)
        assert self._link is not None
        return probabilities(self._link, logits)

    def _one_vector_fitted(self) -> bool:
        check_is_fitted(self)
        return self._one_vector

    def _check(self, X: npt.ArrayLike) -> Array:
        """Shape, type and feature names; finiteness is checked block by block where rows are projected."""
        check_is_fitted(self)
        X = interchanged(X, "X")
        return validate_data(self, X, reset=False, dtype="numeric", ensure_all_finite=False)  # type: ignore[no-any-return]

    def _values(self, signals: Array, queries: Any) -> Float64:
        values = self._head.values(queries)
        if self._coef is None:
            return values
        classes, exact = self._shortlisted(signals, queries)
        np.minimum(values, np.nextafter(exact.min(axis=1, keepdims=True), -np.inf), out=values)
        np.put_along_axis(values, classes, exact, axis=1)
        return values

    def _best(self, signals: Array, queries: Any) -> Int64:
        if self._coef is None:
            return self._head.best(queries, 1)[0][:, 0]
        classes, exact = self._shortlisted(signals, queries)
        winners = np.where(exact == exact.max(axis=1, keepdims=True), classes, len(self._head))
        return np.asarray(winners.min(axis=1))

    def _shortlisted(self, signals: Array, queries: Any) -> tuple[Int64, Float64]:
        """The classes of highest score, and their exact logits."""
        assert self.shortlist is not None
        assert self._coef is not None
        classes, _ = self._head.best(queries, min(self.shortlist, len(self._head)))
        products = [self._coef[rows] @ signal for rows, signal in zip(classes, signals, strict=True)]
        return classes, np.stack(products) + self._intercept[classes]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = (
            self.scoring == "hamming"
        )  # norms and intercepts matter on scikit-learn's data
        return tags

    # What it costs

    @property
    def storage_bits_(self) -> int:
        """Bits the head holds: codes, scales and intercepts, as far as the scoring uses them.

        Neither the projection, which its seed makes, nor the original weights of a shortlist.
        """
        check_is_fitted(self)
        return 8 * self._head.nbytes

    @property
    def compression_ratio_(self) -> float:
        """Bits of the weights (and intercepts, unless all are zero) in float32, over ``storage_bits_``."""
        storage = self.storage_bits_
        return 32 * len(self._intercept) * (self.n_features_in_ + bool(self._intercept.any())) / storage

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
            raise_no_uncompressed()
        uncompressed = np.asarray(against.predict(X) if hasattr(against, "predict") else against)
        labels = np.asarray(y)
        check_samples(predicted, labels, uncompressed)
        return compare(
            labels,
            predicted,
            uncompressed,
            confidence=level,
            storage_bits=self.storage_bits_,
            ratio=self.compression_ratio_,
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
        check_enough_classes(len(self.classes_), one_vector=self._one_vector)
        labels = check_class_labels(classes, self.classes_, present=False)
        weights, _ = check_weights(coef, classes=labels, n_features=self.n_features_in_, one_each=True)
        intercepts = check_intercepts(intercept, len(weights))
        head: Any = self._make_head(weights, intercepts, labels)
        self._head = self._head.extended(head)
        self._intercept = np.concatenate([self._intercept, intercepts])
        self._coef = None if self._coef is None else np.concatenate([self._coef, weights])
        self.classes_ = np.concatenate([self.classes_, labels])
        return self._without_estimator()

    def remove_classes(self, classes: npt.ArrayLike) -> Self:
        """Forgets classes; the codes of the others stay. At least two must be left. ``estimator_`` is let go of."""
        check_is_fitted(self)
        labels = check_class_labels(classes, self.classes_, present=True)
        check_enough_classes(len(self.classes_) - len(labels), one_vector=self._one_vector)
        rows = np.flatnonzero(~np.isin(self.classes_, labels))
        self._head = self._head.kept(rows)
        self._intercept, self.classes_ = self._intercept[rows], self.classes_[rows]
        self._coef = None if self._coef is None else self._coef[rows]
        return self._without_estimator()

    def _without_estimator(self) -> Self:
        if hasattr(self, "estimator_"):
            del self.estimator_
        return self

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes an npz file of plain arrays: codes, scales, intercepts, classes, and the projection by its seed.

        The estimator is not written; the original weights are, where a shortlist needs them. A file of the same name
        is replaced as a whole or not at all.
        """
        check_is_fitted(self)
        apart = ("estimator", "projection", "random_state")
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name not in apart}
        arrays = {"codes": self._head.codes, "classes": self.classes_, "intercept": self._intercept}
        if isinstance(self._head, AsymmetricHead):
            arrays["scales"] = self._head.scales
        if self._coef is not None:
            arrays["coef"] = self._coef
        write_head(path, type(self).__name__, parameters, self.projection_, self._link, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The classifier that :meth:`save` wrote; it predicts as before, and has no estimator."""
        parameters, projection, link, arrays = read_head(path, cls.__name__)
        classifier = cls(None, projection=projection, **parameters)
        classifier._set_embedding(projection.n_features)
        check_head(path, arrays, classifier._layout.code_bytes, projection.n_features, scoring=classifier.scoring)
        classifier._link, classifier._coef = link, arrays.get("coef")
        classifier.classes_, classifier._intercept = arrays["classes"], arrays["intercept"]
        classifier._one_vector = len(classifier._intercept) < len(classifier.classes_)
        if classifier.scoring == "asymmetric":
            biases = classifier._intercept if classifier._intercept.any() else None
            classifier._head = AsymmetricHead(classifier._layout, arrays["codes"], arrays["scales"], biases)
        else:
            classifier._head = HammingHead(classifier._layout, arrays["codes"])
        return classifier
