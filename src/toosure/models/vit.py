"""The vision transformers of Dosovitskiy et al.: ViT-S as in DeiT and timm, and a small one."""

from math import gcd

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toosure.models.inputs import check_dropout, image_shape


class Attention(nn.Module):
    """Let each token read the others, in several heads.

    softmax(Q K' / sqrt(width / heads)) V, by torch's scaled_dot_product_attention: its fused
    kernels train, and the curvature room asks it for the plain one, which has second derivatives.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(x).unflatten(2, (3, self.heads, -1))  # (N, T, 3, heads, width / heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)  # (N, heads, T, width / heads)
        read = F.scaled_dot_product_attention(query, key, value)
        return self.dropout(self.proj(read.transpose(1, 2).flatten(2)))  # (N, T, width)


class Mlp(nn.Module):
    """Pass each token through one hidden layer with GELU."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.drop1, self.drop2 = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop2(self.fc2(self.drop1(F.gelu(self.fc1(x)))))


class Block(nn.Module):
    """Add attention, then the MLP, each of the normalised tokens."""

    def __init__(self, width: int, heads: int, ratio: float, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width, round(ratio * width), dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchEmbed(nn.Module):
    """Map each square of pixels to a token."""

    def __init__(self, channels: int, patch: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, width, patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x).flatten(2).transpose(1, 2)  # (N, T, width)


class VisionTransformer(nn.Module):
    """Read the class off a token of its own, after `depth` blocks over it and the patches.

    Parameters have timm's names. Linear weights, positions: normal, cut at two units, of
    deviation 0.02; biases 0; the class token of deviation 1e-6; the patches PyTorch's uniform.
    """

    def __init__(
        self,
        inputs: tuple[int, int, int],
        classes: int,
        patch: int,
        width: int,
        depth: int,
        heads: int,
        ratio: float,
        dropout: float,
    ) -> None:
        super().__init__()
        channels, rows, columns = inputs
        tokens = (rows // patch) * (columns // patch) + 1
        self.patch_embed = PatchEmbed(channels, patch, width)
        self.cls_token = nn.Parameter(torch.empty(1, 1, width))
        self.pos_embed = nn.Parameter(torch.empty(1, tokens, width))
        self.pos_drop = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, ratio, dropout) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)
        nn.init.normal_(self.cls_token, std=1e-6)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def features(self, x: Tensor) -> Tensor:
        """Return what the head reads: the class token of the last block, normalised."""
        patches = self.patch_embed(x)
        own = self.cls_token.expand(x.shape[0], -1, -1)
        tokens = torch.cat([own, patches], 1) + self.pos_embed
        return self.norm(self.blocks(self.pos_drop(tokens)))[:, 0]  # (N, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))  # (N, classes)


def vit(
    inputs: tuple[int, ...] = (3, 32, 32),
    classes: int = 10,
    patch: int | None = None,
    width: int = 192,
    depth: int = 9,
    heads: int = 12,
    ratio: float = 2.0,
    dropout: float = 0.0,
) -> VisionTransformer:
    """Build a small vision transformer: 2.7 million parameters for CIFAR-10, 2.8 for 64 x 64.

    `patch=None` cuts the image into about 8 x 8 patches: 4 pixels for CIFAR and MNIST, 8 for
    Tiny-ImageNet, the side that tiles the image nearest to an eighth of its shorter side.
    `ratio` is the hidden width of the MLPs over `width`. `dropout` acts after the positions and
    after each dense layer but the one of queries, keys and values. Shape: Lee et al. (2021),
    Vision Transformer for Small-Size Datasets, arXiv 2112.13492. Reference: Dosovitskiy et al.
    (2021), An Image is Worth 16x16 Words, arXiv 2010.11929.

    >>> sum(p.numel() for p in vit().parameters())
    2697610
    """
    shape = image_shape(inputs, "a vision transformer")
    check_dropout(dropout)
    tiles = [side for side in range(1, min(shape[1:]) + 1) if gcd(*shape[1:]) % side == 0]
    if patch is None:
        patch = min(tiles, key=lambda side: abs(8 * side - min(shape[1:])))
    if patch not in tiles:
        raise ValueError(
            f"patches must tile the image: {shape[1]} x {shape[2]} pixels do not divide by "
            f"{patch}, but by {', '.join(map(str, tiles))}"
        )
    if min(width, depth, heads) < 1 or width % heads or ratio <= 0:
        raise ValueError(
            "a vision transformer needs a positive depth and ratio, and a width that its heads "
            f"divide; got depth {depth}, ratio {ratio}, width {width}, heads {heads}"
        )
    return VisionTransformer(shape, classes, patch, width, depth, heads, ratio, dropout)


def vit_s16(
    inputs: tuple[int, ...] = (3, 224, 224), classes: int = 1000, dropout: float = 0.0
) -> VisionTransformer:
    """Build ViT-S/16, the small transformer of DeiT: 22.1 million parameters for ImageNet.

    Width 384, 12 blocks of 6 heads, patches of 16 pixels. Reference: Touvron et al. (2021),
    Training data-efficient image transformers, Table 1, arXiv 2012.12877.
    """
    return vit(inputs, classes, 16, 384, 12, 6, 4.0, dropout)


def vit_s32(
    inputs: tuple[int, ...] = (3, 224, 224), classes: int = 1000, dropout: float = 0.0
) -> VisionTransformer:
    """Build ViT-S/32: 22.9 million parameters for ImageNet.

    Width 384, 12 blocks of 6 heads, patches of 32 pixels. Reference: Steiner et al. (2022), How to
    train your ViT?, Table 2, arXiv 2106.10270.
    """
    return vit(inputs, classes, 32, 384, 12, 6, 4.0, dropout)
