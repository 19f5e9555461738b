"""MC-Dropout of a network that calls one Dropout layer in several places."""

import torch
from torch import nn

from toosure.ensembles import MCDropout

X = torch.ones(500, 4)
Y = torch.arange(500) % 3


class OneDropout(nn.Module):
    """A network with a single Dropout layer behind two layers of different width."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(8, 3)
        self.seen = []

    def forward(self, x):
        first = self.dropout(x)
        second = self.dropout(x)
        wide = self.dropout(torch.cat([x, x], 1))
        self.seen = [first, second, wide]
        return self.head(torch.cat([first, second], 1) + wide)


def test_each_call_of_a_layer_has_a_mask_of_its_own():
    model = OneDropout()
    objective = MCDropout(samples=1)
    objective.setup(model, (X, Y))
    model.eval()

    for _ in range(2):  # every pass begins with the first mask
        objective.predict(model, X)
        masks = [each > 0 for each in model.seen]
        first, second, left, right = *masks[:2], masks[2][:, :4], masks[2][:, 4:]
        pairs = [(first, second), (first, left), (second, right), (left, right)]
        for one, other in pairs:
            assert abs(float((one == other).double().mean()) - 0.5) < 0.05
        assert abs(float(torch.cat(masks, 1).double().mean()) - 0.5) < 0.05
        assert model.seen[0].unique().tolist() == [0.0, 2.0]


def test_masks_are_the_same_in_both_passes_of_a_step():
    model = OneDropout().train()
    objective = MCDropout()
    objective.setup(model, (X, Y))
    prepared = objective.prepare(model, (X, Y, torch.arange(500)))

    objective(model, prepared)
    before = [each.clone() for each in model.seen]
    model(X)  # of a watch: it draws masks of its own
    objective(model, prepared)
    assert all(map(torch.equal, before, model.seen))
