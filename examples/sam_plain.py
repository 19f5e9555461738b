"""Train with CSAM: two lines change, the optimizer and the criterion."""

import torch
from sklearn.datasets import load_digits
from torch import nn

from toosure.optim import CSAM

torch.manual_seed(0)
digits = load_digits()
inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
order = torch.randperm(len(labels))
train, test = order[:1400], order[1400:]

model = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10))
optimizer = CSAM(
    model.parameters(), base=torch.optim.SGD, rho=0.05, gamma=1.0, lr=0.1, momentum=0.9
)
criterion = optimizer.criterion(nn.CrossEntropyLoss())
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10 * 14)

for _epoch in range(10):
    for batch in train[torch.randperm(len(train))].split(100):

        def closure(batch=batch):
            loss = criterion(model(inputs[batch]), labels[batch])
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        scheduler.step()

model.eval()
with torch.no_grad():
    right = model(inputs[test]).argmax(1) == labels[test]
print(f"loss {loss:.3f}, test accuracy {right.float().mean():.3f}")
