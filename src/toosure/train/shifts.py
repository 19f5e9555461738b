"""Judge a run under shifts, at its end or from its checkpoint, and keep the result."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from toosure.config import RunConfig
from toosure.data import Dataset
from toosure.data.corruptions import check_shift
from toosure.posthoc.temperature import fit_temperature
from toosure.processes import join
from toosure.runs import Run, RunWriter
from toosure.sentences import listed
from toosure.shifts.judge import Predict, Progress, judge_shifts
from toosure.shifts.ood_sets import OODSet, load_ood_set, source_of
from toosure.shifts.plan import CORRUPTED, ShiftPlan, data_set_of, is_file_name, named_place
from toosure.shifts.record import AVERAGE_FILE, FILE, ShiftRecord
from toosure.train.averages import Averages
from toosure.train.checkpoint import checkpoints
from toosure.train.interrupt import interruptible
from toosure.train.listener import ProgressListener
from toosure.train.restore import restore_run
from toosure.train.runtime import Runtime
from toosure.watch.sink import device_name
from toosure.watch.split import logits_of
from toosure.words import TABLES

QUIET_SECONDS = 10.0  # between two lines on the progress of judging


class JudgingStopped(Exception):
    """Judging was asked to stop before its end."""


class Shifts:
    """The images that a run is judged on, loaded before training, so that errors come early."""

    def __init__(self, config: RunConfig, data: Dataset, runtime: Runtime) -> None:
        assert runtime.shifts is not None
        self.plan = runtime.shifts.without(config.data)
        self.device = runtime.torch_device
        self.data = data
        self.outside = load_ood_sets(self.plan, data, runtime)

    def judge(self, predictor: nn.Module, step: int, progress: Progress | None) -> ShiftRecord:
        """Return the scores of a network that was trained for `step` steps."""
        predict = partial(logits_of, predictor)
        temperature = clean_temperature(predict, self.data)
        record = judge_shifts(predict, self.data, self.plan, self.outside, progress, temperature)
        return replace(record, step=step, device=device_name(self.device))

    def judge_and_write(
        self,
        writer: RunWriter,
        predictor: nn.Module,
        step: int,
        listener: ProgressListener,
        should_stop: Callable[[], bool],
        file: str = FILE,
        of: str = "",
    ) -> None:
        """Judge a network and keep the result in the folder of its run; `of` says which it is."""
        record = self.judge(predictor, step, progress_reporter(listener, should_stop))
        writer.write_json(file, record.as_json())
        listener.message(f"{of} {summary(record)}".lstrip())


def clean_temperature(predict: Predict, data: Dataset) -> float | None:
    """Return the temperature that fits the validation images best; None if there is none."""
    if data.val is None or len(data.val) < 2:
        return None
    logits = predict(data.val.x).cpu()
    if not bool(torch.isfinite(logits).all()):
        return None
    fit = fit_temperature(logits, data.val.y.cpu())
    return None if fit.note else float(fit.temperature)


def load_ood_sets(plan: ShiftPlan, data: Dataset, runtime: Runtime) -> list[OODSet]:
    """Load the unknown images; raise if the run cannot be judged on shifts."""
    if len(data.inputs) != 3 or not len(data.test):
        raise ValueError("shifts are of test images: name a data set of images with a test set")
    for corruption in plan.corruptions:
        check_shift((corruption, plan.severities[0]), torch.empty(0, *data.inputs))

    def load() -> list[OODSet]:
        root = runtime.data_root
        download = runtime.download
        return [load_ood_set(word, plan, data.inputs, root, download) for word in plan.ood]

    # One process downloads while the others wait; then they find the files.
    return join(runtime.torch_device).in_turn(load) if runtime.download else load()


def progress_reporter(listener: ProgressListener, should_stop: Callable[[], bool]) -> Progress:
    """Return a callback that reports progress now and then, and raises to stop."""
    last = time.monotonic()

    def progress(done: int, total: int, name: str) -> None:
        nonlocal last
        if should_stop():
            raise JudgingStopped
        if done == 0:
            listener.message(f"judging {total} sets of images: clean, corrupted, unknown")
        elif time.monotonic() - last > QUIET_SECONDS:
            last = time.monotonic()
            listener.message(f"judged {done} of {total} sets of images; next is {name}")

    return progress


def summary(record: ShiftRecord) -> str:
    """Return the results in one line."""
    cells = f"{len(record.corruptions)} corruptions x {len(record.severities)} severities"
    means = record.means()
    parts = [
        f"accuracy {100 * means['accuracy']:.2f} % (clean {100 * record.clean['accuracy']:.2f})",
        f"ECE {100 * means['ece']:.2f} points (clean {100 * record.clean['ece']:.2f})",
    ]
    for name, scores in record.ood.items():
        parts.append(f"AUROC against {name} {100 * scores.auroc['confidence']:.2f} %")
    images = f"{record.images:,} of {record.available:,} test images"
    return f"under {cells}, {images}: {', '.join(parts)}; {record.seconds:.1f} s"


# -- runs that have ended -------------------------------------------------------------------------


def is_judged(run: Run, plan: ShiftPlan) -> bool:
    """Whether a run was judged on everything that a plan asks for."""
    return fulfils(ShiftRecord.read(run.shifts), plan, str(run.config.get("data", "")))


def fulfils(record: ShiftRecord | None, plan: ShiftPlan, data: str) -> bool:
    """Whether a record has everything that a plan asks for, of a network trained on `data`."""
    if record is None or not record.covers(plan.corruptions, plan.severities):
        return False
    images = record.available if plan.images is None else min(plan.images, record.available)
    return (
        record.images == images
        and record.seed == plan.seed
        and all(holds_images(record, word) for word in plan.without(data).ood)
    )


def holds_images(record: ShiftRecord, word: str) -> bool:
    """Whether a record has the images of a word of `--ood`, not others under the same name."""
    name, place = named_place(word)
    kept = record.ood.get(name)
    if kept is None:
        return False
    if not kept.source:  # of an earlier version: which file it was is not known
        return not is_file_name(place)
    return kept.source == source_of(word)


def with_earlier_sets(record: ShiftRecord, earlier: ShiftRecord | None) -> ShiftRecord:
    """Add the unknown sets of an earlier record of the same test images and weights."""
    if earlier is None or not record.same_images(earlier) or record.step != earlier.step:
        return record
    return replace(record, ood={**earlier.ood, **record.ood})


def more_images_before(run: Run, plan: ShiftPlan) -> int:
    """Return on how many images a run was judged, if a plan would replace that by fewer; else 0."""
    earlier = ShiftRecord.read(run.shifts)
    if earlier is None or plan.images is None or plan.images >= earlier.images:
        return 0
    return earlier.images


def plan_with_earlier_sets(run: Run, plan: ShiftPlan) -> ShiftPlan:
    """Add to a plan the unknown sets that judging anew would drop from a run's record.

    Sets of other test images do not stay. Those of a data set can be judged again by their word; of
    a file only its hash is kept, and ValueError says that it must be named.
    """
    earlier = ShiftRecord.read(run.shifts)
    if earlier is None or stays_valid(earlier, run, plan):
        return plan
    given = {CORRUPTED, *(named_place(word)[0] for word in plan.ood)}
    lost = {name: kept.source for name, kept in earlier.ood.items() if name not in given}
    unknown = [name for name, source in lost.items() if not is_data_word(source)]
    if unknown:
        raise ValueError(
            f"{run.path} was judged against {listed(lost)} on {earlier.images:,} of "
            f"{earlier.available:,} test images, and other images replace that: add "
            f"{' '.join(f'--ood {name}=FILE' for name in unknown)} to judge "
            f"{listed(unknown)} on these, too. `--images {earlier.images}` reads what is there; to "
            "do without, remove its shifts.json"
        )
    words = (w if named_place(w)[0] == name else f"{name}={w}" for name, w in lost.items())
    return replace(plan, ood=(*plan.ood, *words))


def stays_valid(earlier: ShiftRecord, run: Run, plan: ShiftPlan) -> bool:
    """Whether a plan would judge the same test images and weights as an earlier record."""
    images = earlier.available if plan.images is None else min(plan.images, earlier.available)
    cells = {(name, level) for name in plan.corruptions for level in plan.severities}
    same_images = (earlier.images, earlier.seed) == (images, plan.seed)
    return (
        same_images and set(earlier.cells) == cells and earlier.step == run.outcome.get("step", 0)
    )


def is_data_word(source: str) -> bool:
    """Whether a kept source is `noise` or the word of a data set, not the hash of a file.

    >>> [is_data_word(each) for each in ("noise", "cifar100-c", "my_data:load", "00c0ffee")]
    [True, True, True, False]
    """
    base = data_set_of(source).removesuffix("-c")
    return source == "noise" or ":" in source or base in TABLES["data"]


def can_be_judged(run: Run) -> bool:
    """Whether a run is complete and its weights are still there."""
    return run.status == "complete" and bool(checkpoints(run.path))


def judge_finished(
    folder: str | Path, runtime: Runtime, progress: Progress | None = None
) -> ShiftRecord:
    """Judge a run that has ended by the weights of its checkpoint, as `runtime.shifts` says."""
    run = restore_run(folder, runtime)
    shifts = Shifts(run.config, run.data, runtime)
    step = int(Run(folder).outcome.get("step", 0))
    return shifts.judge(run.predictor, step, progress)


def judge_averages(writer: RunWriter, runtime: Runtime, progress: Progress | None) -> None:
    """Judge the averages of the weights of a run that has ended, by its checkpoint."""
    if not RunConfig.read(writer.path).average:
        return

    run = restore_run(writer.path, runtime)
    averages = Averages(run.config, run.model, run.objective, run.data)
    averages.load_state_dict(run.state["averages"])
    shifts = Shifts(run.config, run.data, runtime)
    for name, predictor in averages.predictors():
        record = shifts.judge(predictor, run.state["step"], progress)
        writer.write_json(AVERAGE_FILE.format(name), record.as_json())


def judge_if_missing(writer: RunWriter, runtime: Runtime, listener: ProgressListener) -> None:
    """Judge a finished run that was not judged yet, if its weights are kept."""
    run = Run(writer.path)
    if runtime.shifts is None or run.status != "complete" or is_judged(run, runtime.shifts):
        return
    if more_images_before(run, runtime.shifts):
        listener.message(f"{run.name} keeps its shifts.json, which was judged on more images")
        return
    if not can_be_judged(run):
        listener.message(f"{run.name} cannot be judged on shifts: no checkpoint is left of it")
        return
    try:
        runtime = replace(runtime, shifts=plan_with_earlier_sets(run, runtime.shifts))
    except ValueError as error:
        listener.message(f"{run.name} keeps its shifts.json: {error}")
        return

    with runtime.cpu_threads(), interruptible() as stop, suppress(JudgingStopped):
        progress = progress_reporter(listener, lambda: stop.requested)
        judge_averages(writer, runtime, progress)  # first: the record below says that all is done
        record = judge_finished(run.path, runtime, progress)
        record = with_earlier_sets(record, ShiftRecord.read(run.shifts))
        writer.write_json(FILE, record.as_json())
        listener.message(summary(record))
