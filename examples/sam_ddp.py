"""Train with SAM on several processes: torchrun --nproc-per-node=2 examples/sam_ddp.py"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from toosure.optim import SAM


def main(rank, world, device):
    torch.manual_seed(0)
    inputs = torch.randn(512, 20, device=device)
    labels = (inputs[:, :4].sum(1) > 0).long()
    mine = slice(rank, None, world)  # every process sees its own part of each batch
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
    net = DistributedDataParallel(model)
    optimizer = SAM(model.parameters(), rho=0.05, lr=0.1, momentum=0.9)
    for _step in range(50):

        def closure():  # DDP averages the gradients in each pass, so all perturb alike
            loss = nn.functional.cross_entropy(net(inputs[mine]), labels[mine])
            loss.backward()
            return loss

        optimizer.step(closure)
    weights = nn.utils.parameters_to_vector(model.parameters()).detach()
    others = [torch.empty_like(weights) for _ in range(world)]
    dist.all_gather(others, weights)
    print(f"rank {rank}: weights agree: {all(map(weights.equal, others))}", flush=True)
    dist.barrier()


rank, world = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
gpus = torch.cuda.device_count() >= world  # NCCL wants a GPU for each process
dist.init_process_group("nccl" if gpus else "gloo")
main(rank, world, f"cuda:{rank}" if gpus else "cpu")
dist.destroy_process_group()
