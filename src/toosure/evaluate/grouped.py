"""Estimates of rows that come in groups: whole sequences, images or people are resampled."""

import torch

from toosure.evaluate.estimates import Estimate
from toosure.metrics.binned import equal_width_edges, error_of
from toosure.metrics.cluster_intervals import (
    group_bin_sums,
    interval_around,
    mean_offsets,
    small_sample_factor,
    sums_and_replicas,
    without_gaps,
)
from toosure.predictions import Predictions


def grouped_mean(
    values: torch.Tensor, groups: torch.Tensor, level: float, seed: int, samples: int
) -> Estimate:
    """Return the mean over rows with an interval over groups."""
    offsets = mean_offsets(values.double(), groups, seed, samples)
    interval = interval_around(values.double().mean(), offsets, groups, level)
    return Estimate(*(float(each) for each in interval))


def grouped_hit_rate(predictions: Predictions, level: float, seed: int, samples: int) -> Estimate:
    """Return the accuracy with an interval over groups, within [0, 1]."""
    assert predictions.groups is not None
    value, low, high = grouped_mean(predictions.correct, predictions.groups, level, seed, samples)
    return Estimate(value, max(0.0, low or 0.0), min(1.0, 1.0 if high is None else high))


def grouped_gap(predictions: Predictions, level: float, seed: int, samples: int) -> Estimate:
    """Return mean confidence minus accuracy with an interval over groups."""
    assert predictions.groups is not None
    gaps = predictions.confidence.double() - predictions.correct.double()
    return grouped_mean(gaps, predictions.groups, level, seed, samples)


def grouped_chance(
    predictions: Predictions, bins: int, edge: str, level: float, seed: int, samples: int
) -> Estimate:
    """Return the ECE that a calibrated model with groups as noisy as these shows by chance.

    Each bin's gap is taken away from the resampled groups: what is left is their noise.
    """
    groups = predictions.groups
    assert groups is not None
    confidence = predictions.confidence
    edges = equal_width_edges(bins, confidence)
    per_group = group_bin_sums(confidence, predictions.correct, groups, edges, edge)
    sums, replicas = sums_and_replicas(per_group, seed, samples)

    errors = small_sample_factor(groups, level) * error_of(without_gaps(replicas, sums.gaps()), 1)
    low, high = errors.quantile(torch.tensor([0.5 - level / 2, 0.5 + level / 2]).double()).tolist()
    return Estimate(float(errors.mean()), low, high)
