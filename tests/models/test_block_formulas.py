"""Blocks, stems and ends of the networks are their papers' formulas, written out here."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toosure.models import (
    densenet,
    mlp,
    pyramidnet,
    resnet18,
    resnet20,
    resnet50,
    vit,
    wrn,
)

relu = F.relu


def ready(model: nn.Module) -> nn.Module:
    """In evaluation, in double precision, with normalisations that are no identities."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
            for name, low in (("weight", 0.5), ("bias", -0.5), ("running_var", 0.5)):
                if (value := getattr(module, name, None)) is not None:
                    value.data.uniform_(low, low + 1, generator=generator)
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-0.5, 0.5, generator=generator)
    return model.double().eval()


def images(*shape: int) -> Tensor:
    return torch.randn(2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


close = torch.testing.assert_close


def test_basic_blocks_and_the_small_stem():
    model = ready(resnet18((3, 8, 8), 5, width=4))
    x = images(3, 8, 8)
    z = relu(model.bn1(model.conv1(x)))
    for stage, stride in zip(
        (model.layer1, model.layer2, model.layer3, model.layer4), (1, 2, 2, 2), strict=True
    ):
        for place, b in enumerate(stage):
            assert b.conv1.stride == ((stride, stride) if place == 0 else (1, 1))
            branch = b.bn2(b.conv2(relu(b.bn1(b.conv1(z)))))
            if z.shape != branch.shape:
                projection, norm = b.downsample
                assert projection.kernel_size == (1, 1)
                z = norm(projection(z))
            z = relu(branch + z)
    close(model.features(x), z.mean((2, 3)))
    close(model(x), z.mean((2, 3)) @ model.head.weight.T + model.head.bias)


def test_bottlenecks_have_the_stride_in_the_middle():
    model = ready(resnet50((3, 8, 8), 5, width=2))
    first = model.layer2[0]
    strides = [conv.stride[0] for conv in (first.conv1, first.conv2, first.conv3)]
    assert strides == [1, 2, 1] and first.downsample[0].stride == (2, 2)
    z = images(8, 8, 8)
    inner = relu(first.bn2(first.conv2(relu(first.bn1(first.conv1(z))))))
    close(first(z), relu(first.bn3(first.conv3(inner)) + first.downsample(z)))
    assert [conv.kernel_size[0] for conv in (first.conv1, first.conv2, first.conv3)] == [1, 3, 1]


def test_the_large_stem():
    model = ready(resnet18((3, 32, 32), 5, stem="imagenet", width=4))
    x = images(3, 32, 32)
    assert (model.conv1.kernel_size, model.conv1.stride) == ((7, 7), (2, 2))
    z = F.max_pool2d(relu(model.bn1(model.conv1(x))), 3, stride=2, padding=1)
    z = model.layer4(model.layer3(model.layer2(model.layer1(z))))
    close(model.features(x), z.mean((2, 3)))


def test_the_cifar_resnet():
    model = ready(resnet20((3, 8, 8), 5))
    x = images(3, 8, 8)
    z = relu(model.bn1(model.conv1(x)))
    for b in (*model.layer1, *model.layer2, *model.layer3):
        z = relu(b.bn2(b.conv2(relu(b.bn1(b.conv1(z))))) + b.shortcut(z))
    close(model.features(x), z.mean((2, 3)))


def test_the_cifar_resnets_head_starts_kaiming_normal():
    head = resnet20(classes=1000).head  # 64,000 weights: the deviation to 0.3 %
    assert head.weight.std().item() == pytest.approx((2 / 64) ** 0.5, rel=0.02)


def test_a_wide_resnet_rectifies_at_its_end():
    model = ready(wrn((3, 8, 8), 5, depth=10, width=1))
    x = images(3, 8, 8)
    z = model.conv1(x)
    for b in (*model.layer1, *model.layer2, *model.layer3):
        active = relu(b.bn1(z))
        branch = b.conv2(relu(b.bn2(b.conv1(active))))
        z = branch + (z if z.shape == branch.shape else b.shortcut(active))
    close(model.features(x), relu(model.bn(z)).mean((2, 3)))


def test_a_pyramid_has_no_relu_before_its_first_convolutions():
    """Han et al., Figure 6 (d): BN-conv-BN-ReLU-conv-BN; the first convolution has BN alone."""
    model = ready(pyramidnet((3, 8, 8), 5, depth=14, alpha=12))
    x = images(3, 8, 8)
    z = model.bn1(model.conv1(x))
    for k, b in enumerate((*model.layer1, *model.layer2, *model.layer3)):
        branch = b.bn3(b.conv2(relu(b.bn2(b.conv1(b.bn1(z))))))
        short = F.avg_pool2d(z, 2) if k in (2, 4) else z
        z = branch.clone()
        z[:, : short.shape[1]] += short  # the new channels have no shortcut
    close(model.features(x), relu(model.bn_final(z)).mean((2, 3)))


@pytest.mark.parametrize("bottleneck", [False, True])
def test_a_densenet(bottleneck):
    model = ready(densenet((3, 8, 8), 5, depth=16, growth=3, bottleneck=bottleneck))
    x = images(3, 8, 8)
    z = model.conv(x)
    for block, part in enumerate(model.blocks):
        if block % 2:
            mixed = part.conv(relu(part.bn(z)))
            z = mixed.unfold(2, 2, 2).unfold(3, 2, 2).mean((4, 5))
            continue
        for layer in part:
            new = layer.conv1(relu(layer.bn1(z)))
            if bottleneck:
                assert layer.conv1.kernel_size == (1, 1) and new.shape[1] == 12
                new = layer.conv2(relu(layer.bn2(new)))
            z = torch.cat([z, new], 1)
    close(model.features(x), relu(model.bn(z)).mean((2, 3)))


def test_a_vision_transformer():
    model = ready(vit((3, 8, 8), 5, patch=4, width=12, depth=2, heads=3))
    with torch.no_grad():
        model.cls_token.normal_()
    x = images(3, 8, 8)
    own = model.cls_token.expand(2, 1, 12)
    z = torch.cat([own, model.patch_embed(x)], 1) + model.pos_embed

    def normalised(norm: nn.LayerNorm, t: Tensor) -> Tensor:
        spread = (t.var(-1, correction=0, keepdim=True) + 1e-6).sqrt()
        return (t - t.mean(-1, keepdim=True)) / spread * norm.weight + norm.bias

    for b in model.blocks:
        z = z + b.attn(normalised(b.norm1, z))
        hidden = b.mlp.fc1(normalised(b.norm2, z))
        z = z + b.mlp.fc2(hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5)))
    close(model.features(x), normalised(model.norm, z)[:, 0], rtol=1e-10, atol=1e-10)


SIZE = ((3, 16, 16), 5)


@pytest.mark.parametrize(
    ("model", "calls", "rectified"),
    [
        (lambda p: resnet20(*SIZE, dropout=p), 9, True),
        (lambda p: resnet18(*SIZE, width=4, dropout=p), 8, True),
        (lambda p: resnet50(*SIZE, width=2, dropout=p), 16, True),
        (lambda p: wrn(*SIZE, depth=16, width=1, dropout=p), 6, True),
        (lambda p: pyramidnet(*SIZE, depth=14, alpha=9, dropout=p), 6, True),
        # After each convolution but the first: 3 x 2 layers, 2 transitions; BC has two a layer.
        (lambda p: densenet(*SIZE, depth=10, growth=3, dropout=p), 8, False),
        (lambda p: densenet(*SIZE, depth=16, growth=3, bottleneck=True, dropout=p), 14, False),
        # After the positions, and in each block after the projection and both layers of the MLP.
        (lambda p: vit(*SIZE, width=12, depth=2, heads=3, dropout=p), 7, False),
        (lambda p: mlp(*SIZE, width=8, depth=3, activation="relu", dropout=p), 3, True),
    ],
    ids=["resnet20", "resnet18", "resnet50", "wrn", "pyramidnet", "densenet", "bc", "vit", "mlp"],
)
def test_dropout_acts_where_it_is_said_to(model, calls, rectified):
    model, seen = model(0.3), []
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            assert module.p == 0.3
            module.register_forward_hook(lambda module, args, out: seen.append(args[0]))
    model(torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0)))
    assert len(seen) == calls
    assert all((x.min() >= 0) == rectified for x in seen)  # between activation and convolution
