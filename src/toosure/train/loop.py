"""The training loop: build what a config names, go on where the folder stopped, step, watch."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toosure.config import RunConfig
from toosure.data import Dataset
from toosure.processes import ALONE, Processes, join
from toosure.runs import Run, RunWriter
from toosure.runs.environment import environment
from toosure.train.batches import Batches
from toosure.train.bystander import closed_run, give_up, in_a_line, open_run, told_checkpoint
from toosure.train.checkpoint import (
    random_state,
    save_checkpoint,
    set_random_state,
)
from toosure.train.graph import GraphStep
from toosure.train.interrupt import Stop, interruptible
from toosure.train.loading import in_float64, load_data
from toosure.train.means import Means
from toosure.train.pace import Pace
from toosure.train.parts import in_memory, model_of, network_of, objective_of, optimizer_of
from toosure.train.show import Show
from toosure.train.sources import changes, sources
from toosure.train.steps import Step, load_optimizer, set_rates
from toosure.watch import Watch
from toosure.watch.measurer import predictor_of
from toosure.watch.sink import device_name
from toosure.watch.split import logits_of

CHECKED = 64  # losses kept on the device before the host looks at them


def train(
    config: RunConfig,
    out: str | Path = "runs",
    means: Means | None = None,
    show: Show | None = None,
    data: Dataset | None = None,
) -> Run:
    """Carry a run out in its folder below `out`, or finish one that was interrupted.

    A run that is complete or has diverged is returned as it is. Killed at any moment, it goes on
    from its last checkpoint to the same numbers, bit for bit on a CPU. Ctrl-C writes a checkpoint
    and ends as "stopped". `data`, if given, is what `config.data` names, loaded already. Started
    by torchrun, the processes share each batch and the run is that of one: docs/scale.md.

    >>> import tempfile
    >>> run = train(RunConfig(data="digits:train=100", steps=2, every=1), tempfile.mkdtemp())
    >>> run.status, [row["step"] for row in run.rows]
    ('complete', [0, 1, 2])
    """
    means = means or Means()
    device = means.torch_device
    processes = join(device)
    show = (show if processes.first else None) or Show()
    with open_run(config, Path(out), processes) as writer:
        for change in changes(config, writer.path):
            show.say(change)
        if not writer.finished:
            devices = [device] if device.type == "cuda" else []
            with means.threading(), torch.random.fork_rng(devices), interruptible() as stop:
                work = None
                try:
                    work = Work(config, means, writer, show, data, processes)
                    work.go(stop)
                except Exception as error:
                    with suppress(Exception):  # rows that were left for later
                        if work is not None:
                            work.watch.flush()
                    with suppress(ValueError):  # a full disk cannot take this either
                        done = work.done if work else 0
                        writer.set_status("failed", done, in_a_line(error))
                    give_up(error, processes)
                finally:
                    if work is not None:
                        work.batches.close()
                        work.watch.maker.close()
        run = closed_run(writer, processes)
        show.end(writer.path, run.outcome)
    return run


class Work:
    """Everything a run moves: model, objective, optimizer, batches, watch."""

    def __init__(
        self,
        config: RunConfig,
        means: Means,
        writer: RunWriter,
        show: Show,
        data: Dataset | None,
        processes: Processes = ALONE,
    ) -> None:
        self.config, self.means, self.writer, self.show = config, means, writer, show
        self.processes = processes
        device = means.torch_device
        self.data = load_data(config, means) if data is None else data
        if config.precision == "float64":
            self.data = in_float64(self.data)
        self.model = model_of(config, self.data, device)
        self.network = network_of(self.model, means, processes)
        self.criterion = config.word("loss").build().to(device)
        self.objective = objective_of(config, self.criterion, device)
        if hasattr(self.objective, "setup"):
            self.data = self.objective.setup(self.model, in_memory(config, self.data)) or self.data
        if config.precision == "float64" and hasattr(self.objective, "double"):
            self.objective.double()
        self.optimizer = optimizer_of(
            config, self.model, self.objective, self.criterion, self.data, processes
        )
        self.rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.schedule = config.word("schedule").build()
        self.batches = Batches(self.data, config.batch, config.seed, self.processes)
        self.step = self.make_step()
        self.losses, self.unread = torch.zeros(CHECKED, device=device), 0
        self.done = 0  # steps taken
        self.diverged_at: int | None = None
        self.watch = self.resume()

    def make_step(self) -> Step | GraphStep:
        network: Any = torch.compile(self.model) if self.means.compile else self.network
        step = Step(
            network, self.objective, self.optimizer, self.config.precision, self.config.clip,
            self.processes,
        )  # fmt: skip
        if not self.means.graph:
            return step
        varies = self.config.schedule != "constant"
        return GraphStep(step, varies, fixed=self.batches.full and not self.data.augment)

    # -- the loop ---------------------------------------------------------------------------

    def go(self, stop: Stop) -> None:
        """Step and watch until the end, divergence, or a wish to stop."""
        watch = self.watch
        self.pace = Pace(self.processes, self.means.checkpoint, self.done)
        while self.done < self.config.steps and not self.halted(stop):
            lr = self.set_rate(self.done)
            loss = self.step(self.batches.draw(self.done), lr)
            self.note(loss)
            if self.batches.ends_epoch(self.done) and hasattr(self.objective, "epoch_end"):
                self.objective.epoch_end(self.network)
            self.done += 1
            watch.step(lr=lr, epoch=self.done / self.batches.an_epoch)
        self.end()

    def halted(self, stop: Stop) -> bool:
        """Agree with the other processes whether to go on; write a checkpoint where it is due."""
        pace = self.pace
        if pace.agree(self.done, self.diverged(), stop.asked):
            self.watch.diverged = pace.diverged
            stop.asked = stop.asked or pace.stopping
            if pace.overdue and not pace.stopping and not self.diverged(True):
                self.save()
                pace.saved()
        return self.watch.diverged or pace.stopping

    def set_rate(self, step: int) -> float:
        """Set the learning rate of a step, and return that of the first group."""
        share = self.schedule(step, self.config.steps)
        set_rates(self.optimizer, self.rates, share)
        return self.rates[0] * share

    def note(self, loss: Tensor) -> None:
        """Keep the loss on the device: reading it every step would make the host wait."""
        self.losses[self.unread] = loss
        self.unread += 1

    def diverged(self, now: bool = False) -> bool:
        """Whether a loss was not finite; looked at when the store is full, or `now`."""
        if now:
            self.watch.flush()  # a row that was left for later may say so
        if self.unread == CHECKED or (self.unread and (now or self.watch.diverged)):
            bad = (~torch.isfinite(self.losses[: self.unread])).nonzero()
            if len(bad):
                self.watch.diverged = True
                self.diverged_at = self.done - self.unread + int(bad[0])
            self.unread = 0
            self.show.tick(self.done)
        return self.watch.diverged

    def end(self) -> None:
        """Write the last measurement, checkpoint and status."""
        whole = self.done == self.config.steps
        if whole and not self.diverged(True):
            last = self.schedule(self.done - 1, self.config.steps) * self.rates[0]
            self.watch.finish(lr=last, epoch=self.done / self.batches.an_epoch)
        if self.diverged(True):  # the last step may be the one that went wrong
            self.watch.finish()
            step = self.done if self.diverged_at is None else self.diverged_at
            message = f"the loss or the outputs are not finite at step {step}; try a smaller lr"
            self.writer.set_status("diverged", step, message)
        elif whole:
            self.save()
            self.write_predictions()
            self.writer.set_status("complete", self.done)
        elif self.pace.stopping:
            self.save()
            message = "repeat the command to go on from here"
            self.writer.set_status("stopped", self.done, message)

    def write_predictions(self) -> None:
        """Keep the final logits of the held-out splits, for `toosure evaluate --split val`."""
        arrays: dict[str, Any] = {}
        splits = {"val": self.data.val, "test": self.data.test, "shift": self.data.shifted()}
        for name, split in splits.items():
            if split is not None and len(split):
                logits = logits_of(predictor_of(self.network, self.objective), split.x)
                arrays[f"{name}_logits"] = logits.cpu().numpy()
                arrays[f"{name}_labels"] = split.y.cpu().numpy()
        if arrays:
            self.writer.write_file("predictions.npz", lambda file: np.savez(file, **arrays))

    # -- there and back ---------------------------------------------------------------------

    def resume(self) -> Watch:
        """Make the watch, with everything as the last readable checkpoint has it."""
        state, said = told_checkpoint(self.writer.path, self.processes)
        if state is None:
            self.writer.cut_back(-1)
        else:
            self.load_state_dict(state)
            self.show.say(f"{said}resumed at step {self.done}")
        self.writer.write_environment(self.describe())
        self.writer.set_status("running", self.done)
        self.show.begin(self.config, self.writer.path, self.done)
        config = self.config
        watch = Watch(
            self.model, self.criterion, self.data.train, self.data.val, self.writer,
            config.budget, config.measure, every=config.every, at=config.at, eps=config.eps,
            resume=state and state["watch"], start={"lr": self.set_rate(0), "epoch": 0.0},
            test=self.data.test, objective=self.objective, notify=self.show.row,
            defer=self.means.graph, replay=self.means.graph, processes=self.processes,
            batch=self.batches.count,
        )  # fmt: skip
        if state is not None:
            set_random_state(state["random"], self.means.torch_device)  # after all that drew
        return watch

    def describe(self) -> dict[str, Any]:
        means: dict[str, Any] = {n: getattr(self.means, n) for n in ("compile", "graph")}
        name = device_name(self.means.torch_device)
        if self.processes.count > 1:
            means["processes"] = self.processes.count
        if own := sources(self.config):
            means["sources"] = own
        return environment(name, threads=torch.get_num_threads(), **means)

    def save(self) -> None:
        """Write a checkpoint of this step, in the first process."""
        if self.processes.first:
            save_checkpoint(self.writer, self.done, self.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes while a run goes on, as tensors and plain values."""
        tracker = getattr(self.optimizer, "tracker", None)
        return {
            "step": self.done,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "objective": states_of(self.objective),
            "scaling": self.step.state_dict(),
            "tracker": states_of(tracker),
            "random": random_state(self.means.torch_device),
            "watch": self.watch.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["step"]
        self.model.load_state_dict(state["model"])
        load_optimizer(self.optimizer, state["optimizer"])
        for thing, saved in (
            (self.objective, state["objective"]),
            (self.step, state["scaling"]),
            (getattr(self.optimizer, "tracker", None), state["tracker"]),
        ):
            if saved:
                thing.load_state_dict(saved)  # type: ignore[union-attr]


def states_of(thing: Any) -> dict[str, Any]:
    """Return the state of what keeps one."""
    return thing.state_dict() if hasattr(thing, "state_dict") else {}
