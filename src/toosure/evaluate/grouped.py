"""Estimates where rows come in groups: whole sequences, images or people are resampled."""

import torch

from toosure.evaluate.estimates import (
    Estimate,
    calibrated_ece,
    confidence_gap,
    estimate_of,
    hit_rate,
)
from toosure.metrics.binned import equal_width_edges, error_of
from toosure.metrics.group_draws import group_count, small_sample_factor
from toosure.metrics.grouped_bins import group_bin_sums, sums_and_replicas, without_gaps
from toosure.metrics.mean_interval import mean_over_groups
from toosure.predictions import Predictions


def grouped_mean(
    values: torch.Tensor, groups: torch.Tensor, level: float, seed: int, samples: int
) -> Estimate:
    """Return the mean over rows with an interval over groups."""
    return estimate_of(mean_over_groups(values.double(), groups, level, seed, samples))


def grouped_hit_rate(predictions: Predictions, level: float, seed: int, samples: int) -> Estimate:
    """Return the accuracy with an interval over groups, within [0, 1]."""
    assert predictions.groups is not None
    of_groups = grouped_mean(predictions.correct, predictions.groups, level, seed, samples)
    value, low, high = widened_to(of_groups, hit_rate(predictions.correct, level))
    return Estimate(value, max(0.0, low), min(1.0, high))


def grouped_gap(predictions: Predictions, level: float, seed: int, samples: int) -> Estimate:
    """Return mean confidence minus accuracy with an interval over groups."""
    assert predictions.groups is not None
    gaps = predictions.confidence.double() - predictions.correct.double()
    of_groups = grouped_mean(gaps, predictions.groups, level, seed, samples)
    value, low, high = widened_to(of_groups, confidence_gap(predictions, level, seed, samples))
    return Estimate(value, low, high)


def widened_to(of_groups: Estimate, of_rows: Estimate) -> tuple[float, float, float]:
    """Never report a narrower interval than for independent rows.

    Rows of a group are alike, so they never say more than independent rows. And groups of rows that
    are all right, or all wrong, do not vary when they are resampled.
    """
    (low, high), (lower, higher) = of_groups.ends, of_rows.ends
    return of_groups.value, min(low, lower), max(high, higher)


def grouped_chance(
    predictions: Predictions, bins: int, edge: str, level: float, seed: int, samples: int
) -> Estimate:
    """Return the ECE that a calibrated model with groups as noisy as these shows by chance.

    Each bin's gap is subtracted from the resampled groups, which leaves their noise. The result is
    never less than for independent rows.
    """
    groups = predictions.groups
    assert groups is not None
    confidence = predictions.confidence
    edges = equal_width_edges(bins, confidence)
    per_group = group_bin_sums(confidence, predictions.correct, groups, edges, edge)
    sums, replicas = sums_and_replicas(per_group, seed, samples)

    factor = small_sample_factor(group_count(groups), level)
    errors = factor * error_of(without_gaps(replicas, sums.gaps()), 1)
    low, high = errors.quantile(torch.tensor([0.5 - level / 2, 0.5 + level / 2]).double()).tolist()
    of_groups = Estimate(float(errors.mean()), low, high)
    of_rows = calibrated_ece(predictions, bins, edge, level, seed, samples)
    return max(of_groups, of_rows, key=lambda each: each.ends[1])
