"""Confidence minus accuracy of each predicted class, which an error over all rows averages away."""

from typing import NamedTuple

import torch
from torch import Tensor

from toosure.metrics.confidence import top_label
from toosure.metrics.inputs import ArrayLike, as_confidence, as_distributions, as_metric_inputs

MAX_CUTS = 25  # of the confidences, by rows and again by doubt: 48 edges, 49 strata at most
ROWS_PER_CUT = 40


class ClassTable(NamedTuple):
    """Rows and misses of each predicted class, by strata of nearly equal confidence.

    A miss is a wrong row. The misses of a class are compared with its share of the misses of each
    stratum, n_ks m_s / n_s (n_ks rows of class k in stratum s, n_s rows and m_s misses of all
    classes). These are the misses of rows with the same confidences, whatever their class.
    """

    classes: Tensor  # (K,) numbers of the classes that were predicted
    confidence: Tensor  # (K,) float64, mean
    counts: Tensor  # (S, K) float64
    misses: Tensor  # (S, K) float64
    stratum: Tensor  # (N,) of each row
    place: Tensor  # (N,) of each row's class among the K

    def rows(self) -> Tensor:
        """Return how often each class was predicted, (K,)."""
        return self.counts.sum(0)

    def gaps(self) -> Tensor:
        """Return mean confidence minus accuracy of each class, (K,)."""
        return self.confidence - 1 + self.misses.sum(0) / self.rows()

    def rates(self) -> Tensor:
        """Return the share of misses in each stratum, (S,)."""
        return self.misses.sum(1) / self.counts.sum(1)

    def expected(self) -> Tensor:
        """Return the misses that each class would have at the rates of all classes, (K,)."""
        return self.rates() @ self.counts

    def variance(self) -> Tensor:
        """Return the variance of the misses where each stratum's fall on its rows at random, (K,).

        Hypergeometric: n_ks (n_s - n_ks) / (n_s - 1) times m_s / n_s (1 - m_s / n_s), summed.
        """
        rows = self.counts.sum(1, keepdim=True)
        rate = self.rates()[:, None]
        spread = rate * (1 - rate) / (rows - 1).clamp(min=1)
        return (self.counts * (rows - self.counts) * spread).sum(0)

    def excess(self) -> Tensor:
        """Return the share of misses above the expected, (K,): the class's own part of the gap.

        The rest of the gap is shared by rows of the same confidences in all classes.
        """
        return (self.misses.sum(0) - self.expected()) / self.rows()


def class_gap(
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
) -> Tensor:
    r"""Return how far predicted classes differ in confidence minus accuracy, chance removed.

    The standard deviation, over rows, of their class's own part e_k of the gap (`ClassTable`):
    \sqrt{\sum_k n_k/N (e_k^2 - v_k)}, 0 where chance explains it all; v_k is the variance of e_k
    if the misses at each confidence fall on the classes at random. So an error that all classes
    share, such as one wrong temperature, does not count, and small samples do not raise it.

    >>> sure, rows = torch.tensor([2.0, 0.0]), torch.arange(400)  # 88 %, for class 0 or 1
    >>> logits = torch.where((rows % 2 == 0)[:, None], sure, sure.flip(0))
    >>> labels = torch.where(rows % 8 == 0, 1 - rows % 2, rows % 2)  # misses are of class 0 only
    >>> round(float(class_gap(logits, labels)), 3)  # 25 % of them, of class 1 none
    0.124
    """
    confidence, correct = top_label(logits, labels, probs=probs)
    table = class_table(confidence.detach(), correct, top_class(logits, labels, probs))
    rows = table.rows()
    noise = table.variance() / rows**2
    return (rows / rows.sum() * (table.excess() ** 2 - noise)).sum().clamp(min=0).sqrt()


def top_class(
    logits: ArrayLike | None, labels: ArrayLike | None, probs: ArrayLike | None
) -> Tensor:
    """Return the predicted class of each row, (N,): the first of equal ones."""
    rows, _ = as_metric_inputs(logits, labels, probs)
    return (rows if probs is None else as_distributions(probs)).argmax(1)


def class_gaps(confidence: ArrayLike, correct: ArrayLike, predicted: ArrayLike) -> Tensor:
    """Return confidence minus accuracy of the rows of each class that was predicted.

    They differ by chance, too: the fewer rows a class has, the more.

    >>> confidence, correct = torch.tensor([0.9, 0.9, 0.5]), torch.tensor([True, False, True])
    >>> class_gaps(confidence, correct, torch.tensor([0, 0, 2]))
    tensor([ 0.4000, -0.5000])
    """
    confidence, correct = as_confidence(confidence, correct)
    predicted = torch.as_tensor(predicted, device=confidence.device)
    if predicted.shape != confidence.shape:
        raise ValueError(
            f"predicted must have shape {tuple(confidence.shape)}, the class of each row; "
            f"got {tuple(predicted.shape)}"
        )
    if predicted.is_floating_point() or int(predicted.min()) < 0:
        raise ValueError(
            f"predicted must be class numbers, integers from 0 on; got {predicted.dtype} from "
            f"{predicted.min():g}: call .argmax(1) on the outputs"
        )
    return class_table(confidence.detach(), correct, predicted).gaps().to(confidence.dtype)


def class_table(confidence: Tensor, correct: Tensor, predicted: Tensor) -> ClassTable:
    """Count rows and misses of a checked pair by predicted class and stratum."""
    present = predicted.bincount() > 0
    classes = present.nonzero().squeeze(1)
    place = (present.cumsum(0) - 1)[predicted]
    stratum = strata(confidence)

    width = len(classes)
    height = int(stratum.max()) + 1
    cell = 2 * (stratum * width + place) + ~correct
    hits_misses = torch.bincount(cell, minlength=2 * height * width).double()
    hits, misses = hits_misses.view(height, width, 2).unbind(2)
    counts = hits + misses
    mean = torch.bincount(place, confidence.double()) / counts.sum(0)
    return ClassTable(classes, mean, counts, misses, stratum, place)


def strata(confidence: Tensor) -> Tensor:
    """Return the stratum of each row, (N,), from cuts by equal rows and by equal doubt 1 - c.

    The misses of a sure model are among its few unsure rows, which the cuts by doubt separate. Rows
    of equal confidence share a stratum, so that the order of the rows does not matter.
    """
    n = len(confidence)
    cuts = min(MAX_CUTS, n // ROWS_PER_CUT)
    if cuts < 2:
        return torch.zeros_like(confidence, dtype=torch.long)

    ordered = confidence.sort().values
    doubt = (1 - ordered.double()).cumsum(0)
    shares = torch.arange(1, cuts, dtype=torch.float64, device=confidence.device) / cuts
    places = torch.cat([(shares * n).long(), torch.searchsorted(doubt, shares * doubt[-1])])
    edges = ordered[places.clamp(max=n - 1)].unique()

    # The highest confidence may be an edge: then no row lies above it.
    return torch.bucketize(confidence, edges)
