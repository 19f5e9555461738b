"""A study over words: Optuna chooses, `toosure.sweep` trains, the folder of the runs remembers.

The study is the file `study.journal` beside the run folders; `tuning.json` holds its settings.
Repeating it finishes what is missing, with trials that were interrupted first: their runs go on
from their checkpoints.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from toosure.config import RunConfig
from toosure.finite import is_finite_number
from toosure.integrations.search_space import SearchSpace
from toosure.quantities import QUANTITIES, Quantity
from toosure.runs import Run
from toosure.runs.files import write_json
from toosure.runs.json_text import read_json
from toosure.runs.row_reader import Row
from toosure.words.search import Domain, Range

NAME = "toosure"  # of the study in its file
STARTUP = 10  # trials at random before the sampler learns from them, and before any is pruned
WARMUP = 0.2  # share of a run before which it is not pruned


@dataclass(frozen=True)
class Goal:
    """A number of a run's last row to make as high or as low as can be."""

    key: str
    quantity: Quantity

    @classmethod
    def of(cls, name: str) -> "Goal":
        """Read "nll", which is of validation data, or a key of a row such as "train/loss"."""
        split, slash, key = name.rpartition("/")
        quantity = QUANTITIES.get(key)
        if quantity is None or not quantity.better:
            known = ", ".join(
                key for key, q in QUANTITIES.items() if q.better and "val" in q.splits
            )
            raise ValueError(f"{name!r} cannot be a goal: better is known of {known}")
        split = split if slash else "val"
        if split not in quantity.splits:
            raise ValueError(f"{key} is not measured on {split} data: {quantity.splits}")
        return cls(f"{split}/{key}", quantity)

    @property
    def direction(self) -> str:
        """The direction in the words of Optuna."""
        return "maximize" if self.quantity.better == "higher" else "minimize"

    def value(self, row: Row) -> float | None:
        """Return the goal's number in a row; None if it is missing or not finite."""
        value = row.get(self.key)
        return float(value) if is_finite_number(value) else None


@dataclass
class Trial:
    """One trial of a study: its number, its run, and the values of the goals, if known."""

    number: int
    state: str  # complete, pruned, fail, running
    config: RunConfig
    values: tuple[float, ...] = ()
    message: str = ""


@dataclass
class Tuning:
    """The result of a study: its goals, all trials, and the best of them.

    With two goals and more, `best` are the trials that no other beats in all of them; with one,
    the best one.
    """

    goals: list[Goal]
    trials: list[Trial] = field(default_factory=list)
    best: list[Trial] = field(default_factory=list)
    stopped: bool = False


class Study:
    """A study in the folder of its runs: it hands out configs, and records results."""

    def __init__(
        self, space: SearchSpace, goals: Sequence[str], out: Path, seed: int = 0, prune: bool = True
    ) -> None:
        self.optuna = import_optuna()
        self.space = space
        self.goals = [Goal.of(name) for name in goals]
        check_goals(self.goals, space)
        self.out = out
        out.mkdir(parents=True, exist_ok=True)
        self._claim()

        journal = self.optuna.storages.journal.JournalFileBackend(str(out / "study.journal"))
        storage = self.optuna.storages.JournalStorage(journal)
        self.study = self.optuna.create_study(
            storage=storage,
            study_name=NAME,
            load_if_exists=True,
            directions=[goal.direction for goal in self.goals],
        )
        before = len(self.study.get_trials(deepcopy=False))
        self.study.sampler = self.optuna.samplers.TPESampler(
            seed=seed + before, n_startup_trials=STARTUP, constant_liar=True
        )
        self.study.pruner = self.optuna.pruners.MedianPruner(STARTUP // 2)
        self.prunes = prune and len(self.goals) == 1
        self.asked: dict[int, Any] = {}  # trials under way, by number
        self.reported: dict[int, int] = {}  # the last step that Optuna knows of each

    def _claim(self) -> None:
        """Note what is asked; a folder that holds another study is refused."""
        asked = {
            "goals": [goal.key for goal in self.goals],
            "settings": json.loads(json.dumps(dict(self.space.settings), default=str)),
        }

        file = self.out / "tuning.json"
        old = read_json(file)
        if old and old != asked:
            differ = [key for key in asked if old.get(key) != asked[key]]
            raise ValueError(
                f"{self.out} holds another study (its {' and '.join(differ)} differ): name another "
                "folder with --out"
            )
        if not old:
            write_json(file, asked)

    # -- trials ---------------------------------------------------------------------------------

    def count(self) -> int:
        """Return how many trials there are, those under way too.

        One that was killed while Optuna chose has no run, and does not count.
        """
        return len(decided(self.study))

    def interrupted(self) -> list[tuple[int, RunConfig]]:
        """Return the trials that were begun and have no end, each with its run."""
        states = self.optuna.trial.TrialState
        begun = self.study.get_trials(deepcopy=False, states=(states.RUNNING,))
        trials = []
        for frozen in begun:
            if "config" not in frozen.user_attrs:  # killed before it was decided on
                self.study.tell(frozen.number, state=states.FAIL)
                continue
            self.asked[frozen.number] = self.optuna.trial.Trial(self.study, frozen._trial_id)
            self.reported[frozen.number] = max(frozen.intermediate_values, default=-1)
            trials.append((frozen.number, RunConfig.of(frozen.user_attrs["config"])))
        return trials

    def ask(self) -> tuple[int, RunConfig]:
        """Let Optuna choose a run."""
        trial = self.study.ask()

        def choose(name: str, domain: Domain) -> str:
            return suggested(trial, name, domain)

        config = self.space.config(choose)
        trial.set_user_attr("config", json.loads(config.to_json()))
        trial.set_user_attr("run", config.name)
        self.asked[trial.number] = trial
        return trial.number, config

    def should_prune(self, number: int, config: RunConfig, row: Row) -> bool:
        """Report a row of a run under way; return whether it falls behind the others."""
        value = self.goals[0].value(row)
        step = int(row["step"])
        if not self.prunes or value is None or step <= self.reported.get(number, -1):
            return False
        self.asked[number].report(value, step)
        self.reported[number] = step
        if not WARMUP * config.steps <= step < config.steps:
            return False
        return bool(self.asked[number].should_prune())

    def tell(self, number: int, run: Run | None, failure: str = "") -> None:
        """Record the goals in the last row of a trial's run, or why there are none."""
        states = self.optuna.trial.TrialState
        trial = self.asked.pop(number)
        complete = run is not None and run.status == "complete"
        values = [goal.value(run.last) if run is not None else None for goal in self.goals]

        if complete and None not in values:
            self.study.tell(trial, values)
            return
        if run is not None and run.status == "stopped" and not failure:
            trial.set_user_attr("message", f"pruned at step {run.last.get('step')}")
            self.study.tell(trial, state=states.PRUNED)
            return
        if complete:
            failure = f"the last row has no {self.goals[values.index(None)].key}"
        trial.set_user_attr("message", failure or (run.ending if run is not None else "failed"))
        self.study.tell(trial, state=states.FAIL)

    def result(self) -> Tuning:
        """Return all trials and the best; stopped, if some have no end."""
        trials = {frozen.number: as_trial(frozen) for frozen in decided(self.study)}
        complete = any(trial.state == "complete" for trial in trials.values())
        best = self.study.best_trials if complete else []
        chosen = [trials[t.number] for t in best]
        return Tuning(self.goals, list(trials.values()), chosen, stopped=bool(self.asked))


def ended_trials(out: Path) -> int:
    """Return how many trials of the study in a folder have ended; 0 if there is none."""
    file = out / "study.journal"
    if not file.is_file():
        return 0
    optuna = import_optuna()
    journal = optuna.storages.journal.JournalFileBackend(str(file))
    study = optuna.load_study(study_name=NAME, storage=optuna.storages.JournalStorage(journal))
    return sum(trial.state.is_finished() for trial in decided(study))


def decided(study: Any) -> list[Any]:
    """Return the trials that have a config."""
    return [trial for trial in study.get_trials(deepcopy=False) if "config" in trial.user_attrs]


def suggested(trial: Any, name: str, domain: Domain) -> str:
    """Let a trial of Optuna choose; return the choice in the spelling of words."""
    if not isinstance(domain, Range):
        return str(trial.suggest_categorical(name, list(domain.values)))
    if domain.whole:
        step = int(domain.step or 1)
        return domain.spell(
            trial.suggest_int(name, int(domain.low), int(domain.high), step=step, log=domain.log)
        )
    return domain.spell(
        trial.suggest_float(name, domain.low, domain.high, step=domain.step, log=domain.log)
    )


def as_trial(frozen: Any) -> Trial:
    """Read one of Optuna's own trials."""
    state = frozen.state.name.lower()
    return Trial(
        frozen.number,
        state,
        RunConfig.of(frozen.user_attrs["config"]),
        tuple(frozen.values) if state == "complete" else (),  # a pruned one has its last report
        frozen.user_attrs.get("message", ""),
    )


def check_goals(goals: Sequence[Goal], space: SearchSpace) -> None:
    """Raise if a goal would not be in the rows."""
    if not goals:
        raise ValueError("a study needs a goal, such as nll, or two, such as accuracy and nll")
    if len({goal.key for goal in goals}) < len(goals):
        raise ValueError("the goals must differ")
    measured = space.config(lambda name, domain: domain.examples[0]).measure
    for goal in goals:
        word = goal.quantity.measure
        if word and word not in measured:
            raise ValueError(f"the goal {goal.key} is measured only with --measure {word}")


def import_optuna() -> Any:
    """Return the package; raise with a hint how to install it."""
    try:
        optuna = import_module("optuna")
    except ImportError as error:
        raise ValueError("a study needs Optuna: pip install 'toosure[optuna]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
