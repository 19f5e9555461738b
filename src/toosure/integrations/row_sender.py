"""What all trackers share: the numbers of a row, names that a tracker takes, diagrams, errors."""

import os
import re
import warnings
from pathlib import Path
from types import TracebackType
from typing import Self

from toosure.figures import Bins, bins_of
from toosure.finite import json_ready
from toosure.runs import Run
from toosure.runs.row_reader import Row

PREFIX = "toosure/"  # before each name, so that none is one of the user's own


class RowSender:
    """Send rows to a tracker: give it to `Watch(notify=...)`, or call it with rows of a run.

    With `run`, the folder of the run, reliability diagrams go along with the rows that have a
    snapshot; the last one is written when the watch ends, and sent by `close`. Under torchrun the
    process of rank 0 sends. An error of the tracker is said once and does not stop a training,
    unless `strict`: `toosure runs export` sends the rows of a run folder later.

    A tracker overrides `send_numbers` and `send_diagram`.
    """

    def __init__(
        self, run: str | Path | None = None, prefix: str = PREFIX, strict: bool = False
    ) -> None:
        self.folder = None if run is None else Path(run)
        self.prefix = prefix
        self.strict = strict
        self.active = int(os.environ.get("RANK", 0)) == 0
        self.first_step: int | None = None  # of the rows sent: earlier diagrams were sent before
        self.sent_diagrams: set[int] = set()
        self._warned = False

    def __call__(self, row: Row) -> None:
        """Send a row."""
        if not self.active:
            return
        try:
            step = int(row["step"])
            self.first_step = step if self.first_step is None else min(step, self.first_step)
            self.send_numbers(step, numbers_of(row))
            self._send_diagrams()
        except Exception as error:
            self._handle(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Send the diagrams that are left, and the rows that the tracker still buffers."""
        if not self.active:
            return
        try:
            self._send_diagrams()
            self.flush()
        except Exception as error:
            self._handle(error)

    def send_numbers(self, step: int, numbers: dict[str, float]) -> None:
        """Send the numbers of a row."""
        raise NotImplementedError

    def send_diagram(self, step: int, split: str, bins: Bins) -> None:
        """Send the reliability diagram of a split."""
        raise NotImplementedError

    def flush(self) -> None:
        """Write or send the rows that the tracker still buffers."""

    def _send_diagrams(self) -> None:
        """Send the diagrams of the snapshots that were written since the last row."""
        if self.folder is None or self.first_step is None or not self.folder.is_dir():
            return
        run = Run(self.folder)
        for step in run.snapshots:
            if step < self.first_step or step in self.sent_diagrams:
                continue
            self.sent_diagrams.add(step)
            snapshot = run.snapshot_if_whole(step)
            for split in ("val", "train"):
                if f"{split}_counts" in snapshot:
                    self.send_diagram(step, split, bins_of(snapshot, split))

    def _handle(self, error: Exception) -> None:
        """Raise an error of the tracker, or say it once and go on."""
        if self.strict:
            raise error
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"a row was not sent to {type(self).__module__.rpartition('.')[2]} ({error}): "
                "training goes on, and `toosure runs export` sends the rows of a run folder",
                stacklevel=4,
            )


def numbers_of(row: Row) -> dict[str, float]:
    """Return the finite numbers of a row, which a tracker can draw; true is 1.

    >>> numbers_of({"step": 3, "val/ece": 0.5, "diverged": True, "note": "a", "lr": float("nan")})
    {'val/ece': 0.5, 'diverged': 1.0}
    """
    values = {key: json_ready(value) for key, value in row.items() if key != "step"}
    return {key: float(value) for key, value in values.items() if isinstance(value, int | float)}


class Names:
    """Map keys of rows to names that a tracker takes; two keys never get the same name.

    `refused` matches the characters that the tracker does not take.

    >>> names = Names(r"[^\\w/. -]")
    >>> names["train/slack 4.1 (i)"], names["train/slack 4.1 i"]
    ('train/slack 4.1 i', 'train/slack 4.1 i_2')
    """

    def __init__(self, refused: str, longest: int = 200) -> None:
        self.refused = re.compile(f"(?:{refused})+")
        self.longest = longest
        self.names: dict[str, str] = {}
        self.taken: set[str] = set()

    def __getitem__(self, key: str) -> str:
        """Return the tracker's name of a key, the same each time."""
        if key not in self.names:
            parts = [self._part(part) for part in key.split("/")]
            name = "/".join(part for part in parts if part)[: self.longest] or "unnamed"
            self.names[key] = self._unused(name)
            self.taken.add(self.names[key])
        return self.names[key]

    def _part(self, text: str) -> str:
        """Replace refused characters; drop them at the ends and next to spaces."""
        replaced = self.refused.sub("_", text)
        if replaced == text:
            return text if text.strip(".") else ""
        return re.sub(r"(?<= )_+|_+(?= )|^_+|_+$", "", replaced).strip(" .")

    def _unused(self, name: str) -> str:
        number = 1
        unused = name
        while unused in self.taken:
            number += 1
            unused = f"{name}_{number}"
        return unused
