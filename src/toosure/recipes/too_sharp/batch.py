"""Batch sharpness beside Gauss-Newton sharpness for SGD, against the edge of stability 2 / lr."""

from toosure.recipes.recipe import Findings, Setting, Shelf, Table
from toosure.recipes.too_sharp import sweeps


def findings(setting: Setting, shelf: Shelf) -> Findings:
    """Return both sharpnesses at the measured steps of each SGD run."""
    runs = shelf.runs(sweeps.batches(setting))
    rows = []
    for run in runs:
        edge = 2 / run.rows[-1]["lr"]
        for row in run.rows:
            batch, error = row["train/batch_sharpness"], row["train/batch_sharpness_error"]
            rows.append((
                f"{edge:.0f}", f"{row['step']:,}", f"{row['train/gn_sharpness']:.1f}",
                f"{batch:.1f} ± {error * abs(batch):.1f}", f"{row['train/ece']:.3f}",
            ))  # fmt: skip
    header = ("2 / lr", "step", "GN sharpness", "batch sharpness", "train ECE")
    note = (
        f"SGD, batch {sweeps.batches(setting)[0].batch}. Batch sharpness is the mean over batches "
        "of g'Hg / g'g (Andreyev and Beneventano, 2024), sampled; ± is the standard error of that "
        "mean."
    )
    return Findings([], [Table("Batch sharpness", header, tuple(rows), note)])
