"""Options of the commands that judge predictions: the split, bins, intervals, where results go."""

from pathlib import Path
from typing import Annotated

import typer

Split = Annotated[
    str | None, typer.Option(help="Read the arrays test_logits, test_labels for 'test'.")
]
Bins = Annotated[int, typer.Option(min=1, help="Bins of the binned metrics.")]
Level = Annotated[float, typer.Option(help="Level of the intervals.")]
BootstrapSeed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the bootstrap.")]
Page = Annotated[Path | None, typer.Option(help="Write a page with figures here.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
