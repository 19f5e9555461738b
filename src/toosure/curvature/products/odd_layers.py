"""Layers and parameters that curvature cannot use directly: replacements and error messages."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.parameter import is_lazy


def check_parameters(named: Mapping[str, Tensor], chosen: Sequence[str]) -> None:
    """Raise for parameters that have no shape yet, and for complex ones to differentiate by."""
    lazy = [name for name, parameter in named.items() if is_lazy(parameter)]
    if lazy:
        raise ValueError(
            f"the parameters {lazy} have no shape yet (Lazy modules): call the model once on a "
            "batch, `model(inputs[:2])`, before it is measured or given to an optimizer"
        )

    complex_ones = [name for name in chosen if named[name].is_complex()]
    if complex_ones:
        raise ValueError(
            f"the parameters {complex_ones} are complex, and curvature is defined here for real "
            "ones: keep the real and imaginary parts as one real parameter (torch.view_as_real) "
            "and use torch.view_as_complex of it in forward; or measure no curvature "
            "(Watch: measure=())"
        )


@contextmanager
def dense_embeddings(model: nn.Module) -> Iterator[None]:
    """Give embeddings with `sparse=True` dense gradients: sparse ones have no second derivative."""
    sparse = [
        module
        for module in model.modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse
    ]
    for module in sparse:
        module.sparse = False
    try:
        yield
    finally:
        for module in sparse:
            module.sparse = True


@contextmanager
def missing_derivatives_explained() -> Iterator[None]:
    """Turn torch's error for a missing derivative into one that says what to do."""
    try:
        yield
    except NotImplementedError as error:
        raise ValueError(
            f"curvature needs a second derivative that torch does not have ({error}): build that "
            "layer from other functions of torch, leave its parameters out (`parameters=` names "
            "those to keep), or measure no curvature (Watch: measure=())"
        ) from error
