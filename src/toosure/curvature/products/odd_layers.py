"""Layers and parameters that curvature cannot use directly: replacements and error messages."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from toosure.curvature.products.forward_mode import Composed


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
def composed_weight_norm(model: nn.Module) -> Iterator[None]:
    """Compute weight norm as v g / |v|: the second derivative of torch's own is wrong (2.13)."""
    if not has_weight_norm(model):
        yield
        return
    with Composed({torch._weight_norm: weight_norm}):
        yield


def has_weight_norm(model: nn.Module) -> bool:
    """Whether a layer has torch's weight norm, as a parametrization or, before, as a hook."""
    parts = [(module, *module._forward_pre_hooks.values()) for module in model.modules()]
    return any(type(each).__name__ in ("_WeightNorm", "WeightNorm") for ps in parts for each in ps)


def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """Return g v / |v|, the norm over all dimensions but one, as `torch._weight_norm`."""
    return v * (g / torch.norm_except_dim(v, 2, dim))


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
