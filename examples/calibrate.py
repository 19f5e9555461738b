"""Train a small network on noisy labels, calibrate it on digits it never saw, see that it helps."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from toosure import calibrate
from toosure.data import digits
from toosure.metrics import ece, nll


def main() -> None:
    """Fit a calibrator from a loader, wrap the model with it, and judge both on other rows."""
    data = digits(train=300, val=500, noise=0.1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.Tanh(), nn.Linear(100, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(200):
        loss = nn.functional.cross_entropy(model(data.train.x), data.train.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    loader = DataLoader(TensorDataset(data.val.x, data.val.y), batch_size=100)
    calibrated = calibrate(model, loader)  # the best of all; or calibrate(..., "temperature")
    print(calibrated.calibrator)
    with torch.no_grad():
        for name, each in (("before", model), ("after", calibrated)):
            pair = each(data.test.x), data.test.y
            print(f"{name}: ECE {ece(*pair):.4f}, NLL {nll(*pair):.4f}")


if __name__ == "__main__":
    main()
