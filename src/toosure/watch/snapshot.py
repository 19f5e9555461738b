"""Snapshots: the reliability tables and histograms behind the slider of the report."""

import numpy as np
from torch import Tensor

from toosure import margins, metrics

CONFIDENCE_BARS = 40
MARGIN_BARS = 60


def snapshot_of(logits: Tensor, labels: Tensor, bins: int = 15) -> dict[str, np.ndarray]:
    """Return the reliability table and histograms of confidence (hits, misses) and margin.

    With two classes there is also a table of P(class 1) against the frequency of class 1.
    """
    confidence, correct = metrics.top_label(logits, labels)
    reliability = reliability_arrays(confidence, correct, bins)
    if logits.shape[1] == 2:
        of_class_one = reliability_arrays(*metrics.class_one(logits, labels), bins)
        reliability |= {f"class_one_{name}": part for name, part in of_class_one.items()}

    certainty = confidence.cpu().double().numpy()
    hit = correct.cpu().numpy()
    edges = np.linspace(0, 1, CONFIDENCE_BARS + 1)

    margin = margins.true_margin(logits, labels).cpu().double().numpy()
    margin_counts, margin_edges = np.histogram(margin, MARGIN_BARS)

    return {
        **reliability,
        "confidence_edges": edges,
        "confidence_right": np.histogram(certainty[hit], edges)[0],
        "confidence_wrong": np.histogram(certainty[~hit], edges)[0],
        "margin_edges": margin_edges,
        "margin_counts": margin_counts,
    }


def reliability_arrays(claimed: Tensor, true: Tensor, bins: int) -> dict[str, np.ndarray]:
    """Return a reliability table as arrays by name."""
    table = metrics.reliability_from_confidence(claimed, true, bins)
    return {name: part.cpu().numpy() for name, part in table._asdict().items()}
