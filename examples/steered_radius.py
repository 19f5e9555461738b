"""Let SAM find its radius: two lines of a training loop, on examples that are not trained on."""

import torch
from sklearn.datasets import load_digits
from torch import nn

from toosure.control import RadiusControl
from toosure.optim import SAM

torch.manual_seed(0)
digits = load_digits()
inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
noisy = torch.rand(len(labels)) < 0.2
labels[noisy] = torch.randint(0, 10, (int(noisy.sum()),))
train, held_out = torch.randperm(len(labels)).split([1297, 500])

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
criterion = nn.CrossEntropyLoss()
optimizer = SAM(model.parameters(), rho=0.05, lr=0.3, momentum=0.9)
control = RadiusControl(  # 1
    model, optimizer, (inputs[held_out], labels[held_out]), steps=400, batch=64
)

for _epoch in range(20):
    for batch in train[torch.randperm(len(train))].split(64)[:20]:

        def closure(batch=batch):
            loss = criterion(model(inputs[batch]), labels[batch])
            loss.backward()
            return loss

        optimizer.step(closure)
        control.step()  # 2

seen = control.report()
print(f"rho {seen['control/rho']:.3f}, log T {seen['control/log_temperature']:+.2f}")
