"""What a snapshot of a run must hold for the pages to draw it."""

import numpy as np

# A reliability table of B bins and a histogram of M bars, by the shapes of their arrays.
RELIABILITY = ("edges", "counts", "accuracy", "confidence", "interval")
MARGIN = ("margin_edges", "margin_counts")


def check_snapshot(snapshot: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a snapshot whose splits have all that the pages draw, or raise."""
    for split in ("train", "val"):
        if f"{split}_counts" not in snapshot:
            continue
        parts = {name: snapshot[f"{split}_{name}"] for name in (*RELIABILITY, *MARGIN)}
        bins = len(parts["counts"])
        bars = len(parts["margin_counts"])
        expected = [(bins + 1,), (bins,), (bins,), (bins,), (bins, 2), (bars + 1,), (bars,)]
        if [part.shape for part in parts.values()] != expected:
            raise ValueError(f"the arrays of {split} do not fit each other")
    return snapshot
