"""Curvature by sampling: batch sharpness, gradient-noise interaction, trace, spectral density."""

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from toosure.curvature.eigen.eager_basis import EagerBasis
from toosure.curvature.eigen.vectors import random_vectors
from toosure.curvature.operators import DirectOperator
from toosure.curvature.products.dense_batches import batch_quotients
from toosure.curvature.products.loss_curvature import LossCurvature, Matrix
from toosure.curvature.products.loss_hessian import LossLike
from toosure.curvature.result import Result, check_rtol
from toosure.metrics.inputs import check_count

Data = tuple[Tensor, Tensor]
BLOCK = 64  # batches taken at once on a GPU
NOT_FINITE = "not finite: a gradient is zero, or the model's outputs or derivatives overflow"
MIN_SAMPLES = 10  # batches or vectors before a standard error is believed


def batch_sharpness(
    model: nn.Module,
    data: Data,
    loss: LossLike = "ce",
    rtol: float = 5e-3,
    *,
    batch: int = 128,
    max_batches: int = 2000,
    seed: int = 0,
    **options: Any,
) -> Result:
    """Measure the mean over batches of g_B^T H_B g_B / |g_B|^2 (Andreyev & Beneventano 2024).

    A mean of ratios, over seeded batches drawn without replacement, until its relative standard
    error is below `rtol` (at least 10 batches). `error` is that standard error.
    """
    full = _checked_curvature(model, data, loss, rtol, batch, max_batches, options)
    size = min(batch, full.count)
    generator = torch.Generator().manual_seed(seed)
    if full.device.type == "cuda" and full.group is None:
        by_block = _many_batches(full, size, generator, rtol, max_batches)
        if by_block is not None:
            return by_block

    def quotients() -> Iterator[float]:
        for small in _batches(full, size, generator):
            g = small.gradient()[1]
            hg = small.apply(g[None], "hessian")[0]
            yield _ratio(g.double() @ hg.double(), g.double().square().sum())

    return _mean_of_samples(quotients(), size / full.count, rtol, max_batches, "batches")


def gni(
    model: nn.Module,
    data: Data,
    loss: LossLike = "ce",
    rtol: float = 5e-3,
    *,
    batch: int = 128,
    max_batches: int = 2000,
    seed: int = 0,
    **options: Any,
) -> Result:
    """Measure the gradient-noise interaction E_B[g_B^T H g_B] / |grad L|^2, with the full H."""
    full = _checked_curvature(model, data, loss, rtol, batch, max_batches, options)
    size = min(batch, full.count)
    generator = torch.Generator().manual_seed(seed)
    squared_norm = full.gradient()[1].double().square().sum()

    def interactions() -> Iterator[float]:
        for small in _batches(full, size, generator):
            g = small.gradient()[1]
            hg = full.apply(g[None], "hessian")[0]
            yield _ratio(g.double() @ hg.double(), squared_norm)

    return _mean_of_samples(interactions(), 1.0, rtol, max_batches, "batches")


def _checked_curvature(
    model: nn.Module,
    data: Data,
    loss: LossLike,
    rtol: float,
    batch: int,
    max_batches: int,
    options: dict[str, Any],
) -> LossCurvature:
    """Return the curvature on all data, from which batches are drawn; raise for wrong settings."""
    check_rtol(rtol)
    check_count("batch", batch)
    check_count("max_batches", max_batches)
    return LossCurvature(model, data, loss, **options)


def _ratio(numerator: Tensor, squared_norm: Tensor) -> float:
    """Divide by the squared length of a gradient: NaN if it is zero, where Python would raise."""
    return float(numerator / squared_norm)


def _batches(full: LossCurvature, size: int, generator: torch.Generator) -> Iterator[LossCurvature]:
    """Yield the loss on one random batch after another, endlessly."""
    while True:
        rows = torch.randperm(full.count, generator=generator)[:size].to(full.device)
        yield full.subset_of_all(rows)


def _many_batches(
    full: LossCurvature, size: int, generator: torch.Generator, rtol: float, max_batches: int
) -> Result | None:
    """Take the same batches, `BLOCK` at a time, and stop after the same one; None if not dense.

    On a GPU a single batch of a small network leaves most of it idle.
    """
    if full.chunked or full.forward_mode or full.mode == "train":
        return None

    # Whether the layers are a chain of dense ones is known after the first block.
    state = generator.get_state()
    first = _block_quotients(full, size, generator, min(BLOCK, max_batches))
    if first is None:
        generator.set_state(state)
        return None

    def quotients() -> Iterator[float]:
        yield from first.tolist()
        for taken in range(BLOCK, max_batches, BLOCK):
            block = _block_quotients(full, size, generator, min(BLOCK, max_batches - taken))
            assert block is not None
            yield from block.tolist()

    return _mean_of_samples(quotients(), size / full.count, rtol, max_batches, "batches")


def _block_quotients(
    full: LossCurvature, size: int, generator: torch.Generator, count: int
) -> Tensor | None:
    """Return the batch sharpness of `count` random batches at once, (count,); None if not dense."""
    rows = [torch.randperm(full.count, generator=generator)[:size] for _ in range(count)]
    small = full.subset(torch.cat(rows).to(full.device))
    with small.temporary_mode():
        chunk = small.linearise(small.inputs, small.labels)
        return batch_quotients(chunk, small.loss, size)


def trace(
    model: nn.Module,
    data: Data,
    loss: LossLike = "ce",
    rtol: float = 0.02,
    *,
    matrix: Matrix = "gn",
    max_vectors: int = 400,
    seed: int = 0,
    **options: Any,
) -> Result:
    """Estimate the trace of a matrix by Hutchinson's random signs, to a standard error `rtol`."""
    check_rtol(rtol)
    check_count("max_vectors", max_vectors)
    curvature = LossCurvature(model, data, loss, **options)

    def traces() -> Iterator[float]:
        for number in range(max_vectors):
            signs = random_vectors(1, curvature.vector_like, seed * max_vectors + number).sign()
            product = curvature.apply(signs, matrix)
            yield float((signs.double() * product.double()).sum())

    return _mean_of_samples(traces(), 1, rtol, max_vectors, "vectors")


def spectral_density(
    model: nn.Module,
    data: Data,
    loss: LossLike = "ce",
    *,
    matrix: Matrix = "hessian",
    vectors: int = 4,
    depth: int = 40,
    seed: int = 0,
    **options: Any,
) -> Result:
    """Estimate the eigenvalue density by stochastic Lanczos quadrature (Ghorbani et al. 2019).

    `value` is (m, 2): nodes, ascending, and their weights, which sum to 1; smooth or sum them as
    you like. `error` is the standard error of the mean eigenvalue over the random vectors.
    """
    check_count("vectors", vectors)
    check_count("depth", depth)
    curvature = LossCurvature(model, data, loss, **options)
    operator = DirectOperator(curvature, matrix)

    nodes: list[Tensor] = []
    weights: list[Tensor] = []
    means: list[float] = []
    for i in range(vectors):
        start = random_vectors(1, curvature.vector_like, seed * vectors + i)
        basis = EagerBasis(operator, start)
        first = basis.vectors[0]
        for _ in range(min(depth, curvature.size) - 1):
            if not basis.is_finite or not basis.add(basis.images[-1]):
                break

        # A node weighs the squared share of the start vector along its Ritz vector.
        values = torch.from_numpy(basis.values.copy())
        share = (basis.ritz_vectors(len(basis)) @ first).double().cpu().square() / vectors
        nodes.append(values)
        weights.append(share)
        means.append(float((values * share).sum()) * vectors)

    density = torch.stack([torch.cat(nodes), torch.cat(weights)], 1)
    density = density[density[:, 0].argsort()]
    return Result(
        density,
        error=_mean_and_error(means)[1],
        products=vectors * depth,
        converged=bool(torch.isfinite(density).all()),
    )


def _mean_of_samples(
    samples: Iterator[float], cost: float, rtol: float, limit: int, name: str
) -> Result:
    """Average samples until the standard error of their mean is below `rtol`, or up to `limit`.

    `cost` is the cost of one sample in products; `name` says what is sampled.
    """
    terms: list[float] = []
    for term in islice(samples, limit):
        terms.append(term)
        mean, error = _mean_and_error(terms)
        if len(terms) >= MIN_SAMPLES and error <= rtol:
            return Result(mean, error, products=len(terms) * cost)

        # No further sample makes the mean finite again.
        if not math.isfinite(mean):
            products = len(terms) * cost
            return Result(mean, math.inf, products=products, converged=False, note=NOT_FINITE)

    note = (
        f"standard error {error:.1e} after {limit} {name}: allow more (max_{name}) or ask for less "
        "(rtol)"
    )
    return Result(mean, error, products=limit * cost, converged=False, note=note)


def _mean_and_error(terms: list[float]) -> tuple[float, float]:
    """Return the mean, and its standard error relative to it."""
    values = torch.tensor(terms, dtype=torch.float64)
    mean = float(values.mean())
    if len(terms) < 2:
        return mean, float("inf")
    return mean, float(values.std()) / len(terms) ** 0.5 / max(abs(mean), 1e-300)
