"""The networks have the published sizes and weights, and can be differentiated twice."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from toosure.models import load_published, mlp, resnet20, resnet56, resnet110

FACTORIES = [mlp, resnet20, resnet56, resnet110]


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_parameter_counts_are_the_published_ones():
    layers = [3072 * 200 + 200, 200 * 200 + 200, 200 * 10 + 10]
    assert count(mlp(3072, 10)) == sum(layers)
    # He et al., Table 6: 0.27M, 0.85M, 1.7M.
    assert [round(count(f()) / 1e6, 2) for f in FACTORIES[1:]] == [0.27, 0.85, 1.73]


@pytest.mark.parametrize("factory", FACTORIES)
def test_head_reads_the_features(factory):
    model = factory((1, 16, 16), 7).eval()
    x = torch.randn(3, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    features = model.features(x)
    assert isinstance(model.head, nn.Linear)
    assert features.shape == (3, model.head.in_features)
    assert torch.equal(model(x), model.head(features)) and model(x).shape == (3, 7)


def test_mlp_is_its_formula():
    model = mlp(5, 3, width=4, depth=2).double()
    x = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    first, second, head = [m for m in model.modules() if isinstance(m, nn.Linear)]
    hidden = torch.tanh(x @ first.weight.T + first.bias)
    hidden = torch.tanh(hidden @ second.weight.T + second.bias)
    torch.testing.assert_close(model(x), hidden @ head.weight.T + head.bias)


def test_mlp_of_depth_zero_is_linear():
    model = mlp(5, 3, depth=0)
    x = torch.ones(2, 5)
    assert torch.equal(model(x), model.head(x))


def test_mlp_names_a_wrong_activation():
    with pytest.raises(ValueError, match="tanh, relu"):
        mlp(5, 3, activation="tan")


def test_resnet_refuses_flat_inputs():
    with pytest.raises(ValueError, match="channels, height, width"):
        resnet20((3072,), 10)


def test_shortcut_subsamples_and_pads_a_quarter_on_each_side():
    block = resnet20().layer2[0]
    x = torch.randn(2, 16, 8, 8, generator=torch.Generator().manual_seed(0))
    out = block.shortcut(x)
    assert out.shape == (2, 32, 4, 4)
    assert torch.equal(out[:, 8:24], x[:, :, ::2, ::2])
    assert not out[:, :8].any() and not out[:, 24:].any()


def test_resnet_starts_kaiming_normal():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = resnet20()
    weight = model.layer3[1].conv1.weight  # 64 x 64 x 3 x 3: the standard error is below 1 %
    assert weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)


@pytest.mark.parametrize("factory", [mlp, resnet20])
def test_second_derivatives_agree_with_differences(factory):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = factory((3, 8, 8), 4).double().eval()
    x = torch.randn(4, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 1, 2, 3])
    weight = model.head.weight

    def gradient() -> torch.Tensor:
        loss = F.cross_entropy(model(x), labels)
        return torch.autograd.grad(loss, weight, create_graph=True)[0]

    direction = torch.randn(weight.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(2))
    grad = gradient()
    exact = torch.autograd.grad((grad * direction).sum(), list(model.parameters()))[-2]
    step = 1e-5 * direction
    with torch.no_grad():
        weight += step
    ahead = gradient().detach()
    with torch.no_grad():
        weight -= 2 * step
    behind = gradient().detach()
    torch.testing.assert_close(exact, (ahead - behind) / 2e-5, rtol=1e-6, atol=1e-8)


def published(real_data):
    return real_data / "logits" / "weights_resnet20_c10_akamaster.npz"


def imagenet_normalised(images: torch.Tensor) -> torch.Tensor:
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    return (images.float() / 255 - mean) / std


def first_images(real_data, count: int) -> torch.Tensor:
    """The first official test images, straight from the sheet (row-major tiles)."""
    from PIL import Image

    sheet = np.asarray(Image.open(real_data / "cifar10" / "test_batch.webp").convert("RGB"))
    rows = sheet.reshape(sheet.shape[0] // 32, 32, -1, 32, 3).transpose(0, 2, 4, 1, 3)
    return torch.from_numpy(rows.reshape(-1, 3, 32, 32)[:count].copy())


@torch.no_grad()
def logits_of(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    parts = [model(imagenet_normalised(part)) for part in images.split(500)]
    return torch.cat(parts)


def check_published(real_data, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    model = load_published(resnet20(), published(real_data)).eval()
    stored = np.load(real_data / "logits" / "logits_resnet20_c10_akamaster_test.npz")
    logits = logits_of(model, first_images(real_data, count))
    expected = torch.from_numpy(stored["test_logits"][:count])
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)
    return logits, torch.from_numpy(stored["test_labels"][:count])


def test_published_weights_give_the_stored_logits(real_data):
    check_published(real_data, 500)


@pytest.mark.slow
def test_published_weights_err_on_8_27_percent(real_data):
    logits, labels = check_published(real_data, 10_000)
    assert (logits.argmax(1) != labels).sum() == 827


def test_published_weights_of_another_network_are_refused(real_data):
    with pytest.raises(ValueError, match=r"lacks .* arrays"):
        load_published(resnet56(), published(real_data))
    with pytest.raises(ValueError, match=r"head\.(bias|weight) does not fit"):
        load_published(resnet20(classes=100), published(real_data))


def test_a_truncated_weight_file_is_named(tmp_path):
    path = tmp_path / "weights.npz"
    np.savez(path, a=np.zeros(1000))
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match=r"weights\.npz is not a whole"):
        load_published(resnet20(), path)
