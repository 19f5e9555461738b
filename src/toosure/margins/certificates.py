"""Every theorem of "Too Sharp, Too Sure" as a check on one model and one data set."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from toosure.curvature import gn_sharpness, jacobian_norms
from toosure.margins.attacks import attacked_margin, linearised_margin
from toosure.margins.certified import Certified, certified
from toosure.margins.clean import CleanPass, clean_pass
from toosure.margins.margins import summarise
from toosure.margins.robust import Norm, RobustMargin, check_data, check_radius, dtype_of
from toosure.margins.statements import Certificate, Statement
from toosure.margins.theorems import Facts, all_statements
from toosure.margins.transfer import Shift, label_preserving_shift


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
    x, y = check_data(*data)
    clock = Clock()
    with clock("clean"):
        clean = clean_pass(model, x, y, bins, chunk)
    with clock("attacked"):
        attacked = attacked_margin(
            model, x, y, eps, norm, steps=steps, restarts=restarts, seed=seed, chunk=chunk
        )
    with clock("linearised"):
        linearised = linearised_margin(model, x, y, eps, norm, chunk=chunk)
    with clock("certified"):
        proved, notes = try_certified(model, x, y, eps, norm, units, generators, chunk)
    c_j, sharpness = math.nan, math.nan
    if curvature:
        with clock("C_J"):
            c_j = jacobian_bound(model, x)
        with clock("lambda_max"):
            sharpness = gauss_newton(model, x, y)
    transfer = None
    if test is not None:
        with clock("test"):
            transfer = transfer_facts(model, (x, y), test, eps, norm, bins, chunk)
    facts = Facts(
        clean, attacked, linearised, proved, c_j, sharpness, transfer,
        float(torch.finfo(dtype_of(model, x)).eps),
    )  # fmt: skip
    return assemble(facts, all_statements(facts), eps, norm, clock.seconds, notes)


def jacobian_bound(model: nn.Module, x: Tensor) -> float:
    """Return C_J = max_i ||dz_i / dtheta||_op, from the exact norms of the curvature room."""
    return float(jacobian_norms(model, x).value.max())


def gauss_newton(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return lambda_max of the Gauss-Newton matrix of cross-entropy."""
    return float(gn_sharpness(model, (x, y)).value)


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
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    eps: float,
    norm: Norm,
    units: int,
    generators: int,
    chunk: int,
) -> tuple[Certified | None, tuple[str, ...]]:
    """Return the certified margins, or None and a note when the network is not one we know."""
    try:
        proved = certified(model, x, y, eps, norm, units=units, generators=generators, most=chunk)
        return proved, ()
    except ValueError as error:
        return None, (f"no certified margins: {error}",)


def transfer_facts(
    model: nn.Module,
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    eps: float,
    norm: Norm,
    bins: int,
    chunk: int,
) -> tuple[CleanPass, Shift]:
    """Run the model once over the test set, and look whether it is a shift of the training set."""
    test = check_data(*test)
    return clean_pass(model, *test, bins, chunk), label_preserving_shift(train, test, eps, norm)


def assemble(
    facts: Facts,
    statements: tuple[Statement, ...],
    eps: float,
    norm: Norm,
    seconds: dict[str, float],
    notes: tuple[str, ...],
) -> Certificate:
    """Put the facts and their statements into the certificate a user reads."""
    robust: dict[str, RobustMargin] = {margin.kind: margin for margin in facts.kinds()}
    margins = {name: summarise(m.values) for name, m in robust.items()}
    margins["true"] = summarise(facts.margins)
    margins["predicted"] = summarise(torch.cat(facts.clean.predicted_margins))
    rounding = (
        f"rounding allowed: {facts.clean.rounding:.1e} of the larger side, and where logits are "
        f"compared with exact arithmetic {facts.logit_rounding:.1e}"
    )
    summary = f"ECE {facts.ece:.4g}, C_J {facts.c_j:.4g}, lambda_max {facts.sharpness:.4g}"
    return Certificate(
        statements=statements,
        n=facts.clean.n,
        classes=facts.k,
        eps=eps,
        norm=norm,
        ece=facts.ece,
        log_moments=facts.log_moments(),
        margins=margins,
        robust=robust,
        seconds=seconds,
        notes=(summary, *([facts.separation] if facts.separation else []), rounding, *notes),
    )
