"""Shard a network with FSDP2, train it with CSAM, watch it: torchrun --nproc-per-node=2 FILE"""

import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.fsdp import fully_shard

from toosure import Watch
from toosure.optim import CSAM
from toosure.processes import join

dist.init_process_group()  # a GPU for each process, or none
rank = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
torch.manual_seed(0)  # the same weights and batches in all processes
x, y = (torch.tensor(array, device=device) for array in load_digits(return_X_y=True))
x = x.float() / 16

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
fully_shard(model[0])  # layer by layer, then the rest
fully_shard(model)
optimizer = CSAM(model.parameters(), rho=0.05, gamma=1.0, lr=0.1, momentum=0.9)  # after sharding
criterion = optimizer.criterion(nn.CrossEntropyLoss())
data = (x[:1000], y[:1000]), (x[1000:], y[1000:])  # whole: each process measures its part
options = {"measure": "critical_sharpness", "processes": join(device), "every": 25}
with Watch(model, None, *data, "runs/fsdp2", **options) as watch:
    for _step in range(100):
        rows = torch.randint(1000, (64,))[dist.get_rank() :: dist.get_world_size()]

        def closure(rows=rows):
            loss = criterion(model(x[rows]), y[rows])
            loss.backward()
            return loss

        optimizer.step(closure)
        watch.step()
print(f"rank {dist.get_rank()}: accuracy {watch.last['val/accuracy']:.3f}\n", end="", flush=True)
