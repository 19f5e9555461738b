"""Options of the commands that train: on what, where data lie, on which device or cluster."""

from pathlib import Path
from typing import Annotated

import typer

from toosure.cli.option_values import Texts

Data = Annotated[Texts, typer.Option(help="Data set: digits, cifar10:train=5000, ... [digits]")]
Objective = Annotated[
    Texts, typer.Option(help="What wraps the criterion: mixup, calmo, ... [none]")
]
Schedule = Annotated[
    Texts, typer.Option(help="Of the learning rate: step, cosine:warmup=100. [constant]")
]

DataRoot = Annotated[Path, typer.Option(help="Where data sets lie.")]
Download = Annotated[bool, typer.Option(help="Fetch data from the official place.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1. [a GPU where there is one]")]
Graph = Annotated[bool, typer.Option(help="Replay each step as a CUDA graph.")]
Threads = Annotated[int | None, typer.Option(help="Threads of a run on the CPU.")]

ClusterAddress = Annotated[
    str | None, typer.Option("--on", help="A Ray cluster: ray, host:port, ray://host:port")
]
CpusPerRun = Annotated[float | None, typer.Option(help="CPUs a run takes, with --on. [1]")]
GpusPerRun = Annotated[float | None, typer.Option(help="GPUs a run takes, with --on. [0]")]
