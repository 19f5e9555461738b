"""Global Lipschitz constants: products of upper bounds of operator norms.

Norms come from SVDs: power iteration approaches a norm from below and so certifies nothing.
"""

import torch
from torch import Tensor, fx, nn

from toosure.margins.interval_tape import IntervalTape, as_batch_of_two
from toosure.margins.relaxations import scatter_windows
from toosure.margins.robust import Norm, dual_norm
from toosure.margins.supported_ops import AffineRule, IntervalNode, MaxPoolRule

ROUND_UP = 1 + 1e-10  # an SVD in float64 is accurate to about 1e-13 of the norm


def dense_norm(weight: Tensor) -> float:
    """Return ||W||_2 of a matrix by SVD, rounded up."""
    return float(torch.linalg.matrix_norm(weight, 2)) * ROUND_UP


def convolution_norm(module: nn.Conv2d, height: int, width: int) -> float:
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
    # The kernel with the zeros of its dilation written out.
    down, across = module.dilation
    rows, columns = module.weight.shape[2:]
    kernel = module.weight.new_zeros(
        *module.weight.shape[:2], (rows - 1) * down + 1, (columns - 1) * across + 1
    )
    kernel[:, :, ::down, ::across] = module.weight.detach()

    # A real kernel has conjugate symbols at f and -f: half of the frequencies are enough.
    padding_down, padding_across = padding_of(module)
    torus = (height + 2 * padding_down, width + 2 * padding_across)
    symbol = torch.fft.rfft2(kernel, s=torus)  # (out, in / groups, h, w / 2 + 1)
    symbol = symbol.permute(2, 3, 0, 1)

    blocks = symbol.split(symbol.shape[2] // module.groups, 2)  # groups do not mix
    return max(float(largest_singular_value(block)) for block in blocks) * ROUND_UP


def largest_singular_value(matrices: Tensor) -> Tensor:
    """Return the largest singular value of all, from a dense eigensolver on the smaller Gram."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    gram = matrices.mH @ matrices if tall else matrices @ matrices.mH
    eigenvalues: Tensor = torch.linalg.eigvalsh(gram)
    return eigenvalues.amax().sqrt()


def padding_of(module: nn.Conv2d) -> tuple[int, int]:
    """Return how many zeros a convolution adds on each side (rounded up for 'same')."""
    if not isinstance(module.padding, str):
        down, across = module.padding
        return down, across
    if module.padding == "valid":
        return 0, 0
    spans = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
    return (spans[0] + 1) // 2, (spans[1] + 1) // 2


def operator_norms(node: IntervalNode, norm: Norm) -> list[float]:
    """Return by how much a node can stretch a change of each parent, in the l2 or linf norm."""
    rule = node.rule
    if isinstance(rule, AffineRule):
        return [affine_norm(node, rule, index, norm) for index in range(len(node.parents))]
    if isinstance(rule, MaxPoolRule) and norm == "l2":
        shape = node.parents[0].lower.shape
        ones = torch.ones_like(rule.chosen)
        reads = scatter_windows(ones, shape, rule.kernel, rule.stride, rule.padding)  # per pixel
        return [float(reads.amax()) ** 0.5 * ROUND_UP]
    return [1.0]  # tanh, ReLU, and max-pooling in linf


def affine_norm(node: IntervalNode, rule: AffineRule, index: int, norm: Norm) -> float:
    r"""Bound the norm of an affine op's matrix with respect to the parent at `index`.

    ||W||_inf is the largest row of |W| 1, exactly; ||W||_2^2 <= ||W||_1 ||W||_inf (Schur), and a
    dense layer or a convolution has its SVD besides.
    """
    ones = [torch.zeros_like(p.lower) for p in node.parents]
    ones[index] = torch.ones_like(ones[index])
    rows = float(rule.absolute(*ones).amax())
    if norm == "linf":
        return rows * ROUND_UP

    columns = float(rule.pull_absolute(torch.ones_like(node.lower))[index].amax())
    schur: float = (rows * columns) ** 0.5 * ROUND_UP
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
    tape = IntervalTape(graph, 0.0, norm)
    logits = tape.propagate(as_batch_of_two(sample[:1]))

    products = [norm_product(tape, logits, classes, "l2")]
    if norm == "linf":
        products = [
            products[0] * sample[0].numel() ** 0.5,
            norm_product(tape, logits, classes, "linf"),
        ]
    return torch.stack(products).amin(0)


def norm_product(tape: IntervalTape, logits: IntervalNode, classes: int, norm: Norm) -> Tensor:
    """Return the product of norms up to every pair of logits, (K, K)."""
    constants: dict[IntervalNode, float] = {tape.nodes[0]: 1.0}
    for node in tape.nodes[1:]:
        factors = zip(operator_norms(node, norm), node.parents, strict=True)
        constants[node] = sum(factor * constants[parent] for factor, parent in factors)

    rule = logits.rule
    if isinstance(rule, AffineRule) and isinstance(rule.module, nn.Linear):
        weight: Tensor = rule.module.weight
        below = constants[logits.parents[0]]
    else:
        weight = torch.eye(classes, dtype=torch.float64, device=logits.lower.device)
        below = constants[logits]
    return dual_norm(weight.unsqueeze(1) - weight.unsqueeze(0), norm) * below * ROUND_UP
