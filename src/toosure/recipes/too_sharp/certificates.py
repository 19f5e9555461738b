"""Theorems 4.1 and 4.2 along one run of gradient descent, from overlap to separation."""

import numpy as np

from toosure.recipes.recipe import Claim, Findings, Setting, Shelf, Table, judged, unrun
from toosure.recipes.too_sharp import sweeps
from toosure.runs import Run

PREFIX = "train/slack "
SHOWN = 12  # rows of the table
SAYS = (
    "Theorems 4.1, 4.2 and the lemmas hold at every measured step",
    "The run goes from overlap to separation",
)


def findings(setting: Setting, shelf: Shelf) -> Findings:
    """Return the slack of every statement of the two theorems at every measured step."""
    run = shelf.run(sweeps.certified(setting))
    if run is None:
        return Findings(unrun(*SAYS))
    return Findings(claims(run), [table(run)], {"rows": run.rows})


def statements(run: Run) -> list[str]:
    """Return the statements of Theorems 4.1 and 4.2 that a run was ever held to."""
    keys = (key.removeprefix(PREFIX) for key in run.columns if key.startswith(PREFIX))
    return sorted(name for name in keys if name.startswith(("4.1", "4.2")))


def told(run: Run) -> list[str]:
    """Return the statements of the table: those on clean margins, robust ones left out."""
    robust = ("Q+", "certified", "(iv)", "gamma", "ECE", "curvature")
    return [name for name in statements(run) if not any(word in name for word in robust)]


def separated(run: Run) -> np.ndarray:
    """Return, a row each, whether every training margin is positive."""
    return run.columns["train/margin_min"] > 0


def table(run: Run) -> Table:
    """Lay slacks out over steps: absolute, of right side minus left side."""
    names, columns = told(run), run.columns
    places = np.unique(np.linspace(0, len(run.rows) - 1, SHOWN).astype(int))
    rows = tuple(
        (
            f"{run.rows[i]['step']:,}",
            "separation" if separated(run)[i] else "overlap",
            f"{columns['train/ece'][i]:.4f}",
            f"{columns['train/gn_sharpness'][i]:.3g}",
            *(shown(columns[PREFIX + name][i]) for name in names),
        )
        for i in places
    )
    note = (
        "Slack is the right side minus the left side of each inequality; – where a statement does "
        "not apply (Theorem 4.2 before every training point is right). Bounds that say no more "
        "than what is true of every model are clamped there. Every step, and the statements on "
        "robust margins, are in the run folder."
    )
    return Table("Slack of Theorems 4.1 and 4.2", ("step", "regime", "ECE", "sharpness", *names),
                 rows, note)  # fmt: skip


def shown(slack: float) -> str:
    return f"{slack:.3g}" if np.isfinite(slack) else "–"


def claims(run: Run) -> list[Claim]:
    """Judge: no statement fails at any step, and both regimes were seen."""
    failed, apart = run.columns["train/certificate_failed"], separated(run)
    checked = sum(int(np.isfinite(run.columns[PREFIX + name]).sum()) for name in statements(run))
    first = f"from step {run.columns['step'][apart][0]:,.0f}" if apart.any() else "never reached"
    return [
        judged(SAYS[0], f"{int(np.nansum(failed))} failures; {checked} checks of 4.1 and 4.2 in "
               f"{len(run.rows)} rows", "theorems", checked > 0 and bool(np.all(failed == 0)),
               "ours: checked in every row, with the rounding that each statement allows"),
        judged(SAYS[1], f"separated {first}", "both regimes", bool(apart.any() and not apart[0])),
    ]  # fmt: skip
