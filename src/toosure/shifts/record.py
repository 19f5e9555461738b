"""What a run folder keeps of its shifts (`shifts.json`), as numbers; needs no torch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toosure.finite import finite_number, json_ready

FILE = "shifts.json"
AVERAGE_FILE = "shifts_{}.json"  # of an average of the weights, by its name
METRICS = ("accuracy", "nll", "ece", "smece")
# Of logits divided by the temperature that fits the clean validation images, if there are any.
AFTER_TEMPERATURE = ("nll_after_temperature", "ece_after_temperature")
OOD_SCORES = ("confidence", "entropy", "energy", "margin")
Scores = dict[str, float]  # by the name of the metric


@dataclass(frozen=True)
class Ood:
    """How well scores tell the test images from images of another data set."""

    images: int
    auroc: Scores  # by the name of the score
    fpr95: Scores
    note: str = ""
    source: str = ""  # what was read: a word, or the hash of a file; not kept by earlier versions

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Ood":
        """Make the record of a set from what `as_json` returned."""
        scores = values["scores"]
        known = [name for name in OOD_SCORES if name in scores]
        return cls(
            images=whole(values["images"]),
            auroc={name: finite_number(scores[name]["auroc"]) for name in known},
            fpr95={name: finite_number(scores[name]["fpr95"]) for name in known},
            note=str(values.get("note", "")),
            source=str(values.get("source", "")),
        )

    def as_json(self) -> dict[str, Any]:
        scores = {
            name: {"auroc": self.auroc[name], "fpr95": self.fpr95[name]} for name in self.auroc
        }
        return {
            "images": self.images,
            "note": self.note,
            "source": self.source,
            "scores": scores,
        }


@dataclass(frozen=True)
class ShiftRecord:
    """The scores of one run: clean, under each corruption and severity, and on unknown data.

    `images` of the `available` test images were judged. `cells` maps (corruption, severity) to
    scores, as shares of 1 (NLL in nats); NaN for scores that are not finite.
    """

    images: int
    available: int
    clean: Scores
    cells: dict[tuple[str, int], Scores]
    ood: dict[str, Ood] = field(default_factory=dict)
    seed: int = 0
    step: int = 0
    seconds: float = 0.0
    device: str = ""

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "ShiftRecord | None":
        """Return the record that a run keeps; None if it has none, or it is damaged."""
        try:
            return cls.of(values) if values else None
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "ShiftRecord":
        """Read what `as_json` returned."""
        cells = {
            (str(corruption), whole(severity)): read_scores(scores)
            for corruption, by_severity in values["corruptions"].items()
            for severity, scores in by_severity.items()
        }
        if not cells:
            raise ValueError("no corruption was judged")

        return cls(
            images=whole(values["images"]),
            available=whole(values["available"]),
            clean=read_scores(values["clean"]),
            cells=cells,
            ood={str(name): Ood.of(ood) for name, ood in values.get("ood", {}).items()},
            seed=whole(values.get("seed", 0)),
            step=whole(values.get("step", 0)),
            seconds=finite_number(values.get("seconds", 0.0)),
            device=str(values.get("device", "")),
        )

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values, the means among them for people who read the file."""
        corruptions: dict[str, dict[str, dict[str, float | None]]] = {}
        for (corruption, severity), scores in self.cells.items():
            corruptions.setdefault(corruption, {})[str(severity)] = json_ready(scores)

        return {
            "images": self.images,
            "available": self.available,
            "seed": self.seed,
            "step": self.step,
            "seconds": self.seconds,
            "device": self.device,
            "clean": json_ready(self.clean),
            "mean": json_ready(self.means()),
            "corruptions": corruptions,
            "ood": {name: ood.as_json() for name, ood in self.ood.items()},
        }

    # -- means ------------------------------------------------------------------------------

    @property
    def corruptions(self) -> list[str]:
        """The corruptions that were judged, in order."""
        return list(dict.fromkeys(corruption for corruption, _ in self.cells))

    @property
    def severities(self) -> list[int]:
        """The severities that were judged, in order."""
        return sorted({severity for _, severity in self.cells})

    def mean(
        self, metric: str, severity: int | None = None, corruption: str | None = None
    ) -> float:
        """Return the mean of a metric over all cells, or of one severity or corruption."""
        values = [
            scores[metric]
            for (name, level), scores in self.cells.items()
            if severity in (None, level) and corruption in (None, name)
        ]
        return mean(values)

    def means(self) -> Scores:
        """Return the mean of each metric over all corruptions and severities."""
        after = [m for m in AFTER_TEMPERATURE if all(m in cell for cell in self.cells.values())]
        return {metric: self.mean(metric) for metric in (*METRICS, *after)}

    def at(self, metric: str, severity: int) -> float:
        """Return the mean of a metric at one severity; severity 0 is the clean test set."""
        return self.mean(metric, severity) if severity else self.clean[metric]

    def covers(self, corruptions: Sequence[str], severities: Sequence[int]) -> bool:
        """Whether every one of these corruptions was judged at every one of these severities."""
        return all((name, level) in self.cells for name in corruptions for level in severities)

    @property
    def mean_error(self) -> float:
        """The mean error over corruptions and severities, not normalised by another network."""
        return 1 - self.mean("accuracy")

    def same_images(self, other: "ShiftRecord") -> bool:
        """Whether both were judged on the same test images, under the same corruptions."""
        drawn = (self.images, self.available, self.seed)
        return drawn == (other.images, other.available, other.seed) and set(self.cells) == set(
            other.cells
        )

    def mean_corruption_error(self, *baseline: "ShiftRecord") -> float:
        """Return the mCE: errors summed over severities, divided by the baseline's, averaged.

        The baseline is one run, or several seeds whose errors are averaged. NaN where it makes no
        error under a corruption. Reference: Hendrycks and Dietterich (2019), arXiv 1903.12261.
        """
        if any(set(self.cells) != set(each.cells) for each in baseline):
            raise ValueError(
                "the runs were judged under different corruptions or severities: judge them alike "
                "with `toosure evaluate RUN --shifts`"
            )

        ratios = []
        for corruption in self.corruptions:
            own = 1 - self.mean("accuracy", corruption=corruption)
            errors = [1 - each.mean("accuracy", corruption=corruption) for each in baseline]
            ratios.append(own / mean(errors) if mean(errors) > 0 else math.nan)
        return mean(ratios)


def mean(values: Sequence[float]) -> float:
    """Return the mean; NaN of nothing."""
    return math.fsum(values) / len(values) if values else math.nan


def read_scores(values: Mapping[str, Any]) -> Scores:
    """Return the scores of one set; null becomes NaN."""
    written = {metric: values[metric] for metric in METRICS}
    written |= {metric: values[metric] for metric in AFTER_TEMPERATURE if metric in values}
    return {metric: math.nan if v is None else finite_number(v) for metric, v in written.items()}


def whole(value: object) -> int:
    """Return a whole number, also from the text that a JSON key is; raise on anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"not a whole number: {value!r}")
    return value
