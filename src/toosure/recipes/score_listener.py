"""Keep the scores of each run of a recipe as soon as it ends: a rented machine may go any time."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toosure.config import RunConfig
from toosure.recipes.benchmark.score_files import ScoreFiles
from toosure.recipes.recipe import Kept
from toosure.runs import Run
from toosure.runs.row_reader import Row
from toosure.train import ProgressListener


class ScoreListener(ProgressListener):
    """Pass everything on to another listener, and score the runs that end.

    Scoring takes seconds. With a `thread` it is done beside: no worker waits for it. Without, the
    next run of this process waits, so that its time is its own.
    """

    def __init__(
        self,
        inner: ProgressListener,
        files: ScoreFiles,
        kept: Mapping[str, Kept],
        thread: ThreadPoolExecutor | None,
    ) -> None:
        self.inner = inner
        self.files = files
        self.kept = kept  # by run name
        self.thread = thread

    def begin(self, config: RunConfig, path: Path, step: int) -> None:
        self.inner.begin(config, path, step)

    def row(self, row: Row) -> None:
        self.inner.row(row)

    def tick(self, step: int) -> None:
        self.inner.tick(step)

    def message(self, message: str) -> None:
        self.inner.message(message)

    def fail(self, config: RunConfig, message: str) -> None:
        self.inner.fail(config, message)

    def end(self, path: Path, outcome: dict[str, Any]) -> None:
        self.inner.end(path, outcome)
        if outcome["status"] != "complete" or self.kept.get(path.name, "nothing") == "nothing":
            return
        if self.thread is None:
            self.score(path)
        else:
            self.thread.submit(self.score, path)

    def for_concurrent_run(self) -> "ScoreListener":
        return ScoreListener(self.inner.for_concurrent_run(), self.files, self.kept, self.thread)

    def score(self, path: Path) -> None:
        """Score a run; where that fails, say so: the tables will try again, and stop there."""
        try:
            self.files.add([Run(path)], keep_examples=self.kept[path.name] == "examples")
        except Exception as error:
            self.message(f"{path.name} is not scored yet: {error}")


@contextmanager
def scoring(
    listener: ProgressListener, folder: str, kept: Mapping[str, Kept], beside: bool = True
) -> Iterator[ProgressListener]:
    """Give a listener that keeps scores in a folder; without a folder, the listener itself.

    At the end, wait until the last run is scored; after an error or a second Ctrl-C, for none but
    the one under way. `beside` says that runs are trained in other processes.
    """
    if not folder:
        yield listener
        return

    thread = ThreadPoolExecutor(1) if beside else None
    try:
        yield ScoreListener(listener, ScoreFiles(Path(folder)), kept, thread)
    except BaseException:
        if thread is not None:
            thread.shutdown(cancel_futures=True)
        raise
    if thread is not None:
        thread.shutdown()
