"""Random and learned linear operators, each determined by its kind, seed and options."""

from __future__ import annotations

from typing import Any

from .._checks import check_choice
from .._random import RandomState
from .base import Projected as Projected
from .base import Projection as Projection
from .learned import Principal as Principal
from .random_operators import Circulant as Circulant
from .random_operators import Gaussian as Gaussian
from .random_operators import Hadamard as Hadamard
from .random_operators import Rademacher as Rademacher
from .random_operators import Sparse as Sparse

KINDS: dict[str, type[Projection]] = {cls.kind: cls for cls in (Gaussian, Rademacher, Sparse, Hadamard, Circulant)}


def make_projection(
    kind: str, *, n_features: int, n_pool: int | None = None, random_state: RandomState = None, **options: Any
) -> Projection:
    """Make a random projection from n_features to n_pool dimensions.

    Parameters
    ----------
    kind : "hadamard", "gaussian", "rademacher", "sparse" or "circulant"
    n_features : int
        Length of a signal.
    n_pool : int, optional
        Number of projections; n_features by default.
    random_state : int, Generator or None
        Stored as one integer in ``.seed``; None draws a fresh seed.
    **options
        Options of the ``kind``: ``rounds`` (hadamard), ``density`` (sparse), ``spectrum`` (circulant).

    Examples
    --------
    >>> make_projection("hadamard", n_features=8192, random_state=7)
    Hadamard(n_features=8192, n_pool=8192, seed=7, rounds=3)
    """
    cls = KINDS[check_choice(kind, "kind", tuple(KINDS))]
    known = list(cls.option_names)
    if not options.keys() <= set(known):
        have = f"the options {known}" if known else "no options"
        raise TypeError(f"a {kind} projection has {have}, got {sorted(options)}")
    return cls(n_features=n_features, n_pool=n_pool, random_state=random_state, **options)


def resolve_projection(
    projection: str | Projection, *, n_features: int, n_pool: int, random_state: RandomState, name: str = "projection"
) -> Projection:
    """Return a projection of these sizes from its kind, or check an existing projection."""
    if not isinstance(projection, Projection):
        check_choice(projection, name, tuple(KINDS))
        return make_projection(projection, n_features=n_features, n_pool=n_pool, random_state=random_state)
    if projection.shape != (n_pool, n_features):
        raise ValueError(
            f"the given projection has shape {projection.shape}, but these data need "
            f"(n_pool, n_features) = {(n_pool, n_features)}; make one with this shape, or pass its kind as a string"
        )
    if random_state is not None:
        raise ValueError("an existing projection has its own seed; leave random_state=None")
    return projection
