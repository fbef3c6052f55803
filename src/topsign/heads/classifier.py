"""Scikit-learn classifier with compressed weight vectors, and the report of the accuracy that it loses."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy  # submodules are imported at their first use
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .._arrays import Array, Float64
from .._checks import as_numpy, check_choice, check_count, check_real, raise_unusable, suggests_keywords
from .._random import RandomState
from ..errors import warn
from ..families import SCORINGS, Recipe
from ..projections import Projection
from .head import LINKS, STORAGES, Head, Shortlist, check_intercepts, check_link, check_weights, hold_out, probabilities
from .size_selection import MAX_SAMPLE, HeldOut, RecipeOptions, SizeChoice

FOLDS = 5  # of the cross-validation that measures agreement


@dataclass(frozen=True)
class CompressionReport:
    """Accuracy of a compressed classifier compared with the uncompressed one, as fractions."""

    n_samples: int  #: number of samples that both classifiers were tested on
    accuracy: float  #: share of samples that the compressed classifier gets right
    accuracy_uncompressed: float  #: share of samples that the uncompressed classifier gets right
    interval: tuple[float, float]
    """Confidence interval of the loss of accuracy in the population of the samples."""
    confidence: float  #: confidence level of the interval
    agreement: float
    """Fraction of samples on which both predict the same class."""
    storage_bits: int
    """Bits that a prediction needs: codes, scales, intercepts and the weights of a shortlist."""
    shortlist_bits: int
    """Bits of the weights of a shortlist, which storage_bits counts."""
    compression_ratio: float  #: size of the uncompressed weights divided by the size of the compressed head

    @property
    def accuracy_lost(self) -> float:
        """Loss of accuracy on these samples; negative if compression increased the accuracy."""
        return self.accuracy_uncompressed - self.accuracy

    def __str__(self) -> str:
        held = f" ({self.shortlist_bits:,} of them a shortlist's weights)" if self.shortlist_bits else ""
        low, high = (f"{100 * value:+.2f}" for value in self.interval)
        return (
            f"accuracy {self.accuracy:.2%}, uncompressed {self.accuracy_uncompressed:.2%}, {self.n_samples:,} samples\n"
            f"lost {100 * self.accuracy_lost:+.2f} points; {low} to {high} with {self.confidence:.0%} confidence\n"
            f"agreement {self.agreement:.2%}\n"
            f"{self.storage_bits:,} bits{held}, {self.compression_ratio:.1f} times fewer than float32"
        )


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


@suggests_keywords
class CompressedLinearClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Linear classifier with compressed weight vectors, whose scores estimate the logits of the uncompressed one.

    Parameters
    ----------
    estimator : linear classifier
        LogisticRegression, LinearSVC, SGDClassifier, RidgeClassifier, Perceptron or any other whose decision_function
        is ``X @ coef_.T + intercept_``. ``fit`` trains a clone of it; see :meth:`from_fitted` for a fitted one.
    family : "grouped", "trellis", "sign", "adaptive" or another registered family
        Grouped codes (default) are the fastest. Trellis codes agree with the uncompressed head most often at equal
        bytes. Adaptive codes are those of the paper. Sign codes keep the signs of all projections and serve as a
        baseline.
    n_bytes : int or "auto"
        Bytes of a code without the two of its scale. "auto" takes the smallest size that agrees with the uncompressed
        classifier on 99% of inputs: measured by cross-validation in ``fit`` (see the notes), predicted from the weights
        if there are no data. ``choice_`` has the result, and a warning is issued if no size is large enough.
    n_bits : int or "auto", optional
        Projections that an adaptive code keeps; the size of adaptive codes, in place of n_bytes.
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
    random_state : int, Generator or None
        Seed of the projection.

    Attributes
    ----------
    head_ : Head
        The head, which needs no scikit-learn.
    classes_ : array of labels
    choice_ : SizeChoice
        With "auto": the size, the expected agreement, its basis ("data" or "theory"), and its lower confidence bound.
    estimator_ : the uncompressed classifier, for :meth:`report`; absent after ``from_weights``, ``load`` and in pickles
    storage_bits_, compression_ratio_
        Size of everything that a prediction needs, and how many times smaller than float32 that is.

    Notes
    -----
    With "auto", ``fit`` trains the estimator up to five more times, each time on four fifths of the rows, and measures
    how often a head of these weights agrees with them on the other rows, until 2,000 rows were measured.
    ``choice_.lower_bound`` is a 95% confidence bound of the agreement on new data, simultaneous over all sizes. An
    estimator in ``FrozenEstimator`` is not trained again, so give ``fit`` rows that it was not trained on.

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
    >>> small = ts.CompressedLinearClassifier.from_fitted(exact, family="trellis", n_bytes=24, random_state=7)
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
        family: str = "grouped",
        n_bytes: int | str = "auto",
        n_bits: int | str | None = None,
        n_pool: int | None = None,
        basis: str | Projection | None = None,
        scoring: str = "asymmetric",
        shortlist: int | None = None,
        shortlist_storage: str = "original",
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.family = family
        self.n_bytes = n_bytes
        self.n_bits = n_bits
        self.n_pool = n_pool
        self.basis = basis
        self.scoring = scoring
        self.shortlist = shortlist
        self.shortlist_storage = shortlist_storage
        self.random_state = random_state

    # Learning

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, **fit_params: Any) -> Self:
        """Fit a clone of the estimator to ``X`` and labels ``y``, kept as ``estimator_``, and encode its weights.

        ``fit_params``, such as sample_weight, go to the estimator. A fitted estimator is used as it is if wrapped in
        ``sklearn.frozen.FrozenEstimator``; :meth:`from_fitted` does the same without data.
        """
        if self.estimator is None:
            raise ValueError(
                "this classifier was made from weights or from a file and has no estimator to fit; "
                "make one with an estimator, say CompressedLinearClassifier(LogisticRegression())"
            )
        X, y = as_numpy(X, "X"), as_numpy(y, "y")
        signals, labels = validate_data(self, X, y, dtype="numeric", accept_sparse="csr")
        check_classification_targets(labels)
        options = self._options()
        options.needs_weights(self.n_features_in_)  # before training, so that a wrong size raises at once
        self.estimator_ = clone(self.estimator).fit(X, y, **fit_params)
        coef, intercept, classes = linear_weights(self.estimator_, self.n_features_in_)
        held_out = self._held_out(X, y, signals, labels, fit_params) if options.automatic else []
        return self._compress(options, coef, intercept, classes, link_of(self.estimator_, coef), held_out)

    @classmethod
    def from_fitted(cls, estimator: Any, **parameters: Any) -> Self:
        """Compress a fitted linear classifier, ``estimator``; ``parameters`` are those of the constructor."""
        classifier = cls(FrozenEstimator(estimator), **parameters)
        options = classifier._options()
        if hasattr(estimator, "feature_names_in_"):
            classifier.feature_names_in_ = estimator.feature_names_in_
        classifier.estimator_ = estimator
        coef, intercept, classes = linear_weights(estimator, None)
        return classifier._compress(options, coef, intercept, classes, link_of(estimator, coef))

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
            Biases; zero by default.
        classes : array of shape (n_classes,), optional
            Labels; 0, 1, ... by default.
        link : "softmax", "sigmoid", "modified_huber" or None
            How ``predict_proba`` makes probabilities of logits; None: there is no ``predict_proba``.
        **parameters
            Those of the constructor.
        """
        if wrong := parameters.keys() & {"bias", "biases"}:
            raise TypeError(f"from_weights() has no parameter {min(wrong)}: did you mean intercept?")
        classifier = cls(None, **parameters)
        weights, labels = check_weights(coef, classes=classes)
        biases = check_intercepts(intercept, len(weights), "intercept")
        return classifier._compress(classifier._options(), weights, biases, labels, check_link(link))

    @classmethod
    def from_head(cls, head: Head) -> Self:
        """Return the classifier of a ``head``, for example of a PyTorch layer, without compressing it again."""
        record = head.recipe.to_json()
        names = ("n_bits", "n_pool") if head.recipe.size_name == "n_bits" else ("n_bytes",)
        options = {name: record[name] for name in ("family", *names) if name in record}
        size = None if head.shortlist is None else head.shortlist.size
        made = cls(None, **options, basis=record.get("projection"), scoring=head.scoring, shortlist=size)
        return made._set_head(head)

    def _options(self) -> RecipeOptions:
        """Return how weight vectors are coded; raise if a parameter is wrong."""
        check_choice(self.scoring, "scoring", SCORINGS)
        if self.shortlist is not None:
            check_count(self.shortlist, "shortlist")
        check_choice(self.shortlist_storage, "shortlist_storage", STORAGES)
        names = ("n_bytes", "n_bits", "n_pool", "basis", "random_state")
        return RecipeOptions(self.family, **{name: getattr(self, name) for name in names})

    def _compress(
        self,
        options: RecipeOptions,
        coef: Array,
        intercept: Float64,
        classes: Array,
        link: str | None,
        held_out: Sequence[HeldOut] = (),
    ) -> Self:
        if self.scoring == "hamming" and intercept.any():
            warn(
                f"Hamming scores ignore intercepts, here up to {np.abs(intercept).max():.3g}; fit the estimator with "
                'fit_intercept=False, or take scoring="asymmetric"'
            )
        if self.scoring == "hamming" and options.automatic and not held_out:
            raise ValueError('"auto" without data predicts logits, not Hamming scores; give a size')
        recipe, choice = options.choose(coef, shortlist=self.shortlist, held_out=held_out)
        if choice is not None:
            self.choice_ = choice
        return self._set_head(self._make_head(recipe, coef, intercept, classes, link))

    def _make_head(
        self, recipe: Recipe, coef: Array, intercept: Float64, classes: Array, link: str | None = None
    ) -> Head:
        size = self.shortlist
        shortlist = None if size is None else Shortlist.of(size, coef, self.shortlist_storage)
        return Head.of(recipe, coef, intercept, classes, scoring=self.scoring, link=link, shortlist=shortlist)

    def _held_out(self, X: Any, y: Any, signals: Any, labels: Array, fit_params: dict[str, Any]) -> list[HeldOut]:
        """Return rows that estimators trained on other rows have not seen: folds with equal shares of each class."""
        n_rows = len(labels)
        shuffled = np.random.default_rng(0).permutation(n_rows)
        folds = np.empty(n_rows, np.int64)
        folds[shuffled[np.argsort(labels[shuffled], kind="stable")]] = np.arange(n_rows) % FOLDS
        held_out: list[HeldOut] = []
        for fold in range(FOLDS):
            kept, left = np.flatnonzero(folds != fold), shuffled[folds[shuffled] == fold]
            left = np.sort(left[: MAX_SAMPLE - sum(len(part.best) for part in held_out)])
            if len(left) and len(np.unique(labels[kept])) > 1:
                given = {
                    name: _safe_indexing(value, kept) if np.shape(value)[:1] == (n_rows,) else value
                    for name, value in fit_params.items()
                }
                fitted = clone(self.estimator).fit(_safe_indexing(X, kept), _safe_indexing(y, kept), **given)
                coef, intercept, classes = linear_weights(fitted, self.n_features_in_)
                make = partial(self._make_head, coef=coef, intercept=intercept, classes=classes)
                held_out.append(hold_out(signals[left], coef, intercept, make))
        return held_out

    def _set_head(self, head: Head) -> Self:
        self.head_, self.classes_, self.n_features_in_ = head, head.classes, head.n_features
        return self

    # Predicting

    def decision_function(self, X: npt.ArrayLike) -> Float64:
        """Return scores of the rows of ``X``: (n_samples, n_classes), or (n_samples,) if two classes share weights.

        See :meth:`topsign.Head.logits`; by ``scoring="asymmetric"`` they estimate ``X @ coef.T + intercept``.
        """
        check_is_fitted(self)
        logits = self.head_.logits(self._check(X))
        return logits[:, 0] if self.head_.one_vector else logits

    def predict(self, X: npt.ArrayLike) -> Array:
        """Return the class with the highest score for each row of ``X``, the first one in case of a tie."""
        check_is_fitted(self)
        return self.head_.predict(self._check(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: npt.ArrayLike) -> Float64:
        """Return probabilities of the classes for the rows of ``X``, by the estimator's own formula."""
        check_is_fitted(self)
        return self.head_.predict_proba(self._check(X))

    def _check(self, X: npt.ArrayLike) -> Array:
        """Check shape, type and feature names; finiteness is checked block by block as rows are projected."""
        X = as_numpy(X, "X")
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
        labels, head = np.asarray(y), self.head_
        if not labels.shape == uncompressed.shape == predicted.shape:
            raise ValueError(
                f"a report needs one label and one uncompressed prediction per sample, got {len(predicted)} samples, "
                f"labels of shape {labels.shape} and uncompressed predictions of shape {uncompressed.shape}"
            )
        right, right_uncompressed = predicted == labels, uncompressed == labels
        lost, gained = int((right_uncompressed & ~right).sum()), int((right & ~right_uncompressed).sum())
        return CompressionReport(
            n_samples=len(labels),
            accuracy=float(right.mean()),
            accuracy_uncompressed=float(right_uncompressed.mean()),
            interval=loss_interval(lost, gained, n_samples=len(labels), confidence=level),
            confidence=level,
            agreement=float((predicted == uncompressed).mean()),
            storage_bits=8 * head.nbytes,
            shortlist_bits=8 * head.shortlist_nbytes,
            compression_ratio=head.compression_ratio,
        )

    # Files

    def __getstate__(self) -> Any:
        """Return the state for pickle and joblib, which holds only the compressed head and not the fitted estimator."""
        state = dict(super().__getstate__())
        state.pop("estimator_", None)
        if isinstance(self.estimator, FrozenEstimator):
            state["estimator"] = None
        return state

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``head_`` into a safetensors file ``path``, see :meth:`topsign.Head.save`; not the estimator."""
        check_is_fitted(self)
        self.head_.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the classifier that :meth:`save` wrote to ``path``, without the estimator.

        Raises StorageError if the file is damaged or not a head.
        """
        return cls.from_head(Head.load(path))


def loss_interval(lost: int, gained: int, *, n_samples: int, confidence: float) -> tuple[float, float]:
    """Return a confidence interval for the difference of two paired accuracies.

    ``lost`` is the number of samples that only the uncompressed classifier predicts correctly, ``gained`` the number
    that only the compressed one does.

    Bound: covers with at least this confidence for any number of samples and any accuracies. Each proportion gets
    Clopper-Pearson limits at half the risk; the interval combines the lower limit of one with the upper of the other.

    >>> [round(limit, 4) for limit in loss_interval(30, 10, n_samples=10_000, confidence=0.95)]
    [-0.0001, 0.004]
    """
    risk = (1 - confidence) / 4  # two proportions, two sides
    counts = np.array([lost, gained])
    low = np.where(counts > 0, scipy.stats.beta.ppf(risk, counts, n_samples - counts + 1), 0.0)
    high = np.where(counts < n_samples, scipy.stats.beta.isf(risk, counts + 1, n_samples - counts), 1.0)
    return float(low[0] - high[1]), float(high[0] - low[1])


def linear_weights(estimator: Any, n_features: int | None) -> tuple[Array, Array, Array]:
    """Return weight vectors, intercepts and classes of a fitted linear classifier.

    Its ``decision_function`` must equal ``X @ coef_.T + intercept_``, with one column per class, or a single column for
    two classes. A linear SVC with more than two classes, for example, compares classes pairwise and is rejected.
    """
    name = type(estimator).__name__
    missing = [part for part in ("coef_", "classes_", "decision_function") if not hasattr(estimator, part)]
    if missing:
        raise TypeError(
            f"a compressed classifier needs a fitted linear one, but {name} has no {', no '.join(missing)}; "
            "give LogisticRegression, LinearSVC, SGDClassifier, RidgeClassifier, Perceptron or the like"
        )
    coef = estimator.coef_
    coef, classes = check_weights(
        coef.toarray() if hasattr(coef, "toarray") else coef,
        classes=np.asarray(estimator.classes_),
        n_features=n_features,
    )
    intercept = np.broadcast_to(np.asarray(getattr(estimator, "intercept_", 0.0), np.float64), len(coef)).copy()
    finite = np.isfinite(coef).all(axis=1)
    if not finite.all():
        raise_unusable(coef, int(np.argmin(finite)), "weights")
    probe = _probe_signals(coef)
    given, labels = (np.asarray(_silently(estimator, method, probe)) for method in ("decision_function", "predict"))
    linear = probe @ coef.T + intercept
    limit = 1e-4 * max(1.0, float(np.abs(linear).max()))
    if labels.ndim > 1 or given.size != linear.size or np.abs(given.reshape(linear.shape) - linear).max() > limit:
        raise TypeError(
            f"the decision_function of {name} is not X @ coef_.T + intercept_ with one weight vector per class, so its "
            "classes have no weight vectors to compress; a one-against-rest or multinomial classifier of one label "
            "per sample has (for several labels, wrap the compressed classifier in OneVsRestClassifier)"
        )
    return coef, intercept, classes


def _probe_signals(coef: Array) -> npt.NDArray[np.float64]:
    """Return a few fixed random inputs for which the logits are of order one."""
    largest = float(np.linalg.norm(coef, axis=1).max(initial=0.0))
    noise = np.random.default_rng(0).standard_normal((5, coef.shape[1]))
    return noise / largest if largest > 0 else noise


def _silently(estimator: Any, method: str, signals: Array) -> Any:
    """Call a method and suppress scikit-learn's warning about missing feature names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return getattr(estimator, method)(signals)


def link_of(estimator: Any, coef: Array) -> str | None:
    """Return the link that reproduces the estimator's probabilities from its logits, or None.

    All links are tried, because the formula depends on the classifier's class, solver, loss and version.
    """
    if not hasattr(estimator, "predict_proba"):
        return None
    probe = _probe_signals(coef)
    logits, wanted = (np.asarray(_silently(estimator, name, probe)) for name in ("decision_function", "predict_proba"))
    columns = logits.reshape(len(probe), -1)
    return next((link for link in LINKS if np.allclose(probabilities(link, columns), wanted, atol=1e-5)), None)
