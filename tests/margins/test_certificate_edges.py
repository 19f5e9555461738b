"""What a certificate says of networks and data at its edges: nothing wrong, and never nothing."""

import math

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from margins.networks import data, make
from toosure.margins import (
    attacked_margin,
    certificates,
    certify,
    log_moment,
    propagation,
    true_margin,
)
from toosure.margins.certified import CertifiedBounds, certified_bounds
from toosure.margins.clean_pass import CleanPass
from toosure.margins.measurements import Measurements
from toosure.margins.robust import RobustMargin, float64_copy
from toosure.margins.statements import judge
from toosure.margins.theorems import all_statements
from toosure.metrics import ece


def small(activation=nn.ReLU):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), activation(), nn.Linear(6, 3))


def test_estimates_never_get_a_verdict():
    model, shape = make("tanh", 0)
    certificate = certify(model, data(shape, 10, 0), eps=0.1, curvature=False)
    for kind in ("attacked", "linearised"):
        statement = certificate[f"4.1 (i) {kind}"]
        assert statement.holds is None and statement.reason.startswith("estimate")
    assert certificate["4.1 (i) certified"].holds is True
    assert (
        certificate["4.1 (ii)"].holds is None and certificate["4.1 (ii)"].reason == "not measured"
    )


def test_moments_are_made_of_the_right_margins():
    model, shape = make("tanh", 2, scale=1.5)
    x, y = data(shape, 12, 2)
    found = certify(model, (x, y), eps=0.3, curvature=False).log_moments
    proved, reached = certified_bounds(model, x, y, 0.3), attacked_margin(model, x, y, 0.3)
    assert (proved.margin.values < reached.values - 1e-3).any()
    growth = 0.3 * proved.lipschitz
    assert found["Q+"] == pytest.approx(float(log_moment(proved.margin.values - growth)), rel=1e-12)
    assert found["Q-"] == pytest.approx(float(log_moment(reached.values + growth)), rel=1e-12)
    assert found["Q_eps certified"] == pytest.approx(float(log_moment(proved.margin.values)))


def test_a_failed_shift_leaves_the_corollary_open():
    model, shape = make("tanh", 0)
    x, y = data(shape, 10, 0)
    far = certify(model, (x, y), eps=0.05, curvature=False, test=(x + 0.2, y))["B.8"]
    assert far.holds is None and far.reason.startswith("assumption fails: 10 of 10")
    near = certify(model, (x, y), eps=0.05, curvature=False, test=(x + 0.04, y))["B.8"]
    assert near.holds is True


@pytest.mark.parametrize("amount", [1e-6, 1e-11])
def test_a_proof_that_is_slightly_wrong_is_caught(amount):
    model, shape = make("tanh", 0)
    x, y = data(shape, 10, 0)
    logits = model(x).detach()
    seen, here = CleanPass(), true_margin(logits, y)
    seen.update(logits, y)
    reached = RobustMargin(here - amount, "attacked", "linf", 0.1, "above")
    proof = CertifiedBounds(RobustMargin(here, "certified", "linf", 0.1, "below"), torch.zeros(10))
    measured = Measurements(seen, reached, reached, here, proof)
    failed = {s.name for s in all_statements(measured) if s.holds is False}
    assert failed == {"B.5 (5)", "B.5 kinds", "B.7"}


def offset_network(seed):
    """Batch norm takes away what is large in its input, in float32."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    x = 1e3 + torch.randn(30, 4)
    for _ in range(100):
        model(x)
    return model.eval(), x, model(x).argmax(1)


@pytest.mark.parametrize("seed", range(5))
def test_rounding_of_the_dtype_is_measured(seed):
    model, x, y = offset_network(seed)
    certificate = certify(model, (x, y), eps=1e-6, curvature=False, steps=3)
    assert certificate.holds, str(certificate)
    assert certificate["B.5 (5)"].holds is True
    exact = true_margin(float64_copy(model)(x.double()), y)
    drift = float((true_margin(model(x).detach().double(), y) - exact).abs().max())
    assert drift > 1e-6 and f"at most {drift:.1e}" in str(certificate)
    doubled = certify(model.double(), (x.double(), y), eps=1e-6, curvature=False, steps=3)
    assert "at most 0.0e+00" in str(doubled)


def test_masked_classes_do_not_widen_what_is_allowed():
    seen, masked = CleanPass(), CleanPass()
    logits = torch.randn(20, 4, dtype=torch.float64)
    labels = logits.argmax(1)
    seen.update(logits, labels)
    masked.update(torch.cat([logits, torch.full((20, 1), -1e30)], 1), labels)
    assert masked.rounding == seen.rounding < 1e-13
    assert masked.statement("B.2").holds is True


def test_what_rounding_cannot_decide_has_no_verdict():
    assert judge("a", "", 2e-9, 1e-9, rounding=0.0, floor=1e-8).holds is None
    assert judge("a", "", 1e-9, 2e-9, rounding=0.0, floor=1e-8).holds is True
    assert judge("a", "", 3.0, 1.0, rounding=2.0).holds is None
    assert judge("a", "", 1.0 + 1e-9, 1.0, rounding=0.0, floor=1e-8).holds is True
    assert judge("a", "", 2e-8, 1e-9, rounding=0.0, floor=1e-8).holds is False
    seen = CleanPass()
    seen.update(torch.tensor([[1e30, 0.0]], dtype=torch.float64), torch.tensor([0]))
    assert seen.rounding > 1
    assert all(seen.statement(name).holds is not False for name in seen.worst)


class Folded(nn.Module):
    """Samples are cut into pieces that a layer takes for samples."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = nn.Linear(2, 5), nn.Linear(10, 3)

    def forward(self, x):
        return self.head(torch.relu(self.a(x.view(-1, 2))).view(x.size(0), -1))


class Masked(nn.Module):
    """One class is forbidden."""

    def __init__(self) -> None:
        super().__init__()
        self.body = small()
        self.register_buffer("mask", torch.tensor([0.0, 0.0, -math.inf]))

    def forward(self, x):
        return self.body(x) + self.mask


def pruned():
    model = small()
    prune.l1_unstructured(model[0], "weight", 0.3)
    return model


def weight_normed():
    model = small()
    model[0] = nn.utils.parametrizations.weight_norm(model[0])
    return model


def hooked_weight_norm():
    model = small()
    with pytest.warns(FutureWarning):
        model[0] = nn.utils.weight_norm(model[0])
    model(torch.zeros(1, 4))
    return model


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (pruned, "hooks"),
        (weight_normed, "ParametrizedLinear"),
        (hooked_weight_norm, "hooks"),
        (Folded, "samples apart"),
        (Masked, "infinite"),
        (lambda: small(nn.GELU), "GELU"),
    ],
)
def test_what_cannot_be_proved_leaves_a_note_and_every_line(build, why):
    model, (x, y) = build(), data((4,), 10, 0)
    x, y = x.float(), y % 2
    certificate = certify(model, (x, y), eps=0.1, curvature=False, test=(x, y))
    assert certificate.holds and why in certificate.notes[-1]
    assert certificate["4.1 (i)"].holds is True
    whole = certify(small(), (x, y), eps=0.1, curvature=False, test=(x, y))
    assert [s.name for s in certificate.statements] == [s.name for s in whole.statements]
    names = ["B.5 (5)", "B.5 kinds", "4.1 (i) certified", "4.1 (i) Q+", "4.1 (ii) certified",
             "4.1 (ii) Q+", "B.7", "B.8"]  # fmt: skip
    for name in names:
        statement = certificate[name]
        assert statement.holds is None and math.isnan(statement.slack)
        assert "no certified margins" in statement.reason
    right = certify(model, (x, model(x).argmax(1)), eps=0.1, curvature=False)
    for name in ("4.2 (iv) lower", "4.2 (iv) upper", "4.2 (iv) curvature"):
        assert right[name].holds is None and "no certified margins" in right[name].reason


def test_pruned_weights_are_attacked_as_they_are():
    model, (x, y) = pruned(), data((4,), 10, 0)
    found = attacked_margin(model, x, y, 0.1).values
    prune.remove(model[0], "weight")
    torch.testing.assert_close(found, attacked_margin(model, x, y, 0.1).values)


def test_bounds_that_say_nothing_are_called_vacuous():
    model, shape = make("tanh", 0, scale=0.3)
    x, _ = data(shape, 10, 0)
    certificate = certify(model, (x, model(x).argmax(1)), eps=0.01)
    for name in ("4.2 (i) gamma", "4.2 (i) upper"):
        assert certificate[name].vacuous and certificate[name].right == 1.0
        assert certificate[name].holds is True
    assert not certificate["4.2 (i) lower"].vacuous
    torch.manual_seed(0)
    layers = [part for i in range(6) for part in (nn.Linear(20 if i else 4, 20), nn.ReLU())]
    deep = nn.Sequential(*layers, nn.Linear(20, 3)).double()
    for parameter in deep.parameters():
        parameter.data *= 4
    certificate = certify(deep, (x, deep(x).argmax(1)), eps=1.0, units=0, curvature=False)
    lower = certificate["4.2 (iv) lower"]
    assert lower.left == 0.0 and lower.vacuous and lower.holds is True


def test_sides_that_overflow_are_shown_as_logarithms():
    seen = CleanPass()
    seen.update(torch.tensor([[-1e4, 0.0, 0.0]], dtype=torch.float64), torch.tensor([0]))
    statement = seen.statement("B.3 (1) sum")
    assert statement.left == statement.right == pytest.approx(1e4 + math.log(2))
    assert statement.slack == 0 and "logarithms" in statement.reason


def test_a_sharpness_that_did_not_converge_proves_nothing(monkeypatch):
    model, shape = make("tanh", 0)
    x, y = data(shape, 10, 0)
    y = model(x).argmax(1)

    def impatient(*args, honest=certificates.gn_sharpness, **options):
        return honest(*args, budget=1.0, **options)

    monkeypatch.setattr(certificates, "gn_sharpness", impatient)
    certificate = certify(model, (x, y), eps=0.01)
    for name in ("4.1 (ii)", "4.1 (ii) certified", "4.2 (ii)", "4.2 (iii)", "B.6 GN"):
        assert certificate[name].holds is None
        assert certificate[name].reason == "lambda_max did not converge"
    assert certificate["4.2 (ii) ECE"].holds is True  # C_J alone
    assert "did not converge" in certificate.notes[0]


def test_a_frozen_model_has_no_curvature_but_a_certificate():
    x, y = data((4,), 10, 0)
    certificate = certify(small().requires_grad_(False), (x, y), eps=0.01)
    assert certificate.holds and certificate["4.1 (i) certified"].holds is True
    assert "require grad" in certificate["4.1 (ii)"].reason
    folded = certify(Folded(), (x.float(), y), eps=0.01)
    assert folded.holds and folded["4.1 (ii)"].reason.startswith("not measured")


def test_wrong_data_says_so():
    model, (x, y) = small().double(), data((4,), 10, 0)
    with pytest.raises(ValueError, match=r"labels must be integers in \[0, 3\)"):
        certify(model, (x, y + 1), eps=0.1)
    with pytest.raises(ValueError, match="at least two classes"):
        certify(nn.Linear(4, 1).double(), (x, y * 0), eps=0.1)
    with pytest.raises(ValueError, match="inputs must be finite"):
        certify(model, (x * math.nan, y), eps=0.1)
    with pytest.raises(ValueError, match="chunk must be at least 1"):
        certify(model, (x, y), eps=0.1, chunk=0)
    with pytest.raises(ValueError, match=r"pair \(inputs, labels\).*TensorDataset of 10"):
        certify(model, torch.utils.data.TensorDataset(x, y), eps=0.1)
    with pytest.raises(ValueError, match=r"pair \(inputs, labels\).*tuple of 3"):
        certify(model, (x, y, y), eps=0.1)


def test_memory_does_not_grow_with_classes_or_samples(monkeypatch):
    model, x = small().double(), data((4,), 25, 0)[0]
    y = torch.arange(25) % 3
    whole = certified_bounds(model, x, y, 0.1)
    monkeypatch.setattr(propagation, "MAX_FUNCTIONAL_NUMBERS", 1)
    counts = []
    for name in ("lower_bounds", "gradient_norms"):
        honest = getattr(propagation, name)

        def counted(tape, node, rows, honest=honest):
            counts.append(len(rows))
            return honest(tape, node, rows)

        monkeypatch.setattr(f"toosure.margins.certified.{name}", counted)
    again = certified_bounds(model, x, y, 0.1)
    assert set(counts) == {1}
    torch.testing.assert_close(again.margin.values, whole.margin.values, rtol=1e-12, atol=1e-12)
    sizes = []
    model.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    found = certify(model, (x, y), eps=0.1, chunk=10)
    assert max(sizes) == 10
    assert found["4.1 (ii)"].holds is True
    assert found.ece == pytest.approx(float(ece(model(x), y)), rel=1e-9)
