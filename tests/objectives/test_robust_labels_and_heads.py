"""AR-AdaLS, CCAT and BalCAL: figures, limits and state."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from toosure.data import digits
from toosure.losses import LabelSmoothingLoss
from toosure.margins import normalised_margin
from toosure.models import mlp
from toosure.objectives import CCAT, ARAdaLS, BalCAL
from toosure.objectives.ar_adals import next_target, quantile_groups
from toosure.objectives.balcal import balanced, column_scale, simplex_frame
from toosure.objectives.ccat import transition, wrong_confidence
from toosure.optim import SAM

CE = nn.CrossEntropyLoss()


def some(rows=12):
    torch.manual_seed(0)
    model = mlp(inputs=4, classes=3, width=8)
    return model, (torch.randn(rows, 4), torch.arange(rows) % 3, torch.arange(rows))


# AR-AdaLS


def test_targets_by_hand():
    target = next_target(torch.tensor([0.95]), torch.tensor([0.97 - 0.90]), 0.005, 10)
    assert target.item() == pytest.approx(0.94965, abs=1e-7)
    low = next_target(torch.tensor([0.2, 0.9]), torch.tensor([10.0, -1e3]), 0.5, 10)
    assert low.tolist() == pytest.approx([0.1, 1.0])  # at least 1/K, at most 1


def test_a_target_is_a_share_of_smoothing():
    """q = .94 of K = 10 smooths over all classes by .06666667, over the others by 1 - q."""
    logits = torch.randn(5, 10, dtype=torch.float64)
    labels = torch.arange(5)
    others = LabelSmoothingLoss(1 - 0.94, "others")(logits, labels)
    torch.testing.assert_close(others, LabelSmoothingLoss(0.06666666667)(logits, labels))


def test_groups_are_of_equal_size_and_by_rank():
    values = torch.randn(103)
    groups = quantile_groups(values, 10)
    counts = torch.bincount(groups)
    assert len(counts) == 10 and counts.min() >= 10 and counts.max() <= 11
    assert all(values[groups == r].max() < values[groups == r + 1].min() for r in range(9))


def test_ar_adals_starts_as_cross_entropy_and_follows_the_validation_set():
    data = digits(train=60, val=40)
    torch.manual_seed(0)
    model = mlp((1, 8, 8), width=8)
    objective = ARAdaLS(rate=0.5, groups=2)
    objective.setup(model, data)
    batch = (data.train.x[:20], data.train.y[:20], torch.arange(20))
    plain = CE(model(batch[0]), batch[1])
    torch.testing.assert_close(objective(model, objective.prepare(model, batch)), plain)
    with torch.no_grad():
        model.head.weight.mul_(50)  # sure and wrong: targets must fall
    objective.epoch_end(model)
    assert objective.targets.max() < 1 and objective.epochs == 1
    assert torch.bincount(objective.places).tolist() == [30, 30]
    smoothing = objective.prepare(model, batch)[2]
    assert torch.equal(smoothing, 1 - objective.targets[objective.places[:20]])
    still = ARAdaLS(rate=0.0, groups=2)
    still.setup(model, data)
    still.epoch_end(model)
    assert still.targets.tolist() == [1, 1]


def test_ranks_are_taken_anew_every_so_many_epochs():
    data, model = digits(train=60, val=40), mlp((1, 8, 8), width=8)
    objective, taken = ARAdaLS(groups=3, refresh=2), []
    objective.setup(model, data)
    ranked = objective.ranked
    objective.ranked = lambda model, split: taken.append(len(split)) or ranked(model, split)
    for epoch in range(4):
        objective.epoch_end(model)
        assert taken == [60, 40] * (epoch // 2 + 1)
    reach = normalised_margin(model, data.train.x, data.train.y)
    nearest, _, furthest = (reach[objective.places == group] for group in range(3))
    assert nearest.max() < furthest.min()  # the easiest to attack are group 0


def test_one_group_is_one_smoothing_for_all():
    objective = ARAdaLS(rate=0.1, groups=1)
    objective.remember(4, 8)
    objective.correct(torch.full((8,), 0.9), torch.zeros(8), classes=3)
    assert objective.targets.tolist() == pytest.approx([1 - 0.09])


def test_ar_adals_needs_validation_data():
    with pytest.raises(ValueError, match="name a val size"):
        ARAdaLS().setup(None, SimpleNamespace(val=None))


# CCAT


def test_labels_fade_with_the_length_of_the_shift():
    shift = torch.tensor([[0.0, 0.0], [0.5, -0.2], [0.1, 1.0], [2.0, 0.0]], dtype=torch.float64)
    left = transition(shift, 1.0, 10.0)
    assert left.tolist() == pytest.approx([1, 0.00097656, 0, 0], abs=1e-8)
    target = left[1] * F.one_hot(torch.tensor(0), 10) + (1 - left[1]) / 10
    assert target[:2].tolist() == pytest.approx([0.10087891, 0.09990234], abs=1e-8)


def test_no_shift_is_cross_entropy():
    model, batch = some()
    objective = CCAT(eps=0.0, attack_steps=2)
    loss = objective(model, objective.prepare(model, batch))
    torch.testing.assert_close(loss, CE(model(batch[0]), batch[1]))
    none = CCAT(share=0.0)
    assert torch.equal(none(model, none.prepare(model, batch)), CE(model(batch[0]), batch[1]))


def test_a_shift_to_the_border_asks_for_the_uniform_label():
    model, (x, y, _) = some()
    objective = CCAT(share=1.0)
    loss = objective(model, (x, y, torch.zeros(len(x))))
    torch.testing.assert_close(loss, -model(x).log_softmax(1).mean())


def test_the_attack_makes_a_wrong_class_likelier_inside_the_ball():
    model, (x, y, _) = some()
    objective = CCAT(eps=0.2, step=0.05, attack_steps=20)
    start = torch.zeros_like(x)
    shift = objective.attack(model, x, y, start)
    before, after = (wrong_confidence(model, x + s, y)[0] for s in (start, shift))
    assert (
        shift.abs().max() <= 0.2 + 1e-7 and (after >= before).all() and after.mean() > before.mean()
    )


def test_the_attack_on_an_affine_network_ends_in_the_corner():
    """With two classes the other's confidence grows along one direction for ever."""
    model = nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0]]))
    x, y = (
        torch.randn(5, 3, generator=torch.Generator().manual_seed(0)),
        torch.tensor([0, 0, 0, 1, 1]),
    )
    shift = CCAT(eps=0.1, step=0.05).attack(model, x, y, torch.zeros_like(x))
    corner = 0.1 * torch.tensor([[-1.0, 1.0, -1.0]])
    torch.testing.assert_close(shift, torch.cat([corner.expand(3, 3), -corner.expand(2, 3)]))


def test_the_attack_has_momentum():
    """Three points of a straight road: speeds .1 and .1 + .09, steps of .05."""
    model = nn.Linear(1, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0], [1.0]]))
    x, y = torch.zeros(1, 1), torch.tensor([0])
    shift = CCAT(eps=1.0, step=0.05, attack_steps=2).attack(model, x, y, x)
    assert shift.item() == pytest.approx(0.05 * (0.1 + 0.19))


class Peak(nn.Module):
    """The second class is likeliest at 0."""

    def forward(self, x):
        self.seen = [*getattr(self, "seen", []), x.item()]
        return torch.cat([torch.zeros_like(x), -x.square()], 1)


def test_a_step_that_does_not_help_is_undone_and_shortened():
    """From .01: -.1 overshoots; then from .01 again by +.01/1.5, by -.091/1.5^2."""
    model, x = Peak(), torch.zeros(1, 1)
    objective = CCAT(eps=1.0, step=1.0, attack_steps=3)
    shift = objective.attack(model, x, torch.tensor([0]), x + 0.01)
    wanted = [0.01, -0.09, 0.01 + 0.01 / 1.5, 0.01 - 0.091 / 1.5**2]
    assert model.seen == pytest.approx(wanted, abs=1e-6) and shift.item() == pytest.approx(0.01)


def test_the_attack_starts_at_random():
    model, (x, y, places) = some(200)
    objective = CCAT(eps=0.2, attack_steps=0)
    shift = objective.prepare(model, (x, y, places))[0][100:] - x[100:]
    assert shift.abs().max() <= 0.2 + 1e-6
    assert shift.mean().item() == pytest.approx(0, abs=0.03)  # uniform: 0 and eps / 2
    assert shift.abs().mean().item() == pytest.approx(0.1, abs=0.02)


def test_half_a_batch_is_attacked():
    model, batch = some()
    objective = CCAT(attack_steps=1, seed=2)
    x, labels, left = objective.prepare(model, batch)
    assert torch.equal(x[:6], batch[0][:6]) and not torch.equal(x[6:], batch[0][6:])
    assert left.shape == (6,) and torch.equal(labels, batch[1])
    logits = model(x)
    target = left[:, None] * F.one_hot(labels[6:], 3) + (1 - left[:, None]) / 3
    wanted = (CE(logits[:6], labels[:6]) + F.cross_entropy(logits[6:], target)) / 2
    torch.testing.assert_close(objective(model, (x, labels, left)), wanted)


# BalCAL


@pytest.mark.parametrize(
    ("classes", "most"), [(3, 0.69143845), (10, 0.25235084), (100, 0.02698761)]
)
def test_the_frame_is_a_simplex(classes, most):
    frame = simplex_frame(128, classes, torch.Generator().manual_seed(0)).double()
    products = frame.T @ frame
    wanted = torch.full((classes, classes), -1 / (classes - 1), dtype=torch.float64)
    wanted.fill_diagonal_(1)
    torch.testing.assert_close(products, wanted, rtol=0, atol=1e-6)
    confidence = products[0].softmax(0)[0].item()  # of the best feature, the column itself
    assert confidence == pytest.approx(most, abs=1e-6)


def test_a_network_in_float64_has_heads_in_float64():
    model = mlp(4, 3, width=8).double()
    objective = BalCAL()
    objective.setup(model, (torch.randn(6, 4).double(), torch.arange(6) % 3))
    batch = (torch.randn(6, 4).double(), torch.arange(6) % 3, torch.arange(6))
    assert objective(model, objective.prepare(model, batch)).dtype == torch.float64
    assert objective.predict(model, batch[0]).dtype == torch.float64


def test_columns_are_counted_whatever_the_default_type():
    labels = torch.tensor([0, 0, 2])
    wanted = column_scale(labels, 3)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(column_scale(labels, 3), wanted)
    finally:
        torch.set_default_dtype(torch.float32)


def test_columns_are_scaled_by_how_often_a_class_occurs():
    scale = column_scale(torch.tensor([0, 0, 0, 1]), 3)
    assert scale.tolist() == pytest.approx([(2 / 3) ** 0.5, 2**0.5, 1])
    assert column_scale(torch.arange(6) % 3, 3).tolist() == pytest.approx([1, 1, 1])


def test_rare_classes_are_scaled_up_in_the_loss():
    model, (x, _, _) = some(4)
    labels = torch.tensor([0, 0, 0, 1])
    objective = BalCAL(start=0.8)
    objective.make_head(model)
    learned, fixed = objective.logits_of_heads(model, x)
    scaled = fixed * torch.tensor([(2 / 3) ** 0.5, 2**0.5, 1.0])
    wanted = 0.8 * CE(learned, labels) + 0.2 * CE(scaled, labels)
    torch.testing.assert_close(objective(model, (x, labels, torch.ones(()).long())), wanted)


def test_a_balance_of_one_is_cross_entropy():
    model, batch = some()
    objective = BalCAL(start=1.0)
    objective.make_head(model)
    loss = objective(model, objective.prepare(model, batch))
    torch.testing.assert_close(loss, CE(model(batch[0]), batch[1]))
    torch.testing.assert_close(objective.predict(model, batch[0]), model(batch[0]))


def test_the_heads_are_balanced_so_that_confidence_meets_accuracy():
    generator = torch.Generator().manual_seed(0)
    learned, fixed = 5 * torch.randn(200, 3, generator=generator), 0.1 * torch.randn(200, 3)
    labels = torch.where(torch.rand(200, generator=generator) < 0.7, learned.argmax(1), 0)
    share = balanced(learned, fixed, labels, 0.95)
    accuracy = (learned.argmax(1) == labels).float().mean().item()
    confidence = (share * learned + (1 - share) * fixed).softmax(1).amax(1).mean().item()
    assert 0 < share < 1 and confidence == pytest.approx(0.95 * accuracy, abs=1e-3)
    assert balanced(0.01 * learned, fixed, learned.argmax(1), 1.0) == 1.0  # not sure enough


def test_an_epoch_is_collected_once_a_step_and_balances():
    model, batch = some()
    objective = BalCAL()
    objective.make_head(model, keep=30)
    optimizer = SAM([*model.parameters(), *objective.parameters()], rho=0.05, lr=0.0)
    for _ in range(2):
        ready = objective.prepare(model, batch)

        def closure(ready=ready):
            loss = objective(model, ready)
            loss.backward()
            return loss

        optimizer.step(closure)
    assert objective.count == 24
    torch.testing.assert_close(objective.seen[0, :12], model(batch[0]).detach())
    assert torch.equal(objective.seen_labels[12:24], batch[1])
    learned, fixed = objective.seen[:, :24]
    wanted = balanced(learned, fixed, objective.seen_labels[:24], 0.95)
    objective.epoch_end(model)
    assert objective.balance.item() == pytest.approx(wanted) and objective.count == 0


def test_a_full_store_begins_anew():
    model, batch = some()
    objective = BalCAL()
    objective.make_head(model, keep=20)
    for _ in range(2):
        objective(model, objective.prepare(model, batch))
    assert objective.count == 24 and torch.equal(objective.seen_labels[:4], batch[1][8:])


def test_only_the_adaptor_joins_the_optimizer():
    model, _ = some()
    objective = BalCAL()
    assert list(objective.parameters()) == []
    objective.make_head(model)
    own = sum(p.numel() for p in objective.parameters())
    assert own == sum(p.numel() for p in objective.adaptor.parameters()) > 0


def test_prediction_is_made_in_the_model_s_mode():
    model, batch = some()
    objective = BalCAL(start=0.5)
    objective.make_head(model)
    model.eval()
    before = objective.adaptor.norm.running_mean.clone()
    one, two = objective.predict(model, batch[0]), objective.predict(model, batch[0][:3])
    torch.testing.assert_close(one[:3], two)  # rows do not see each other
    assert torch.equal(before, objective.adaptor.norm.running_mean)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ARAdaLS(groups=0), "groups >= 1"),
        (lambda: CCAT(share=2.0), "0 <= share <= 1"),
        (lambda: BalCAL(start=2.0), "0 <= start <= 1"),
        (lambda: BalCAL().logits_of_heads(None, None), "call setup"),
    ],
)
def test_mistakes_say_what_to_do(make, words):
    with pytest.raises(ValueError, match=words):
        make()
