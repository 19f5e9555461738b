"""Batch sharpness beside Gauss-Newton sharpness for SGD, against the edge of stability 2 / lr."""

from toosure.recipes.recipe import Findings, Setting, Table
from toosure.recipes.run_store import RunStore
from toosure.recipes.too_sharp import sweeps


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return both sharpnesses at the measured steps of each SGD run."""
    configs = sweeps.batch_sharpness(setting)
    rows = []
    for run in store.runs(configs):
        edge = 2 / run.rows[-1]["lr"]
        for row in run.rows:
            sharpness = row["train/batch_sharpness"]
            error = row["train/batch_sharpness_error"] * abs(sharpness)  # stored relative
            rows.append(
                (
                    f"{edge:.0f}",
                    f"{row['step']:,}",
                    f"{row['train/gn_sharpness']:.1f}",
                    f"{sharpness:.1f} ± {error:.1f}",
                    f"{row['train/ece']:.3f}",
                )
            )

    header = ("2 / lr", "step", "GN sharpness", "batch sharpness", "train ECE")
    note = (
        f"SGD, batch {configs[0].batch}. Batch sharpness is the mean over batches of g'Hg / g'g "
        "(Andreyev and Beneventano, 2024), sampled; ± is the standard error of that mean."
    )
    return Findings([], [Table("Batch sharpness", header, tuple(rows), note)])
