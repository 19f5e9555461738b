"""Average the predictions of finished runs: the mixture, its members, and what each one adds."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toosure.binary import one_column
from toosure.ensembles import disagreement, log_mean_probability, mean_pairwise_kl
from toosure.evaluate.by_kind import evaluate
from toosure.evaluate.class_one import class_one_view
from toosure.evaluate.matching_rows import check_same_classes, check_same_rows
from toosure.evaluate.result import Evaluation
from toosure.metrics import ece_from_confidence, nll
from toosure.predictions import Predictions, from_logits
from toosure.predictions.labels import numbered_otherwise
from toosure.runs.row_units import UNITS, unit_array

Split = str  # "test", "val", "shift", or "" where a file holds one set of rows


class DifferentRowsError(ValueError):
    """Predictions are not of the same rows."""


@dataclass(frozen=True)
class Member:
    """One member: its numbers alone, and how much the mixture gains by it.

    `nll_gain` is the NLL of the mixture without the member minus the NLL with it: a member with a
    gain above 0 helps.
    """

    name: str
    accuracy: float
    nll: float
    ece: float
    gap: float  # mean confidence minus accuracy; of P(class 1), its mean minus the frequency
    nll_gain: float | None  # None where it is the only one


@dataclass(frozen=True)
class Ensemble:
    """Several sets of predictions of the same rows, averaged."""

    predictions: Mapping[Split, Predictions]  # of the mixture
    judged: Split  # the split that the numbers are from
    evaluation: Evaluation
    members: tuple[Member, ...]
    disagreement: float  # share of pairs of members that predict different classes
    kl: float  # mean divergence between two members

    @property
    def sentence(self) -> str:
        """A sentence: NLL and ECE of the members and of their mixture."""
        mean = sum(member.nll for member in self.members) / len(self.members)
        own = self.evaluation.metrics["nll"].value
        errors = sum(member.ece for member in self.members) / len(self.members)
        return (
            f"{len(self.members)} members with an NLL of {mean:.4f} on average make a mixture of "
            f"{own:.4f}; ECE {100 * errors:.2f} points on average, "
            f"{100 * self.evaluation.metrics['ece'].value:.2f} of the mixture; two members differ "
            f"on {100 * self.disagreement:.1f} % of the rows"
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of a file for `toosure evaluate`: log-probabilities and labels.

        Where rows have one, also the sequence, image or example of each.
        Members of one output each make one logit. Labels count from 0; names that are other numbers
        would not agree with them, and are left out.
        """
        content: dict[str, np.ndarray] = {}
        for split, predictions in self.predictions.items():
            assert predictions.logits is not None and predictions.labels is not None
            prefix = f"{split}_" if split else ""
            logits = one_column(predictions.logits) if predictions.binary else predictions.logits
            content[f"{prefix}logits"] = logits.cpu().numpy()
            content[f"{prefix}labels"] = predictions.labels.cpu().numpy()
            if predictions.groups is not None:
                unit = predictions.group_name if predictions.group_name in UNITS else "example"
                content[unit_array(split, unit)] = predictions.groups.cpu().numpy()
            if predictions.names and not numbered_otherwise(predictions.names):
                content["class_names"] = np.array(predictions.names)
        return content

    def as_json(self) -> dict[str, Any]:
        """Return every number as plain values."""
        return {
            **self.evaluation.as_json(),
            "members": [vars(member) for member in self.members],
            "disagreement": self.disagreement,
            "member_kl": self.kl if math.isfinite(self.kl) else None,
        }


def average_predictions(
    members: Mapping[str, Mapping[Split, Predictions]], judged: Split, **options: Any
) -> Ensemble:
    """Average members by name, each with predictions by split; `options` go to `evaluate`.

    >>> rows = [[2.0, 0.0], [0.0, 1.0], [0.5, 0.0]]
    >>> both = {name: {"": from_logits(rows, [0, 1, 1])} for name in ("a", "b")}
    >>> average_predictions(both, "", metrics=["nll", "ece"]).disagreement
    0.0
    """
    if len(members) < 2:
        raise ValueError(f"an ensemble needs two members or more; got {len(members)}")
    if any(judged not in by_split for by_split in members.values()):
        raise ValueError(f"not every member has predictions of {judged or 'these rows'}")

    # Runs may have different validation rows: such a split has no mixture.
    first = next(iter(members.values()))
    mixed = {judged: mixture({name: by_split[judged] for name, by_split in members.items()})}
    for split in first:
        if split != judged and all(split in by_split for by_split in members.values()):
            with suppress(DifferentRowsError):
                mixed[split] = mixture(
                    {name: by_split[split] for name, by_split in members.items()}
                )

    alone = {name: by_split[judged] for name, by_split in members.items()}
    logits = torch.stack([logits_in(name, each) for name, each in alone.items()])
    evaluation = evaluate(mixed[judged], **options)
    return Ensemble(
        mixed,
        judged,
        evaluation,
        tuple(member_rows(alone, logits, evaluation)),
        disagreement(logits),
        mean_pairwise_kl(logits),
    )


def mixture(members: Mapping[str, Predictions]) -> Predictions:
    """Return the mixture of predictions; raise if they are not of the same rows."""
    names = list(members)
    first = members[names[0]]
    logits = [logits_in(name, each) for name, each in members.items()]
    first_named = replace(first, source=names[0])

    for name, each, rows in zip(names[1:], list(members.values())[1:], logits[1:], strict=True):
        named = replace(each, source=name)
        check_same_classes(first_named, named)
        try:
            check_same_rows(first_named, named)
        except ValueError as error:
            raise DifferentRowsError(
                f"{name} was judged on other rows than {names[0]}: members of an ensemble need the "
                f"same data, split and order ({error})"
            ) from error
        if rows.shape != logits[0].shape:
            raise ValueError(f"{name} has other classes than {names[0]}")

    predictions = from_logits(log_mean_probability(torch.stack(logits)), as_labels(first))
    binary = all(each.binary for each in members.values())
    # They are of the same rows, and one member may say more of them.
    grouped = next((each for each in members.values() if each.groups is not None), first)
    return replace(
        predictions,
        names=first.names,
        source=f"mixture of {len(names)}",
        binary=binary,
        groups=grouped.groups,
        group_name=grouped.group_name,
    )


def member_rows(
    members: Mapping[str, Predictions], logits: Tensor, mixed: Evaluation
) -> list[Member]:
    """Return the numbers of each member: alone, and how much the mixture gains by it.

    Calibration is judged as for the mixture: by the predicted class or by P(class 1).
    """
    labels = as_labels(next(iter(members.values())))
    whole = float(nll(log_mean_probability(logits), labels))

    rows = []
    for place, (name, member) in enumerate(members.items()):
        others = torch.cat([logits[:place], logits[place + 1 :]])
        judged = class_one_view(member) if mixed.class_one else member
        pair = (judged.confidence, judged.correct)
        rows.append(
            Member(
                name,
                accuracy=float(member.correct.double().mean()),
                nll=float(nll(logits[place], labels)),
                ece=float(ece_from_confidence(*pair, mixed.bins, mixed.edge)),
                gap=float(pair[0].double().mean() - pair[1].double().mean()),
                nll_gain=float(nll(log_mean_probability(others), labels)) - whole,
            )
        )
    return rows


def logits_in(name: str, predictions: Predictions) -> Tensor:
    """Return the logits, in float64 so that members of other precisions can be stacked."""
    if predictions.logits is None or predictions.labels is None:
        raise ValueError(f"{name} holds confidences alone: averaging needs scores of all classes")
    return predictions.logits.double()


def as_labels(predictions: Predictions) -> Tensor:
    assert predictions.labels is not None
    return predictions.labels
