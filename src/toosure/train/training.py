"""The state of a training run, built from a config and restored from the last checkpoint."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from toosure.config import RunConfig
from toosure.data import Dataset
from toosure.processes import ALONE, Processes
from toosure.runs import RunWriter
from toosure.runs.environment import environment
from toosure.runs.looks import append_look, write_looks
from toosure.train.averages import build_averages
from toosure.train.best import build_best
from toosure.train.build import (
    build_criterion,
    build_model,
    build_objective,
    build_optimizer,
    curvature_settings,
    load_weights,
    sam_radius,
    set_up_objective,
)
from toosure.train.checkpoint import random_states, save_checkpoint, set_random_states, state_of
from toosure.train.code_hashes import code_hashes
from toosure.train.control import build_batches, build_control, cut_control_split
from toosure.train.engine import build_engine
from toosure.train.graph import GraphStep
from toosure.train.listener import ProgressListener
from toosure.train.loading import in_float64, load_data
from toosure.train.loss_buffer import LossBuffer
from toosure.train.predictions import write_posterior, write_predictions
from toosure.train.rank_zero import broadcast_checkpoint
from toosure.train.reports import joined_reports
from toosure.train.runtime import Runtime
from toosure.train.shifts import Shifts
from toosure.train.steps import Step, load_optimizer, set_rates
from toosure.watch import Watch
from toosure.watch.measurer import predictor_of
from toosure.watch.sink import device_name


class Training:
    """Hold everything that changes during a run: model, objective, optimizer, batches, watch."""

    def __init__(
        self,
        config: RunConfig,
        runtime: Runtime,
        writer: RunWriter,
        listener: ProgressListener,
        data: Dataset | None,
        processes: Processes = ALONE,
    ) -> None:
        self.config = config
        self.runtime = runtime
        self.writer = writer
        self.listener = listener
        self.processes = processes
        self.device = runtime.torch_device

        self.data = load_data(config, runtime) if data is None else data
        if config.precision == "float64":
            self.data = in_float64(self.data)
        self.data, control_split = cut_control_split(config, self.data)

        self.model = build_model(config, self.data, self.device).train()
        self.engine = build_engine(self.model, runtime, processes)

        self.criterion = build_criterion(config, self.device)
        self.objective = build_objective(config, self.criterion, self.device)
        self.data = set_up_objective(self.objective, config, self.model, self.data)
        self.shifts = Shifts(config, self.data, runtime) if runtime.shifts else None

        self.optimizer = build_optimizer(
            config, self.model, self.objective, self.criterion, self.data, processes
        )
        self.base_rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.schedule: Callable[[int, int], float] = config.word("schedule").build()
        self.batches = build_batches(self, control_split)
        self.step = self.build_step()
        self.averages = build_averages(config, self.model, self.objective, self.data)
        self.control = build_control(self, control_split)
        self.best = build_best(config, self.data, processes)

        self.losses = LossBuffer(self.device)
        self.diverged_at: int | None = None
        self.steps_taken = 0
        self.watch = self.start_or_resume()

    def build_step(self) -> Step | GraphStep:
        """Build the step of the optimizer: eager, compiled, or replayed as a CUDA graph."""
        config = self.config
        engine = self.engine
        step = Step(
            engine.network, self.objective, self.optimizer, config.precision, config.clip, engine
        )
        if not self.runtime.graph:
            return step

        lr_varies = config.schedule != "constant"
        same_batch = self.batches.full and not self.data.augment
        return GraphStep(step, lr_varies, fixed=same_batch)

    # -- one step ---------------------------------------------------------------------------

    @property
    def epochs_taken(self) -> float:
        return self.batches.epochs_after(self.steps_taken)

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step, of the first parameter group."""
        return self.schedule(step, self.config.steps) * self.base_rates[0]

    def set_rate(self, step: int) -> float:
        """Set the learning rates of a step, and return that of the first parameter group."""
        factor = self.schedule(step, self.config.steps)
        set_rates(self.optimizer, self.base_rates, factor)
        return self.base_rates[0] * factor

    def end_epoch(self) -> None:
        """Call the objective's `epoch_end`, if it has one."""
        if hasattr(self.objective, "epoch_end"):
            self.engine.share_statistics()
            self.objective.epoch_end(self.engine.evaluated)

    def after_step(self, step: int) -> None:
        """Update the averages and the controller after a step."""
        if self.averages is not None:
            self.averages.update(step, self.batches.ends_epoch(step))
        if self.control is not None and self.control.step():
            append_look(self.writer, self.control.looks[-1])

    def compare_best(self) -> None:
        """Compare the row of this step, if there is one, with the best so far."""
        if self.best is None or self.watch.last_measured != self.steps_taken:
            return
        self.watch.flush()
        if not self.watch.diverged and self.best.compare(self.watch.last):
            self.best.write(self.writer, self.model, state_of(self.objective))

    @property
    def is_over(self) -> bool:
        """Whether all steps were taken, or no better row has come for too long."""
        exhausted = self.best is not None and self.best.exhausted
        return exhausted or self.steps_taken == self.config.steps

    def check_divergence(self, now: bool = False) -> bool:
        """Return whether a loss or a row was not finite; read the losses when there are many.

        `now` writes the deferred row and reads the losses in any case. The first loss that is not
        finite marks the watch as diverged, and `diverged_at` is its step.
        """
        if now:
            self.watch.flush()  # a deferred row may have diverged

        if self.losses.is_full or (len(self.losses) and (now or self.watch.diverged)):
            steps_ago = self.losses.read(self.engine.losses_of_all)
            if steps_ago is not None:
                self.watch.diverged = True
                self.diverged_at = self.steps_taken - steps_ago
            self.listener.tick(self.steps_taken)
        return self.watch.diverged

    # -- the folder -------------------------------------------------------------------------

    def start_or_resume(self) -> Watch:
        """Restore the last readable checkpoint, if there is one, and start the watch."""
        state, note = broadcast_checkpoint(self.writer.path, self.processes)
        if state is None:
            self.writer.cut_back(-1)
        else:
            self.load_state_dict(state)
            self.listener.message(f"{note}resumed at step {self.steps_taken}")

        self.writer.write_environment(self.environment())
        self.writer.set_status("running", self.steps_taken)
        self.listener.begin(self.config, self.writer.path, self.steps_taken)
        if self.control is not None:  # those after the checkpoint are looked at again
            write_looks(self.writer, self.control.looks)

        watch = self.build_watch(state and state["watch"])
        watch.report = joined_reports(watch.report, self.averages, self.control)
        watch.before_row = self.listener.measuring
        # Last, since everything before may have drawn random numbers.
        rank = self.engine.sharing.rank
        set_random_states(state and state["random"], self.device, rank, self.config.seed)
        return watch

    def build_watch(self, state: dict[str, Any] | None) -> Watch:
        """Build the watch, which measures step 0 at once unless it resumes from a state."""
        config = self.config
        return Watch(
            self.model,
            self.criterion,
            train=self.data.train,
            val=self.data.val,
            test=self.data.test,
            run=self.writer,
            objective=self.objective,
            budget=config.budget,
            measure=config.measure,
            every=config.every,
            at=config.at,
            eps=config.eps,
            **curvature_settings(config, self.device),
            resume=state,
            start={"lr": self.set_rate(0), "epoch": 0.0},
            notify=self.listener.row,
            defer=self.runtime.graph and self.processes.count == 1,
            replay=self.runtime.graph and self.processes.count == 1,
            processes=self.processes,
            batch=self.batches.count,
            rho=sam_radius(self.optimizer),
        )

    def environment(self) -> dict[str, Any]:
        """Describe where and how the run is trained, for environment.json."""
        notes: dict[str, Any] = {"compile": self.runtime.compile, "graph": self.runtime.graph}
        notes |= self.engine.notes()
        if hashes := code_hashes(self.config):
            notes["sources"] = hashes
        return environment(device_name(self.device), threads=torch.get_num_threads(), **notes)

    def write_predictions(self) -> None:
        """Write the final logits of the held-out splits, of averages and of the best weights."""
        self.engine.share_statistics()
        predictor = predictor_of(self.engine.evaluated, self.objective)
        write_predictions(self.writer, predictor, self.data)
        write_posterior(self.writer, predictor, self.optimizer, self.data, self.config.seed)
        if self.averages is not None:
            self.averages.write(self.writer)
        if self.best is not None:
            self.best.write_predictions(self.writer, self.model, self.objective, self.data)

    # -- checkpoints ------------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint of this step, in the first process."""
        random = random_states(self.device, self.engine.sharing)
        if self.processes.first:
            state = {**self.state_dict(), "random": random}
            save_checkpoint(self.writer, self.steps_taken, state)

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes during a run, as tensors and plain values."""
        more = {"averages": self.averages.state_dict()} if self.averages is not None else {}
        if self.control is not None:
            more["control"] = self.control.state_dict()
        if self.best is not None:
            more["best"] = self.best.state_dict()

        return more | {
            "step": self.steps_taken,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "objective": state_of(self.objective),
            "scaling": self.step.state_dict(),
            "tracker": state_of(self.tracker),
            "watch": self.watch.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; the watch restores its own part."""
        self.steps_taken = state["step"]
        load_weights(self.model, self.objective, state)
        load_optimizer(self.optimizer, state["optimizer"])
        if state["scaling"]:
            self.step.load_state_dict(state["scaling"])
        if state["tracker"]:
            self.tracker.load_state_dict(state["tracker"])

        if self.averages is not None:
            self.averages.load_state_dict(state["averages"])
        if self.control is not None:
            self.control.load_state_dict(state["control"])
        if self.best is not None:
            self.best.load_state_dict(state["best"])

    @property
    def tracker(self) -> Any:
        """The curvature tracker of an optimizer that has one."""
        return getattr(self.optimizer, "tracker", None)

    def close(self) -> None:
        """End the processes and threads of batches and watch."""
        self.batches.close()
        with suppress(Exception):  # an error of a deferred row was raised or reported before
            self.watch.close()
