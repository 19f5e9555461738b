"""Every theorem of "Too Sharp, Too Sure" as a check on one model and one data set."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from toosure.curvature import gn_sharpness, jacobian_norms
from toosure.margins.attacks import attack, linearised_margin
from toosure.margins.certified import CertifiedBounds, certified_bounds
from toosure.margins.clean_pass import clean_pass
from toosure.margins.label_shift import label_preserving_shift
from toosure.margins.margins import summarise
from toosure.margins.measurements import Curvature, Measurements
from toosure.margins.robust import Norm, check_chunk, check_pair, check_radius, dtype_of
from toosure.margins.statements import Certificate
from toosure.margins.theorems import all_statements


def certify(
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    *,
    eps: float,
    norm: Norm = "linf",
    test: tuple[Tensor, Tensor] | None = None,
    bins: int = 15,
    curvature: bool = True,
    steps: int = 20,
    restarts: int = 2,
    units: int = 512,
    generators: int = 0,
    seed: int = 0,
    chunk: int = 500,
) -> Certificate:
    r"""Check every statement of the paper on `data`, with robust margins at radius `eps`.

    Lemmas B.1-B.5, Theorems 4.1 and 4.2, Remark B.6, Proposition B.7 and, with a `test` set,
    Corollary B.8: each with both sides, its slack and a verdict. The clean part takes one forward
    pass; `steps` and `restarts` set the attack, `units` and `generators` the certified bounds
    (`certified_margin`), and `curvature` whether C_J and lambda_max are measured. A network that
    the certified bounds do not know leaves those statements without a verdict, and a note says so.
    Memory holds one chunk of samples and the margins of all.
    Reference: Too Sharp, Too Sure, Sec. 4 and App. B (2026), arXiv 2604.20614.

    >>> _ = torch.manual_seed(0)
    >>> model, x = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3)), torch.randn(20, 2)
    >>> certificate = certify(model, (x, model(x).argmax(1)), eps=0.01)
    >>> certificate.holds, certificate["4.2 (i) lower"].holds
    (True, True)
    """
    check_radius(eps, norm)
    check_chunk(chunk)
    x, y = check_pair(data)
    test_pair = None if test is None else check_pair(test)

    stopwatch = PartSeconds()
    with stopwatch("clean"):
        clean = clean_pass(model, x, y, bins, chunk)
    with stopwatch("attacked"):
        attacked, float64_margins = attack(
            model, x, y, eps, norm, steps=steps, restarts=restarts, seed=seed, chunk=chunk
        )
    with stopwatch("linearised"):
        linearised = linearised_margin(model, x, y, eps, norm, chunk=chunk)
    with stopwatch("certified"):
        certified, notes = try_certified(
            model, x, y, eps, norm, units=units, generators=generators, max_chunk=chunk
        )

    measured_curvature = Curvature()
    if curvature:
        measured_curvature = measure_curvature(model, x, y, chunk, stopwatch)

    transfer = None
    if test_pair is not None:
        with stopwatch("test"):
            shift = label_preserving_shift((x, y), test_pair, eps, norm)
            transfer = clean_pass(model, *test_pair, bins, chunk), shift

    measured = Measurements(
        clean=clean,
        attacked=attacked,
        linearised=linearised,
        float64_margins=float64_margins,
        certified=certified,
        curvature=measured_curvature,
        test=transfer,
        dtype_eps=float(torch.finfo(dtype_of(model, x)).eps),
    )
    return assemble(measured, eps, norm, stopwatch.seconds, notes)


def measure_curvature(
    model: nn.Module, x: Tensor, y: Tensor, chunk: int, stopwatch: "PartSeconds"
) -> Curvature:
    """Measure C_J and lambda_max, at most `chunk` samples at a time; otherwise return why not."""
    try:
        with stopwatch("C_J"):
            c_j = max(float(jacobian_norms(model, part).value.max()) for part in x.split(chunk))
        with stopwatch("lambda_max"):
            sharpness = gn_sharpness(model, (x, y), chunk=min(chunk, len(x)))
    except torch.OutOfMemoryError:
        raise
    except (ValueError, RuntimeError) as error:  # no free parameters, or a batch that is folded
        return Curvature(problem=f"not measured: {error}")

    problem = ""
    if not math.isfinite(c_j):
        problem = "C_J is not finite"
    elif not sharpness.converged:
        problem = "lambda_max did not converge"
    return Curvature(c_j, float(sharpness.value), problem)


@dataclass
class PartSeconds:
    """Measure the seconds spent in each part of a certificate."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        self.seconds[part] = time.perf_counter() - start


def try_certified(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    eps: float,
    norm: Norm,
    *,
    units: int,
    generators: int,
    max_chunk: int,
) -> tuple[CertifiedBounds | None, tuple[str, ...]]:
    """Return the certified margins, or None and a note if the network is not supported."""
    try:
        bounds = certified_bounds(
            model, x, y, eps, norm, units=units, generators=generators, max_chunk=max_chunk
        )
    except ValueError as error:
        return None, (f"no certified margins: {error}",)

    infinite = int((~torch.isfinite(bounds.margin.values + bounds.lipschitz)).sum())
    if infinite:
        return None, (f"no certified margins: the bounds of {infinite:,} samples are infinite",)
    return bounds, ()


def assemble(
    measured: Measurements,
    eps: float,
    norm: Norm,
    seconds: dict[str, float],
    notes: tuple[str, ...],
) -> Certificate:
    """Put the measurements and their statements into the certificate that a user reads."""
    margins = {name: summarise(margin.values) for name, margin in measured.robust.items()}
    margins["true"] = summarise(measured.margins)
    margins["predicted"] = summarise(torch.cat(measured.clean.predicted_margins))

    curvature = measured.curvature
    summary = f"ECE {measured.ece:.4g}, C_J {curvature.c_j:.4g}"
    summary += f", lambda_max {curvature.sharpness:.4g}"
    if curvature.problem:
        summary += f" ({curvature.problem})"
    separation = (measured.separation,) if measured.separation else ()
    rounding = (
        f"rounding allowed: {measured.clean.rounding:.1e} of the larger side; the model's dtype "
        f"moves margins by at most {measured.drift:.1e}, float64 by {measured.float64_error:.1e}"
    )

    return Certificate(
        statements=all_statements(measured),
        n=measured.clean.n,
        classes=measured.classes,
        eps=eps,
        norm=norm,
        ece=measured.ece,
        log_moments=measured.log_moments,
        margins=margins,
        robust=measured.robust,
        seconds=seconds,
        notes=(summary, *separation, rounding, *notes),
    )
