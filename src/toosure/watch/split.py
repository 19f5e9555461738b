"""One split under watch: a single forward pass serves metrics, margins, curvature, snapshots."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from toosure import margins, metrics
from toosure.config import MEASURES
from toosure.curvature import CurvatureTracker
from toosure.metrics.inputs import at_least_float32
from toosure.posthoc import split_temperature
from toosure.processes import ALONE, Processes
from toosure.watch.criterion import check_criterion, curved, mean_loss

QUANTILES = {"margin_min": 0.0, "margin_q01": 0.01, "margin_q05": 0.05, "margin_q25": 0.25}
QUANTILES |= {"margin_q50": 0.5, "margin_q75": 0.75}
METRICS = (
    "loss", "accuracy", "confidence", "ece", "adaptive_ece", "classwise_ece", "mmce", "smece",
    "nll", "brier", "entropy", "margin_mean", *QUANTILES, "log_q",
)  # fmt: skip
TRAIN_ONLY = ("batch_sharpness", "gni", "certificate")
VAL_ONLY = ("temperature", "best")
NOT_CURVATURE = ("certificate", "temperature", "best")
OWN = {"step", "seconds", "seconds_measuring", "diverged"}  # keys that a row has of its own
OWN |= {f"{split}/{name}" for split in ("train", "val") for name in (*METRICS, *MEASURES)}
SAMPLED = 0.02  # standard error of batch sharpness, GNI and trace in a row
SMALL = 1 << 22  # logits of fewer elements are measured on the CPU: one copy, no waiting


def check_numbers(numbers: Mapping[str, Any]) -> None:
    """Raise where a number that joins a row has the name of one the watch finds itself."""
    for name in OWN & numbers.keys():
        raise ValueError(f"a row has a {name} of its own: give your number another name")


class Diverged(ArithmeticError):
    """Say that the network's outputs or its training loss are no longer finite."""


class Look(NamedTuple):
    """What a look at the model on a split leaves behind, to be worked out then or later."""

    logits: Tensor  # (N, C), on the CPU where they are few
    labels: Tensor  # (N,)
    found: dict[str, float | bool]  # what is known already: the loss, curvature, certificates


class WatchedSplit:
    """Measure a model on the examples of one split, again and again."""

    def __init__(
        self,
        name: str,
        model: nn.Module,
        loss: Any,
        data: tuple[Tensor, Tensor],
        measure: Sequence[str],
        *,
        eps: float = 0.01,
        bins: int = 15,
        processes: Processes = ALONE,
        **curvature: Any,
    ) -> None:
        check_criterion(loss)
        self.processes = processes
        self.name, self.model, self.loss, self.eps, self.bins = name, model, loss, eps, bins
        others = VAL_ONLY if name == "train" else TRAIN_ONLY
        wanted = [m for m in measure if m not in others]
        self.certify, self.temper = "certificate" in wanted, "temperature" in wanted
        self.x, self.y = data
        mine = processes.rows(len(self.y))  # whose outputs and curvature this process finds
        if len(self.y) < processes.count:
            raise ValueError(f"{name} has {len(self.y)} examples for {processes.count} processes")
        self.own = self.x[mine], self.y[mine]
        quantities = tuple(m for m in wanted if m not in NOT_CURVATURE)
        self.tracker: CurvatureTracker | None = None
        if quantities:
            curvature = {"sampled_rtol": SAMPLED, "group": processes.group} | curvature
            self.tracker = make_tracker(model, self.own, curved(loss), quantities, **curvature)
        self.host_y = self.y.cpu()

    def look(self) -> Look:
        """Do what needs the model: its outputs, the loss, curvature and certificates."""
        logits = self.logits()
        loss = mean_loss(self.loss, logits, self.y)
        found: dict[str, float | bool] = {}
        if self.tracker is not None:  # before anything is read: a device works on meanwhile
            found |= flat(self.tracker.measure())
            if not self.tracker.uses_graphs:
                self.tracker.release()  # the kept pass's memory belongs to training
        small = logits.numel() < SMALL
        logits, labels = (logits.cpu(), self.host_y) if small else (logits, self.y)
        found = {"loss": float(loss)} | found
        if not bool(torch.isfinite(logits).all()):
            raise Diverged(f"the outputs on {self.name} are not finite")
        if self.name == "train" and not math.isfinite(found["loss"]):
            raise Diverged("the training loss is not finite")
        if self.certify:
            found |= certificate_of(self.model, (self.x, self.y), self.eps)
        return Look(logits, labels, found)

    def working(self, look: Look) -> Callable[[], dict[str, float | bool]]:
        """Return what works out every quantity of a row, here or in another process."""
        return partial(numbers_of, look, self.name, self.bins, self.temper)

    def logits(self) -> Tensor:
        """The outputs on the whole split, (N, C), in evaluation mode."""
        if self.tracker is not None:
            logits = self.tracker.logits()
        else:
            logits = logits_of(self.model, self.own[0])
        return self.processes.gathered(logits, len(self.y))

    def snapshot(self, look: Look) -> dict[str, np.ndarray]:
        """Return what the report moves through: reliability bins, two histograms."""
        arrays = snapshot_of(look.logits, look.labels, self.bins)
        return {f"{self.name}_{key}": value for key, value in arrays.items()}


def numbers_of(look: Look, name: str, bins: int, temper: bool) -> dict[str, float | bool]:
    """Return every quantity by its name in a row, such as `val/ece`."""
    found = metrics_of(look.logits, look.labels, bins) | look.found
    if temper and len(look.labels) > 1:  # fitted on a half, judged on the other
        found |= split_temperature(look.logits, look.labels, bins=bins)._asdict()
    order = dict.fromkeys([*METRICS, *found])
    return {f"{name}/{key}": found[key] for key in order}


def make_tracker(*arguments: Any, replay: bool = False, **options: Any) -> CurvatureTracker:
    """Make a tracker that replays its passes as CUDA graphs if asked and if the data allow it."""
    if replay:
        try:
            return CurvatureTracker(*arguments, replay=True, **options)
        except ValueError:  # more data than one chunk holds
            pass
    return CurvatureTracker(*arguments, **options)


def logits_of(model: nn.Module, x: Tensor, chunk: int = 1024) -> Tensor:
    """Run a model over inputs in evaluation mode, chunk by chunk, and leave it as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            return torch.cat([at_least_float32(model(part)) for part in x.split(chunk)])
    finally:
        for module, training in modes:
            module.training = training


def metrics_of(logits: Tensor, labels: Tensor, bins: int = 15) -> dict[str, float]:
    """Return every metric and margin of logits (N, C), each sum taken once and read at once.

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> round(metrics_of(logits, torch.tensor([0, 2, 2, 1]))["ece"], 6)
    0.329259
    """
    pair = metrics.top_label(logits, labels)
    m = margins.true_margin(logits, labels)
    found = {
        "accuracy": pair[1].double().mean(),
        "confidence": pair[0].double().mean(),
        "ece": metrics.ece_from_confidence(*pair, bins),
        "adaptive_ece": metrics.adaptive_ece_from_confidence(*pair, bins),
        "classwise_ece": metrics.classwise_ece(logits, labels, bins),
        "mmce": metrics.mmce_from_confidence(*pair),
        "smece": metrics.smece_from_confidence(*pair),
        "nll": metrics.nll(logits, labels),
        "brier": metrics.brier(logits, labels),
        "entropy": metrics.entropy(logits),
        "margin_mean": m.double().mean(),
        **dict(zip(QUANTILES, quantiles(m, tuple(QUANTILES.values())), strict=True)),
        "log_q": margins.log_moment(m.double()),
    }
    values = torch.stack([value.double().to(m.device) for value in found.values()]).tolist()
    return dict(zip(found, values, strict=True))


def quantiles(values: Tensor, shares: Sequence[float]) -> Tensor:
    """Interpolate between order statistics, as torch.quantile, which stops at 2^24 values."""
    ordered = values.double().sort().values
    place = torch.tensor(shares, dtype=torch.float64, device=values.device) * (len(values) - 1)
    below, above = ordered[place.floor().long()], ordered[place.ceil().long()]
    return below + (above - below) * place.frac()


def flat(results: Mapping[str, Any]) -> dict[str, float | bool]:
    """Spread results over keys: the value, its relative error, a flag where not converged."""
    found: dict[str, float | bool] = {}
    for name, result in results.items():
        found[name] = float(result.value)
        found[f"{name}_error"] = float(result.error)
        if not result.converged:
            found[f"{name}_unconverged"] = True
    return found


def certificate_of(
    model: nn.Module, data: tuple[Tensor, Tensor], eps: float
) -> dict[str, float | bool]:
    """Return the slack of every statement of the margin theorems, and how many failed."""
    certificate = margins.certify(model, data, eps=eps)
    failed = sum(statement.holds is False for statement in certificate.statements)
    slacks = {f"slack {s.name}": s.slack for s in certificate.statements if s.holds is not None}
    return {"certificate_failed": failed, **slacks}


def snapshot_of(logits: Tensor, labels: Tensor, bins: int = 15) -> dict[str, np.ndarray]:
    """Return the reliability table and histograms of confidence (hits, misses) and margin."""
    confidence, correct = metrics.top_label(logits, labels)
    table = metrics.reliability_from_confidence(confidence, correct, bins)
    c, hit = confidence.cpu().double().numpy(), correct.cpu().numpy()
    margin = margins.true_margin(logits, labels).cpu().double().numpy()
    edges = np.linspace(0, 1, 41)
    margin_counts, margin_edges = np.histogram(margin, 60)
    return {
        **{name: part.cpu().numpy() for name, part in table._asdict().items()},
        "confidence_edges": edges,
        "confidence_right": np.histogram(c[hit], edges)[0],
        "confidence_wrong": np.histogram(c[~hit], edges)[0],
        "margin_edges": margin_edges,
        "margin_counts": margin_counts,
    }
