"""Features of the meta examples that the network saw last, so that few are passed each step."""

import torch
from torch import Tensor, nn

from toosure.eval_mode import evaluating
from toosure.objectives.network import features_and_logits

CHUNK = 256  # examples that pass the network together


class StoredFeatures(nn.Module):
    """Hold features and labels of the last `size` meta examples; new ones push the oldest out.

    A batch of 512 then costs a pass of 64: the oldest features are 8 steps old.

    >>> stored = StoredFeatures(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))
    >>> stored.push(torch.ones(1, 2), torch.tensor([3]))
    >>> stored.features.sum(1), stored.labels
    (tensor([0., 0., 0., 2.]), tensor([0, 0, 0, 3]))
    """

    features: Tensor  # (size, D)
    labels: Tensor  # (size,)

    def __init__(self, features: Tensor, labels: Tensor) -> None:
        super().__init__()
        self.register_buffer("features", features.clone())
        self.register_buffer("labels", labels.clone())

    @torch.no_grad()
    def push(self, features: Tensor, labels: Tensor) -> None:
        """Take new examples, in place, so that a CUDA graph can record it."""
        n = len(labels)
        self.features.copy_(torch.cat([self.features[n:], features.to(self.features)]))
        self.labels.copy_(torch.cat([self.labels[n:], labels]))


@torch.no_grad()
def stored_features(model: nn.Module, x: Tensor, labels: Tensor) -> StoredFeatures:
    """Pass examples through the network, in parts, and store their features."""
    with evaluating(model):
        parts = [features_and_logits(model, part)[0] for part in x.split(CHUNK)]
    return StoredFeatures(torch.cat(parts), labels)
