"""The networks of the papers; each takes `inputs`, one example's shape, and `classes`."""

from toosure.models.densenet import DenseNet, densenet, densenet40, densenet_bc100
from toosure.models.imagenet_resnet import ImageNetResNet, resnet18, resnet50
from toosure.models.mlp import MLP, mlp
from toosure.models.pyramidnet import PyramidNet, pyramidnet, pyramidnet110
from toosure.models.resnet import ResNet, load_published, resnet20, resnet56, resnet110
from toosure.models.vit import VisionTransformer, vit, vit_s16, vit_s32
from toosure.models.wrn import WideResNet, wrn, wrn28_10

__all__ = [
    "MLP",
    "DenseNet",
    "ImageNetResNet",
    "PyramidNet",
    "ResNet",
    "VisionTransformer",
    "WideResNet",
    "densenet",
    "densenet40",
    "densenet_bc100",
    "load_published",
    "mlp",
    "pyramidnet",
    "pyramidnet110",
    "resnet18",
    "resnet20",
    "resnet50",
    "resnet56",
    "resnet110",
    "vit",
    "vit_s16",
    "vit_s32",
    "wrn",
    "wrn28_10",
]
