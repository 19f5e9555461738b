"""Choose the kind of basis that suits an operator."""

from torch import Tensor

from toosure.curvature.eigen.basis import Basis
from toosure.curvature.eigen.eager_basis import EagerBasis
from toosure.curvature.eigen.graph_basis import GraphBasis
from toosure.curvature.eigen.operator import Operator


def make_basis(
    operator: Operator,
    candidates: Tensor,
    depth: int = 2,
    coarse: bool = False,
    past: Tensor | None = None,
) -> Basis:
    """Make a basis that spans some vectors: in GPU memory if the operator uses CUDA graphs.

    Only `GraphBasis` uses `depth` and `coarse`. In the end, the overlaps of `past` vectors with the
    leading ones are returned, too.
    """
    if operator.uses_graphs:
        return GraphBasis(operator, candidates, depth, coarse, past)
    return EagerBasis(operator, candidates, past)
