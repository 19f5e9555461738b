"""When the processes of a run agree whether to stop, and when a checkpoint is due."""

import time

from toosure.processes import Processes

BETWEEN = 0.2  # seconds between two agreements: they make hosts wait for each other
MOST = 64  # steps between two, at most


class Pace:
    """Decide alike in all processes: the clock of the first one, and anybody's wish to stop.

    The first also says how many steps there are to the next agreement, so that fast steps are not
    held up. One process alone agrees with itself after every step.
    """

    def __init__(self, processes: Processes, checkpoint: float, step: int) -> None:
        self.processes, self.checkpoint = processes, checkpoint
        self.diverged = self.stopping = self.overdue = False
        self.step = self.next = step
        self.at = time.monotonic()
        self.saved()

    def saved(self) -> None:
        """Note that a checkpoint was written just now."""
        self.last_saved = time.monotonic()

    def agree(self, step: int, diverged: bool, stop: bool) -> bool:
        """Learn what all think, where that is due, and say whether it was.

        All see a divergence at the same step, since all see the same losses: it is due at once.
        """
        if step < self.next and not diverged:
            return False
        now, first = time.monotonic(), self.processes.first
        overdue = first and step > self.step and now - self.last_saved >= self.checkpoint
        wait = self.steps_to_wait(step, now - self.at) if first else 0
        found = self.processes.largest(diverged, stop, overdue, wait)
        self.diverged, self.stopping, self.overdue = map(bool, found[:3])
        self.step, self.next, self.at = step, step + found[3], now
        return True

    def steps_to_wait(self, step: int, taken: float) -> int:
        """How many steps fit between two agreements, from how long the last ones took."""
        if self.processes.count == 1 or step == self.step or self.checkpoint < BETWEEN:
            return 1
        each = taken / (step - self.step)
        return max(1, min(MOST, int(BETWEEN / max(each, 1e-9))))
