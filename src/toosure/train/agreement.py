"""Agreement of the processes of a run: whether to stop, and when a checkpoint is due."""

import time

from toosure.processes import Processes

INTERVAL = 0.2  # seconds between two agreements: each makes the hosts wait for one another
MAX_STEPS = 64  # the most steps between two agreements


class Agreement:
    """Take the same decision in all processes: by the first one's clock, and any request to stop.

    The first process also sets the number of steps until the next agreement, so that fast steps are
    not held up. A single process decides after every step.
    """

    def __init__(self, processes: Processes, checkpoint_interval: float, step: int) -> None:
        self.processes = processes
        self.checkpoint_interval = checkpoint_interval

        # What was agreed last.
        self.diverged = False
        self.stopping = False
        self.checkpoint_due = False

        self.last_step = step
        self.next_step = step
        self.last_time = time.monotonic()
        self.checkpoint_written()

    def checkpoint_written(self) -> None:
        """Note that a checkpoint was written just now."""
        self.checkpoint_time = time.monotonic()

    def update(self, step: int, diverged: bool, stop: bool) -> bool:
        """Exchange what the processes know if that is due, and return whether it was.

        All processes see a divergence at the same step, because all see the same losses. So it is
        exchanged at once.
        """
        if step < self.next_step and not diverged:
            return False

        now = time.monotonic()
        checkpoint_due, wait = False, 0
        if self.processes.first:
            overdue = now - self.checkpoint_time >= self.checkpoint_interval
            checkpoint_due = step > self.last_step and overdue
            wait = self.steps_to_wait(step, now - self.last_time)

        *flags, wait = self.processes.largest(diverged, stop, checkpoint_due, wait)
        self.diverged, self.stopping, self.checkpoint_due = map(bool, flags)
        self.last_step = step
        self.next_step = step + wait
        self.last_time = now
        return True

    def steps_to_wait(self, step: int, seconds: float) -> int:
        """Return how many steps fit into the interval, if they take as long as the last ones."""
        frequent_checkpoints = self.checkpoint_interval < INTERVAL
        if self.processes.count == 1 or step == self.last_step or frequent_checkpoints:
            return 1
        seconds_per_step = seconds / (step - self.last_step)
        return max(1, min(MAX_STEPS, int(INTERVAL / max(seconds_per_step, 1e-9))))
