"""Kullback-Leibler divergences in closed form, and how a step scales them."""

import math

import torch
from torch import Tensor


def gaussian_kl(mean: Tensor, std: Tensor, prior_mean: float, prior_std: float) -> Tensor:
    """Return KL(N(mean, std^2) || N(prior_mean, prior_std^2)), summed over the elements.

    >>> gaussian_kl(torch.zeros(3), torch.ones(3), prior_mean=2.0, prior_std=1.0).item()
    6.0
    """
    variance = std.square() + (mean - prior_mean).square()
    each = math.log(prior_std) - std.log() + variance / (2 * prior_std**2) - 0.5
    return each.sum()


def tied_gaussian_kl(std: Tensor, prior_std: float) -> Tensor:
    """Return KL(N(m, std^2) || N(m, prior_std^2)) for a prior that has the mean of the posterior.

    It depends on the standard deviations alone, so means are not drawn anywhere.
    """
    return gaussian_kl(torch.zeros_like(std), std, 0.0, prior_std)


def cauchy_kl(place: Tensor, scale: Tensor, prior_place: float, prior_scale: float) -> Tensor:
    """Return KL between Cauchy distributions, summed over the elements.

    Formula: log(((g1 + g2)^2 + (l1 - l2)^2) / (4 g1 g2)), with scales g and places l.
    Reference: Chyzak and Nielsen (2019), arXiv 1905.10965.
    """
    distance = (scale + prior_scale).square() + (place - prior_place).square()
    return (distance / (4 * prior_scale * scale)).log().sum()


def annealing(step: int, steps: int | None, share: float) -> float:
    """Return the factor of the divergence at a step, counted from 0: it rises to 1 and stays.

    Formula: min(1, (step + 1) / (share * steps)); 1 if the length of training is unknown.

    >>> [annealing(step, 10, 0.8) for step in (0, 3, 7, 9)]
    [0.125, 0.5, 1.0, 1.0]
    """
    if not steps or not share:
        return 1.0
    return min(1.0, (step + 1) / (share * steps))


def softplus_inverse(value: float) -> float:
    """Return the inverse softplus of `value`.

    >>> round(math.log1p(math.exp(softplus_inverse(0.5))), 6)
    0.5
    """
    return math.log(math.expm1(value))
