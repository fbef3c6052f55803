"""Linear heads: codes of their weight vectors, shortlists of exact logits, links to probabilities, and files."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, NamedTuple, NoReturn, Self, TypeVar

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Bytes, Float32, Float64, Int64
from .._checks import as_signals, check_choice, check_count, suggests_keywords
from .._files import MALFORMED, parse_json, write_file
from .._lazy import lazy
from .._random import RandomState
from .._safetensors import KINDS, header_size, pack_header, parse_header
from ..errors import StorageError
from ..families import SCORINGS, Logits, Recipe
from ..families.base import check_real_valued
from ..kernels import CodeBlocks
from ..projections import Projection
from ..projections.blocks import MAX_NORM
from .scores import Scores, check_operands, highest
from .size_selection import HeldOut, RecipeOptions

FORMAT = 3  # of head files
STORAGES = ("original", "float16", "int8")

Values = TypeVar("Values")
Indices = TypeVar("Indices")


class TopK(NamedTuple, Generic[Values, Indices]):
    """Highest logits of each input, descending, and positions of their classes; ties by ascending class."""

    values: Values  #: (n_inputs, k) array of a head, or tensor of a layer
    indices: Indices  #: (n_inputs, k)


@dataclass(frozen=True, eq=False)
class Shortlist:
    """Weights that give exact logits of the classes with the highest estimates.

    Weights are kept as given (in memory or memory-mapped), or converted to float16 or to int8 with a scale per row.
    """

    size: int  #: classes per input
    weights: Array  #: (n_vectors, n_features): floats or int8 rows
    row_scales: Float32 | None = None  #: (n_vectors,) of int8 rows

    @classmethod
    def of(cls, size: int, weights: Array, storage: str = "original") -> Self:
        """Return a shortlist of ``size`` classes; ``weights`` are in a ``storage``: "original", "float16" or "int8"."""
        size = check_count(size, "shortlist")
        check_choice(storage, "shortlist_storage", STORAGES)
        if storage == "original":
            return cls(size, weights)
        if storage == "float16":
            largest = float(np.abs(weights).max(initial=0))
            if largest > 65504:
                raise ValueError(f'weights up to {largest:.3g} do not fit float16; take shortlist_storage="int8"')
            return cls(size, np.asarray(weights, np.float16))
        scales = np.abs(weights).max(axis=1).astype(np.float32) / 127
        rows = np.rint(weights / np.where(scales > 0, scales, 1)[:, np.newaxis]).astype(np.int8)
        return cls(size, rows, scales)

    @property
    def storage(self) -> str:
        """Description of the storage of the weights."""
        return "int8" if self.row_scales is not None else str(self.weights.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights."""
        return self.weights.nbytes + (0 if self.row_scales is None else self.row_scales.nbytes)

    def products(self, signals: Array, rows: Int64) -> Float64:
        """Return the inner products of each of the ``signals`` with its own ``rows`` of the weights, in their shape."""
        products = [self.rows(chosen) @ signal for chosen, signal in zip(rows, signals, strict=True)]
        return np.stack(products) if products else np.empty(rows.shape)

    def rows(self, chosen: Array) -> Array:
        """Return the ``chosen`` weight vectors as floats."""
        rows = self.weights[chosen]
        if self.row_scales is not None:
            return rows * self.row_scales[chosen][:, np.newaxis]
        return rows if rows.dtype.itemsize > 2 else rows.astype(np.float32)

    def check(self, shape: tuple[int, int]) -> None:
        """Raise ValueError unless the parts read from a file are consistent and the weights have this ``shape``."""
        weights, scales = self.weights, self.row_scales
        if weights.shape != shape or weights.dtype.kind not in "fiu":
            raise ValueError(f"weights must be numbers of shape {shape}, got {weights.dtype} of shape {weights.shape}")
        if scales is not None and (scales.shape != shape[:1] or scales.dtype != np.float32):
            raise ValueError(f"weight_scales must be float32 of shape {shape[:1]}, got {scales.dtype} {scales.shape}")
        if not np.isfinite(weights).all() or (scales is not None and not np.isfinite(scales).all()):
            raise ValueError("weights holds NaN or infinity")


@suggests_keywords
@dataclass(frozen=True, eq=False)
class Head:
    """A linear head: codes of its weight vectors, which end with their scales, biases, and the recipe of the codes.

    The scikit-learn classifier and the PyTorch layer are wrappers of a head. Two classes may share one weight vector,
    whose logit is that of the second class.
    """

    recipe: Recipe  #: parameters of the codes
    codes: Bytes  #: (n_vectors, n_bytes): each row ends with a scale of two bytes
    biases: Float64  #: (n_vectors,)
    classes: Array  #: (n_classes,) labels
    scoring: str = "asymmetric"  #: or "hamming": scores are equal signs minus different signs, not logits
    link: str | None = None  #: how logits become probabilities
    shortlist: Shortlist | None = None  #: number of best classes for which exact logits are computed; None for none

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
        """Return the head of ``weights``, one row per class or only one for two ``classes``, read block by block.

        ``biases`` have one value per row, ``recipe`` encodes the rows, ``scoring`` compares codes, ``link`` makes
        probabilities of logits, and a ``shortlist`` holds the best classes' weights.
        """
        check_real_valued(recipe, scoring, None)
        codes = recipe.weight_encoder().encode(weights)
        if scoring == "hamming":
            zero = next((number for number, row in enumerate(weights) if not np.any(row)), None)
            if zero is not None:
                label = classes.tolist()[-1 if len(weights) < len(classes) else zero]
                raise ValueError(
                    f"the weight vector of class {label!r} is zero, so it has no signs to compare; drop that class, "
                    'or take scoring="asymmetric", which scores it by its intercept'
                )
            link = None
        return cls(recipe, codes, biases, classes, scoring, link, shortlist)

    @classmethod
    def from_weights(
        cls,
        weights: npt.ArrayLike,
        *,
        biases: npt.ArrayLike | None = None,
        classes: npt.ArrayLike | None = None,
        family: str = "grouped",
        n_bytes: int | str = "auto",
        n_bits: int | str | None = None,
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
        features : array of shape (n_samples, n_features), optional
            Inputs of the head that its weights were not learned from. ``n_bytes="auto"`` then takes the smallest size
            that agrees with the uncompressed head on 99% of them, instead of predicting the agreement from the weights.
        family, n_bytes, n_bits, n_pool, basis, random_state
            As in :class:`topsign.CompressedLinearClassifier`.
        link : "softmax", "sigmoid", "modified_huber" or None
            How :meth:`predict_proba` makes probabilities of logits.

        Examples
        --------
        >>> import numpy as np
        >>> weights = np.random.default_rng(0).standard_normal((1000, 512))
        >>> head = Head.from_weights(weights, n_bytes=30, random_state=7)
        >>> head.topk(weights[:3], k=2).indices[:, 0], head.nbytes
        (array([0, 1, 2]), 32000)
        """
        rows, labels = check_weights(weights, classes=classes)
        check_link(link)
        sizes: dict[str, Any] = {"n_bytes": n_bytes, "n_bits": n_bits, "n_pool": n_pool}
        options = RecipeOptions(family, **sizes, basis=basis, random_state=random_state)
        intercepts = check_intercepts(biases, len(rows), "biases")

        def make(recipe: Recipe) -> Any:
            return cls.of(recipe, rows, intercepts, labels, link=link)

        held_out = []
        if features is not None:
            if not options.automatic:
                raise ValueError('features choose the size of "auto", but a size was given; leave one of them')
            inputs = as_signals(features, n_features=rows.shape[1], name="features")
            held_out = [hold_out(inputs, rows, intercepts, make)]
        made: Self = make(options.choose(rows, held_out=held_out)[0])
        return made

    def with_shortlist(self, size: int, weights: npt.ArrayLike, *, storage: str = "original") -> Self:
        """Return a head with exact logits among the ``size`` best classes of each input; the codes stay.

        Parameters
        ----------
        weights : array or memory map of shape (n_vectors, n_features)
        storage : "original", "float16" or "int8"
            How the ``weights`` are held and saved.
        """
        exact = as_signals(weights, n_features=self.n_features, name="weights")
        if len(exact) != len(self.biases):
            raise ValueError(
                f"a shortlist needs the weights of all {len(self.biases)} weight vectors, got {len(exact)}"
            )
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
        """Return scores of the rows of ``X``, (n_samples, n_classes); one column if two classes share a weight vector.

        With ``scoring="asymmetric"`` they estimate the logits. A shortlist makes the logits of its classes exact, and
        the estimates of all others are lowered to just below them. With ``scoring="hamming"`` they are the number of
        equal signs minus the number of different signs. With few classes this is slower than a product with dense
        weights, and in batches slower than one in int8; :meth:`predict` and :meth:`topk` are faster.
        """
        signals = as_signals(X, n_features=self.n_features, name="X")
        out = np.empty((len(signals), len(self.biases)))
        for rows, inputs in self._scores.prepare(signals, "X"):
            self._values(signals[rows], inputs, out[rows])
        return out

    def topk(self, X: npt.ArrayLike, k: int) -> TopK[Float64, Int64]:
        """Return the ``k`` highest scores of each row of ``X``, and positions in ``classes``.

        The scores of all classes are held at once only if k is larger than a shortlist.
        """
        signals = as_signals(X, n_features=self.n_features, name="X")
        k = check_count(k, "k", maximum=len(self.classes))
        found = TopK(np.empty((len(signals), k)), np.empty((len(signals), k), np.int64))
        for rows, inputs in self._scores.prepare(signals, "X"):
            found.indices[rows], found.values[rows] = self._best(signals[rows], inputs, k)
        return found

    def predict(self, X: npt.ArrayLike) -> Array:
        """Return the class with the highest score for each row of ``X``, the first one in case of a tie."""
        if self.one_vector:
            return self.classes[(self.logits(X)[:, 0] > 0).astype(np.int64)]
        return self.classes[self.topk(X, 1).indices[:, 0]]

    def predict_proba(self, X: npt.ArrayLike) -> Float64:
        """Return probabilities of the classes for the rows of ``X``, from the logits by the link."""
        if self.link is None:
            raise ValueError(
                "this head has no link from logits to probabilities; give it one: "
                f"dataclasses.replace(head, link=...) with one of {', '.join(map(repr, LINKS))}"
            )
        return probabilities(self.link, self.logits(X))

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file, ``path``, of plain arrays and the recipe; an existing file is replaced atomically.

        The weights of a shortlist are written as they are held.
        """
        record: dict[str, Any] = {"recipe": self.recipe.to_json(), "scoring": self.scoring, "link": self.link}
        arrays: dict[str, Array] = {"codes": self.codes, "biases": self.biases}
        if self.classes.dtype.kind in "iufb":
            arrays["classes"] = self.classes
        elif all(isinstance(label, str) for label in self.classes.tolist()):
            record["classes"] = self.classes.tolist()
        else:
            raise TypeError(f"classes must be numbers or strings to be saved, got {self.classes[:3]!r}")
        if self.shortlist is not None:
            record["shortlist"], arrays["weights"] = self.shortlist.size, self.shortlist.weights
            if self.shortlist.row_scales is not None:
                arrays["weight_scales"] = self.shortlist.row_scales
        write_head(path, record, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the head that :meth:`save` wrote to ``path``; raise StorageError if it is another file or damaged."""
        record, arrays = read_head(path)
        try:
            recipe = Recipe.from_json(record["recipe"], path)
            scoring = check_choice(record["scoring"], "scoring", SCORINGS)
            codes, biases = np.ascontiguousarray(arrays["codes"]), arrays["biases"]
            classes = np.array(record["classes"]) if "classes" in record else arrays["classes"]
            _check_arrays(recipe, scoring, codes, biases, classes)
            shortlist = None
            if "shortlist" in record:
                size = check_count(record["shortlist"], "shortlist")
                shortlist = Shortlist(size, arrays["weights"], arrays.get("weight_scales"))
                shortlist.check((len(biases), recipe.n_features))
            return cls(recipe, codes, biases, classes, scoring, check_link(record["link"]), shortlist)
        except StorageError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            _raise_not_a_head(path, f"it has no {error.args[0]!r}" if isinstance(error, KeyError) else str(error))

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


def hold_out(signals: Any, weights: Array, biases: Float64, make: Callable[[Recipe], Head]) -> HeldOut:
    """Return inputs that the weights were not learned from, with their classes by the exact head."""
    signals = signals.astype(np.float64)
    logits = np.asarray(signals @ np.transpose(weights) + biases)
    best = (logits[:, 0] > 0).astype(np.int64) if logits.shape[1] == 1 else logits.argmax(axis=1)
    return HeldOut(signals, best, weights, make)


# Checks


def check_weights(
    coef: object, *, classes: npt.ArrayLike | None = None, n_features: int | None = None
) -> tuple[Array, Array]:
    """Return weight vectors as rows, and labels (0, 1, ... by default).

    There is one row per class, or a single row for two classes. Finiteness is checked when the rows are read.
    """
    if hasattr(coef, "tocsr"):
        raise TypeError("weights must be dense, got a sparse matrix; pass weights.toarray()")
    weights = as_signals(coef, n_features=n_features, name="weights")
    labels = np.arange(max(2, len(weights))) if classes is None else np.array(classes, ndmin=1)
    if labels.ndim != 1 or len(np.unique(labels)) != len(labels):
        raise ValueError(f"classes must be a sequence of distinct labels, got {classes!r}")
    alone = len(weights) == 1 and len(labels) == 2
    if not len(weights) or not (len(weights) == len(labels) or alone):
        raise ValueError(
            "weights must have one row per class, or a single row for two classes, "
            f"got {len(weights)} rows for classes of shape {labels.shape}"
        )
    return weights, labels


def check_intercepts(values: object, n_vectors: int, name: str) -> Float64:
    """Return one finite intercept per weight vector, zeros by default."""
    array = np.zeros(n_vectors) if values is None else np.array(values, np.float64, ndmin=1)
    if array.shape != (n_vectors,):
        raise ValueError(f"{name} must be {n_vectors} values, one per weight vector, got shape {array.shape}")
    if not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array)))
        raise ValueError(f"{name} must be finite, got {name}[{row}] = {array[row]}")
    return array


def check_link(link: Any) -> str | None:
    """Check the name of a link, or None."""
    return None if link is None else check_choice(link, "link", tuple(LINKS))


def _check_arrays(recipe: Recipe, scoring: str, codes: Bytes, biases: Array, classes: Array) -> None:
    """Raise ValueError unless the arrays of a file fit together, because kernels do not check."""
    n_classes = len(classes) if classes.ndim == 1 else 0
    shared = n_classes == 2 and biases.shape == (1,)  # one weight vector for two classes
    if not (n_classes and (shared or biases.shape == (n_classes,))):
        raise ValueError(f"biases of shape {biases.shape} do not fit classes of shape {classes.shape}")
    check_operands(recipe, codes, biases)
    recipe.check(np.ascontiguousarray(codes[:, : recipe.code_bytes]), name="codes")
    if scoring not in recipe.scorings:
        raise ValueError(f"{recipe.family} codes have no {scoring} scores")
    if biases.dtype != np.float64 or not (np.abs(biases) <= MAX_NORM).all():
        raise ValueError(f"biases must be float64 of at most {MAX_NORM:g}, above which logits overflow")


# Links from logits to probabilities


def probabilities(link: str, logits: Float64) -> Float64:
    """Return probabilities (n_samples, n_classes) of logits (n_samples, n_vectors); one column means two classes."""
    values = LINKS[link](np.hstack([-logits, logits]) if logits.shape[1] == 1 else logits)
    return np.asarray(values / values.sum(axis=1, keepdims=True))


def _softmax(logits: Float64) -> Float64:
    powers: Float64 = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers


def _sigmoid(logits: Float64) -> Float64:
    small = np.exp(-np.abs(logits))  # no overflow on either side
    return np.asarray(np.where(logits >= 0, 1, small) / (1 + small))


def _modified_huber(logits: Float64) -> Float64:
    """Apply the link of SGDClassifier(loss="modified_huber"): linear in [-1, 1], uniform if all logits are below -1."""
    ramps = (np.clip(logits, -1, 1) + 1) / 2
    return np.where(ramps.sum(axis=1, keepdims=True) > 0, ramps, 1.0)


LINKS: dict[str, Callable[[Float64], Float64]] = {
    "sigmoid": _sigmoid,
    "softmax": _softmax,
    "modified_huber": _modified_huber,
}


# Files


def write_head(path: str | os.PathLike[str], record: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Write a safetensors file atomically: arrays, and a JSON record with a checksum of all of it."""
    plain = {name: np.ascontiguousarray(one, one.dtype.newbyteorder("<")) for name, one in arrays.items()}
    if odd := [str(one.dtype) for one in plain.values() if one.dtype not in KINDS]:
        raise TypeError(f"a head of dtype {odd[0]} cannot be saved; convert weights and classes to float32 or float64")
    plain = dict(sorted(plain.items(), key=lambda item: -item[1].itemsize))  # aligned, without gaps
    text = json.dumps({"format": FORMAT} | record)
    header = pack_header(plain, {"head": text, "checksum": str(_checksum(text, plain))})
    write_file(path, lambda file: [file.write(header), *(file.write(one.data) for one in plain.values())])


def read_head(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the record and the arrays of a head file; raise StorageError for any other file."""
    try:
        content = np.fromfile(path, np.uint8)
        size = header_size(content[:8].tobytes(), len(content))
        header = parse_header(content[8 : 8 + size].tobytes(), len(content))
        text, stored = header.metadata["head"], int(header.metadata["checksum"])
        arrays = {name: one.view(content) for name, one in header.tensors.items() if one.dtype is not None}
        record = parse_json(text.encode())
        version = record["format"]
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except (*MALFORMED, AttributeError) as error:
        _raise_not_a_head(path, f"{error!r}; Head.save writes heads")
    if version != FORMAT:
        _raise_not_a_head(path, f"format {version!r}, this version reads format {FORMAT}; upgrade topsign")
    if stored != (computed := _checksum(text, arrays)):
        raise StorageError.bad_checksum(path, "head", stored=stored, computed=computed)
    return record, arrays


def _checksum(text: str, arrays: dict[str, Array]) -> int:
    value = zlib.crc32(text.encode())
    for name, one in sorted(arrays.items()):
        value = zlib.crc32(one.data if one.size else b"", zlib.crc32(f"{name} {one.dtype} {one.shape}".encode(), value))
    return value


def _raise_not_a_head(path: str | os.PathLike[str], why: str) -> NoReturn:
    raise StorageError(path, "head", f"not a head that this version can read: {why}")
