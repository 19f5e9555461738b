"""Certified bounds by propagation: intervals forward, lines backward, and ranges of gradients."""

from collections.abc import Callable

import torch
from torch import Tensor, fx

from toosure.margins.relaxations import ULP, scatter_windows, slope_range
from toosure.margins.robust import Norm, dual_norm, norm_of
from toosure.margins.rules import Affine, Curve, Node, Pool
from toosure.margins.tracing import Tape, rounding_of
from toosure.margins.zonotope import generator_intervals

BLOCK = 2**24  # coefficients held at once while intervals are tightened: 128 MiB
CLASSES = 2**22  # the same for pairs of classes, of which a gradient's range holds ten at a time


def tighten_up_to(units: int, known: list[tuple[Tensor, Tensor]]) -> Callable[[Tape, Node], None]:
    """Return a rule that tightens by `known` intervals, in order, and then, for layers of at most
    `units` entries, by lines back to the input."""
    waiting = iter(known)

    def tighten(tape: Tape, node: Node) -> None:
        if known:
            lower, upper = next(waiting)
            node.lower = torch.maximum(node.lower, lower)
            node.upper = torch.minimum(node.upper, upper)
        size = node.lower[0].numel()
        if size > units or any(parent.ball for parent in node.parents):
            return  # too many functionals, or exact already
        widest = max(n.lower[0].numel() for n in tape.nodes)
        block = max(1, BLOCK // (len(node.lower) * widest))
        below, above = [], []
        for start in range(0, size, block):
            rows = unit_rows(node, range(start, min(size, start + block)))
            below.append(lower_bounds(tape, node, rows).T)  # (N, block)
            above.append(-lower_bounds(tape, node, -rows).T)
        node.lower = torch.maximum(node.lower, torch.cat(below, 1).view_as(node.lower))
        node.upper = torch.minimum(node.upper, torch.cat(above, 1).view_as(node.upper))

    return tighten


def unit_rows(node: Node, places: range) -> Tensor:
    """Return the functionals that read the entries `places` of a node, (R, N, ...)."""
    n, size = len(node.lower), node.lower[0].numel()
    rows = torch.zeros(len(places), n, size, dtype=node.lower.dtype, device=node.lower.device)
    index = torch.arange(len(places), device=rows.device)
    rows[index, :, index + places.start] = 1.0
    return rows.view(len(places), *node.lower.shape)


def margin_functionals(labels: Tensor, classes: int) -> Tensor:
    """Return the rows e_y - e_j for all j != y, (K - 1, N, K), in float64."""
    j = torch.arange(classes - 1, device=labels.device).unsqueeze(1).expand(-1, len(labels))
    j = j + (j >= labels)
    eye = torch.eye(classes, dtype=torch.float64, device=labels.device)
    return eye[labels] - eye[j]


def pair(rows: Tensor, values: Tensor) -> Tensor:
    """Return <row, value> for every functional and sample, (R, N)."""
    return torch.einsum("rnd,nd->rn", rows.flatten(2), values.expand(rows.shape[1:]).flatten(1))


def interval_bounds(node: Node, rows: Tensor) -> Tensor:
    """Return the least value of each functional on a node's interval, (R, N)."""
    least = pair(rows.clamp_min(0), node.lower) + pair(rows.clamp_max(0), node.upper)
    return least - rounding_of(node) * pair(rows.abs(), node.largest)


def lower_bounds(tape: Tape, node: Node, rows: Tensor) -> Tensor:
    r"""Return a value below min over the ball of each functional of a node, (R, N).

    Walk the tape backward and replace every activation by the line on the right side of it, until
    the functional is a h(x) + c of the input; its least value is a x + c - eps ||a||_dual. Exact
    when the tape is affine. Every product adds its rounding, n 2^-52 of the sum of absolute terms.
    Reference: Zhang et al. (2018), CROWN, arXiv 1811.00866.
    """
    waiting = {node: rows}
    constant = torch.zeros(rows.shape[:2], dtype=rows.dtype, device=rows.device)
    slack = torch.zeros_like(constant)
    for here in reversed(tape.nodes):
        if (a := waiting.pop(here, None)) is None:
            continue
        if here.rule is None:
            size = dual_norm(a.flatten(2), tape.norm)
            radius = norm_of(here.largest, tape.norm)  # <|a|, |x|> <= size * radius
            slack += rounding_of(here) * size * radius
            return constant + pair(a, tape.centre) - tape.eps * size - slack * (1 + 1e-9)
        slack += rounding_of(here, *here.parents) * pair(a.abs(), here.terms)
        constant, parts = step_back(here, a, constant)
        for parent, part in zip(here.parents, parts, strict=True):
            waiting[parent] = waiting[parent] + part if parent in waiting else part
    raise AssertionError("a tape starts at its input")


def step_back(here: Node, a: Tensor, constant: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the constant and the functionals of the parents that bound `a` from below."""
    rule = here.rule
    if isinstance(rule, Affine):
        return constant + pair(a, rule.offset), torch.func.vmap(rule.pull)(a)
    positive, negative = a.clamp_min(0), a.clamp_max(0)
    if isinstance(rule, Curve):
        lines = rule.lines
        constant = constant + pair(positive, lines.low) + pair(negative, lines.high)
        return constant, (positive * lines.low_slope + negative * lines.high_slope,)
    assert isinstance(rule, Pool)
    undecided = negative * ~rule.decided
    constant = constant + pair(undecided, here.upper)
    return constant, (scatter(here, (a - undecided).unsqueeze(-1) * rule.chosen),)


def scatter(here: Node, values: Tensor) -> Tensor:
    """Add values of pooling windows, (R, N, C, H', W', k^2), back to the pixels they read."""
    rule, shape = here.rule, here.parents[0].lower.shape
    assert isinstance(rule, Pool)
    flat = values.flatten(0, 1)
    pixels = scatter_windows(flat, shape, rule.kernel, rule.stride, rule.padding)
    return pixels.view(len(values), *shape)


def gradient_norms(tape: Tape, node: Node, rows: Tensor) -> Tensor:
    r"""Return a bound of sup over the ball of ||grad_x <row, node>||_dual, (R, N).

    Walk the tape backward with an interval for every entry of the gradient: matrices act by
    middle and radius, activations by the range of their slope.
    Reference: Weng et al. (2018), Fast-Lip, arXiv 1804.09699.
    """
    waiting = {node: (rows, torch.zeros_like(rows))}  # middle and radius
    for here in reversed(tape.nodes):
        if here not in waiting:
            continue
        middle, radius = waiting.pop(here)
        if here.rule is None:
            largest = (middle.abs() + radius).flatten(2)
            return dual_norm(largest, tape.norm) * (1 + rounding_of(here))
        for parent, (m, r) in zip(here.parents, gradient_back(here, middle, radius), strict=True):
            if parent in waiting:
                m, r = m + waiting[parent][0], r + waiting[parent][1]
            waiting[parent] = (m, r)
    raise AssertionError("a tape starts at its input")


def gradient_back(here: Node, middle: Tensor, radius: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return middle and radius of the gradients with respect to each parent."""
    rule = here.rule
    radius = radius + (4 * ULP + rounding_of(here, *here.parents)) * (middle.abs() + radius)
    if isinstance(rule, Affine):
        middles = torch.func.vmap(rule.pull)(middle)
        return list(zip(middles, torch.func.vmap(rule.pull_absolute)(radius), strict=True))
    low, high = middle - radius, middle + radius
    if isinstance(rule, Curve):
        least, most = slope_range(rule.name, here.parents[0].lower, here.parents[0].upper)
        low = torch.where(low > 0, low * least, low * most)
        high = torch.where(high > 0, high * most, high * least)
    else:  # each pixel of a window gets a share in [0, 1] of that window's gradient
        assert isinstance(rule, Pool)
        shape = rule.chosen.shape[-1]
        low, high = (
            scatter(here, side.unsqueeze(-1).expand(*side.shape, shape).contiguous())
            for side in (low.clamp_max(0), high.clamp_min(0))
        )
    return [((low + high) / 2, (high - low) / 2)]


def in_blocks(
    bound: Callable[[Tape, Node, Tensor], Tensor], tape: Tape, node: Node, rows: Tensor
) -> Tensor:
    """Return a bound of many functionals, (R, N), a few at a time: memory must not grow with R."""
    widest = max(n.lower.numel() for n in tape.nodes)
    parts = rows.split(max(1, CLASSES // widest))
    return torch.cat([bound(tape, node, part) for part in parts])


def follow(
    graph: fx.GraphModule, x: Tensor, eps: float, norm: Norm, units: int = 0, generators: int = 0
) -> tuple[Tape, Node]:
    """Return the tape of the ball around x and the logits' node.

    Layers of up to `units` entries are tightened by lines, and all layers by generators when an
    input has at most `generators` numbers.
    """
    few = x[0].numel() <= generators
    known = generator_intervals(graph, x, eps, norm) if few else []
    tape = Tape(graph, eps, norm, tighten_up_to(units, known))
    return tape, tape.follow(x)
