"""Certificate of a compressed classifier: loss of accuracy on labelled data with a confidence interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # submodules are imported at their first use

from .._arrays import Array
from .head import Head


@dataclass(frozen=True)
class CompressionReport:
    """Accuracy of a compressed classifier compared with the uncompressed one, as fractions."""

    n_samples: int
    accuracy: float
    accuracy_uncompressed: float
    interval: tuple[float, float]
    """Confidence interval of the loss of accuracy in the population of the samples."""
    confidence: float
    agreement: float
    """Fraction of samples on which both predict the same class."""
    storage_bits: int
    """Bits that a prediction needs: codes, scales, intercepts and the weights of a shortlist."""
    shortlist_bits: int
    """Bits of the weights of a shortlist, which storage_bits counts."""
    compression_ratio: float

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


def compare(
    labels: Array, predicted: Array, uncompressed: Array, *, confidence: float, head: Head
) -> CompressionReport:
    """Compare the predictions of two classifiers for the same samples."""
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
        interval=loss_interval(lost, gained, n_samples=len(labels), confidence=confidence),
        confidence=confidence,
        agreement=float((predicted == uncompressed).mean()),
        storage_bits=8 * head.nbytes,
        shortlist_bits=8 * head.shortlist_nbytes,
        compression_ratio=head.compression_ratio,
    )


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
