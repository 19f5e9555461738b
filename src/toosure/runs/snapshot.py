"""Check that a snapshot of a run holds what the pages draw."""

import numpy as np

# A reliability table of B bins and a histogram of M bars, by the shapes of their arrays.
RELIABILITY = ("edges", "counts", "accuracy", "confidence", "interval")
MARGIN = ("margin_edges", "margin_counts")
MAX_BINS = 10_000
MAX_COUNT = 2.0**53


def check_snapshot(snapshot: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a snapshot if its splits have everything that the pages draw, else raise."""
    for split in ("train", "val"):
        if f"{split}_counts" not in snapshot:
            continue
        check_reliability(snapshot, split)
        if f"{split}_class_one_counts" in snapshot:
            check_reliability(snapshot, f"{split}_class_one")
        check_margins(snapshot, split)
    return snapshot


def check_reliability(snapshot: dict[str, np.ndarray], table: str) -> None:
    """Raise if a reliability table has wrong shapes or values."""
    parts = {name: part_of(snapshot, table, name) for name in RELIABILITY}
    bins = parts["counts"].size
    check_shapes(table, parts, [(bins + 1,), (bins,), (bins,), (bins,), (bins, 2)])
    check_counts(table, "counts", parts["counts"])

    filled = parts["counts"] > 0
    if not filled.any():
        raise ValueError(f"{table}_counts holds no samples")
    for name in ("edges", "accuracy", "confidence", "interval"):
        shares = parts[name] if name == "edges" else parts[name][filled]
        if not ((shares >= -1e-3) & (shares <= 1 + 1e-3)).all():
            raise ValueError(f"{table}_{name} must lie in [0, 1]")


def check_margins(snapshot: dict[str, np.ndarray], split: str) -> None:
    """Raise if a histogram of margins has wrong shapes or values."""
    parts = {name: part_of(snapshot, split, name) for name in MARGIN}
    bars = parts["margin_counts"].size
    check_shapes(split, parts, [(bars + 1,), (bars,)])
    check_counts(split, "margin_counts", parts["margin_counts"])
    if not np.isfinite(parts["margin_edges"]).all():
        raise ValueError(f"{split}_margin_edges must be finite")


def part_of(snapshot: dict[str, np.ndarray], split: str, name: str) -> np.ndarray:
    """Return an array of numbers."""
    part = snapshot.get(f"{split}_{name}")
    if part is None:
        raise ValueError(f"{split}_{name} is missing")
    if part.dtype.kind not in "biuf":
        raise ValueError(f"{split}_{name} must hold numbers; got {part.dtype}")
    return part


def check_shapes(table: str, parts: dict[str, np.ndarray], expected: list[tuple[int, ...]]) -> None:
    """Raise if arrays do not fit each other, or are too many to draw."""
    if [part.shape for part in parts.values()] != expected:
        raise ValueError(f"the arrays of {table} do not fit each other")
    bins = expected[1][0]
    if bins > MAX_BINS:
        raise ValueError(f"{table} has {bins:,} bins; at most {MAX_BINS:,} are read")


def check_counts(table: str, name: str, values: np.ndarray) -> None:
    """Raise if a value is not a count."""
    counts = values.astype(float)
    if not (np.isfinite(counts).all() and (counts >= 0).all() and counts.sum() < MAX_COUNT):
        raise ValueError(f"{table}_{name} must hold counts")
