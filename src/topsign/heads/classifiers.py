"""Three compressed linear classifiers: adaptive codes, and the paper's two baselines."""

from __future__ import annotations

from typing import Any, NoReturn

from .._checks import check_count, check_flag, check_positive
from .._random import RandomState
from ..projections import Projection
from ..recipe import Recipe
from .base_classifier import CompressedClassifier
from .head import Head
from .queries import Universal


class AdaptiveLinearClassifier(CompressedClassifier):
    """A linear classifier whose weight vectors are adaptive codes, each class its own reference.

    Parameters
    ----------
    estimator : linear classifier
        LogisticRegression, LinearSVC, SGDClassifier, RidgeClassifier, Perceptron or any other whose decision_function
        is ``X @ coef_.T + intercept_``. ``fit`` trains a clone of it; see :meth:`from_fitted` for a fitted one.
    n_bits, n_pool : int
        Projections kept for each class, and computed; n_pool is the number of features when not given.
    projection : kind or Projection
        "hadamard", "gaussian", "rademacher", "sparse", "circulant", or a projection already made.
    scoring : "asymmetric" or "hamming"
        ``asymmetric`` keeps the real projections of inputs: scores estimate the logits without bias, weight norms and
        intercepts included, and a class whose weight vector is zero scores its intercept. ``hamming`` is the paper's:
        the class with the fewest differing signs; norms and intercepts play no part (a warning says so where there
        are intercepts), and a zero weight vector raises.
    shortlist : int, optional
        Keep the original weights too, in memory or memory-mapped, and decide by exact logits among so many classes of
        the highest score.
    layout : "compact" or "fast"
        Layout of the codes, see :class:`topsign.AdaptiveCodes`.
    random_state : int, Generator or None

    Attributes
    ----------
    classes_ : array of labels
    estimator_ : the uncompressed classifier, for :meth:`report`; not there after ``from_weights`` or ``load``
    storage_bits_, compression_ratio_
        Size of the head, and how many times that is smaller than float32.

    Notes
    -----
    Several labels per sample: wrap it in scikit-learn's OneVsRestClassifier or MultiOutputClassifier.

    A logit's estimate has variance ``|w|**2 |x|**2 (1 - r**2) / N`` over the projections, r the cosine of w and x and
    N = n_bits * lambda**2 the effective number of samples (for orthonormal pools 1 / N - 1 / n_features in place of
    1 / N): exact for a Gaussian pool given the kept magnitudes, whose mean is lambda.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> import topsign as ts
    >>> X, y = load_digits(return_X_y=True)
    >>> exact = LogisticRegression(max_iter=1000).fit(X[:1000] / 16, y[:1000])
    >>> small = ts.AdaptiveLinearClassifier.from_fitted(exact, n_bits=64, n_pool=1024, random_state=7)
    >>> small.report(X[1000:] / 16, y[1000:]).agreement > 0.9
    True
    """

    def __init__(
        self,
        estimator: Any,
        *,
        n_bits: int = 64,
        n_pool: int | None = None,
        projection: str | Projection = "hadamard",
        scoring: str = "asymmetric",
        shortlist: int | None = None,
        layout: str = "compact",
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.n_bits = n_bits
        self.n_pool = n_pool
        self.projection = projection
        self.scoring = scoring
        self.shortlist = shortlist
        self.layout = layout
        self.random_state = random_state

    def _make_recipe(self, n_features: int) -> Recipe:
        return Recipe.make(
            "adaptive",
            n_features=n_features,
            n_bits=self.n_bits,
            n_pool=self.n_pool,
            projection=self.projection,
            layout=self.layout,
            random_state=self.random_state,
        )

    @classmethod
    def _parameters_of(cls, head: Head) -> dict[str, Any]:
        if head.recipe.family != "adaptive":
            _raise_other_head(cls, head)
        return {
            "n_bits": head.recipe.n_bits,
            "n_pool": head.recipe.n_pool,
            "projection": head.recipe.projection,
            "scoring": head.scoring,
            "shortlist": None if head.shortlist is None else head.shortlist.size,
            "layout": head.recipe.layout.name,
        }


class SignLinearClassifier(CompressedClassifier):
    """A linear classifier whose weight vectors are signs of random projections, the same for all classes.

    Parameters
    ----------
    estimator, projection, scoring, shortlist, random_state
        As in :class:`AdaptiveLinearClassifier`. ``hamming``, the default here, is the paper's baseline.
    n_bits : int
        Projections, all of which are kept.

    Examples
    --------
    >>> import topsign as ts
    >>> small = ts.SignLinearClassifier.from_weights([[3.0, 1.0], [-1.0, 3.0]], n_bits=128, random_state=7)
    >>> small.predict([[1.0, 0.1], [0.1, 1.0]]), small.storage_bits_
    (array([0, 1]), 256)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        n_bits: int = 64,
        projection: str | Projection = "hadamard",
        scoring: str = "hamming",
        shortlist: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.n_bits = n_bits
        self.projection = projection
        self.scoring = scoring
        self.shortlist = shortlist
        self.random_state = random_state

    def _make_recipe(self, n_features: int) -> Recipe:
        return _sign_recipe(self, n_features)

    @classmethod
    def _parameters_of(cls, head: Head) -> dict[str, Any]:
        if head.recipe.family != "sign" or head.universal is not None:
            _raise_other_head(cls, head)
        return {
            "n_bits": head.recipe.n_bits,
            "projection": head.recipe.projection,
            "scoring": head.scoring,
            "shortlist": None if head.shortlist is None else head.shortlist.size,
        }


class UniversalLinearClassifier(CompressedClassifier):
    """A linear classifier by universal quantised embeddings of weight vectors and inputs.

    These codes tell distances, not inner products, so weight vectors and inputs are first scaled to length one; the
    class with the fewest differing bits wins. Where two classes share one weight vector w, -w stands for the first.

    Parameters
    ----------
    estimator, random_state
        As in :class:`AdaptiveLinearClassifier`; intercepts play no part, and a zero weight vector raises.
    n_bits, step, dither, projection
        As in :class:`topsign.UniversalEmbedding`; choose the step by cross-validation.

    Examples
    --------
    >>> import topsign as ts
    >>> small = ts.UniversalLinearClassifier.from_weights([[3.0, 1.0], [-1.0, 3.0]], n_bits=128, random_state=7)
    >>> small.predict([[1.0, 0.1], [0.1, 1.0]])
    array([0, 1])
    """

    scoring = "hamming"

    def __init__(
        self,
        estimator: Any,
        *,
        n_bits: int = 64,
        step: float = 2.0,
        dither: bool = True,
        projection: str | Projection = "gaussian",
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.n_bits = n_bits
        self.step = step
        self.dither = dither
        self.projection = projection
        self.random_state = random_state

    def _make_recipe(self, n_features: int) -> Recipe:
        return _sign_recipe(self, n_features)

    def _universal(self) -> Universal:
        return Universal(check_positive(self.step, "step"), check_flag(self.dither, "dither"))

    @classmethod
    def _parameters_of(cls, head: Head) -> dict[str, Any]:
        if head.universal is None:
            _raise_other_head(cls, head)
        return {
            "n_bits": head.recipe.n_bits,
            "step": head.universal.step,
            "dither": head.universal.dither,
            "projection": head.recipe.projection,
        }


def _sign_recipe(classifier: CompressedClassifier, n_features: int) -> Recipe:
    return Recipe.make(
        "sign",
        n_features=n_features,
        n_pool=check_count(classifier.n_bits, "n_bits"),
        projection=classifier.projection,
        random_state=classifier.random_state,
    )


def _raise_other_head(cls: type[CompressedClassifier], head: Head) -> NoReturn:
    kind = "universal" if head.universal is not None else head.recipe.family
    face = {"adaptive": "AdaptiveLinearClassifier", "sign": "SignLinearClassifier"}.get(
        kind, "UniversalLinearClassifier"
    )
    raise ValueError(f"{cls.__name__} is no face of a head of {kind} codes; use {face}")
