"""Lightning, Accelerate and the Trainer in DDP, Lightning in FSDP2; torchrun starts this.

Each process writes what it ended with to `LOOP-RANK.pt`.
"""

import sys
from pathlib import Path

import lightning
import torch
from accelerate import Accelerator
from lightning.pytorch.strategies import ModelParallelStrategy
from loops import BATCH, CE, Net, loader, problem
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.data import TensorDataset
from transformers import TrainingArguments

from toosure import Watch
from toosure.integrations import lightning as in_lightning
from toosure.integrations import transformers as in_transformers

EVERY = {"every": 2, "measure": ("gn_sharpness",)}


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        return CE(self(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class ShardedModule(Module):
    def configure_model(self):
        mesh = self.device_mesh["data_parallel"]
        fully_shard(self.net.layers[0], mesh=mesh)
        fully_shard(self.net, mesh=mesh)


def in_lightning_ddp(folder):
    return in_lightning_by(Module(), "ddp", folder / "lightning")


def in_lightning_fsdp2(folder):
    strategy = ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
    return in_lightning_by(ShardedModule(), strategy, folder / "lightning_fsdp2")


def in_lightning_by(module, strategy, folder):
    watch = in_lightning.WatchCallback(val=problem(41), run=folder, **EVERY)
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    options |= {"enable_model_summary": False}
    options |= {"accelerator": "cpu", "devices": 2, "strategy": strategy, "max_epochs": 2}
    trainer = lightning.Trainer(callbacks=[watch], **options)
    trainer.fit(module, loader())
    return module.net, watch.watch, trainer.global_step


def by_accelerate(folder):
    accelerator = Accelerator(cpu=True)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    model, optimizer, batches = accelerator.prepare(net, optimizer, loader())
    with Watch(
        *(accelerator.unwrap_model(model), None, batches, problem(41), folder / "accelerate"),
        processes="all",
        **EVERY,
    ) as watch:
        for _ in range(2):
            for x, y in batches:
                optimizer.zero_grad()
                accelerator.backward(CE(model(x), y))
                optimizer.step()
                watch.step()
    return net, watch, watch.steps


def in_the_trainer(folder):
    net = Net()
    watch = in_transformers.WatchCallback(val=problem(41), run=folder / "trainer", **EVERY)
    arguments = TrainingArguments(
        str(folder / "checkpoints"),
        num_train_epochs=2,
        per_device_train_batch_size=BATCH,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
    )
    examples = [{"x": x, "labels": y} for x, y in TensorDataset(*problem())]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    trainer = in_transformers.SAMTrainer(
        net,
        arguments,
        train_dataset=examples,
        optimizers=(optimizer, None),
        callbacks=[watch],
    )
    trainer.train()
    return net, watch.watch, trainer.state.global_step


LOOPS = {
    "lightning": in_lightning_ddp,
    "trainer": in_the_trainer,
    "accelerate": by_accelerate,
    "lightning_fsdp2": in_lightning_fsdp2,
}


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


if __name__ == "__main__":
    torch.set_num_threads(1)
    out = Path(sys.argv[1])
    for name, train in LOOPS.items():
        net, watch, steps = train(out)
        outcome = {
            "weights": {key: whole(tensor) for key, tensor in net.state_dict().items()},
            "watches": watch is not None,
            "steps": steps,
            "backend": torch.distributed.get_backend(),
            "processes": torch.distributed.get_world_size(),
        }
        torch.save(outcome, out / f"{name}-{torch.distributed.get_rank()}.pt")
    torch.distributed.barrier()

    from toosure.processes.group import end

    end(0)
