"""Ops that write over their argument, rewritten so that later readers see what was written."""

import operator
from typing import Any

from torch import fx, nn
from torch.nn import functional as F

# What these return may share its memory with their first argument.
VIEWS = {nn.Flatten, nn.Identity, nn.Unflatten, nn.Dropout, nn.Dropout2d, F.dropout, "flatten",
         "reshape", "view", "contiguous", "permute", "transpose", "squeeze", "unsqueeze",
         operator.getitem}  # fmt: skip
IN_PLACE = {operator.iadd, operator.isub, operator.imul, operator.itruediv}
SIZES = {"size", "dim", getattr}


class Written(fx.Proxy):
    """A traced value that remembers `+=`, which torch.fx takes for `+`."""

    def __iadd__(self, other: Any) -> fx.Proxy:
        return self.written(operator.iadd, other)

    def __isub__(self, other: Any) -> fx.Proxy:
        return self.written(operator.isub, other)

    def __imul__(self, other: Any) -> fx.Proxy:
        return self.written(operator.imul, other)

    def __itruediv__(self, other: Any) -> fx.Proxy:
        return self.written(operator.itruediv, other)

    def written(self, op: Any, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", op, (self, other), {})


class WrittenTracer(fx.Tracer):
    """Trace with values that remember being written to."""

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return Written(node, self)


def trace_writes(model: nn.Module) -> fx.GraphModule:
    """Trace a model with its in-place ops as such."""
    return fx.GraphModule(model, WrittenTracer().trace(model))


def rebind_in_place(graph: fx.GraphModule) -> None:
    """Let whatever reads an overwritten value read the op that overwrote it.

    `y = relu_(x)` changes x, so `y + x` is 2 relu(x). A view of the overwritten memory that is
    read afterwards cannot be followed, and is refused.
    """
    owner: dict[fx.Node, fx.Node] = {}  # the value whose memory a value lives in
    sizes: set[fx.Node] = set()  # numbers, which nothing overwrites
    place = {node: i for i, node in enumerate(graph.graph.nodes)}
    for node in graph.graph.nodes:
        inputs, kind = node.all_input_nodes, kind_of(graph, node)
        if kind in SIZES or (inputs and sizes.issuperset(inputs)):
            sizes.add(node)
        writes = writes_in_place(graph, node) and node not in sizes
        shares = writes or kind in VIEWS
        owner[node] = owner[inputs[0]] if shares and inputs else node
        if not writes:
            continue
        for other in [n for n in owner if owner[n] is owner[node] and n is not node]:
            late = [user for user in other.users if place[user] > place[node]]
            if late and other is not inputs[0]:
                raise ValueError(
                    f"no certified bound: {node} writes into memory that {late[0]} reads through "
                    "a view; write `y = y + ...` or ReLU(inplace=False) there"
                )
            for user in late:
                user.replace_input_with(other, node)


def kind_of(graph: fx.GraphModule, node: fx.Node) -> Any:
    """Return what a node calls: a type of module, a function, or the name of a method."""
    if node.op != "call_module":
        name = getattr(node.target, "__name__", None)
        return name if name in VIEWS else node.target  # torch.flatten is also "flatten"
    return type(graph.get_submodule(str(node.target)))


def writes_in_place(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node overwrites its first argument."""
    if node.op == "call_module":
        return bool(getattr(graph.get_submodule(str(node.target)), "inplace", False))
    named = isinstance(node.target, str) and node.op == "call_method" and node.target[-1] == "_"
    return named or node.target in IN_PLACE or bool(node.kwargs.get("inplace"))
