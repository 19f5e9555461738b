"""What the callbacks cost: a framework's training with the watch over the same without it.

    OMP_NUM_THREADS=1 PYTHONPATH=src python3 benchmarks/integrations.py [--steps 301] [--rounds 3]

An MLP 784-1024-1024-10, batches of 128, plain SGD, `measure=none`, a row every 100 steps. The
figure is CPU seconds with the callback over those without, of the steps alone (the start, with the
first row and the drawing of the examples, is apart); each round takes both in turn. Three settings:
no rows at all (what counting costs), 250 examples of each split, and 2,000 of each.
"""

import argparse
import logging
import tempfile
import time
import warnings
from statistics import median

import lightning
import torch
import transformers
from skorch import NeuralNet
from skorch.callbacks import Callback as SkorchCallback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from toosure.integrations import lightning as in_lightning
from toosure.integrations import skorch as in_skorch
from toosure.integrations import transformers as in_transformers

BATCH = 128
SETTINGS = {
    "no rows": {"every": 10**9, "examples": 250},
    "250 examples": {"every": 100, "examples": 250},
    "2000 examples": {"every": 100, "examples": 2000},
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        width = 1024
        self.layers = nn.Sequential(
            nn.Linear(784, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, 10),
        )

    def forward(self, x, labels=None):
        logits = self.layers(x)
        if labels is None:
            return logits
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class StepClock:
    """CPU seconds from the end of the first step to the end of the last."""

    def __init__(self, optimizer):
        self.ends = []
        optimizer.register_step_post_hook(lambda *_: self.ends.append(time.process_time()))

    @property
    def seconds(self):
        return self.ends[-1] - self.ends[0]


def examples(steps):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(steps * BATCH, 784, generator=generator)
    return TensorDataset(x, torch.randint(10, (len(x),), generator=generator))


def with_lightning(data, callback):
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, index):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.01)
            self.clock = StepClock(optimizer)
            return optimizer

    module = Module()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        callbacks=callback,
        enable_model_summary=False,
        **quiet,
    )
    trainer.fit(module, DataLoader(data, batch_size=BATCH))
    return module.clock.seconds


def with_trainer(data, callback):
    def collate(items):
        return {
            "x": torch.stack([x for x, _ in items]),
            "labels": torch.stack([y for _, y in items]),
        }

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    clock = StepClock(optimizer)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder,
            num_train_epochs=1,
            per_device_train_batch_size=BATCH,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            remove_unused_columns=False,
        )
        transformers.Trainer(
            net,
            arguments,
            data_collator=collate,
            train_dataset=data,
            optimizers=(optimizer, None),
            callbacks=callback,
        ).train()
    return clock.seconds


def with_skorch(data, callback):
    class Clock(SkorchCallback):
        def on_train_begin(self, net, X=None, y=None, **given):
            self.clock = StepClock(net.optimizer_)

    clock = Clock()
    net = NeuralNet(
        Net,
        criterion=nn.CrossEntropyLoss,
        lr=0.01,
        batch_size=BATCH,
        max_epochs=1,
        train_split=None,
        verbose=0,
        callbacks=[*callback, clock],
    )
    net.fit(*data.tensors)
    return clock.clock.seconds


WAYS = {
    "Lightning": (with_lightning, in_lightning.WatchCallback),
    "Trainer": (with_trainer, in_transformers.WatchCallback),
    "skorch": (with_skorch, in_skorch.WatchCallback),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=301)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    transformers.trainer_callback.PrinterCallback.on_log = lambda *a, **k: None  # it prints
    torch.set_num_threads(1)
    data = examples(args.steps)
    val = data.tensors[0][:2000], data.tensors[1][:2000]

    print("| loop | ms a step | " + " | ".join(SETTINGS) + " |\n|---|---|" + "---|" * len(SETTINGS))
    for name, (train, callback) in WAYS.items():
        bare, ratios = [], {setting: [] for setting in SETTINGS}
        for _ in range(args.rounds):
            bare.append(train(data, []))
            for setting, options in SETTINGS.items():
                with tempfile.TemporaryDirectory() as folder:
                    watch = callback(val=val, run=folder, measure="none", **options)
                    ratios[setting].append(train(data, [watch]) / bare[-1])
        cells = [f"{100 * (median(r) - 1):+.1f} %" for r in ratios.values()]
        milliseconds = 1000 * median(bare) / (args.steps - 1)
        print(f"| {name} | {milliseconds:.1f} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
