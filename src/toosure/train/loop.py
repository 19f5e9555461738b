"""The training loop: draw a batch, set the learning rate, step, watch, checkpoint."""

import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch

from toosure.config import RunConfig
from toosure.data import Dataset
from toosure.processes import Processes, join
from toosure.runs import Run, RunWriter
from toosure.sentences import first_line
from toosure.shifts.record import AVERAGE_FILE
from toosure.train.agreement import Agreement
from toosure.train.check_settings import check_settings
from toosure.train.code_hashes import code_changes
from toosure.train.interrupt import Stop, interruptible
from toosure.train.listener import ProgressListener
from toosure.train.rank_zero import closed_run, open_run, raise_or_exit
from toosure.train.runtime import Runtime
from toosure.train.shifts import JudgingStopped, judge_if_missing
from toosure.train.training import Training
from toosure.watch.measurer import predictor_of

TRACEBACK = "traceback.txt"  # of an error that is not one of ours


def train(
    config: RunConfig,
    out: str | Path = "runs",
    runtime: Runtime | None = None,
    listener: ProgressListener | None = None,
    data: Dataset | None = None,
) -> Run:
    """Train a run in its folder below `out`, or finish one that was interrupted.

    A run that is complete or has diverged is returned unchanged. Killed at any moment, it continues
    from its last checkpoint to the same numbers, bit for bit on a CPU. Ctrl-C writes a checkpoint
    and ends the run as "stopped". `data` is what `config.data` names, if it was loaded before.
    Under torchrun the processes share each batch of one run: docs/scale.md.

    >>> import tempfile
    >>> run = train(RunConfig(data="digits:train=100", steps=2, every=1), tempfile.mkdtemp())
    >>> run.status, [row["step"] for row in run.rows]
    ('complete', [0, 1, 2])
    """
    runtime = runtime or Runtime()
    check_settings(config)
    processes = join(runtime.torch_device)
    if listener is None or not processes.first:
        listener = ProgressListener()

    with open_run(config, Path(out), processes) as writer:
        for change in code_changes(config, writer.path):
            listener.message(change)
        if not writer.finished:
            train_in_folder(writer, config, runtime, listener, data, processes)
        elif runtime.shifts is not None and processes.count == 1:
            judge_if_missing(writer, runtime, listener)

        run = closed_run(writer, processes)
        listener.end(writer.path, run.outcome)
    return run


def train_in_folder(
    writer: RunWriter,
    config: RunConfig,
    runtime: Runtime,
    listener: ProgressListener,
    data: Dataset | None,
    processes: Processes,
) -> None:
    """Set the run up and take its steps; in any case, note in the folder how it ended."""
    device = runtime.torch_device
    devices = [device] if device.type == "cuda" else []

    with (
        runtime.cpu_threads(),
        runtime.searched_kernels(config.steps),
        torch.random.fork_rng(devices),
        interruptible() as stop,
    ):
        training = None
        try:
            training = Training(config, runtime, writer, listener, data, processes)
            take_steps(training, stop)
        except KeyboardInterrupt:  # the second signal: a deferred row is not waited for
            if training is not None:
                training.watch.maker.discard()
            raise
        except Exception as error:
            save_after_error(error, training, writer, processes)
            raise_or_exit(error, processes)
        finally:
            if training is not None:
                training.close()


def save_after_error(
    error: Exception, training: Training | None, writer: RunWriter, processes: Processes
) -> None:
    """Save what can be saved of a run that raised: deferred rows, the traceback, the status."""
    with suppress(Exception):
        if training is not None:
            training.watch.flush()

    if processes.first and not isinstance(error, ValueError):
        with suppress(OSError):
            (writer.path / TRACEBACK).write_text(traceback.format_exc(), encoding="utf-8")

    with suppress(ValueError):  # the disk may be full
        steps = training.steps_taken if training is not None else 0
        writer.set_status("failed", steps, first_line(error))


def take_steps(training: Training, stop: Stop) -> None:
    """Step and watch until the last step, divergence, or a request to stop."""
    batches, watch = training.batches, training.watch
    agreement = Agreement(
        training.processes, training.runtime.checkpoint, step=training.steps_taken
    )

    while not training.is_over:
        step = training.steps_taken

        # All processes must stop, and write checkpoints, after the same step.
        stops_alone = training.listener.stop_requested
        if agreement.update(step, training.check_divergence(), stop.requested or stops_alone):
            watch.diverged = agreement.diverged
            stop.requested = stop.requested or (agreement.stopping and not stops_alone)
            save = agreement.checkpoint_due and not agreement.stopping
            if save and not training.check_divergence(now=True):  # a diverged state is never saved
                training.save()
                agreement.checkpoint_written()
        if watch.diverged or agreement.stopping:
            break

        lr = training.set_rate(step)
        loss = training.step(batches.draw(step), lr)
        training.losses.append(loss)
        training.after_step(step)
        if batches.ends_epoch(step):
            training.end_epoch()

        training.steps_taken += 1
        watch.step(lr=lr, epoch=training.epochs_taken)
        training.compare_best()

    finish(training, agreement.stopping, stop)


def judge_under_shifts(training: Training, should_stop: Callable[[], bool]) -> None:
    """Judge network and averages on corrupted and unknown images, if asked for."""
    if training.shifts is None:
        return

    judge_and_write = partial(
        training.shifts.judge_and_write,
        training.writer,
        step=training.steps_taken,
        listener=training.listener,
        should_stop=should_stop,
    )
    training.engine.share_statistics()
    last = "" if training.averages is None else "last weights"
    judge_and_write(predictor_of(training.engine.evaluated, training.objective), of=last)
    if training.averages is not None:
        for name, average in training.averages.predictors():
            judge_and_write(average, file=AVERAGE_FILE.format(name), of=f"average {name}")


def finish(training: Training, stopping: bool, stop: Stop) -> None:
    """Write the last measurement, the last checkpoint and the status."""
    writer, watch = training.writer, training.watch
    steps = training.steps_taken
    is_over = training.is_over

    if is_over and not training.check_divergence(now=True):
        watch.finish(lr=training.rate_at(steps - 1), epoch=training.epochs_taken)
        training.compare_best()

    # Asked again: the last measurement may be the one that went wrong.
    if training.check_divergence(now=True):
        watch.finish()
        step = steps if training.diverged_at is None else training.diverged_at
        message = f"the loss or the outputs are not finite at step {step}; try a smaller lr"
        if step == 0:  # no update was made
            message = (
                "the loss or the outputs are not finite before any step: the inputs, or the model "
                "as it starts, give NaN or infinity"
            )
        writer.set_status("diverged", step, message)
    elif is_over:
        training.save()
        training.write_predictions()
        early = steps < training.config.steps
        try:
            judge_under_shifts(training, lambda: stop.requested and training.processes.count == 1)
            writer.set_status("complete", steps, "no better row came: best.npz" if early else "")
        except JudgingStopped:
            writer.set_status("stopped", steps, "trained; repeat the command to judge its shifts")
    elif stopping:
        training.save()
        writer.set_status("stopped", steps, "repeat the command to go on from here")
