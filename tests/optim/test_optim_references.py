"""Every optimizer against its slow version: 50 steps in float64, and the figures known by hand."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from slow_optimizers import (
    MODELS,
    asam_shift,
    batches,
    csam_loss,
    dense_hessian,
    largest_difference,
    make_cnn,
    make_mlp,
    sam_shift,
    slow_bsam,
    slow_sam,
    train,
    vasso_shift,
)
from torch import nn

from toosure.curvature import CurvatureTracker
from toosure.optim import ASAM, BSAM, CSAM, SAM, VASSO, BulkSGD, Muon
from toosure.optim.muon import newton_schulz

SGD = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
CASES = {
    "sam": (SAM, sam_shift, {"rho": 0.1}),
    "asam": (ASAM, asam_shift, {"rho": 0.5, "eta": 0.01}),
    "vasso": (VASSO, vasso_shift, {"rho": 0.1, "theta": 0.4}),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", CASES)
def test_two_passes_agree_with_the_slow_version(name, kind):
    method, shift, settings = CASES[name]
    fast, slow = MODELS[kind](), MODELS[kind]()
    train(fast, method(fast.parameters(), **settings, **SGD), F.cross_entropy, batches(kind))
    slow_sam(slow, batches(kind), shift, **settings)
    assert largest_difference(fast, slow) < 1e-12  # BatchNorm's statistics are among them


@pytest.mark.parametrize("kind", MODELS)
def test_csam_agrees_with_the_slow_version(kind):
    fast, slow, sam = (MODELS[kind]() for _ in range(3))
    data = list(batches(kind, 2)) * 25  # learned by heart: of an unsure network Eq. 4 is the loss
    optimizer = CSAM(fast.parameters(), rho=0.1, gamma=2.0, **SGD)
    train(fast, optimizer, optimizer.criterion(nn.CrossEntropyLoss()), data)
    slow_sam(slow, data, sam_shift, csam_loss(2.0), rho=0.1)
    slow_sam(sam, data, sam_shift, rho=0.1)
    assert largest_difference(fast, slow) < 1e-12
    assert largest_difference(fast, sam) > 1e-3


@pytest.mark.parametrize("kind", MODELS)
def test_bsam_agrees_with_the_slow_version(kind):
    fast, slow = MODELS[kind](), MODELS[kind]()
    for model in (fast, slow):  # the slow one keeps no running statistics
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 0.0
    optimizer = BSAM(fast.parameters(), lr=0.1, data_size=600, sub_batches=3, seed=7)
    for inputs, labels in batches(kind):
        closures = []
        for part, y in optimizer.split(inputs, labels):

            def closure(part=part, y=y):
                loss = F.cross_entropy(fast(part), y)
                loss.backward()
                return loss

            closures.append(closure)
        optimizer.step(closures)
    slow, scale = slow_bsam(slow, batches(kind), 0.1, 600, 0.01, seed=7, parts=3)
    for p, q, s in zip(fast.parameters(), slow.parameters(), scale, strict=True):
        assert (p - q).abs().max() < 1e-12
        assert (optimizer.state[p]["scale"] - s).abs().max() < 1e-12


class DenseTracker:
    """The top eigenvectors from the whole Hessian of the batch at hand."""

    def __init__(self, model):
        self.model, self.batch, self.asked = model, None, []

    def top(self, matrix, k):
        self.asked.append((matrix, k))
        values, vectors = torch.linalg.eigh(dense_hessian(self.model, *self.batch))
        top = vectors.T.flip(0)[:k]
        return SimpleNamespace(values=values.flip(0)[:k], vectors=top, converged=True)


@pytest.mark.parametrize("refresh", [1, 5])
@pytest.mark.parametrize(
    "kind", [k if k != "cnn" else pytest.param(k, marks=pytest.mark.slow) for k in MODELS]
)
def test_bulk_sgd_agrees_with_the_slow_version(kind, refresh):
    fast, slow = MODELS[kind]().eval(), MODELS[kind]().eval()
    tracker = DenseTracker(fast)
    optimizer = BulkSGD(fast.parameters(), lr=0.1, k=3, tracker=tracker, refresh=refresh)
    for step, (inputs, labels) in enumerate(batches(kind)):
        tracker.batch = inputs, labels
        train(fast, optimizer, F.cross_entropy, [(inputs, labels)])
        if step % refresh == 0:
            v = torch.linalg.eigh(dense_hessian(slow, inputs, labels)).eigenvectors[:, -3:]
        params = list(slow.parameters())
        grads = torch.autograd.grad(F.cross_entropy(slow(inputs), labels), params)
        g = torch.cat([g.flatten() for g in grads])
        move = (torch.eye(len(g), dtype=g.dtype) - v @ v.T) @ g
        vector = nn.utils.parameters_to_vector(params)
        nn.utils.vector_to_parameters((vector - 0.1 * move).detach(), params)
    assert tracker.asked == [("hessian", 3)] * (50 // refresh)
    assert largest_difference(fast, slow) < 1e-12


@pytest.mark.parametrize("kind", MODELS)
def test_muon_is_torchs_on_flattened_matrices_bit_for_bit(kind):
    fast, slow = MODELS[kind](dtype=torch.float32), MODELS[kind](dtype=torch.float32)
    train(fast, Muon(fast, lr=0.02), F.cross_entropy, batches(kind, dtype=torch.float32))
    matrices = [p for p in slow.parameters() if p.ndim >= 2][:-1]
    flat = [nn.Parameter(p.detach().flatten(1).clone()) for p in matrices]
    muon = torch.optim.Muon(flat, lr=0.02, weight_decay=0.0)
    rest = [p for p in slow.parameters() if not any(p is m for m in matrices)]
    adamw = torch.optim.AdamW(rest, lr=3e-4, weight_decay=0.0)
    for inputs, labels in batches(kind, dtype=torch.float32):
        slow.zero_grad()
        F.cross_entropy(slow(inputs), labels).backward()
        for p, twin in zip(matrices, flat, strict=True):
            twin.grad = p.grad.flatten(1)
        muon.step()
        adamw.step()
        with torch.no_grad():
            for p, twin in zip(matrices, flat, strict=True):
                p.copy_(twin.view_as(p))
    assert largest_difference(fast, slow) == 0


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
def test_newton_schulz_acts_on_singular_values(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    x = s / s.norm()
    for _ in range(5):
        x = 3.4445 * x - 4.7750 * x**3 + 2.0315 * x**5
    assert torch.allclose(newton_schulz(matrix, fp32=True), u @ x.diag() @ vh, atol=1e-12)


# The toy loss of methods.md: f(w) = sum(A w^2) / 2, A = (3, 1), w = (1, -2).
def quadratic(weight):
    def closure():
        loss = 0.5 * (torch.tensor([3.0, 1.0], dtype=weight.dtype) * weight**2).sum()
        loss.backward()
        return loss

    return closure


def toy_weight():
    return nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda w: SAM([w], rho=0.1, lr=0.1), (0.67503849, -1.794453)),
        (lambda w: ASAM([w], rho=0.1, eta=0.0, lr=0.1), (0.682, -1.784)),
        (lambda w: VASSO([w], rho=0.1, theta=1.0, lr=0.1), (0.67503849, -1.794453)),
    ],
)
def test_known_figures(make, expected):
    w = toy_weight()
    assert make(w).step(quadratic(w)).item() == 3.5  # the loss at w, not at w + eps
    assert w.tolist() == pytest.approx(expected, abs=1e-8)


def test_asam_perturbation_with_eta():
    w = toy_weight()
    points = []

    def closure():
        points.append(w.detach().clone())
        return quadratic(w)()

    ASAM([w], rho=0.1, eta=0.01, lr=0.1).step(closure)
    eps = points[1] - points[0]
    assert eps.tolist() == pytest.approx((0.06079244, -0.16051206), abs=1e-8)


def test_vasso_with_a_past():
    w = toy_weight()
    optimizer = VASSO([w], rho=0.1, theta=0.4, lr=0.1)
    optimizer.state[w]["direction"] = torch.tensor([1.0, 0.0], dtype=torch.float64)
    optimizer.step(quadratic(w))
    assert w.tolist() == pytest.approx((0.67258565, -1.79593862), abs=1e-8)
    assert optimizer.state[w]["direction"].tolist() == pytest.approx((1.8, -0.8))


def test_bsam_known_figures():
    w = toy_weight()
    big = 1e30  # so much data that there is no noise; delta = prior / data stays .01
    optimizer = BSAM([w], lr=0.5, data_size=big, prior_precision=0.01 * big, rho=0.05)
    optimizer.state[w]["scale"] = torch.tensor([1.0, 4.0], dtype=torch.float64)
    optimizer.step(quadratic(w))
    assert w.tolist() == pytest.approx((0.827, -1.9744375), abs=1e-9)
    assert optimizer.state[w]["scale"].tolist() == pytest.approx((1.00211, 4.00011), abs=1e-9)
    assert optimizer.state[w]["momentum"].tolist() == pytest.approx((0.346, -0.2045), abs=1e-9)


def test_bsam_sample_has_the_posterior_deviation(monkeypatch):
    w = toy_weight()
    optimizer = BSAM([w], data_size=50000)
    optimizer.state[w]["scale"] = torch.tensor([1.0, 4.0], dtype=torch.float64)
    xi = torch.tensor([1.0, -1.0], dtype=torch.float64)
    monkeypatch.setattr("toosure.optim.bsam._normal", lambda p, generator: xi)
    with optimizer.sampled():
        assert w.tolist() == pytest.approx((1.00447214, -2.00223607), abs=1e-8)
    assert w.tolist() == [1.0, -2.0]


def test_bsam_of_learning_rate_zero_stays():
    w = toy_weight()
    optimizer = BSAM([w], lr=0.0, data_size=100)
    for _ in range(3):
        optimizer.step(quadratic(w))
    assert w.tolist() == [1.0, -2.0]


def test_asam_does_not_see_rescaled_layers():
    """eta = 0: w -> 5 w in one layer and w / 5 in the next change no perturbed loss."""
    inputs, labels = next(batches("mlp"))
    losses = []
    for scale in (1.0, 5.0):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 9, False), nn.ReLU(), nn.Linear(9, 4, False)).double()
        with torch.no_grad():
            net[0].weight *= scale
            net[2].weight /= scale
        seen = []

        def closure(net=net, seen=seen):
            loss = F.cross_entropy(net(inputs), labels)
            loss.backward()
            seen.append(loss.item())
            return loss

        ASAM(net.parameters(), rho=0.5, eta=0.0, lr=0.1).step(closure)
        losses.append(seen)
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    assert losses[0][1] > losses[0][0]


def test_asam_with_names_follows_the_authors():
    """Biases are perturbed as SAM does, weights (BatchNorm's too) by their size."""
    model = make_cnn()
    inputs, labels = next(batches("cnn"))
    optimizer = ASAM(model.named_parameters(), rho=0.5, eta=0.01, lr=0.1)
    loss = F.cross_entropy(model(inputs), labels)
    loss.backward()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    sizes = {
        name: p.abs() + 0.01 if "weight" in name else torch.ones_like(p)
        for name, p in before.items()
    }
    grads = {name: p.grad.clone() for name, p in model.named_parameters()}
    norm = torch.sqrt(sum(((sizes[name] * grads[name]) ** 2).sum() for name in grads))
    with torch.no_grad():
        optimizer._perturb(1.0)
    for name, p in model.named_parameters():
        expected = 0.5 * sizes[name] ** 2 * grads[name] / (norm + 1e-12)
        assert torch.allclose(p - before[name], expected, atol=1e-13), name


def test_gamma_zero_is_sam_and_theta_one_is_sam_bit_for_bit():
    sam, csam, vasso = make_cnn(), make_cnn(), make_cnn()
    train(sam, SAM(sam.parameters(), rho=0.1, **SGD), nn.CrossEntropyLoss(), batches("cnn", 10))
    optimizer = CSAM(csam.parameters(), rho=0.1, gamma=0.0, **SGD)
    train(csam, optimizer, optimizer.criterion(nn.CrossEntropyLoss()), batches("cnn", 10))
    optimizer = VASSO(vasso.parameters(), rho=0.1, theta=1.0, **SGD)
    train(vasso, optimizer, nn.CrossEntropyLoss(), batches("cnn", 10))
    assert largest_difference(sam, csam) == 0
    assert largest_difference(sam, vasso) < 1e-15  # it adds 0 * d


def test_bulk_with_k_zero_is_sgd_and_projection_is_orthogonal():
    model, twin = make_mlp(), make_mlp()
    train(model, BulkSGD(model.parameters(), lr=0.1, k=0), F.cross_entropy, batches("mlp", 5))
    train(twin, torch.optim.SGD(twin.parameters(), lr=0.1), F.cross_entropy, batches("mlp", 5))
    assert largest_difference(model, twin) == 0
    tracker = DenseTracker(model)
    tracker.batch = next(batches("mlp"))
    optimizer = BulkSGD(model.parameters(), lr=0.1, k=5, tracker=tracker)
    train(model, optimizer, F.cross_entropy, [tracker.batch])
    g = torch.cat([p.grad.flatten() for p in model.parameters()])
    v = torch.cat([optimizer.state[p]["bulk"].flatten(1) for p in model.parameters()], 1)
    assert (v @ g).abs().max() < 1e-12
    assert g.norm() > 0


def test_bulk_reports_an_unconverged_solve():
    w = toy_weight()

    class Tired:
        def top(self, matrix, k):
            vectors = torch.eye(2, dtype=torch.float64)[:k]
            return SimpleNamespace(values=torch.ones(k), vectors=vectors, converged=False)

    optimizer = BulkSGD([w], lr=0.1, k=1, tracker=Tired(), matrix="gn")
    with pytest.warns(UserWarning, match="top 1 eigenvectors of the gn did not converge"):
        optimizer.step(quadratic(w))
    assert not optimizer.converged


def test_bulk_with_the_real_tracker():
    """The gradient has nothing along the tracker's vectors, nor along the dense Hessian's."""
    model, (inputs, labels) = make_mlp(), next(batches("mlp"))
    tracker = CurvatureTracker(model, (inputs, labels), rtol=1e-8)
    optimizer = BulkSGD(model.parameters(), lr=0.1, k=2, tracker=tracker)
    for _ in range(4):
        hessian = dense_hessian(model, inputs, labels)
        loss = F.cross_entropy(model(inputs), labels)
        whole = torch.cat([g.flatten() for g in torch.autograd.grad(loss, model.parameters())])
        train(model, optimizer, F.cross_entropy, [(inputs, labels)])
        assert optimizer.converged
        g = torch.cat([p.grad.flatten() for p in model.parameters()])  # projected, as SGD saw it
        v = torch.cat([optimizer.state[p]["bulk"].flatten(1) for p in model.parameters()], 1)
        assert (v @ g).abs().max() < 1e-12
        values, vectors = torch.linalg.eigh(hessian)
        residual = (hessian @ v.T - v.T * values[-2:].flip(0)).norm()
        angle = residual / (values[-2] - values[-3])  # Davis and Kahan
        assert angle < 1e-3
        assert (vectors[:, -2:].T @ g).norm() <= angle * whole.norm()
        assert (vectors[:, -2:].T @ whole).norm() > 0.1 * whole.norm()  # there was much to remove


def test_sharpness_grows_in_the_bulk_as_it_learns():
    """Progressive sharpening goes on without the top direction: from 0.54 to about 1.1."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(24, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (24,), generator=generator)
    model = make_mlp(seed=2)
    tracker = CurvatureTracker(model, (inputs, labels))
    optimizer = BulkSGD(model.parameters(), lr=0.5, k=1, tracker=tracker, refresh=3)
    found = []
    for _ in range(4):
        found.append(torch.linalg.eigvalsh(dense_hessian(model, inputs, labels))[-1].item())
        train(model, optimizer, F.cross_entropy, [(inputs, labels)] * 15)
    assert found == sorted(found)
    assert found[-1] > 2 * found[0]
    assert F.cross_entropy(model(inputs), labels).item() < 0.5
