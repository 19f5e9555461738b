"""Trace a model into an fx graph, with in-place ops rewritten to return new values.

`y = relu_(x)` changes x, but torch.fx records later reads of x as reads of the old value.
"""

import operator
from collections.abc import Callable

from torch import fx, nn
from torch.nn import functional as F

# The result of these ops may share its memory with their first argument.
VIEWS: set[object] = {
    nn.Flatten,
    nn.Identity,
    nn.Unflatten,
    nn.Dropout,
    nn.Dropout2d,
    F.dropout,
    "flatten",
    "reshape",
    "view",
    "contiguous",
    "permute",
    "transpose",
    "squeeze",
    "unsqueeze",
    operator.getitem,
}
IN_PLACE: set[object] = {operator.iadd, operator.isub, operator.imul, operator.itruediv}
SIZES: set[object] = {"size", "dim", getattr}


class InPlaceProxy(fx.Proxy):
    """A traced value that records `+=` as such, which torch.fx records as `+`."""

    def __iadd__(self, other: object) -> fx.Proxy:
        return self.record(operator.iadd, other)

    def __isub__(self, other: object) -> fx.Proxy:
        return self.record(operator.isub, other)

    def __imul__(self, other: object) -> fx.Proxy:
        return self.record(operator.imul, other)

    def __itruediv__(self, other: object) -> fx.Proxy:
        return self.record(operator.itruediv, other)

    def record(self, op: Callable[..., object], other: object) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", op, (self, other), {})


class InPlaceTracer(fx.Tracer):
    """Trace a model with values that record in-place ops."""

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return InPlaceProxy(node, self)


def trace(model: nn.Module) -> fx.GraphModule:
    """Return the model as a graph of ops without in-place effects, or raise with the reason."""
    for name, module in model.named_modules():
        if module._forward_hooks or module._forward_pre_hooks:
            raise ValueError(
                f"certified bounds do not follow hooks; module {name or type(module).__name__!r} "
                "has one (weight norm and pruning are hooks too: make them permanent first)"
            )

    try:
        root = nn.Sequential(model)  # fx never takes the root itself for a leaf
        graph = fx.GraphModule(root, InPlaceTracer().trace(root))
    except Exception as error:  # fx raises many kinds
        raise ValueError(
            f"certified bounds need a model that torch.fx can trace; {type(model).__name__} "
            f"cannot be: {error}"
        ) from error

    rebind_in_place(graph)
    return graph


def rebind_in_place(graph: fx.GraphModule) -> None:
    """Redirect each later read of an overwritten value to the op that overwrote it.

    After `y = relu_(x)`, `y + x` is 2 relu(x). A view of the overwritten memory that is read
    afterwards cannot be followed, and raises.
    """
    owner: dict[fx.Node, fx.Node] = {}  # of each value: the value that owns its memory
    sizes: set[fx.Node] = set()  # numbers, which no op overwrites
    position = {node: i for i, node in enumerate(graph.graph.nodes)}

    for node in graph.graph.nodes:
        inputs = node.all_input_nodes
        kind = kind_of(graph, node)
        if kind in SIZES or (inputs and sizes.issuperset(inputs)):
            sizes.add(node)

        writes = writes_in_place(graph, node) and node not in sizes
        shares_memory = writes or kind in VIEWS
        owner[node] = owner[inputs[0]] if shares_memory and inputs else node
        if not writes:
            continue

        for other in [n for n in owner if owner[n] is owner[node] and n is not node]:
            later_users = [user for user in other.users if position[user] > position[node]]
            if later_users and other is not inputs[0]:
                raise ValueError(
                    f"no certified bound: {node} writes into memory that {later_users[0]} reads "
                    "through a view; write `y = y + ...` or ReLU(inplace=False) there"
                )
            for user in later_users:
                user.replace_input_with(other, node)


def kind_of(graph: fx.GraphModule, node: fx.Node) -> object:
    """Return what a node calls: a type of module, a function, or the name of a method."""
    if node.op != "call_module":
        name = getattr(node.target, "__name__", None)
        return name if name in VIEWS else node.target  # torch.flatten is also "flatten"
    return type(graph.get_submodule(str(node.target)))


def writes_in_place(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node overwrites its first argument."""
    if node.op == "call_module":
        return bool(getattr(graph.get_submodule(str(node.target)), "inplace", False))
    # Methods such as relu_ end in an underscore.
    named = isinstance(node.target, str) and node.op == "call_method" and node.target[-1] == "_"
    return named or node.target in IN_PLACE or bool(node.kwargs.get("inplace"))
