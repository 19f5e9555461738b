"""Watch a training loop of your own: three added lines, marked below."""

import torch
from sklearn.datasets import load_digits
from torch import nn

from toosure import Watch  # 1

torch.manual_seed(0)
digits = load_digits()
inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
order = torch.randperm(len(labels))
train, val = order[:200], order[200:700]

model = nn.Sequential(nn.Linear(64, 100), nn.Tanh(), nn.Linear(100, 10))
loss = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
data = (inputs[train], labels[train]), (inputs[val], labels[val])

with Watch(model, loss, *data, run="runs/own_loop") as watch:  # 2
    for _epoch in range(40):
        for batch in train[torch.randperm(len(train))].split(50):
            optimizer.zero_grad()
            loss(model(inputs[batch]), labels[batch]).backward()
            optimizer.step()
            watch.step(lr=0.5)  # 3

print(f"accuracy {watch.last['val/accuracy']:.3f}, ECE {watch.last['val/ece']:.3f}")
print(f"sharpness {watch.last['train/gn_sharpness']:.1f}; all rows: runs/own_loop/metrics.jsonl")
