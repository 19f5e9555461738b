"""Every theorem of "Too Sharp, Too Sure" as a check on one model and one data set."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from toosure.curvature import gn_sharpness, jacobian_norms
from toosure.margins.attacks import attack, linearised_margin
from toosure.margins.certified import Certified, certified
from toosure.margins.clean import clean_pass
from toosure.margins.facts import Curvature, Facts
from toosure.margins.margins import summarise
from toosure.margins.robust import Norm, check_chunk, check_pair, check_radius, dtype_of
from toosure.margins.statements import Certificate
from toosure.margins.theorems import all_statements
from toosure.margins.transfer import label_preserving_shift


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
    (`certified_margin`), and `curvature` whether C_J and lambda_max are measured. A network the
    certified bounds do not know leaves those statements undecided, and a note says so.
    Nothing but N margins is kept beyond a chunk of samples.
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
    other = None if test is None else check_pair(test)
    clock = Clock()
    with clock("clean"):
        clean = clean_pass(model, x, y, bins, chunk)
    with clock("attacked"):
        attacked, exact = attack(
            model, x, y, eps, norm, steps=steps, restarts=restarts, seed=seed, chunk=chunk
        )
    with clock("linearised"):
        linearised = linearised_margin(model, x, y, eps, norm, chunk=chunk)
    with clock("certified"):
        proved, note = try_certified(
            model, x, y, eps, norm, units=units, generators=generators, most=chunk
        )
    measured = measure_curvature(model, x, y, chunk, clock) if curvature else Curvature()
    transfer = None
    if other is not None:
        with clock("test"):
            shift = label_preserving_shift((x, y), other, eps, norm)
            transfer = clean_pass(model, *other, bins, chunk), shift
    unit = float(torch.finfo(dtype_of(model, x)).eps)
    facts = Facts(
        clean, attacked, linearised, exact, proved, curvature=measured, test=transfer, unit=unit
    )
    return assemble(facts, eps, norm, clock.seconds, note)


def measure_curvature(
    model: nn.Module, x: Tensor, y: Tensor, chunk: int, clock: "Clock"
) -> Curvature:
    """Measure C_J and lambda_max, at most `chunk` samples at a time, or say why not."""
    try:
        with clock("C_J"):
            c_j = max(float(jacobian_norms(model, part).value.max()) for part in x.split(chunk))
        with clock("lambda_max"):
            sharpness = gn_sharpness(model, (x, y), chunk=min(chunk, len(x)))
    except torch.OutOfMemoryError:
        raise
    except (ValueError, RuntimeError) as error:  # no free parameters, or a batch that is folded
        return Curvature(problem=f"not measured: {error}")
    problem = "" if sharpness.converged else "lambda_max did not converge"
    problem = problem if math.isfinite(c_j) else "C_J is not finite"
    return Curvature(c_j, float(sharpness.value), problem)


@dataclass
class Clock:
    """Seconds spent in each part of a certificate."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        self.seconds[part] = time.perf_counter() - start


def try_certified(
    model: nn.Module, x: Tensor, y: Tensor, eps: float, norm: Norm, **settings: Any
) -> tuple[Certified | None, tuple[str, ...]]:
    """Return the certified margins, or None and a note when the network is not one we know."""
    try:
        proved = certified(model, x, y, eps, norm, **settings)
    except ValueError as error:
        return None, (f"no certified margins: {error}",)
    lost = int((~torch.isfinite(proved.margin.values + proved.lipschitz)).sum())
    if lost:
        return None, (f"no certified margins: the bounds of {lost:,} samples are infinite",)
    return proved, ()


def assemble(
    facts: Facts, eps: float, norm: Norm, seconds: dict[str, float], notes: tuple[str, ...]
) -> Certificate:
    """Put the facts and their statements into the certificate a user reads."""
    margins = {name: summarise(m.values) for name, m in facts.robust.items()}
    margins["true"] = summarise(facts.margins)
    margins["predicted"] = summarise(torch.cat(facts.clean.predicted_margins))
    rounding = (
        f"rounding allowed: {facts.clean.rounding:.1e} of the larger side; the model's dtype moves "
        f"margins by at most {facts.drift:.1e}, float64 by {facts.noise:.1e}"
    )
    known = facts.curvature
    summary = f"ECE {facts.ece:.4g}, C_J {known.c_j:.4g}, lambda_max {known.sharpness:.4g}"
    summary += f" ({known.problem})" if known.problem else ""
    return Certificate(
        statements=all_statements(facts),
        n=facts.clean.n,
        classes=facts.k,
        eps=eps,
        norm=norm,
        ece=facts.ece,
        log_moments=facts.log_moments,
        margins=margins,
        robust=facts.robust,
        seconds=seconds,
        notes=(summary, *([facts.separation] if facts.separation else []), rounding, *notes),
    )
