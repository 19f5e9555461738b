"""A training step as a CUDA graph: torch's BatchNorm and ReLU, and the fused kernels.

    python benchmarks/fused_norms.py
    python benchmarks/fused_norms.py --no-search

Both ways in turn in one process; medians of rounds. What cuDNN's search for the fastest
convolutions gives is the difference of the two calls: a process keeps the first kernel that it
finds for a shape, searched or not.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from toosure.models import resnet18, resnet20, wrn
from toosure.models.norm_relu import fused_norms
from toosure.train.build import lay_channels_last

CASES: dict[str, tuple[Callable[[], nn.Module], int, torch.dtype | None]] = {
    "ResNet-18, batch 256, bf16": (resnet18, 256, torch.bfloat16),
    "ResNet-20, batch 128, bf16": (resnet20, 128, torch.bfloat16),
    "ResNet-20, batch 128, float32": (resnet20, 128, None),
    "WRN-16-4, batch 256, bf16": (lambda: wrn(depth=16, width=4), 256, torch.bfloat16),
}


@dataclass
class RecordedStep:
    """A CUDA graph and the tensors that it reads, which nothing else may take the place of."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[object, ...]

    def milliseconds(self, replays: int) -> float:
        """Return the time of a replay, the mean of several."""
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(replays):
            self.graph.replay()
        torch.cuda.synchronize()
        return 1000 * (time.perf_counter() - began) / replays


def recorded_step(
    make: Callable[[], nn.Module], batch: int, dtype: torch.dtype | None, fused: bool
) -> RecordedStep:
    """Record forward, backward and the step of SGD with momentum."""
    torch.manual_seed(0)
    model = make().cuda().train()
    lay_channels_last(model)
    rate = torch.tensor(0.1, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), rate, 0.9, weight_decay=5e-4, fused=True)
    x = torch.randn(batch, 3, 32, 32, device="cuda")
    labels = torch.randint(10, (batch,), device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype, enabled=dtype is not None, cache_enabled=False):
            loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()

    graph = torch.cuda.CUDAGraph()
    with fused_norms() if fused else nullcontext():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            step()
    return RecordedStep(graph, (model, optimizer, x, labels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--replays", type=int, default=40)
    parser.add_argument("--no-search", action="store_true", help="take cuDNN's first choice")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("fused norms are for a GPU, and there is none here")
        return

    torch.backends.cudnn.benchmark = not options.no_search
    searched = "not searched" if options.no_search else "searched"
    name = torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}, cuDNN's kernels {searched}\n")
    print("| network | torch's layers, ms | fused, ms | ratio | smallest, largest | rounds |")
    print("|---|---|---|---|---|---|")
    for name, (make, batch, dtype) in CASES.items():
        steps = [recorded_step(make, batch, dtype, fused) for fused in (False, True)]
        for step in steps:
            step.milliseconds(options.replays)  # warm

        times = [[s.milliseconds(options.replays) for s in steps] for _ in range(options.rounds)]
        ratios = [plain / fused for plain, fused in times]
        plain, fused = (statistics.median(each) for each in zip(*times, strict=True))
        print(
            f"| {name} | {plain:.2f} | {fused:.2f} | {statistics.median(ratios):.2f} | "
            f"{min(ratios):.2f}, {max(ratios):.2f} | {options.rounds} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
