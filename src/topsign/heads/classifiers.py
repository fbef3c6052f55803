"""Three compressed linear classifiers: adaptive codes, and the paper's two baselines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from .._arrays import Array, Float64
from .._checks import check_choice, check_count, check_flag, check_positive
from .._random import RandomState
from ..projections import Projection
from ..recipe import Recipe
from .advice import MAX_SAMPLE, SMALLEST_TRELLIS, sized_recipe, warn_of_size
from .base_classifier import CompressedClassifier
from .head import Head
from .queries import Universal
from .recipes import CODES, automatic_trellis, no_weights, trellis_recipe


class AdaptiveLinearClassifier(CompressedClassifier):
    """A linear classifier whose weight vectors are adaptive codes, each class its own reference.

    Parameters
    ----------
    estimator : linear classifier
        LogisticRegression, LinearSVC, SGDClassifier, RidgeClassifier, Perceptron or any other whose decision_function
        is ``X @ coef_.T + intercept_``. ``fit`` trains a clone of it; see :meth:`from_fitted` for a fitted one.
    codes : "adaptive" or "trellis"
        Trellis codes are the smaller for a given quality: ``n_bits`` is then the size of a class in bits, and the
        basis is ``projection="hadamard"``, or ``"principal"`` axes that are learned from the weights and kept. They
        have no signs: ``scoring="asymmetric"`` alone.
    n_bits : int or "auto"
        Projections kept for each class, or bits of a trellis code. "auto" takes the smallest number that is expected
        to agree with the uncompressed classifier on 99% of inputs: measured on the data of ``fit`` where there are any,
        otherwise predicted from the weights (see the notes); ``choice_`` says what was found, and a warning where
        nothing was.
    n_pool : int, optional
        Projections computed; the number of features when not given.
    projection : kind or Projection
        "hadamard", "gaussian", "rademacher", "sparse", "circulant", or a projection already made.
    scoring : "asymmetric" or "hamming"
        ``asymmetric`` keeps the real projections of inputs: scores estimate the logits without bias, weight norms and
        intercepts included, and a class whose weight vector is zero scores its intercept. ``hamming`` is the paper's:
        the class with the fewest differing signs; norms and intercepts play no part (a warning says so where there
        are intercepts), and a zero weight vector raises.
    shortlist : int, optional
        Keep the weights too, and decide by exact logits among so many classes of the highest score.
    shortlist_storage : "original", "float16" or "int8"
        How these weights are held and saved: as given (a memory map stays on disk), or smaller.
    layout : "compact" or "fast"
        Layout of the codes, see :class:`topsign.AdaptiveCodes`.
    keep_estimator : bool
        Keep the fitted estimator in pickles; without it they hold the compressed head alone.
    random_state : int, Generator or None

    Attributes
    ----------
    head_ : Head
        The head itself, which needs no scikit-learn.
    classes_ : array of labels
    n_bits_ : int
    choice_ : Choice
        With ``n_bits="auto"``: n_bits, the agreement expected of it, and whether that is measured ("data") or "theory".
    estimator_ : the uncompressed classifier, for :meth:`report`; not there after ``from_weights`` or ``load``
    storage_bits_, compression_ratio_
        Size of everything that a prediction needs, and how many times that is smaller than float32.

    Notes
    -----
    A prediction from weights alone assumes inputs that are a class's weight vector in normal noise, the share of signal
    in their energy uniform; it was within 2 points of what the CIFAR-10 head measures (of trellis codes within 3, from
    24 to 512 bits), and too good by 5 to 13 points for scikit-learn's digits.

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
        codes: str = "adaptive",
        n_bits: int | str = "auto",
        n_pool: int | None = None,
        projection: str | Projection = "hadamard",
        scoring: str = "asymmetric",
        shortlist: int | None = None,
        shortlist_storage: str = "original",
        layout: str = "compact",
        keep_estimator: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.codes = codes
        self.n_bits = n_bits
        self.n_pool = n_pool
        self.projection = projection
        self.scoring = scoring
        self.shortlist = shortlist
        self.shortlist_storage = shortlist_storage
        self.layout = layout
        self.keep_estimator = keep_estimator
        self.random_state = random_state

    def _make_recipe(self, n_features: int) -> Recipe:
        if check_choice(self.codes, "codes", CODES) == "trellis":
            return self._trellis_recipe(no_weights(n_features))
        return Recipe.make(
            "adaptive",
            n_features=n_features,
            n_bits=1 if self.n_bits == "auto" else check_count(self.n_bits, "n_bits"),
            n_pool=self.n_pool,
            projection=self.projection,
            layout=self.layout,
            random_state=self.random_state,
        )

    def _trellis_recipe(self, weights: Array) -> Recipe:
        """Learned from weights; without any only checked, in a basis that learns nothing and a size that will do."""
        if self.scoring != "asymmetric":
            raise ValueError(
                f'trellis codes have no signs to compare: scoring must be "asymmetric", got {self.scoring!r}'
            )
        options = self._trellis_options
        if not len(weights) and self.projection == "principal":
            options["projection"] = "hadamard"
        n_bits = SMALLEST_TRELLIS if self.n_bits == "auto" else self.n_bits
        return trellis_recipe(weights, n_bits=n_bits, **options)

    @property
    def _trellis_options(self) -> dict[str, Any]:
        return {
            "n_pool": self.n_pool,
            "projection": self.projection,
            "layout": self.layout,
            "random_state": self.random_state,
        }

    def _sized(self, recipe: Recipe, coef: Array, intercept: Float64, X: Any, made: Callable[[Recipe], Head]) -> Recipe:
        trellis = recipe.family == "trellis"
        if self.n_bits != "auto":
            if trellis:
                return self._trellis_recipe(coef) if self.projection == "principal" else recipe
            if self.shortlist is None:
                warn_of_size(recipe.n_features, recipe.layout)
            return recipe
        if X is None and self.scoring == "hamming":
            raise ValueError('n_bits="auto" without data predicts logits, not Hamming scores; give n_bits a number')
        measured = None if X is None else _agreement_on(X, coef, intercept, made)
        size = 1 if self.shortlist is None else self.shortlist
        if trellis:
            recipe, self.choice_ = automatic_trellis(coef, **self._trellis_options, shortlist=size, measured=measured)
        else:
            recipe, self.choice_ = sized_recipe(recipe, coef, shortlist=size, measured=measured)
        return recipe

    @classmethod
    def _parameters_of(cls, head: Head) -> dict[str, Any]:
        if head.recipe.family not in CODES:
            _raise_other_head(cls, head)
        return {
            "codes": head.recipe.family,
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


def _agreement_on(X: Any, coef: Array, intercept: Float64, made: Callable[[Recipe], Head]) -> Callable[[Recipe], float]:
    """Agreement of a recipe's head with the exact one on data, on at most 2000 rows of them, evenly spaced."""
    signals = X.tocsr() if hasattr(X, "tocsr") else np.asarray(X)
    rows = np.unique(np.linspace(0, signals.shape[0] - 1, MAX_SAMPLE).astype(np.int64))
    signals = signals[rows].astype(np.float64)
    logits = np.asarray(signals @ np.transpose(coef) + intercept)
    best = (logits[:, 0] > 0).astype(np.int64) if logits.shape[1] == 1 else logits.argmax(axis=1)

    def agreement(recipe: Recipe) -> float:
        head = made(recipe)
        return float(np.mean(head.predict(signals) == head.classes[best]))

    return agreement


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
