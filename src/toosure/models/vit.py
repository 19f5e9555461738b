"""The vision transformers of Dosovitskiy et al.: ViT-S as in DeiT and timm, and a small one."""

from math import gcd, inf

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toosure.models.arguments import check_dropout, image_shape


class Attention(nn.Module):
    """Compute multi-head self-attention, softmax(Q K' / sqrt(width / heads)) V.

    It uses torch's scaled_dot_product_attention. Its fused kernels train; `toosure.curvature` asks
    for the plain kernel, which has second derivatives.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x).unflatten(2, (3, self.heads, -1))  # (N, T, 3, heads, width / heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # (N, heads, T, width / heads)
        attended = F.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.dropout(self.proj(attended.transpose(1, 2).flatten(2)))  # (N, T, width)
        return out


class FeedForward(nn.Module):
    """Apply one hidden layer with GELU to each token."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.drop1 = nn.Dropout(dropout)
        self.drop2 = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.drop1(F.gelu(self.fc1(x)))
        out: Tensor = self.drop2(self.fc2(hidden))
        return out


class TransformerBlock(nn.Module):
    """Add attention, then the feed-forward layer, each applied to the normalised tokens."""

    def __init__(self, width: int, heads: int, ratio: float, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = FeedForward(width, round(ratio * width), dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        return x


class PatchEmbed(nn.Module):
    """Map each square of pixels to a token."""

    def __init__(self, channels: int, patch: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, width, patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        tokens: Tensor = self.proj(x).flatten(2).transpose(1, 2)  # (N, T, width)
        return tokens


class VisionTransformer(nn.Module):
    """Classify from a class token after `depth` transformer blocks over it and the patches.

    Parameters have timm's names. Linear weights and positions start from a normal distribution
    truncated at +-2, with standard deviation 0.02; biases from 0; the class token with standard
    deviation 1e-6; the patch embedding with PyTorch's uniform initialisation.
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
        tokens = (rows // patch) * (columns // patch) + 1  # the patches and the class token

        self.patch_embed = PatchEmbed(channels, patch, width)
        self.cls_token = nn.Parameter(torch.empty(1, 1, width))
        self.pos_embed = nn.Parameter(torch.empty(1, tokens, width))
        self.pos_drop = nn.Dropout(dropout)
        self.blocks = nn.Sequential(
            *(TransformerBlock(width, heads, ratio, dropout) for _ in range(depth))
        )
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

        nn.init.normal_(self.cls_token, std=1e-6)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the class token of the last block, normalised."""
        patches = self.patch_embed(x)
        class_token = self.cls_token.expand(x.shape[0], -1, -1)
        tokens = torch.cat([class_token, patches], 1) + self.pos_embed
        features: Tensor = self.norm(self.blocks(self.pos_drop(tokens)))[:, 0]  # (N, width)
        return features

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))  # (N, classes)
        return logits


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

    `patch=None` cuts the image into about 8 x 8 patches: of the sides that tile the image, it takes
    the one nearest to an eighth of the shorter side (4 pixels for CIFAR and MNIST, 8 for
    Tiny-ImageNet). `ratio` is the hidden width of the feed-forward layers over `width`. `dropout`
    acts after the positions and after each dense layer but the one of queries, keys and values.
    The shape is that of Lee et al. (2021), Vision Transformer for Small-Size Datasets, arXiv
    2112.13492. Reference: Dosovitskiy et al. (2021), An Image is Worth 16x16 Words, arXiv
    2010.11929.

    >>> sum(p.numel() for p in vit().parameters())
    2697610
    """
    channels, rows, columns = image_shape(inputs, "a vision transformer")
    check_dropout(dropout)

    shorter = min(rows, columns)
    tiling = [side for side in range(1, shorter + 1) if gcd(rows, columns) % side == 0]
    if patch is None:
        patch = min(tiling, key=lambda side: abs(8 * side - shorter))
    if patch < 1:
        raise ValueError(f"patch is the side of a patch in pixels, at least 1; got {patch}")
    if patch not in tiling:
        raise ValueError(
            f"patches must tile the image: {rows} x {columns} pixels do not divide by "
            f"{patch}, but by {', '.join(map(str, tiling))}"
        )

    wide_enough = 0.5 < ratio * width < inf  # a feed-forward layer of one unit or more
    if min(width, depth, heads) < 1 or width % heads or not wide_enough:
        raise ValueError(
            "a vision transformer needs a positive depth and ratio, and a width that its heads "
            f"divide; got depth {depth}, ratio {ratio}, width {width}, heads {heads}"
        )
    shape = (channels, rows, columns)
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
