"""Rows as scalars of TensorBoard, and reliability diagrams as images."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from toosure.figures import Bins
from toosure.integrations.diagram_image import diagram_image
from toosure.integrations.row_sender import PREFIX, RowSender

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def rows_to(
    target: "SummaryWriter | str | Path",
    run: str | Path | None = None,
    *,
    prefix: str | None = None,
    strict: bool = False,
) -> "TensorBoardSender":
    """Return a sender of rows to TensorBoard, for `Watch(notify=...)`.

    `target` is a folder for these rows alone, or a `SummaryWriter` of yours, whose tags stay apart
    by the prefix "toosure/". `run` is the run folder, for reliability diagrams. In a folder, rows
    from the first one sent on replace those of an earlier session, so that a resumed run has each
    step once.

        with tensorboard.rows_to("tb/mine", run="runs/mine") as rows:
            with Watch(..., run="runs/mine", notify=rows) as watch:
    """
    return TensorBoardSender(target, run, prefix, strict)


class TensorBoardSender(RowSender):
    """Send rows to TensorBoard, which keeps 32 bits of each number."""

    def __init__(
        self,
        target: "SummaryWriter | str | Path",
        run: str | Path | None,
        prefix: str | None,
        strict: bool,
    ) -> None:
        if prefix is None:  # a folder of our own holds nothing else
            prefix = "" if isinstance(target, str | Path) else PREFIX
        super().__init__(run, prefix, strict)
        require_tensorboard()
        self.directory = target if isinstance(target, str | Path) else None
        self.writer = None if isinstance(target, str | Path) else target
        self.began: float | None = None  # the clock at the run's second 0
        self.sent: list[tuple[int, dict[str, float]]] = []  # in a folder of your own

    def send_numbers(self, step: int, numbers: dict[str, float]) -> None:
        if self.directory is None:
            self._add(step, numbers)
            return

        late = [row for row in self.sent if row[0] > step]
        if late or self.writer is None:
            self._open(step)
        self._add(step, numbers)

        # A loader of TensorBoard drops later steps when an earlier one comes: send them again.
        for later in late:
            self._add(*later)
        self.sent = sorted([*self.sent, (step, numbers)], key=lambda row: row[0])

    def _open(self, step: int) -> None:
        """Begin another file, which replaces what was written from a step on."""
        from torch.utils.tensorboard import SummaryWriter

        if self.writer is not None:
            self.writer.close()
        self.writer = SummaryWriter(str(self.directory), purge_step=step)
        self.sent_diagrams = {sent for sent in self.sent_diagrams if sent < step}

    def _add(self, step: int, numbers: dict[str, float]) -> None:
        assert self.writer is not None
        seconds = numbers.get("seconds", 0.0)
        if self.began is None:
            self.began = time.time() - seconds
        for key, value in numbers.items():
            self.writer.add_scalar(self.prefix + key, value, step, self.began + seconds)

    def send_diagram(self, step: int, split: str, bins: Bins) -> None:
        assert self.writer is not None
        image = np.asarray(diagram_image(bins, f"{split}, step {step}"))
        self.writer.add_image(f"{self.prefix}{split}/reliability", image, step, dataformats="HWC")

    def flush(self) -> None:
        if self.writer is not None:
            self.writer.flush()
            if self.directory is not None:
                self.writer.close()


def require_tensorboard() -> None:
    """Raise with a hint how to install the package, if it is missing."""
    try:
        import tensorboard  # noqa: F401
    except ImportError as error:
        raise ValueError(
            "rows for TensorBoard need its package: pip install 'toosure[tensorboard]'"
        ) from error
