"""Certified robust margins: true lower bounds, by Lipschitz constants, intervals or lines."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, fx, nn

from toosure.margins.attacks import attacked_margin, linearised_margin
from toosure.margins.lipschitz import pair_lipschitz
from toosure.margins.margins import check_classes
from toosure.margins.propagation import (
    follow,
    gradient_norms,
    in_blocks,
    interval_bounds,
    lower_bounds,
    margin_functionals,
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
from toosure.margins.rules import Affine
from toosure.margins.tracing import trace, twice
from toosure.metrics.inputs import as_labels, check_choice

Method = Literal["best", "lipschitz", "interval", "linear", "gradient"]
METHODS = ("best", "lipschitz", "interval", "linear", "gradient")


@dataclass(frozen=True)
class Certified:
    """Hold a certified margin together with a certified local Lipschitz constant of the margin."""

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

    `method`: "lipschitz" subtracts eps times a product of operator norms; "interval" carries
    intervals forward; "linear" carries lines backward (CROWN), with the intervals of layers of at
    most `units` entries tightened in the same way; "gradient" subtracts eps times a bound of the
    gradient over the ball; "best" takes the largest of all four, functional by functional.
    `generators`: inputs of at most that many numbers are also followed one number at a time (a
    zonotope), which keeps deep networks from blowing up at small radii, at the price of as many
    passes in float64; 0 leaves it out.
    Everything is computed in float64 and rounded outward: each sum of n products gives way by
    n 2^-52 of its absolute terms. Networks: see `toosure.margins.rules.KNOWN`.
    References: Zhang et al. (2018), arXiv 1811.00866; Gowal et al. (2018), arXiv 1810.12715.

    >>> model = nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> margin = certified_margin(model, torch.tensor([[2.0, 1.0]]), torch.tensor([0]), 0.1)
    >>> margin.values, margin.bound
    (tensor([0.8000], dtype=torch.float64), 'exact')
    """
    return certified(
        model, x, y, eps, norm, method=method, units=units, generators=generators, chunk=chunk
    ).margin


def certified(
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
    most: int = 500,
) -> Certified:
    """Return `certified_margin` and the local Lipschitz constant L_m from the same passes.

    Without a `chunk`, as many samples go together, up to `most`, as keep about 512 MiB of tape.
    """
    check_radius(eps, norm)
    check_choice("method", method, METHODS)
    x, y = check_data(x, y)
    graph = trace(float64_copy(model))
    if method in ("lipschitz", "interval"):
        units = generators = 0
    constants: list[Tensor] = []  # the global ones, (K, K), worked out with the first chunk
    nonlinear: list[bool] = []

    def rows(a: Tensor, b: Tensor) -> Tensor:
        a = a.double()
        with torch.no_grad():
            tape, logits = follow(graph, a, eps, norm, units, generators)
            check_classes(logits.lower)
            classes = logits.lower.shape[1]
            as_labels(b, len(b), classes)
            functionals = margin_functionals(b, classes)
            if not constants and method not in ("interval", "linear"):
                constants.append(pair_lipschitz(graph, a, norm, classes))
            nonlinear.append(any(n.rule and not isinstance(n.rule, Affine) for n in tape.nodes))
            others = functionals.argmin(2)  # (K - 1, N): the j of each functional
            slopes = (
                constants[0][b, others] if constants else torch.full_like(others, 0) + torch.nan
            )
            if method in ("best", "gradient"):
                bound = in_blocks(gradient_norms, tape, logits, functionals)
                slopes = torch.minimum(slopes, bound)
            ways = []
            if method in ("best", "lipschitz", "gradient"):  # z_y - z_j at the centre, from below
                here = in_blocks(lower_bounds, *follow(graph, a, 0.0, norm), functionals)
                ways.append(here - eps * slopes - ULP * (here.abs() + eps * slopes))
            if method in ("best", "interval"):
                ways.append(interval_bounds(logits, functionals))
            if method in ("best", "linear"):
                ways.append(in_blocks(lower_bounds, tape, logits, functionals))
            ways = [torch.where(way.isnan(), -torch.inf, way) for way in ways]  # overflow
            margins = torch.stack(ways).amax(0).amin(0)
            return torch.stack([margins, slopes.amax(0)], 1)

    if chunk is None:
        chunk = affordable_chunk(graph, x[:1].to(device_of(model, x)), generators, most)
    found = over_chunks(rows, model, x, y, chunk)  # (N, 2)
    exact = not any(nonlinear) and method in ("best", "linear")
    margin = RobustMargin(found[:, 0], "certified", norm, eps, "exact" if exact else "below")
    return Certified(margin, found[:, 1])


@torch.no_grad()
def affordable_chunk(graph: fx.GraphModule, sample: Tensor, generators: int, most: int) -> int:
    """Return how many samples' tapes fit into 2^26 numbers, at least one."""
    tape, logits = follow(graph, twice(sample.double()), 0.0, "l2")
    sizes = [node.lower[0].numel() for node in tape.nodes]
    # an interval, its terms and four lines a node, and the functionals on their way back
    numbers = 8 * sum(sizes) + 4 * logits.lower[0].numel() * max(sizes)
    if sample.numel() <= generators:
        numbers += 4 * sample.numel() * max(sizes)
    return max(1, min(most, 2**26 // numbers))


def robust_margin(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    eps: float,
    norm: Norm = "linf",
    kind: Kind = "attacked",
    **options,
) -> RobustMargin:
    r"""Return inf_{|d| <= eps} m(x + d, y) from above, to first order, or from below.

    `kind`: "attacked" (a point really in the ball: an upper bound), "linearised" (first order:
    neither) or "certified" (proved: a lower bound); the result says which, and `options` go to
    `attacked_margin`, `linearised_margin` or `certified_margin`.
    Reference: Too Sharp, Too Sure, Sec. 4 (2026), arXiv 2604.20614.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    >>> x, y = torch.randn(4, 2), torch.tensor([0, 1, 0, 1])
    >>> above = robust_margin(model, x, y, 0.1)
    >>> below = robust_margin(model, x, y, 0.1, kind="certified")
    >>> above.is_upper_bound, below.is_lower_bound, bool((above.values >= below.values).all())
    (True, True, True)
    """
    makers = {
        "attacked": attacked_margin,
        "linearised": linearised_margin,
        "certified": certified_margin,
    }
    check_choice("kind", kind, tuple(makers))
    return makers[kind](model, x, y, eps, norm, **options)
