"""Observe the network on the examples of each split."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from toosure.data.dataset import Split
from toosure.data.image_files import ImageFiles
from toosure.objectives.contract import HasMeanPredict, HasPredict
from toosure.processes import ALONE, Processes
from toosure.processes.dtensor import processes_in, ranks_of
from toosure.processes.wrappers import unwrapped
from toosure.watch.batch_or_example import is_example
from toosure.watch.best import BestPredictions
from toosure.watch.criterion import Criterion, binary_criterion, ignored_label, noted_losses
from toosure.watch.gathered_weights import MAX_GATHERED, GatheredWeights
from toosure.watch.joint import JointMeasurement, explaining_lost_processes
from toosure.watch.logits_model import Rows, as_rows, check_takes_classes
from toosure.watch.same_watch import check_same_everywhere
from toosure.watch.sample import ExampleSource, hash_of_labels
from toosure.watch.split import Observation, WatchedSplit

Data = Any  # (inputs, labels), a DataLoader, a Dataset, a dict of tensors: see `sample.py`
Observations = Mapping[str, Observation]  # by the name of the split


class Measurer:
    """Observe a network on its splits, and keep the state that the next observation needs.

    Weights that FSDP2 shards are gathered up to `gather` parameters. Other settings go to each
    `WatchedSplit`.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Criterion | None,
        objective: object,
        splits: Mapping[str, Data | None],
        test: Data | None,
        measure: Sequence[str],
        source: ExampleSource,
        *,
        processes: Processes = ALONE,
        gather: int = MAX_GATHERED,
        **settings: Any,
    ) -> None:
        self.device = device_of(model)
        self.losses = noted_losses(loss, settings.get("curvature_loss"))
        settings["processes"] = processes
        check_objective(objective, measure)
        check_sharded(model, processes)
        weights = GatheredWeights(model, measure, gather)
        self.gathered = weights.gathered
        self.marks = weights.marks  # entries of every row about it
        model = model if self.gathered is None else self.gathered.model
        measure = weights.measure

        predictor = predictor_of(model, objective)
        source.reader.learn_from(model, ignored_label(loss))
        source.is_example = partial(is_example, model, self.device)

        self.notes: dict[str, dict[str, Any]] = {}  # how the examples of each split were drawn
        self.splits: dict[str, WatchedSplit] = {}
        for name, data in splits.items():
            if data is not None:
                self.splits[name] = self.watched_split(
                    name, data, predictor, loss, measure, source, settings
                )

        self.together = processes.count > 1
        self.joint = JointMeasurement(processes, model, objective)
        with explaining_lost_processes(processes):
            check_same_everywhere(self.notes, processes)

        self.best: BestPredictions | None = None
        if "best" in measure:
            if "val" not in self.splits:
                raise ValueError(
                    "measure=best needs validation data: give val, or leave best out of measure"
                )
            test_rows = self._test_rows(predictor, test, source)
            groups = self.splits["val"].group_arrays
            if test_rows is not None:
                groups = groups | test_rows.group_arrays("test")
            self.best = BestPredictions(test_rows, groups)

    def watched_split(
        self,
        name: str,
        data: Data,
        predictor: nn.Module,
        loss: Criterion | None,
        measure: Sequence[str],
        source: ExampleSource,
        settings: dict[str, Any],
    ) -> WatchedSplit:
        """Draw the examples of a split, note how, and return what measures on them."""
        sample = source.sample(name, data)
        rows = as_rows(name, predictor, sample, loss, self.device)
        check_measures(name, rows, measure)
        settings = {**settings, "curvature_loss": on_columns(settings.get("curvature_loss"), rows)}
        split = WatchedSplit(
            name,
            rows.model,
            rows.loss,
            (rows.x, rows.y),
            measure,
            per_example=rows.per_example,
            group_arrays=rows.group_arrays(name),
            **patterns_inside(rows.model, predictor, settings),
        )

        note = sample.note | {"rows": len(rows.y), "classes": rows.classes}
        if source.hashes:
            note["labels"] = hash_of_labels(rows.y)
        if not split.measures_all:
            note["curvature_examples"] = settings["curvature_examples"]
        self.notes[name] = note
        return split

    def _test_rows(
        self, predictor: nn.Module, test: Data | None, source: ExampleSource
    ) -> Rows | None:
        """Return the test set in the form that the model takes; its images may be on disk."""
        if isinstance(test, Split) and (not len(test) or isinstance(test.x, ImageFiles)):
            x = test.x.to(self.device)
            return Rows(predictor, x, test.y, nn.CrossEntropyLoss()) if len(test) else None
        if test is None:
            return None
        return as_rows("test", predictor, source.sample("test", test), None, self.device)

    def observe(self, step: int) -> dict[str, Observation]:
        """Observe every split; raise `Diverged` where outputs or loss are not finite."""
        if self.gathered is not None:
            with explaining_lost_processes(self.joint.processes):
                self.gathered.refresh()
        if self.together:
            observations = self.observe_together()
        else:
            observations = {name: s.observe(s.own_logits()) for name, s in self.splits.items()}
        if self.best is not None:
            self.best.compare(step, observations["val"])
        return observations

    def observe_together(self) -> dict[str, Observation]:
        """Observe in all processes; they exchange the outputs on all splits in one collective."""
        splits = list(self.splits.values())

        def own_outputs() -> list[Tensor]:
            return [split.own_logits() for split in splits]

        with self.joint.measuring():
            outputs = self.joint.gathered(own_outputs, [len(split.y) for split in splits])
            return {
                split.name: split.observe(logits)
                for split, logits in zip(splits, outputs, strict=True)
            }

    def snapshot(self, observations: Observations) -> dict[str, np.ndarray]:
        """Return the arrays of a snapshot of all splits, for the slider of the report."""
        arrays: dict[str, np.ndarray] = {}
        for name, observation in observations.items():
            arrays |= self.splits[name].snapshot(observation)
        return arrays

    def state_dict(self) -> dict[str, Any]:
        trackers = {name: split.tracker for name, split in self.splits.items()}
        return {
            "trackers": {name: t.state_dict() for name, t in trackers.items() if t is not None},
            "critical_steps": {
                name: split.critical_step.state_dict()
                for name, split in self.splits.items()
                if split.critical is not None
            },
            "best": {} if self.best is None else self.best.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, tracker_state in state["trackers"].items():
            tracker = self.splits[name].tracker
            assert tracker is not None  # since the measures are the same
            tracker.load_state_dict(tracker_state)
        for name, step_state in state.get("critical_steps", {}).items():
            self.splits[name].critical_step.load_state_dict(step_state)
        if self.best is not None and state.get("best"):
            self.best.load_state_dict(state["best"])


class Predictor(nn.Module):
    """Predict with a model in the way its objective does."""

    def __init__(self, model: nn.Module, objective: HasPredict) -> None:
        super().__init__()
        self.model = model
        self.predict = objective.predict  # not registered: its state is not the model's

        # If the prediction is random, curvature is measured without the noise.
        self.mean_network: Predictor | None = None
        if isinstance(objective, HasMeanPredict):
            self.mean_network = Predictor(model, MeanPrediction(objective))

    def forward(self, x: Tensor) -> Tensor:
        return self.predict(self.model, x)


class MeanPrediction:
    """Predict without noise with an objective whose prediction is random."""

    def __init__(self, objective: HasMeanPredict) -> None:
        self.predict = objective.mean_predict


def predictor_of(model: nn.Module, objective: object = None) -> nn.Module:
    """Return the module whose logits are measured: the model, or the objective's prediction."""
    return Predictor(model, objective) if isinstance(objective, HasPredict) else model


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a network's parameters; raise if it is not a network."""
    if not isinstance(model, nn.Module):
        raise ValueError(
            f"model must be a torch.nn.Module; got {type(model).__name__}: call your function in "
            "the forward of a Module"
        )
    first = next(model.parameters(), None)
    if first is None:
        raise ValueError(f"{type(model).__name__} has no parameters: there is nothing to watch")
    return first.device


def check_objective(objective: object, measure: Sequence[str]) -> None:
    """Raise on a measure that the objective refuses, with its reason."""
    refused: Mapping[str, str] = getattr(objective, "refused_measures", {})
    for name in measure:
        if name in refused:
            raise ValueError(f"{name}: {refused[name]}; leave it out of measure")


def check_sharded(model: nn.Module, processes: Processes) -> None:
    """Raise if FSDP2 shards the weights over processes that do not measure together."""
    ranks = ranks_of(model.parameters())
    if ranks and processes.count == 1 < processes_in(ranks):
        raise ValueError(
            f"the weights of this model are sharded over {processes_in(ranks)} processes (FSDP2), "
            "which must measure together: give processes=toosure.processes.join(device), and call "
            "the watch in all of them"
        )


def check_measures(name: str, rows: Rows, measure: Sequence[str]) -> None:
    """Raise on measures that rows of this kind do not allow."""
    if rows.per_example != 1 and "jacobian_norm" in measure:
        raise ValueError(
            f"jacobian_norm is a norm per example, and an example of {name} has many rows of "
            "outputs: leave it out of measure"
        )

    if name == "train" and "certificate" in measure and not rows.x.is_floating_point():
        raise ValueError(
            "a certificate needs inputs that are one floating-point tensor, which those of train "
            "are not: leave it out of measure"
        )

    many_rows = rows.per_example != 1 or not rows.x.is_floating_point()
    if name == "train" and "sam_theory" in measure and many_rows:
        raise ValueError(
            "sam_theory needs examples with one label and inputs that are one floating-point "
            "tensor, which those of train are not: leave it out of measure"
        )


def on_columns(loss: Criterion | None, rows: Rows) -> Criterion | None:
    """Return a loss of one logit per label as one of two columns; any other as it is."""
    if isinstance(loss, nn.BCEWithLogitsLoss) and rows.classes == 2:
        return binary_criterion(loss, ndim=1)
    if loss is not None:
        check_takes_classes(loss, rows.classes)
    return loss


def patterns_inside(
    outer: nn.Module, model: nn.Module, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Add the wrapper's prefix to the patterns in `parameters`, which name the model's own."""
    patterns = settings.get("parameters")
    if patterns is None or outer is model:
        return dict(settings)
    inner = unwrapped(model)
    prefix = next(name for name, module in outer.named_modules() if module in (model, inner))
    return {**settings, "parameters": [f"{prefix}.{pattern}" for pattern in patterns]}
