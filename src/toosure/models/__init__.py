"""The small networks of the papers; each takes `inputs`, one example's shape, and `classes`."""

from toosure.models.mlp import MLP, mlp
from toosure.models.resnet import ResNet, load_published, resnet20, resnet56, resnet110

__all__ = ["MLP", "ResNet", "load_published", "mlp", "resnet20", "resnet56", "resnet110"]
