"""TrellisEncoder: trellis codes with scikit-learn's face."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from ._arrays import Float32
from ._checks import check_count, check_positive
from ._estimators import SignalsTransformer, as_fitted_signals, check_signals
from ._random import RandomState
from .codes import TrellisCodes, reconstruct
from .encoding import encode, project
from .learning import learn_recipe
from .projections import Projected, Projection
from .projections.blocks import float_blocks


class TrellisEncoder(ClassNamePrefixFeaturesOutMixin, SignalsTransformer):
    """Trellis codes: smaller than adaptive ones for a given quality, and slower to make.

    Each code is a ring of bits of which every coordinate reads a window; the encoder searches for the bits whose
    reconstruction is nearest (Viterbi). With a Hadamard basis and ``center=False`` nothing is learned, and codes are
    the same bytes on every machine; principal axes and the mean are learned by ``fit``.

    Parameters
    ----------
    n_bytes : int, optional
        Bytes of one code.
    bits_per_feature : float, optional
        The same as a rate, rounded up to whole bytes. Exactly one of the two must be given.
    basis : "principal", "hadamard" or an orthonormal Projection
        ``principal`` gives bits to the directions in which signals vary most.
    center : bool or array of shape (n_features,)
        A mean of unit signals, learned (True) or given, that is put back before scores are taken.
    n_local : power of two, at most 256
        Cells, found by k-means, that have a mean, principal axes and rates of their own. The number of the cell takes
        its bits from ``n_bytes``. Worth it with some hundred signals per cell to learn from, and few bytes: their axes
        are kept with the recipe.
    window : int in [4, 12]
        Bits that a coordinate reads. 12 keeps about 1% more energy than 10 and takes four times as long; 8 is four
        times as fast.
    norms : bool
        Keep each signal's norm, in two more bytes per code.
    random_state : int, Generator or None

    Attributes
    ----------
    recipe_ : Recipe
        Everything the codes are made with.

    Examples
    --------
    >>> import numpy as np, topsign as ts
    >>> signals = np.random.default_rng(0).standard_normal((1000, 64))
    >>> encoder = ts.TrellisEncoder(n_bytes=8, basis="hadamard", center=False, random_state=7).fit(signals)
    >>> codes = encoder.encode(signals)
    >>> codes.scores(encoder.project(signals[:3])).argmax(axis=1)
    array([0, 1, 2])
    >>> encoder.decode(codes).shape
    (1000, 64)
    """

    def __init__(
        self,
        n_bytes: int | None = None,
        *,
        bits_per_feature: float | None = None,
        basis: str | Projection = "principal",
        n_local: int = 1,
        center: bool | npt.ArrayLike = True,
        window: int = 10,
        norms: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_bytes = n_bytes
        self.bits_per_feature = bits_per_feature
        self.basis = basis
        self.n_local = n_local
        self.center = center
        self.window = window
        self.norms = norms
        self.random_state = random_state

    def fit(self, signals: npt.ArrayLike, y: object = None) -> Self:
        """Learns the number of features, and the mean, axes and variances where the basis has them."""
        array = check_signals(self, signals, reset=True)
        self.recipe_ = learn_recipe(
            array,
            n_bits=8 * n_bytes_of(self.n_bytes, self.bits_per_feature, array.shape[1]),
            basis=self.basis,
            n_local=self.n_local,
            center=self.center,
            window=self.window,
            norms=self.norms,
            random_state=self.random_state,
        )
        self.mean_: Float32 | None = self.recipe_.mean
        self.seed_ = self.recipe_.seed
        return self

    def encode(self, signals: npt.ArrayLike, *, n_threads: int | None = None) -> TrellisCodes:
        """One code per signal; a zero signal raises. Reads signals block by block."""
        check_is_fitted(self)
        made = encode(self.recipe_, as_fitted_signals(self, signals), n_threads=n_threads)
        return TrellisCodes(made.codes, recipe=self.recipe_)

    def to(self, device: str) -> Any:
        """An encoder of these codes on a CUDA device, "cuda" or "cuda:1": its ``encode`` gives the same bytes.

        A :class:`topsign.gpu.SignalEncoder`. Signals are projected by the processor.
        """
        check_is_fitted(self)
        gpu = import_module("topsign.gpu")  # a room above this one, which needs packages of its own
        names = getattr(self, "feature_names_in_", None)
        return gpu.SignalEncoder(self.recipe_, device=device, feature_names=names)

    def decode(self, codes: TrellisCodes) -> Float32:
        """Signals made again from their codes, see :meth:`topsign.TrellisCodes.decode`."""
        check_is_fitted(self)
        if codes.recipe != self.recipe_:
            raise ValueError("these codes were made with another recipe; use their own decode()")
        return codes.decode()

    def project(self, queries: npt.ArrayLike, *, n_threads: int | None = None) -> Float32:
        """Coordinates of unit queries in the basis, (n_queries, n_features), for :meth:`TrellisCodes.scores`."""
        check_is_fitted(self)
        queries = as_fitted_signals(self, queries, name="queries")
        return Projected.of(project(self.recipe_, queries, n_threads=n_threads)[0], self.recipe_)

    def transform(self, signals: npt.ArrayLike) -> Float32:
        """Signals as their codes have them, (n_signals, n_features): what is left of them after compression.

        A zero signal stays zero.
        """
        check_is_fitted(self)
        array = check_signals(self, signals)
        decoded = reconstruct(self.recipe_, encode(self.recipe_, array, allow_zero=True).codes)
        for block in float_blocks(array, self.recipe_.projection.block_signals):
            decoded[block.rows] *= np.sqrt(block.square_norms)[:, np.newaxis].astype(np.float32)
        return decoded

    @property
    def _n_features_out(self) -> int:
        """Columns of :meth:`transform`, as scikit-learn asks for them."""
        return self.n_features_in_


def n_bytes_of(n_bytes: int | None, bits_per_feature: float | None, n_features: int) -> int:
    """Bytes of a code, from one of the two ways to ask for them."""
    if (n_bytes is None) == (bits_per_feature is None):
        raise ValueError(
            "give exactly one of n_bytes and bits_per_feature, got "
            f"n_bytes={n_bytes!r} and bits_per_feature={bits_per_feature!r}"
        )
    if n_bytes is not None:
        return check_count(n_bytes, "n_bytes")
    assert bits_per_feature is not None
    return int(np.ceil(check_positive(bits_per_feature, "bits_per_feature", maximum=16) * n_features / 8))
