"""Train with SAM in mixed precision: the closure scales its loss, the optimizer unscales."""

import torch
from torch import nn

from toosure.optim import SAM

device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.float16 if device == "cuda" else torch.bfloat16
torch.manual_seed(0)
inputs = torch.randn(512, 20, device=device)
labels = (inputs[:, :4].sum(1) > 0).long()

model = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 2)).to(device)
optimizer = SAM(
    model.parameters(), base=torch.optim.AdamW, rho=0.05, lr=1e-2, clip_norm=1.0, model=model
)
scaler = torch.amp.GradScaler(device)

for _step in range(50):

    def closure():
        with torch.autocast(device, dtype=dtype):
            loss = nn.functional.cross_entropy(model(inputs), labels)
        scaler.scale(loss).backward()
        return loss

    loss = optimizer.step(closure, scaler=scaler)  # an infinite gradient skips the step
    scaler.update()

print(f"loss {loss.item():.3f} at scale {scaler.get_scale():g}")
