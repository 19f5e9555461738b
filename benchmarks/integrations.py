"""What the callbacks cost: a row of the watch, in steps of the framework's own training.

    OMP_NUM_THREADS=1 PYTHONPATH=src python3 benchmarks/integrations.py [--steps 201] [--rounds 3]

An MLP 784-1024-1024-10, batches of 128, plain SGD, `measure=none`. CPU seconds between the ends of
two steps are taken in one and the same run, every tenth with a row of the watch in it: what a row
adds, in steps, over 100 is what rows every 100 steps cost. What counting a step costs, where no row
is due, is timed apart. Of the rounds the median counts.

`--whole` compares whole runs instead, without and with the callback in turns, rows every 100 steps:
CPU seconds from the call to its return, so with all that a callback does once. Two runs of the same
kind differ by some 5 % on a machine with other work, so take 9 rounds or more.
"""

import argparse
import logging
import tempfile
import time
import warnings
from itertools import pairwise
from statistics import median

import lightning
import torch
import transformers
from skorch import NeuralNet
from skorch.callbacks import Callback as SkorchCallback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from toosure import Watch
from toosure.integrations import lightning as in_lightning
from toosure.integrations import skorch as in_skorch
from toosure.integrations import transformers as in_transformers

BATCH = 128
EVERY = 10  # steps between rows here
SETTINGS = {
    "default: 200 + 400": {},
    "250 of each": {"examples": 250},
    "2,000 of each": {"examples": 2000},
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
    """CPU seconds from the end of each step to that of the next, with a row in some.

    Its hook comes before that of the callback, so that a row belongs to the seconds after its step.
    """

    def __init__(self, optimizer):
        self.ends = []
        optimizer.register_step_post_hook(lambda *_: self.ends.append(time.process_time()))

    def row_and_step(self):
        """Return the seconds of a row and of a step: medians of those with and without a row."""
        seconds = [b - a for a, b in pairwise(self.ends)]
        with_row = [s for step, s in enumerate(seconds, start=1) if step % EVERY == 0]
        without = [s for step, s in enumerate(seconds, start=1) if step % EVERY]
        return median(with_row) - median(without), median(without)


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
    return module.clock


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
    return clock


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
    return clock.clock


WAYS = {
    "Lightning": (with_lightning, in_lightning.WatchCallback),
    "Trainer": (with_trainer, in_transformers.WatchCallback),
    "skorch": (with_skorch, in_skorch.WatchCallback),
}


def counting_seconds(data, times=2000):
    """Return the CPU seconds of a step that is only counted."""
    with Watch(Net(), None, data.tensors, measure="none", every=10**9) as watch:
        began = time.process_time()
        for _ in range(times):
            watch.step(lr=0.01)
        return (time.process_time() - began) / times


def measured(name, setting, data, val, rounds):
    """Return the median over rounds of a step's seconds, and of a row's in steps."""
    train, callback = WAYS[name]
    steps, ratios = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            options = {"val": val, "run": folder, "measure": "none", "every": EVERY}
            clock = train(data, [callback(**options, **SETTINGS[setting])])
        row, step = clock.row_and_step()
        steps.append(step)
        ratios.append(row / step)
    return median(steps), median(ratios)


def whole_runs(name, data, val, rounds):
    """Print the CPU seconds of whole runs with the callback, as shares of bare ones."""
    train, callback = WAYS[name]
    train(data, [])  # what is done once per process

    seconds = {"bare": [], "with": []}
    for number in range(2 * rounds):
        kind = ("bare", "with", "with", "bare")[number % 4]  # neither is always the first
        with tempfile.TemporaryDirectory() as folder:
            options = {"val": val, "run": folder, "measure": "none", "every": 100}
            callbacks = [callback(**options)] if kind == "with" else []
            began = time.process_time()
            train(data, callbacks)
            seconds[kind].append(time.process_time() - began)

    ratios = sorted(b / a for a, b in zip(seconds["bare"], seconds["with"], strict=True))
    ratio = median(seconds["with"]) / median(seconds["bare"])
    print(
        f"| {name} | {median(seconds['bare']):.2f} | {100 * ratio - 100:+.1f} % | "
        f"{100 * ratios[0] - 100:+.1f} to {100 * ratios[-1] - 100:+.1f} % |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=201)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loops", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--whole", action="store_true", help="compare whole runs")
    args = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    transformers.trainer_callback.PrinterCallback.on_log = lambda *a, **k: None  # it prints
    torch.set_num_threads(1)
    data = examples(args.steps)
    val = TensorDataset(*(part[:4000] for part in data.tensors))

    if args.whole:
        print("| loop | bare, CPU s | with the callback | each pair |\n|---|---|---|---|")
        for name in args.loops:
            whole_runs(name, data, val, args.rounds)
        return

    few = TensorDataset(*(part[:100] for part in data.tensors))
    print(f"a step that is only counted: {1e6 * counting_seconds(few):.1f} microseconds\n")
    print("| loop | ms a step | " + " | ".join(SETTINGS) + " |\n|---|---|" + "---|" * len(SETTINGS))
    for name in args.loops:
        found = [measured(name, setting, data, val, args.rounds) for setting in SETTINGS]
        cells = [f"{ratio:.1f} steps, {ratio:.1f} %" for _, ratio in found]  # every 100 steps
        milliseconds = 1000 * median(step for step, _ in found)
        print(f"| {name} | {milliseconds:.1f} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
