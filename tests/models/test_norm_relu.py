"""ReLU after BatchNorm: torch's layers by default, and fused kernels that compute the same."""

import os
import subprocess
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.func import functional_call, jvp
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_pre_hook

from toosure.models import norm_relu as module
from toosure.models import resnet18, resnet20, wrn
from toosure.models.norm_relu import can_be_fused, fused_norms, kernels_agree, norm_relu

GPU = torch.cuda.is_available()
on_gpu = pytest.mark.skipif(not GPU, reason="needs a GPU")
SHAPES = [(3, 16, 7, 7), (5, 64, 9, 9), (4, 100, 8, 8), (9, 2, 3, 3), (3, 130, 6, 6)]


def images(shape, dtype=torch.float32, device="cpu", seed=0):
    """Values whose mean is far from 0, in the order of a GPU's convolutions."""
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.randn(shape, generator=generator) + 5
    return x.to(device, dtype).contiguous(memory_format=torch.channels_last)


def norms(channels, device="cpu"):
    """Two equal layers with weights of their own."""
    first = nn.BatchNorm2d(channels)
    nn.init.uniform_(first.weight, 0.5, 1.5)
    nn.init.normal_(first.bias)
    second = nn.BatchNorm2d(channels)
    second.load_state_dict(first.state_dict())
    return first.to(device), second.to(device)


def fused_norm_relu(norm, x, residual):
    from toosure.models.fused_norm import fused_norm_relu  # needs Triton

    return fused_norm_relu(norm, x, residual)


def gradients_of(function, norm, x, residual):
    """Return output, gradients and running statistics of one pass."""
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    leaves = [x, norm.weight, norm.bias]
    if residual is not None:
        residual = residual.detach().clone().requires_grad_()
        leaves.append(residual)
    out = function(norm, x, residual)
    slopes = torch.linspace(-1, 1, out.numel(), device=out.device).view(out.shape)
    slopes = slopes.bfloat16().to(out.dtype)  # the same in every precision
    found = torch.autograd.grad(out, leaves, slopes)
    return [out.detach(), *found, *norm.buffers()]


def assert_alike(fused, plain, tolerance):
    for ours, theirs in zip(fused, plain, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        distance = (ours.double() - theirs.double()).norm()
        assert distance <= tolerance * theirs.double().norm()


def check_all_shapes(device):
    for shape in SHAPES:
        for adds in (False, True):
            first, second = norms(shape[1], device)
            x = images(shape, device=device)
            residual = images(shape, device=device, seed=1) - 5 if adds else None
            plain = gradients_of(norm_relu, first, x, residual)
            fused = gradients_of(fused_norm_relu, second, x, residual)
            assert_alike(fused, plain, 2e-6)


def check_several_tiles(device):
    """More rows than the programs take at once."""
    first, second = norms(16, device)
    x = images((1, 16, 380, 380), device=device)
    exact = gradients_of(norm_relu, first.double(), x.double(), None)
    fused = gradients_of(fused_norm_relu, second, x, None)
    plain = [value.to(ours.dtype) for value, ours in zip(exact, fused, strict=True)]
    assert_alike(fused, plain, 1e-5)


def check_half_precision(device):
    """Within a few roundings of float32 on the same values, whose signs decide ReLU alike."""
    for dtype, tolerance in ((torch.bfloat16, 8e-3), (torch.float16, 1e-3)):
        for adds in (False, True):
            x = images((6, 16, 10, 10), dtype, device)
            residual = images((6, 16, 10, 10), dtype, device, seed=1) - 5 if adds else None
            first, second = norms(16, device)
            exact = gradients_of(norm_relu, first, x.float(), residual.float() if adds else None)
            fused = gradients_of(fused_norm_relu, second, x, residual)
            plain = [value.to(ours.dtype) for value, ours in zip(exact, fused, strict=True)]
            assert_alike(fused, plain, tolerance)


def check_second_derivatives(device):
    """Of a block whose residual leads to x as well, with a norm that is used twice."""

    def penalty(function, norm, x):
        inner = function(norm, x.tanh(), None)
        out = function(norm, inner * inner.sin(), inner)
        slope = torch.autograd.grad(out.square().sum(), [x, norm.weight], create_graph=True)
        return torch.autograd.grad(
            sum(each.square().sum() for each in slope), [x, norm.weight, norm.bias]
        )

    x = images((4, 16, 6, 6), device=device).requires_grad_()
    first, second = norms(16, device)
    plain = penalty(norm_relu, first, x)
    fused = penalty(fused_norm_relu, second, x)
    assert_alike(fused, plain, 1e-4)


def check_nan(device):
    """A value that is not a number reaches output, gradients and statistics of its channel."""
    for adds in (False, True):
        x = images((2, 4, 3, 3), device=device)
        x[0, 1, 0, 0] = float("nan")
        residual = torch.zeros_like(x) if adds else None
        first, second = norms(4, device)
        plain = gradients_of(norm_relu, first, x, residual)
        fused = gradients_of(fused_norm_relu, second, x, residual)
        assert fused[0][:, 1].isnan().all() and not fused[0][:, 0].isnan().any()
        for ours, theirs in zip(fused, plain, strict=True):
            assert torch.equal(ours.isnan(), theirs.isnan())


def check_counters(device):
    """Members of a folded ensemble count their batches each."""
    norm = nn.BatchNorm2d(6).to(device)
    norm.num_batches_tracked = torch.tensor([4, 4, 7], device=device)
    fused_norm_relu(norm, images((2, 6, 3, 3), device=device), None)
    assert norm.num_batches_tracked.tolist() == [5, 5, 8]


CHECKS = [
    check_all_shapes,
    check_several_tiles,
    check_half_precision,
    check_second_derivatives,
    check_nan,
    check_counters,
]


@pytest.mark.parametrize("adds", [False, True])
def test_without_a_gpu_it_is_torch_to_the_bit(adds):
    first, second = norms(16)
    x = images((3, 16, 7, 7))
    residual = images((3, 16, 7, 7), seed=1) if adds else None
    with fused_norms():
        ours = norm_relu(first, x, residual)
    theirs = F.relu(second(x) + residual) if adds else F.relu(second(x))
    assert torch.equal(ours, theirs)
    assert all(map(torch.equal, first.buffers(), second.buffers()))


@pytest.mark.skipif(
    find_spec("triton") is None or GPU, reason="Triton interprets kernels where there is no GPU"
)
def test_interpreted_kernels_compute_what_torch_does():
    code = "import test_norm_relu as t; [check('cpu') for check in t.CHECKS]"
    environment = os.environ | {
        "TRITON_INTERPRET": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path]),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


class TestWhenItMayBeFused:
    """The rule, with a stand-in for a tensor on a GPU."""

    @pytest.fixture(autouse=True)
    def triton(self, monkeypatch):
        monkeypatch.setattr(module, "triton_is_there", lambda: True)
        monkeypatch.setattr(module, "kernels_agree", lambda device, dtype: True)

    class OnGPU:
        is_cuda = True
        device = torch.device("cuda")
        dtype = torch.bfloat16
        shape = (3, 16, 7, 7)

        def dim(self):
            return 4

        def numel(self):
            return 3 * 16 * 7 * 7

        def is_contiguous(self, memory_format):
            return memory_format is torch.channels_last

    def test_only_where_it_is_allowed(self):
        norm = nn.BatchNorm2d(16)
        assert not can_be_fused(norm, self.OnGPU())
        with fused_norms():
            assert can_be_fused(norm, self.OnGPU())
        assert not can_be_fused(norm, self.OnGPU())

    def test_no_layer_that_is_not_as_torch_makes_it(self):
        hooked = nn.BatchNorm2d(16)
        hooked.register_forward_hook(lambda *arguments: None)
        watched = nn.BatchNorm2d(16)
        watched.register_full_backward_pre_hook(lambda *arguments: None)
        replaced = nn.BatchNorm2d(16)
        replaced.forward = lambda x: x
        unusual = [
            nn.BatchNorm2d(16).eval(),
            nn.BatchNorm2d(16, affine=False),
            nn.BatchNorm2d(16, momentum=None),
            nn.BatchNorm2d(16, track_running_stats=False),
            nn.BatchNorm2d(16).double(),
            nn.SyncBatchNorm(16),
            hooked,
            watched,
            replaced,
        ]
        with fused_norms():
            assert not any(can_be_fused(norm, self.OnGPU()) for norm in unusual)

    def test_a_residual_of_another_shape_or_type_is_torchs(self):
        norm = nn.BatchNorm2d(16)
        x = self.OnGPU()
        same, other = self.OnGPU(), self.OnGPU()
        with fused_norms():
            assert can_be_fused(norm, x, same)
            other.shape = (1, 16, 1, 1)
            assert not can_be_fused(norm, x, other)
            same.dtype = torch.float32
            assert not can_be_fused(norm, x, same)

    def test_not_where_every_module_is_hooked(self):
        norm = nn.BatchNorm2d(16)
        hook = register_module_forward_pre_hook(lambda module, inputs: None)
        try:
            with fused_norms():
                assert not can_be_fused(norm, self.OnGPU())
        finally:
            hook.remove()

    def test_not_under_transforms(self):
        norm = nn.BatchNorm2d(16)
        seen = []

        def look(x):
            seen.append(can_be_fused(norm, self.OnGPU()))
            return x

        with fused_norms():
            jvp(look, (torch.ones(1),), (torch.ones(1),))
            torch.func.vmap(look)(torch.ones(2))
        assert seen == [False, False]


class TestTheCheckOfTheKernels:
    """Kernels that are wrong, or cannot be compiled, are replaced by torch's layers, aloud."""

    @pytest.fixture(autouse=True)
    def forget(self):
        kernels_agree.cache_clear()
        yield
        kernels_agree.cache_clear()

    @pytest.fixture
    def made_up_kernels(self, monkeypatch):
        def use(function):
            made_up = SimpleNamespace(fused_norm_relu=function)
            monkeypatch.setitem(sys.modules, "toosure.models.fused_norm", made_up)

        return use

    def test_right_kernels_are_used(self, made_up_kernels):
        made_up_kernels(module.plain_norm_relu)
        assert kernels_agree(torch.device("cpu"), torch.float32)

    @pytest.mark.parametrize("factor", [1.001, float("nan"), None])
    def test_wrong_kernels_are_not(self, made_up_kernels, factor):
        def wrong(norm, x, residual):
            if factor is None:  # as if weight and bias were not read
                norm.weight.data.fill_(1)
                norm.bias.data.zero_()
            return (factor or 1) * module.plain_norm_relu(norm, x, residual)

        made_up_kernels(wrong)
        with pytest.warns(UserWarning, match="not used on cpu in torch.float32: relative errors"):
            assert not kernels_agree(torch.device("cpu"), torch.float32)

    def test_nor_those_that_cannot_be_compiled(self, made_up_kernels):
        def fails(norm, x, residual):
            raise RuntimeError("no compiler\nin this place")

        made_up_kernels(fails)
        with pytest.warns(UserWarning, match="RuntimeError: no compiler$"):
            assert not kernels_agree(torch.device("cpu"), torch.bfloat16)

    def test_no_random_number_is_drawn(self, made_up_kernels):
        made_up_kernels(module.plain_norm_relu)
        before = torch.random.get_rng_state()
        kernels_agree(torch.device("cpu"), torch.float32)
        assert torch.equal(before, torch.random.get_rng_state())


# -- on a GPU -------------------------------------------------------------------------------------


@on_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_check_finds_them_right_here(dtype):
    assert kernels_agree(torch.device("cuda"), dtype)


@on_gpu
@pytest.mark.parametrize("check", CHECKS)
def test_kernels_compute_what_torch_does(check):
    check("cuda")


@on_gpu
@pytest.mark.parametrize("make", [resnet20, resnet18, lambda: wrn(depth=10, width=1)])
def test_networks_train_alike(make):
    x = torch.randn(32, 3, 32, 32, device="cuda")
    results = []
    for context in (nullcontext, fused_norms):
        torch.manual_seed(0)
        model = make().cuda().to(memory_format=torch.channels_last).train()
        with torch.backends.cudnn.flags(allow_tf32=False, deterministic=True), context():
            loss = model(x).square().mean()
            found = torch.autograd.grad(loss, list(model.parameters()))
        results.append([loss.detach(), *found, *model.buffers()])
    assert_alike(results[1], results[0], 2e-3)


@on_gpu
def test_functional_calls_use_the_weights_they_are_given():
    norm = nn.BatchNorm2d(16).cuda()
    x = images((4, 16, 6, 6), device="cuda")

    class Rectified(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = norm

        def forward(self, x):
            return norm_relu(self.norm, x)

    with fused_norms():
        out = functional_call(Rectified(), {"norm.weight": torch.zeros(16, device="cuda")}, x)
    assert not out.any()
