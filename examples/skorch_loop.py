"""Watch a skorch classifier, trained by CSAM."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from skorch import NeuralNetClassifier
from torch import nn

from toosure.integrations.skorch import WatchCallback
from toosure.optim import CSAM

torch.manual_seed(0)
digits = load_digits()
x, y = (digits.data / 16).astype(np.float32), digits.target

net = NeuralNetClassifier(
    nn.Sequential(nn.Linear(64, 100), nn.Tanh(), nn.Linear(100, 10)),
    criterion=nn.CrossEntropyLoss,
    optimizer=CSAM,
    optimizer__rho=0.1,
    lr=0.5,
    batch_size=50,
    max_epochs=3,
    callbacks=[("watch", WatchCallback(run="runs/skorch"))],
)
net.fit(x, y)
row = dict(net.callbacks_)["watch"].watch.last
print(f"step {row['step']}: accuracy {row['val/accuracy']:.3f}, ECE {row['val/ece']:.3f}")
