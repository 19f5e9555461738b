"""The demonstration: a network that learns wrong labels by heart is too sure, and what helps."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from toosure.config import RunConfig
from toosure.metrics.binned import ece_from_confidence
from toosure.runs import Run

# 400 digits, three in ten of them mislabelled: soon learnt by heart. Validation and test digits
# are right. Each seed draws other digits, other mistakes, another start and other batches.
DATA = "digits:train=400,noise=0.3,seed={}"
PLAIN = "SGD"
METHODS: dict[str, dict[str, str]] = {
    PLAIN: {"optimizer": "sgd:lr=0.1,momentum=0.9"},
    "CSAM": {"optimizer": "csam:lr=0.1,momentum=0.9,rho=1,gamma=4"},
    "mixup": {"optimizer": "sgd:lr=0.1,momentum=0.9", "objective": "mixup:alpha=0.5"},
}
TEMPERATURE = "SGD + temperature"
SEEDS = 5
STEPS = 500
CHOSEN = (
    "The data and the settings were chosen to show this, out of some twenty and by five seeds "
    "each: a demonstration, not a benchmark. On your data measure for yourself."
)


def demo_configs(steps: int = STEPS, seeds: int = SEEDS) -> dict[str, list[RunConfig]]:
    """Return the runs of each method, one per seed."""
    return {
        name: [
            RunConfig.of(
                {
                    **words,
                    "data": DATA.format(seed),
                    "steps": steps,
                    "every": max(1, steps // 10),
                    "seed": seed,
                }
            )
            for seed in range(seeds)
        ]
        for name, words in METHODS.items()
    }


@dataclass
class HeldOutScores:
    """Accuracy, mean confidence and ECE on the test digits, one value per seed."""

    accuracy: list[float] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)
    ece: list[float] = field(default_factory=list)

    def add(self, logits: np.ndarray, labels: np.ndarray) -> None:
        """Score the test logits of one more seed."""
        import torch

        probabilities = torch.from_numpy(logits).double().softmax(1)
        confidence, predicted = probabilities.max(1)
        right = predicted == torch.from_numpy(labels)

        self.accuracy.append(right.double().mean().item())
        self.confidence.append(confidence.mean().item())
        self.ece.append(float(ece_from_confidence(confidence, right)))


def demo_scores(out: Path, configs: Mapping[str, Sequence[RunConfig]]) -> dict[str, HeldOutScores]:
    """Read the runs' test predictions; plain SGD also with the temperature that its run fitted."""
    scores = {name: HeldOutScores() for name in (*configs, TEMPERATURE)}
    for name, of in configs.items():
        for config in of:
            run = Run(out / config.name)
            with np.load(run.last_predictions) as arrays:
                logits = arrays["test_logits"]
                labels = arrays["test_labels"]
            scores[name].add(logits, labels)

            if name == PLAIN:
                fitted = json.loads((run.path / "temperature.json").read_text())
                scores[TEMPERATURE].add(logits / fitted["temperature"], labels)
    return scores


def helped(plain: HeldOutScores, other: HeldOutScores) -> bool:
    """Whether ECE is lower in every seed, at no lower mean accuracy."""
    lower = all(a < b for a, b in zip(other.ece, plain.ece, strict=True))
    return lower and bool(np.mean(other.accuracy) >= np.mean(plain.accuracy))


def conclusion(scores: Mapping[str, HeldOutScores]) -> str:
    """Say in one line how sure plain training is, and what helped in every seed.

    >>> plain = HeldOutScores([0.7, 0.7], [0.9, 0.9], [0.2, 0.2])
    >>> better = HeldOutScores([0.7, 0.72], [0.72, 0.7], [0.05, 0.03])
    >>> conclusion({"SGD": plain, "CSAM": better, "mixup": plain})
    'SGD is too sure: 90 % sure, 70 % right (ECE 20.0 points). Better in each of 2 seeds at no less accuracy: CSAM (ECE 4.0, 71 % right). Not so: mixup.'
    """  # noqa: E501
    plain = scores[PLAIN]
    others = {name: each for name, each in scores.items() if name != PLAIN}
    better = [name for name, each in others.items() if helped(plain, each)]
    worse = [name for name in others if name not in better]
    gap = np.mean(plain.confidence) - np.mean(plain.accuracy)

    text = (
        f"{PLAIN} is {'too sure' if gap > 0 else 'not sure enough'}: "
        f"{percent(plain.confidence)} sure, {percent(plain.accuracy)} right "
        f"(ECE {points(plain.ece)} points)."
    )
    if better:
        each = ", ".join(
            f"{name} (ECE {points(others[name].ece)}, {percent(others[name].accuracy)} right)"
            for name in better
        )
        seeds = f"each of {len(plain.ece)} seeds" if len(plain.ece) > 1 else "one seed"
        text += f" Better in {seeds} at no less accuracy: {each}."
    if worse:
        text += f" Not so: {', '.join(worse)}."
    return text


def percent(shares: Sequence[float]) -> str:
    return f"{100 * np.mean(shares):.0f} %"


def points(errors: Sequence[float]) -> str:
    return f"{100 * np.mean(errors):.1f}"
