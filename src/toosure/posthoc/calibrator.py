"""The class of all calibrators: a module from logits to logits, fitted on held-out rows."""

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from toosure.binary import is_one_column, one_column, two_columns
from toosure.metrics import nll
from toosure.metrics.conversion import to_tensor
from toosure.metrics.distributions import are_probabilities
from toosure.metrics.inputs import (
    ArrayLike,
    as_logits,
    as_metric_logits,
    as_pair,
    at_least_float32,
    known_logits,
    known_outputs,
    one_of,
)
from toosure.metrics.one_column import LOGITS_MAY_BE_PROBABILITIES, may_be_probabilities
from toosure.posthoc.calibrator_inputs import (
    Outputs,
    check_every_class,
    check_values,
    kind_of,
    rows_of_fit,
    without_log_zero,
)

MANY = 100  # of fewer rows, as of one batch, logits may well all lie in [0, 1]
ONE_EACH = "one output each, for two classes; one row is logits[None]"  # of rows (N,)


class Calibrator(nn.Module):
    """Hold what all calibrators share: `fit(logits, labels)`, then logits to logits.

    A calibrator states in `keeps_top` whether the largest logit stays the largest, so that the
    accuracy cannot change. Fitted values are buffers, named in `fitted_names` and empty until the
    fit, so that `state_dict` holds everything. If the fit would have a worse NLL on its own rows
    than the logits as they came, it becomes the identity, `note` says so, and `fit` warns.

    A binary classifier's one logit per example, (N,) or (N, 1), is taken as two classes, and what
    comes out has the form of what came in. Probabilities go in as `probs=`.

    Write your own with `solve`, `become_identity` and `calibrated`.
    """

    keeps_top: ClassVar[bool] = False
    needs_every_class: ClassVar[bool] = True
    sees_offset: ClassVar[bool] = False  # whether a number added to a row of logits changes it
    fitted_names: ClassVar[tuple[str, ...]] = ()
    per_class: ClassVar[tuple[str, ...]] = ()  # names of those with one row per class

    fitted_classes: int | None = None  # of the rows of the fit; a state_dict does not tell it
    class_names: tuple[str, ...] = ()  # of the rows of the fit, where they are known
    fitted_on: Outputs | None = None

    def __init__(self) -> None:
        super().__init__()
        self.note = ""  # why the fit is not what was asked for; empty if it is
        for name in self.fitted_names:
            self.register_buffer(name, torch.empty(0, dtype=torch.float64))

    def fit(
        self,
        logits: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        *,
        probs: ArrayLike | None = None,
    ) -> Self:
        """Fit on rows the model was not trained on, and return the calibrator itself."""
        self.fit_quietly(logits, labels, probs=probs)
        if self.note:
            warnings.warn(f"{type(self).__name__}: {self.note}", UserWarning, stacklevel=2)
        return self

    def fit_quietly(
        self,
        logits: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        *,
        probs: ArrayLike | None = None,
    ) -> Self:
        """Fit as `fit` does, but do not warn of what `note` says."""
        kind: Outputs = "logits" if probs is None else "probs"
        logits, labels = self.checked(*rows_of_fit(logits, labels, probs))
        self.fitted_on = kind_of(logits, kind) if self.sees_offset else kind
        self.fitted_classes = logits.shape[1]
        self.note = ""
        with torch.no_grad():
            self.solve(logits, labels)
            if not self.note:
                self.keep_if_better(logits, labels)
        return self

    def solve(self, logits: Tensor, labels: Tensor) -> None:
        """Fit the buffers to these rows."""
        raise NotImplementedError

    def become_identity(self, classes: int, device: torch.device) -> None:
        """Set the buffers so that the probabilities stay as they come."""
        raise NotImplementedError

    def calibrated(self, logits: Tensor) -> Tensor:
        """Return the calibrated logits of logits in float32 or float64, without -inf."""
        raise NotImplementedError

    def least_rows(self, classes: int) -> int:
        """Return how many rows a fit needs: as many as it has free parameters, and at least 2."""
        return 2

    def forward(self, logits: Tensor) -> Tensor:
        """Return calibrated logits in the shape that came, (N, C) or one per example."""
        self.check_fitted()
        logits = to_tensor(logits)
        if is_one_column(logits):
            columns = two_columns(at_least_float32(logits))
            self.check_classes(columns, ONE_EACH)
            return one_column(self.calibrated(columns)).reshape(logits.shape)

        self.check_classes(logits)
        return self.calibrated(without_log_zero(at_least_float32(logits)))

    def check_fitted(self) -> None:
        """Refuse a calibrator that holds no numbers yet."""
        if any(getattr(self, name).numel() == 0 for name in self.fitted_names):
            raise ValueError(f"{type(self).__name__} is not fitted: call fit(logits, labels) first")

    def check_classes(self, logits: Tensor, taken_for: str = "") -> None:
        """Refuse rows with another number of classes than in the fit."""
        classes = logits.shape[-1]
        if not isinstance(classes, int):  # while torch.jit traces
            return
        sizes = (getattr(self, name).shape[0] for name in self.per_class)
        fitted = self.fitted_classes or next(sizes, classes)
        if classes != fitted:
            raise ValueError(
                f"{type(self).__name__} was fitted on {fitted} classes, and these rows have "
                f"{taken_for or f'{classes}: fit one on such rows'}"
            )

    def transform(
        self, logits: ArrayLike | None = None, *, probs: ArrayLike | None = None
    ) -> Tensor:
        """Return calibrated logits of logits and probabilities of `probs`, in the shape that came.

        >>> calibrator = Identity()
        >>> calibrator.transform(probs=torch.tensor([0.25, 0.5])).tolist()
        [0.25, 0.5]
        """
        outputs = one_of(logits, probs)
        self.check_outputs(outputs, "logits" if probs is None else "probs")
        if probs is None:
            calibrated: Tensor = self(outputs if is_one_column(outputs) else as_logits(outputs))
            return calibrated

        columns = self.predict_proba(probs=outputs)
        return columns[:, 1].reshape(outputs.shape) if is_one_column(outputs) else columns

    def predict_proba(
        self, logits: ArrayLike | None = None, *, probs: ArrayLike | None = None
    ) -> Tensor:
        """Return calibrated probabilities (N, C) as scikit-learn does; (N, 2) for one output."""
        outputs = one_of(logits, probs)
        self.check_outputs(outputs, "logits" if probs is None else "probs")
        with known_logits(probs):
            rows = as_metric_logits(logits, probs)
        if is_one_column(outputs):
            self.check_classes(rows, ONE_EACH)
        calibrated: Tensor = self(rows)
        return calibrated.softmax(1).to(at_least_float32(outputs).dtype)

    def check_outputs(self, outputs: Tensor, kind: Outputs) -> None:
        """Refuse probabilities given as logits, and outputs of another kind than in the fit."""
        name = type(self).__name__
        several = outputs.ndim == 2 and len(outputs) > 1  # one row may look so by chance
        if kind == "logits" and several and are_probabilities(outputs):
            raise ValueError(
                f"{name}: these are probabilities, not logits: give them as probs=; logits that "
                "only look so are given with 1 added to all"
            )
        one_each = is_one_column(outputs) and len(outputs) >= MANY
        if kind == "logits" and one_each and may_be_probabilities(outputs):
            raise ValueError(f"{name}: {LOGITS_MAY_BE_PROBABILITIES}")
        if self.sees_offset and self.fitted_on not in (None, kind_of(outputs, kind)):
            raise ValueError(
                f"{name} was fitted on {self.fitted_on} and is given {kind}: log p differs from "
                "logits by a number for each row, which it does not ignore; fit on the same kind"
            )

    def checked(self, logits: ArrayLike, labels: ArrayLike) -> tuple[Tensor, Tensor]:
        """Check the rows of a fit; raise with what is wrong and what to do."""
        logits, labels = as_pair(logits, labels)
        logits = logits.detach()
        name = type(self).__name__
        n, classes = logits.shape
        if classes < 2:
            raise ValueError(f"logits must have at least 2 classes; got {classes}")

        min_rows = self.least_rows(classes)
        if n < min_rows:
            remedy = "give more rows" if min_rows == 2 else "give more rows, or use Temperature"
            raise ValueError(
                f"{name} needs at least {min_rows:,} rows for {classes} classes; got {n:,}: "
                f"{remedy}"
            )
        if self.needs_every_class:
            check_every_class(labels, classes, name)
        return check_values(logits), labels

    def keep_if_better(self, logits: Tensor, labels: Tensor) -> None:
        """Become the identity, with a note, if the fit has a worse NLL than the identity."""
        with known_outputs():  # checked for the fit
            before = float(nll(logits, labels))
            after = float(nll(self(logits), labels))
        if after <= before:
            return
        self.become_identity(logits.shape[1], logits.device)
        self.note = (
            f"left the probabilities as they are: on the rows of the fit the NLL would be "
            f"{after:.6g}, and is {before:.6g} without"
        )

    def set_fitted(self, **values: Tensor) -> None:
        """Set buffers by name, in float64."""
        for name, value in values.items():
            setattr(self, name, value.detach().double())

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *rest: Any, **more: Any
    ) -> None:
        """Take the shapes from the state: before a fit they are not known."""
        self.fitted_classes = None
        for name in self.fitted_names:
            value = state_dict.get(prefix + name)
            if value is not None:
                own = getattr(self, name)
                setattr(self, name, own.new_empty(value.shape))
        super()._load_from_state_dict(state_dict, prefix, *rest, **more)


class Identity(Calibrator):
    """Leave the logits unchanged, for comparison.

    >>> Identity()(torch.tensor([[2.0, 0.5]])).tolist()
    [[2.0, 0.5]]
    """

    keeps_top = True
    needs_every_class = False

    def solve(self, logits: Tensor, labels: Tensor) -> None:
        """Do nothing: there is nothing to fit."""

    def calibrated(self, logits: Tensor) -> Tensor:
        """Return the logits."""
        return logits


def restore_top_class(outputs: Tensor, logits: Tensor) -> Tensor:
    """Lift the class with the largest logit above the others if rounding made them equal.

    >>> restore_top_class(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]])).argmax(1).tolist()
    [1]
    """
    top = logits.argmax(1, keepdim=True)
    highest = outputs.amax(1, keepdim=True)
    lifted = highest + 2 * torch.finfo(outputs.dtype).eps * highest.abs().clamp(min=1)
    others = outputs.scatter(1, top, -torch.inf).amax(1, keepdim=True)
    own = outputs.gather(1, top)
    return outputs.scatter(1, top, torch.where(own > others, own, lifted))
