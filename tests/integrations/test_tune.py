"""A study over words: what it asks, what it remembers, what it prunes, and its command."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from toosure.cli import app
from toosure.cli.tune import table_of
from toosure.config import RunConfig
from toosure.integrations.optuna import Goal, Study, ended_trials
from toosure.integrations.search_space import SearchSpace
from toosure.integrations.tune import TrialJobs, tune
from toosure.runs import Run, RunWriter
from toosure.sweep.pool import with_workers
from toosure.train import ProgressListener, Runtime
from toosure.train.checkpoint import checkpoints
from waiting import wait_until

pytest.importorskip("optuna")

SMALL = {"data": "digits:train=40,val=40,test=20", "steps": 6, "every": 2, "measure": []}
CPU = Runtime("cpu", threads=1)


def space(**settings):
    return SearchSpace.of(**{**SMALL, "optimizer": "sgd:lr=0.01..1~log", **settings})


def ended(folder, config, status="complete", **numbers):
    """Write the folder of a run that has ended with these numbers."""
    with RunWriter(folder / config.name, json.loads(config.to_json())) as writer:
        writer.append({"step": config.steps, **numbers})
        writer.set_status(status, config.steps)
    return Run(folder / config.name)


# -- the space ------------------------------------------------------------------------------------


def test_a_space_of_words_and_numbers():
    searched = space(
        optimizer=["sgd:lr=0.1|0.2", "sam:rho=0.02..0.5~log", "sgd:lr=0.5"],
        model="mlp:width=8..16",
        batch="16|full",
        clip="0.1..5~log",
        objective=["none", "margin_tail"],
    )
    assert searched.names == [
        *("optimizer", "sgd.lr", "sam.rho", "mlp.width", "batch", "clip", "objective"),
    ]
    config = searched.config(lambda name, domain: domain.examples[0])
    assert (config.optimizer, config.batch, config.clip) == ("sgd:lr=0.1", 16, 0.1)
    assert config.objective is None and config.steps == 6
    config = searched.config(lambda name, domain: domain.examples[-1])
    assert (config.optimizer, config.batch, config.clip) == ("sgd:lr=0.5", None, 5)
    assert config.model == "mlp:width=16" and config.objective == "margin_tail"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"optimizer": "sgd:lr=0.1"}, "nothing to search"),
        ({"optimiser": "sgd:lr=0.1..1"}, "did you mean 'optimizer'"),
        ({"optimizer": "sgd:lr=1..0.1"}, "must rise"),
        ({"batch": "0.5..8"}, "batch: a range reads"),
        ({"batch": "16|many"}, "batch: must be int"),
        ({"batch": "0|16"}, "batch must be at least 1"),
        ({"steps": "10..20~log~2"}, "steps: a range reads"),
    ],
)
def test_spaces_that_cannot_be(settings, said):
    with pytest.raises(ValueError, match=said):
        SearchSpace.of(**{**SMALL, **settings})


def test_goals():
    assert [Goal.of(name).direction for name in ("accuracy", "nll", "train/loss")] == [
        *("maximize", "minimize", "minimize"),
    ]
    assert Goal.of("smece").key == "val/smece" and Goal.of("nll").value({"val/nll": None}) is None
    for name, said in (("nlll", "cannot be a goal"), ("confidence", "cannot be a goal")):
        with pytest.raises(ValueError, match=said):
            Goal.of(name)
    with pytest.raises(ValueError, match="not measured on test data"):
        Goal.of("test/nll")


@pytest.mark.parametrize(
    ("goals", "said"),
    [
        ([], "needs a goal"),
        (["nll", "val/nll"], "must differ"),
        (["nll", "train/gn_sharpness"], "only with --measure gn_sharpness"),
    ],
)
def test_goals_that_cannot_be(tmp_path, goals, said):
    with pytest.raises(ValueError, match=said):
        Study(space(), goals, tmp_path)


# -- the study, without training ------------------------------------------------------------------


def test_the_front_of_two_goals_is_optunas(tmp_path):
    study = Study(space(), ["accuracy", "nll"], tmp_path)
    points = [(0.9, 0.5), (0.8, 0.3), (0.8, 0.4), (0.95, 0.9)]
    for accuracy, nll in points:
        number, config = study.ask()
        run = ended(tmp_path, config, **{"val/accuracy": accuracy, "val/nll": nll})
        study.tell(number, run)
    number, config = study.ask()
    study.tell(number, ended(tmp_path, config, "diverged"))
    number, config = study.ask()
    study.tell(number, ended(tmp_path, config, **{"val/accuracy": 1.0, "val/nll": None}))

    result = study.result()
    assert sorted(trial.values for trial in result.best) == sorted([points[i] for i in (0, 1, 3)])
    assert [trial.state for trial in result.trials] == ["complete"] * 4 + ["fail"] * 2
    assert "diverged" in result.trials[4].message and "no val/nll" in result.trials[5].message
    assert not result.stopped and ended_trials(tmp_path) == 6
    rates = [float(re.search("lr=(.*)", t.config.optimizer)[1]) for t in result.trials]
    assert all(0.01 <= rate <= 1 for rate in rates) and len(set(rates)) == 6
    assert table_of(result).row_count == 3

    # The report shows the same front: trial 3 is the most accurate.
    from toosure.page.report import report

    page = report(tmp_path)
    front = page[page.index('id="pareto"') :].split("</section>")[0]
    body = front[front.index("<tbody>") :]
    shown = re.findall(r'data-value="([\d.]+)">', body)
    assert shown == ["95.0", "0.9", "90.0", "0.5", "80.0", "0.3"]


def test_one_goal_prunes_what_falls_behind(tmp_path):
    study = Study(space(steps=100), ["nll"], tmp_path)
    for value in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6):
        number, config = study.ask()
        for step in (0, 50, 100):
            row = {"step": step, "val/nll": value}
            assert not study.should_prune(number, config, row) or value > 0.5
        study.tell(number, ended(tmp_path, config, **{"val/nll": value}))

    number, config = study.ask()
    bad = {"val/nll": 9.0}
    assert not study.should_prune(number, config, {"step": 10, **bad})  # too early
    assert not study.should_prune(number, config, {"step": 40, "val/nll": None})
    assert study.should_prune(number, config, {"step": 50, **bad})
    assert not study.should_prune(number, config, {"step": 50, **bad})  # said already
    assert not study.should_prune(number, config, {"step": 100, **bad})  # it is over
    study.tell(number, ended(tmp_path, config, "stopped", **bad))
    result = study.result()
    assert result.trials[-1].state == "pruned" and result.trials[-1].values == ()
    assert [trial.values for trial in result.best] == [(0.1,)]

    assert not Study(space(steps=100), ["nll"], tmp_path, prune=False).prunes
    assert not Study(space(), ["nll", "accuracy"], tmp_path / "two").prunes


def test_a_folder_holds_one_study(tmp_path):
    Study(space(), ["nll"], tmp_path)
    Study(space(), ["nll"], tmp_path)
    with pytest.raises(ValueError, match=r"another study .its goals differ"):
        Study(space(), ["accuracy"], tmp_path)
    with pytest.raises(ValueError, match=r"another study .its settings differ"):
        Study(space(data="digits:train=41,val=40,test=20"), ["nll"], tmp_path)


def test_without_optuna(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ValueError, match=r"pip install 'toosure\[optuna\]'"):
        Study(space(), ["nll"], tmp_path)


# -- with training --------------------------------------------------------------------------------


class Pruning(Study):
    """A study that prunes its third trial, which would otherwise take for ever, at step 2."""

    def ask(self):
        number, config = super().ask()
        if number == 2:
            config = RunConfig.of({**json.loads(config.to_json()), "steps": 10**7})
            self.asked[number].set_user_attr("config", json.loads(config.to_json()))
        return number, config

    def should_prune(self, number, config, row):
        return number == 2 and row["step"] >= 2


class Endings(ProgressListener):
    def __init__(self):
        self.endings = []

    def end(self, path, outcome):
        self.endings.append(outcome["status"])


def test_interrupted_trials_go_on_and_pruned_runs_stop_alone(tmp_path):
    """One worker: a trial of an earlier process, one that is pruned, and the next one."""
    asked = space()
    before = Study(asked, ["nll"], tmp_path)
    number, config = before.ask()
    before.study.ask()  # killed while Optuna chose: it has no run, and does not count
    del before

    study = Pruning(asked, ["nll"], tmp_path)
    listener = Endings()
    jobs = TrialJobs(study, trials=3, at_once=1, listener=listener)
    assert [(job.number, job.config) for job in jobs.waiting] == [(number, config)]
    with_workers(jobs, tmp_path, CPU, 1)

    result = study.result()
    assert [trial.state for trial in result.trials] == ["complete", "pruned", "complete"]
    assert listener.endings == ["complete", "pruned", "complete"] and not result.stopped
    for trial in result.trials:
        run = Run(tmp_path / trial.config.name)
        if trial.state == "pruned":
            assert run.status == "stopped" and run.last["step"] < 10**7 and checkpoints(run.path)
        else:
            assert trial.values == (run.last["val/nll"],) and run.last["step"] == 6

    assert len(tune(asked, ["nll"], 3, tmp_path, CPU).trials) == 3  # nothing is left to do


def command(folder, *words, data=SMALL["data"]):
    line = [*("tune", "--device", "cpu", "--threads", "1", "--data", data)]
    line += ["--optimizer", "sgd:lr=0.01..1~log", "--every", "2", "--out", str(folder), *words]
    return line


def test_command(tmp_path):
    done = CliRunner().invoke(
        app, command(tmp_path, "--steps", "4", "--trials", "2", "--goal", "accuracy", "smece")
    )
    assert done.exit_code == 0, done.output
    assert "[2 of 2 done, 0 running]" in done.stdout and "2 trials: 2 complete" in done.stdout
    assert "Pareto front" in done.stdout and "smECE" in done.stdout
    assert "--optimizer sgd:lr=" in done.stdout
    assert json.loads((tmp_path / "tuning.json").read_text())["goals"] == [
        *("val/accuracy", "val/smece"),
    ]

    for words, said in (
        (("--steps", "5"), "holds another study"),
        (("--goal", "speed"), "cannot be a goal"),
        (("--steps", "4", "--trials", "0"), "at least 1"),
        (("--batch", "9..3"), "must rise"),
        (("--cpus-per-run", "2"), "only with --on"),
        (("--model", "mlp:width=-4..8"), "model mlp:width=-4: an mlp needs"),
    ):
        done = CliRunner().invoke(app, command(tmp_path, *words))
        assert done.exit_code == 2 and said in done.stderr, words


def test_command_where_all_trials_fail(tmp_path):
    done = CliRunner().invoke(
        app, command(tmp_path, "--steps", "2", "--trials", "1", data="digits:train=40,val=0")
    )
    assert done.exit_code == 1
    assert "1 trials: 1 failed" in done.stdout and "val/accuracy" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_study_is_finished_by_the_same_command(tmp_path, signal_number):
    line = [sys.executable, "-m", "toosure", *command(tmp_path, "--steps", "400")]
    line += ["--trials", "4", "--workers", "2"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=os.environ)
    wait_until(lambda: ended_trials(tmp_path) >= 1, process, "the first trial")
    process.send_signal(signal_number)
    process.communicate()
    assert process.returncode == (130 if signal_number == signal.SIGINT else -signal.SIGKILL)

    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert "4 trials: 4 complete" in done.stdout
    study = Study(
        SearchSpace.of(**json.loads((tmp_path / "tuning.json").read_text())["settings"]),
        ["accuracy", "nll"],
        tmp_path,
    )
    for trial in study.result().trials:
        run = Run(tmp_path / trial.config.name)
        assert trial.values == (run.last["val/accuracy"], run.last["val/nll"])


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_trials_on_ray_are_pruned_too(tmp_path, ray_token):
    pytest.importorskip("ray")
    from toosure.sweep import Cluster
    from toosure.sweep.driver import on_cluster

    study = Pruning(space(), ["nll"], tmp_path.absolute())
    jobs = TrialJobs(study, trials=3, at_once=2, listener=ProgressListener())
    on_cluster(jobs, study.out, CPU, Cluster("ray"))
    assert [trial.state for trial in study.result().trials] == ["complete", "complete", "pruned"]
