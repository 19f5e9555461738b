"""Which methods can be recorded as a CUDA graph, as they declare it themselves."""

import pytest
import torch
from torch import nn

from toosure.losses import LOSSES, FocalLoss
from toosure.objectives import OBJECTIVES, Plain
from toosure.optim import OPTIMIZERS, SAM, BulkSGD, Muon, why_not_recorded

HOST_ONLY = {"bulksgd": "BulkSGD solves"}


class Waiting(nn.CrossEntropyLoss):
    """A loss that declares that it reads values back."""

    cuda_graph = "reads its values back"


@pytest.mark.parametrize("lr_varies", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_say_whether_a_graph_can_record_them(name, lr_varies):
    reason = why_not_recorded(OPTIMIZERS[name], lr_varies=lr_varies)
    if name in HOST_ONLY:
        assert reason.startswith(HOST_ONLY[name]) and reason.endswith(": leave graph out")
    elif name == "muon" and lr_varies:
        assert reason.startswith("Muon reads its learning rate on the host")
    else:
        assert reason is None


@pytest.mark.parametrize("kind", [*LOSSES.values(), *OBJECTIVES.values()])
def test_every_loss_and_objective_can_be_recorded(kind):
    assert why_not_recorded(kind, lr_varies=True) is None
    assert why_not_recorded(kind(), lr_varies=True) is None


def test_an_optimizer_is_asked_together_with_its_base():
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    over_muon = SAM(net, base=Muon)
    assert why_not_recorded(over_muon) is None
    assert why_not_recorded(over_muon, lr_varies=True).startswith("Muon reads")
    assert why_not_recorded(SAM, Muon, lr_varies=True).startswith("Muon reads")
    assert why_not_recorded(SAM(net.parameters(), lr=0.1), lr_varies=True) is None
    assert why_not_recorded(BulkSGD(net.parameters(), lr=0.1, k=0)).startswith("BulkSGD solves")


def test_torch_optimizers_follow_a_rate_where_they_have_a_fused_step():
    net = nn.Linear(3, 2)
    for kind in (torch.optim.SGD, torch.optim.AdamW):
        assert why_not_recorded(kind, kind(net.parameters(), lr=0.1), lr_varies=True) is None
    for slow in (torch.optim.RMSprop, torch.optim.RMSprop(net.parameters())):
        assert why_not_recorded(slow) is None
        assert why_not_recorded(slow, lr_varies=True).startswith("RMSprop reads its learning rate")


def test_a_loss_is_found_wherever_it_is():
    class Bare:  # an objective that is no module
        loss = Waiting()

    for method in (Waiting, Waiting(), Plain(Waiting()), FocalLoss() + Waiting(), Bare()):
        assert why_not_recorded(method) == "Waiting reads its values back: leave graph out"


def test_a_scaler_decides_on_the_host():
    assert why_not_recorded(loss_scaling=True).endswith("use bf16 with graph")
