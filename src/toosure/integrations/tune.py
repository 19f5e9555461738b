"""Train the trials of a study, side by side in worker processes or on Ray."""

from collections.abc import Sequence
from pathlib import Path

from toosure.config import RunConfig
from toosure.integrations.optuna import Study, Tuning
from toosure.integrations.search_space import SearchSpace
from toosure.runs import Run
from toosure.sweep.cluster import Cluster
from toosure.sweep.driver import on_cluster
from toosure.sweep.events import Event
from toosure.sweep.jobs import Job, Jobs, RunOutcome
from toosure.sweep.pool import with_workers
from toosure.sweep.sweep import PATIENCE, one_by_one
from toosure.train import ProgressListener, Runtime


def tune(
    space: SearchSpace,
    goals: Sequence[str] = ("accuracy", "nll"),
    trials: int = 20,
    out: str | Path = "runs/tune",
    runtime: Runtime | None = None,
    listener: ProgressListener | None = None,
    workers: int = 1,
    on: Cluster | str | None = None,
    seed: int = 0,
    prune: bool = True,
) -> Tuning:
    """Search a space for the runs with the best last row on validation data.

    `goals` are one or more numbers of a row. With one, trials that fall behind the median of the
    others are pruned: their runs stop with a checkpoint. With several there is no pruning, and the
    result is the Pareto front. `trials` counts those that the folder holds already, so that
    repeating the call finishes what is missing, and a larger number adds to it. `workers` trials
    go on at once, in processes of their own or, with `on`, as tasks of a Ray cluster. `seed` is
    that of the search; runs have theirs in the space.

    >>> import tempfile
    >>> space = SearchSpace.of(data="digits:train=50", optimizer="sgd:lr=0.1|0.5", steps=2)
    >>> [trial.state for trial in tune(space, trials=2, out=tempfile.mkdtemp()).trials]
    ['complete', 'complete']
    """
    if workers < 1 or trials < 1:
        raise ValueError(f"trials and workers must be at least 1; got {trials} and {workers}")
    runtime = runtime or Runtime()
    out = Path(out) if on is None else Path(out).absolute()
    study = Study(space, goals, out, seed, prune)

    jobs = TrialJobs(study, trials, workers, listener or ProgressListener())
    if on is not None:
        cluster = Cluster(on) if isinstance(on, str) else on
        on_cluster(jobs, out, runtime, cluster)
    elif workers > 1 or study.prunes:  # a run in this process could not be stopped alone
        with_workers(jobs, out, runtime, workers)
    else:
        one_by_one(jobs, out, runtime)
    return study.result()


class TrialJobs(Jobs):
    """Hand out the runs of a study: whenever one has ended, Optuna is asked for the next."""

    def __init__(self, study: Study, trials: int, at_once: int, listener: ProgressListener) -> None:
        super().__init__([], study.out, listener, PATIENCE)
        self.study = study
        self.trials = trials
        for number, config in study.interrupted():
            self.add(number, config)
        while len(self.waiting) < at_once and study.count() < trials:
            self.add(*study.ask())

    def add(self, number: int, config: RunConfig) -> None:
        """Queue a trial."""
        job = Job(number, config, self.study.out / config.name, self.listener)
        self.all.append(job)
        self.waiting.append(job)

    def receive(self, job: Job, event: Event) -> None:
        """Pass an event on, and stop a run that falls behind."""
        super().receive(job, event)
        if event["event"] == "row" and not job.stop_requested:
            job.stop_requested = self.study.should_prune(job.number, job.config, event["row"])

    def record(self, job: Job, outcome: RunOutcome) -> None:
        """Record how a run ended, report it to the study, and ask for the next."""
        # A pruned run must not count as a run whose worker died.
        if job.stop_requested and outcome.kind == "died":
            outcome = RunOutcome("ended", "stopped")
        if job.stop_requested and job.end_event is not None:
            job.end_event = as_pruned(job.end_event)
        super().record(job, outcome)

        interrupted = outcome == RunOutcome("ended", "stopped") and not job.stop_requested
        if job in self.waiting or interrupted:
            return  # it is tried again, now or when the study is repeated
        run = Run(job.folder) if outcome.kind == "ended" else None
        self.study.tell(job.number, run, self.failures.get(job.config.name, ""))
        if self.study.count() < self.trials:
            self.add(*self.study.ask())


def as_pruned(event: Event) -> Event:
    """Return the end of a run that was stopped as listeners should show it."""
    outcome = event["outcome"]
    if outcome["status"] != "stopped":
        return event
    return {**event, "outcome": {**outcome, "status": "pruned", "message": ""}}
