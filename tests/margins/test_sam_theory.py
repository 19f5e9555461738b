"""The statements of the CSAM paper against its numbers, dense Hessians and random networks."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from margins.networks import data, make
from toosure.margins import certify_sam
from toosure.margins.sam_step import mean_of, take_step
from toosure.margins.sam_theory import entropy, entropy_sides, ratio

P = st.floats(1e-9, 1 - 1e-9)


def logit(p):
    return torch.tensor(math.log(p) - math.log1p(-p), dtype=torch.float64)


def test_published_numbers():
    before, after = logit(0.9), logit(0.8)
    assert float(ratio(before, after)) == pytest.approx(2.0)
    left, right = entropy_sides(before, after)
    assert (float(right), float(left)) == pytest.approx((0.22314355, -0.04440301), abs=1e-8)
    left, right = entropy_sides(before, after, gamma=1.0)
    assert (float(right), float(left)) == pytest.approx((0.12396864, -0.29460422), abs=1e-8)


@settings(max_examples=1000, deadline=None)
@given(P, P, st.floats(0, 2))
def test_theorems_hold_for_all_probabilities(p, q, gamma):
    before, after = logit(max(p, q)), logit(min(p, q))
    left, right = entropy_sides(before, after)
    assert left <= right + 1e-12
    if min(p, q) > 0.5:
        left, right = entropy_sides(before, after, gamma)
        assert left <= right + 1e-12


def test_a_broken_theorem_is_caught():
    grid = torch.linspace(-8, 8, 60, dtype=torch.float64)
    before, after = torch.meshgrid(grid, grid, indexing="ij")
    fits = after <= before
    left, right = entropy_sides(before, after)
    assert (left <= right + 1e-12)[fits].all()
    halved = left + ratio(before, after) * entropy(before) / 2  # half of lambda
    assert (halved > right + 1e-12)[fits].any()
    fits, gamma = after > before, 0.0
    assert (entropy_sides(before, after, gamma)[0] > right + 1e-12)[fits].any()  # p~ > p: not so


def test_geometric_mean():
    p = torch.tensor([0.9, 0.5, 0.99], dtype=torch.float64)
    assert float(mean_of(torch.logit(p)).sigmoid()) == pytest.approx(float(p.prod() ** (1 / 3)))


def dense_hessian_minimum(model, x, y, shift):
    """kappa_min and |g| from all second derivatives, with the draws of seed 0."""
    names, values = zip(*model.named_parameters(), strict=True)
    sizes = [v.numel() for v in values]

    def loss(flat):
        torch.manual_seed(0)
        parts = [f.view_as(v) for f, v in zip(flat.split(sizes), values, strict=True)]
        logits = torch.func.functional_call(model, dict(zip(names, parts, strict=True)), (x,))
        return nn.functional.cross_entropy(logits, y)

    flat = torch.cat([v.detach().flatten() for v in values])
    gradient = torch.autograd.functional.jacobian(loss, flat)
    point = flat + shift * gradient / gradient.norm()
    hessian = torch.autograd.functional.hessian(loss, point)
    return float(torch.linalg.eigvalsh(hessian)[0]), float(gradient.norm())


def test_kappa_min_and_the_gradient_are_dense_ones():
    model, shape = make("tanh", 0)
    x, y = data(shape, 10, 0)
    certificate = certify_sam(model, (x, y), rho=0.3, points=3, rtol=1e-4)
    for place, value in zip((0.0, 0.15, 0.3), certificate.kappa_min, strict=True):
        exact, norm = dense_hessian_minimum(model, x, y, place)
        assert value == pytest.approx(exact, rel=1e-3)
    assert certificate.gradient_norm == pytest.approx(norm, rel=1e-9)


@pytest.mark.parametrize("rho", [1e-4, 0.02, 0.5, 5.0])
def test_no_statement_fails_on_random_networks(rho):
    applied = 0
    for seed in range(6):
        model, shape = make("tanh" if seed % 2 else "relu", seed, scale=1.5)
        x, y = data(shape, 6, seed)
        y = model(x).argmax(1) if seed % 3 == 0 else y
        certificate = certify_sam(model, (x, y), rho=rho, gamma=2.0)
        assert certificate.holds, str(certificate)
        applied += certificate["Lemma 2"].holds is True
        on_path = certificate["kappa_min on the path"]
        assert on_path.holds == (min(certificate.kappa_min) >= -certificate.gradient_norm / rho)
        assert certificate["Lemma 2"].holds is (True if on_path.holds else None)
        if certificate["Eq. 2"].holds:
            assert 1 <= certificate.lam0 <= certificate.lam * (1 + 1e-9)
    assert applied > 0 or rho > 0.1


def test_single_samples_get_lemma_1():
    model, shape = make("tanh", 4)
    certificate = certify_sam(model, data(shape, 5, 4), rho=0.01, samples=2)
    assert certificate["Lemma 1 (sample 1)"].holds is True
    assert certificate["Theorem 1 (sample 0)"].holds is True
    x, y = data(shape, 1, 4)
    alone = certify_sam(model, (x, y), rho=0.01)
    assert alone["Lemma 1"].holds is True and "Lemma 1" in str(alone)
    with pytest.raises(KeyError, match="there are"):
        alone["Lemma 2"]


def test_the_model_is_only_read_and_train_mode_works():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)).double()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    certificate = certify_sam(model, data((4,), 8, 0), rho=0.01, mode="train", samples=0)
    assert certificate.holds and model.training
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_one_dropout_mask_for_both_passes():
    """A short step falls by rho |g|, to first order: other masks would move p_y by far more."""
    for seed in range(5):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(), nn.ReLU(), nn.Linear(64, 3))
        x, y = data((4,), 16, seed)
        certificate = certify_sam(model, (x, y), rho=1e-3, mode="train", samples=0)
        assert certificate["Lemma 2"].holds is True, str(certificate)
        fall = math.log(certificate.p_y) - math.log(certificate.p_y_perturbed)
        assert fall == pytest.approx(1e-3 * certificate.gradient_norm, rel=0.1)


def test_kappa_min_is_of_the_same_dropout_mask():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Tanh(), nn.Linear(8, 3)).double()
    x, y = data((4,), 12, 0)
    exact, norm = dense_hessian_minimum(model, x, y, 0.0)
    torch.manual_seed(99)
    certificate = certify_sam(model, (x, y), rho=0.1, mode="train", samples=0, rtol=1e-4)
    assert certificate.kappa_min[0] == pytest.approx(exact, rel=1e-3)
    assert certificate.gradient_norm == pytest.approx(norm, rel=1e-9)


class Spare(nn.Module):
    """A network with a layer that its forward pass leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.spare = make("tanh", 0)[0], nn.Linear(2, 2)

    def forward(self, x):
        return self.body(x)


def test_frozen_and_unused_parameters_do_not_move():
    x, y = data((4,), 6, 0)
    plain, _ = make("tanh", 0)
    whole = certify_sam(plain, (x, y), rho=0.01)
    unused = certify_sam(Spare().double(), (x, y), rho=0.01)
    assert unused.gradient_norm == pytest.approx(whole.gradient_norm, rel=1e-12)
    assert unused.p_y_perturbed == pytest.approx(whole.p_y_perturbed, rel=1e-12)
    plain[1].requires_grad_(False)
    frozen = certify_sam(plain, (x, y), rho=0.01)
    assert frozen.holds and frozen["Lemma 2"].holds is True
    assert 0 < frozen.gradient_norm < whole.gradient_norm
    with torch.no_grad():
        assert certify_sam(plain, (x, y), rho=0.01).p_y == frozen.p_y
    with pytest.raises(ValueError, match="no parameters that require grad"):
        certify_sam(plain.requires_grad_(False), (x, y))


def test_what_did_not_converge_is_not_called_a_failure():
    model, shape = make("tanh", 0)  # float32 does not reach 15 digits
    certificate = certify_sam(model.float(), data(shape, 6, 0), rho=0.01, rtol=1e-15)
    for name in ("kappa_min", "kappa_min on the path", "Lemma 2", "Lemma 1 (sample 0)"):
        assert certificate[name].holds is None
        assert "did not converge" in certificate[name].reason


def test_the_rounding_allowed_in_a_loss_is_that_of_the_dtype():
    model, shape = make("tanh", 0)
    x, y = data(shape, 6, 0)
    exact = take_step(model, x, y, 0.01, 2, 1e-2, "eval")
    size = float(model(x).detach().abs().max())
    assert exact.rounding <= 1e-13 * (1 + size)
    rounded = take_step(model.float(), x.float(), y, 0.01, 2, 1e-2, "eval")
    error = (rounded.logit - exact.logit).abs().max()
    assert error <= rounded.rounding <= 1e-4 * (1 + size)


def test_wrong_arguments_say_so():
    model, shape = make("tanh", 0)
    batch = data(shape, 4, 0)
    with pytest.raises(ValueError, match="rho must be positive"):
        certify_sam(model, batch, rho=0.0)
    with pytest.raises(ValueError, match="gamma must lie in"):
        certify_sam(model, batch, gamma=3.0)
