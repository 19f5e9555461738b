"""Watch a DDP training with all its processes: torchrun --nproc-per-node=2 examples/ddp_watch.py"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from toosure.data import digits
from toosure.models import mlp
from toosure.watch import Watch

run = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/ddp_watch")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
gpus = torch.cuda.device_count() >= world  # NCCL wants a GPU for each process
dist.init_process_group("nccl" if gpus else "gloo")
device = f"cuda:{os.environ['LOCAL_RANK']}" if gpus else "cpu"

data = digits(train=1000, val=200)
train = TensorDataset(data.train.x, data.train.y)
loader = DataLoader(train, batch_size=32, sampler=DistributedSampler(train))  # in shares
torch.manual_seed(0)
network = DistributedDataParallel(mlp((1, 8, 8), width=64).to(device))
optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)

# Every process makes the watch and measures its share of the same examples; the first one writes.
with Watch(network, None, loader, data.val, run, every=16, processes="all") as watch:
    for _epoch in range(4):
        for x, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(x.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            watch.step(lr=0.1)
    print(f"rank {rank}: val ECE {100 * watch.finish()['val/ece']:.2f} %", flush=True)
dist.destroy_process_group()
