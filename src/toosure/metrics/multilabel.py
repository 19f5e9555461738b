"""Calibration of independent binary outputs (N, K): each label, all pooled, and the worst ones."""

import math
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from toosure.metrics.binned import (
    Reliability,
    ece_from_confidence,
    reliability_from_confidence,
    wilson_interval,
)
from toosure.metrics.conversion import to_tensor
from toosure.metrics.group_draws import group_count
from toosure.metrics.inputs import ArrayLike, as_logits, at_least_float32, check_finite, one_of
from toosure.metrics.interval_ends import Interval
from toosure.metrics.intervals import confidence_interval_from_confidence
from toosure.metrics.label_faults import LabelChance, judge_labels
from toosure.metrics.label_hints import mark_hint
from toosure.metrics.mean_interval import (
    interval_of_mean,
    mean_offsets,
    mean_over_groups,
    student_interval,
)
from toosure.metrics.resampler import Resampler
from toosure.metrics.smooth import smece_from_confidence

Fault = Literal["", "too high", "too low", "uneven"]


class Pairs(NamedTuple):
    """Checked outputs of K labels, and which entries are not ignored."""

    probs: Tensor  # (N, K)
    targets: Tensor  # (N, K) bool
    nll: Tensor  # (N, K) float64, of each entry
    known: Tensor  # (N, K) bool, False where the target is ignored


class LabelCalibration(NamedTuple):
    """One label: its frequency, its mean probability, and whether they differ beyond chance."""

    name: str
    samples: int
    frequency: float
    probability: float  # mean
    gap: Interval  # mean probability minus frequency
    ece: Interval
    smece: Interval
    brier: Interval  # of one column, mean (p - y)^2
    nll: Interval
    adjusted_p: float  # chance that any of the labels shows as much, if all are calibrated
    fault: Fault


class MultilabelCalibration(NamedTuple):
    """Every label, all entries pooled, and the labels that chance does not explain."""

    labels: tuple[LabelCalibration, ...]
    pooled: dict[str, Interval]  # gap, ece, smece, brier, nll; whole rows are resampled

    @property
    def worst(self) -> tuple[LabelCalibration, ...]:
        """The labels with a fault, the largest ECE first."""
        faulty = [label for label in self.labels if label.fault]
        return tuple(sorted(faulty, key=lambda label: -float(label.ece.value)))


def multilabel_calibration(
    logits: ArrayLike | None = None,
    targets: ArrayLike | None = None,
    bins: int = 15,
    edge: str = "right",
    level: float = 0.95,
    seed: int = 0,
    samples: int = 1000,
    ignore_index: int | None = -100,
    names: tuple[str, ...] = (),
    *,
    probs: ArrayLike | None = None,
) -> MultilabelCalibration:
    """Measure the calibration of each of K independent labels, and of all entries pooled.

    Outputs are logits or `probs` (N, K), targets 0 and 1, (N, K); entries whose target is
    `ignore_index` are left out. A label has a fault where its gap or its ECE is larger than chance
    gives the largest of all labels, at `level` (the max-T correction of Westfall & Young 1993).

    >>> p = torch.tensor([[0.9, 0.1], [0.8, 0.3], [0.2, 0.9], [0.1, 0.6]])
    >>> result = multilabel_calibration(probs=p, targets=(p > 0.5).long(), samples=50)
    >>> round(float(result.labels[1].gap.value), 3), len(result.worst)
    (-0.025, 0)
    """
    pairs = as_multilabel(logits, targets, probs, ignore_index)
    count = pairs.probs.shape[1]
    if names and len(names) != count:
        raise ValueError(f"got {len(names)} names for {count} labels")

    names = tuple(names) or tuple(map(str, range(count)))
    tests = judge_labels([entries(pairs, k)[:2] for k in range(count)], bins, edge, seed, samples)
    labels = tuple(
        one_label(names[k], pairs, k, tests[k], bins, edge, level, seed, samples)
        for k in range(count)
    )
    return MultilabelCalibration(labels, pooled(pairs, bins, edge, level, seed, samples))


def as_multilabel(
    logits: ArrayLike | None,
    targets: ArrayLike | None,
    probs: ArrayLike | None,
    ignore_index: int | None = -100,
) -> Pairs:
    """Check the outputs and targets of independent labels, (N, K) each."""
    outputs = as_logits(one_of(logits, probs), "logits" if probs is None else "probs").detach()
    if targets is None:
        raise ValueError("targets are missing: give 0 or 1 for every output, (N, K)")
    targets = to_tensor(targets).to(outputs.device)
    if targets.shape != outputs.shape or len(outputs) < 2:
        raise ValueError(
            "targets of independent labels have the outputs' shape (N, K), of two rows at least; "
            f"got {tuple(targets.shape)} and {tuple(outputs.shape)}"
        )

    known = torch.ones_like(targets, dtype=torch.bool)
    if ignore_index is not None:
        known = targets != ignore_index
    valid = (targets == 0) | (targets == 1) | ~known
    if not bool(valid.all()):
        row, label = (~valid).nonzero()[0].tolist()
        value = float(targets[row, label])
        hint = mark_hint(value, "targets that are not known")
        if math.isnan(value):
            hint = ": write -100 for targets that are not known"
        raise ValueError(f"targets are 0 or 1; got {value:g} in row {row}, label {label}{hint}")
    if not bool(known.any(0).all()):
        label = int((~known.any(0)).nonzero()[0])
        raise ValueError(f"every target of label {label} is ignore_index: leave the label out")

    true = (targets == 1) & known
    outputs = check_finite(at_least_float32(outputs), "logits" if probs is None else "probs")
    take = pairs_of_probs if logits is None else pairs_of
    return take(outputs, true, known)


def pairs_of(logits: Tensor, true: Tensor, known: Tensor) -> Pairs:
    """Return the pairs of logits; refuse logits that are probably probabilities."""
    low, high = torch.stack(torch.aminmax(logits)).tolist()
    if low >= 0 and high <= 1:
        raise ValueError(
            "logits all lie in [0, 1], as probabilities do: pass probabilities p as probs=p; if "
            "they are logits z, pass probs=torch.sigmoid(z)"
        )
    wide = logits.double()
    return Pairs(logits.sigmoid(), true, F.softplus(wide) - true * wide, known)


def pairs_of_probs(probs: Tensor, true: Tensor, known: Tensor) -> Pairs:
    """Return the pairs of probabilities, each in [0, 1]; rows need not sum to 1."""
    low, high = torch.stack(torch.aminmax(probs)).tolist()
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"probs of independent labels lie in [0, 1]; got {low:g} to {high:g}: if these are "
            "logits, give them as logits"
        )
    wide = probs.double()
    return Pairs(probs, true, -torch.where(true, wide, 1 - wide).log(), known)


def entries(pairs: Pairs, label: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return probabilities, truth and NLL of the entries of one label that are not ignored."""
    known = pairs.known[:, label]
    return pairs.probs[known, label], pairs.targets[known, label], pairs.nll[known, label]


def one_label(
    name: str,
    pairs: Pairs,
    label: int,
    test: LabelChance,
    bins: int,
    edge: str,
    level: float,
    seed: int,
    samples: int,
) -> LabelCalibration:
    """Measure one label; rows are independent."""
    p, true, nll = entries(pairs, label)
    bootstrap: dict[str, Any] = {"level": level, "seed": seed, "samples": samples}

    return LabelCalibration(
        name=name,
        samples=len(p),
        frequency=float(true.double().mean()),
        probability=float(p.double().mean()),
        gap=gap_interval(p, true, level),
        ece=confidence_interval_from_confidence(
            ece_from_confidence, p, true, **bootstrap, bins=bins, edge=edge
        ),
        smece=confidence_interval_from_confidence(smece_from_confidence, p, true, **bootstrap),
        brier=score_interval((p.double() - true.double()).square(), level),
        nll=score_interval(nll, level),
        adjusted_p=test.adjusted_p,
        fault=fault_of(test, level),
    )


def gap_interval(p: Tensor, true: Tensor, level: float) -> Interval:
    """Return mean probability minus frequency, with Wilson's interval of the frequency.

    With Wilson, no hit among n rows does not mean a frequency of 0.
    """
    mean = p.double().mean().cpu()
    hits = true.sum().double().cpu()
    n = torch.tensor(float(len(p)), dtype=torch.float64)
    low, high = wilson_interval(hits, n, level)
    return Interval(mean - hits / n, mean - high, mean - low)


def score_interval(rows: Tensor, level: float) -> Interval:
    """Return the mean of a score that is never negative, with Student's interval."""
    interval = student_interval(rows, level)
    return interval._replace(low=interval.low.clamp(min=0))


def fault_of(test: LabelChance, level: float) -> Fault:
    """Name the fault that chance does not explain: of the mean, or of some probabilities."""
    if test.adjusted_p > 1 - level:
        return ""
    if test.gap_p > 1 - level:
        return "uneven"
    return "too high" if test.gap > 0 else "too low"


def pooled(
    pairs: Pairs, bins: int, edge: str, level: float, seed: int, samples: int
) -> dict[str, Interval]:
    """Return the measures of all entries together; rows (of K entries each) are resampled."""
    known = pairs.known.cpu()
    p, true, nll = (each.cpu()[known] for each in (pairs.probs, pairs.targets, pairs.nll))
    rows = torch.arange(len(known))[:, None].expand_as(known)[known]
    rows = rows.unique(return_inverse=True)[1]

    def score(values: Tensor) -> Interval:
        offsets = mean_offsets(values, Resampler(seed, samples), rows)
        interval = interval_of_mean(values.mean(), offsets, group_count(rows), level)
        return interval._replace(low=interval.low.clamp(min=0))

    bootstrap: dict[str, Any] = {"level": level, "seed": seed, "samples": samples}
    gaps = p.double() - true.double()
    return {
        "gap": mean_over_groups(gaps, rows, **bootstrap),
        "ece": confidence_interval_from_confidence(
            ece_from_confidence, p, true, groups=rows, **bootstrap, bins=bins, edge=edge
        ),
        "smece": confidence_interval_from_confidence(
            smece_from_confidence, p, true, groups=rows, **bootstrap
        ),
        "brier": score(gaps.square()),
        "nll": score(nll),
    }


def pooled_table(pairs: Pairs, bins: int, edge: str, level: float) -> Reliability:
    """Return the reliability table of all entries together."""
    known = pairs.known
    return reliability_from_confidence(
        pairs.probs[known], pairs.targets[known], bins, edge, level=level
    )
