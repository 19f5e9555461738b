"""Certified bounds of functionals, by walking the tape of intervals backward.

A functional is a linear map of a node's entries; R of them for N samples are `rows`, (R, N, ...).
`lower_bounds` bounds its value with lines, `gradient_norms` its gradient with intervals.
"""

from collections.abc import Callable

import torch
from torch import Tensor, fx

from toosure.margins.interval_tape import IntervalTape, rounding_of
from toosure.margins.relaxations import ULP, scatter_windows, slope_range
from toosure.margins.robust import Norm, dual_norm, norm_of
from toosure.margins.supported_ops import ActivationRule, AffineRule, IntervalNode, MaxPoolRule
from toosure.margins.zonotope import zonotope_intervals

MAX_TIGHTENING_NUMBERS = 2**24  # coefficients held at once to tighten intervals: 128 MiB
# The same for pairs of classes; the range of a gradient holds ten such tensors at a time.
MAX_FUNCTIONAL_NUMBERS = 2**22


def propagate(
    graph: fx.GraphModule, x: Tensor, eps: float, norm: Norm, units: int = 0, generators: int = 0
) -> tuple[IntervalTape, IntervalNode]:
    """Return the tape of the ball around x and the node of the logits.

    The intervals of layers of at most `units` entries are tightened by lines. Where an input has
    at most `generators` numbers, all intervals are also tightened by a zonotope.
    """
    use_zonotope = x[0].numel() <= generators
    known = zonotope_intervals(graph, x, eps, norm) if use_zonotope else []
    tape = IntervalTape(graph, eps, norm, tighten_up_to(units, known))
    return tape, tape.propagate(x)


def tighten_up_to(
    units: int, known: list[tuple[Tensor, Tensor]]
) -> Callable[[IntervalTape, IntervalNode], None]:
    """Return a function that tightens the interval of a node.

    It uses the `known` intervals, in the order of the network, and for layers of at most `units`
    entries lines back to the input.
    """
    remaining = iter(known)

    def tighten(tape: IntervalTape, node: IntervalNode) -> None:
        if known:
            lower, upper = next(remaining)
            node.lower = torch.maximum(node.lower, lower)
            node.upper = torch.minimum(node.upper, upper)

        size = node.lower[0].numel()
        if size > units or any(parent.ball for parent in node.parents):
            return  # too many functionals, or exact already

        widest = max(n.lower[0].numel() for n in tape.nodes)
        block = max(1, MAX_TIGHTENING_NUMBERS // (len(node.lower) * widest))
        below: list[Tensor] = []
        above: list[Tensor] = []
        for start in range(0, size, block):
            rows = unit_rows(node, range(start, min(size, start + block)))
            below.append(lower_bounds(tape, node, rows).T)  # (N, block)
            above.append(-lower_bounds(tape, node, -rows).T)
        node.lower = torch.maximum(node.lower, torch.cat(below, 1).view_as(node.lower))
        node.upper = torch.minimum(node.upper, torch.cat(above, 1).view_as(node.upper))

    return tighten


def unit_rows(node: IntervalNode, places: range) -> Tensor:
    """Return the functionals that read the entries `places` of a node, (R, N, ...)."""
    rows = node.lower.new_zeros(len(places), len(node.lower), node.lower[0].numel())
    index = torch.arange(len(places), device=rows.device)
    rows[index, :, index + places.start] = 1.0
    return rows.view(len(places), *node.lower.shape)


def margin_functionals(labels: Tensor, classes: int) -> Tensor:
    """Return the rows e_y - e_j for all j != y, (K - 1, N, K), in float64."""
    j = torch.arange(classes - 1, device=labels.device).unsqueeze(1).expand(-1, len(labels))
    j = j + (j >= labels)  # skip the label
    eye = torch.eye(classes, dtype=torch.float64, device=labels.device)
    return eye[labels] - eye[j]


def apply_rows(rows: Tensor, values: Tensor) -> Tensor:
    """Return <row, value> for every functional and sample, (R, N)."""
    return torch.einsum("rnd,nd->rn", rows.flatten(2), values.expand(rows.shape[1:]).flatten(1))


def interval_bounds(node: IntervalNode, rows: Tensor) -> Tensor:
    """Return the smallest value of each functional on a node's interval, (R, N)."""
    smallest = apply_rows(rows.clamp_min(0), node.lower) + apply_rows(rows.clamp_max(0), node.upper)
    return smallest - rounding_of(node) * apply_rows(rows.abs(), node.largest)


def lower_bounds(tape: IntervalTape, node: IntervalNode, rows: Tensor) -> Tensor:
    r"""Return a value below min over the ball of each functional of a node, (R, N).

    Walk the tape backward and replace every activation by the line on the right side of it, until
    the functional is a x + c of the input; its smallest value is a x + c - eps ||a||_dual. Exact
    when the tape is affine. Every product adds its rounding, n 2^-52 of the sum of absolute terms.
    Reference: Zhang et al. (2018), CROWN, arXiv 1811.00866.
    """
    pending = {node: rows}  # the coefficients of nodes still to be replaced by their parents
    constant = torch.zeros(rows.shape[:2], dtype=rows.dtype, device=rows.device)
    slack = torch.zeros_like(constant)

    for current in reversed(tape.nodes):
        a = pending.pop(current, None)
        if a is None:
            continue

        if current.rule is None:  # the input
            size = dual_norm(a.flatten(2), tape.norm)
            radius = norm_of(current.largest, tape.norm)  # <|a|, |x|> <= size * radius
            slack += rounding_of(current) * size * radius
            return constant + apply_rows(a, tape.centre) - tape.eps * size - slack * (1 + 1e-9)

        slack += rounding_of(current, *current.parents) * apply_rows(a.abs(), current.terms)
        constant, parts = step_back(current, a, constant)
        for parent, part in zip(current.parents, parts, strict=True):
            pending[parent] = pending[parent] + part if parent in pending else part
    raise AssertionError("a tape starts at its input")


def step_back(node: IntervalNode, a: Tensor, constant: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the constant and the functionals of the parents that bound `a` from below."""
    rule = node.rule
    if isinstance(rule, AffineRule):
        return constant + apply_rows(a, rule.offset), torch.func.vmap(rule.pull)(a)

    # A positive coefficient takes the line below, a negative one the line above.
    positive, negative = a.clamp_min(0), a.clamp_max(0)
    if isinstance(rule, ActivationRule):
        lines = rule.lines
        constant = constant + apply_rows(positive, lines.low) + apply_rows(negative, lines.high)
        return constant, (positive * lines.low_slope + negative * lines.high_slope,)

    # Below a maximum lies each of its elements; above it, where undecided, only its upper bound.
    assert isinstance(rule, MaxPoolRule)
    undecided = negative * ~rule.decided
    constant = constant + apply_rows(undecided, node.upper)
    return constant, (scatter(node, (a - undecided).unsqueeze(-1) * rule.chosen),)


def scatter(node: IntervalNode, values: Tensor) -> Tensor:
    """Add values of pooling windows, (R, N, C, H', W', k^2), back to the pixels they read."""
    rule = node.rule
    shape = node.parents[0].lower.shape
    assert isinstance(rule, MaxPoolRule)
    flat = values.flatten(0, 1)
    pixels = scatter_windows(flat, shape, rule.kernel, rule.stride, rule.padding)
    return pixels.view(len(values), *shape)


def gradient_norms(tape: IntervalTape, node: IntervalNode, rows: Tensor) -> Tensor:
    r"""Return a bound of sup over the ball of ||grad_x <row, node>||_dual, (R, N).

    Walk the tape backward with an interval for every entry of the gradient: matrices act by
    middle and radius, activations by the range of their slope.
    Reference: Weng et al. (2018), Fast-Lip, arXiv 1804.09699.
    """
    pending = {node: (rows, torch.zeros_like(rows))}  # middle and radius
    for current in reversed(tape.nodes):
        if current not in pending:
            continue
        middle, radius = pending.pop(current)

        if current.rule is None:  # the input
            largest = (middle.abs() + radius).flatten(2)
            return dual_norm(largest, tape.norm) * (1 + rounding_of(current))

        for parent, (m, r) in zip(
            current.parents, gradient_back(current, middle, radius), strict=True
        ):
            if parent in pending:
                other_middle, other_radius = pending[parent]
                m = m + other_middle
                r = r + other_radius
            pending[parent] = (m, r)
    raise AssertionError("a tape starts at its input")


def gradient_back(
    node: IntervalNode, middle: Tensor, radius: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """Return middle and radius of the gradients with respect to each parent."""
    rule = node.rule
    radius = radius + (4 * ULP + rounding_of(node, *node.parents)) * (middle.abs() + radius)
    if isinstance(rule, AffineRule):
        middles = torch.func.vmap(rule.pull)(middle)
        return list(zip(middles, torch.func.vmap(rule.pull_absolute)(radius), strict=True))

    low, high = middle - radius, middle + radius
    if isinstance(rule, ActivationRule):
        before = node.parents[0]
        least, greatest = slope_range(rule.name, before.lower, before.upper)
        low = torch.where(low > 0, low * least, low * greatest)
        high = torch.where(high > 0, high * greatest, high * least)
        return [((low + high) / 2, (high - low) / 2)]

    # Each pixel of a pooling window gets a share in [0, 1] of that window's gradient.
    assert isinstance(rule, MaxPoolRule)
    window = rule.chosen.shape[-1]
    low, high = (
        scatter(node, side.unsqueeze(-1).expand(*side.shape, window).contiguous())
        for side in (low.clamp_max(0), high.clamp_min(0))
    )
    return [((low + high) / 2, (high - low) / 2)]


def in_blocks(
    bound: Callable[[IntervalTape, IntervalNode, Tensor], Tensor],
    tape: IntervalTape,
    node: IntervalNode,
    rows: Tensor,
) -> Tensor:
    """Return a bound of many functionals, (R, N), a few at a time: memory must not grow with R."""
    widest = max(n.lower.numel() for n in tape.nodes)
    parts = rows.split(max(1, MAX_FUNCTIONAL_NUMBERS // widest))
    return torch.cat([bound(tape, node, part) for part in parts])
