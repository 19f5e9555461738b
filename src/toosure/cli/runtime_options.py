"""Options of the commands that train: where data lie, on which device, on which cluster."""

from pathlib import Path
from typing import Annotated

import typer

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
