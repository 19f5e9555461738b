"""Notice runs on a cluster that have gone silent, before Ray notices a lost node."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

SILENCE = 10.0  # seconds; a run posts twice a second, even without news


@dataclass
class SilenceWatch:
    """Note when each run was last heard of, and find those that are silent.

    >>> now = 0.0
    >>> watch = SilenceWatch(clock=lambda: now)
    >>> watch.hear(7)
    >>> now = 11.0
    >>> watch.newly_silent(), watch.newly_silent()  # said once
    ([7], [])
    """

    clock: Callable[[], float] = time.monotonic
    last: dict[int, float] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)

    def hear(self, run: int) -> None:
        """Note that a run was heard of."""
        self.last[run] = self.clock()
        self.silent.discard(run)

    def forget(self, run: int) -> None:
        """Stop watching a run that has ended."""
        self.last.pop(run, None)
        self.silent.discard(run)

    def newly_silent(self) -> list[int]:
        """Return the runs that have been silent for `SILENCE` seconds, each once per silence."""
        before = self.clock() - SILENCE
        new = [run for run, at in self.last.items() if at < before and run not in self.silent]
        self.silent.update(new)
        return new
