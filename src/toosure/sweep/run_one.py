"""Train one run of a sweep; cache its data for the next run, and turn errors into an outcome."""

import traceback
from dataclasses import dataclass
from pathlib import Path

from toosure.config import RunConfig
from toosure.data import Dataset
from toosure.processes import join
from toosure.runs.files import is_locked
from toosure.runs.storage import local_folder
from toosure.runs.write import RunError
from toosure.sweep.jobs import RunOutcome, is_finished
from toosure.train import ProgressListener, Runtime, train
from toosure.train.loading import load_data
from toosure.train.rank_zero import raise_or_exit


@dataclass
class DataCache:
    """Keep the data of the last run, because the next one usually needs the same."""

    runtime: Runtime
    word: str = ""
    data: Dataset | None = None

    def load(self, config: RunConfig, out: Path) -> Dataset | None:
        """Return the data of a run, or None for a run that has ended and needs none."""
        if is_finished(out / config.name):
            return None
        if config.data == self.word:
            return self.data

        # Free the old data before the new are loaded.
        self.data = None
        self.word = ""
        try:
            self.data = load_data(config, self.runtime)
            self.word = config.data
        except Exception as error:  # other processes may have loaded theirs and be waiting
            raise_or_exit(error, join(self.runtime.torch_device))
        return self.data


def run_one(
    config: RunConfig,
    out: Path,
    runtime: Runtime,
    listener: ProgressListener,
    cache: DataCache,
) -> RunOutcome:
    """Train a run; an error ends this run, not the sweep."""
    try:
        run = train(config, out, runtime, listener, cache.load(config, out))
        return RunOutcome("ended", run.status)
    except RunError as error:
        # Several processes would wait for different times, so only a single one may try again.
        alone = join(runtime.torch_device).count == 1
        busy = alone and is_locked(local_folder(out / config.name))
        return RunOutcome("busy" if busy else "failed", str(error))
    except (ValueError, RuntimeError) as error:  # torch's errors, too: shapes, memory of the GPU
        return RunOutcome("failed", str(error))
    except Exception as error:  # a mistake in the user's code: print the traceback
        listener.message(traceback.format_exc().rstrip())
        return RunOutcome("failed", f"{type(error).__name__}: {error}")
