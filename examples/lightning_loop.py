"""Watch a Lightning module, trained by SAM: the callback is all that is added."""

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from toosure.integrations.lightning import WatchCallback
from toosure.optim import SAM


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 100), nn.Tanh(), nn.Linear(100, 10))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self):
        return SAM(self.parameters(), rho=0.1, lr=0.5)


torch.manual_seed(0)
digits = load_digits()
x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
train = DataLoader(TensorDataset(x[:1000], y[:1000]), batch_size=50, shuffle=True)

watch = WatchCallback(val=(x[1000:], y[1000:]), run="runs/lightning")
options = {"logger": False, "enable_checkpointing": False, "accelerator": "cpu"}
trainer = lightning.Trainer(max_epochs=3, callbacks=[watch], **options)
trainer.fit(Digits(), train)
row = watch.watch.last
print(f"step {row['step']}: accuracy {row['val/accuracy']:.3f}, ECE {row['val/ece']:.3f}")
