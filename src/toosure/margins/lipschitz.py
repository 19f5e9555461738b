"""Global Lipschitz constants: products of operator norms bounded from above, by SVD, not by power
iteration (which approaches a norm from below and so certifies nothing)."""

from typing import Any

import torch
from torch import Tensor, fx, nn

from toosure.margins.relaxations import scatter_windows
from toosure.margins.robust import Norm, dual_norm
from toosure.margins.rules import Affine, Node, Pool
from toosure.margins.tracing import Tape, twice

ABOVE = 1 + 1e-10  # an SVD in float64 is accurate to about 1e-13 of the norm


def dense_norm(weight: Tensor) -> float:
    """Return ||W||_2 of a matrix by SVD, rounded up."""
    return float(torch.linalg.matrix_norm(weight, 2)) * ABOVE


def convolution_norm(module: Any, height: int, width: int) -> float:
    r"""Return an upper bound of ||conv||_2 for zero padding, by SVDs of its Fourier symbol.

    Embed the zero-padded image (h + 2p by w + 2p) in a torus of that size: no window of the
    convolution wraps around, so conv = R C E with E the embedding (norm 1), C the circular
    convolution and R the choice of the outputs kept, stride included (norm <= 1). Hence
    ||conv|| <= ||C|| = max over frequencies of the largest singular value of the (out, in) symbol,
    which is exact for C. Reference for C: Sedghi et al. (2019), arXiv 1805.10408.

    >>> conv = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    >>> _ = conv.weight.data.fill_(1.0)
    >>> round(convolution_norm(conv.double(), 4, 4), 6)  # all ones: nine, at frequency zero
    9.0
    """
    down, across = module.dilation
    rows, columns = module.weight.shape[2:]
    spread = module.weight.new_zeros(
        *module.weight.shape[:2], (rows - 1) * down + 1, (columns - 1) * across + 1
    )
    spread[:, :, ::down, ::across] = module.weight.detach()
    pads = padding_of(module)
    torus = (height + 2 * pads[0], width + 2 * pads[1])
    # a real kernel has conjugate symbols at f and -f: half of the frequencies are enough
    symbol = torch.fft.rfft2(spread, s=torus).permute(
        2, 3, 0, 1
    )  # (h, w / 2 + 1, out, in / groups)
    blocks = symbol.split(symbol.shape[2] // module.groups, 2)  # groups do not mix
    return max(float(largest_singular_value(b)) for b in blocks) * ABOVE


def largest_singular_value(matrices: Tensor) -> Tensor:
    """Return the largest singular value of all, from a dense eigensolver on the smaller Gram."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    gram = matrices.mH @ matrices if tall else matrices @ matrices.mH
    return torch.linalg.eigvalsh(gram).amax().sqrt()


def padding_of(module: Any) -> tuple[int, int]:
    """Return how many zeros a convolution puts on each side (rounded up for 'same')."""
    if module.padding == "valid":
        return 0, 0
    if module.padding == "same":
        spans = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        return (spans[0] + 1) // 2, (spans[1] + 1) // 2
    return module.padding


def step_norms(node: Node, norm: Norm) -> list[float]:
    """Return how much a node can grow each parent's change, in the l2 or the linf norm."""
    rule = node.rule
    if isinstance(rule, Affine):
        return [part_norm(node, rule, place, norm) for place in range(len(node.parents))]
    if isinstance(rule, Pool) and norm == "l2":
        shape = node.parents[0].lower.shape
        ones = torch.ones_like(rule.chosen)  # how often each pixel is read
        read = scatter_windows(ones, shape, rule.kernel, rule.stride, rule.padding)
        return [float(read.amax()) ** 0.5 * ABOVE]
    return [1.0]  # tanh, ReLU, and max-pooling in linf


def part_norm(node: Node, rule: Affine, place: int, norm: Norm) -> float:
    r"""Bound the norm of an affine op's matrix with respect to one parent.

    ||W||_inf is the largest row of |W| 1, exactly; ||W||_2^2 <= ||W||_1 ||W||_inf (Schur), and a
    dense layer or a convolution has its SVD besides.
    """
    ones = [torch.zeros_like(p.lower) for p in node.parents]
    ones[place] = torch.ones_like(ones[place])
    rows = float(rule.absolute(*ones).amax())
    if norm == "linf":
        return rows * ABOVE
    columns = float(rule.pull_absolute(torch.ones_like(node.lower))[place].amax())
    schur = (rows * columns) ** 0.5 * ABOVE
    if isinstance(rule.module, nn.Linear):
        return min(schur, dense_norm(rule.module.weight))
    if isinstance(rule.module, nn.Conv2d):
        return min(schur, convolution_norm(rule.module, *node.parents[0].lower.shape[2:]))
    return schur


def pair_lipschitz(graph: fx.GraphModule, sample: Tensor, norm: Norm, classes: int) -> Tensor:
    r"""Return L with |(z_y - z_j)(x + d) - (z_y - z_j)(x)| <= L[y, j] ||d|| for all x, (K, K).

    Constants multiply along the network and add up where branches meet. A dense head is read
    row by row: ||w_y - w_j||_dual instead of ||W||. For linf the better of the linf product and
    sqrt(dimension) times the l2 product counts.
    """
    tape = Tape(graph, 0.0, norm)
    logits = tape.follow(twice(sample[:1]))
    ways = [head_product(tape, logits, classes, "l2")]
    if norm == "linf":
        ways = [ways[0] * sample[0].numel() ** 0.5, head_product(tape, logits, classes, "linf")]
    return torch.stack(ways).amin(0)


def head_product(tape: Tape, logits: Node, classes: int, norm: Norm) -> Tensor:
    """Return the product of norms up to every pair of logits, (K, K)."""
    constants: dict[Node, float] = {tape.nodes[0]: 1.0}
    for node in tape.nodes[1:]:
        grown = zip(step_norms(node, norm), node.parents, strict=True)
        constants[node] = sum(factor * constants[parent] for factor, parent in grown)
    rule = logits.rule
    if isinstance(rule, Affine) and isinstance(rule.module, nn.Linear):
        weight: Tensor = rule.module.weight
        below = constants[logits.parents[0]]
    else:
        weight = torch.eye(classes, dtype=torch.float64, device=logits.lower.device)
        below = constants[logits]
    return dual_norm(weight.unsqueeze(1) - weight.unsqueeze(0), norm) * below * ABOVE
