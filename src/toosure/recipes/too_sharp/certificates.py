"""Theorems 4.1 and 4.2 along one run of gradient descent, from overlap to separation."""

import numpy as np

from toosure.recipes.recipe import Claim, Findings, Setting, Table, claims_without_runs, judge
from toosure.recipes.run_store import RunStore
from toosure.recipes.too_sharp import sweeps
from toosure.runs import Run

PREFIX = "train/slack "
ROBUST = ("Q+", "certified", "(iv)", "gamma", "ECE", "curvature")  # statements on robust margins
MAX_ROWS = 12  # of the table
THEOREMS_HOLD = "Theorems 4.1, 4.2 and the lemmas hold at every measured step"
BOTH_REGIMES = "The run goes from overlap to separation"


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the slack of each statement of the two theorems at every measured step."""
    run = store.run(sweeps.certified_run(setting))
    if run is None:
        return Findings(claims_without_runs(THEOREMS_HOLD, BOTH_REGIMES))
    return Findings(claims(run), [table(run)], {"rows": run.rows})


def statements(run: Run) -> list[str]:
    """Return the statements of Theorems 4.1 and 4.2 checked along a run."""
    keys = (key.removeprefix(PREFIX) for key in run.columns if key.startswith(PREFIX))
    return sorted(name for name in keys if name.startswith(("4.1", "4.2")))


def clean_statements(run: Run) -> list[str]:
    """Return the statements on clean margins, which the table shows."""
    return [name for name in statements(run) if not any(word in name for word in ROBUST)]


def is_separated(run: Run) -> np.ndarray:
    """Return whether every training margin is positive, one value per row."""
    return run.columns["train/margin_min"] > 0


def claims(run: Run) -> list[Claim]:
    """Judge whether no statement ever fails, and whether both regimes occur."""
    failed = run.columns["train/certificate_failed"]
    checks = sum(int(np.isfinite(run.columns[PREFIX + name]).sum()) for name in statements(run))
    separated = is_separated(run)
    reached = "never reached"
    if separated.any():
        reached = f"from step {run.columns['step'][separated][0]:,.0f}"

    return [
        judge(
            THEOREMS_HOLD,
            found=f"{int(np.nansum(failed))} failures; {checks} checks of 4.1 and 4.2 in "
            f"{len(run.rows)} rows",
            paper="theorems",
            holds=checks > 0 and bool(np.all(failed == 0)),
            rule="ours: checked in every row, with the rounding that each statement allows",
        ),
        judge(
            BOTH_REGIMES,
            found=f"separated {reached}",
            paper="both regimes",
            holds=bool(separated.any() and not separated[0]),
        ),
    ]


def table(run: Run) -> Table:
    """Lay out the slack of each statement (right side minus left side) at a few steps."""
    names = clean_statements(run)
    columns = run.columns
    separated = is_separated(run)
    shown = np.unique(np.linspace(0, len(run.rows) - 1, MAX_ROWS).astype(int))
    rows = tuple(
        (
            f"{run.rows[i]['step']:,}",
            "separation" if separated[i] else "overlap",
            f"{columns['train/ece'][i]:.4f}",
            f"{columns['train/gn_sharpness'][i]:.3g}",
            *(slack_text(columns[PREFIX + name][i]) for name in names),
        )
        for i in shown
    )

    header = ("step", "regime", "ECE", "sharpness", *names)
    note = (
        "Slack is the right side minus the left side of each inequality; – where a statement does "
        "not apply (Theorem 4.2 before every training point is right). Bounds that say no more "
        "than what is true of every model are clamped there. Every step, and the statements on "
        "robust margins, are in the run folder."
    )
    return Table("Slack of Theorems 4.1 and 4.2", header, rows, note)


def slack_text(slack: float) -> str:
    return f"{slack:.3g}" if np.isfinite(slack) else "–"
