"""Certified robust margins: proved lower bounds, by Lipschitz constants, intervals or lines."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, fx, nn

from toosure.margins.attacks import attacked_margin, linearised_margin
from toosure.margins.fx_graph import trace
from toosure.margins.interval_tape import IntervalTape, as_batch_of_two
from toosure.margins.lipschitz import pair_lipschitz
from toosure.margins.margins import check_classes
from toosure.margins.propagation import (
    gradient_norms,
    in_blocks,
    interval_bounds,
    lower_bounds,
    margin_functionals,
    propagate,
)
from toosure.margins.relaxations import ULP
from toosure.margins.robust import (
    Kind,
    Norm,
    RobustMargin,
    check_data,
    check_radius,
    device_of,
    float64_copy,
    over_chunks,
)
from toosure.margins.supported_ops import AffineRule, IntervalNode
from toosure.metrics.inputs import as_labels, check_choice

Method = Literal["best", "lipschitz", "interval", "linear", "gradient"]
METHODS = ("best", "lipschitz", "interval", "linear", "gradient")


@dataclass(frozen=True)
class CertifiedBounds:
    """Hold a certified margin and a certified local Lipschitz constant of the margin."""

    margin: RobustMargin
    lipschitz: Tensor  # (N,): |m(x + d) - m(x)| <= lipschitz * ||d|| for all ||d|| <= eps


def certified_margin(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    eps: float,
    norm: Norm = "linf",
    *,
    method: Method = "best",
    units: int = 512,
    generators: int = 0,
    chunk: int | None = None,
) -> RobustMargin:
    r"""Prove a lower bound of inf_{|d| <= eps} m(x + d, y); exact for affine models.

    `method`: "lipschitz" subtracts eps times a product of operator norms; "interval" propagates
    intervals forward; "linear" propagates lines backward (CROWN), with the intervals of layers of
    at most `units` entries tightened in the same way; "gradient" subtracts eps times a bound of the
    gradient over the ball; "best" takes the largest of all four, functional by functional.
    `generators`: inputs of at most that many numbers are also followed one number at a time (a
    zonotope), which keeps the intervals of deep networks narrow at small radii, and costs as many
    passes in float64; 0 leaves it out.
    Everything is computed in float64 and rounded outward: each sum of n products gives way by
    n 2^-52 of its absolute terms. Networks: see `toosure.margins.supported_ops.KNOWN`.
    References: Zhang et al. (2018), arXiv 1811.00866; Gowal et al. (2018), arXiv 1810.12715.

    >>> model = nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> margin = certified_margin(model, torch.tensor([[2.0, 1.0]]), torch.tensor([0]), 0.1)
    >>> margin.values, margin.bound
    (tensor([0.8000], dtype=torch.float64), 'exact')
    """
    return certified_bounds(
        model, x, y, eps, norm, method=method, units=units, generators=generators, chunk=chunk
    ).margin


def certified_bounds(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    eps: float,
    norm: Norm = "linf",
    *,
    method: Method = "best",
    units: int = 512,
    generators: int = 0,
    chunk: int | None = None,
    max_chunk: int = 500,
) -> CertifiedBounds:
    """Return `certified_margin` and the local Lipschitz constant L_m from the same passes.

    Without a `chunk`, as many samples go together, up to `max_chunk`, as need about 512 MiB.
    """
    check_radius(eps, norm)
    check_choice("method", method, METHODS)
    x, y = check_data(x, y)

    graph = trace(float64_copy(model))
    if method in ("lipschitz", "interval"):  # neither uses tightened intervals
        units = generators = 0
    if chunk is None:
        chunk = affordable_chunk(graph, x[:1].to(device_of(model, x)), generators, max_chunk)

    certifier = Certifier(graph, eps, norm, method, units, generators)
    margins, lipschitz = over_chunks(certifier.certify, model, x, y, chunk).unbind(1)

    exact = certifier.is_affine and method in ("best", "linear")
    margin = RobustMargin(margins, "certified", norm, eps, "exact" if exact else "below")
    return CertifiedBounds(margin, lipschitz)


@dataclass
class Certifier:
    """Certify samples chunk by chunk, and compute once what all chunks need."""

    graph: fx.GraphModule
    eps: float
    norm: Norm
    method: Method
    units: int
    generators: int
    global_lipschitz: Tensor | None = None  # (K, K), computed with the first chunk
    is_affine: bool = True  # no activation function and no max-pooling was met so far

    @torch.no_grad()
    def certify(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the certified margin and the Lipschitz constant of each sample, (N, 2)."""
        x = x.double()
        tape, logits = propagate(self.graph, x, self.eps, self.norm, self.units, self.generators)
        check_classes(logits.lower)
        as_labels(y, len(y), logits.lower.shape[1])
        if any(node.rule and not isinstance(node.rule, AffineRule) for node in tape.nodes):
            self.is_affine = False

        # One functional z_y - z_j per other class; the margin is the smallest of them.
        functionals = margin_functionals(y, logits.lower.shape[1])  # (K - 1, N, K)
        slopes = self.slopes(x, y, tape, logits, functionals)  # (K - 1, N)
        bounds = self.lower_bounds(x, tape, logits, functionals, slopes)
        margins = torch.stack(bounds).amax(0).amin(0)
        return torch.stack([margins, slopes.amax(0)], 1)

    def slopes(
        self,
        x: Tensor,
        y: Tensor,
        tape: IntervalTape,
        logits: IntervalNode,
        functionals: Tensor,
    ) -> Tensor:
        """Return a Lipschitz constant of each functional on the ball; NaN if none is needed."""
        others = functionals.argmin(2)  # (K - 1, N): the j of each functional
        if self.method in ("interval", "linear"):
            return torch.full(others.shape, torch.nan, dtype=x.dtype, device=x.device)

        if self.global_lipschitz is None:
            self.global_lipschitz = pair_lipschitz(self.graph, x, self.norm, functionals.shape[2])
        slopes = self.global_lipschitz[y, others]
        if self.method in ("best", "gradient"):
            slopes = torch.minimum(slopes, in_blocks(gradient_norms, tape, logits, functionals))
        return slopes

    def lower_bounds(
        self,
        x: Tensor,
        tape: IntervalTape,
        logits: IntervalNode,
        functionals: Tensor,
        slopes: Tensor,
    ) -> list[Tensor]:
        """Return the lower bounds of each functional that the method asks for, (K - 1, N) each."""
        bounds = []
        if self.method in ("best", "lipschitz", "gradient"):
            centre = propagate(self.graph, x, 0.0, self.norm)
            middle = in_blocks(lower_bounds, *centre, functionals)  # z_y - z_j at x, from below
            drop = self.eps * slopes
            bounds.append(middle - drop - ULP * (middle.abs() + drop))
        if self.method in ("best", "interval"):
            bounds.append(interval_bounds(logits, functionals))
        if self.method in ("best", "linear"):
            bounds.append(in_blocks(lower_bounds, tape, logits, functionals))

        # A bound that overflowed proves nothing.
        return [torch.where(bound.isnan(), -torch.inf, bound) for bound in bounds]


@torch.no_grad()
def affordable_chunk(graph: fx.GraphModule, sample: Tensor, generators: int, maximum: int) -> int:
    """Return how many samples' tapes fit into 2^26 numbers: at least one, at most `maximum`."""
    tape, logits = propagate(graph, as_batch_of_two(sample.double()), 0.0, "l2")
    sizes = [node.lower[0].numel() for node in tape.nodes]

    # Per node an interval, its terms and four lines; then the functionals on their way back.
    numbers = 8 * sum(sizes) + 4 * logits.lower[0].numel() * max(sizes)
    if sample.numel() <= generators:
        numbers += 4 * sample.numel() * max(sizes)
    return max(1, min(maximum, 2**26 // numbers))


def robust_margin(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    eps: float,
    norm: Norm = "linf",
    kind: Kind = "attacked",
    **options: int | str | None,
) -> RobustMargin:
    r"""Bound inf_{|d| <= eps} m(x + d, y) from above or from below, or estimate it.

    `kind`: "attacked" (the margin at a point of the ball: an upper bound), "linearised" (first
    order: no bound) or "certified" (proved: a lower bound). The result says which, and `options`
    go to `attacked_margin`, `linearised_margin` or `certified_margin`.
    Reference: Too Sharp, Too Sure, Sec. 4 (2026), arXiv 2604.20614.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    >>> x, y = torch.randn(4, 2), torch.tensor([0, 1, 0, 1])
    >>> above = robust_margin(model, x, y, 0.1)
    >>> below = robust_margin(model, x, y, 0.1, kind="certified")
    >>> above.is_upper_bound, below.is_lower_bound, bool((above.values >= below.values).all())
    (True, True, True)
    """
    functions: dict[str, Callable[..., RobustMargin]] = {
        "attacked": attacked_margin,
        "linearised": linearised_margin,
        "certified": certified_margin,
    }
    check_choice("kind", kind, tuple(functions))
    return functions[kind](model, x, y, eps, norm, **options)
