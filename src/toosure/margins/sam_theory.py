"""The theory of CSAM along a run: kappa_min, lambda and lambda_0, Lemmas 1-2, Theorems 1-3."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toosure.margins.robust import check_data, device_of, dtype_of
from toosure.margins.sam_step import Mode, SamStep, take_step
from toosure.margins.statements import HEADER, Statement, judge, row_of, statement_named, table


@dataclass(frozen=True)
class SamCertificate:
    """Hold the statements about one SAM step on one batch, and the numbers behind them."""

    statements: tuple[Statement, ...]
    n: int
    rho: float
    gamma: float
    gradient_norm: float
    kappa_min: tuple[float, ...]  # along the path from theta to the perturbed point
    p_y: float  # geometric mean over the batch, at theta
    p_y_perturbed: float
    entropy: float  # mean H(p_y) over the batch, at theta
    lam: float  # lambda = (1 - p~_y) / (1 - p_y)
    lam0: float  # its lower bound of Eq. 2; NaN where the lemma does not give one
    converged: bool = True  # whether every kappa_min was found to the tolerance

    def __getitem__(self, name: str) -> Statement:
        """Return the statement of that name, such as `certificate["Theorem 2"]`."""
        return statement_named(self.statements, name)

    @property
    def failed(self) -> tuple[Statement, ...]:
        """The lemmas, theorems and equations that failed; the kappa_min rows are assumptions."""
        theorems = (s for s in self.statements if not s.name.startswith("kappa_min"))
        return tuple(s for s in theorems if s.holds is False)

    @property
    def holds(self) -> bool:
        """Whether no lemma, theorem or equation failed."""
        return not self.failed

    def __str__(self) -> str:
        head = (
            f"SAM step of rho {self.rho:g} on {self.n} samples: |g| {self.gradient_norm:.4g}, "
            f"kappa_min {min(self.kappa_min):.4g}, lambda {self.lam:.4g}, lambda_0 {self.lam0:.4g}"
        )
        return "\n".join([head, "", *table([HEADER, *map(row_of, self.statements)])])


def certify_sam(
    model: nn.Module,
    batch: tuple[Tensor, Tensor],
    *,
    rho: float = 0.05,
    gamma: float = 1.0,
    points: int = 5,
    samples: int = 1,
    rtol: float = 1e-2,
    mode: Mode = "eval",
) -> SamCertificate:
    r"""Check the lemmas and theorems of the CSAM paper for the step SAM would take on a batch.

    The condition kappa_min >= -|g| / rho is checked at `points` points from theta to the perturbed
    point; with it, log p~_y <= log p_y - rho |g| / 2 (the proof's form: the printed Lemma 1 squares
    |g|), and with p~_y <= p_y Theorems 1-3 follow. Lemma 1 is about a batch of one: it is checked
    on the first `samples` samples, each with a step of its own (0 in train mode with batch norm,
    which needs more than one). kappa_min is an eigenvalue found iteratively, to `rtol`. Frozen
    parameters stay as they are. In train mode every pass draws the same dropout masks. The model
    is not changed.
    Reference: Tan et al. (2026), CSAM, Sec. 4 and App. A.

    >>> _ = torch.manual_seed(0)
    >>> model, x = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)), torch.randn(8, 2)
    >>> certificate = certify_sam(model, (x, torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])), rho=0.01)
    >>> certificate.holds, certificate["Lemma 2"].holds, certificate["Theorem 2"].holds
    (True, True, True)
    """
    if not rho > 0:
        raise ValueError(f"rho must be positive; got {rho}")
    if not 0 <= gamma <= 2:
        raise ValueError(f"gamma must lie in [0, 2], as Theorem 3 asks; got {gamma}")
    x, y = check_data(*batch)
    y = y.to(device_of(model, x))
    x = x.to(device_of(model, x), dtype_of(model, x))

    step = take_step(model, x, y, rho, points, rtol, mode)
    statements = [*condition(step), *batch_statements(step), *sample_statements(step, gamma)]
    for i in range(min(samples, len(x)) if len(x) > 1 else 0):
        one = take_step(model, x[i : i + 1], y[i : i + 1], rho, points, rtol, mode)
        statements += [replace(s, name=f"{s.name} (sample {i})") for s in batch_statements(one)]

    mean, perturbed = step.mean_logit, step.mean_logit_perturbed
    return SamCertificate(
        statements=tuple(statements),
        n=len(x),
        rho=rho,
        gamma=gamma,
        gradient_norm=step.gradient_norm,
        kappa_min=step.kappa,
        p_y=float(mean.sigmoid()),
        p_y_perturbed=float(perturbed.sigmoid()),
        entropy=float(entropy(step.logit).mean()),
        lam=float(ratio(mean, perturbed)),
        lam0=lower_ratio(step),
        converged=step.converged,
    )


def entropy(logit: Tensor) -> Tensor:
    """Return H(p) = -p log p - (1 - p) log(1 - p) from logit(p)."""
    return -(logit.sigmoid() * F.logsigmoid(logit) + (-logit).sigmoid() * F.logsigmoid(-logit))


def ratio(logit: Tensor, perturbed: Tensor) -> Tensor:
    """Return lambda = (1 - p~) / (1 - p)."""
    return (F.logsigmoid(-perturbed) - F.logsigmoid(-logit)).exp()


def lower_ratio(step: SamStep) -> float:
    """Return lambda_0 = (1 - p~) / (1 - exp(rho |g| / 2) p~) of Eq. 2.

    It is NaN where exp(rho |g| / 2) p~ is not below 1.
    """
    perturbed = step.mean_logit_perturbed
    exponent = step.rho * step.gradient_norm / 2 + float(F.logsigmoid(perturbed))
    if exponent >= 0:
        return math.nan
    return float((-perturbed).sigmoid()) / -math.expm1(exponent)


def entropy_sides(logit: Tensor, perturbed: Tensor, gamma: float = 0.0) -> tuple[Tensor, Tensor]:
    r"""Return both sides of Theorem 3, l - lambda H(p) + (1 - gamma/2) H(p~) <= l~.

    With gamma = 0 it is Theorem 1, and Theorem 2 for geometric means.
    """
    left = -F.logsigmoid(logit) - ratio(logit, perturbed) * entropy(logit)
    left = left + (1 - gamma / 2) * entropy(perturbed)
    return left, -F.logsigmoid(perturbed) * (1 + perturbed.sigmoid()) ** -gamma


def condition(step: SamStep) -> list[Statement]:
    """The lemmas' assumption at theta, and at every point of the path that was checked."""
    reason = "an assumption, no theorem" if step.converged else "kappa_min did not converge"
    values = {"kappa_min": step.kappa[0], "kappa_min on the path": min(step.kappa)}
    return [
        judge(
            name,
            f"-|g| / rho <= {name}",
            -step.gradient_norm / step.rho,
            value,
            rounding=1e-6,
            reason=reason,
            applies=step.converged,
        )
        for name, value in values.items()
    ]


def assumption(step: SamStep) -> tuple[bool, str]:
    """Whether the assumption of the lemmas is met on the path, and how it was checked or fails."""
    if not step.converged:
        return False, "assumption unchecked: kappa_min did not converge"
    if min(step.kappa) < -step.gradient_norm / step.rho:
        return False, "assumption fails: kappa_min < -|g| / rho on the path"
    return True, f"kappa_min checked at {len(step.kappa)} points of the path"


def batch_statements(step: SamStep) -> list[Statement]:
    """Lemma 2, Theorem 2 and Eq. 2 of a batch; Lemma 1 and Theorem 1 when it is a single sample."""
    number = "1" if len(step.logit) == 1 else "2"
    mean, perturbed = step.mean_logit, step.mean_logit_perturbed
    before, after = float(F.logsigmoid(mean)), float(F.logsigmoid(perturbed))
    drop = step.rho * step.gradient_norm / 2

    met, reason = assumption(step)
    lemma = judge(
        f"Lemma {number}",
        "log p~_y <= log p_y - rho |g| / 2",
        after,
        before - drop,
        rounding=0.0,
        floor=step.rounding,
        applies=met,
        reason=reason,
    )

    lower = after <= before
    left, right = (float(side) for side in entropy_sides(mean, perturbed))
    theorem = judge(
        f"Theorem {number}",
        "L - lambda H(p_y) + H(p~_y) <= L~",
        left,
        right,
        rounding=0.0,
        floor=step.rounding,
        applies=lower,
        reason="" if lower else "does not apply: p~_y > p_y",
    )

    concluded = after + drop <= before
    equation = judge(
        "Eq. 2",
        "lambda_0 <= lambda",
        lower_ratio(step),
        float(ratio(mean, perturbed)),
        rounding=1e-9,
        floor=step.rounding,
        applies=concluded,
        reason="" if concluded else "does not apply: the lemma's conclusion fails",
    )
    return [lemma, theorem, equation]


def sample_statements(step: SamStep, gamma: float) -> list[Statement]:
    """Theorems 1 and 3 for each sample that they apply to; the sample closest to failing counts."""
    lower = step.logit_perturbed <= step.logit
    right = lower & (step.logit_perturbed > 0)
    theorem_3 = closest(step, "Theorem 3", gamma, right, "1/2 < p~_y <= p_y")
    if len(step.logit) == 1:
        return [theorem_3]  # batch_statements has Theorem 1 of a single sample
    return [closest(step, "Theorem 1", 0.0, lower, "p~_y <= p_y"), theorem_3]


def closest(step: SamStep, name: str, gamma: float, applies: Tensor, condition: str) -> Statement:
    """Judge a theorem at the sample closest to failing, of those that it applies to, (N,)."""
    count = int(applies.sum())
    left, right = entropy_sides(step.logit, step.logit_perturbed, gamma)
    worst = int(torch.where(applies, left - right, -torch.inf).argmax())

    claim = "l - lambda H(p_y) + H(p~_y) <= l~"
    if gamma:
        claim = "l - lambda H(p_y) + (1 - gamma/2) H(p~_y) <= l~"
    return judge(
        name,
        claim,
        float(left[worst]),
        float(right[worst]),
        rounding=0.0,
        floor=step.rounding,
        applies=count > 0,
        reason=f"closest of {count} of {len(applies)} samples with {condition}",
    )
