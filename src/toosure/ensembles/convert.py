"""Replace layers anywhere inside a network, and find the one that reads the input."""

from collections.abc import Callable, Iterator

from torch import Tensor, nn

Weighted = nn.Conv2d | nn.Linear  # what ensembles convert

# They compute with the weights of the layers inside them, and do not always call these.
READERS = (nn.MultiheadAttention, nn.TransformerEncoderLayer)


def replace_layers(
    model: nn.Module, make: Callable[[str, nn.Module], nn.Module | None]
) -> list[str]:
    """Replace every layer for which `make(name, layer)` returns another; return their names.

    Layers are found in their parents, however deep: setting a dotted name on the root would add
    a child and leave the network as it was. One that the network holds under several names is
    replaced by one, so that its weights stay shared.

    >>> model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2))
    >>> replace_layers(model, lambda name, layer: nn.Identity() if name == "0.0" else None)
    ['0.0']
    >>> model[0][0]
    Identity()
    """
    replaced = []
    made: dict[nn.Module, nn.Module | None] = {}
    for path, parent, name, layer in list(children(model)):
        if layer not in made:
            made[layer] = make(path, layer)
        new = made[layer]
        if new is not None:
            parent._modules[name] = new
            replaced.append(path)
    return replaced


def children(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module, str, nn.Module]]:
    """Yield (path, parent, name, layer) of every layer below the model, parents first."""
    for name, layer in model._modules.items():
        if layer is None:
            continue
        path = f"{prefix}{name}"
        yield path, model, name, layer
        yield from children(layer, f"{path}.")


def weighted_layers(model: nn.Module) -> dict[str, Weighted]:
    """Return the convolutions and linear layers by their first name; raise if there are none."""
    named = model.named_modules()
    layers = {path: layer for path, layer in named if path and isinstance(layer, Weighted)}
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no Conv2d and no Linear below it: there is nothing to "
            "make members of"
        )
    return layers


def check_replaceable(model: nn.Module, *kinds: type[nn.Module]) -> None:
    """Raise if layers of some kinds lie in a module of torch that computes without calling them."""
    for path, parent, _, layer in children(model):
        if isinstance(parent, READERS) and isinstance(layer, kinds):
            raise ValueError(
                f"{path} cannot be replaced: torch's {type(parent).__name__} computes without "
                "calling it. Write attention with layers that are called, as in toosure.models.vit"
            )


def channels_of(layer: Weighted) -> tuple[int, int]:
    """Return the numbers of channels that a layer reads and gives."""
    if isinstance(layer, nn.Conv2d):
        return layer.in_channels, layer.out_channels
    return layer.in_features, layer.out_features


def per_channel(layer: Weighted, values: Tensor, rows: Tensor) -> Tensor:
    """Return values per row and channel, (rows, C), in the shape and dtype to multiply rows by.

    Channels come second where the layer is a convolution, and last where it is linear. Float32
    values would turn the bf16 rows of mixed precision into float32, and so all that follows.
    """
    values = values.to(rows.dtype)
    ones = [1] * (rows.ndim - 2)
    if isinstance(layer, nn.Conv2d):
        return values.reshape(*values.shape, *ones)
    return values.reshape(values.shape[0], *ones, values.shape[1])


def apply_weight(layer: Weighted, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute the layer with other weights, and without a bias unless one is given."""
    if isinstance(layer, nn.Conv2d):
        y: Tensor = layer._conv_forward(x, weight, bias)
        return y
    return nn.functional.linear(x, weight, bias)
