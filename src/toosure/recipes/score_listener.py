"""Save the scores of each run as soon as it ends, since a rented machine may vanish at any time."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toosure.config import RunConfig
from toosure.recipes.benchmark.score_files import ScoreFiles
from toosure.recipes.recipe import Saves
from toosure.runs import Run
from toosure.runs.row_reader import Row
from toosure.train import ProgressListener


class ScoreListener(ProgressListener):
    """Pass everything on to another listener, and score runs that end.

    Scoring takes seconds. A `thread` does it while other workers go on. Without it, scoring delays
    the next run of this process, and so does not slow it down.
    """

    def __init__(
        self,
        inner: ProgressListener,
        files: ScoreFiles,
        saves: Mapping[str, Saves],
        thread: ThreadPoolExecutor | None,
    ) -> None:
        self.inner = inner
        self.files = files
        self.saves = saves  # by run name
        self.thread = thread

    def begin(self, config: RunConfig, path: Path, step: int) -> None:
        self.inner.begin(config, path, step)

    def measuring(self, step: int) -> None:
        self.inner.measuring(step)

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
        if outcome["status"] != "complete" or self.saves.get(path.name, "nothing") == "nothing":
            return
        if self.thread is None:
            self.score(path)
        else:
            self.thread.submit(self.score, path)

    def for_concurrent_run(self) -> "ScoreListener":
        return ScoreListener(self.inner.for_concurrent_run(), self.files, self.saves, self.thread)

    def score(self, path: Path) -> None:
        """Score a run. If that fails, say so; the tables will try again and raise the error."""
        try:
            self.files.add([Run(path)], save_examples=self.saves[path.name] == "examples")
        except Exception as error:
            self.message(f"{path.name} is not scored yet: {error}")


@contextmanager
def scoring(
    listener: ProgressListener, folder: str, saves: Mapping[str, Saves], beside: bool = True
) -> Iterator[ProgressListener]:
    """Yield a listener that saves scores in a folder; without a folder, the listener itself.

    At the end, wait until the last run is scored. After an error or a second Ctrl-C, wait only for
    the scoring under way. `beside` means that other processes train the runs.
    """
    if not folder:
        yield listener
        return

    thread = ThreadPoolExecutor(1) if beside else None
    try:
        yield ScoreListener(listener, ScoreFiles(Path(folder)), saves, thread)
    except BaseException:
        if thread is not None:
            thread.shutdown(cancel_futures=True)
        raise
    if thread is not None:
        thread.shutdown()
