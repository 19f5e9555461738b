"""The theory of CSAM along a run: kappa_min, lambda and lambda_0, Lemmas 1-2, Theorems 1-3."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toosure.margins.robust import check_data, device_of, dtype_of
from toosure.margins.sam_step import Step, take_step
from toosure.margins.statements import HEADER, Statement, judge, row_of, table


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

    def __getitem__(self, name: str) -> Statement:
        """Return the statement of that name, such as `certificate["Theorem 2"]`."""
        for statement in self.statements:
            if statement.name == name:
                return statement
        raise KeyError(f"{name!r}; there are {', '.join(s.name for s in self.statements)}")

    @property
    def holds(self) -> bool:
        """Whether no lemma, theorem or equation failed; the kappa_min rows are assumptions."""
        theorems = (s for s in self.statements if not s.name.startswith("kappa_min"))
        return not any(s.holds is False for s in theorems)

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
    mode: Literal["eval", "train"] = "eval",
) -> SamCertificate:
    r"""Check the lemmas and theorems of the CSAM paper for the step SAM would take on a batch.

    The condition kappa_min >= -|g| / rho is looked at on `points` places from theta to the
    perturbed point; with it, log p~_y <= log p_y - rho |g| / 2 (the proof's form: the printed
    Lemma 1 squares |g|), and with p~_y <= p_y Theorems 1-3 follow. Lemma 1 speaks of a batch of
    one: it is checked on the first `samples` samples, each with a step of its own (0 in train mode
    with batch norm, which knows no batch of one). kappa_min is an eigenvalue found iteratively,
    to `rtol`. Frozen parameters stay where they are. In train mode every pass draws the same
    dropout masks. The model is only read.
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
    x, y = x.to(device_of(model, x), dtype_of(model, x)), y.to(device_of(model, x))
    whole = take_step(model, x, y, rho, points, rtol, mode)
    found = [*condition(whole), *batch_statements(whole), *sample_statements(whole, gamma)]
    for i in range(min(samples, len(x)) if len(x) > 1 else 0):
        one = take_step(model, x[i : i + 1], y[i : i + 1], rho, points, rtol, mode)
        found += [renamed(s, f"{s.name} (sample {i})") for s in batch_statements(one)]
    mean, shifted = whole.mean_logit, whole.mean_logit_perturbed
    lam, lam0 = float(ratio(mean, shifted)), lower_ratio(whole)
    return SamCertificate(
        statements=tuple(found), n=len(x), rho=rho, gamma=gamma, gradient_norm=whole.gradient_norm,
        kappa_min=whole.kappa, p_y=float(mean.sigmoid()), p_y_perturbed=float(shifted.sigmoid()),
        entropy=float(entropy(whole.logit).mean()), lam=lam, lam0=lam0,
    )  # fmt: skip


def entropy(logit: Tensor) -> Tensor:
    """Return H(p) = -p log p - (1 - p) log(1 - p) from logit(p)."""
    return -(logit.sigmoid() * F.logsigmoid(logit) + (-logit).sigmoid() * F.logsigmoid(-logit))


def ratio(logit: Tensor, perturbed: Tensor) -> Tensor:
    """Return lambda = (1 - p~) / (1 - p)."""
    return (F.logsigmoid(-perturbed) - F.logsigmoid(-logit)).exp()


def lower_ratio(step: Step) -> float:
    """Return lambda_0 = (1 - p~) / (1 - exp(rho |g| / 2) p~) of Eq. 2; NaN if that is not < 1."""
    shifted = step.mean_logit_perturbed
    raised = step.rho * step.gradient_norm / 2 + float(F.logsigmoid(shifted))
    if raised >= 0:
        return math.nan
    return float((-shifted).sigmoid()) / -math.expm1(raised)


def entropy_sides(logit: Tensor, perturbed: Tensor, gamma: float = 0.0) -> tuple[Tensor, Tensor]:
    r"""Return both sides of Theorem 3, l - lambda H(p) + (1 - gamma/2) H(p~) <= l~.

    With gamma = 0 it is Theorem 1, and Theorem 2 for geometric means.
    """
    left = -F.logsigmoid(logit) - ratio(logit, perturbed) * entropy(logit)
    left = left + (1 - gamma / 2) * entropy(perturbed)
    return left, -F.logsigmoid(perturbed) * (1 + perturbed.sigmoid()) ** -gamma


def condition(step: Step) -> list[Statement]:
    """The lemmas' assumption at theta, and at every point looked at on the path."""
    bound, found = -step.gradient_norm / step.rho, []
    reason = "an assumption, no theorem" if step.converged else "kappa_min did not converge"
    for name, value in (("kappa_min", step.kappa[0]), ("kappa_min on the path", min(step.kappa))):
        claim = f"-|g| / rho <= {name}"
        found.append(judge(name, claim, bound, value, rounding=1e-6, reason=reason,
                           applies=step.converged))  # fmt: skip
    return found


def assumption(step: Step) -> tuple[bool, str]:
    """Whether the lemmas' assumption was found to be met on the path, and how or why not."""
    if not step.converged:
        return False, "assumption unchecked: kappa_min did not converge"
    if min(step.kappa) < -step.gradient_norm / step.rho:
        return False, "assumption fails: kappa_min < -|g| / rho on the path"
    return True, f"kappa_min checked at {len(step.kappa)} points of the path"


def batch_statements(step: Step) -> list[Statement]:
    """Lemma 2, Theorem 2 and Eq. 2 of a batch; Lemma 1 and Theorem 1 when it is a single sample."""
    number = "1" if len(step.logit) == 1 else "2"
    mean, shifted = step.mean_logit, step.mean_logit_perturbed
    before, after = float(F.logsigmoid(mean)), float(F.logsigmoid(shifted))
    drop = step.rho * step.gradient_norm / 2
    met, why = assumption(step)
    lemma = judge(
        f"Lemma {number}", "log p~_y <= log p_y - rho |g| / 2", after, before - drop,
        rounding=0.0, floor=step.rounding, applies=met, reason=why,
    )  # fmt: skip
    lower = after <= before
    left, right = (float(side) for side in entropy_sides(mean, shifted))
    theorem = judge(
        f"Theorem {number}", "L - lambda H(p_y) + H(p~_y) <= L~", left, right, rounding=0.0,
        floor=step.rounding, applies=lower, reason="" if lower else "does not apply: p~_y > p_y",
    )  # fmt: skip
    fell = after + drop <= before
    equation = judge(
        "Eq. 2", "lambda_0 <= lambda", lower_ratio(step), float(ratio(mean, shifted)),
        rounding=1e-9, floor=step.rounding, applies=fell,
        reason="" if fell else "does not apply: the lemma's conclusion fails",
    )  # fmt: skip
    return [lemma, theorem, equation]


def sample_statements(step: Step, gamma: float) -> list[Statement]:
    """Theorems 1 and 3 for each sample of the batch that they speak of, the closest one shown."""
    if len(step.logit) == 1:
        cases = [("Theorem 3", gamma)]
    else:
        cases = [("Theorem 1", 0.0), ("Theorem 3", gamma)]
    found = []
    for name, power in cases:
        fits = step.logit_perturbed <= step.logit
        if name == "Theorem 3":
            fits = fits & (step.logit_perturbed > 0)
        count, n = int(fits.sum()), len(fits)
        claim = (
            "l - lambda H(p_y) + (1 - gamma/2) H(p~_y) <= l~"
            if power
            else "l - lambda H(p_y) + H(p~_y) <= l~"
        )
        which = "p~_y <= p_y" if name == "Theorem 1" else "1/2 < p~_y <= p_y"
        reason = f"closest of {count} of {n} samples with {which}"
        left, right = entropy_sides(step.logit, step.logit_perturbed, power)
        worst = int(torch.where(fits, left - right, -torch.inf).argmax())
        found.append(
            judge(
                name,
                claim,
                float(left[worst]),
                float(right[worst]),
                rounding=0.0,
                floor=step.rounding,
                applies=count > 0,
                reason=reason,
            )
        )
    return found


def renamed(statement: Statement, name: str) -> Statement:
    """Return the same statement under another name."""
    s = statement
    return Statement(name, s.claim, s.left, s.right, s.vacuous, s.holds, s.reason)
