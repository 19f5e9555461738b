"""One small problem for every loop: a network, data in a fixed order, and our own loop."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from toosure import Run, Watch

CE = nn.CrossEntropyLoss()
BATCH = 8


def problem(n=64):
    torch.manual_seed(0)
    x = torch.randn(n, 6)
    return x, (x[:, :3].sum(1) > 0).long() + (x[:, 3] > 0.5).long()


class Net(nn.Module):
    """Logits as a tensor; with labels, as a Trainer calls it, a dict with the loss."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
        self.calls = 0  # forward passes in training

    def forward(self, x, labels=None):
        self.calls += self.training
        logits = self.layers(x)
        return logits if labels is None else {"loss": CE(logits, labels), "logits": logits}


def loader():
    return DataLoader(TensorDataset(*problem()), batch_size=BATCH)


def own_loop(folder, make_optimizer, epochs=2, every=3, accumulate=1):
    """Train by a loop of one's own; return the network."""
    net = Net()
    optimizer = make_optimizer(net.parameters())
    with Watch.of(net, loader(), problem(), run=folder, every=every, measure=()) as watch:
        for _ in range(epochs):
            batches = list(loader())
            for first in range(0, len(batches), accumulate):
                group = batches[first : first + accumulate]
                net.train()

                def closure(group=group):
                    optimizer.zero_grad()
                    for x, y in group:
                        (CE(net(x), y) / len(group)).backward()

                if hasattr(optimizer, "base"):
                    optimizer.step(closure)
                else:
                    closure()
                    optimizer.step()
                watch.step(lr=optimizer.param_groups[0]["lr"])
        watch.finish(lr=optimizer.param_groups[0]["lr"])
    return net


def rows_of(folder):
    """The rows of a run, without what depends on the clock."""
    return [{k: v for k, v in r.items() if "seconds" not in k} for r in Run(folder).rows]


def steps_of(folder):
    return [row["step"] for row in Run(folder).rows]


def same_weights(a, b):
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)
