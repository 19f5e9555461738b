"""A deep ensemble: networks with different initial weights and orders of data."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from toosure.data.dataset import Dataset
from toosure.data.seeds import RunStream, derive_seed
from toosure.ensembles.batch_ensemble import check_members
from toosure.ensembles.members_at_once import MembersAtOnce, fastest_way
from toosure.ensembles.mixture import Mixture
from toosure.objectives.contract import Batch
from toosure.processes.wrappers import unwrapped


class DeepEnsemble(Mixture):
    """Train `members` networks side by side; the loss is the sum of theirs.

    Member m is the run of seed + m: it starts where that run starts and sees its batches, so that
    the ensemble equals that many runs, averaged. With `own_order=false` all members see the same
    batches. A sum, not a mean, gives each member the gradient that it would have alone; SAM's norm
    and clipping are taken per member.

    `at_once` runs the members in one pass. By default that is decided by timing each way on a
    GPU, replayed as CUDA graphs where the steps are; on a CPU, and in networks with dropout
    (whose masks would depend on the choice), members run one after another. The first member is
    the network itself, the others are its `members`.
    Reference: Lakshminarayanan, Pritzel and Blundell (2017), Simple and Scalable Predictive
    Uncertainty Estimation using Deep Ensembles, arXiv 1612.01474.

    >>> from toosure.models import mlp
    >>> model, objective = mlp(4, 3, width=8), DeepEnsemble(members=2)
    >>> x, y = torch.randn(6, 4), torch.arange(6) % 3
    >>> objective.setup(model, (x, y))
    >>> objective.member_logits(model, x).shape
    torch.Size([2, 6, 3])
    """

    streams: ClassVar[bool] = False  # members read their own training examples

    def __init__(
        self,
        loss: nn.Module | None = None,
        members: int = 4,
        own_order: bool = True,
        at_once: bool | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(loss, seed)
        check_members(members)
        self.members = members
        self.own_order = own_order
        self.at_once = at_once
        # A loop may set it, to build the network that a run of another seed starts from.
        self.make_network: Callable[[int], nn.Module] | None = None
        self.data: Dataset | None = None
        self.orders = OrderOfEpoch(seed)
        self.stacked: tuple[MembersAtOnce] | None = None  # in a tuple: not registered here
        self.example = torch.empty(0)  # one input, (1, ...)
        self.groups: list[dict[str, Any]] = []

    def setup(self, model: nn.Module, data: object) -> None:
        """Make the other members, and keep the data that they draw batches from."""
        super().setup(model, data)
        self.data = data if isinstance(data, Dataset) else None

    def convert(self, model: nn.Module, example: Tensor) -> None:
        """Attach the other members to the network."""
        others = [self.other(model, self.seed + m) for m in range(1, self.members)]
        warn_of_equal_starts(model, others, built=self.make_network is not None)
        self.example = example
        self.choose_way([model, *others], replayed=False)
        model.members = OtherMembers(others)
        parameters = [[p for n, p in model.named_parameters() if not n.startswith("members.")]]
        parameters += [list(other.parameters()) for other in others]
        self.groups = [{"params": own, "member": m} for m, own in enumerate(parameters)]

    def choose_way(self, members: list[nn.Module], replayed: bool) -> None:
        """Run all members in one pass or one after another: as asked, or as measured."""
        at_once = self.at_once
        if at_once is None and (len(members) == 1 or draws_masks(members[0])):
            at_once = False

        narrow = fastest_way(members, self.example, at_once, replayed)
        if narrow is None:
            self.stacked = None
        elif self.stacked is None or self.stacked[0].narrow != narrow:
            self.stacked = (MembersAtOnce(members, self.example, narrow),)

    def other(self, model: nn.Module, seed: int) -> nn.Module:
        """Return a network like the first that starts elsewhere."""
        first = next(model.parameters())
        if self.make_network is not None:
            return self.make_network(seed).to(first).train(model.training)

        other = deepcopy(model)
        with torch.random.fork_rng([first.device] if first.is_cuda else []):
            torch.manual_seed(seed)
            draw_weights(other)
        return other

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """Yield one group per member, so that norms are taken per member."""
        return iter(self.groups)

    def recorded(self) -> None:
        """Choose the way anew for steps that are replayed as a CUDA graph: launches cost less."""
        assert self.network is not None
        (model,) = self.network
        others = cast(OtherMembers, model.members)
        del model.members  # so that the first member is a network like the others
        try:
            self.choose_way([model, *others], replayed=True)
        finally:
            model.members = others

    # -- batches ------------------------------------------------------------------------------

    def prepare(self, model: nn.Module, batch: Batch, part: int = 0) -> tuple[Tensor, ...]:
        """Return inputs (M, N, ...) and labels (M, N), as each member's own run would see them."""
        step = self.taken if part == 0 else self.taken - 1
        self.count_step(model, part)
        x, labels, indices = batch
        if not self.own_order or self.data is None or part:
            return tuple(each.expand(self.members, *each.shape) for each in (x, labels))

        others = [self.batch_of(m, step, len(indices)) for m in range(1, self.members)]
        inputs = torch.stack([x, *(x for x, _ in others)])
        return inputs, torch.stack([labels, *(y for _, y in others)])

    def batch_of(self, member: int, step: int, count: int) -> tuple[Tensor, Tensor]:
        """Return the batch that the run of a member's seed has at a step."""
        assert self.data is not None
        train = self.data.train
        indices = self.orders.indices(member, step, count, len(train)).to(train.y.device)
        generator = torch.Generator(train.x.device)
        generator.manual_seed(derive_seed(self.seed + member, RunStream.AUGMENTATION, step))
        return self.data.augmented(train.x[indices], generator), train.y[indices]

    # -- passes -------------------------------------------------------------------------------

    def forward(self, model: nn.Module, prepared: tuple[Tensor, ...]) -> Tensor:
        inputs, labels = prepared
        network = unwrapped(model)
        logits: Sequence[Tensor]
        if self.stacked is not None:
            logits = list(self.stacked[0](inputs, network.training))
        else:
            logits = [each(x) for each, x in zip(members_of(network), inputs, strict=True)]

        losses = [self.loss_of(*each) for each in zip(logits, labels, strict=True)]
        return torch.stack(losses).sum()

    def member_logits(self, model: nn.Module, x: Tensor) -> Tensor:
        """Return the logits of each member, (M, N, C)."""
        return torch.stack([member(x) for member in members_of(model)])


class OtherMembers(nn.ModuleList):
    """The members attached to the first one.

    An `nn.Sequential` calls all that is attached to it in turn: these return what they are given.
    """

    def forward(self, x: Tensor) -> Tensor:
        return x


class OrderOfEpoch:
    """The order in which the run of each member's seed sees its examples, drawn once per epoch."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.orders: dict[int, tuple[int, Tensor]] = {}  # member -> epoch and order

    def indices(self, member: int, step: int, count: int, examples: int) -> Tensor:
        """Return which examples a member's step sees, as `toosure.train.Batches` draws them."""
        if count >= examples:
            return torch.arange(examples)
        epoch, place = divmod(step, examples // count)
        if self.orders.get(member, (-1,))[0] != epoch:
            own_seed = derive_seed(self.seed + member, RunStream.EPOCH_ORDER, epoch)
            generator = torch.Generator().manual_seed(own_seed)
            self.orders[member] = epoch, torch.randperm(examples, generator=generator)
        return self.orders[member][1][place * count : (place + 1) * count]


def members_of(model: nn.Module) -> list[nn.Module]:
    """Return the members: the network and those attached to it."""
    return [model, *cast(OtherMembers, model.members)]


def draw_weights(model: nn.Module) -> None:
    """Draw the weights of every layer again, but not frozen ones, such as of a pretrained part."""
    kept = [(p, p.detach().clone()) for p in model.parameters() if not p.requires_grad]
    for layer in model.modules():
        own = list(layer.parameters(recurse=False))
        if own and not any(p.requires_grad for p in own):
            continue  # BatchNorm would forget its statistics, too
        if hasattr(layer, "reset_parameters"):
            cast(Any, layer).reset_parameters()

    # Torch's attention draws for the layers inside it, too: after them, as when it is built.
    for layer in reversed(list(model.modules())):
        if hasattr(layer, "_reset_parameters") and not hasattr(layer, "reset_parameters"):
            cast(Any, layer)._reset_parameters()

    with torch.no_grad():
        for p, value in kept:
            p.copy_(value)


def warn_of_equal_starts(model: nn.Module, others: Sequence[nn.Module], built: bool) -> None:
    """Warn of weights that learn, and start alike where members are drawn, or built by seed."""
    named = [dict(other.named_parameters()) for other in others]  # perhaps of another kind
    alike = [
        name
        for name, p in model.named_parameters()
        if p.requires_grad
        and p.ndim > 1
        and bool((p != p.flatten()[0]).any())
        and any(name in other and torch.equal(p, other[name]) for other in named)
    ]
    if alike:
        names = ", ".join(alike[:3]) + (", ..." if len(alike) > 3 else "")
        reason = (
            "no reset_parameters() draws: set objective.make_network, a function of a seed that "
            "builds the network, before setup"
        )
        if built:
            reason = "the function that builds the network makes alike for every seed"
        warnings.warn(
            f"members of a deep ensemble start alike in {names}, which {reason}", stacklevel=5
        )


def draws_masks(model: nn.Module) -> bool:
    """Whether a pass in training mode draws dropout masks."""
    layers = (m for m in model.modules() if isinstance(m, _DropoutNd))
    return any(layer.p > 0 for layer in layers)
