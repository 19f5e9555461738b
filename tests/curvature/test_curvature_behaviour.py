"""The model is left as it was; bad input is refused; what did not converge says so."""

import copy
import math

import pytest
import torch
from dense import CASES, gauss_newton, hessian, jacobian, make, softmax_hessian
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.utils import prune

from toosure.curvature import (
    MSE,
    CurvatureTracker,
    LossCurvature,
    batch_sharpness,
    gn_sharpness,
    gni,
    hessian_sharpness,
    jacobian_norms,
    kappa_min,
    spectral_density,
    top_eigenpairs,
    trace,
)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_leaves_no_trace(name, mode):
    model, (x, y) = make(name)
    model.append(nn.Dropout(0.5)) if isinstance(model, nn.Sequential) else None
    model.train()
    list(model.modules())[-1].eval()  # a mixed state must come back too
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    grads = [p.grad.clone() for p in model.parameters()]
    next(model.parameters()).requires_grad_(False)
    before = copy.deepcopy(model)
    state = torch.get_rng_state()
    tracker = CurvatureTracker(model, (x, y), quantities=("gn_sharpness", "kappa_min"), mode=mode)
    tracker.measure()
    hessian_sharpness(model, (x, y), mode=mode)
    assert torch.equal(torch.get_rng_state(), state)
    for after, was in zip(model.modules(), before.modules(), strict=True):
        assert after.training == was.training
        assert not after._forward_hooks
    for (n, a), (_, b) in zip(model.state_dict().items(), before.state_dict().items(), strict=True):
        assert torch.equal(a, b), n
    for a, b in zip(model.parameters(), before.parameters(), strict=True):
        assert a.requires_grad == b.requires_grad
    for p, grad in zip(model.parameters(), grads, strict=True):
        assert torch.equal(p.grad, grad)


def test_train_mode_sees_batch_statistics_and_one_dropout_mask():
    model, (x, y) = make("cnn with BatchNorm")
    model.append(nn.Dropout(0.5))
    train = LossCurvature(model, (x, y), mode="train")
    evaluated = LossCurvature(model, (x, y))
    v = torch.ones(1, train.size, dtype=torch.float64)
    assert not torch.allclose(train.apply(v), evaluated.apply(v))
    assert torch.equal(train.apply(v), train.apply(v))


def test_works_without_grad_and_under_autocast():
    model, data = make("attention")
    expected = gn_sharpness(model, data).value
    with torch.no_grad():
        assert gn_sharpness(model, data).value == expected
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert gn_sharpness(model, data).value == expected


def test_a_compiled_model_is_read_through():
    model, data = make("mlp")
    compiled = torch.compile(model, backend="eager")
    assert gn_sharpness(compiled, data).value == gn_sharpness(model, data).value


def test_a_step_of_training_makes_the_cached_pass_stale():
    model, (x, y) = make("mlp")
    curvature = LossCurvature(model, (x, y))
    v = torch.ones(1, curvature.size, dtype=torch.float64)
    curvature.apply(v)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1)
    g = gauss_newton(model, x, softmax_hessian(model, x))
    torch.testing.assert_close(curvature.apply(v), v @ g)


def test_bad_input_is_refused():
    model, (x, y) = make("mlp")
    with pytest.raises(ValueError, match=r"integers in \[0, 3\); got 0 to 3"):
        gn_sharpness(model, (x, y.clamp(max=0).index_fill(0, torch.tensor([1]), 3)))
    with pytest.raises(ValueError, match="got float64"):
        gn_sharpness(model, (x, y.double()))
    with pytest.raises(ValueError, match="empty"):
        gn_sharpness(model, (x[:0], y[:0]))
    with pytest.raises(ValueError, match='"ce", "mse" or a function'):
        gn_sharpness(model, (x, y), loss="hinge")
    with pytest.raises(ValueError, match="no free parameter matches"):
        gn_sharpness(model, (x, y), parameters=["nothing"])
    with pytest.raises(ValueError, match="parameters of the model; got Parameter of another"):
        gn_sharpness(model, (x, y), parameters=nn.Linear(2, 2).parameters())
    with pytest.raises(ValueError, match="parameters of the model; got tuple"):
        gn_sharpness(model, (x, y), parameters=model.named_parameters())
    with pytest.raises(ValueError, match="matrix must be one of"):
        top_eigenpairs(model, (x, y), matrix="jacobian")
    with pytest.raises(ValueError, match="more than the 66 parameters"):
        top_eigenpairs(model, (x, y), k=67)
    with pytest.raises(ValueError, match="quantities must be among"):
        CurvatureTracker(model, (x, y), quantities=("sharpness",))
    with pytest.raises(ValueError, match="scale must be one of"):
        MSE("median")
    with pytest.raises(ValueError, match=r"logits of shape \(N, C\)"):
        gn_sharpness(nn.Sequential(model, nn.Flatten(0)), (x, y))
    with pytest.raises(ValueError, match="replay needs a GPU"):
        CurvatureTracker(model, (x, y), replay=True)
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="no parameters that require grad"):
        gn_sharpness(model, (x, y))


NUMBERS = {
    "chunk": (gn_sharpness, {"chunk": 0}),
    "chunk must": (jacobian_norms, {"chunk": 1.5}),
    "rtol": (gn_sharpness, {"rtol": -1.0}),
    "rtol must": (hessian_sharpness, {"rtol": float("nan")}),
    "k must": (top_eigenpairs, {"k": 0}),
    "batch": (batch_sharpness, {"batch": 0}),
    "batch must": (CurvatureTracker, {"batch": -3}),
    "max_vectors": (trace, {"max_vectors": 0}),
    "vectors": (spectral_density, {"vectors": 0}),
    "depth": (spectral_density, {"depth": 0}),
    "input_rank": (CurvatureTracker, {"input_rank": 0}),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_out_of_range_are_named(name):
    measure, options = NUMBERS[name]
    model, (x, y) = make("mlp")
    with pytest.raises(ValueError, match=f"^{name}"):
        measure(model, x if measure is jacobian_norms else (x, y), **options)


def test_data_that_is_no_pair_is_refused():
    model, (x, y) = make("mlp")
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y))
    for data in (x, loader, (x, y, y)):
        with pytest.raises(ValueError, match="two tensors"):
            gn_sharpness(model, data)


def test_a_state_of_another_tracker_is_refused():
    model, data = make("mlp")
    state = CurvatureTracker(model, data).state_dict()
    other = CurvatureTracker(*make("cnn with BatchNorm"))
    with pytest.raises(ValueError, match=r"of another tracker: it follows .* of 66 parameters"):
        other.load_state_dict(state)
    with pytest.raises(ValueError, match="of another tracker"):
        CurvatureTracker(model, data, quantities=("kappa_min",)).load_state_dict(state)


def test_replaced_parameters_are_named():
    model, data = make("mlp")
    tracker = CurvatureTracker(model, data)
    tracker.measure()
    model[0] = copy.deepcopy(model[0])
    with pytest.raises(ValueError, match=r"'0\.weight'.*make a new tracker"):
        tracker.measure()


def test_a_loss_that_is_not_finite_is_refused():
    model, (x, y) = make("mlp")
    with pytest.raises(ValueError, match="not finite"):
        gn_sharpness(model, (x, y), loss=lambda z, y: z.sum() / 0.0)


def test_a_model_that_changes_shape_is_refused():
    model, (x, y) = make("mlp")

    class Halving(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return self.inner(x)[: 2 + len(x) // 4]

    with pytest.raises(ValueError, match="one row of logits per sample"):
        gn_sharpness(Halving(), (x, y))


def test_curvature_that_is_not_finite_is_a_status():
    model, (x, y) = make("mlp")
    with torch.no_grad():
        model[0].weight.fill_(float("nan"))
    result = gn_sharpness(model, (x, y))
    assert not result.converged
    assert "not finite" in result.note
    tracker = CurvatureTracker(model, (x, y))
    assert not tracker.measure()["gn_sharpness"].converged
    assert not jacobian_norms(model, x).converged


@pytest.mark.parametrize("measure", [batch_sharpness, gni])
@pytest.mark.parametrize("bias", [500.0, float("nan")])  # all right, with a gradient of zero
def test_ratios_to_a_gradient_of_zero_are_a_status(measure, bias):
    model, x = nn.Linear(2, 3), torch.randn(20, 2)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([bias, 0.0, 0.0]))
    result = measure(model, (x, torch.zeros(20, dtype=torch.long)), batch=5)
    assert math.isnan(result.value) and not result.converged
    assert "not finite: a gradient is zero, or" in result.note
    assert result.products <= 1  # further batches would not help


def test_too_small_a_budget_is_said():
    model, data = make("cnn with BatchNorm")
    result = hessian_sharpness(model, data, rtol=1e-9, budget=3)
    assert not result.converged
    assert result.products <= 3
    assert "not converged after 3 products" in result.note

    pairs = top_eigenpairs(*make("mlp"), 4, rtol=1e-6, budget=12)
    assert pairs.note.endswith(f"estimated error {pairs.error:.1e}")  # of the worst, not the first


@pytest.mark.parametrize("perturbation", [torch.zeros(3), [torch.zeros(3)]])
def test_a_perturbation_of_another_shape_is_refused(perturbation):
    with pytest.raises(ValueError, match=r"one vector of the \d+ parameters .*; got .*torch\.cat"):
        kappa_min(*make("mlp"), perturbation=perturbation)


def test_a_wrong_matrix_is_refused():
    model, data = make("mlp")
    for measure in (trace, spectral_density):
        with pytest.raises(ValueError, match="matrix must be one of"):
            measure(model, data, matrix="Hessian")


def test_clusters_of_eigenvalues_from_a_cold_start():
    """Wide networks under MSE: the top ten eigenvalues lie within a few percent."""
    digits = load_digits()
    x = torch.tensor(digits.data[:120], dtype=torch.float32) / 8 - 1
    y = torch.tensor(digits.target[:120])
    for seed in range(6):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
        found = gn_sharpness(model, (x, y), "mse")
        exact = gn_sharpness(model.double(), (x.double(), y), "mse", rtol=1e-8).value
        assert abs(found.value / exact - 1) <= 1e-3, (seed, found, exact)


def test_torch_attention_behind_a_convolution():
    """Fused attention has no forward derivatives: the plain kind is taken, and put back after."""
    torch.manual_seed(0)

    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Conv2d(1, 8, 4, stride=4)
            self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.block(self.embed(x).flatten(2).transpose(1, 2)).mean(1))

    model = Patches().double()
    x, y = torch.randn(6, 1, 8, 8).double(), torch.arange(6) % 3
    fast = torch.backends.mha.get_fastpath_enabled()
    found = gn_sharpness(model, (x, y), rtol=1e-8)
    exact = torch.linalg.eigvalsh(gauss_newton(model, x, softmax_hessian(model, x)))[-1]
    assert found.value == pytest.approx(float(exact), rel=1e-7)
    assert torch.backends.mha.get_fastpath_enabled() == fast


class Tied(nn.Module):
    """A layer whose weight is read a second time, outside of its call."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(6, 4), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.layer(x)) @ self.layer.weight)


class TwoOfOne(nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.head(torch.tanh(self.b(torch.tanh(self.a(x)))))


def pruned():
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    prune.random_unstructured(model[0], "weight", 0.5)
    return model


def doubled():
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    model[0].register_forward_hook(lambda layer, arguments, output: 2 * output)
    return model


@pytest.mark.parametrize("build", [Tied, TwoOfOne, pruned, doubled])
def test_weights_used_in_unusual_ways(build):
    torch.manual_seed(0)
    model = build().double()
    x, y = torch.randn(8, 6).double(), torch.arange(8) % 3
    matrix = gauss_newton(model, x, softmax_hessian(model, x))
    v = torch.randn(2, matrix.shape[0]).double()
    curvature = LossCurvature(model, (x, y))
    torch.testing.assert_close(curvature.apply(v, "gn"), v @ matrix)
    torch.testing.assert_close(curvature.apply(v, "hessian"), v @ hessian(model, x, y))
    norms = torch.linalg.matrix_norm(jacobian(model, x), ord=2)
    torch.testing.assert_close(jacobian_norms(model, x).value, norms)


def test_class_weights_do_not_depend_on_the_chunks():
    model, (x, y) = make("mlp")
    classes = model(x).shape[1]
    loss = nn.CrossEntropyLoss(weight=torch.arange(1.0, classes + 1).double(), label_smoothing=0.1)
    exact = torch.linalg.eigvalsh(hessian(model, x, y, loss))[-1]
    for chunk in (None, 3):
        found = hessian_sharpness(model, (x, y), loss, rtol=1e-8, chunk=chunk).value
        assert found == pytest.approx(float(exact), rel=1e-6)


def test_ignored_labels_are_refused():
    model, data = make("mlp")
    with pytest.raises(ValueError, match="leave them out of the data"):
        gn_sharpness(model, data, nn.CrossEntropyLoss(ignore_index=0))


def test_jacobian_norms_take_the_inputs_alone():
    model = nn.Linear(2, 3)
    data = (torch.ones(4, 2), torch.zeros(4, dtype=torch.long))
    with pytest.raises(ValueError, match=r"the inputs alone.*got tuple: of \(inputs, labels\)"):
        jacobian_norms(model, data)
    assert jacobian_norms(model, data[0]).value.shape == (4,)
