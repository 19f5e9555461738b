"""CalMO's whole table (version 1 of the paper): four optimizers, six methods, one seed each."""

from dataclasses import dataclass

import numpy as np

from toosure.config import RunConfig
from toosure.recipes.recipe import (
    Claim,
    Findings,
    Setting,
    Table,
    judge,
    missing_runs,
)
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import pearson, spearman
from toosure.recipes.too_sharp import calmo, paper
from toosure.recipes.too_sharp.calmo import Cell, ScoredCells

Means = dict[Cell, tuple[float, float]]  # accuracy as a share of 1, ECE

QUICK_METHODS = ("CE", "label smoothing", "focal")  # a step is one or two passes
NEW_CELLS = tuple(cell for cell in calmo.CELLS if cell not in calmo.MAIN)
# The order for `--limit`: cheap cells first, and last the cells that `calmo` trains with three
# seeds.
CELLS = (
    *(cell for cell in NEW_CELLS if cell[1] in QUICK_METHODS),
    *(cell for cell in NEW_CELLS if cell[1] not in QUICK_METHODS),
    *calmo.MAIN,
)


@dataclass(frozen=True)
class Pattern:
    """A comparison of two columns of the paper's table, once per optimizer.

    `method` has a lower ECE than `rival`, or a higher accuracy. Our runs must show it under every
    optimizer under which the paper's figures do.
    """

    statement: str
    method: str
    rival: str
    quantity: str = "ECE"

    def holds_in(self, means: Means, optimizer: str) -> bool:
        """Whether the figures of one optimizer show the pattern."""
        accuracy, ece = means[optimizer, self.method]
        rival_accuracy, rival_ece = means[optimizer, self.rival]
        if self.quantity == "accuracy":
            return accuracy > rival_accuracy
        return ece < rival_ece


PATTERNS = (
    Pattern("CalMO lowers test ECE", "CalMO", "CE"),
    Pattern("CalMO raises test accuracy", "CalMO", "CE", "accuracy"),
    Pattern("its smoothness term alone lowers test ECE", "smoothness only", "CE"),
    Pattern("its robustness term alone lowers test ECE", "robustness only", "CE"),
    Pattern("CalMO's test ECE is below label smoothing's", "CalMO", "label smoothing"),
    Pattern("label smoothing raises test accuracy", "label smoothing", "CE", "accuracy"),
    Pattern("focal loss lowers test ECE", "focal", "CE"),
)


def configs(setting: Setting) -> list[RunConfig]:
    return calmo.configs(setting, CELLS)


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the whole table beside the paper's, and the claims on its columns."""
    scored = calmo.score_cells(setting, store, CELLS)
    means = cell_means(scored)

    single = [
        calmo.improvement_claim(setting, name, scored[name, "CE"], scored[name, "CalMO"])
        for name in ("AdamW", "SAM")
    ]
    patterns = [pattern_claim(setting, pattern, means) for pattern in PATTERNS]
    tables = [grid(setting, means), calmo.table(scored)]
    if setting.on_paper_data:
        tables.insert(1, agreement_table(means))
    return Findings([*patterns, *single], tables, calmo.unrounded(scored))


def cell_means(cells: ScoredCells) -> Means:
    """Return mean accuracy and ECE over the seeds of each cell that has a run."""
    return {
        cell: (row.mean("accuracy"), row.mean("ece")) for cell, row in cells.items() if row.records
    }


# -- claims ---------------------------------------------------------------------------------


def pattern_claim(setting: Setting, pattern: Pattern, means: Means) -> Claim:
    """Judge whether our runs show a pattern under every optimizer under which the paper's do.

    One seed of one cell decides nothing. The comparison is repeated under up to four optimizers,
    and the sign must be the paper's under all of them.
    """
    shown = [name for name in calmo.OPTIMIZERS if pattern.holds_in(paper.CALMO, name)]
    statement = f"CalMO's table: {pattern.statement} under {', '.join(shown)}"
    present = [
        name for name in shown if (name, pattern.method) in means and (name, pattern.rival) in means
    ]
    if not present:
        return Claim(statement, "–", note="of no optimizer are both columns there")

    ours = [name for name in present if pattern.holds_in(means, name)]
    missing = missing_runs(len(present), len(shown)).replace("runs", "comparisons")
    return judge(
        statement,
        found=f"{len(ours)} of {len(present)}" + (f": {', '.join(ours)}" if ours else ""),
        paper=f"{len(shown)} of {len(calmo.OPTIMIZERS)} optimizers",
        holds=ours == present,
        rule="ours: the paper's sign under each of them, by the means over seeds",
        reasons=[setting.why_not_judged, missing],
    )


# -- tables ---------------------------------------------------------------------------------


def grid(setting: Setting, means: Means) -> Table:
    """Lay out accuracy / ECE as in the paper, with its figures below ours on its own data."""
    rows = []
    for name in calmo.OPTIMIZERS:
        ours = (
            cell_text(100 * means[name, method][0], means[name, method][1])
            if (name, method) in means
            else "–"
            for method in calmo.METHODS
        )
        rows.append((name, *ours))
        if setting.on_paper_data:
            theirs = (cell_text(*paper.CALMO[name, method]) for method in calmo.METHODS)
            rows.append(("  the paper", *theirs))

    note = (
        "Test accuracy in per cent / test ECE at the measured step of least validation loss; means "
        "over seeds, of which the table below has the number. Each claim compares two columns "
        "under every optimizer under which the paper's own figures show it."
    )
    return Table("CalMO's whole table", ("", *calmo.METHODS), tuple(rows), note)


def cell_text(accuracy: float, ece: float) -> str:
    return f"{accuracy:.1f} / {ece:.3f}"


def agreement_table(means: Means) -> Table:
    """Lay out how far our cells are from the paper's, and how well their order agrees."""
    cells = list(means)
    ours = np.array([(100 * means[cell][0], means[cell][1]) for cell in cells]).reshape(-1, 2)
    theirs = np.array([paper.CALMO[cell] for cell in cells]).reshape(-1, 2)

    rows = []
    for column, (name, form) in enumerate((("accuracy, points", ".1f"), ("ECE", ".3f"))):
        distance = ours[:, column] - theirs[:, column]
        if not len(distance):
            continue
        rows.append(
            (
                name,
                str(len(cells)),
                f"{distance.mean():+{form}}",
                f"{np.abs(distance).mean():{form}}",
                f"{np.abs(distance).max():{form}}",
                f"{pearson(ours[:, column], theirs[:, column]):.2f}",
                f"{spearman(ours[:, column], theirs[:, column]):.2f}",
            )
        )

    header = ("", "cells", "ours - theirs", "mean distance", "largest", "r", "Spearman")
    note = "Over all cells that were run: ours against the paper's. Reported, not judged."
    return Table("How near the paper's cells", header, tuple(rows), note)
