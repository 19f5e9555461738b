"""Rows as history of a W&B run, and reliability diagrams as its images."""

from pathlib import Path
from typing import TYPE_CHECKING

from toosure.figures import Bins
from toosure.integrations.diagram_image import diagram_image
from toosure.integrations.row_sender import PREFIX, Names, RowSender

if TYPE_CHECKING:
    import wandb

REFUSED = r"[^\w/-]"  # W&B takes others, but cannot filter or sort by such names


def rows_to(
    target: "wandb.Run",
    run: str | Path | None = None,
    *,
    prefix: str = PREFIX,
    strict: bool = False,
) -> "WandbSender":
    """Return a sender of rows to a W&B run (`wandb.init(...)`), for `Watch(notify=...)`.

    The x-axis of all of them is "toosure/step". W&B's own step, which must never go back, is left
    to you: a row with an earlier step is not dropped. `run` is the run folder, for diagrams.

        with wandb.rows_to(wandb_run, run="runs/mine") as rows:
            with Watch(..., run="runs/mine", notify=rows) as watch:
    """
    return WandbSender(target, run, prefix, strict)


class WandbSender(RowSender):
    """Send rows to a W&B run."""

    def __init__(
        self, target: "wandb.Run", run: str | Path | None, prefix: str, strict: bool
    ) -> None:
        super().__init__(run, prefix, strict)
        self.target = target
        self.names = Names(REFUSED)
        self.step_name = f"{prefix}step"
        if self.active:
            target.define_metric(self.step_name)
            target.define_metric(f"{prefix}*", step_metric=self.step_name)

    def send_numbers(self, step: int, numbers: dict[str, float]) -> None:
        named = {self.prefix + self.names[key]: value for key, value in numbers.items()}
        self.target.log({self.step_name: step, **named})

    def send_diagram(self, step: int, split: str, bins: Bins) -> None:
        import wandb

        image = wandb.Image(diagram_image(bins, f"{split}, step {step}"))
        self.target.log({self.step_name: step, f"{self.prefix}{split}/reliability": image})
