"""Scikit-learn classifier with compressed weight vectors."""

from __future__ import annotations

import os
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
from ..families import SCORINGS, Recipe
from ..projections import Projection
from .advice import SizeChoice, measured_agreement
from .head import Head
from .links import LINKS
from .recipes import RecipeOptions
from .report import CompressionReport, compare
from .shortlist import STORAGES, Shortlist
from .weights import check_class_labels, check_intercepts, check_weights, linear_weights, link_of


def _has_probabilities(self: CompressedLinearClassifier) -> bool:
    """Return whether there are probabilities; raise AttributeError, which scikit-learn shows, to say why not."""
    if self.scoring != "asymmetric":
        raise AttributeError('Hamming scores are not logits and give no probabilities; take scoring="asymmetric"')
    if hasattr(self, "head_") and self.head_.link is None:
        raise AttributeError(
            "the link from logits to probabilities is unknown: the estimator has none, or the head was made from "
            'weights; give from_weights(..., link="softmax") or "sigmoid"'
        )
    return hasattr(self, "head_") or hasattr(self.estimator, "predict_proba")


class CompressedLinearClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Linear classifier with compressed weight vectors, whose scores estimate the logits of the uncompressed one.

    Parameters
    ----------
    estimator : linear classifier
        LogisticRegression, LinearSVC, SGDClassifier, RidgeClassifier, Perceptron or any other whose decision_function
        is ``X @ coef_.T + intercept_``. ``fit`` trains a clone of it; see :meth:`from_fitted` for a fitted one.
    family : "adaptive", "grouped", "trellis", "sign" or another registered family
        Trellis codes are recommended: at equal bytes they agreed with the uncompressed CIFAR-10 head most often (means
        of 8 seeds, 8 to 64 bytes for 1,024 features). Adaptive codes are those of the paper. Grouped codes, whose best
        classes are found faster, agreed less often than adaptive codes below 32 bytes and as often from there on. Sign
        codes keep the signs of all projections and serve as a baseline.
    n_bits : int, "auto" or None
        Projections that an adaptive code keeps. "auto" takes the smallest size of any family that is expected to agree
        with the uncompressed classifier on 99% of inputs: measured on the data of ``fit`` if there are any, otherwise
        predicted from the weights (see the notes). ``choice_`` has the result, and a warning is issued if no size is
        large enough. None is the size that the family chooses.
    n_bytes : int, optional
        Bytes of a code without the two of its scale, in place of n_bits.
    n_pool : int, optional
        Projections computed for adaptive codes; the number of features by default.
    basis : kind or Projection, optional
        For trellis codes "hadamard" (default), or "principal" axes, which are learned from the weights and kept; for
        the others "hadamard" (default), "gaussian", "rademacher", "sparse", "circulant", or a projection already made.
    scoring : "asymmetric" or "hamming"
        ``asymmetric`` keeps the real projections of inputs: scores estimate the logits without bias, weight norms and
        intercepts included, and a class whose weight vector is zero scores its intercept. ``hamming``, the paper's
        score, counts agreeing signs of adaptive, grouped or sign codes; it ignores norms and intercepts (with a
        warning), and a zero weight vector raises.
    shortlist : int, optional
        Keep the weights too, and decide by exact logits among this many classes of the highest scores.
    shortlist_storage : "original", "float16" or "int8"
        How these weights are held and saved: as given (a memory map stays on disk), or smaller.
    keep_estimator : bool
        Keep the fitted estimator in pickles, which otherwise hold only the compressed head.
    random_state : int, Generator or None

    Attributes
    ----------
    head_ : Head
        The head, which needs no scikit-learn.
    classes_ : array of labels
    choice_ : SizeChoice
        With ``n_bits="auto"``: the size, the expected agreement, and its basis, "data" (measured) or "theory".
    estimator_ : the uncompressed classifier, for :meth:`report`; absent after ``from_weights`` or ``load``
    storage_bits_, compression_ratio_
        Size of everything that a prediction needs, and how many times smaller than float32 that is.

    Notes
    -----
    An agreement that is predicted from the weights assumes inputs that are a class's weight vector in normal noise, the
    share of signal in their energy uniform. For the CIFAR-10 head it was within 2 points of the measured agreement for
    adaptive codes, and 0.3 to 2.1 points too low for grouped and trellis codes of 8 to 64 bytes (means of 8 seeds). For
    scikit-learn's digits it was 5 to 13 points too high for adaptive codes.

    Several labels per sample: wrap it in scikit-learn's OneVsRestClassifier or MultiOutputClassifier.

    The estimate of a logit by adaptive codes has variance ``|w|**2 |x|**2 (1 - r**2) / N`` over the projections, r the
    cosine of w and x and N = n_bits * lambda**2 the effective number of samples (for orthonormal pools
    1 / N - 1 / n_features in place of 1 / N). This is exact for a Gaussian pool given the kept magnitudes, whose mean
    is lambda.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> import topsign as ts
    >>> X, y = load_digits(return_X_y=True)
    >>> exact = LogisticRegression(max_iter=1000).fit(X[:1000] / 16, y[:1000])
    >>> small = ts.CompressedLinearClassifier.from_fitted(exact, n_bits=64, n_pool=1024, random_state=7)
    >>> small.report(X[1000:] / 16, y[1000:]).agreement > 0.9
    True
    """

    head_: Head
    choice_: SizeChoice
    classes_: Array
    n_features_in_: int
    estimator_: Any

    def __init__(
        self,
        estimator: Any,
        *,
        family: str = "adaptive",
        n_bits: int | str | None = "auto",
        n_bytes: int | None = None,
        n_pool: int | None = None,
        basis: str | Projection | None = None,
        scoring: str = "asymmetric",
        shortlist: int | None = None,
        shortlist_storage: str = "original",
        keep_estimator: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.family = family
        self.n_bits = n_bits
        self.n_bytes = n_bytes
        self.n_pool = n_pool
        self.basis = basis
        self.scoring = scoring
        self.shortlist = shortlist
        self.shortlist_storage = shortlist_storage
        self.keep_estimator = keep_estimator
        self.random_state = random_state

    # Learning

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, **fit_params: Any) -> Self:
        """Fit a clone of the estimator, kept as ``estimator_``, and encode its weight vectors.

        ``fit_params``, such as sample_weight, go to the estimator. A fitted estimator is used as it is if wrapped in
        ``sklearn.frozen.FrozenEstimator``; :meth:`from_fitted` does the same without data.
        """
        if self.estimator is None:
            raise ValueError(
                "this classifier was made from weights or from a file and has no estimator to fit; "
                "make one with an estimator, say CompressedLinearClassifier(LogisticRegression())"
            )
        X, y = interchanged(X, "X"), interchanged(y, "y")
        _, labels = validate_data(self, X, y, dtype="numeric", accept_sparse="csr")
        check_classification_targets(labels)
        options = self._options()
        options.needs_weights(self.n_features_in_)  # before training, so that a wrong n_bits raises at once
        self.estimator_ = clone(self.estimator).fit(X, y, **fit_params)
        return self._compress_estimator(options, X)

    @classmethod
    def from_fitted(cls, estimator: Any, **parameters: Any) -> Self:
        """Compress a fitted linear classifier; parameters are those of the constructor."""
        classifier = cls(FrozenEstimator(estimator), **parameters)
        options = classifier._options()
        if hasattr(estimator, "feature_names_in_"):
            classifier.feature_names_in_ = estimator.feature_names_in_
        classifier.estimator_ = estimator
        return classifier._compress_estimator(options, None)

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
        """Compress weight vectors, (n_classes, n_features), or only one for two classes.

        Parameters
        ----------
        coef : array or memory map
            Read block by block. With a shortlist it is kept as it is, so that a memory map stays on disk.
        intercept : array of shape (n_classes,), optional
        classes : array of shape (n_classes,), optional
            Labels; 0, 1, ... by default.
        link : "softmax", "sigmoid", "modified_huber" or None
            How ``predict_proba`` makes probabilities of logits; None: there is no ``predict_proba``.
        **parameters
            Those of the constructor.
        """
        classifier = cls(None, **parameters)
        options = classifier._options()
        labels = None if classes is None else check_class_labels(classes)
        weights, labels = check_weights(coef, classes=labels)
        biases = check_intercepts(intercept, len(weights))
        if link is not None:
            check_choice(link, "link", tuple(LINKS))
        return classifier._compress(options, weights, biases, labels, link)

    @classmethod
    def from_head(cls, head: Head) -> Self:
        """Return the classifier of a head, for example of a PyTorch layer, without compressing it again."""
        record, short = head.recipe.to_json(), head.shortlist
        names = ("n_bits", "n_pool") if head.recipe.size_name == "n_bits" else ("n_bytes",)
        options = {"n_bits": None, "basis": record.get("projection")} | {
            name: record.get(name) for name in ("family", *names)
        }
        size = None if short is None else short.size
        made = cls(None, **options, scoring=head.scoring, shortlist=size)
        return made._set_head(head)

    def _options(self) -> RecipeOptions:
        """Return how weight vectors are coded; raise if a parameter is wrong."""
        check_choice(self.scoring, "scoring", SCORINGS)
        if self.shortlist is not None:
            check_count(self.shortlist, "shortlist")
        check_choice(self.shortlist_storage, "shortlist_storage", STORAGES)
        names = ("n_bits", "n_bytes", "n_pool", "basis", "random_state")
        return RecipeOptions(self.family, **{name: getattr(self, name) for name in names})

    def _compress_estimator(self, options: RecipeOptions, X: Any) -> Self:
        coef, intercept, classes = linear_weights(self.estimator_, None if X is None else self.n_features_in_)
        return self._compress(options, coef, intercept, classes, link_of(self.estimator_, coef), X)

    def _compress(
        self, options: RecipeOptions, coef: Array, intercept: Float64, classes: Array, link: str | None, X: Any = None
    ) -> Self:
        hamming, size = self.scoring == "hamming", self.shortlist
        if hamming:
            _warn_unused(intercept)
        if hamming and options.automatic and X is None:
            raise ValueError('n_bits="auto" without data predicts logits, not Hamming scores; give a size')
        shortlist = None if size is None else Shortlist.of(size, coef, self.shortlist_storage)

        def made(recipe: Recipe) -> Head:
            return Head.of(recipe, coef, intercept, classes, scoring=self.scoring, link=link, shortlist=shortlist)

        measured = None if X is None else measured_agreement(X, coef, intercept, made)
        recipe, choice = options.recipe(coef, shortlist=size, measured=measured)
        if choice is not None:
            self.choice_ = choice
        return self._set_head(made(recipe))

    def _set_head(self, head: Head) -> Self:
        self.head_, self.classes_, self.n_features_in_ = head, head.classes, head.n_features
        return self

    # Predicting

    def decision_function(self, X: npt.ArrayLike) -> Float64:
        """Return scores of the classes: (n_samples, n_classes), or (n_samples,) if two classes share a weight vector.

        See :meth:`topsign.Head.logits`; by ``scoring="asymmetric"`` they estimate ``X @ coef.T + intercept``.
        """
        check_is_fitted(self)
        logits = self.head_.logits(self._check(X))
        return logits[:, 0] if self.head_.one_vector else logits

    def predict(self, X: npt.ArrayLike) -> Array:
        """Return the class with the highest score, the first one in case of a tie."""
        check_is_fitted(self)
        return self.head_.predict(self._check(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: npt.ArrayLike) -> Float64:
        """Return probabilities of the classes, computed from estimated logits by the estimator's own formula."""
        check_is_fitted(self)
        return self.head_.predict_proba(self._check(X))

    def _check(self, X: npt.ArrayLike) -> Array:
        """Check shape, type and feature names; finiteness is checked block by block as rows are projected."""
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

    # Size and accuracy

    @property
    def storage_bits_(self) -> int:
        """Bits that a prediction needs: codes with scales, intercepts, and the weights of a shortlist.

        A random projection does not count, because it is made from its seed. ``head_`` has the bytes of each part.
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
        """Return accuracy, agreement with the uncompressed classifier, and an interval for the accuracy lost.

        Parameters
        ----------
        X, y
            Samples that were not used for training, and their labels.
        against : fitted classifier, or array of its predictions, optional
            The uncompressed one; ``estimator_`` by default.
        confidence : float
            Coverage of the interval, at least, for any number of samples.
        """
        level = check_real(confidence, "confidence", minimum=0, maximum=1)
        predicted = self.predict(X)
        if against is None:
            against = getattr(self, "estimator_", None)
        if against is None:
            raise ValueError(
                "there is no uncompressed classifier to compare with (this one was made from weights or a file); pass "
                "against=, a fitted classifier or its predictions"
            )
        uncompressed = np.asarray(against.predict(X) if hasattr(against, "predict") else against)
        return compare(np.asarray(y), predicted, uncompressed, confidence=level, head=self.head_)

    # Files

    def __getstate__(self) -> Any:
        """Return the state for pickle and joblib, without the fitted estimator unless ``keep_estimator``."""
        state = dict(super().__getstate__())
        if not self.keep_estimator:
            state.pop("estimator_", None)
            if isinstance(self.estimator, FrozenEstimator):
                state["estimator"] = None
        return state

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``head_`` into an npz file of plain arrays, see :meth:`topsign.Head.save`; not the estimator."""
        check_is_fitted(self)
        self.head_.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the classifier that :meth:`save` wrote, with the same predictions and without the estimator.

        Raises StorageError if the file is damaged or not a head.
        """
        return cls.from_head(Head.load(path))


def _warn_unused(intercept: Float64) -> None:
    if intercept.any():
        warn(
            f"Hamming scores ignore intercepts, here up to {np.abs(intercept).max():.3g}; fit the estimator with "
            'fit_intercept=False, or take scoring="asymmetric"',
        )
