"""What a snapshot of a run must hold for the pages to draw it."""

import numpy as np

# A reliability table of B bins and a histogram of M bars, by the shapes of their arrays.
RELIABILITY = ("edges", "counts", "accuracy", "confidence", "interval")
MARGIN = ("margin_edges", "margin_counts")
MAX_BINS = 10_000
MAX_COUNT = 2.0**53


def check_snapshot(snapshot: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a snapshot whose splits have all that the pages draw, or raise."""
    for split in ("train", "val"):
        if f"{split}_counts" not in snapshot:
            continue
        parts = {name: part_of(snapshot, split, name) for name in (*RELIABILITY, *MARGIN)}
        bins = parts["counts"].size
        bars = parts["margin_counts"].size
        expected = [(bins + 1,), (bins,), (bins,), (bins,), (bins, 2), (bars + 1,), (bars,)]
        if [part.shape for part in parts.values()] != expected:
            raise ValueError(f"the arrays of {split} do not fit each other")
        if max(bins, bars) > MAX_BINS:
            raise ValueError(f"{split} has {max(bins, bars):,} bins; at most {MAX_BINS:,} are read")
        check_values(split, parts)
    return snapshot


def part_of(snapshot: dict[str, np.ndarray], split: str, name: str) -> np.ndarray:
    """Return an array of numbers."""
    part = snapshot.get(f"{split}_{name}")
    if part is None:
        raise ValueError(f"{split}_{name} is missing")
    if part.dtype.kind not in "biuf":
        raise ValueError(f"{split}_{name} must hold numbers; got {part.dtype}")
    return part


def check_values(split: str, parts: dict[str, np.ndarray]) -> None:
    """Raise where a value is none of its kind: a count, a share, an edge."""
    for name in ("counts", "margin_counts"):
        counts = parts[name].astype(float)
        if not (np.isfinite(counts).all() and (counts >= 0).all() and counts.sum() < MAX_COUNT):
            raise ValueError(f"{split}_{name} must hold counts")
    for name in ("edges", "margin_edges"):
        if not np.isfinite(parts[name]).all():
            raise ValueError(f"{split}_{name} must be finite")

    filled = parts["counts"] > 0
    if not filled.any():
        raise ValueError(f"{split}_counts holds no samples")
    for name in ("edges", "accuracy", "confidence", "interval"):
        shares = parts[name] if name == "edges" else parts[name][filled]
        if not ((shares >= -1e-3) & (shares <= 1 + 1e-3)).all():
            raise ValueError(f"{split}_{name} must lie in [0, 1]")
