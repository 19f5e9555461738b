"""The pieces under a step: the climb without waiting, norms of mixed types, shared buckets."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from slow_optimizers import batches, largest_difference, make_cnn, make_mlp, train
from torch import nn

from toosure.losses import CSAMLoss
from toosure.optim import ASAM, CSAM, SAM, VASSO, BulkSGD, Muon
from toosure.optim.passes import climb_, climb_without_waiting_, copies, global_norm


def tensors(dtype, layout="contiguous"):
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(s, generator=generator).to(dtype) for s in ((3, 2, 4, 4), (5,))]
    if layout == "channels last":
        made[0] = made[0].to(memory_format=torch.channels_last)
    if layout == "gaps":
        made[0] = made[0][..., ::2]
    return made


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    ("layout", "other"),
    [
        ("contiguous", "contiguous"),
        ("channels last", "channels last"),
        ("contiguous", "channels last"),
        ("gaps", "gaps"),
    ],
)
def test_the_climb_of_a_gpu_is_the_climb_of_the_cpu(keep, dtype, layout, other):
    """The way a GPU goes, taken on the CPU: where it falls back, and where it does not."""
    points, directions = tensors(dtype, layout), [2 * t for t in tensors(dtype, other)]
    before = [t.clone() for t in directions]
    norm = global_norm(directions)
    expected = [
        p + 0.3 * (d.double() / norm.double()).to(dtype)
        for p, d in zip(points, directions, strict=True)
    ]
    climb_without_waiting_(points, directions, 0.3, norm, keep)
    for p, e in zip(points, expected, strict=True):
        assert torch.allclose(p, e, atol=4 * torch.finfo(dtype).eps)
    if keep:
        assert all(map(torch.equal, directions, before))


def test_a_zero_gradient_moves_nothing():
    for climb in (climb_, lambda *a: climb_without_waiting_(*a, False)):
        points = [torch.ones(3)]
        climb(points, [torch.zeros(3)], 0.5, torch.tensor(0.0))
        assert points[0].tolist() == [1, 1, 1]


def test_copies_are_the_same_bits():
    odd = torch.tensor([-0.0, 0.0, float("inf"), 1e-45, float("nan")])
    counter = torch.tensor(2**62)
    found = copies([odd])[0], copies([counter])[0]
    assert torch.equal(found[0].view(torch.int32), odd.view(torch.int32))
    assert torch.equal(found[1], counter)
    assert found[0].data_ptr() != odd.data_ptr()


def test_norm_of_mixed_types():
    three = torch.tensor([3.0], dtype=torch.bfloat16)
    four = torch.tensor([4.0], dtype=torch.float64)
    assert global_norm([three, four]).item() == 5.0
    assert global_norm([torch.full((8,), 3e4, dtype=torch.float16)]).isfinite()  # past 65504


@pytest.mark.parametrize("method", [SAM, ASAM, VASSO])
def test_mixed_types_in_one_group(method):
    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh())
    head = nn.Linear(9, 4).double()

    def forward(inputs):
        return head(model(inputs.float()).double())

    optimizer = method([*model.parameters(), *head.parameters()], rho=0.1, lr=0.1)
    before = [p.detach().clone() for p in optimizer.param_groups[0]["params"]]
    train(forward, optimizer, F.cross_entropy, batches("mlp", 2))
    for p, old in zip(optimizer.param_groups[0]["params"], before, strict=True):
        assert torch.isfinite(p).all()
        assert not torch.equal(p, old)


def test_vasso_keeps_no_gradient_that_others_overwrite():
    """As DDP with gradient_as_bucket_view, whose buckets the next pass fills again."""
    models, optimizers = [make_mlp(), make_mlp()], []
    for model in models:
        optimizers.append(VASSO(model.parameters(), rho=0.1, theta=0.4, lr=0.1))
    sizes = [p.numel() for p in models[1].parameters()]
    parts = torch.zeros(sum(sizes), dtype=torch.float64).split(sizes)
    pairs = zip(models[1].parameters(), parts, strict=True)
    buckets = {p: part.view_as(p) for p, part in pairs}
    for inputs, labels in batches("mlp", 4):
        for model, optimizer, shared in zip(models, optimizers, (None, buckets), strict=True):

            def closure(model=model, shared=shared, inputs=inputs, labels=labels):
                loss = F.cross_entropy(model(inputs), labels)
                loss.backward()
                for p in model.parameters() if shared else ():
                    shared[p].copy_(p.grad)
                    p.grad = shared[p]
                return loss

            optimizer.step(closure)
    assert largest_difference(*models) == 0


def test_cumulative_batchnorm_moves_once():
    """momentum=None divides by the counter, so the counter must come back too."""
    model, twin = make_cnn(), make_cnn()
    model[1].momentum = twin[1].momentum = None
    optimizer = SAM(model.parameters(), rho=0.1, lr=0.0)
    train(model, optimizer, F.cross_entropy, batches("cnn", 3))
    for inputs, _ in batches("cnn", 3):
        twin(inputs)
    assert model[1].num_batches_tracked == 3
    assert torch.equal(model[1].running_var, twin[1].running_var)


def test_layers_that_run_only_later_are_held_too():
    first, second = make_cnn(), make_cnn(seed=1)
    optimizer = SAM([*first.parameters(), *second.parameters()], rho=0.1, lr=0.1)
    train(first, optimizer, F.cross_entropy, batches("cnn", 2))
    train(second, optimizer, F.cross_entropy, batches("cnn", 3))
    train(first, optimizer, F.cross_entropy, batches("cnn", 1))
    assert (first[1].num_batches_tracked, second[1].num_batches_tracked) == (3, 3)


def test_modules_that_are_gone_are_not_kept():
    model = make_mlp()
    optimizer = SAM(model.parameters(), lr=0.1)

    def criterion(logits, labels):
        return nn.CrossEntropyLoss()(logits, labels)  # a new module in each pass

    train(model, optimizer, criterion, batches("mlp", 20))
    assert len(optimizer.statistics.seen) < 10


def test_a_disabled_scaler_changes_nothing():
    models = [make_mlp(), make_mlp()]
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for model, extra in zip(models, ({}, {"scaler": scaler}), strict=True):
        optimizer = SAM(model.parameters(), rho=0.1, lr=0.1)
        for inputs, labels in batches("mlp", 3):

            def closure(model=model, inputs=inputs, labels=labels):
                loss = F.cross_entropy(model(inputs), labels)
                scaler.scale(loss).backward()
                return loss

            optimizer.step(closure, **extra)
            scaler.update()
    assert largest_difference(*models) == 0


def test_a_bad_group_is_not_added():
    model, late = make_mlp(), nn.Parameter(torch.ones(3))
    optimizer = SAM(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="rho must not be negative"):
        optimizer.add_param_group({"params": [late], "rho": -1.0})
    assert len(optimizer.param_groups) == len(optimizer.base.param_groups) == 1
    muon = Muon(model.parameters())
    with pytest.raises(ValueError, match="orthogonalises matrices"):
        muon.add_param_group({"params": [late], "muon": True})
    assert len(muon.param_groups) == 2


@pytest.mark.parametrize("method", [SAM, CSAM, ASAM, VASSO])
def test_groups_added_after_steps_are_trained(method):
    model = make_cnn()
    head = list(model[-1].parameters())
    optimizer = method(list(model.parameters())[:-2], rho=0.1, lr=0.1, momentum=0.9)
    criterion = optimizer.criterion() if method is CSAM else F.cross_entropy
    train(model, optimizer, criterion, batches("cnn", 2))
    before = head[0].detach().clone()
    optimizer.add_param_group({"params": head, "rho": 0.2})
    train(model, optimizer, criterion, batches("cnn", 2))
    assert not torch.equal(head[0], before)
    assert "momentum_buffer" in optimizer.state[head[0]]


def test_closures_that_return_nothing():
    model = make_mlp()
    inputs, labels = next(batches("mlp"))
    closure = lambda: F.cross_entropy(model(inputs), labels).backward()  # noqa: E731
    optimizer = SAM(model.parameters(), lr=0.1)
    assert optimizer.step(closure) is None
    assert optimizer.step([closure, closure]) is None


def test_csam_of_rho_zero_is_sgd_on_equation_four():
    model, twin = make_mlp(), make_mlp()
    optimizer = CSAM(model.parameters(), rho=0.0, gamma=2.0, lr=0.5)
    train(model, optimizer, optimizer.criterion(), batches("mlp", 5))
    train(twin, torch.optim.SGD(twin.parameters(), lr=0.5), CSAMLoss(gamma=2.0), batches("mlp", 5))
    assert largest_difference(model, twin) == 0


def test_a_tracker_may_leave_gradients_behind():
    weight = nn.Parameter(torch.tensor([1.0, -2.0]))

    class Careless:
        def top(self, matrix, k):
            weight.grad = torch.full((2,), 100.0)
            return SimpleNamespace(values=torch.ones(1), vectors=torch.eye(2)[:k], converged=True)

    optimizer = BulkSGD([weight], lr=0.1, k=1, tracker=Careless())
    weight.grad = torch.tensor([3.0, -2.0])
    optimizer.step()
    assert weight.tolist() == pytest.approx([1.0, -1.8])
