"""Predictions whose classes are calibrated, or wrong by as much as is asked for."""

import numpy as np

from toosure.predictions import from_logits

NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# Of the network that we saw: dogs too sure by 7 points, trucks not sure enough by 16.
OPPOSITE = (0.02, -0.02, 0.05, 0.06, 0.01, 0.07, 0.0, 0.01, -0.03, -0.16)


def logits_of(confidence, predicted, classes):
    """Logits that claim a confidence for the predicted class, and give the next one the rest."""
    logits = np.full((len(confidence), classes), -60.0)
    rows = np.arange(len(confidence))
    logits[rows, (predicted + 1) % classes] = 0
    logits[rows, predicted] = np.log(confidence / (1 - confidence))
    return logits


def drawn(n, classes=10, shift=(0.0,), sure=False, sharper=1.0, seed=0):
    """Predictions whose confidence is right but for the shift of their class.

    Classes differ in difficulty. With `sure` the mean confidence is 99 %. All logits are
    multiplied by `sharper` after the labels were drawn.
    """
    rng = np.random.default_rng(seed)
    easy = np.random.default_rng(99).uniform(1, 4, classes)
    predicted = rng.integers(classes, size=n)
    doubt = rng.beta(0.3 if sure else 1, (5 if sure else 1) * easy[predicted], n)
    confidence = np.clip(1 - doubt / 2, 0.5, 1 - 1e-9)

    chance = np.clip(confidence - np.resize(shift, classes)[predicted], 0.02, 1)
    labels = np.where(rng.random(n) < chance, predicted, (predicted + 1) % classes)
    return from_logits(sharper * logits_of(confidence, predicted, classes), labels)
