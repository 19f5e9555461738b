"""One watched split: one forward pass serves metrics, margins, curvature and snapshots."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from toosure import margins
from toosure.curvature import CurvatureTracker, Result, critical_sharpness
from toosure.curvature.critical import WarmStep
from toosure.eval_mode import evaluating
from toosure.metrics.inputs import check_count, known_outputs
from toosure.posthoc import split_temperature
from toosure.processes import ALONE, Processes
from toosure.processes.dtensor import any_sharded, forward_parts, resharded_after
from toosure.quantities import Quantity, in_row
from toosure.watch.criterion import Criterion, check_criterion, hessian_loss
from toosure.watch.drawn_indices import chosen_rows
from toosure.watch.outputs import Outputs, values_of
from toosure.watch.probability_outputs import check_no_softmax
from toosure.watch.sam_numbers import RHO, SamRadius, fixed_batch, sam_numbers
from toosure.watch.snapshot import snapshot_of

Numbers = dict[str, float | bool]
SAMPLING_ERROR = 0.02  # standard error of batch sharpness, GNI and trace in a row
SAM_BATCH = 128  # examples of `sam_theory`, unless the loop gives its batch size
MAX_LOGITS_ON_CPU = 1 << 22  # up to this many the metrics are computed on the CPU


class Diverged(ArithmeticError):
    """The network's outputs or its training loss are no longer finite."""


class Observation(NamedTuple):
    """The outputs of the model on a split; another process may compute metrics from them."""

    split: str
    logits: Tensor  # (N, C), on the CPU where they are few
    labels: Tensor  # (N,)
    numbers: Numbers  # computed with the model: the loss, curvature, certificates
    quantities: Sequence[Quantity]  # to be computed from the logits
    bins: int = 15
    fits_temperature: bool = False

    def row_values(self) -> Numbers:
        """Compute the numbers of the split by their keys in a row, such as `val/ece`."""
        values: Numbers = {"loss": self.numbers["loss"]}  # first, for the order of the keys
        with known_outputs():  # the first observation was checked
            values |= values_of(Outputs(self.logits, self.labels, self.bins), self.quantities)
        values |= self.numbers

        if self.fits_temperature and len(self.labels) > 1:  # fitted on one half, judged on another
            values |= split_temperature(self.logits, self.labels, bins=self.bins)._asdict()
        return {f"{self.split}/{key}": value for key, value in values.items()}


class WatchedSplit:
    """Measure a model on the examples of one split, repeatedly.

    `measure` names what is measured beyond the logits. Curvature is that of `curvature_examples`
    rows, drawn once, and of `curvature_loss`; None takes all rows, and the loss itself.
    """

    def __init__(
        self,
        name: str,
        model: nn.Module,
        loss: Criterion,
        data: tuple[Tensor, Tensor],
        measure: Sequence[str],
        *,
        eps: float = 0.01,
        rho: SamRadius = RHO,
        bins: int = 15,
        processes: Processes = ALONE,
        per_example: float = 1.0,
        curvature_examples: int | None = None,
        curvature_loss: Criterion | None = None,
        group_arrays: Mapping[str, np.ndarray] | None = None,
        **curvature: Any,
    ) -> None:
        check_criterion(loss)
        self.name = name
        self.model = model

        # The prediction without noise, if it is random: curvature is measured on it.
        self.mean_network: nn.Module | None = getattr(model, "mean_network", None)
        self.loss = loss
        self.curved = hessian_loss(loss if curvature_loss is None else curvature_loss)
        self.eps = eps
        self.bins = bins
        self.group_arrays = dict(group_arrays or {})  # which rows are of one sequence or image
        self.processes = processes
        self.model_is_sharded = any_sharded(model.parameters())
        self.outputs_are_checked = False  # for probabilities in place of logits, once

        wanted = [q for q in in_row(name) if not q.measure or q.measure in measure]
        self.of_logits = tuple(q for q in wanted if q.cost == "logits" and q.compute)
        self.certifies = any(q.cost == "certificate" for q in wanted)
        self.fits_temperature = any(q.cost == "fit" for q in wanted)

        self.x, self.y = data
        self.rho = rho
        self.sam_batch: tuple[Tensor, Tensor] | None = None
        if any(q.cost == "sam_step" for q in wanted):
            self.sam_batch = fixed_batch(data, curvature.get("batch", SAM_BATCH))

        # Each process computes the outputs, and the curvature, of its own rows.
        self.host_y = self.y.cpu()
        if len(self.y) < processes.count:
            raise ValueError(f"{name} has {len(self.y)} examples for {processes.count} processes")
        own = processes.rows(len(self.y))
        self.own_data = self.x[own], self.y[own]
        self.curvature_data = self.own_data
        if curvature_examples is not None:
            check_count("curvature_examples", curvature_examples)
            if curvature_examples < len(self.y):
                self.curvature_data = self.drawn_rows(curvature_examples)

        self.critical: Callable[[], Result] | None = None
        self.critical_step = WarmStep()
        self.tracker: CurvatureTracker | None = None
        self.follow_curvature(wanted, per_example, curvature)

    @property
    def measures_all(self) -> bool:
        """Whether curvature is that of all rows."""
        return self.curvature_data is self.own_data

    def drawn_rows(self, count: int) -> tuple[Tensor, Tensor]:
        """Return this process's share of `count` rows, drawn by class where there are classes."""
        if count < self.processes.count:
            raise ValueError(
                f"curvature_examples is {count} for {self.processes.count} processes: give more"
            )
        drawn, _ = chosen_rows(len(self.y), count, self.host_y, seed=0)
        own = drawn.sort().values[self.processes.rows(count)].to(self.y.device)
        return self.x[own], self.y[own]

    def follow_curvature(
        self, wanted: Sequence[Quantity], per_example: float, settings: dict[str, Any]
    ) -> None:
        """Make the trackers of the curvature that is wanted; they get the `settings`."""
        network = self.model if self.mean_network is None else self.mean_network
        group = self.processes.group
        if any(q.cost == "forwards" for q in wanted):
            given = {key: settings[key] for key in ("parameters", "chunk") if key in settings}
            self.critical = partial(
                critical_sharpness,
                network,
                self.curvature_data,
                self.curved,
                group=group,
                warm=self.critical_step,
                **given,
            )

        keys = tuple(q.key for q in wanted if q.cost == "curvature")
        if keys:
            options = {"sampled_rtol": SAMPLING_ERROR, "group": group} | settings
            if per_example > 1:
                options["replay"] = False  # the examples of the rows are looked up on the host
            self.tracker = make_tracker(network, self.curvature_data, self.curved, keys, **options)
            if per_example > 1 and "chunk" not in settings:
                widen_chunks(self.tracker, per_example)

    def observe(self, logits: Tensor) -> Observation:
        """Compute what needs the model itself: the loss, curvature and certificates."""
        loss = self.loss(logits, self.y).detach()
        if loss.numel() != 1:
            raise ValueError(f"the loss must give one number; got shape {tuple(loss.shape)}")
        if getattr(self.loss, "reduction", "mean") == "sum":
            loss = loss / len(self.y)  # so that splits of different sizes compare

        # Curvature comes first, because reading the loss makes the host wait for the device.
        curvature: Numbers = {}
        if self.tracker is not None:
            curvature = flat(self.tracker.measure())
            if not self.tracker.uses_graphs:
                self.tracker.release()  # its memory is needed for training
        if self.critical is not None:
            curvature |= flat({"critical_sharpness": self.critical()})

        labels = self.y
        if logits.numel() < MAX_LOGITS_ON_CPU:
            logits, labels = logits.cpu(), self.host_y
        numbers: Numbers = {"loss": float(loss)} | curvature

        if not bool(torch.isfinite(logits).all()):
            raise Diverged(f"the outputs on {self.name} are not finite")
        # The validation loss may be infinite (a label of probability 0) while training is fine.
        if self.name == "train" and not math.isfinite(numbers["loss"]):
            raise Diverged("the training loss is not finite")
        if not self.outputs_are_checked:
            check_no_softmax(logits, self.name)
            self.outputs_are_checked = True

        if self.certifies:
            numbers |= certificate_of(self.model, (self.x, self.y), self.eps)
        if self.sam_batch is not None:
            numbers |= sam_numbers(self.model, self.sam_batch, self.rho)
        return Observation(
            self.name, logits, labels, numbers, self.of_logits, self.bins, self.fits_temperature
        )

    def logits(self) -> Tensor:
        """Return the outputs on the whole split, (N, C), in evaluation mode."""
        return self.processes.gathered(self.own_logits(), len(self.y))

    def own_logits(self) -> Tensor:
        """Return the outputs on this process's examples, (n, C), in evaluation mode."""
        if self.tracker is not None and self.mean_network is None and self.measures_all:
            return self.tracker.logits()  # this pass serves the curvature, too
        return logits_of(self.model, self.own_data[0], sharded=self.model_is_sharded)

    def snapshot(self, observation: Observation) -> dict[str, np.ndarray]:
        """Return the reliability table and histograms, by name such as `val_counts`."""
        with known_outputs():
            arrays = snapshot_of(observation.logits, observation.labels, self.bins)
        return {f"{self.name}_{key}": value for key, value in arrays.items()}


def make_tracker(*arguments: Any, replay: bool = False, **options: Any) -> CurvatureTracker:
    """Make a tracker that replays its passes as CUDA graphs if asked and if the data allow it."""
    if replay:
        try:
            return CurvatureTracker(*arguments, replay=True, **options)
        except ValueError:  # more data than one chunk holds
            pass
    return CurvatureTracker(*arguments, **options)


def widen_chunks(tracker: CurvatureTracker, per_example: float) -> None:
    """Let chunks hold whole examples, where each has many rows (tokens, pixels).

    The tracker chose the chunk by a pass of two rows. Both are of one example, and cost as much as
    all rows of that example.
    """
    curvature = tracker.curvature
    rows = max(1, curvature.chunk // 2) * int(per_example)
    curvature.chunk = min(len(curvature.inputs), max(curvature.chunk, rows))


def logits_of(
    model: nn.Module, x: Tensor, chunk: int = 1024, sharded: bool | None = None
) -> Tensor:
    """Run a model over inputs in evaluation mode, in chunks, and restore its mode.

    `sharded` says whether FSDP2 shards its weights; None finds out.
    """
    if sharded is None:
        sharded = any_sharded(model.parameters())
    parts = forward_parts(x, chunk, model.parameters()) if sharded else x.split(chunk)

    held = resharded_after(model) if sharded else nullcontext()
    with evaluating(model), torch.no_grad(), held:
        logits = torch.cat([model(part) for part in parts])
        return logits if logits.dtype in (torch.float32, torch.float64) else logits.float()


def flat(results: Mapping[str, Result]) -> Numbers:
    """Return results by key: the value, its relative error, a flag if it has not converged."""
    numbers: Numbers = {}
    for name, result in results.items():
        numbers[name] = float(result.value)
        numbers[f"{name}_error"] = float(result.error)
        if not result.converged:
            numbers[f"{name}_unconverged"] = True
    return numbers


def certificate_of(model: nn.Module, data: tuple[Tensor, Tensor], eps: float) -> Numbers:
    """Return the slack of every statement of the margin theorems, and how many failed."""
    certificate = margins.certify(model, data, eps=eps)
    failed = sum(statement.holds is False for statement in certificate.statements)
    slacks = {f"slack {s.name}": s.slack for s in certificate.statements if s.holds is not None}
    return {"certificate_failed": failed, **slacks}
