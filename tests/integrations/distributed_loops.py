"""Lightning and Hugging Face's Trainer in DDP, watched by all processes; torchrun starts this.

Each process writes what it ended with to `LOOP-RANK.pt`.
"""

import sys
from pathlib import Path

import lightning
import torch
from loops import BATCH, CE, Net, loader, problem
from torch.utils.data import TensorDataset
from transformers import TrainingArguments

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


def in_lightning_ddp(folder):
    module = Module()
    watch = in_lightning.WatchCallback(val=problem(41), run=folder / "lightning", **EVERY)
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    options |= {"accelerator": "cpu", "devices": 2, "strategy": "ddp", "max_epochs": 2}
    trainer = lightning.Trainer(callbacks=[watch], **options)
    trainer.fit(module, loader())
    return module.net, watch, trainer.global_step


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
    return net, watch, trainer.state.global_step


if __name__ == "__main__":
    torch.set_num_threads(1)
    out = Path(sys.argv[1])
    for name, train in (("lightning", in_lightning_ddp), ("trainer", in_the_trainer)):
        net, watch, steps = train(out)
        outcome = {
            "weights": net.state_dict(),
            "watches": watch.watch is not None,
            "steps": steps,
            "backend": torch.distributed.get_backend(),
            "processes": torch.distributed.get_world_size(),
        }
        torch.save(outcome, out / f"{name}-{torch.distributed.get_rank()}.pt")
    torch.distributed.barrier()

    from toosure.processes.group import end

    end(0)
