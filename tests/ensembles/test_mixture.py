"""What a mixture reports of its members."""

import torch
from torch import nn

from toosure.ensembles import BatchEnsemble
from toosure.ensembles.mixture import MAX_REPORTED


def test_members_are_compared_on_examples_of_every_class():
    """A validation set of folders lies sorted by class."""
    labels = torch.arange(4 * MAX_REPORTED) // MAX_REPORTED
    x = torch.zeros(len(labels), 2)
    objective = BatchEnsemble(members=2)
    objective.setup(nn.Sequential(nn.Linear(2, 4)), ((x, labels), (x, labels)))

    watched_x, watched = objective.watched
    assert len(watched_x) == len(watched) == MAX_REPORTED
    assert watched.bincount().min() > 0.2 * MAX_REPORTED
