"""Each family is the published one: its size, its shapes, its start, its formulas."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from toosure.margins import certified_margin, true_margin
from toosure.models import (
    densenet,
    densenet40,
    densenet_bc100,
    mlp,
    pyramidnet,
    pyramidnet110,
    resnet18,
    resnet50,
    vit,
    vit_s16,
    vit_s32,
    wrn,
    wrn28_10,
)
from toosure.models.vit import Attention

IMAGENET = ((3, 224, 224), 1000)


def count(factory, *arguments, **settings) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in factory(*arguments, **settings).parameters())


def millions(*arguments, **settings) -> float:
    return round(count(*arguments, **settings) / 1e6, 1)


# -- sizes ----------------------------------------------------------------------------------


def test_resnets_have_torchvisions_sizes():
    # torchvision's documentation of resnet18 and resnet50: num_params.
    assert count(resnet18, *IMAGENET) == 11_689_512
    assert count(resnet50, *IMAGENET) == 25_557_032
    # Without the 7x7 stem (9,408 weights against 1,728) and with ten classes.
    assert count(resnet18) == 11_689_512 - 9_408 + 1_728 - 513_000 + 5_130
    assert count(resnet50) == 25_557_032 - 9_408 + 1_728 - 2_049_000 + 20_490


def test_wide_resnets_have_the_papers_sizes():
    # Zagoruyko and Komodakis, Table 4: 40-4, 16-8 and 28-10.
    sizes = [millions(wrn, depth=d, width=w) for d, w in ((40, 4), (16, 8), (28, 10))]
    assert sizes == [8.9, 11.0, 36.5]
    assert count(wrn28_10) == count(wrn) == 36_479_194
    assert count(wrn28_10, classes=100) == 36_536_884


def test_densenets_have_the_papers_sizes():
    # Huang et al., Table 2: (L, k) = (40, 12), (100, 12), (100, 24), then BC.
    plain = [millions(densenet, depth=d, growth=k) for d, k in ((40, 12), (100, 12), (100, 24))]
    assert plain == [1.0, 7.0, 27.2]
    settings = ((100, 12), (250, 24), (190, 40))
    assert [millions(densenet, depth=d, growth=k, bottleneck=True) for d, k in settings] == [
        *(0.8, 15.3, 25.6)
    ]
    assert count(densenet40) == 1_019_722
    assert count(densenet_bc100) == 769_162


def test_pyramidnets_have_the_sizes_of_their_authors_code():
    # The same in osmr's pytorchcv, whose tests list them. Han et al. print 1.7M, 3.8M and 28.3M.
    sizes = [count(pyramidnet110, alpha=alpha) for alpha in (48, 84, 270)]
    assert sizes == [1_772_706, 3_904_446, 28_485_477]
    assert count(pyramidnet110, classes=100) == 28_511_307


def test_vision_transformers_have_timms_sizes():
    # DeiT-S: 22M in Touvron et al., Table 1; timm: vit_small_patch16_224, vit_small_patch32_224.
    assert count(vit_s16, *IMAGENET) == 22_050_664
    assert count(vit_s32, *IMAGENET) == 22_878_952
    d, tokens = 384, 14 * 14 + 1
    block = 4 * d + (3 * d * d + 3 * d) + (d * d + d) + (8 * d * d + 5 * d)
    ends = (3 * 16 * 16 + 1) * d + d + tokens * d + 2 * d + 1000 * (d + 1)
    assert count(vit_s16, *IMAGENET) == 12 * block + ends


# -- starts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "factory", [resnet18, lambda: wrn(depth=10, width=4), lambda: pyramidnet(depth=14, alpha=240)]
)
def test_convolutions_start_by_the_channels_they_make(factory):
    model = factory()
    last = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)][-1]
    # N weights estimate a deviation to a share of 1 / sqrt(2 N), below 0.2 % here: ten of those.
    assert last.weight.numel() > 250_000
    deviation = (2 / (9 * last.out_channels)) ** 0.5
    assert last.weight.std().item() == pytest.approx(deviation, rel=0.015)
    assert last.weight.mean().item() == pytest.approx(0, abs=deviation * 0.01)
    assert not model.head.bias.any()
    assert model.head.weight.abs().max() <= model.head.in_features**-0.5


def test_fan_out_is_not_fan_in():
    conv = densenet(depth=10, growth=48).blocks[4][-1].conv1
    assert conv.in_channels > 5 * conv.out_channels
    assert conv.weight.std().item() == pytest.approx((2 / (9 * 48)) ** 0.5, rel=0.015)


def test_a_vision_transformer_starts_like_timms():
    model = vit(depth=2)
    for part in (model.pos_embed, model.blocks[1].attn.qkv.weight, model.blocks[0].mlp.fc2.weight):
        assert part.std().item() == pytest.approx(0.02, rel=0.03)
    assert 0 < model.cls_token.abs().max() < 1e-5
    biases = [m.bias for m in model.modules() if isinstance(m, nn.Linear)]
    assert not any(bias.any() for bias in biases)
    bound = (3 * 4 * 4) ** -0.5
    assert 0.95 * bound < model.patch_embed.proj.weight.abs().max() <= bound


# -- shapes and formulas --------------------------------------------------------------------


def sides_of(model, inputs) -> list[int]:
    """The side of the image after the stem and each stage."""
    parts, found = [model.maxpool, model.layer1, model.layer2, model.layer3, model.layer4], []
    for part in parts:
        part.register_forward_hook(lambda module, args, out: found.append(out.shape[-1]))
    model(torch.zeros(1, *inputs))
    return found


@pytest.mark.parametrize(
    ("side", "stem", "sides"),
    [
        (32, "auto", [32, 32, 16, 8, 4]),
        (64, "auto", [64, 64, 32, 16, 8]),
        (65, "auto", [17, 17, 9, 5, 3]),
        (224, "auto", [56, 56, 28, 14, 7]),
        (64, "imagenet", [16, 16, 8, 4, 2]),
        (96, "small", [96, 96, 48, 24, 12]),
    ],
)
@pytest.mark.parametrize("factory", [resnet18, resnet50])
def test_the_stem_follows_the_images(factory, side, stem, sides):
    with torch.device("meta"):
        assert sides_of(factory((3, side, side), 10, stem), (3, side, side)) == sides


def test_resnets_have_torchvisions_names():
    with torch.device("meta"):
        names = resnet50().state_dict().keys()
    assert {"conv1.weight", "bn1.bias", "layer2.0.downsample.1.running_var"} <= names
    assert {"layer4.2.conv3.weight", "head.weight", "head.bias"} <= names
    assert len(names) == 320  # as in torchvision's resnet50


def test_vision_transformers_have_timms_names():
    with torch.device("meta"):
        names = vit_s16(*IMAGENET).state_dict().keys()
    assert {"cls_token", "pos_embed", "patch_embed.proj.weight", "norm.bias"} <= names
    assert {"blocks.11.attn.qkv.bias", "blocks.0.mlp.fc1.weight", "blocks.3.norm2.weight"} <= names
    assert len(names) == 152  # as in timm's vit_small_patch16_224


def test_a_wide_block_is_its_formula():
    first, second = wrn(depth=16, width=2).eval().layer2
    x = torch.randn(2, 32, 8, 8)
    active = F.relu(first.bn1(x))
    branch = first.conv2(F.relu(first.bn2(first.conv1(active))))
    expected = branch + first.shortcut(active)  # the projection reads the activation
    torch.testing.assert_close(first(x), expected)
    z = torch.randn(2, 64, 4, 4)
    branch = second.conv2(F.relu(second.bn2(second.conv1(F.relu(second.bn1(z))))))
    torch.testing.assert_close(second(z), branch + z)  # and the identity does not


def test_channels_of_a_pyramid_grow_linearly():
    with torch.device("meta"):
        model = pyramidnet110(alpha=270)
    layers = [*model.layer1, *model.layer2, *model.layer3]
    assert [layer.conv2.out_channels for layer in layers] == [16 + 5 * k for k in range(1, 55)]
    assert [k for k, layer in enumerate(layers) if layer.stride == 2] == [18, 36]
    assert model.head.in_features == 286


@pytest.mark.parametrize("side", [8, 7])
def test_a_pyramids_shortcut_pools_and_pads(side):
    block = pyramidnet(depth=8, alpha=9).layer2[0]
    x = torch.randn(2, 19, side, side)
    out = block.shortcut(x)
    assert out.shape == block(x).shape == (2, 22, 4, 4)
    torch.testing.assert_close(
        out[:, :19, :3, :3], x[:, :, :6, :6].unfold(2, 2, 2).unfold(3, 2, 2).mean((4, 5))
    )
    assert not out[:, 19:].any()


def test_a_dense_layer_keeps_what_came_before():
    for bottleneck in (False, True):
        block = densenet(depth=16, growth=4, bottleneck=bottleneck).blocks[0]
        start = 8 if bottleneck else 16
        x = torch.randn(2, start, 8, 8)
        out = block(x)
        assert out.shape == (2, start + 4 * len(block), 8, 8)
        assert torch.equal(out[:, :start], x)


def test_transitions_of_bc_halve_the_channels():
    with torch.device("meta"):
        plain, compressed = densenet40(), densenet_bc100()
    assert [p.conv.out_channels for p in plain.blocks[1::2]] == [160, 304]
    assert [p.conv.out_channels for p in compressed.blocks[1::2]] == [108, 150]
    assert (plain.head.in_features, compressed.head.in_features) == (448, 342)


def test_attention_is_its_formula():
    layer = Attention(width=6, heads=2, dropout=0.0).double()
    x = torch.randn(3, 5, 6).double()
    q, k, v = F.linear(x, layer.qkv.weight, layer.qkv.bias).split(6, dim=2)
    heads = []
    for at in (slice(0, 3), slice(3, 6)):
        scores = q[..., at] @ k[..., at].mT / 3**0.5
        heads.append(scores.softmax(-1) @ v[..., at])
    expected = layer.proj(torch.cat(heads, -1))
    torch.testing.assert_close(layer(x), expected)


def test_patches_are_squares_of_pixels():
    model = vit((3, 8, 12), 5, patch=4, width=6, depth=1, heads=2)
    x = torch.randn(2, 3, 8, 12)
    tokens = model.patch_embed(x)
    assert tokens.shape == (2, 6, 6) and model.pos_embed.shape == (1, 7, 6)
    weight, bias = model.patch_embed.proj.weight, model.patch_embed.proj.bias
    second = x[:, :, :4, 4:8].flatten(1) @ weight.flatten(1).T + bias
    torch.testing.assert_close(tokens[:, 1], second)


def test_patches_of_the_small_transformer_follow_the_images():
    with torch.device("meta"):
        for rows, columns, patch in ((8, 8, 1), (32, 32, 4), (64, 64, 8), (28, 28, 4), (36, 28, 4)):
            assert vit((1, rows, columns), 10).patch_embed.proj.kernel_size == (patch, patch)


def test_mlp_drops_after_each_activation():
    model = mlp(5, 3, width=4, depth=2, dropout=0.2)
    kinds = [type(m) for m in model.hidden]
    assert kinds == [nn.Linear, nn.Tanh, nn.Dropout] * 2


# -- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: wrn(depth=20), r"6n \+ 4 .* got 20 and 10"),
        (lambda: wrn(width=0), "width >= 1; got 28 and 0"),
        (lambda: pyramidnet(depth=109), r"6n \+ 2 .* got 109 and 270"),
        (lambda: pyramidnet(alpha=-1.0), "alpha >= 0; got 110 and -1"),
        (lambda: pyramidnet(alpha=float("inf")), "a finite alpha >= 0; got 110 and inf"),
        (lambda: densenet(depth=41), r"DenseNet needs a depth of 3n \+ 4 .* got 41"),
        (lambda: densenet(depth=40, bottleneck=True, growth=0), "growth >= 1; got 40 and 0"),
        (lambda: densenet(depth=43, bottleneck=True), r"DenseNet-BC needs a depth of 6n \+ 4"),
        (lambda: densenet((3, 3, 8), 10), "halves its images twice; got 3 x 8"),
        (lambda: vit_s16((3, 40, 48), 10), "40 x 48 .* not divide by 16, but by 1, 2, 4, 8$"),
        (lambda: vit(heads=5), "a width that its heads divide; got .* width 192, heads 5"),
        (lambda: vit(patch=-4), "side of a patch in pixels, at least 1; got -4"),
        (lambda: vit(ratio=0.001), "a positive depth and ratio"),
        (lambda: resnet18(stem="large"), "stem must be one of auto, imagenet, small; got 'large'"),
        (lambda: resnet50(width=0), "at least 1; got 0"),
        (lambda: resnet18(3072), "needs images"),
    ],
)
def test_settings_that_make_no_network_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


# -- certified bounds -----------------------------------------------------------------------

IMAGES = ((3, 4, 4), 4)


@pytest.mark.parametrize(
    "model",
    [
        lambda: resnet18(*IMAGES, width=4),
        lambda: resnet18(*IMAGES, width=4, stem="imagenet"),
        lambda: wrn(*IMAGES, depth=10, width=1),
        lambda: pyramidnet(*IMAGES, depth=8, alpha=9),
        lambda: densenet(*IMAGES, depth=10, growth=4),
        lambda: densenet(*IMAGES, depth=10, growth=4, bottleneck=True),
    ],
    ids=["resnet18", "imagenet stem", "wrn", "pyramidnet", "densenet", "densenet-bc"],
)
def test_certified_margins_hold_around_the_examples(model):
    model, eps = model(), 1e-3
    x, y = torch.randn(3, 3, 4, 4), torch.arange(3)
    model(x)  # running statistics of the data
    model.eval()
    bound = certified_margin(model, x, y, eps).values
    shifts = eps * torch.randint(0, 2, (20, *x.shape)).mul(2).sub(1)  # corners of the ball
    with torch.no_grad():
        lowest = torch.stack([true_margin(model(x + shift), y) for shift in shifts]).amin(0)
    assert bound.isfinite().all() and (bound <= lowest + 1e-6).all()


def test_certified_margins_of_a_transformer_are_refused():
    x, y = torch.randn(2, 3, 4, 4), torch.arange(2)
    with pytest.raises(ValueError, match="LayerNorm"):
        certified_margin(vit(*IMAGES, width=8, depth=1, heads=2).eval(), x, y, 0.1)
