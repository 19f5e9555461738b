"""Accuracy and calibration of ResNet-20 on CIFAR-10 by SGD, SAM and CSAM, same epochs.

    PYTHONPATH=src python3 benchmarks/sam_learning.py --data DATA --device cuda

DATA holds the official CIFAR-10 folder or archive. 45,000 training, 5,000 validation and 10,000
test images; batch 128, crop and flip on the device, SGD with momentum .9, cosine from lr .1,
weight decay 5e-4. The step is one CUDA graph, replayed. The last weights are judged on the test
set; TCE is the ECE (15 bins) after a temperature fitted by likelihood on the validation set.
SAM and CSAM take two passes per step: the same epochs are twice the work. With --epochs for SGD
doubled (--equal-work) all do the same work.
"""

import argparse
import math
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from toosure.data import cifar10
from toosure.metrics import accuracy, ece, nll
from toosure.models import resnet20
from toosure.optim import CSAM, SAM

METHODS = {"SGD": (None, {}), "SAM": (SAM, {"rho": 0.05}), "CSAM": (CSAM, {"rho": 0.05})}


class Trainer:
    """A network, its optimizer and static tensors for a captured step."""

    def __init__(self, method, gamma, lr, device, batch):
        self.device, self.graph = device, None
        self.model = resnet20().to(device)
        if device == "cuda":
            self.model = self.model.to(memory_format=torch.channels_last)
        self.lr = torch.tensor(lr, device=device)  # a tensor, so that the graph reads it

        kind, settings = METHODS[method]
        sgd = {"lr": self.lr, "momentum": 0.9, "weight_decay": 5e-4, "fused": device == "cuda"}
        self.criterion: nn.Module = nn.CrossEntropyLoss()
        if kind is None:
            self.optimizer = torch.optim.SGD(self.model.parameters(), **sgd)
        else:
            settings = {**settings, "gamma": gamma} if kind is CSAM else settings
            self.optimizer = kind(self.model.parameters(), model=self.model, **settings, **sgd)
        if kind is CSAM:
            self.criterion = self.optimizer.criterion(self.criterion)

        self.inputs = torch.zeros(batch, 3, 32, 32, device=device)
        self.labels = torch.zeros(batch, dtype=torch.long, device=device)

    def closure(self):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(self.inputs), self.labels)
        loss.backward()
        return loss

    def step(self, inputs, labels):
        self.inputs.copy_(inputs)
        self.labels.copy_(labels)
        if self.device == "cpu":
            self.optimizer.step(self.closure)
            return
        if self.graph is None:
            self.capture()
        self.graph.replay()

    def capture(self):
        """Warm up on a side stream, put everything back, record one step."""
        model = {k: v.clone() for k, v in self.model.state_dict().items()}

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.optimizer.step(self.closure)
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad(set_to_none=True)

        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.optimizer.step(self.closure)

        self.model.load_state_dict(model)
        for state in self.optimizer.state.values():
            state["momentum_buffer"].zero_()


def train(method, data, epochs, seed, arguments):
    torch.manual_seed(seed)
    generator = torch.Generator(arguments.device).manual_seed(seed)
    trainer = Trainer(method, arguments.gamma, arguments.lr, arguments.device, arguments.batch)
    inputs, labels = data.train.x, data.train.y
    steps = len(labels) // arguments.batch

    for epoch in range(epochs):
        order = torch.randperm(len(labels), generator=generator, device=arguments.device)
        shuffled = data.augmented(inputs[order], generator)
        for step in range(steps):
            part = slice(step * arguments.batch, (step + 1) * arguments.batch)
            done = (epoch * steps + step) / (epochs * steps)
            trainer.lr.fill_(arguments.lr * (1 + math.cos(math.pi * done)) / 2)
            trainer.step(shuffled[part], labels[order[part]])
    return trainer.model.eval()


@torch.no_grad()
def predict(model, inputs):
    return torch.cat([model(part) for part in inputs.split(1000)]).double().cpu()


def temperature(logits, labels):
    """The temperature of least cross-entropy, by golden section on its logarithm."""
    low, high, ratio = math.log(0.2), math.log(10.0), (math.sqrt(5) - 1) / 2
    while high - low > 1e-6:
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        at = [F.cross_entropy(logits / math.exp(t), labels) for t in (left, right)]
        low, high = (low, right) if at[0] < at[1] else (left, high)
    return math.exp((low + high) / 2)


def judge(model, data):
    val, test = predict(model, data.val.x), predict(model, data.test.x)
    t = temperature(val, data.val.y.cpu())
    y = data.test.y.cpu()
    row = [accuracy(test, y), ece(test, y), ece(test / t, y), nll(test, y)]
    return [float(value) for value in row] + [t]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--gamma", type=float, default=1.0)
    parser.add_argument("--train", type=int, default=None, help="fewer training images, for a try")
    parser.add_argument("--equal-work", action="store_true", help="SGD takes twice the epochs")
    arguments = parser.parse_args()

    data = cifar10(arguments.data, train=arguments.train, augment=True).to(arguments.device)
    print("| method | epochs | n | test accuracy % | ECE % | TCE % | NLL | T | s a run |")
    print("|---|---|---|---|---|---|---|---|---|")

    for method in METHODS:
        epochs = arguments.epochs * (2 if arguments.equal_work and method == "SGD" else 1)
        rows, start = [], time.perf_counter()
        for seed in range(arguments.seeds):
            rows.append(judge(train(method, data, epochs, seed, arguments), data))

        spent = (time.perf_counter() - start) / arguments.seeds
        columns = list(zip(*rows, strict=True))
        columns[:3] = [[100 * v for v in column] for column in columns[:3]]
        cells = [spread(column) for column in columns]
        print(
            f"| {method} | {epochs} | {len(rows)} | {' | '.join(cells)} | {spent:.0f} |", flush=True
        )


def spread(values):
    mean = statistics.mean(values)
    return f"{mean:.3f}" + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
