"""The progress of a study: a sweep whose runs are not known in advance."""

from toosure.cli.side_by_side import RunLane, SweepBars, SweepLog

COMING = "trial "  # prefix of the name of a trial whose run is not known yet


class TrialLog(SweepLog):
    """Print when a trial begins and how it ended, and how long the study still takes."""

    def __init__(self, trials: int, steps: int) -> None:
        super().__init__([])
        self.count = trials
        self.steps_to_do = {f"{COMING}{number}": steps for number in range(trials)}

    def run_began(self, lane: RunLane) -> None:
        """A trial began: its run replaces a placeholder."""
        if lane.name not in self.steps_to_do:
            coming = [name for name in self.steps_to_do if name.startswith(COMING)]
            for name in coming[:1]:
                del self.steps_to_do[name]
            self.steps_to_do[lane.name] = lane.total
        super().run_began(lane)

    def close(self) -> None:
        """Print no table of all runs, because the command prints the best."""
        self.ended = []
        super().close()


class TrialBars(TrialLog, SweepBars):
    """Move a bar for the study and one for each trial under way, on the terminal."""
