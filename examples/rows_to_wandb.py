"""Rows and reliability diagrams in W&B; offline here: `wandb sync` sends them later."""

import torch
import wandb
from sklearn.datasets import load_digits
from torch import nn

from toosure import Watch
from toosure.integrations.wandb import rows_to

torch.manual_seed(0)
digits = load_digits()
inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
train, val = (inputs[:200], labels[:200]), (inputs[200:700], labels[200:700])

model = nn.Sequential(nn.Linear(64, 100), nn.Tanh(), nn.Linear(100, 10))
loss = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

run = wandb.init(project="toosure", mode="offline", config={"lr": 0.5})
rows = rows_to(run, run="runs/rows_to_wandb")
with rows, Watch(model, loss, train, val, run="runs/rows_to_wandb", notify=rows) as watch:
    for _step in range(100):
        optimizer.zero_grad()
        loss(model(train[0]), train[1]).backward()
        optimizer.step()
        watch.step(lr=0.5)

run.finish()
print(f"ECE {watch.last['val/ece']:.3f}; the rows are in runs/rows_to_wandb and in wandb/")
